#!/usr/bin/python3
"""A real server that runs out of descriptors, whose sockets and workers fail, and whose clocks
jump, while it serves: serving_faults_test.py QUIRE_SERVER SHIM.

Whatever fails, every answer has the tokens of an undisturbed server or is an error; when the fault
is over the server serves as before, and holds nothing of the calls that failed.
"""
# Covers server/front/acceptor.cc, server/admin/admin_http.cc, server/watch/spare_threads.cc

import concurrent.futures
import http.client
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import unittest

SHIM = sys.argv.pop(2)

import quire
from conversation import await_true
from running_server import START_SECONDS
from served_case import OPTIONS, PROMPT, ServedCase

REFUSED = 6  # the exit code of a server whose system refuses memory or threads


class ServingFaultsTest(ServedCase):
    shim = SHIM

    def assert_as_before(self, server):
        self.faults.end()
        await_true(lambda: self.ask(server), "an answer")
        for name in ("quire_streams_open", "quire_requests_running", "quire_requests_waiting"):
            await_true(lambda name=name: server.metric(name) == 0, f"{name} to be 0")

    def test_acceptors_do_not_go_deaf(self):
        server = self.serve()
        for effect in ("EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "ECONNABORTED", "EINTR"):
            with self.subTest(effect=effect):
                self.faults.set(f"accept {effect} count=30")
                self.assertIn(self.ask(server), (True, False))
                await_true(lambda: self.ask(server), "an answer")
                await_true(lambda: self.reachable(server), "a page of the admin port")
                self.assertGreater(self.faults.met(), 0)
                self.assert_as_before(server)

    def reachable(self, server):
        try:
            return server.get("/livez")[0] == 200
        except OSError:
            return False

    def test_the_admin_port_outlives_its_sockets(self):
        server = self.serve()
        for rule in ("recv,read EINTR one_in=2 seed=1", "recv,read ECONNRESET one_in=2 seed=2",
                     # A short call leaves room in the socket, and the library waits for five
                     # seconds for news of room that is there already. Once is enough.
                     "send,sendmsg,write short path=socket count=1",
                     "epoll_wait EINTR one_in=2 seed=3",
                     "send,sendmsg ECONNRESET path=socket one_in=2 seed=4"):
            with self.subTest(rule=rule):
                self.faults.set(rule)
                for _ in range(10):
                    try:
                        server.get("/metrics")
                    except (OSError, http.client.HTTPException):
                        pass
                self.assert_as_before(server)

    def test_streams_over_failing_sockets(self):
        server = self.serve()
        answers = {True: 0, False: 0}
        for seed in range(1, 9):
            chance = random.Random(seed)
            with self.subTest(seed=seed):
                self.faults.set(
                    f"recvmsg {chance.choice(('EINTR', 'short', 'ECONNRESET'))}"
                    f" one_in={chance.randint(2, 12)} seed={seed}",
                    f"sendmsg {chance.choice(('EINTR', 'short', 'EPIPE'))}"
                    f" one_in={chance.randint(2, 12)} seed={seed}",
                )
                for _ in range(4):
                    answers[self.ask(server)] += 1
                self.assert_as_before(server)
        self.assertGreater(answers[True], 0)
        self.assertGreater(answers[False], 0)

    def test_workers_that_die_and_cannot_be_replaced_at_once(self):
        server = self.serve("--worker-process", "on")
        for rule in ("socketpair EMFILE count=1", "posix_spawn EAGAIN count=1",
                     "send ECONNRESET count=1 program=quire-worker"):
            with self.subTest(rule=rule):
                self.faults.set(rule)
                pid = int(re.findall(r"worker started rank=0 pid=(\d+)", server.log())[-1])
                os.kill(pid, signal.SIGKILL)
                await_true(lambda: self.ask(server) or server.process.poll() is not None, "an end")
                if server.process.poll() is not None:
                    self.assertEqual(server.process.returncode, 5, server.log())
                    return

    def test_a_drain_needs_no_thread(self):
        with tempfile.TemporaryDirectory() as folder:
            for flags in (("--worker-process", "off"), ("--worker-process", "on"),
                          ("--session-dir", folder)):
                with self.subTest(flags=flags):
                    server = self.serve(*flags, "--kv-offloading-size", "0.01")
                    server.client.generate_text(
                        PROMPT, OPTIONS, session_id="talk", create_session=True
                    )
                    self.faults.set("pthread_create EAGAIN")
                    server.process.terminate()
                    code = server.process.wait(timeout=START_SECONDS)
                    # The server may have seen the lack before the signal.
                    self.assertIn(code, (0, REFUSED), server.log())
                    self.assertIn(" stopped ", server.log())
                    self.faults.end()

    def test_a_system_that_refuses_threads_ends_the_server(self):
        server = self.serve("--shutdown-timeout", "5")
        self.assertTrue(self.ask(server))
        self.faults.set("pthread_create EAGAIN program=quire-server")
        self.assertEqual(server.process.wait(timeout=START_SECONDS), REFUSED, server.log())
        self.assertIn("the system refuses threads: the process ends", server.log())
        self.assertIn("draining: no longer ready", server.log())

    def test_calls_without_threads_end_with_the_server(self):
        # gRPC is refused threads before the server looks.
        server = self.serve("--shutdown-timeout", "5")
        self.faults.set("pthread_create EAGAIN program=quire-server")
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = [pool.submit(self.ask, server) for _ in range(16)]
        for answer in answers:
            answer.result()  # all its tokens, or an error
        self.assertEqual(server.process.wait(timeout=START_SECONDS), REFUSED, server.log())

    def test_interrupted_waits_cost_nothing(self):
        server = self.serve("--worker-process", "on")
        self.faults.set(
            "futex EINTR one_in=2 seed=1", "poll,epoll_wait EINTR one_in=2 seed=2",
            "read,recv,send EINTR one_in=3 seed=3",
        )
        for _ in range(3):
            self.assertTrue(self.ask(server))
        self.assertGreater(self.faults.met(0) + self.faults.met(1), 0)
        self.assert_as_before(server)

    def test_a_wall_clock_that_jumps_moves_nothing(self):
        server = self.serve()
        server.client.generate_text(PROMPT, OPTIONS, session_id="talk", create_session=True)
        for seconds in (-86400, 86400, -3600):
            with self.subTest(seconds=seconds):
                self.faults.set(f"clock_gettime jump={seconds} clock=wall")
                self.assertTrue(self.ask(server))
                self.assertGreater(server.sessions.get("talk").position, 0)
        self.assert_as_before(server)

    def test_the_steady_clock_of_the_shim_never_goes_back(self):
        tell = "import sys, time\nfor _ in sys.stdin: print(time.monotonic(), flush=True)"
        with subprocess.Popen(["/usr/bin/python3", "-c", tell], env=self.faults.environment(),
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as clock:
            times = []
            for set_or_end in (lambda: None, lambda: self.faults.set(
                    "clock_gettime jump=100000 clock=steady"), self.faults.end):
                set_or_end()
                clock.stdin.write("\n")
                clock.stdin.flush()
                times.append(float(clock.stdout.readline()))
            clock.stdin.close()
        self.assertGreaterEqual(times[1], times[0] + 100000)
        self.assertGreaterEqual(times[2], times[1])

    def jump(self, server, seconds):
        """A stream that was running before; the deadline of its call is after 120 seconds."""
        stream = server.client.generate(PROMPT, quire.Options(ignore_eos=True, max_tokens=4000))
        next(iter(stream))
        self.faults.set(f"clock_gettime jump={seconds} clock=steady")
        return stream

    def is_gone(self, server, session):
        try:
            server.sessions.get(session)
            return False
        except quire.NotFound:
            return True

    def test_a_steady_clock_that_jumps_ends_what_is_due(self):
        server = self.serve("--session-ttl", "3600")
        server.client.generate_text(PROMPT, OPTIONS, session_id="talk", create_session=True)
        self.jump(server, 20).cancel()
        self.assertTrue(self.ask(server))
        stream = self.jump(server, 1000)
        with self.assertRaises(quire.DeadlineExceeded):
            list(stream)
        self.assertGreater(server.sessions.get("talk").position, 0)
        self.jump(server, 5000).cancel()
        await_true(lambda: self.is_gone(server, "talk"), "the end of the session")
        self.assert_as_before(server)
        self.assertEqual(server.get("/readyz")[0], 200)


if __name__ == "__main__":
    unittest.main()
