#!/usr/bin/python3
"""The field's protocols with stubs of their own: field_protocols_test.py QUIRE_SERVER.

vLLM's and OpenEngine's stubs are generated here from proto/field by protoc. The demo model's greedy
tokens, which transformers computed (tests/testdata/demo_model), come over each protocol; over all
of them they are those of quire.v1.
"""

import importlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

import grpc
import quire
from running_server import RunningServer

ROOT = pathlib.Path(__file__).resolve().parents[2]
GREEDY = json.loads((ROOT / "tests/testdata/demo_model/greedy.json").read_text())
CASES = [case for case in GREEDY["cases"] if case["kind"] == "plain"]
CLOSE = 0.004  # as demo_model_test.py explains
FILES = ("vllm_inference", "vllm_control", "openengine")


def make_stubs(folder):
    """Generates the modules of FILES below `folder`, and imports them."""
    plugin = shutil.which("grpc_python_plugin")
    assert plugin, "grpc_python_plugin is missing; scripts/deps installs it"
    subprocess.run(
        ["protoc", f"--proto_path={ROOT / 'proto'}", f"--python_out={folder}",
         f"--grpc_out={folder}", f"--plugin=protoc-gen-grpc={plugin}"]
        + [f"field/{name}.proto" for name in FILES],
        check=True,
    )
    sys.path.insert(0, folder)
    return [importlib.import_module(f"field.{name}_pb2{kind}")
            for name in FILES for kind in ("", "_grpc")]


def equal_tokens(case, ids):
    """How many tokens equal the expected ones, up to one that a rounding error may have changed."""
    for i, (token, margin) in enumerate(zip(case["expected_ids"], case["margins"])):
        if ids[i : i + 1] != [token]:
            return i if margin < CLOSE else -1
    return len(ids)


class FieldProtocolsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        (cls.vllm, cls.vllm_grpc, cls.vllm_control, cls.vllm_control_grpc, cls.openengine,
         cls.openengine_grpc) = make_stubs(folder.name)
        cls.server = RunningServer()
        cls.addClassCleanup(cls.server.stop)
        cls.channel = grpc.insecure_channel(cls.server.target)
        cls.addClassCleanup(cls.channel.close)
        cls.client = quire.QuireClient(cls.server.target, timeout=120)
        cls.addClassCleanup(cls.client.close)
        cls.model = cls.client.info().models[0]

    def ours(self, case):
        """quire.v1's answer to the case."""
        return self.client.generate_text(case["text"], temperature=0.0,
                                         max_tokens=len(case["expected_ids"]))

    def check(self, case, ids, text):
        ours = self.ours(case)
        self.assertEqual(list(ids), list(ours.token_ids))
        self.assertEqual(text, ours.text)
        self.assertGreater(equal_tokens(case, list(ids)), 0)

    def vllm_request(self, case):
        return self.vllm.GenerateRequest(
            text=case["text"],
            temperature=0.0,
            stopping=self.vllm.StoppingCriteria(max_new_tokens=len(case["expected_ids"])),
            response=self.vllm.ResponseOptions(output_token_ids=True),
        )

    def test_vllm_streams_the_tokens_of_transformers(self):
        stub = self.vllm_grpc.InferenceStub(self.channel)
        for case in CASES:
            frames = list(stub.GenerateStream(self.vllm_request(case)))
            self.assertEqual(frames[0].prompt_info.num_prompt_tokens, len(case["prompt_ids"]))
            self.check(case, [i for f in frames for i in f.outputs.token_ids],
                       "".join(f.outputs.text for f in frames))
            self.assertTrue(frames[-1].outputs.HasField("finish_info"))

    def test_vllm_answers_in_one_message(self):
        stub = self.vllm_grpc.InferenceStub(self.channel)
        for case in CASES:
            response = stub.Generate(self.vllm_request(case))
            self.check(case, response.outputs.token_ids, response.outputs.text)

    def test_vllm_control(self):
        stub = self.vllm_control_grpc.ControlStub(self.channel)
        pb = self.vllm_control
        info = stub.GetModelInfo(pb.GetModelInfoRequest())
        self.assertEqual(info.served_model_name, self.model)
        self.assertGreater(stub.GetServerInfo(pb.GetServerInfoRequest()).total_kv_blocks, 0)
        self.assertFalse(stub.IsSleeping(pb.IsSleepingRequest()).sleeping)
        with self.assertRaises(grpc.RpcError) as refused:
            stub.UpdateWeights(pb.UpdateWeightsRequest())
        self.assertEqual(refused.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
        self.assertIn("weights are not replaced", refused.exception.details())

    def test_openengine_streams_the_tokens_of_transformers(self):
        stub = self.openengine_grpc.InferenceStub(self.channel)
        pb = self.openengine
        for i, case in enumerate(CASES):
            request = pb.GenerateRequest(
                request_id=f"case-{i}",
                prompt=case["text"],
                sampling=pb.SamplingParams(temperature=0.0),
                stopping=pb.StoppingOptions(max_tokens=len(case["expected_ids"])),
            )
            events = list(stub.Generate(request))
            tokens = [e.token for e in events if e.HasField("token")]
            self.check(case, [t.token_id for output in tokens for t in output.tokens],
                       "".join(output.text for output in tokens))
            self.assertEqual(events[-1].usage.prompt_tokens, len(case["prompt_ids"]))

    def test_openengine_ends_an_aborted_request_with_an_event(self):
        inference = self.openengine_grpc.InferenceStub(self.channel)
        control = self.openengine_grpc.ControlStub(self.channel)
        pb = self.openengine
        request = pb.GenerateRequest(request_id="endless", prompt="Once upon a time")
        request.stopping.ignore_eos = True
        request.stopping.max_tokens = 3000
        stream = inference.Generate(request)
        self.assertTrue(next(stream).HasField("token"))
        aborted = control.Abort(pb.AbortRequest(request_id="endless"))
        self.assertEqual(aborted.status, pb.ABORT_STATUS_ABORTED)
        last = list(stream)[-1]
        self.assertEqual(last.error.code, pb.ERROR_CODE_CANCELLED)
        self.assertEqual(stream.code(), grpc.StatusCode.OK)
        health = control.Health(pb.HealthRequest())
        self.assertEqual(health.state, pb.HEALTH_STATE_READY)

    def test_an_unknown_field_is_refused_by_its_number(self):
        # Field 4000, a varint, behind a good request: a client with a newer .proto.
        good = self.vllm_request(CASES[0]).SerializeToString()
        call = self.channel.unary_unary("/vllm.Inference/Generate")
        with self.assertRaises(grpc.RpcError) as refused:
            call(good + b"\x80\xfa\x01\x01")
        self.assertEqual(refused.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("field number 4000", refused.exception.details())
        with self.assertRaises(grpc.RpcError) as refused:
            call(b"\x0a\x05hi")
        self.assertEqual(refused.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("request_id", refused.exception.details())

    def test_a_cancelled_call_leaves_the_batch(self):
        stub = self.vllm_grpc.InferenceStub(self.channel)
        request = self.vllm.GenerateRequest(text="Once upon a time")
        request.stopping.ignore_eos = True
        request.stopping.max_new_tokens = 3000
        stream = stub.GenerateStream(request)
        next(stream)
        stream.cancel()
        left = threading.Event()
        for _ in range(600):
            load = self.client.load()
            if load.running_requests + load.waiting_requests == 0:
                break
            left.wait(0.1)
        else:
            self.fail("the request still runs")


if __name__ == "__main__":
    unittest.main()
