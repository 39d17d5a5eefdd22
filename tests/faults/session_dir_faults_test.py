#!/usr/bin/python3
"""The session directory of a real server on a disk that fails: session_dir_faults_test.py
QUIRE_SERVER SHIM [SEEDS].

System calls on the directory fail one by one, all at once, and at random (fault_schedule.h). A turn
that the server does not count as unsaved is there after SIGKILL and a restart; every session goes
on with the tokens of an undisturbed server; and once the faults end, turns are saved again.
"""
# Covers server/session/archive/disk.cc, tests/faults/fault_shim.cc

import http.client
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import unittest

SHIM = sys.argv.pop(2)
SEEDS = int(sys.argv.pop(2)) if len(sys.argv) > 2 else 3

import quire
import running_server
from conversation import WORDS, await_true, spoken
from conversing_server import CPU, ConversingServer
from faults import Faults

SAMPLING = quire.Options(temperature=0.8, top_p=0.95, max_tokens=6, skip_special_tokens=False)
# The calls that a turn makes in the directory, with what may happen to them.
CALLS = {
    "open": ("EIO", "EMFILE", "ENOSPC", "EACCES"),
    "write": ("EIO", "ENOSPC", "EDQUOT", "EINTR", "short"),
    "rename": ("EIO", "ENOSPC"),
    "ftruncate": ("EIO",),
    "unlink": ("EIO", "EROFS"),
    "read,pread": ("EIO", "EINTR", "short", "empty"),
}
SURE = ("open", "write", "rename")  # once at least, in each turn that is followed by a save


class Server(ConversingServer):
    def say(self, name, turn):
        return self.client.generate_text(
            spoken(turn), SAMPLING, seed=turn, session_id=name, create_session=True
        )

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def unsaved(self, reason=""):
        lines = self.get("/metrics")[1].splitlines()
        name = "quire_session_turns_unsaved_total{"
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines
                   if line.startswith(name) and reason in line)


class SessionDirFaultsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Server() as server:
            turns = [server.say("talk", turn) for turn in range(len(WORDS))]
        cls.expected = [list(done.token_ids) for done in turns]
        cls.positions = [done.finished.position for done in turns]

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.faults = Faults(SHIM)
        self.saved, self.said = {}, {}  # turns of each session, by name

    def server(self, *flags):
        flags = ("--session-dir", self.folder, "--session-idle-offload-after", "0", *flags)
        return Server(*flags, environment=self.faults.environment())

    def rule(self, calls, effect, **keys):
        return " ".join(
            [calls, effect, f"path={self.folder}", *(f"{key}={keys[key]}" for key in keys)]
        )

    def say(self, server, name):
        """The next turn: its tokens are right whatever the disk does."""
        turn = self.said.get(name, 0)
        before = server.unsaved()
        done = server.say(name, turn)  # raises if the server died
        self.assertEqual(list(done.token_ids), self.expected[turn], f"{name}, turn {turn}")
        self.said[name] = turn + 1
        if server.unsaved() == before:
            self.saved[name] = turn + 1

    def check_after_restart(self):
        """Every session has its saved turns at least, and goes on as if nothing had happened."""
        self.faults.end()
        with self.server() as server:
            for name, said in self.said.items():
                turns = self.turns_of(server, name)
                self.assertGreaterEqual(turns, self.saved.get(name, 0), f"{name} lost turns")
                self.assertLessEqual(turns, said, name)
                self.said[name] = turns
                self.say(server, name)
            # A turn may be late on a busy machine, but none fails.
            self.assertEqual(server.unsaved('"failed"'), 0, "not saved again")
            server.kill()

    def turns_of(self, server, name):
        try:
            session = server.sessions.get(name)
        except quire.QuireError as error:
            self.assertEqual(error.reason, "SESSION_NOT_FOUND")
            return 0
        position = session.position
        self.assertIn(position, [0, *self.positions], f"{name} has a part of a turn")
        return ([0, *self.positions]).index(position)

    def test_each_call_fails_once(self):
        met = {}
        with self.server() as server:
            for calls, effects in CALLS.items():
                for effect in effects:
                    for k in range(1, 4):
                        name = f"{calls.partition(',')[0]}-{effect}-{k}"
                        self.say(server, name)
                        rule = self.rule(calls, effect, **{"from": k, "count": 1})
                        self.faults.set(rule)
                        self.say(server, name)
                        if k == 1 and calls in SURE:
                            # The file with KV is renamed some time after the turn.
                            await_true(self.faults.met, f"no {calls} of the directory")
                        met[calls] = met.get(calls, 0) + self.faults.met()
                        self.faults.end()
                        self.say(server, name)
            server.kill()
        for calls in SURE:
            self.assertGreater(met[calls], 0, f"no {calls} of the directory was seen")
        self.check_after_restart()

    def test_a_disk_that_always_fails_costs_no_turn(self):
        for calls, effect in (("write", "ENOSPC"), ("write,rename", "EIO"), ("open", "EMFILE")):
            with self.subTest(calls=calls, effect=effect), self.server() as server:
                names = [f"{calls[:2]}{effect}{i}" for i in range(3)]
                for name in names:
                    self.say(server, name)
                self.faults.set(self.rule(calls, effect))
                for name in names:
                    self.say(server, name)
                    self.say(server, name)
                self.assertGreater(self.faults.met(), 0)
                self.assertIn("the session directory fails", server.log())
                self.faults.end()
                # The whole session is written once the disk works.
                for name in names:
                    self.say(server, name)
                server.kill()
        self.check_after_restart()

    def test_short_and_interrupted_calls_cost_nothing(self):
        with self.server() as server:
            self.faults.set(
                self.rule("write,read,pread", "short"),
                self.rule("write,read,pread", "EINTR", one_in=2, seed=7),
            )
            for _ in range(3):
                self.say(server, "talk")
            self.assertGreater(self.faults.met(0), 0)
            self.assertEqual(server.unsaved(), 0)
            server.kill()
        self.check_after_restart()

    def test_at_random(self):
        for seed in range(1, SEEDS + 1):
            with self.subTest(seed=seed):
                print(f"seed {seed}", flush=True)
                self.disturb(random.Random(seed))

    def disturb(self, chance):
        self.saved, self.said = {}, {}
        tag = chance.random()
        names = [f"talk-{tag}-{i}" for i in range(4)]
        for _ in range(2):
            with self.server() as server:
                for name in names:  # after a kill, unsaved turns may be there or not
                    self.said[name] = self.turns_of(server, name)
                for _ in range(6):
                    self.faults.set(*self.random_rules(chance))
                    name = chance.choice(names)
                    if self.said.get(name, 0) < len(WORDS) - 1:
                        self.say(server, name)
                server.kill()
            self.faults.end()
        self.check_after_restart()

    def random_rules(self, chance):
        rules = []
        for _ in range(chance.randint(0, 3)):
            calls = chance.choice(list(CALLS))
            effect = chance.choice(CALLS[calls])
            keys = {"one_in": chance.randint(1, 4), "seed": chance.randint(1, 1000)}
            rules.append(self.rule(calls, effect, **keys))
        return rules

    def test_refused_memory_ends_the_process_and_loses_no_turn(self):
        # Allocations are not checked one by one: one that fails is the end of the process, which is
        # as good as any other end (docs/adr/0021-faults-from-outside.md).
        ends = 0
        for k in (1, 40, 300, 1500):
            name = f"talk-{k}"
            with self.server() as server:
                self.say(server, name)
                self.faults.set(f"malloc ENOMEM program=quire-server from={k} count=1")
                try:
                    self.say(server, name)
                except (quire.QuireError, OSError, http.client.HTTPException):
                    self.said[name] = 2  # it may be there, or not
                    ends += self.has_ended(server)
                self.faults.end()
                server.kill()
        self.assertGreater(ends, 0)
        self.check_after_restart()

    @staticmethod
    def has_ended(server):
        """Whether the server ends; its clients may hear of it before the process is gone."""
        try:
            server.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return False
        return True

    def start(self):
        command = [running_server.BINARY, *CPU, "--port", "0", "--metrics-port", "0"]
        return subprocess.run(
            [*command, "--session-dir", self.folder],
            env=self.faults.environment(),
            capture_output=True,
            text=True,
            timeout=running_server.START_SECONDS,
        )

    def files(self):
        return {path.name: path.read_bytes() for path in pathlib.Path(self.folder).glob("*")
                if path.is_file()}

    def test_a_directory_that_cannot_be_listed_is_refused(self):
        # A server that took a part of the list for all would give new sessions the numbers, and so
        # the files, of those that it did not see.
        with self.server() as server:
            for name in ("first", "second"):
                self.say(server, name)
            server.kill()
        before = self.files()
        for calls, effect, k in (("opendir", "EMFILE", 1), ("readdir", "EIO", 1),
                                 ("readdir", "EIO", 4), ("stat", "EIO", 1)):
            suffix = "" if calls != "stat" else "/1.tokens"
            with self.subTest(calls=calls, k=k):
                self.faults.set(f"{calls} {effect} path={self.folder}{suffix} from={k}")
                refused = self.start()
                self.assertEqual(refused.returncode, 2, refused.stderr)
                self.assertIn("--session-dir", refused.stderr.splitlines()[-1])
                self.assertEqual(before, self.files())
        self.check_after_restart()

    def test_a_journal_that_cannot_be_read_waits_for_a_better_day(self):
        with self.server() as server:
            self.say(server, "talk")
            server.kill()
        self.faults.set(f"pread EIO path={self.folder} from=1")
        with self.server() as server:
            self.assertEqual(self.turns_of(server, "talk"), 0)
            self.assertIn("cannot be read", server.log())
            server.kill()
        self.check_after_restart()


if __name__ == "__main__":
    unittest.main()
