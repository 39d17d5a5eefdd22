#!/usr/bin/python3
"""Traces of a real server at a collector that answers, hangs, refuses, comes and goes:
tracing_test.py QUIRE_SERVER."""
# Covers server/tracing/otlp_exporter.cc, server/tracing/tracer.cc, server/tracing/request_trace.cc,
# server/metrics/otlp_metrics.cc

import os
import pathlib
import re
import secrets
import socket
import subprocess
import time
import unittest
from unittest import mock

import grpc
import quire
from conversation import await_true, spoken
from conversing_server import ConversingServer
from otlp_collector import Collector
from quire.v1 import inference_pb2, inference_pb2_grpc
from running_server import BINARY

SHORT = quire.Options(temperature=0.5, top_p=0.75, max_tokens=8, ignore_eos=True)
REQUESTS = 10_000
MEBIBYTE = 1 << 20


def new_parent(flags="01"):
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    return trace, span, f"00-{trace}-{span}-{flags}"


class TracedServer(ConversingServer):
    """Sends its traces to `endpoint`; ends with its `with` block."""

    def __init__(self, endpoint, *flags):
        super().__init__("--otlp-endpoint", endpoint, *flags)

    def __enter__(self):
        self.channel = grpc.insecure_channel(self.target)
        self.stub = inference_pb2_grpc.InferenceStub(self.channel)
        return self

    def __exit__(self, *unused):
        self.channel.close()
        super().__exit__(*unused)

    def ask(self, *metadata, **fields):
        """A whole answer, and the traceparent that the server returned."""
        request = inference_pb2.GenerateRequest(text="Once upon a time", **fields)
        request.stop.max_tokens = request.stop.max_tokens or 8
        reply, call = self.stub.GenerateUnary.with_call(request, metadata=metadata, timeout=120)
        return reply, dict(call.initial_metadata()).get("traceparent")

    def spans(self, outcome):
        text = self.get("/metrics")[1]
        found = re.search(rf'^quire_otlp_spans_total{{[^}}]*outcome="{outcome}"[^}}]*}} (\S+)$',
                          text, re.M)
        return int(float(found.group(1)))


class SpansTest(unittest.TestCase):
    """What a healthy collector receives."""

    @classmethod
    def setUpClass(cls):
        cls.collector = Collector()
        cls.addClassCleanup(cls.collector.stop)
        cls.server = TracedServer(cls.collector.endpoint, "--otlp-service-name", "tested")
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__)

    def check_tree(self, server, children):
        """Parents are spans of the trace, and times nest."""
        spans = {span.id: span for span in [server, *children.values()]}
        self.assertEqual(len(spans), 1 + len(children))
        self.assertGreater(server.begin, 1_700_000_000 * 10**9)
        self.assertLess(server.end, (time.time() + 60) * 10**9)
        for child in children.values():
            parent = spans[child.parent]
            self.assertLessEqual(parent.begin, child.begin, child.name)
            self.assertLessEqual(child.begin, child.end, child.name)
            self.assertLessEqual(child.end, parent.end, child.name)
        stages = [children[n] for n in ("arrival", "queue", "prefill", "decode") if n in children]
        for before, after in zip(stages, stages[1:]):
            self.assertLessEqual(before.end, after.begin, after.name)
        for name, at, _ in server.events:
            self.assertTrue(server.begin <= at <= server.end, name)

    def test_an_answer_is_a_tree_below_the_callers_span(self):
        trace, parent, header = new_parent()
        reply, returned = self.server.ask(
            ("traceparent", header), ("tracestate", "one=1"), ("tracestate", "two=2"),
            request_id="wanted", sampling={"temperature": 0.5, "top_p": 0.75},
            stop={"ignore_eos": True})
        server, children = self.collector.trace(trace)
        self.check_tree(server, children)
        self.assertEqual(returned, f"00-{trace}-{server.id}-01")
        self.assertEqual(server.parent, parent)
        self.assertEqual(server.state, "one=1,two=2")
        self.assertEqual(server.name, "quire.v1.Inference/GenerateUnary")
        self.assertEqual(set(children), {"arrival", "queue", "prefill", "decode"})
        self.assertEqual([name for name, _, _ in server.events], ["quire.first_token"])
        self.assertEqual(server.events[0][1], children["decode"].begin)
        usage = reply.finished.usage
        expected = {
            "rpc.system": "grpc", "rpc.service": "quire.v1.Inference",
            "rpc.method": "GenerateUnary", "rpc.grpc.status_code": 0,
            "gen_ai.operation.name": "text_completion", "gen_ai.response.id": "wanted",
            "gen_ai.request.temperature": 0.5, "gen_ai.request.top_p": 0.75,
            "gen_ai.request.max_tokens": 8, "gen_ai.response.finish_reasons": ["length"],
            "gen_ai.usage.input_tokens": usage.prompt_tokens, "gen_ai.usage.output_tokens": 8,
        }
        self.assertEqual({k: server.attributes.get(k) for k in expected}, expected)
        self.assertEqual(server.resource["service.name"], "tested")
        self.assertEqual(server.resource["process.pid"], self.server.process.pid)
        # The same figures as the answer's own.
        seconds = (server.end - server.begin) * 1e-9
        self.assertGreaterEqual(seconds, reply.finished.timings.total_seconds - 1e-6)

    def test_a_stream_returns_its_span_and_the_log_names_the_trace(self):
        trace, _, header = new_parent()
        request = inference_pb2.GenerateRequest(text="Hello", request_id="streamed")
        request.stop.max_tokens = 4
        call = self.server.stub.Generate(request, metadata=[("traceparent", header)], timeout=120)
        returned = dict(call.initial_metadata())["traceparent"]
        list(call)
        server, children = self.collector.trace(trace)
        self.check_tree(server, children)
        self.assertEqual(returned, f"00-{trace}-{server.id}-01")
        await_true(lambda: re.search(f"request_id=streamed .*trace_id={trace}", self.server.log()),
                   "a line of the request log with the trace")

    def test_an_unsampled_parent_is_honoured(self):
        trace, parent, header = new_parent("00")
        _, returned = self.server.ask(("traceparent", header))
        self.assertRegex(returned, f"^00-{trace}-(?!{parent})[0-9a-f]{{16}}-00$")
        later, _, header = new_parent()
        self.server.ask(("traceparent", header))
        self.collector.trace(later)
        self.assertNotIn(trace, {span.trace_id for span in self.collector.spans})

    def test_an_invalid_parent_is_ignored_and_counted(self):
        invalid = self.server.metric("quire_traceparent_invalid_total")
        _, _, good = new_parent()
        bad = [[("traceparent", good[:-1])], [("traceparent", good.replace("00-", "ff-", 1))],
               [("traceparent", good.upper())], [("traceparent", good), ("traceparent", good)]]
        for metadata in bad:
            _, returned = self.server.ask(*metadata)
            self.assertNotIn(good[3:35], returned)
            server, _ = self.collector.trace(returned[3:35])
            self.assertEqual(server.parent, "", "a root")
        self.assertEqual(self.server.metric("quire_traceparent_invalid_total"), invalid + len(bad))

    def test_a_refused_request_has_its_arrival_only(self):
        trace, _, header = new_parent()
        with self.assertRaises(grpc.RpcError):
            self.server.ask(("traceparent", header), model="another")
        server, children = self.collector.trace(trace)
        self.check_tree(server, children)
        self.assertEqual(set(children), {"arrival"})
        self.assertEqual(server.attributes["rpc.grpc.status_code"], 5)
        self.assertFalse(server.error, "the caller's mistake")

    def test_a_cancelled_request_ends_in_the_stage_it_reached(self):
        trace, _, header = new_parent()
        request = inference_pb2.GenerateRequest(text="Hello")
        request.stop.max_tokens = 3000
        request.stop.ignore_eos = True
        call = self.server.stub.Generate(request, metadata=[("traceparent", header)], timeout=120)
        next(frame for frame in call if frame.WhichOneof("event") == "tokens")
        call.cancel()
        server, children = self.collector.trace(trace)
        self.check_tree(server, children)
        self.assertEqual(server.attributes["rpc.grpc.status_code"], 1)
        self.assertEqual(server.attributes["quire.finish_reason"], "CANCELLED")
        self.assertEqual(server.attributes["gen_ai.response.finish_reasons"], ["abort"])
        self.assertIn("decode", children)

    def test_a_turn_whose_kv_comes_from_the_host_has_a_restore(self):
        def turn(number):
            trace, _, header = new_parent()
            request = inference_pb2.GenerateRequest(
                text=spoken(number), session_id="restored", create_session=True)
            request.stop.max_tokens = 40
            self.server.stub.GenerateUnary(request, metadata=[("traceparent", header)], timeout=120)
            return self.collector.trace(trace)

        turn(0)
        self.server.sessions.offload("restored")
        await_true(
            lambda: self.server.sessions.get("restored").state == quire.SessionState.HOST,
            "KV on the host")
        server, children = turn(1)
        self.check_tree(server, children)
        restore = children["restore"]
        self.assertEqual(restore.parent, children["queue"].id)
        self.assertGreater(restore.attributes["quire.kv.host_tokens"], 0)
        self.assertGreater(restore.end, restore.begin)
        self.assertTrue(server.attributes["quire.session_turn"])
        texts = repr([vars(span) for span in (server, *children.values())])
        self.assertNotIn("'restored'", texts, "no span names a session")


class SettingsTest(unittest.TestCase):
    def test_without_an_endpoint_nothing_is_traced(self):
        _, _, header = new_parent()
        with TracedServer("", "--trace-sample-ratio", "1") as server:
            _, returned = server.ask(("traceparent", header), ("traceparent", "bad"))
            self.assertIsNone(returned)
            self.assertEqual(server.metric("quire_traceparent_invalid_total"), 0)
            self.assertEqual([server.spans(o) for o in ("sent", "dropped", "failed")], [0, 0, 0])

    def test_the_ratio_is_for_roots_only(self):
        with Collector() as collector, TracedServer(
                collector.endpoint, "--trace-sample-ratio", "0") as server:
            _, returned = server.ask()
            self.assertRegex(returned, "-00$")
            trace, _, header = new_parent()
            server.ask(("traceparent", header))
            collector.trace(trace)
            self.assertEqual({span.trace_id for span in collector.spans}, {trace})

    def test_the_standard_variables_are_read(self):
        with Collector() as collector:
            variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://localhost:{collector.port}",
                         "OTEL_SERVICE_NAME": "from the environment"}
            with mock.patch.dict(os.environ, variables):
                server = ConversingServer()
            with server:
                server.client.generate_text("Hello", SHORT)
                collector.wait(lambda c: c.spans, "a span")
                self.assertEqual(collector.spans[0].resource["service.name"],
                                 "from the environment")


class ClientsTest(unittest.TestCase):
    """Programs that a traced program starts."""

    def test_both_clients_pass_the_environments_trace_on(self):
        with Collector() as collector, TracedServer(collector.endpoint) as server:
            def from_command():
                command = [BINARY.with_name("quire"), "generate", "--server", server.target,
                           "--max-tokens", "4", "Hello"]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

            def from_python():
                with quire.QuireClient(server.target, timeout=120) as client:
                    client.generate_text("Hello", SHORT)

            for ask in (from_command, from_python):
                trace, parent, header = new_parent()
                with mock.patch.dict(os.environ, {"TRACEPARENT": header}):
                    ask()
                self.assertEqual(collector.trace(trace)[0].parent, parent)
                for broken in ("", "\x01" * 55, "no trace"):
                    with mock.patch.dict(os.environ, {"TRACEPARENT": broken}):
                        ask()


class FailingCollectorTest(unittest.TestCase):
    def warning(self, server):
        line = r"WARNING OTLP: the collector does not take spans.*"
        await_true(lambda: re.search(line, server.log()), "a warning in the log")
        return re.findall(line, server.log())

    def test_absent_then_there_then_away_then_back(self):
        with socket.socket() as place:
            place.bind(("127.0.0.1", 0))
            port = place.getsockname()[1]
        with TracedServer(f"127.0.0.1:{port}") as server:
            first, _, header = new_parent()
            server.ask(("traceparent", header))
            [line] = self.warning(server)
            self.assertIn("code=UNAVAILABLE", line)
            self.assertIn("--otlp-endpoint", line)
            with Collector(port) as collector:
                collector.trace(first)  # it waited
            second, _, header = new_parent()
            server.ask(("traceparent", header))
            with Collector(port) as collector:
                collector.trace(second)
                await_true(lambda: server.spans("sent") == 10, "both traces counted as sent")
            self.assertEqual(server.spans("failed") + server.spans("dropped"), 0)
            self.assertIn("takes spans again", server.log())

    def test_refusals_for_good_are_not_repeated(self):
        with Collector() as collector, TracedServer(collector.endpoint) as server:
            collector.answer = grpc.StatusCode.INVALID_ARGUMENT
            server.ask()
            await_true(lambda: server.spans("failed") == 5, "the spans counted as failed")
            self.assertEqual(collector.exports, 1)
            [line] = self.warning(server)
            self.assertIn("code=INVALID_ARGUMENT", line)
            collector.answer = 2  # of five
            server.ask()
            await_true(lambda: server.spans("failed") == 7, "the rejected spans counted")
            self.assertEqual(server.spans("sent"), 3)

    def test_a_busy_collector_gets_the_same_spans_again(self):
        with Collector() as collector, TracedServer(collector.endpoint) as server:
            collector.answer = grpc.StatusCode.UNAVAILABLE
            trace, _, header = new_parent()
            server.ask(("traceparent", header))
            collector.wait(lambda c: c.exports >= 2, "a second attempt")
            collector.answer = None
            collector.trace(trace)
            self.assertEqual(server.spans("failed"), 0)

    def test_ten_thousand_requests_while_the_collector_hangs(self):
        def resident():
            status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
            return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1))

        with Collector() as collector, TracedServer(
                collector.endpoint, "--max-num-queued-reqs", "20000") as server:
            request = inference_pb2.GenerateRequest(token_ids={"ids": [5, 6, 7]})
            request.stop.max_tokens = 2
            request.stop.ignore_eos = True
            for _ in range(200):
                server.stub.GenerateUnary(request, timeout=120)
            collector.wait(lambda c: len(c.spans) == 1000, "the first spans")
            collector.answer = "hang"
            before = resident()
            left = REQUESTS
            while left > 0:
                calls = [server.stub.GenerateUnary.future(request, timeout=120)
                         for _ in range(min(500, left))]
                for call in calls:
                    reply = call.result()
                    self.assertEqual(len(reply.token_ids), 2)
                    self.assertEqual(reply.finished.usage.completion_tokens, 2)
                left -= len(calls)
            self.assertGreater(server.spans("dropped"), 0)
            self.assertEqual(server.spans("sent"), 1000)
            self.assertLess(resident() - before, 64 * MEBIBYTE)
            server.process.terminate()
            self.assertEqual(server.process.wait(timeout=60), 0, "no shutdown by force")

    def test_the_end_of_the_server_sends_what_is_queued(self):
        with Collector() as collector:
            with TracedServer(collector.endpoint) as server:
                trace, _, header = new_parent()
                server.ask(("traceparent", header))
                server.process.terminate()
                self.assertEqual(server.process.wait(timeout=60), 0)
            collector.trace(trace)


if __name__ == "__main__":
    unittest.main()
