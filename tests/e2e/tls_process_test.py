#!/usr/bin/python3
"""TLS between real programs: who gets in, what a refusal says, and certificates that change:
tls_process_test.py FOLDER_OF_PROGRAMS."""
# Covers server/tls/certificate_watch.cc, clients/connect/diagnosis.cc, clients/connect/channel.cc,
# clients/connect/tcp_probe.cc

import calendar
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import unittest
from random import Random

import grpc
from logged_server import PATIENCE, LoggedServer, await_true, clean_environment
from made_certificates import FAR_FUTURE, FAR_PAST, FUTURE, PAST, Authority, rename_over
from quire.v1 import control_pb2, control_pb2_grpc, inference_pb2, inference_pb2_grpc
from running_server import BINARY as PROGRAMS  # here the folder of all programs

BAD_CONFIG = 2
UNAVAILABLE = 24  # exit code of quire
REASONS = ("no_certificate", "untrusted", "plaintext", "version", "refused", "timeout", "closed",
           "other")
STREAMS, TOKENS = 4, 1200  # of a rotation; long enough to be running behind it
FORWARD_SECRET = re.compile(r"TLS_(AES|CHACHA20)_.*|ECDHE-(ECDSA|RSA)-(AES\d+-GCM|CHACHA20).*")


class Server(LoggedServer):
    def __init__(self, *flags):
        super().__init__(PROGRAMS, *flags)

    def failures(self, reason):
        return self.metric("quire_tls_handshake_failures_total", f'reason="{reason}"')


def quire(server, *arguments, environment=None):
    """`quire health` at the server: exit code and what it printed."""
    done = subprocess.run([PROGRAMS / "quire", "--server", server, *arguments, "health"],
                          env={**clean_environment(), "HOME": "/", **(environment or {})},
                          capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout + done.stderr


def s_client(port, *arguments):
    done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-alpn", "h2",
                           *arguments], input="", capture_output=True, encoding="utf-8",
                          errors="replace", timeout=PATIENCE)
    return done.stdout + done.stderr


def leaf(port):
    """The common name of the certificate that a new connection gets."""
    found = re.search(r"subject=CN ?= ?(\S+)", s_client(port))
    return found.group(1) if found else None


class TlsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="quire_tls_test_")
        cls.authority, cls.other = Authority(cls.folder, "good"), Authority(cls.folder, "other")
        cls.first, cls.second = cls.authority.make("first"), cls.authority.make("second")
        cls.client = cls.authority.make("client", "URI:spiffe://example/tenant/a")
        cls.stranger = cls.other.make("stranger")
        cls.expired = cls.authority.make("expired", begin=FAR_PAST, end=PAST)
        cls.early = cls.authority.make("early", begin=FUTURE, end=FAR_FUTURE)
        cls.trust = ("--ca-cert", cls.authority.pem)
        cls.show = ("--client-cert", cls.client[0], "--client-key", cls.client[1])

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def setUp(self):
        """A folder with copies of the first certificate, for tests that replace them."""
        self.live = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        self.cert, self.key = str(self.live / "tls.crt"), str(self.live / "tls.key")
        self.ca = str(self.live / "ca.crt")
        self.install(self.first)
        shutil.copy(self.authority.pem, self.ca)

    def install(self, pair):
        for source, target in zip(pair, (self.cert, self.key)):
            rename_over(source, target)

    def flags(self, *more):
        return ("--ssl-certfile", self.cert, "--ssl-keyfile", self.key, *more)

    def channel(self, server, pair=None):
        files = [pathlib.Path(f).read_bytes() for f in (self.authority.pem, *(pair or ()))]
        credentials = grpc.ssl_channel_credentials(
            files[0], *((files[2], files[1]) if pair else ()))
        return grpc.secure_channel(server.address, credentials)

    # Refusals at the start.

    def test_bad_files_are_refused_by_name_before_the_model_is_loaded(self):
        half = str(self.live / "half.pem")
        text = pathlib.Path(self.first[0]).read_text()
        pathlib.Path(half).write_text(text[:len(text) - 200])
        cases = [
            (self.expired, "--ssl-certfile .*: certificate 1 expired at 2020-01-02"),
            (self.early, "--ssl-certfile .*: certificate 1 is not valid before 2048-12-31"),
            ((self.first[0], self.second[1]), "--ssl-keyfile .*: the key does not belong to"),
            (("/nowhere/a.pem", self.first[1]), "--ssl-certfile /nowhere/a.pem: No such file"),
            ((half, self.first[1]), "half.pem: certificate 1 of 1 is cut off or damaged"),
        ]
        for (certificate, key), words in cases:
            for more in ((), ("--dry-run",)):
                done = subprocess.run(
                    [PROGRAMS / "quire-server", "--port", "0", "--metrics-port", "0",
                     "--ssl-certfile", certificate, "--ssl-keyfile", key, *more],
                    env=clean_environment(), capture_output=True, text=True, timeout=PATIENCE)
                self.assertEqual(done.returncode, BAD_CONFIG, done.stderr)
                self.assertRegex(done.stderr, words)
                self.assertNotIn("READY", done.stderr)

    def test_plaintext_beyond_this_machine_names_both_ways_out(self):
        done = subprocess.run([PROGRAMS / "quire-server", "--host", "0.0.0.0"], capture_output=True,
                              env=clean_environment(), text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, BAD_CONFIG)
        self.assertIn("--ssl-certfile", done.stderr)
        self.assertIn("--insecure-plaintext", done.stderr)
        with Server("--host", "0.0.0.0", *self.flags()) as server:
            self.assertEqual(quire(server.address, *self.trust)[0], 0)
            self.assertNotIn("may use, abort and drain", server.log())

    # Clients that get in.

    def test_only_certificates_of_the_authority_get_in(self):
        with Server(*self.flags("--ssl-ca-certs", self.ca)) as server:
            address = server.address
            code, text = quire(address, *self.trust, *self.show)
            self.assertEqual((code, text), (0, "SERVING\n"))
            code, text = quire(address, *self.trust)
            self.assertEqual(code, UNAVAILABLE)
            self.assertIn("asks for a certificate of the client, issued by CN=good: give "
                          "--client-cert", text)
            for pair, words in ((self.stranger, "refuses the certificate of --client-cert "
                                                "(CN=stranger, issued by CN=other)"),
                                (self.expired, "the certificate of --client-cert expired at")):
                code, text = quire(address, *self.trust, "--client-cert", pair[0], "--client-key",
                                   pair[1])
                self.assertEqual(code, UNAVAILABLE)
                self.assertIn(words, text)
            # gRPC and the diagnosis that follows it each make an attempt or more.
            await_true(lambda: server.failures("no_certificate") >= 1, "no_certificate counted")
            await_true(lambda: server.failures("untrusted") >= 2, "untrusted counted")
            self.assertEqual(server.failures("timeout"), 0)
            self.assertGreater(server.metric("quire_tls_handshakes_total"), 3)

    def test_optional_certificates_are_verified_when_sent(self):
        flags = self.flags("--ssl-ca-certs", self.ca, "--ssl-cert-reqs", "optional")
        with Server(*flags) as server:
            self.assertEqual(quire(server.address, *self.trust)[0], 0)
            self.assertEqual(quire(server.address, *self.trust, *self.show)[0], 0)
            code, _ = quire(server.address, *self.trust, "--client-cert", self.stranger[0],
                            "--client-key", self.stranger[1])
            self.assertEqual(code, UNAVAILABLE)

    def test_settings_come_from_the_environment_and_from_a_profile(self):
        profiles = self.live / "profiles.json"
        shutil.copy(self.client[1], self.live / "own.key")
        with Server(*self.flags("--ssl-ca-certs", self.ca)) as server:
            environment = {"QUIRE_CA_CERT": self.authority.pem, "QUIRE_CLIENT_CERT": self.client[0],
                           "QUIRE_CLIENT_KEY": self.client[1]}
            self.assertEqual(quire(server.address, environment=environment)[0], 0)
            profiles.write_text(json.dumps({"profiles": {"gpu": {
                "server": server.address, "ca_cert": self.authority.pem,
                "client_cert": self.client[0], "client_key": "own.key"}}}))
            done = subprocess.run([PROGRAMS / "quire", "--profile", "gpu", "health"], text=True,
                                  env={**clean_environment(), "QUIRE_PROFILE_FILE": str(profiles)},
                                  capture_output=True, timeout=PATIENCE)
            self.assertEqual((done.returncode, done.stdout), (0, "SERVING\n"), done.stderr)
            done = subprocess.run(
                [PROGRAMS / "quire-load", "--profile", "gpu", "--num-prompts", "4",
                 "--random-input-len", "8", "--random-output-len", "4", "--quiet"],
                env={**clean_environment(), "QUIRE_PROFILE_FILE": str(profiles)},
                capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"Successful requests: +4\b")

    # Messages of refusals.

    def test_clients_say_what_is_wrong(self):
        with Server(*self.flags()) as server, Server() as plain:
            cases = [
                ((server.address, "--ca-cert", self.other.pem),
                 rf"certificate \(CN=first, issued by CN=good\) comes from none of {self.other.pem}"
                 r".*--ca-cert"),
                ((server.address, "--tls"), "comes from none of this system's authorities"),
                ((server.address, *self.trust, "--server-name", "a.example"),
                 "is valid for localhost, 127.0.0.1, not for a.example: .*--server-name"),
                ((server.address,), "the server speaks TLS there: give --ca-cert"),
                ((plain.address, *self.trust), r"the server speaks plaintext there: .*--no-tls"),
            ]
            for arguments, words in cases:
                code, text = quire(*arguments)
                self.assertEqual(code, UNAVAILABLE, text)
                self.assertRegex(text, words)
                self.assertEqual(text.count("\n"), 1, text)
            done = subprocess.run([PROGRAMS / "quire-load", "--server", server.address], text=True,
                                  env=clean_environment(), capture_output=True, timeout=PATIENCE)
            self.assertEqual(done.returncode, 1)
            self.assertIn("the server speaks TLS there", done.stderr)
            await_true(lambda: server.failures("plaintext") >= 1, "plaintext counted")
            self.assertEqual(quire(plain.address)[0], 0)

    # Versions and stalls.

    def test_only_tls_1_2_and_1_3_with_forward_secrecy_are_spoken(self):
        with Server(*self.flags()) as server:
            weak = ("-cipher", "ALL:@SECLEVEL=0")
            for version in ("-tls1", "-tls1_1"):
                self.assertIn("Cipher is (NONE)", s_client(server.port, version, *weak))
            for version in ("-tls1_2", "-tls1_3"):
                text = s_client(server.port, version)
                self.assertIn("ALPN protocol: h2", text)
                cipher = re.search(r"Cipher is (\S+)", text).group(1)
                self.assertRegex(cipher, FORWARD_SECRET)
            for cipher in ("AES128-SHA", "AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-SHA"):
                text = s_client(server.port, "-tls1_2", "-cipher", f"{cipher}:@SECLEVEL=0")
                self.assertIn("Cipher is (NONE)", text)
            await_true(lambda: server.failures("version") >= 5, "version counted")

    def test_a_stalled_handshake_is_closed(self):
        with Server(*self.flags()) as server:
            stalled = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
            stalled[1].sendall(b"\x16\x03\x01")
            for connection in stalled:
                connection.settimeout(PATIENCE)
                self.assertEqual(connection.recv(1), b"")
                connection.close()
            await_true(lambda: server.failures("timeout") == 2, "timeout counted")
            socket.create_connection(("127.0.0.1", server.port)).close()
            await_true(lambda: server.failures("closed") == 1, "closed counted")
            self.assertEqual(quire(server.address, *self.trust)[0], 0)

    def test_each_failed_handshake_is_counted_once(self):
        random = Random(7)
        beginnings = (b"", b"\x16\x03\x01", b"\x16\x03\x03\x00\x40\x01", b"GET / HTTP/1.1\r\n",
                      b"PRI * HTTP/2.0\r\n")
        # A second listener without TLS does not turn the counting off.
        more = ("--ssl-ca-certs", self.ca, "--admin-uds", str(self.live / "admin"))
        with Server(*self.flags(*more)) as server:
            for number in range(200):
                with socket.create_connection(("127.0.0.1", server.port)) as connection:
                    connection.sendall(beginnings[number % len(beginnings)] + random.randbytes(64))
            failed = lambda: sum(server.failures(reason) for reason in REASONS)
            await_true(lambda: failed() >= 200, "200 failures counted")
            self.assertEqual(quire(server.address, *self.trust, *self.show)[0], 0)
            await_true(lambda: server.metric("quire_tls_handshakes_total") == 201, "201 handshakes")
            self.assertEqual(failed(), 200)
            self.assertEqual(server.events("gRPC library error"), [])

    # Certificates that change.

    def assert_rotates(self, server, replace, name):
        """Replaces the certificate while streams run, of which none may fail."""
        request = inference_pb2.GenerateRequest(text="Once upon a time")
        request.stop.max_tokens, request.stop.ignore_eos = TOKENS, True
        ends = []

        def read(stub):
            try:
                for frame in stub.Generate(request, timeout=PATIENCE):
                    pass
                ends.append(frame.finished.usage.completion_tokens)
            except grpc.RpcError as error:
                ends.append(error.details())

        with self.channel(server) as channel:
            stub = inference_pb2_grpc.InferenceStub(channel)
            threads = [threading.Thread(target=read, args=(stub,)) for _ in range(STREAMS)]
            for thread in threads:
                thread.start()
            await_true(lambda: server.metric("quire_streams_open") == STREAMS, "all streams")
            replace()
            await_true(lambda: leaf(server.port) == name, f"the leaf {name}")
            self.assertEqual(server.metric("quire_streams_open"), STREAMS, "ended too early")
            for thread in threads:
                thread.join()
            self.assertEqual(ends, [TOKENS] * STREAMS)
            # The connection of before is good for new calls too.
            info = control_pb2_grpc.ControlStub(channel).GetServerInfo(
                control_pb2.GetServerInfoRequest(), timeout=PATIENCE)
            self.assertEqual(info.state, control_pb2.ServerInfo.STATE_READY)

    def test_rotation_under_load_drops_no_stream(self):
        """By rename, by rewriting in place, and as Kubernetes swaps the link of a mount."""
        def rewrite(pair):
            for source, target in zip(pair, (self.cert, self.key)):
                pathlib.Path(target).write_bytes(pathlib.Path(source).read_bytes())

        with Server(*self.flags()) as server:
            self.assertEqual(leaf(server.port), "first")
            self.assert_rotates(server, lambda: self.install(self.second), "second")
            self.assert_rotates(server, lambda: rewrite(self.first), "first")
            self.assertEqual(server.metric("quire_tls_reloads_total", 'result="taken"'), 2)
            self.assertEqual(server.metric("quire_tls_reloads_total", 'result="refused"'), 0)

        mounted = self.live / "mounted"
        for version, pair in (("..1", self.first), ("..2", self.second)):
            (mounted / version).mkdir(parents=True)
            for source, name in zip(pair, ("tls.crt", "tls.key")):
                shutil.copy(source, mounted / version / name)
        (mounted / "..data").symlink_to("..1")
        for name in ("tls.crt", "tls.key"):
            (mounted / name).symlink_to(f"..data/{name}")

        def swap():
            (mounted / "..data_tmp").symlink_to("..2")
            os.rename(mounted / "..data_tmp", mounted / "..data")

        with Server("--ssl-certfile", mounted / "tls.crt", "--ssl-keyfile",
                    mounted / "tls.key") as server:
            self.assert_rotates(server, swap, "second")

    def test_nonsense_at_run_time_keeps_the_old_one_and_raises_an_alarm(self):
        with Server(*self.flags()) as server:
            expiry = server.metric("quire_tls_certificate_expiry_timestamp_seconds")
            self.assertEqual(expiry, calendar.timegm((2049, 12, 31, 0, 0, 0)))  # FAR_FUTURE
            text = pathlib.Path(self.first[0]).read_bytes()
            half = str(self.live / "half")
            pathlib.Path(half).write_bytes(text[:300])
            bad = [
                ((half, self.first[1]), "cut off or damaged"),
                ((self.second[0], self.first[1]), "the key does not belong to"),
                (self.expired, "expired at 2020-01-02"),
                (self.early, "is not valid before"),
            ]
            for count, (pair, words) in enumerate(bad, 1):
                self.install(pair)
                refused = lambda: server.metric("quire_tls_reloads_total", 'result="refused"')
                await_true(lambda: refused() == count, f"refusal {count}")
                self.assertEqual(server.metric("quire_tls_files_refused"), 1)
                self.assertIn(words, server.events("TLS files refused")[-1]["reason"])
                self.assertEqual(leaf(server.port), "first")
                self.assertEqual(quire(server.address, *self.trust)[0], 0)
            os.remove(self.cert)
            await_true(lambda: refused() == len(bad) + 1, "refusal of a missing file")
            self.assertEqual(leaf(server.port), "first")
            self.install(self.second)
            await_true(lambda: leaf(server.port) == "second", "the good one")
            await_true(lambda: server.metric("quire_tls_files_refused") == 0, "the alarm's end")

    def test_another_authority_for_clients_is_taken(self):
        with Server(*self.flags("--ssl-ca-certs", self.ca)) as server:
            def ask(channel):
                return control_pb2_grpc.ControlStub(channel).GetServerInfo(
                    control_pb2.GetServerInfoRequest(), timeout=PATIENCE)

            def code(pair):
                return quire(server.address, *self.trust, "--client-cert", pair[0], "--client-key",
                             pair[1])[0]

            with self.channel(server, self.client) as before:
                ask(before)
                self.assertEqual(code(self.stranger), UNAVAILABLE)
                rename_over(self.other.pem, self.ca)
                await_true(lambda: code(self.stranger) == 0, "the other authority")
                self.assertEqual(code(self.client), UNAVAILABLE)
                ask(before)

    def test_a_resumed_session_does_not_outlive_its_authority(self):
        """A ticket stands for a client's certificate, so it must go with the authority."""
        def connect(version, *more, until):
            """The output of s_client, which goes on until the server or `until()` ends it."""
            output = self.live / "output"
            with open(output, "wb") as file:
                client = subprocess.Popen(
                    ["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", version, *more],
                    stdin=subprocess.PIPE, stdout=file, stderr=file)
                read = lambda: output.read_text(errors="replace")
                await_true(lambda: until(read()) or client.poll() is not None, "s_client")
                client.communicate()
            return read()

        with Server(*self.flags("--ssl-ca-certs", self.ca)) as server:
            for version in ("-tls1_2", "-tls1_3"):
                ticket = str(self.live / version)
                written = lambda _: os.path.exists(ticket) and os.path.getsize(ticket) > 0
                connect(version, "-cert", self.client[0], "-key", self.client[1], "-sess_out",
                        ticket, until=written)
                text = connect(version, "-sess_in", ticket,
                               until=lambda text: "Reused, TLS" in text)
                self.assertIn("Reused, TLS", text)
            rename_over(self.other.pem, self.ca)
            await_true(lambda: server.metric("quire_tls_reloads_total", 'result="taken"') == 1,
                       "the other authority")
            for version in ("-tls1_2", "-tls1_3"):
                text = connect(version, "-sess_in", str(self.live / version),
                               until=lambda _: False)
                self.assertNotIn("Reused, TLS", text)
                self.assertIn("unexpected eof", text)


if __name__ == "__main__":
    unittest.main()
