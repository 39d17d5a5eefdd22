#!/usr/bin/python3
"""Sessions that outlive their server, with the demo model over real gRPC: session_dir_test.py
QUIRE_SERVER.

Servers are killed at random moments, and each finds what its predecessor confirmed. The tokens
expected are those of a server that lives through the whole conversation.
"""
# Covers server/session/archive/session_archive.cc, server/session/archive/session_directory.cc

import pathlib
import random
import resource
import signal
import subprocess
import tempfile
import threading
import unittest
import urllib.request

import quire
import running_server
from conversation import WORDS, await_true, spoken
from conversing_server import CPU, ConversingServer

SAMPLING = quire.Options(temperature=0.8, top_p=0.95, max_tokens=30, skip_special_tokens=False)
ROUNDS = 12  # kills of the test of random moments


class Server(ConversingServer):
    def say(self, name, turn):
        return self.client.generate_text(
            spoken(turn), SAMPLING, seed=turn, session_id=name, create_session=True
        )

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def metric(self, name, labels=""):
        """The sum of the metric's series with these labels."""
        port = next(
            line.split("metrics_port=")[1].split()[0]
            for line in self.log().splitlines()
            if "metrics_port=" in line
        )
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
            lines = page.read().decode().splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith(name + "{") and labels in line
        )


class SessionDirTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Server() as server:
            turns = [server.say("talk", turn) for turn in range(len(WORDS))]
        cls.expected = [list(done.token_ids) for done in turns]
        cls.positions = [done.finished.position for done in turns]

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.flags = ("--session-dir", folder.name)

    def check(self, turn, done):
        self.assertEqual(list(done.token_ids), self.expected[turn], f"turn {turn}")
        self.assertEqual(done.finished.position, self.positions[turn])
        return done.finished.residency

    def test_a_conversation_goes_on_after_each_kill(self):
        for turn in range(len(WORDS)):
            with Server(*self.flags) as server:
                if turn > 0:
                    session = server.sessions.get("talk")
                    self.assertEqual(session.position, self.positions[turn - 1])
                    self.assertEqual(session.turns, turn)
                self.check(turn, server.say("talk", turn))
                server.kill()

    def test_kv_survives_a_kill(self):
        flags = (*self.flags, "--session-idle-offload-after", "0")
        for turn in range(len(WORDS)):
            with Server(*flags) as server:
                residency = self.check(turn, server.say("talk", turn))
                if turn > 0:
                    self.assertEqual(residency.device_tokens, 0)
                    self.assertEqual(residency.host_tokens, self.positions[turn - 1] - 1)
                    self.assertEqual(residency.recomputed_tokens, 0)
                await_true(
                    lambda: server.metric("quire_session_saves_total", 'outcome="saved"') == 1,
                    "the KV in the directory",
                )
                server.kill()

    def test_a_drain_hands_sessions_over(self):
        flags = (*self.flags, "--session-idle-offload-after", "1h")
        for turn in range(len(WORDS)):
            with Server(*flags) as server:
                residency = self.check(turn, server.say("talk", turn))
                if turn > 0:
                    self.assertEqual(residency.host_tokens, self.positions[turn - 1] - 1)

    def test_servers_of_other_ranks_take_the_kv_over(self):
        for turn, ranks in enumerate((2, 1, 4, 2, 1, 4)):
            flags = ("--tensor-parallel-size", str(ranks), "--worker-process", "off")
            with Server(*self.flags, *flags) as server:
                residency = self.check(turn, server.say("talk", turn))
                if turn > 0:
                    self.assertEqual(residency.host_tokens, self.positions[turn - 1] - 1)
                    self.assertEqual(residency.recomputed_tokens, 0)
                    self.assertEqual(server.metric("quire_session_recalls_total", "recalled"), 1)

    def test_damaged_kv_is_computed_again(self):
        with Server(*self.flags) as server:
            self.check(0, server.say("talk", 0))
        file = next(self.folder.glob("*.kv"))
        damaged = bytearray(file.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        file.write_bytes(damaged)
        with Server(*self.flags) as server:
            residency = self.check(1, server.say("talk", 1))
            self.assertEqual(residency.recomputed_tokens, self.positions[0] - 1)
            self.assertEqual(server.metric("quire_session_recalls_total", "damaged"), 1)

    def test_a_small_file_system_costs_no_turn(self):
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(self.folder)],
            capture_output=True,
        )
        if mounted.returncode != 0:
            self.skipTest("needs the right to mount")
        self.addCleanup(subprocess.run, ["umount", str(self.folder)], check=True)
        flags = (*self.flags, "--session-idle-offload-after", "0")
        with Server(*flags) as server:
            for name in "abcdef":
                for turn in range(3):
                    self.check(turn, server.say(name, turn))
            self.assertEqual(server.metric("quire_session_turns_unsaved_total"), 0)
            server.kill()
        with Server(*flags) as server:
            for name in "abcdef":
                self.check(3, server.say(name, 3))

    def test_killed_at_random_moments(self):
        # Several conversations at once, so that a kill meets turns in all their phases.
        names = [f"talk-{i}" for i in range(3)]
        done = dict.fromkeys(names, 0)  # turns whose end the client has seen
        chance = random.Random(12)
        faults = []

        def converse(server, name):
            try:
                while done[name] < len(WORDS):
                    self.check(done[name], server.say(name, done[name]))
                    done[name] += 1
            except quire.QuireError:
                pass  # killed
            except AssertionError as fault:
                faults.append(fault)

        for _ in range(ROUNDS):
            with Server(*self.flags, "--session-idle-offload-after", "0") as server:
                for name in names:
                    found = self.position(server, name)
                    before = self.positions[done[name] - 1] if done[name] else 0
                    # The turn that the kill interrupted may be there whole, or not at all.
                    allowed = [before, *self.positions[done[name] : done[name] + 1]]
                    self.assertIn(found, allowed, f"{name} after {done[name]} turns")
                    if found != before:
                        done[name] += 1
                    if done[name] == len(WORDS):
                        server.sessions.close(name)
                        done[name] = 0
                threads = [threading.Thread(target=converse, args=(server, n)) for n in names]
                for thread in threads:
                    thread.start()
                threading.Event().wait(chance.uniform(0, 0.5))
                server.kill()
                for thread in threads:
                    thread.join()
            self.assertEqual(faults, [])

    def position(self, server, name):
        try:
            return server.sessions.get(name).position
        except quire.QuireError as error:
            self.assertEqual(error.reason, "SESSION_NOT_FOUND")
            return 0

    def test_a_second_server_is_refused(self):
        with Server(*self.flags):
            other = subprocess.run(
                [running_server.BINARY, *CPU, "--port", "0", "--metrics-port", "0", *self.flags],
                capture_output=True,
                text=True,
                timeout=120,
            )
            self.assertEqual(other.returncode, 2)
            self.assertIn(f"another server uses {self.folder}", other.stderr)

    def test_a_dry_run_checks_the_directory(self):
        def run(folder):
            command = [running_server.BINARY, *CPU, "--dry-run", "--session-dir", folder]
            return subprocess.run(command, capture_output=True, text=True, timeout=120)

        new = self.folder / "new"
        self.assertEqual(run(new).returncode, 0)
        self.assertFalse(new.exists())
        file = self.folder / "file"
        file.touch()
        refused = run(file)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("is not a directory", refused.stderr)

    def test_a_torn_journal_loses_its_last_turn_only(self):
        with Server(*self.flags) as server:
            for turn in range(3):
                self.check(turn, server.say("talk", turn))
            server.kill()
        journal = next(self.folder.glob("*.tokens"))
        whole = journal.read_bytes()
        journal.write_bytes(whole[:-5])
        with Server(*self.flags) as server:
            self.assertEqual(server.sessions.get("talk").position, self.positions[1])
            self.check(2, server.say("talk", 2))
            server.kill()
        damaged = bytearray(journal.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        journal.write_bytes(damaged)
        with Server(*self.flags) as server:
            self.assertEqual(self.position(server, "talk"), 0)
            self.assertEqual(server.metric("quire_session_adoptions_total", "damaged"), 1)
        self.assertEqual(journal.with_suffix(".damaged").read_bytes(), bytes(damaged))

    def test_a_full_disk_costs_no_turn(self):
        with Server(*self.flags) as server:
            self.check(0, server.say("talk", 0))
            size = next(self.folder.glob("*.tokens")).stat().st_size
            limit = (size + 100, resource.RLIM_INFINITY)
            # Writes beyond fail, as on a full disk.
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limit)
            for turn in range(1, 4):
                self.check(turn, server.say("talk", turn))
            unsaved = server.metric("quire_session_turns_unsaved_total", "failed")
            self.assertEqual(unsaved, 3)
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, unlimited)
            # The next turn is saved again once the whole session is written.
            self.check(4, server.say("talk", 4))
            await_true(
                lambda: next(self.folder.glob("*.tokens")).stat().st_size > 4 * self.positions[4],
                "the whole session in its journal",
            )
            server.kill()
        with Server(*self.flags) as server:
            self.check(5, server.say("talk", 5))


if __name__ == "__main__":
    unittest.main()
