"""ServedCase: tests of a real server whose answers stay those of an undisturbed one, whatever its
system calls do."""

import itertools
import pathlib
import unittest

import quire
from conversing_server import ConversingServer
from faults import Faults

OPTIONS = quire.Options(temperature=0.8, seed=3, ignore_eos=True, max_tokens=40)
PROMPT = "Once upon a time"


class ServedCase(unittest.TestCase):
    shim = None  # the path of the fault shim

    @classmethod
    def setUpClass(cls):
        with ConversingServer() as server:
            cls.expected = list(server.client.generate_text(PROMPT, OPTIONS).token_ids)

    def setUp(self):
        self.faults = Faults(self.shim)
        self.numbers = itertools.count(1)

    def serve(self, *flags):
        server = ConversingServer(*flags, environment=self.faults.environment())
        self.addCleanup(server.__exit__)
        return server

    def ask(self, server):
        """One call on a connection of its own; True if it succeeded. Any thread."""
        # Channels to one name share a connection, so each call has a name of its own.
        socket = pathlib.Path(server.target.removeprefix("unix:"))
        alias = socket.with_name(f"alias-{next(self.numbers)}")
        alias.symlink_to(socket)
        client = quire.QuireClient(f"unix:{alias}", timeout=60, retries=None)
        ids = []
        try:
            for delta in client.generate(PROMPT, OPTIONS):
                ids += delta.token_ids
            self.assertEqual(ids, self.expected)
            return True
        except quire.QuireError:
            self.assertEqual(ids, self.expected[: len(ids)])
            return False
        finally:
            client.close()
