#!/usr/bin/python3
"""A real server whose sockets, pipes, locks, seals and waits for workers are refused, at its start
and while it serves: socket_faults_test.py QUIRE_SERVER SHIM.

Each refusal ends the start with an exit code of docs/operations.md and a message that names what
failed and where, or has no effect on any answer; a worker that dies meanwhile is replaced.
"""
# Covers server/front/listen_address.cc, engine/worker/process/worker_process.cc

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

SHIM = sys.argv.pop(2)

import running_server
from conversation import await_true
from conversing_server import CPU
from served_case import ServedCase

CONFIG, ADDRESS, DEVICE = 2, 3, 5  # exit codes
WORKERS = ("--worker-process", "on", "--kv-offloading-size", "0.01")


class SocketFaultsTest(ServedCase):
    shim = SHIM

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    # --- The start.

    def assert_refused(self, rules, code, *words, flags=("--port", "0")):
        """The server ends by itself; all faults of the rules were met."""
        with self.subTest(rules=rules, flags=flags):
            self.faults.set(*rules)
            ended = subprocess.run(
                [running_server.BINARY, *CPU, "--metrics-port", "0", *flags],
                env=self.faults.environment(), capture_output=True, text=True,
                timeout=running_server.START_SECONDS,
            )
            self.assertEqual(ended.returncode, code, ended.stderr)
            reason = ended.stderr[ended.stderr.find("cannot start"):].splitlines()[0]
            for word in words:
                self.assertIn(word, reason)
            for rule in range(len(rules)):
                self.assertGreater(self.faults.met(rule), 0)

    def test_a_port_that_cannot_be_had(self):
        for rule, words in (("socket EMFILE", ("Too many open files",)),
                            ("bind EADDRINUSE", ("another process listens there", "another --")),
                            ("bind EADDRNOTAVAIL", ("this machine has no such address",)),
                            ("bind ENOMEM", ("Cannot allocate memory",)),
                            ("listen EADDRINUSE", ("another process listens there", "another --")),
                            ("listen ENOMEM", ("Cannot allocate memory",))):
            # For the admin port, to see whether the port is free, and to serve.
            for k in (1, 2, 3):
                self.assert_refused([f"{rule} from={k} count=1"], ADDRESS,
                                    "cannot listen on 127.0.0.1:0: ", *words)
        # The calls between are libmicrohttpd's, which does without a name.
        for k in (1, 3):
            self.assert_refused([f"getsockname ENOBUFS from={k} count=1"], ADDRESS,
                                "port of 127.0.0.1: No buffer space")
        for k, what in ((1, "serve the admin port"), (2, "listen")):
            self.assert_refused([f"F_SETFL EPERM path=socket: from={k}"], ADDRESS,
                                f"cannot {what} on 127.0.0.1: ")

    def test_a_unix_socket_that_cannot_be_had(self):
        path = pathlib.Path(self.folder) / "quire.sock"
        for rule, words in (("chmod EPERM path=quire.sock", "Operation not permitted"),
                            ("listen ENOMEM from=2", "Cannot allocate memory"),
                            ("bind EADDRINUSE from=2", "Address already in use"),
                            ("socket EMFILE from=2", "Too many open files"),
                            ("chmod EROFS path=quire.sock", "Read-only file system")):
            self.assert_refused([rule], ADDRESS, f"cannot listen on {path}: ", words,
                                flags=("--uds", str(path)))
            self.assertFalse(path.exists(), rule)
        # The socket of a server that is dead; whether it is dead cannot be learned.
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(path))
        for rule, words in (("connect EAGAIN", "another --uds"), ("connect EACCES", str(path))):
            self.assert_refused([rule], ADDRESS, f"cannot listen on {path}: ", words,
                                flags=("--uds", str(path)))
            self.assertTrue(path.exists(), rule)

    def test_a_session_directory_that_cannot_be_locked(self):
        flags = ("--port", "0", "--session-dir", self.folder)
        for rule, words in (("flock EIO", "cannot be locked: Input/output error"),
                            ("flock EWOULDBLOCK", "another server uses"),
                            ("flock ENOMEM", "cannot be locked: Cannot allocate memory")):
            self.assert_refused([rule], CONFIG, "--session-dir", self.folder, words, flags=flags)

    def test_workers_without_memory_or_descriptors(self):
        flags = ("--port", "0", *WORKERS)
        for error, words in (("EPERM", "Operation not permitted"), ("EINVAL", "Invalid argument")):
            for k in (1, 2, 3):
                self.assert_refused([f"F_ADD_SEALS {error} from={k} count=1"], DEVICE,
                                    "shared memory: sealing: " + words, flags=flags)
        for rule in ("pipe2 EMFILE", "pipe2 ENFILE", "F_SETFL EPERM path=pipe:"):
            self.assert_refused([rule], DEVICE, "a pipe for a worker: ", flags=flags)
        for k in range(1, 6):
            self.assert_refused([f"F_DUPFD EMFILE from={k} count=1"], DEVICE,
                                "duplicating a descriptor: Too many open files", flags=flags)
        # The first worker runs when the second cannot be started, and is waited for.
        self.assert_refused(["pipe2 EMFILE from=2", "waitpid EINTR count=3", "waitid EINTR"],
                            DEVICE, "a pipe for a worker: Too many open files",
                            flags=(*flags, "--tensor-parallel-size", "2"))

    def test_starts_that_no_refusal_disturbs(self):
        for rule in ("setsockopt ENOBUFS", "setsockopt EINVAL", "madvise ENOMEM", "madvise EINVAL",
                     "waitid EINTR", "lstat EIO path=quire.sock"):
            with self.subTest(rule=rule):
                self.faults.set(rule)
                server = self.serve(*WORKERS)
                self.assertTrue(self.ask(server))
                self.assertGreater(self.faults.met(), 0)
                self.assertEqual(server.stop(), 0)

    # --- While it serves.

    def ready(self):
        self.faults.end()
        server = self.serve(*WORKERS)
        server.admin_port()  # READY
        return server

    def test_connections_without_options_or_names(self):
        server = self.ready()
        for rule in ("setsockopt ENOBUFS", "setsockopt EINVAL", "getsockname ENOBUFS"):
            with self.subTest(rule=rule):
                self.faults.set(rule)
                self.assertTrue(self.ask(server))
                self.assertEqual(server.get("/livez")[0], 200)
                self.assertGreater(self.faults.met(), 0)
        self.assertEqual(server.stop(), 0)

    def test_a_server_that_serves_asks_for_no_listener(self):
        server = self.ready()
        self.faults.set("socket,bind,listen,flock,pipe2,F_ADD_SEALS,F_DUPFD,chmod EIO")
        self.assertTrue(self.ask(server))
        self.assertEqual(server.get("/livez")[0], 200)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.faults.seen(), 0)

    def kill_worker(self, server):
        pid = int(re.findall(r"worker started rank=0 pid=(\d+)", server.log())[-1])
        os.kill(pid, signal.SIGKILL)

    def test_a_worker_is_replaced_after_a_refusal(self):
        for rule in ("waitid EINTR one_in=2 seed=1", "waitid EINTR", "pipe2 EMFILE count=1",
                     "F_DUPFD EMFILE count=1", "F_ADD_SEALS EPERM count=1",
                     "F_SETFL EPERM path=pipe: count=1", "madvise ENOMEM"):
            with self.subTest(rule=rule):
                server = self.ready()
                self.faults.set(rule)
                self.kill_worker(server)
                await_true(self.faults.met, rule)
                await_true(lambda: self.ask(server), "an answer")
                self.assertEqual(server.stop(), 0)

    def test_workers_that_can_never_be_replaced_end_the_server(self):
        server = self.ready()
        self.faults.set("pipe2 EMFILE")
        self.kill_worker(server)
        self.assertEqual(server.process.wait(timeout=running_server.START_SECONDS), DEVICE)
        self.assertIn("a pipe for a worker: Too many open files", server.log())


if __name__ == "__main__":
    unittest.main()
