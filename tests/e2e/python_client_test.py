#!/usr/bin/python3
"""The Python client against a scripted service: its requests, and its results from replies."""

import concurrent.futures
import datetime
import importlib
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import grpc
import quire
from quire.v1 import control_pb2, control_pb2_grpc, inference_pb2, inference_pb2_grpc

PROTOS = pathlib.Path(__file__).resolve().parents[2] / "proto"


class Inference(inference_pb2_grpc.InferenceServicer):
    """Answers every request with `frames` or with `failure`; keeps the last request."""

    def __init__(self):
        self.frames, self.failure, self.request, self.deadline = [], None, None, None
        self.cancelled = threading.Event()
        self.result = inference_pb2.GenerateResult()

    def _fail(self, context):
        code, message, details = self.failure
        context.set_trailing_metadata((("grpc-status-details-bin", details),))
        context.abort(code, message)

    def Generate(self, request, context):
        self.request, self.deadline = request, context.time_remaining()
        context.add_callback(self.cancelled.set)
        yield from self.frames
        if self.failure:
            self._fail(context)

    def GenerateUnary(self, request, context):
        self.request, self.deadline = request, context.time_remaining()
        if self.failure:
            self._fail(context)
        return self.result

    def Tokenize(self, request, context):
        self.request = request
        return inference_pb2.TokenizeResponse(token_ids=[5, 6], begin=[0, 2], end=[2, 5])


class Control(control_pb2_grpc.ControlServicer):
    """Keeps the last request."""

    load = control_pb2.Load(steps=7)

    def GetLoad(self, request, context):
        return self.load

    def Abort(self, request, context):
        self.request = request
        return control_pb2.AbortResponse(aborted=2)

    def Drain(self, request, context):
        self.request = request
        return control_pb2.DrainResponse(running_requests=3, waiting_requests=4)

    def Undrain(self, request, context):
        self.request = request
        return control_pb2.UndrainResponse(was_draining=True)


def compiled_details():
    """google.rpc's generated modules, which write the details that the client parses."""
    out = tempfile.mkdtemp()
    names = ["google/rpc/status.proto", "google/rpc/error_details.proto"]
    subprocess.run(["protoc", f"--proto_path={PROTOS}", f"--python_out={out}", *names], check=True)
    import google

    google.__path__ = [*google.__path__, str(pathlib.Path(out) / "google")]
    sys.path.append(out)
    return [importlib.import_module(f"google.rpc.{n}_pb2") for n in ("status", "error_details")]


class ServedTest(unittest.TestCase):
    """A client and the service above."""

    def setUp(self):
        self.inference, self.control = Inference(), Control()
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        inference_pb2_grpc.add_InferenceServicer_to_server(self.inference, self.server)
        control_pb2_grpc.add_ControlServicer_to_server(self.control, self.server)
        port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()
        self.client = quire.QuireClient(f"127.0.0.1:{port}", timeout=30)

    def tearDown(self):
        self.client.close()
        self.server.stop(None).wait()


class ClientTest(ServedTest):
    def test_only_options_reach_the_request(self):
        self.client.generate_text("hi")
        plain = inference_pb2.GenerateRequest(text="hi")
        sent = self.inference.request
        for part in ("sampling", "stop", "output"):
            self.assertEqual(getattr(sent, part).ByteSize(), 0)
            sent.ClearField(part)
        self.assertEqual(sent, plain)
        self.client.generate_text(
            [3, 1, 4], quire.Options(temperature=0.0, seed=7, stop=["a", "b"]), seed=2**63,
            logit_bias={9: -1.5}, max_tokens=0, ignore_eos=False, logprobs=True, priority=-3,
            stop_token_ids=[8], request_id="r1", typical_p=0.5, dry_last_n=64,
            allowed_token_ids=[1, 2], bad_word_ids=[[5, 6], [7]],
        )  # fmt: skip
        sent = self.inference.request
        self.assertEqual(list(sent.token_ids.ids), [3, 1, 4])
        self.assertTrue(sent.sampling.HasField("temperature"))
        self.assertEqual((sent.sampling.temperature, sent.sampling.seed), (0.0, 2**63))
        self.assertFalse(sent.sampling.HasField("top_p"))
        self.assertEqual(dict(sent.sampling.logit_bias), {9: -1.5})
        self.assertEqual((sent.sampling.typical_p, sent.sampling.dry_last_n), (0.5, 64))
        self.assertEqual(list(sent.sampling.allowed_token_ids), [1, 2])
        self.assertEqual([list(w.ids) for w in sent.sampling.bad_word_ids], [[5, 6], [7]])
        self.assertEqual((sent.stop.HasField("max_tokens"), sent.stop.max_tokens), (True, 0))
        self.assertEqual((sent.stop.HasField("ignore_eos"), sent.stop.ignore_eos), (True, False))
        self.assertEqual(list(sent.stop.stop), ["a", "b"])
        self.assertEqual(list(sent.stop.stop_token_ids), [8])
        self.assertEqual((sent.output.logprobs, sent.priority, sent.request_id), (True, -3, "r1"))

    def test_one_structure_reaches_the_request(self):
        schema = {"type": "object", "required": ["a"]}
        cases = (
            ({"json_schema": schema}, "json_schema", lambda s: json.loads(s) == schema),
            ({"json_schema": '{"type": "null"}'}, "json_schema", '{"type": "null"}'.__eq__),
            ({"json_schema": True}, "json_schema", "true".__eq__),
            ({"json_object": True}, "json_object", bool),
            ({"regex": "a|b"}, "regex", "a|b".__eq__),
            ({"grammar": 'root ::= "x"'}, "grammar", 'root ::= "x"'.__eq__),
            ({"lark": 'start: "x"'}, "lark", 'start: "x"'.__eq__),
            ({"choice": ["yes", "no"]}, "choice", lambda c: list(c.texts) == ["yes", "no"]),
        )
        for options, field, is_right in cases:
            self.client.generate_text("hi", **options)
            sent = self.inference.request.structured_output
            self.assertEqual(sent.WhichOneof("format"), field)
            self.assertTrue(is_right(getattr(sent, field)), field)
        with self.assertRaisesRegex(TypeError, "exclude"):
            self.client.generate_text("hi", regex="a", choice=["b"])

    def test_one_stop_string_is_not_its_letters(self):
        self.client.generate_text("hi", stop="END")
        self.assertEqual(list(self.inference.request.stop.stop), ["END"])

    def test_one_choice_is_not_its_letters(self):
        self.client.generate_text("hi", choice="sunny")
        self.assertEqual(
            list(self.inference.request.structured_output.choice.texts), ["sunny"]
        )

    def test_a_misspelt_option_is_refused_by_the_client(self):
        with self.assertRaises(TypeError):
            self.client.generate("hi", max_token=3)

    def test_conversations(self):
        list(self.client.chat("hi"))
        self.assertEqual([m.role for m in self.inference.request.chat.messages], ["user"])
        turns = [quire.Message("user", "a"), quire.Message("assistant", "b")]
        list(self.client.chat(turns))
        sent = [(m.role, m.content) for m in self.inference.request.chat.messages]
        self.assertEqual(sent, [("user", "a"), ("assistant", "b")])

    def test_a_conversation_never_becomes_token_ids(self):
        # The server refuses an empty conversation.
        list(self.client.chat([]))
        self.assertEqual(self.inference.request.WhichOneof("prompt"), "chat")
        for wrong in ([1, 2], ["hi"]):
            with self.assertRaisesRegex(TypeError, "a quire.Message or a mapping, not"):
                self.client.chat(wrong)

    def test_messages_may_be_dicts(self):
        turns = [{"role": "user", "content": "a"}, quire.Message("assistant", "b")]
        for call in (self.client.chat, self.client.generate):
            list(call(turns))
            sent = [(m.role, m.content) for m in self.inference.request.chat.messages]
            self.assertEqual(sent, [("user", "a"), ("assistant", "b")])

    def test_what_a_message_has_beside_role_and_text_travels_as_json(self):
        called = [{"id": "1", "function": {"name": "now", "arguments": {"b": 1, "a": "é"}}}]
        parts = [{"type": "text", "text": "x"}]
        list(self.client.chat([
            {"role": "user", "content": parts}, {"role": "assistant", "tool_calls": called},
            {"role": "assistant", "content": None, "tool_calls": called},
            quire.Message("tool", "noon", {"tool_call_id": "1"}),
        ]))  # fmt: skip
        first, second, third, fourth = self.inference.request.chat.messages
        self.assertFalse(first.HasField("content"))
        self.assertEqual(json.loads(first.members), {"content": parts})
        calls = '{"tool_calls": [{"id": "1", "function": {"name": "now", ' \
            '"arguments": {"b": 1, "a": "é"}}}]'
        self.assertEqual((second.role, second.members), ("assistant", calls + "}"))
        self.assertEqual(third.members, calls + ', "content": null}')
        self.assertEqual((fourth.content, fourth.members), ("noon", '{"tool_call_id": "1"}'))

    def test_what_a_template_is_told(self):
        told = {
            "tools": [{"b": 1, "a": None}], "documents": [{"title": "T"}, {}],
            "template_kwargs": {"enable_thinking": False}, "template_name": "rag",
            "template_time": datetime.datetime.fromisoformat("2024-07-06T17:04:09.5+02:00"),
            "add_generation_prompt": False, "continue_final_message": False,
        }  # fmt: skip
        for call in (self.client.chat, self.client.generate, self.client.tokenize,
                     self.client.conversation("a").say):  # fmt: skip
            list(call([quire.Message("user", "a")], **told))
            chat = self.inference.request.chat
            self.assertEqual(list(chat.tools), ['{"b": 1, "a": null}'])
            self.assertEqual(list(chat.documents), ['{"title": "T"}', "{}"])
            self.assertEqual(chat.template_kwargs, '{"enable_thinking": false}')
            self.assertEqual((chat.template_name, chat.template_time.nanos), ("rag", 500000000))
            self.assertEqual(chat.template_time.ToJsonString(), "2024-07-06T15:04:09.500Z")
            for name in ("add_generation_prompt", "continue_final_message"):
                self.assertEqual((chat.HasField(name), getattr(chat, name)), (True, False))
        list(self.client.chat("hi"))
        fields = [field.name for field, _ in self.inference.request.chat.ListFields()]
        self.assertEqual(fields, ["messages"])
        local = datetime.datetime(2024, 7, 6, 15)
        list(self.client.chat("hi", template_time=local))
        self.assertEqual(self.inference.request.chat.template_time.seconds, local.timestamp())

    def test_what_a_template_cannot_be_told_is_named(self):
        ask = [{"role": "user", "content": "a"}]
        for told, trouble in (
            ({"tools": ["f"]}, "tool 0 is a mapping, not str"),
            ({"documents": [{}, 5]}, "document 1 is a mapping, not int"),
            ({"template_kwargs": {"a": {1}}}, "template_kwargs is no JSON: .*set"),
            ({"tools": [{"a": float("nan")}]}, "tool 0 is no JSON"),
        ):
            with self.assertRaisesRegex(TypeError, trouble):
                self.client.chat(ask, **told)
        for prompt in ("text", [1, 2]):
            with self.assertRaisesRegex(TypeError, "tools is for a conversation"):
                self.client.generate(prompt, tools=[{}])
        with self.assertRaisesRegex(TypeError, "template_name is for a conversation"):
            self.client.tokenize("text", template_name="rag")

    def test_a_wrong_message_is_named_by_its_index_and_key(self):
        good = {"role": "user", "content": "a"}
        for wrong, trouble in (
            ({"role": "user"}, "message 1 lacks 'content'"),
            ({"content": "a"}, "message 1 lacks 'role'"),
            ({"role": "user", "contents": "a"}, "message 1 lacks 'content', which"),
            ({"role": "user", "content": ["a"]}, "message 1 has a str as part 0 of 'content'"),
            ({"role": "user", "content": 5}, "message 1 has a int as 'content'"),
            ({"role": "user", "content": "a", "x": {1}}, "message 1 is no JSON"),
            ({"role": None, "content": "a"}, "message 1 has a NoneType as 'role'"),
            ("hi", "message 1 is a quire.Message or a mapping, not str"),
        ):
            for call in (self.client.chat, self.client.generate, self.client.generate_text,
                         self.client.tokenize, self.client.conversation("a").say):  # fmt: skip
                with self.assertRaisesRegex(TypeError, trouble):
                    call([good, wrong])
        for prompt, trouble in (
            ([1, good], "token id 1 of the prompt is an int, not dict"),
            (["hi"], "token id 0 of the prompt is an int, not str"),
            ([1, 2.5], "token id 1 of the prompt is an int, not float"),
        ):
            with self.assertRaisesRegex(TypeError, trouble):
                self.client.generate(prompt)

    def test_stream(self):
        response = inference_pb2.GenerateResponse
        accepted = inference_pb2.Accepted(model="demo", prompt_tokens=4, queue_position=1)
        accepted.sampling.temperature = 0.5
        tokens = inference_pb2.TokenDelta
        finished = inference_pb2.Finished(reason=3, stop_text="END")
        finished.usage.completion_tokens = 3
        finished.timings.total_seconds = 1.5
        self.inference.frames = [
            response(request_id="x", accepted=accepted),
            response(tokens=tokens(token_ids=[1], text="A", logprobs=[-0.5], cumulative_tokens=1)),
            response(tokens=tokens(token_ids=[2, 3], text="BC", cumulative_tokens=3)),
            response(finished=finished),
        ]
        stream = self.client.generate("hi")
        deltas = list(stream)
        self.assertEqual([d.text for d in deltas], ["A", "BC"])
        self.assertEqual([d.token_ids for d in deltas], [(1,), (2, 3)])
        self.assertEqual(deltas[0].logprobs, (-0.5,))
        self.assertEqual(deltas[1].cumulative_tokens, 3)
        self.assertEqual((stream.accepted.request_id, stream.accepted.model), ("x", "demo"))
        self.assertEqual(stream.accepted.options.temperature, 0.5)
        self.assertEqual(stream.finished.reason, quire.FinishReason.STOP_TEXT)
        self.assertEqual((stream.finished.stop_text, stream.finished.stop_token_id), ("END", None))
        self.assertEqual(stream.finished.usage.completion_tokens, 3)
        self.assertEqual(stream.finished.timings.total_seconds, 1.5)

    def test_reasoning_and_tool_calls(self):
        response, tokens = inference_pb2.GenerateResponse, inference_pb2.TokenDelta
        piece = inference_pb2.ToolCallDelta
        self.inference.frames = [
            response(tokens=tokens(reasoning="Hm.")),
            response(tokens=tokens(tool_calls=[piece(index=0, id="i", name="f", arguments="{")])),
            response(tokens=tokens(tool_calls=[piece(index=0, arguments="}")])),
        ]
        turns = [{"role": "user", "content": "hi"}]
        deltas = list(
            self.client.chat(
                turns, tools=[{"name": "f"}], tool_choice="f", max_reasoning_tokens=9,
                min_reasoning_tokens=2, split_reasoning=True,
            )
        )  # fmt: skip
        self.assertEqual([d.reasoning for d in deltas], ["Hm.", "", ""])
        self.assertEqual(
            [d.tool_calls for d in deltas],
            [(), (quire.ToolCall(0, "i", "f", "{"),), (quire.ToolCall(0, "", "", "}"),)],
        )
        request = self.inference.request
        bounds = inference_pb2.Reasoning(split=True, max_tokens=9, min_tokens=2)
        self.assertEqual(request.reasoning, bounds)
        choice = request.chat.tool_choice
        self.assertEqual((choice.mode, choice.function), (choice.MODE_FUNCTION, "f"))
        self.client.generate_text(turns, tools=[{}], tool_choice="required")
        choice = self.inference.request.chat.tool_choice
        self.assertEqual(choice, inference_pb2.ToolChoice(mode="MODE_REQUIRED"))

    def test_leaving_a_stream_cancels_it(self):
        gate = threading.Event()
        self.addCleanup(gate.set)

        def frames():
            yield inference_pb2.GenerateResponse(tokens=inference_pb2.TokenDelta(text="A"))
            gate.wait()

        self.inference.frames = frames()
        with self.client.generate("hi") as stream:
            self.assertEqual(next(stream).text, "A")
        self.assertTrue(self.inference.cancelled.wait(30))
        with self.assertRaises(quire.Cancelled):
            next(stream)

    def test_deadlines(self):
        self.client.generate_text("hi")
        self.assertTrue(10 < self.inference.deadline <= 31, self.inference.deadline)
        self.client.generate_text("hi", timeout=5)
        self.assertTrue(0 < self.inference.deadline <= 6, self.inference.deadline)
        gate = threading.Event()
        self.addCleanup(gate.set)
        self.inference.frames = (gate.wait() for _ in range(1))
        with self.assertRaises(quire.DeadlineExceeded):
            list(self.client.generate("hi", timeout=0.1))

    def test_tokens_and_control(self):
        self.assertEqual(self.client.tokenize("hi"), [quire.Token(5), quire.Token(6)])
        offsets = self.client.tokenize("hi", offsets=True, add_special_tokens=False)
        self.assertEqual(offsets, [quire.Token(5, 0, 2), quire.Token(6, 2, 5)])
        self.assertEqual(self.inference.request.add_special_tokens, False)
        self.assertEqual(self.client.abort("a", "b"), 2)
        self.assertEqual(list(self.control.request.request_ids), ["a", "b"])
        self.assertEqual(self.client.drain(exit_when_idle=True), 7)
        self.assertTrue(self.control.request.exit_when_idle)
        self.assertIs(self.client.undrain(), True)
        self.assertIsInstance(self.control.request, control_pb2.UndrainRequest)

    def test_a_prediction_is_absent_until_the_server_has_one(self):
        self.assertIsNone(self.client.load().predicted_first_token_seconds)
        self.control.load = control_pb2.Load(predicted_first_token_seconds=0.0)
        self.assertEqual(self.client.load().predicted_first_token_seconds, 0.0)
        self.assertIsNone(self.client.generate_text("hi").accepted.predicted_first_token_seconds)
        self.inference.result.accepted.predicted_first_token_seconds = 2.5
        done = self.client.generate_text("hi")
        self.assertEqual(done.accepted.predicted_first_token_seconds, 2.5)

    def test_a_closed_client_and_a_missing_server(self):
        self.client.close()
        with self.assertRaises(quire.Cancelled):
            self.client.generate_text("hi")
        with quire.QuireClient("unix:/nonexistent/socket", timeout=10) as nobody:
            with self.assertRaises(quire.Unavailable):
                nobody.info()


class ErrorTest(ServedTest):
    @classmethod
    def setUpClass(cls):
        cls.status, cls.details = compiled_details()

    def fail_with(self, code, *details):
        status = self.status.Status(code=code.value[0], message="no")
        for detail in details:
            status.details.add().Pack(detail)
        self.inference.failure = (code, "no", status.SerializeToString())
        with self.assertRaises(quire.QuireError) as unary:
            self.client.generate_text("hi")
        with self.assertRaises(type(unary.exception)) as streamed:
            list(self.client.generate("hi"))
        self.assertEqual(vars(unary.exception), vars(streamed.exception))
        return unary.exception

    def test_fields_are_named(self):
        bad = self.details.BadRequest()
        bad.field_violations.add(field="sampling.top_p", description="must be in (0, 1], not 2")
        bad.field_violations.add(field="prompt", description="is empty")
        error = self.fail_with(grpc.StatusCode.INVALID_ARGUMENT, bad)
        self.assertIsInstance(error, quire.InvalidRequest)
        self.assertEqual(str(error), "INVALID_ARGUMENT: no")
        self.assertEqual(error.violations, (
            quire.FieldViolation("sampling.top_p", "must be in (0, 1], not 2"),
            quire.FieldViolation("prompt", "is empty")))  # fmt: skip

    def test_overload_has_a_retry_delay(self):
        info = self.details.ErrorInfo(reason="QUEUE_FULL", domain="quire")
        info.metadata["limit"] = "300"
        retry = self.details.RetryInfo()
        retry.retry_delay.FromMilliseconds(129250)
        error = self.fail_with(grpc.StatusCode.RESOURCE_EXHAUSTED, info, retry)
        self.assertIsInstance(error, quire.Overloaded)
        self.assertEqual((error.reason, error.metadata), ("QUEUE_FULL", {"limit": "300"}))
        self.assertEqual(error.retry_after, 129.25)

    def test_each_code_has_its_class(self):
        for code, kind in (
            (grpc.StatusCode.UNAUTHENTICATED, quire.Unauthenticated),
            (grpc.StatusCode.PERMISSION_DENIED, quire.PermissionDenied),
            (grpc.StatusCode.NOT_FOUND, quire.NotFound),
            (grpc.StatusCode.ALREADY_EXISTS, quire.AlreadyExists),
            (grpc.StatusCode.UNAVAILABLE, quire.Unavailable),
            (grpc.StatusCode.FAILED_PRECONDITION, quire.InvalidRequest),
            (grpc.StatusCode.INTERNAL, quire.ServerFault),
        ):
            error = self.fail_with(code)
            self.assertIs(type(error), kind)
            self.assertEqual(error.code, code)

    def test_damaged_details_keep_the_status(self):
        for damage in (b"\xff", b"\x1a\x7f", b"\x1a\x02\x0a\x7f", b"\x0b", b"\x80" * 40):
            self.inference.failure = (grpc.StatusCode.INTERNAL, "no", damage)
            with self.assertRaises(quire.ServerFault) as caught:
                self.client.generate_text("hi")
            self.assertEqual(caught.exception.message, "no")


if __name__ == "__main__":
    unittest.main()
