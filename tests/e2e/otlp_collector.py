"""A collector of OTLP over gRPC for tests, which reads messages by the OpenTelemetry project's own
descriptors (tests/testdata/otlp), not by the server's."""

import concurrent.futures
import json
import pathlib
import threading

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

DESCRIPTORS = pathlib.Path(__file__).resolve().parents[1] / "testdata" / "otlp" / "descriptors.json"
PACKAGE = "opentelemetry.proto.collector.trace.v1"
PATIENCE = 60  # seconds: beyond it something hangs; never how long a thing should take


def _messages():
    pool = descriptor_pool.DescriptorPool()
    files = json_format.ParseDict(
        json.loads(DESCRIPTORS.read_text()), descriptor_pb2.FileDescriptorSet()
    )
    for file in files.file:
        pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    return [
        factory.GetPrototype(pool.FindMessageTypeByName(f"{PACKAGE}.ExportTraceService{name}"))
        for name in ("Request", "Response")
    ]


REQUEST, RESPONSE = _messages()


def value_of(value):
    """A Python value of an AnyValue."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(item) for item in value.array_value.values]
    return getattr(value, kind)


def attributes_of(pairs):
    return {pair.key: value_of(pair.value) for pair in pairs}


class Span:
    """A received span; ids are hexadecimal."""

    def __init__(self, span, resource):
        self.resource = resource
        self.trace_id, self.id = span.trace_id.hex(), span.span_id.hex()
        self.parent, self.state = span.parent_span_id.hex(), span.trace_state
        self.name, self.kind, self.error = span.name, span.kind, span.status.code == 2
        self.begin, self.end = span.start_time_unix_nano, span.end_time_unix_nano
        self.attributes = attributes_of(span.attributes)
        self.events = [(e.name, e.time_unix_nano, attributes_of(e.attributes)) for e in span.events]

    @property
    def is_server(self):
        return self.kind == 2


class Collector:
    """Takes spans on `port` (0: any) until stop(). `answer`: None takes them, a grpc.StatusCode
    refuses, "hang" never answers, an int rejects that many of each export."""

    def __init__(self, port=0):
        self.answer = None
        self.exports = 0
        self.spans = []
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._server = grpc.server(
            concurrent.futures.ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)]
        )
        method = grpc.unary_unary_rpc_method_handler(
            self._export, REQUEST.FromString, RESPONSE.SerializeToString
        )
        handler = grpc.method_handlers_generic_handler(
            f"{PACKAGE}.TraceService", {"Export": method}
        )
        self._server.add_generic_rpc_handlers((handler,))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        assert self.port != 0, f"port {port} is in use"
        self.endpoint = f"127.0.0.1:{self.port}"
        self._server.start()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop()

    def stop(self):
        self._stopped.set()
        self._server.stop(grace=None).wait()

    def _export(self, request, context):
        with self._changed:
            self.exports += 1
            self._changed.notify_all()
        if isinstance(self.answer, grpc.StatusCode):
            context.abort(self.answer, "by the test")
        if self.answer == "hang":
            self._stopped.wait()
            context.abort(grpc.StatusCode.UNAVAILABLE, "stopped")
        response = RESPONSE()
        if isinstance(self.answer, int):
            response.partial_success.rejected_spans = self.answer
        with self._changed:
            for group in request.resource_spans:
                resource = attributes_of(group.resource.attributes)
                for scope in group.scope_spans:
                    self.spans += [Span(span, resource) for span in scope.spans]
            self._changed.notify_all()
        return response

    def wait(self, condition, what):
        """Returns once `condition(self)` holds."""
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self), PATIENCE):
                names = [span.name for span in self.spans]
                raise AssertionError(f"never: {what}; {self.exports} exports, spans {names}")

    def trace(self, trace_id):
        """The spans of a trace, once its server's span has come: (server, {name: span})."""
        def of_trace():
            return [span for span in self.spans if span.trace_id == trace_id]

        self.wait(lambda _: any(s.is_server for s in of_trace()), f"the root of {trace_id}")
        spans = of_trace()
        server = next(span for span in spans if span.is_server)
        return server, {span.name: span for span in spans if span is not server}
