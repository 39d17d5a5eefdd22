#!/usr/bin/python3
"""A real server whose files cannot be opened or read, or whose system refuses memory, descriptors
or threads, at the start: start_faults_test.py QUIRE_SERVER SHIM.

It ends with the exit code of docs/operations.md and a last line that names what failed, or starts
as if nothing had happened; it never hangs, and never dies of a CHECK. A small allocation that fails
ends the process that makes it (docs/adr/0021).
"""

import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

SHIM = sys.argv.pop(2)

import running_server
from conversing_server import CPU
from faults import Faults
from running_server import LogFile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG, ADDRESS, MODEL, DEVICE, REFUSED = 2, 3, 4, 5, 6  # exit codes
STARTED = 0
# Files of the model's folder, with the calls that read them.
FILES = ("config.json", "tokenizer.json", "model.safetensors")
# Allocations of a start with the demo model, at least; the samples below are of these.
ALLOCATIONS = {"quire-server": 200_000, "quire-worker": 60_000}
SAMPLE = 24
LARGE = 1 << 20  # bytes: KV memory, host memory and the weights are larger


class StartFaultsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.model = shutil.copytree(ROOT / "models" / "demo", f"{folder.name}/demo")
        cls.faults = Faults(SHIM)

    def start(self, *flags):
        """The exit code, STARTED if the server became ready, and its log."""
        log = LogFile()
        self.addCleanup(log.close)
        command = [running_server.BINARY, *CPU, "--port", "0", "--metrics-port", "0", *flags]
        process = subprocess.Popen(
            command, env=self.faults.environment(), stdout=log, stderr=log
        )
        try:
            self.await_end(process, log)
            if process.poll() is None:
                self.met = self.faults.met()
                self.faults.end()
                process.send_signal(signal.SIGTERM)
            code = process.wait(timeout=running_server.START_SECONDS)
        except subprocess.TimeoutExpired:
            self.fail(f"the server hangs; its log:\n{log.text()}")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        return code, log.text()

    def await_end(self, process, log):
        """Returns when the process has ended or is ready."""
        for _ in range(running_server.START_SECONDS * 20):
            if process.poll() is not None or " READY " in log.text():
                return
            try:
                process.wait(timeout=0.05)
            except subprocess.TimeoutExpired:
                pass
        self.fail(f"neither ready nor ended; its log:\n{log.text()}")

    def check(self, rules, codes, *flags, names=None):
        with self.subTest(rules=rules):
            self.faults.set(*rules)
            code, log = self.start(*flags)
            self.assertIn(code, codes, log)
            if code != STARTED and names is not None:
                self.assertIn(names, log)
            if code == -signal.SIGABRT:
                self.assertIn("std::bad_alloc", log)
            if code == REFUSED:
                self.assertRegex(log.splitlines()[-1], "^the system refuses this process (memory|a "
                                 "thread): .*; raise the limit|cannot start .* more threads, .*: "
                                 "raise the limit")
            return code

    def test_files_of_the_model(self):
        for name in FILES:
            path = f"path={self.model}/{name}"
            for rule in (f"open EIO {path}", f"open EMFILE {path}", f"read,pread EIO {path}",
                         f"read,pread empty {path}", f"read,pread EIO {path} from=2"):
                code = self.check([rule], (MODEL, STARTED), "--model", self.model, names=name)
                if code == STARTED:  # only if the call was not made
                    self.assertIn("from=2", rule)
            for rule in (f"read,pread short {path}", f"read,pread EINTR {path} one_in=2 seed=3"):
                self.check([rule], (STARTED,), "--model", self.model)

    def test_the_configuration_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write('{"max-num-seqs": 8}')
            file.flush()
            for rule in (f"open EIO path={file.name}", f"read EIO path={file.name}"):
                self.check([rule], (CONFIG,), "--config", file.name, names=file.name)
            self.check([f"read short path={file.name}"], (STARTED,), "--config", file.name)

    def test_memory_that_is_refused(self):
        for process in ("on", "off"):
            for rule in ("memfd_create EMFILE", "memfd_create ENOMEM", "eventfd EMFILE",
                         "ftruncate ENOMEM path=memfd", "mmap ENOMEM path=memfd"):
                self.check([rule + " program=quire-server"], (ADDRESS, DEVICE, STARTED),
                           "--worker-process", process)
        # Each of the first calls alone.
        for k in range(1, 7):
            for call in ("memfd_create", "mmap"):
                path = " path=memfd" if call == "mmap" else ""
                self.check([f"{call} ENOMEM from={k} count=1{path} program=quire-server"],
                           (ADDRESS, DEVICE, STARTED), "--worker-process", "on")

    def test_large_mappings_that_are_refused(self):
        for program in ("quire-server", "quire-worker"):
            rule = f"mmap ENOMEM size={LARGE} program={program}"
            code = self.check([rule], (DEVICE,), "--worker-process", "on", names="memory")
            self.assertEqual(code, DEVICE)
            self.assertGreater(self.faults.met(), 0)
            for k in range(2, 11):
                self.check([f"{rule} from={k} count=1"], (DEVICE, STARTED),
                           "--worker-process", "on", names="memory")
        # No mapping is as large as this.
        self.check(["mmap ENOMEM size=1099511627776"], (STARTED,), "--worker-process", "on")

    def test_single_allocations_that_are_refused(self):
        chance = random.Random(1)
        before_main = self.allocations_of_a_version()
        for program, count in ALLOCATIONS.items():
            # As many of the first ten as of the next ninety.
            for k in sorted({int(count ** chance.random()) for _ in range(SAMPLE)}):
                names, ends = "worker 0", (DEVICE, STARTED)
                if program == "quire-server":
                    names, ends = None, (ADDRESS, MODEL, DEVICE, REFUSED, STARTED)
                    # The C++ library's own end: no code of main has run.
                    ends += (-signal.SIGABRT,) if k <= before_main else ()
                self.check([f"malloc ENOMEM from={k} count=1 program={program}"], ends,
                           "--worker-process", "on", names=names)

    def allocations_of_a_version(self):
        """At most so many: those of a program that prints its version."""
        self.faults.set("malloc ENOMEM from=1000000000")
        subprocess.run([running_server.BINARY, "--version"], env=self.faults.environment(),
                       stdout=subprocess.DEVNULL, check=True)
        return self.faults.seen()

    def test_large_allocations_of_a_server(self):
        for k in range(1, 4):
            self.check([f"malloc ENOMEM size={LARGE} from={k} program=quire-server"], (REFUSED,))
            self.assertGreater(self.faults.met(), 0)

    def test_large_allocations_of_a_worker(self):
        for k in range(1, 4):
            for size in (LARGE, LARGE // 4):
                self.check([f"malloc ENOMEM size={size} from={k} count=1 program=quire-worker"],
                           (DEVICE, STARTED), "--worker-process", "on", names="worker 0")

    def test_threads_that_are_refused(self):
        # So many that the server asks first whether it may: most are of that question.
        wanted = 200
        chance = random.Random(2)
        for k in sorted(chance.sample(range(40, wanted), 8)):
            for count in ("", " count=1"):
                self.check([f"pthread_create EAGAIN from={k}{count}"], (CONFIG,),
                           "--cpu-threads", str(wanted), names=f"--cpu-threads {wanted}: the "
                           "system lets this process start")
                self.assertGreater(self.faults.met(), 0)

    def test_a_system_without_threads(self):
        # Beyond some k the server has all its threads.
        for k in (*range(1, 12), *range(60, 110, 3)):
            rule = f"pthread_create EAGAIN from={k} program=quire-server"
            for process in ("on", "off"):
                code = self.check([rule], (CONFIG, ADDRESS, DEVICE, REFUSED, STARTED),
                                  "--worker-process", process)
                if code == STARTED:
                    self.assertEqual(self.met, 0)

    def test_threads_of_a_worker_that_are_refused(self):
        for k in range(1, 9):
            self.check([f"pthread_create EAGAIN from={k} count=1 program=quire-worker"],
                       (DEVICE, STARTED), "--worker-process", "on",
                       names="the system refuses this process a thread: Resource temporarily")

    def test_workers_that_cannot_be_started(self):
        for rule in ("socketpair EMFILE", "posix_spawn EAGAIN", "posix_spawn ENOMEM",
                     "mmap ENOMEM path=memfd program=quire-worker",
                     "recv ECONNRESET program=quire-worker", "recv empty program=quire-worker",
                     "send EPIPE program=quire-worker"):
            self.check([rule], (DEVICE,), "--worker-process", "on", names="worker")

    def test_interrupted_and_short_messages_to_workers(self):
        self.check(
            ["send,recv,sendmsg,recvmsg short", "send,recv,poll EINTR one_in=2 seed=1",
             "futex EINTR one_in=3 seed=2"],
            (STARTED,), "--worker-process", "on",
        )


if __name__ == "__main__":
    unittest.main()
