#!/usr/bin/python3
"""How the Python client connects: TLS, keys, headers, the environment and profiles."""

import asyncio
import concurrent.futures
import json
import os
import pathlib
import shutil
import tempfile
import unittest
from unittest import mock

import grpc
import quire
import quire.aio
from made_certificates import Authority
from quire.connection import dial_address, stays_on_this_machine
from quire.v1 import control_pb2, control_pb2_grpc, inference_pb2, inference_pb2_grpc
from quire.v1 import sessions_pb2, sessions_pb2_grpc


class Service(inference_pb2_grpc.InferenceServicer, control_pb2_grpc.ControlServicer,
              sessions_pb2_grpc.SessionsServicer):  # fmt: skip
    """Answers and keeps the metadata of the last call."""

    def __init__(self):
        self.metadata, self.peer_names = None, []

    def _note(self, context):
        self.metadata = context.invocation_metadata()
        self.peer_names = context.auth_context().get("x509_common_name", [])

    def GetLoad(self, request, context):
        self._note(context)
        return control_pb2.Load(steps=7)

    def Generate(self, request, context):
        self._note(context)
        yield inference_pb2.GenerateResponse(finished=inference_pb2.Finished(reason=4, position=9))

    def GenerateUnary(self, request, context):
        self._note(context)
        return inference_pb2.GenerateResult()

    def Fork(self, request, context):
        self._note(context)
        return sessions_pb2.Session(session_id=request.new_session_id)

    def Watch(self, request, context):
        self._note(context)
        yield sessions_pb2.Session(session_id=request.session_id)

    def Create(self, request, context):
        self._note(context)
        return sessions_pb2.Session(session_id="chosen")

    def sent(self, name):
        return [value for key, value in self.metadata if key == name]


class ConnectionTest(unittest.TestCase):
    """Settings come from what a test gives: its folder is the home of the user."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("QUIRE_", "TRACE"))}
        kept |= {"XDG_CONFIG_HOME": str(self.folder)}
        patch = mock.patch.dict(os.environ, kept, clear=True)
        patch.start()
        self.addCleanup(patch.stop)
        self.service = Service()

    def serve(self, credentials=None, address="127.0.0.1:0"):
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        inference_pb2_grpc.add_InferenceServicer_to_server(self.service, server)
        control_pb2_grpc.add_ControlServicer_to_server(self.service, server)
        sessions_pb2_grpc.add_SessionsServicer_to_server(self.service, server)
        port = (server.add_secure_port(address, credentials) if credentials
                else server.add_insecure_port(address))  # fmt: skip
        server.start()
        self.addCleanup(lambda: server.stop(None).wait())
        return address.replace(":0", f":{port}")

    def client(self, *args, **settings):
        settings = {"timeout": 30, "retries": None} | settings
        client = quire.QuireClient(*args, **settings)
        self.addCleanup(client.close)
        return client

    def refuses(self, pattern, *args, **settings):
        with self.assertRaisesRegex(quire.SettingsError, pattern):
            self.client(*args, **settings)

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def profiles(self, **profiles):
        return self.write("quire/profiles.json", json.dumps({"profiles": profiles}))


class KeyTest(ConnectionTest):
    def test_a_key_and_headers_are_sent_with_every_call(self):
        target = self.serve()
        client = self.client(target, api_key="qk-1-secret", headers={"X-Team": "blue"})
        client.load()
        self.assertEqual(self.service.sent("authorization"), ["Bearer qk-1-secret"])
        self.assertEqual(self.service.sent("x-team"), ["blue"])
        list(client.generate("hi"))
        self.assertEqual(self.service.sent("authorization"), ["Bearer qk-1-secret"])

        async def load():
            async with quire.aio.QuireClient(target, api_key="qk-2-other") as other:
                return (await other.load()).steps

        self.assertEqual(asyncio.run(load()), 7)
        self.assertEqual(self.service.sent("authorization"), ["Bearer qk-2-other"])

    def test_a_key_never_leaves_the_machine_in_plaintext(self):
        for target in ("198.51.100.7:50051", "gpu.example:50051", "dns:///gpu.example:50051",
                       "ipv4:127.0.0.1:1,198.51.100.7:1", "localhost.example:1"):  # fmt: skip
            self.refuses("plaintext to .*: set tls", target, api_key="qk-1-secret")
            self.refuses("plaintext", target, headers={"Authorization": "Bearer x"})
            self.client(target)
            self.client(target, api_key="qk-1-secret", tls=True)
        for target in ("127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1", "unix:/run/q.sock",
                       "dns:///localhost:1", "ipv6:[::1]:1", "unix-abstract:q"):  # fmt: skip
            self.assertTrue(stays_on_this_machine(target), target)
            self.client(target, api_key="qk-1-secret")

    def test_an_address_without_a_port_has_the_servers(self):
        for given, dialled in (("gpu.example", "gpu.example:50051"), ("::1", "[::1]:50051"),
                               ("[::1]", "[::1]:50051"), ("[::1]:7", "[::1]:7"), ("a:7", "a:7"),
                               ("/run/q", "unix:/run/q"), ("dns:///a", "dns:///a")):  # fmt: skip
            self.assertEqual(dial_address(given), dialled)

    def test_no_proxy_of_the_environment_gets_the_key(self):
        target = self.serve()
        with mock.patch.dict(os.environ, {"http_proxy": "http://127.0.0.1:9"}):
            self.assertEqual(self.client(target, api_key="qk-1-secret").load().steps, 7)

    def test_a_unix_socket_carries_a_key(self):
        target = self.serve(address=f"unix:{self.folder}/s")
        self.client(target, api_key_file=self.write("key", "qk-1-file\n")).load()
        self.assertEqual(self.service.sent("authorization"), ["Bearer qk-1-file"])

    def test_errors_do_not_show_the_key(self):
        for key in ("qk-1-sec ret", "qk-1-sécret", "x" * 5000, "qk-1-\nsecret"):
            with self.assertRaises(quire.SettingsError) as caught:
                self.client("127.0.0.1:1", api_key=key)
            self.assertNotIn(key, str(caught.exception))
        self.refuses("api_key_file: .*key: a key is 1 to 4096", "127.0.0.1:1",
                     api_key_file=self.write("key", "\n"))  # fmt: skip
        self.refuses("api_key_file: cannot read .*/none: No such file", "127.0.0.1:1",
                     api_key_file=self.folder / "none")  # fmt: skip
        self.refuses("api_key and api_key_file are both set", "127.0.0.1:1", api_key="a",
                     api_key_file="b")  # fmt: skip

    def test_headers_that_cannot_be_sent_are_refused(self):
        for headers, trouble in (({"a b": "x"}, "'a b' is not the name"),
                                 ({"grpc-timeout": "1S"}, "belongs to gRPC"),
                                 ({"x-bin": "x"}, "belongs to gRPC"),
                                 ({"X-a": "1", "x-A": "2"}, "'x-A' is there twice"),
                                 ({"x": "é"}, "not printable ASCII"),
                                 ({"x": 1}, "names and texts")):  # fmt: skip
            self.refuses(trouble, "127.0.0.1:1", headers=headers)
        self.refuses("both set", "127.0.0.1:1", api_key="k", headers={"Authorization": "x"})

    def test_calls_of_a_session_carry_its_name(self):
        client = self.client(self.serve())
        talk = client.conversation("alice")
        for call in (lambda: list(talk.say("hi")),
                     lambda: list(client.generate("hi", session_id="alice")),
                     lambda: client.generate_text("hi", session_id="alice"),
                     lambda: client.sessions.fork("alice", "bob"),
                     lambda: client.sessions.create("alice"),
                     lambda: list(client.sessions.watch("alice"))):  # fmt: skip
            self.service.metadata = None
            call()
            self.assertEqual(self.service.sent("x-quire-session"), ["alice"])
        for call in (client.load, client.sessions.create, lambda: list(client.generate("hi")),
                     lambda: client.sessions.create("no name é")):  # fmt: skip
            call()
            self.assertEqual(self.service.sent("x-quire-session"), [])

    def test_a_client_may_choose_the_session_header(self):
        client = self.client(self.serve(), headers={"X-Quire-Session": "family-7"})
        list(client.conversation("alice").say("hi"))
        self.assertEqual(self.service.sent("x-quire-session"), ["family-7"])

    def test_generations_belong_to_the_trace_of_the_environment(self):
        parent = f"00-{'1' * 32}-{'2' * 16}-01"
        with mock.patch.dict(os.environ, {"TRACEPARENT": parent, "TRACESTATE": "a=b"}):
            client = self.client(self.serve())
        client.generate_text("hi")
        self.assertEqual(self.service.sent("traceparent"), [parent])
        self.assertEqual(self.service.sent("tracestate"), ["a=b"])
        client.load()
        self.assertEqual(self.service.sent("traceparent"), [])


class PlacesTest(ConnectionTest):
    def test_an_argument_beats_the_environment_which_beats_the_profile(self):
        target = self.serve()
        self.profiles(default={"server": target, "headers": {"x-a": "file", "x-b": "file"}})
        self.client().load()
        self.assertEqual((self.service.sent("x-a"), self.service.sent("x-b")), (["file"],) * 2)
        environment = {"QUIRE_SERVER": target, "QUIRE_HEADERS": "X-A: env: 1\n\n x-c :env\n"}
        with mock.patch.dict(os.environ, environment):
            self.client(headers={"x-c": "argument"}).load()
            sent = [self.service.sent(name) for name in ("x-a", "x-b", "x-c")]
            self.assertEqual(sent, [["env: 1"], ["file"], ["argument"]])
            with mock.patch.dict(os.environ, {"QUIRE_SERVER": "unix:/nonexistent/socket"}):
                self.client(target).load()
                with self.assertRaises(quire.Unavailable):
                    self.client().load()

    def test_the_key_of_the_strongest_place_is_sent(self):
        target = self.serve()
        self.write("quire/key", "qk-file-1")
        self.profiles(default={"api_key_file": "key"})
        self.client(target).load()
        self.assertEqual(self.service.sent("authorization"), ["Bearer qk-file-1"])
        with mock.patch.dict(os.environ, {"QUIRE_API_KEY": "qk-env-1"}):
            self.client(target).load()
            self.assertEqual(self.service.sent("authorization"), ["Bearer qk-env-1"])
            key = self.write("other", "qk-argument-1")
            self.client(target, api_key_file=key).load()
            self.assertEqual(self.service.sent("authorization"), ["Bearer qk-argument-1"])

    def test_the_profile_of_another_server_is_left_out_unless_it_is_named(self):
        target = self.serve()
        self.profiles(default={"server": "unix:/nonexistent", "headers": {"x-a": "file"}})
        self.client(target).load()
        self.assertEqual(self.service.sent("x-a"), [])
        self.client(target, profile="default").load()
        self.assertEqual(self.service.sent("x-a"), ["file"])

    def test_profiles_are_chosen_by_name(self):
        target = self.serve()
        file = self.profiles(near={"server": target}, far={"server": "unix:/nonexistent"})
        self.assertEqual(self.client(profile="near").load().steps, 7)
        with mock.patch.dict(os.environ, {"QUIRE_PROFILE": "near"}):
            self.assertEqual(self.client().load().steps, 7)
        moved = self.folder / "moved.json"
        file.rename(moved)
        with mock.patch.dict(os.environ, {"QUIRE_PROFILE_FILE": str(moved)}):
            self.assertEqual(self.client(profile="near").load().steps, 7)
            self.refuses("moved.json: no profile 'nera'; the nearest is 'near'", profile="nera")
        self.refuses("cannot read the profiles in .*profiles.json: No such file", profile="near")
        with mock.patch.dict(os.environ, {"QUIRE_PROFILE_FILE": str(file)}):
            self.refuses("cannot read the profiles in .*profiles.json: No such file")

    def test_errors_name_the_file_and_the_nearest_field(self):
        file = self.profiles(default={"ca_crt": "x"})
        self.refuses(f"{file}: profiles.default: unknown field 'ca_crt'; the nearest is 'ca_cert'")
        self.profiles(default={"api_key": "qk-1-secret"})  # secrets have a file of their own
        self.refuses("unknown field 'api_key'; the nearest is 'api_key_file'")
        self.profiles(default={"tls": "yes"})
        self.refuses(f"{file}: profiles.default.tls: true or false, not 'yes'")
        self.profiles(default={"server": 7})
        self.refuses("profiles.default.server: a text")
        self.profiles(default={"ca_cert": "none.pem"})
        self.refuses(f"profiles.default.ca_cert: cannot read {self.folder}/quire/none.pem: No such")
        self.profiles(default=["x"])
        self.refuses("profiles.default is not an object")
        for content, trouble in (('{"profile": {}}', "unknown field 'profile'; the nearest is"),
                                 ("[]", "not an object"), ('{"profiles": 1}', "'profiles' is not"),
                                 ('{"profiles": {}', "not JSON: .*line 1"),
                                 ('{"profiles": {"a": 1, "a": 2}}', "the field 'a' is there twice"),
                                 ("\0", "not JSON")):  # fmt: skip
            self.write("quire/profiles.json", content)
            self.refuses(f"{file}: {trouble}")
        file.write_bytes(b"\xff\xfe")
        self.refuses(f"{file}: not JSON")

    def test_errors_name_the_variable(self):
        for name, value, trouble in (
            ("QUIRE_TLS", "maybe", "QUIRE_TLS: true or false, not 'maybe'"),
            ("QUIRE_HEADERS", "x-a: 1\nnonsense", "QUIRE_HEADERS: line 2 is not `name: value`"),
            ("QUIRE_HEADERS", "x-a: 1\nX-A: 2", "QUIRE_HEADERS: line 2 has the header 'X-A' again"),
            ("QUIRE_CA_CERT", "/none.pem", "QUIRE_CA_CERT: cannot read /none.pem"),
            ("QUIRE_CLIENT_CERT", "/none.pem", "QUIRE_CLIENT_CERT: cannot read /none.pem"),
            ("QUIRE_SERVER_NAME", "x", "QUIRE_SERVER_NAME is set, but .*: set tls too"),
            ("QUIRE_API_KEY", "a b", "QUIRE_API_KEY: a key is"),
        ):
            with mock.patch.dict(os.environ, {name: value}):
                self.refuses(trouble)
        with mock.patch.dict(os.environ, {"QUIRE_TLS": "", "QUIRE_SERVER": ""}):
            self.client()  # an empty variable counts as not set

    def test_a_stronger_place_switches_the_profiles_tls_off(self):
        target = self.serve()
        self.profiles(default={"ca_cert": "none.pem", "server_name": "x"})
        self.assertEqual(self.client(target, tls=False).load().steps, 7)
        self.refuses("tls is false, but ca_cert is set", tls=False, ca_cert="x")


@unittest.skipUnless(shutil.which("openssl"), "openssl is not installed")
class TlsTest(ConnectionTest):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        authority = Authority(scratch.name, "ca")
        files = {"ca.pem": authority.pem, "other-ca.pem": Authority(scratch.name, "other").pem}
        for name, host in (("server", "gpu.example"), ("client", "alice")):
            files[f"{name}.pem"], files[f"{name}.key"] = authority.make(name, f"DNS:{host}")
        cls.files = {name: pathlib.Path(path) for name, path in files.items()}

    def path(self, name):
        return self.files[name]

    def serve_tls(self, mutual=False):
        pair = (self.path("server.key").read_bytes(), self.path("server.pem").read_bytes())
        root = self.path("ca.pem").read_bytes() if mutual else None
        return self.serve(grpc.ssl_server_credentials([pair], root, mutual))

    def trusting(self, target, **settings):
        settings = {"ca_cert": self.path("ca.pem"), "server_name": "gpu.example"} | settings
        return self.client(target, **settings)

    def fails(self, client):
        with self.assertRaises(quire.Unavailable):
            client.load()

    def test_the_server_is_verified(self):
        target = self.serve_tls()
        self.trusting(target, api_key="qk-1-secret").load()
        self.assertEqual(self.service.sent("authorization"), ["Bearer qk-1-secret"])
        self.fails(self.trusting(target, ca_cert=self.path("other-ca.pem")))
        self.fails(self.trusting(target, server_name="other.example"))
        self.fails(self.client(target, tls=True))  # the system's authorities
        self.fails(self.client(target))  # plaintext

    def test_asyncio_speaks_tls(self):
        target = self.serve_tls()

        async def load(**settings):
            settings = {"ca_cert": self.path("ca.pem"), "server_name": "gpu.example"} | settings
            async with quire.aio.QuireClient(target, retries=None, **settings) as client:
                return (await client.load(timeout=30)).steps

        self.assertEqual(asyncio.run(load()), 7)
        with self.assertRaises(quire.Unavailable):
            asyncio.run(load(ca_cert=self.path("other-ca.pem")))

    def test_the_client_shows_its_certificate(self):
        target = self.serve_tls(mutual=True)
        mine = {"client_cert": self.path("client.pem"), "client_key": self.path("client.key")}
        self.trusting(target, **mine).load()
        self.assertEqual(self.service.peer_names, [b"client"])
        self.fails(self.trusting(target))
        self.refuses("client_cert is set, but client_key is not", target,
                     client_cert=mine["client_cert"])  # fmt: skip
        self.refuses("client_key is set, but client_cert is not", target, tls=True,
                     client_key=mine["client_key"])  # fmt: skip

    def test_the_environment_and_a_profile_configure_tls(self):
        target = self.serve_tls(mutual=True)
        for name in ("ca.pem", "client.pem", "client.key"):
            (self.folder / "quire/certs").mkdir(parents=True, exist_ok=True)
            shutil.copy(self.path(name), self.folder / "quire/certs" / name)
        self.profiles(default={"server": target, "tls": True, "ca_cert": "certs/ca.pem",
                               "client_cert": "certs/client.pem", "server_name": "gpu.example",
                               "client_key": "certs/client.key"})  # fmt: skip
        self.assertEqual(self.client().load().steps, 7)
        with mock.patch.dict(os.environ, {"QUIRE_CA_CERT": str(self.path("other-ca.pem"))}):
            self.fails(self.client())
        self.profiles()
        environment = {"QUIRE_SERVER": target, "QUIRE_TLS": "1",
                       "QUIRE_CA_CERT": str(self.path("ca.pem")),
                       "QUIRE_CLIENT_CERT": str(self.path("client.pem")),
                       "QUIRE_CLIENT_KEY": str(self.path("client.key")),
                       "QUIRE_SERVER_NAME": "gpu.example"}  # fmt: skip
        with mock.patch.dict(os.environ, environment):
            self.assertEqual(self.client().load().steps, 7)

    def test_files_that_are_no_certificates_are_refused(self):
        self.refuses("ca_cert: .*server.*key has no CERTIFICATE in PEM format", "127.0.0.1:1",
                     ca_cert=self.path("server.key"))  # fmt: skip
        self.refuses("client_key: .*client.*pem has no PRIVATE KEY in PEM", "127.0.0.1:1",
                     client_cert=self.path("client.pem"),
                     client_key=self.path("client.pem"))  # fmt: skip

    def test_credentials_of_the_caller_are_used(self):
        target = self.serve_tls()
        credentials = grpc.ssl_channel_credentials(self.path("ca.pem").read_bytes())
        client = self.client(target, credentials=credentials, server_name="gpu.example")
        self.assertEqual(client.load().steps, 7)


if __name__ == "__main__":
    unittest.main()
