#!/usr/bin/python3
"""Several servers behind HAProxy and behind nginx, as deploy/fleet and docs/fleet.md say, with real
processes: fleet_test.py FOLDER of quire-server and quire.

Each proxy ends TLS with a certificate made here, and talks to the servers on loopback.
"""
# Covers clients/cpp/session/session_move.cc

import pathlib
import subprocess
import sys
import tempfile
import unittest

import grpc
import quire
from quire.v1 import control_pb2

from fleet_servers import HAProxy, HAProxyToTls, Nginx, Server, counted, program
from observability_servers import GuardedServer
from processes import PATIENCE, await_true, make_certificate

BIN = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path("build/release/bin")
# Enough that chance alone hardly moves a server's share: with 6,000 sessions over 3 servers one
# standard deviation is 1.8 % of a share.
KEYS = [f"talk-{i}" for i in range(6000)]
FEW = KEYS[:60]


class FleetTest:
    """The tests of one proxy."""

    proxy_class = None

    @classmethod
    def setUpClass(cls):
        if program(cls.proxy_class.name) is None:
            raise unittest.SkipTest(f"{cls.proxy_class.name} is not installed: see scripts/deps")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.certificate = make_certificate(cls.folder)
        cls.servers = {}
        for name in "abcd":
            cls.servers[name] = Server(BIN / "quire-server", cls.folder, *cls.flags(name))
            cls.addClassCleanup(cls.servers[name].stop)

    @classmethod
    def flags(cls, name):
        return (
            *("--session-dir", str(cls.folder / f"sessions-{name}")),
            *("--kv-offloading-size", "64M", "--shutdown-timeout", "20"),
        )

    def setUp(self):
        for server in self.servers.values():
            if server.process.poll() is not None:
                server.start()
            server.undrain()
            server.calls.close_sessions()
        first = {name: self.servers[name] for name in "abc"}
        self.proxy = self.proxy_class(self.folder, self.certificate, first)
        self.proxy.start()
        self.addCleanup(self.proxy.stop)
        self.client = self.connect()
        self.await_places("abc")

    def connect(self):
        calls = self.proxy.connect()
        self.addCleanup(calls.close)
        return calls

    def names(self, places):
        """The same with the servers' names."""
        known = {server.instance: name for name, server in self.servers.items()}
        return {key: known[instance] for key, instance in places.items()}

    def await_places(self, names):
        """Waits until new connections reach these servers and no other."""
        def seen():
            calls = self.proxy.connect()
            try:
                return set(self.names(calls.places(FEW)).values())
            except grpc.RpcError:
                return set()
            finally:
                calls.close()

        await_true(lambda: seen() == set(names), lambda: f"{seen()} is {names}")

    def test_the_file_is_valid(self):
        code, words = self.proxy.checked()
        self.assertEqual((code, words.replace("Configuration file is valid\n", "")), (0, ""))

    def test_load_is_even_and_a_new_server_takes_its_share_alone(self):
        before = self.names(self.client.places(KEYS))
        for name, count in counted(before).items():
            self.assertAlmostEqual(count / (len(KEYS) / 3), 1, delta=0.1, msg=name)
        again = self.names(self.connect().places(KEYS[:500]))
        self.assertLessEqual(again.items(), before.items())

        self.proxy.servers = dict(self.servers)
        self.proxy.reload()
        self.await_places("abcd")
        after = self.names(self.connect().places(KEYS))
        moved = {key for key in KEYS if before[key] != after[key]}
        self.assertEqual({after[key] for key in moved}, {"d"}, "moved between the old servers")
        self.assertLess(len(moved) / len(KEYS), 1 / 4 * 1.1)
        for name, count in counted(after).items():
            self.assertAlmostEqual(count / (len(KEYS) / 4), 1, delta=0.1, msg=name)

    def test_requests_without_a_session_go_to_all_servers(self):
        places = self.names({i: self.client.place() for i in range(60)})
        self.assertEqual(set(places.values()), set("abc"))

    def test_clients_of_the_proxy_do_not_administer(self):
        with self.assertRaises(grpc.RpcError) as raised:
            self.client.control.Drain(control_pb2.DrainRequest(), timeout=PATIENCE)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.PERMISSION_DENIED)

    def test_a_conversation_stays_where_its_kv_is(self):
        for name in ("stay-1", "stay-2", "stay-3"):
            self.client.turn(name, "Once upon a time", create=True)
            residency = self.connect().turn(name, " there was").finished.residency
            self.assertEqual(residency.recomputed_tokens, 0)
            self.assertGreater(residency.device_tokens + residency.host_tokens, 0)

    def test_a_killed_server_costs_its_own_streams_alone(self):
        places = self.names(self.client.places(FEW))
        of = {name: next(key for key in FEW if places[key] == name) for name in "abc"}
        streams = {name: self.client.stream(of[name], "Once", 1500) for name in "abc"}
        self.servers["b"].kill()
        with self.assertRaises(grpc.RpcError) as raised:
            for _ in streams["b"]:
                pass
        # The proxy has no better word for an answer that is cut off.
        self.assertEqual(raised.exception.code(), self.proxy.cut_off)
        for name in "ac":
            *_, last = streams[name]
            self.assertEqual(last.finished.usage.completion_tokens, 1500)
        # New ones go elsewhere at once, though no check has found out yet.
        after = self.names(self.client.places(FEW))
        self.assertEqual(
            {key for key in FEW if after[key] != places[key]},
            {key for key in FEW if places[key] == "b"},
        )
        # And come back with the server.
        self.servers["b"].start()
        self.await_places("abc")
        self.assertEqual(self.names(self.connect().places(FEW)), places)


    def move_sessions(self, server, *names):
        """What `quire session move` says, as sorted lines."""
        command = [BIN / "quire", "session", "move", f"127.0.0.1:{self.proxy.plain_port}", *names]
        done = subprocess.run(
            [*command, "--server", f"127.0.0.1:{server.port}"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return sorted(done.stdout.splitlines())

    def drain(self, name):
        """As docs/fleet.md says: first the proxy that does not notice by itself."""
        if not self.proxy.notices_a_drain:
            self.proxy.down = {name}
            self.proxy.reload()
            self.await_places(set("abc") - {name})
        self.servers[name].drain()
        self.await_places(set("abc") - {name})

    def undrain(self, name):
        self.servers[name].undrain()
        if not self.proxy.notices_a_drain:
            self.proxy.down = set()
            self.proxy.reload()
        self.await_places("abc")

    def test_a_drained_server_gives_its_requests_and_sessions_to_the_others(self):
        texts = ["Once upon a time there was", " One day", " Then"]
        alone = self.servers["d"].calls
        expected = [list(alone.turn("same", text, create=True).token_ids) for text in texts]
        places = self.names(self.client.places(KEYS[:300]))
        of = {name: sorted(key for key in places if places[key] == name)[:4] for name in "abc"}
        of_b, keys = of["b"], sum(of.values(), [])
        for key in keys:
            answer = self.client.turn(key, texts[0], create=True)
            self.assertEqual(list(answer.token_ids), expected[0])
        stream = self.client.stream(of_b[0], "Once", 1000)

        self.drain("b")
        *_, last = stream
        self.assertEqual(last.finished.usage.completion_tokens, 1000, "requests finish")
        with self.assertRaises(grpc.RpcError) as raised:
            self.connect().turn(of_b[0], texts[1])
        self.assertEqual(raised.exception.code(), grpc.StatusCode.NOT_FOUND, "not there yet")
        self.assertEqual(self.move_sessions(self.servers["b"]), [f"moved {key}" for key in of_b])
        self.assertEqual(self.servers["b"].calls.session_names(), [])
        client = self.connect()
        for key in keys:
            answer = client.turn(key, texts[1])
            self.assertEqual(list(answer.token_ids), expected[1])
            self.assertEqual(answer.finished.residency.recomputed_tokens, 0, "the KV moved too")

        # Back again: only what does not belong to a and c leaves them.
        self.undrain("b")
        said = self.move_sessions(self.servers["a"]) + self.move_sessions(self.servers["c"])
        moved = sorted(line.removeprefix("moved ") for line in said if line.startswith("moved "))
        self.assertEqual(moved, of_b)
        client = self.connect()
        for key in keys:
            self.assertEqual(list(client.turn(key, texts[2]).token_ids), expected[2])

    def test_a_replaced_server_takes_over_the_session_directory(self):
        key = next(key for key, name in self.names(self.client.places(KEYS)).items() if name == "c")
        alone = self.servers["d"].calls
        name = f"{key}-{self.proxy.name}"
        expected = [
            list(alone.turn(f"replaced-{name}", text, create=True).token_ids)
            for text in ("Once upon a time", " and")
        ]
        turn = lambda text: self.connect().turn(name, text, create=True, key=key)  # noqa: E731
        self.assertEqual(list(turn("Once upon a time").token_ids), expected[0])
        self.assertEqual(self.servers["c"].terminate(), 0)
        self.await_places("ab")
        self.servers["c"].start()
        self.await_places("abc")
        answer = turn(" and")
        self.assertEqual(list(answer.token_ids), expected[1])
        self.assertEqual(answer.finished.residency.recomputed_tokens, 0)


class HAProxyTest(FleetTest, unittest.TestCase):
    proxy_class = HAProxy


@unittest.skipIf(program("haproxy") is None, "haproxy is not installed: see scripts/deps")
class HAProxyToTlsTest(unittest.TestCase):
    def test_a_server_elsewhere_asks_the_proxy_for_a_certificate_and_clients_for_a_key(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        certificate = make_certificate(folder.name)
        server = GuardedServer(BIN / "quire-server", "--ssl-ca-certs", str(certificate))
        self.addCleanup(server.stop)
        proxy = HAProxyToTls(folder.name, certificate, {"d": server})
        self.assertEqual(proxy.checked()[0], 0, proxy.checked())
        proxy.start()
        self.addCleanup(proxy.stop)

        def ask(target, **given):
            with quire.QuireClient(target, timeout=PATIENCE, retries=None, **given) as client:
                return client.generate_text("Once", quire.Options(max_tokens=4))

        through = {"target": f"localhost:{proxy.port}", "ca_cert": certificate}
        await_true(lambda: "UP" in proxy.state("d"), "the proxy finds the server")
        self.assertTrue(ask(**through, api_key=server.key))
        with self.assertRaises(quire.QuireError) as raised:
            ask(**through)
        self.assertEqual(raised.exception.code, grpc.StatusCode.UNAUTHENTICATED)
        with self.assertRaises(quire.QuireError) as raised:
            ask(server.target, ca_cert=server.certificate, api_key=server.key)
        self.assertEqual(raised.exception.code, grpc.StatusCode.UNAVAILABLE)


class NginxTest(FleetTest, unittest.TestCase):
    proxy_class = Nginx


if __name__ == "__main__":
    unittest.main()
