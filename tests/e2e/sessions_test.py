#!/usr/bin/python3
"""A conversation of six turns with the demo model, whatever is done to its KV between them, over
real gRPC: sessions_test.py QUIRE_SERVER.

The tokens expected are those of requests that know of no session: each sends all tokens so far and
bypasses the prefix cache, to a server without host memory.
"""
# Covers server/session/session_transfer.cc, server/model_identity.cc

import os
import pathlib
import re
import shutil
import signal
import tempfile
import time
import unittest

import quire
from conversation import WORDS, await_true, spoken
from conversing_server import ConversingServer
from quire import SessionState

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLING = quire.Options(temperature=0.8, top_p=0.95, max_tokens=60, skip_special_tokens=False)


class Server(ConversingServer):
    def say(self, name, turn):
        """One turn: its tokens and its end."""
        done = self.client.generate_text(
            spoken(turn), SAMPLING, seed=turn, session_id=name, create_session=True
        )
        return list(done.token_ids), done.finished

    def offload(self, name):
        """Copies all KV to the host and evicts it from the device."""
        self.sessions.offload(name)
        await_true(lambda: self.sessions.get(name).state == SessionState.HOST, "KV on the host")

    def workers(self):
        return [int(pid) for pid in re.findall(r"worker started rank=0 pid=(\d+)", self.log())]


class SessionsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.expected, cls.positions, tokens = [], [], []
        with Server("--kv-offloading-size", "0") as server:
            for turn in range(len(WORDS)):
                said = server.client.tokenize(spoken(turn), add_special_tokens=turn == 0)
                tokens += [token.id for token in said]
                done = server.client.generate_text(
                    tokens, SAMPLING, seed=turn, bypass_prefix_cache=True
                )
                assert done.finished.usage.cached_tokens == 0
                tokens += list(done.token_ids)
                cls.expected.append(list(done.token_ids))
                cls.positions.append(len(tokens))

    def check(self, turn, said):
        ids, finished = said
        self.assertEqual(ids, self.expected[turn], f"turn {turn}: {finished}")
        self.assertEqual(finished.position, self.positions[turn])
        return finished.residency

    def test_the_conversation_is_plausible(self):
        self.assertGreater(len({tuple(ids) for ids in self.expected}), 4)
        self.assertGreater(self.positions[-1], 200)

    def test_never_offloaded(self):
        for flags in (("--kv-offloading-size", "0"), ("--session-idle-offload-after", "1h")):
            with Server(*flags) as server:
                for turn in range(len(WORDS)):
                    residency = self.check(turn, server.say("talk", turn))
                    if turn > 0:
                        # All but the last sampled token, which has no KV.
                        self.assertEqual(residency.device_tokens, self.positions[turn - 1] - 1)
                        self.assertEqual(residency.recomputed_tokens, 0)

    def test_offloaded_after_every_turn(self):
        with Server() as server:
            restored = 0
            for turn in range(len(WORDS)):
                residency = self.check(turn, server.say("talk", turn))
                restored += residency.host_tokens
                server.offload("talk")
                session = server.sessions.get("talk")
                self.assertEqual(session.device_tokens, 0)
                self.assertEqual(session.host_tokens, self.positions[turn] - 1)
            self.assertGreater(restored, 0)

    def test_offloaded_when_idle(self):
        with Server("--session-idle-offload-after", "0") as server:
            for turn in range(len(WORDS)):
                self.check(turn, server.say("talk", turn))
                await_true(
                    lambda: server.sessions.get("talk").host_tokens == self.positions[turn] - 1,
                    "an idle session on the host",
                )

    def forked_turn(self, server, turn):
        """A turn of a session forked from the one that had the last turn."""
        if turn > 0:
            session = server.sessions.fork(f"talk-{turn - 1}", f"talk-{turn}")
            self.assertEqual(session.state, SessionState.RESIDENT_IDLE)
            self.assertEqual(session.device_tokens, session.position - 1)
        said = server.say(f"talk-{turn}", turn)
        residency = said[1].residency
        self.assertEqual(residency.recomputed_tokens, 0)
        if turn > 0:
            self.assertEqual(residency.outcome, quire.Outcome.DEVICE)
            self.assertEqual(residency.device_tokens, session.position - 1)
        return said

    def test_forked_before_every_turn(self):
        with Server() as server:
            for turn in range(len(WORDS)):
                self.check(turn, self.forked_turn(server, turn))
            # Turns of the children leave the parents unchanged.
            for turn in range(len(WORDS)):
                self.assertEqual(
                    server.sessions.get(f"talk-{turn}").position, self.positions[turn]
                )
            # A fork from the middle diverges; the original continues as before.
            server.sessions.fork("talk-5", "branch", position=self.positions[2])
            self.check(3, server.say("branch", 3))
            server.sessions.truncate("talk-5", self.positions[3])
            self.check(4, server.say("talk-5", 4))
            self.check(5, server.say("talk-5", 5))

    def test_forked_in_every_rank(self):
        flags = ("--tensor-parallel-size", "2")
        with Server(*flags) as server:
            calm = [server.say("talk", turn) for turn in range(len(WORDS))]
        with Server(*flags) as server:
            for turn, (ids, finished) in enumerate(calm):
                said, ended = self.forked_turn(server, turn)
                self.assertEqual(said, ids)
                self.assertEqual(ended.position, finished.position)

    def test_forked_in_a_worker_process(self):
        with Server("--worker-process", "on") as server:
            for turn in range(len(WORDS)):
                self.check(turn, self.forked_turn(server, turn))

    def test_exported_and_imported_into_a_fresh_server(self):
        file = None
        for turn in range(len(WORDS)):
            with Server(*("--kv-checksum",)[: turn % 2]) as server:
                if file is not None:
                    session = server.sessions.import_(file, "talk")
                    self.assertEqual(session.position, self.positions[turn - 1])
                    self.assertEqual(session.host_tokens, self.positions[turn - 1] - 1)
                    self.assertEqual(b"".join(server.sessions.export("talk")), b"".join(file))
                residency = self.check(turn, server.say("talk", turn))
                if turn > 0:
                    self.assertEqual(residency.device_tokens, 0)
                    self.assertEqual(residency.host_tokens, self.positions[turn - 1] - 1)
                file = list(server.sessions.export("talk"))

    def test_exported_and_imported_by_servers_of_other_ranks(self):
        file = None
        for turn, ranks in enumerate((2, 1, 4, 2, 1, 4)):
            with Server("--tensor-parallel-size", str(ranks), "--worker-process", "off") as server:
                if file is not None:
                    server.sessions.import_(file, "talk")
                    self.assertEqual(b"".join(server.sessions.export("talk")), b"".join(file))
                residency = self.check(turn, server.say("talk", turn))
                if turn > 0:
                    self.assertEqual(residency.device_tokens, 0)
                    self.assertEqual(residency.host_tokens, self.positions[turn - 1] - 1)
                    self.assertEqual(residency.recomputed_tokens, 0)
                file = list(server.sessions.export("talk"))

    def test_exported_with_8_bit_kv_for_servers_with_8_bit_kv(self):
        with Server("--kv-cache-dtype", "fp8") as server:
            self.assertEqual(server.client.info().model.kv_cache_dtype, "fp8")
            replies = [server.say("talk", turn)[0] for turn in range(2)]
            file = list(server.sessions.export("talk"))
            replies.append(server.say("talk", 2)[0])
        with Server("--kv-cache-dtype", "fp8") as server:
            server.sessions.import_(file, "talk")
            tokens, finished = server.say("talk", 2)
            self.assertEqual(tokens, replies[2])
            self.assertEqual(finished.residency.recomputed_tokens, 0)
        with Server("--kv-cache-dtype", "bfloat16") as server:
            for turn in range(2):
                server.say("wide", turn)
            wide = sum(len(chunk) for chunk in server.sessions.export("wide"))
            self.assertAlmostEqual(sum(len(chunk) for chunk in file) / wide, 0.5, delta=0.1)
            with self.assertRaisesRegex(quire.QuireError, "KV data type is float8_e4m3,.*bfloat16"):
                server.sessions.import_(file, "talk")

    def test_without_host_memory_tokens_are_exported(self):
        with Server("--kv-offloading-size", "0") as server:
            for turn in range(3):
                self.check(turn, server.say("talk", turn))
            file = list(server.sessions.export("talk"))
        with Server() as server:
            self.assertEqual(server.sessions.import_(file, "talk").absent_tokens, self.positions[2])
            for turn in range(3, len(WORDS)):
                self.check(turn, server.say("talk", turn))

    def test_a_worker_killed_between_turns(self):
        # A fourth death within five minutes would end the server.
        kept = {0: True, 1: False, 3: True}  # turn before the death: whether the host has its KV
        with Server("--worker-process", "on", "--session-idle-offload-after", "1h") as server:
            for turn in range(len(WORDS)):
                residency = self.check(turn, server.say("talk", turn))
                if turn - 1 in kept:
                    self.assertEqual(residency.device_tokens, 0)
                    self.assertGreater(residency.host_tokens, 0)
                    self.assertEqual(residency.recomputed_tokens == 0, kept[turn - 1])
                if turn not in kept:
                    continue
                if kept[turn]:
                    server.offload("talk")
                deaths = len(server.workers())
                os.kill(server.workers()[-1], signal.SIGKILL)
                await_true(lambda: len(server.workers()) > deaths, "another worker")

    def test_a_file_of_another_model_is_refused(self):
        with Server() as server:
            self.check(0, server.say("talk", 0))
            file = b"".join(server.sessions.export("talk"))
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "other"
            shutil.copytree(ROOT / "models" / "demo", model)
            weights = next(model.glob("*.safetensors"))
            weights.chmod(0o644)
            with open(weights, "r+b") as data:
                data.seek(-1, os.SEEK_END)
                last = data.read(1)[0]
                data.seek(-1, os.SEEK_END)
                data.write(bytes([last ^ 1]))
            with Server("--model", str(model)) as server:
                with self.assertRaisesRegex(quire.QuireError, "of model 'demo'.*'other'"):
                    server.sessions.import_(file, "talk")
                self.assertEqual(server.sessions.list(), [])

    def test_a_file_of_the_wide_model_is_refused_by_its_8_bit_form(self):
        with Server() as server:
            self.check(0, server.say("talk", 0))
            file = b"".join(server.sessions.export("talk"))
        with Server("--quantization", "fp8") as server:
            with self.assertRaisesRegex(quire.QuireError, "of model 'demo'"):
                server.sessions.import_(file, "talk")
            self.assertEqual(server.sessions.list(), [])


if __name__ == "__main__":
    unittest.main()
