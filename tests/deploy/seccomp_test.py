#!/usr/bin/python3
"""deploy/seccomp.json around the real programs: seccomp_test.py BIN. Beside a server that answers
under the profile, a stricter one ends a process at the first call that is not listed."""

import errno
import functools
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import seccomp_filter
from processes import PATIENCE, await_true

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
TEXT = seccomp_filter.PROFILE
PROFILE = json.loads(TEXT)
# Calls without a place in a server.
NEVER = {
    "add_key", "bpf", "chroot", "clone3", "delete_module", "finit_module", "fsopen", "init_module",
    "io_uring_setup", "ioperm", "iopl", "kexec_load", "keyctl", "mknod", "mount", "move_mount",
    "open_by_handle_at", "open_tree", "perf_event_open", "personality", "pidfd_getfd", "pivot_root",
    "process_vm_readv", "process_vm_writev", "ptrace", "quotactl", "reboot", "request_key", "setns",
    "swapon", "syslog", "umount2", "unshare", "userfaultfd",
}  # fmt: skip


def under(instructions):
    return functools.partial(seccomp_filter.install, instructions)


class ProfileTest(unittest.TestCase):
    def test_nothing_is_listed_twice_or_that_no_server_needs(self):
        names = [name for rule in PROFILE["syscalls"] for name in rule["names"]
                 if "args" not in rule]
        self.assertEqual(len(names), len(set(names)))
        self.assertLessEqual(len(names), 200)
        listed = {name for rule in PROFILE["syscalls"] for name in rule["names"]}
        self.assertEqual(listed & NEVER, set())
        for rule in PROFILE["syscalls"]:
            self.assertEqual(rule["names"], sorted(rule["names"]))
            self.assertTrue(rule["comment"].endswith("."))


@unittest.skipIf(not seccomp_filter.is_possible(),
                 "the profile is of x86-64, and its numbers are in the kernel's headers")
class FilterTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_under(self, instructions, *command):
        return subprocess.run([str(word) for word in command], preexec_fn=under(instructions),
                              capture_output=True, text=True, timeout=PATIENCE, check=False)

    def serve_under(self, instructions, *flags):
        """A story of a server, both under the filter; then a session, a drain, and the end."""
        log = self.folder / "log"
        socket = f"unix:{self.folder}/quire.sock"
        with open(log, "w") as out:
            server = subprocess.Popen(
                [BIN / "quire-server", "--device", "cpu", "--uds", socket.removeprefix("unix:"),
                 "--metrics-port", "0", *flags],
                preexec_fn=under(instructions), stdout=out, stderr=out)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        await_true(lambda: "READY" in log.read_text() or server.poll() is not None, "READY")
        self.assertIsNone(server.poll(), log.read_text())
        for command in (["health"], ["generate", "--chat", "--max-tokens", "30", "A fox."],
                        ["generate", "--session", "s", "--max-tokens", "5", "Once"],
                        ["session", "list"], ["memory"], ["info"]):
            done = self.run_under(instructions, BIN / "quire", *command, "--server", socket)
            self.assertEqual(done.returncode, 0, f"{command}: {done.stderr}\n{log.read_text()}")
        load = self.run_under(instructions, BIN / "quire-load", "--server", socket,
                              "--num-prompts", "4", "--result-dir", self.folder / "results")
        self.assertEqual(load.returncode, 0, load.stderr)
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(PATIENCE), 0, log.read_text())

    def test_a_server_answers_under_the_profile(self):
        self.serve_under(seccomp_filter.program(TEXT))

    def test_a_server_makes_no_other_call(self):
        self.serve_under(seccomp_filter.strict(), "--worker-process", "on",
                         "--tensor-parallel-size", "2", "--session-dir", self.folder / "sessions",
                         "--log-format", "json")

    def test_other_calls_are_refused(self):
        done = self.run_under(seccomp_filter.program(TEXT), "/usr/bin/unshare", "--net", "true")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("Function not implemented", done.stderr)
        done = self.run_under(seccomp_filter.strict(), "/usr/bin/unshare", "--net", "true")
        self.assertEqual(done.returncode, -signal.SIGSYS)

    def test_arguments_are_compared(self):
        script = ("import ctypes, socket; libc = ctypes.CDLL(None, use_errno=True)\n"
                  "socket.socket(socket.AF_INET)\n"
                  "print(libc.socket(17, 3, 0), ctypes.get_errno())\n"  # AF_PACKET
                  # clone with CLONE_NEWUSER
                  "print(libc.syscall(56, 0x10000000, 0, 0, 0, 0), ctypes.get_errno())")
        done = self.run_under(seccomp_filter.program(TEXT), "/usr/bin/python3", "-c", script)
        self.assertEqual(done.stdout.splitlines(), [f"-1 {errno.ENOSYS}"] * 2, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
