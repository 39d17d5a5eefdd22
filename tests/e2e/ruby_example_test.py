#!/usr/bin/python3
"""The example in Ruby against a real server, and against a service over TLS that checks the key:
ruby_example_test.py QUIRE_SERVER."""

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import grpc
import quire
from made_certificates import Authority
from quire.v1 import inference_pb2, inference_pb2_grpc
from running_server import RunningServer

TREE = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = TREE / "clients" / "examples" / "ruby" / "stream.rb"
RUN_SECONDS = 120  # beyond it something hangs


class Service(inference_pb2_grpc.InferenceServicer):
    """Continues every text with "!"; refuses callers without the key."""

    def Generate(self, request, context):
        if ("authorization", "Bearer qk-1-secret") not in context.invocation_metadata():
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no key")
        yield inference_pb2.GenerateResponse(tokens=inference_pb2.TokenDelta(text="!"))
        finished = inference_pb2.Finished(reason=inference_pb2.FINISH_REASON_EOS)
        finished.usage.completion_tokens = 1
        yield inference_pb2.GenerateResponse(finished=finished)


def has_ruby_grpc():
    ruby = shutil.which("ruby")
    return ruby and not subprocess.run([ruby, "-e", 'require "grpc"'], stderr=subprocess.DEVNULL,
                                       check=False).returncode  # fmt: skip


@unittest.skipUnless(has_ruby_grpc(), "ruby-grpc is not installed")
@unittest.skipUnless(shutil.which("grpc_ruby_plugin"), "protobuf-compiler-grpc is not installed")
class RubyExampleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.stubs = scratch.name
        plugin = shutil.which("grpc_ruby_plugin")
        subprocess.run(["protoc", f"-I{TREE}/proto", f"--ruby_out={cls.stubs}",
                        f"--grpc_out={cls.stubs}", f"--plugin=protoc-gen-grpc={plugin}",
                        "quire/v1/inference.proto"], check=True)  # fmt: skip

    def run_example(self, *arguments, **settings):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("QUIRE_")}
        environment |= {f"QUIRE_{name.upper()}": str(value) for name, value in settings.items()}
        return subprocess.run(["ruby", f"-I{self.stubs}", EXAMPLE, *arguments], env=environment,
                              capture_output=True, text=True, timeout=RUN_SECONDS,
                              check=False)  # fmt: skip

    def test_a_real_server_streams_to_it(self):
        server = RunningServer()
        self.addCleanup(server.stop)
        with quire.QuireClient(server.target, timeout=RUN_SECONDS) as client:
            expected = client.generate_text("One day", max_tokens=30, temperature=0.0)
        done = self.run_example("One day", server=server.target)
        self.assertEqual(done.stderr, "")
        end = "\nFINISH_REASON_MAX_TOKENS: 30 tokens\n"
        self.assertEqual(done.stdout, f"One day{expected.text}{end}")
        done = self.run_example("", server=server.target)
        self.assertEqual(done.returncode, 0, done.stderr)  # BOS alone is a prompt
        done = self.run_example("x" * 100_000, server=server.target)
        self.assertEqual(done.returncode, 1)
        self.assertIn("GRPC::InvalidArgument", done.stderr)

    @unittest.skipUnless(shutil.which("openssl"), "openssl is not installed")
    def test_a_key_goes_over_tls(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        ca, other = (Authority(scratch.name, name) for name in ("ca", "other"))
        pem, key = (pathlib.Path(p).read_bytes() for p in ca.make("server", "DNS:gpu.example"))
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        inference_pb2_grpc.add_InferenceServicer_to_server(Service(), server)
        credentials = grpc.ssl_server_credentials([(key, pem)])
        port = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        self.addCleanup(lambda: server.stop(None).wait())
        settings = {"server": f"127.0.0.1:{port}", "ca_cert": ca.pem,
                    "server_name": "gpu.example", "api_key": "qk-1-secret"}  # fmt: skip
        done = self.run_example("Hi", **settings)
        self.assertEqual(done.stdout, "Hi!\nFINISH_REASON_EOS: 1 tokens\n", done.stderr)
        for change, trouble in (({"api_key": "qk-1-wrong"}, "GRPC::Unauthenticated: no key"),
                                ({"server_name": "other.example"}, "GRPC::Unavailable"),
                                ({"ca_cert": other.pem}, "GRPC::Unavailable")):  # fmt: skip
            done = self.run_example("Hi", **settings | change)
            self.assertEqual(done.returncode, 1)
            self.assertIn(trouble, done.stderr)

    def test_a_key_is_not_sent_in_plaintext_beyond_the_machine(self):
        done = self.run_example("Hi", server="198.51.100.7:50051", api_key="qk-1-secret")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("plaintext", done.stderr)


if __name__ == "__main__":
    unittest.main()
