#!/usr/bin/python3
"""Streams, exports and imports over networks that are slow, cut connections or fall silent:
fault_proxy_test.py QUIRE_SERVER.

A call gives exactly the tokens and bytes of an undisturbed one, or an error; afterwards the server
holds no stream, no row and no block of it.
"""

import dataclasses
import unittest

import quire
from conversation import WORDS, await_true, spoken
from conversing_server import ConversingServer
from fault_proxy import FaultProxy, Manners

OPTIONS = quire.Options(temperature=0.8, seed=11, ignore_eos=True, max_tokens=48)
PROMPT = "Tell me a story about a dragon."


class FaultProxyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = ConversingServer("--slow-reader-timeout", "1")
        cls.addClassCleanup(cls.server.stop)
        cls.expected = list(cls.server.client.generate_text(PROMPT, OPTIONS).token_ids)
        assert len(cls.expected) == OPTIONS.max_tokens

    def proxy(self):
        proxy = FaultProxy(self.server.target.removeprefix("unix:"))
        self.addCleanup(proxy.__exit__)
        return proxy

    def client(self, proxy):
        client = quire.QuireClient(proxy.target, timeout=60)
        self.addCleanup(client.close)
        return client

    def assert_nothing_left(self):
        for name in ("quire_streams_open", "quire_requests_running", "quire_requests_waiting"):
            await_true(lambda name=name: self.server.metric(name) == 0, f"{name} to be 0")

    def test_byte_by_byte(self):
        proxy = self.proxy()
        proxy.to_server = proxy.to_client = Manners(piece=1)
        done = self.client(proxy).generate_text(PROMPT, OPTIONS)
        self.assertEqual(list(done.token_ids), self.expected)
        self.assert_nothing_left()

    def test_slow_in_both_directions(self):
        proxy = self.proxy()
        proxy.to_server = proxy.to_client = Manners(piece=100, delay=0.001)
        done = self.client(proxy).generate_text(PROMPT, OPTIONS)
        self.assertEqual(list(done.token_ids), self.expected)
        self.assert_nothing_left()

    def test_cut_after_any_number_of_bytes(self):
        ended = 0
        for cut in (1, 9, 24, 60, 130, 200, 300, 450, 700, 1000):
            for direction in ("to_client", "to_server"):
                with self.subTest(cut=cut, direction=direction):
                    proxy = self.proxy()
                    setattr(proxy, direction, Manners(cut_after=cut))
                    ids = []
                    try:
                        for delta in self.client(proxy).generate(PROMPT, OPTIONS):
                            ids += delta.token_ids
                        self.assertEqual(ids, self.expected)
                        ended += 1
                    except quire.QuireError:
                        self.assertEqual(ids, self.expected[: len(ids)])
                    proxy.to_server = proxy.to_client = Manners()
        self.assertLess(ended, 20)
        self.assert_nothing_left()

    def test_a_dead_peer_holds_nothing_for_long(self):
        proxy = self.proxy()
        stream = self.client(proxy).generate(PROMPT, dataclasses.replace(OPTIONS, max_tokens=1500))
        next(iter(stream))
        proxy.to_server = proxy.to_client = Manners(frozen=True)
        self.assert_nothing_left()
        # The others never noticed.
        done = self.server.client.generate_text(PROMPT, OPTIONS)
        self.assertEqual(list(done.token_ids), self.expected)

    def test_exports_and_imports_are_whole_or_fail(self):
        name = "travels"
        self.server.client.generate_text(
            spoken(0), quire.Options(max_tokens=20), session_id=name, create_session=True
        )
        whole = b"".join(self.server.sessions.export(name))
        for manners in (
            Manners(piece=1024),
            *(Manners(cut_after=len(whole) * i // 5) for i in range(1, 5)),
        ):
            with self.subTest(manners=manners):
                self.travel(name, whole, manners)
        self.assert_nothing_left()
        # The session was never harmed.
        done = self.server.client.generate_text(spoken(1), OPTIONS, session_id=name)
        self.assertEqual(len(done.token_ids), OPTIONS.max_tokens)

    def travel(self, name, whole, manners):
        proxy = self.proxy()
        proxy.to_client = manners
        try:
            self.assertEqual(b"".join(self.client(proxy).sessions.export(name)), whole)
        except quire.QuireError:
            self.assertGreaterEqual(manners.cut_after, 0)
        proxy.to_client = Manners()
        proxy.to_server = manners
        copy = f"copy-{manners.piece}-{manners.cut_after}"
        try:
            self.client(proxy).sessions.import_(whole, copy)
            self.assertLess(manners.cut_after, 0)
            self.assertEqual(b"".join(self.server.sessions.export(copy)), whole)
        except quire.QuireError:
            self.assertGreaterEqual(manners.cut_after, 0)
            with self.assertRaises(quire.QuireError):
                self.server.sessions.get(copy)


if __name__ == "__main__":
    unittest.main()
