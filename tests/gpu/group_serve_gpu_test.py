#!/usr/bin/env python3
"""Ranks on several GPUs, as a user starts them, and their failures: group_serve_gpu_test.py PACK.

Every rank in turn is killed and stopped while it serves and while it starts; the group is replaced
and streams go on. Run by tests/gpu/run from
the repository's root on a machine with two GPUs or more.
"""
# Covers engine/worker/program/cuda_device.cc
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

from gpu_server import ROOT, Server

sys.path.insert(0, str(ROOT / "tests/e2e"))
from conversation import await_true  # noqa: E402

PACK = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
PROMPT = json.loads((ROOT / "tests/testdata/demo_model/greedy.json").read_text())["cases"][0][
    "prompt_ids"]
TOKENS = 3000
STEP_TIMEOUT = 2


RANKS = int(os.environ.get("GPU_TEST_RANKS", "2"))


class Group(Server):
    def __init__(self, *flags):
        super().__init__(PACK, "--device", "cuda", "--tensor-parallel-size", str(RANKS), *flags)

    def pids(self):
        """Of the newest process of each rank."""
        found = re.findall(r"worker started rank=(\d+) pid=(\d+)", self.log())
        return [int(pid) for _, pid in sorted((int(r), int(p)) for r, p in found[-RANKS:])]

    def groups(self):
        return self.log().count("worker started rank=0 ")

    def reason(self):
        """Why the last group was replaced."""
        return [line for line in self.log().splitlines() if "workers died; restarting" in line][-1]

    def stream(self):
        return subprocess.Popen(
            self.command("generate", "--token-ids", ",".join(map(str, PROMPT)), "--temperature",
                         "1", "--seed", "5", "-n", str(TOKENS), "--ignore-eos", "--print-ids"),
            stdout=subprocess.PIPE, text=True, cwd=ROOT)


class RankTest(unittest.TestCase):
    """Each test has a server of its own: after four deaths within minutes it would give up."""

    def setUp(self):
        self.start()

    def start(self):
        self.group = Group("--gpu-memory-utilization", "0.3", "--kv-offloading-size", "1",
                           "--worker-step-timeout", str(STEP_TIMEOUT))
        self.addCleanup(lambda group=self.group: group.process.poll() is None and group.stop())

    def calm(self):
        stream = self.group.stream()
        tokens = stream.stdout.read().split()
        self.assertEqual(stream.wait(), 0)
        self.assertEqual(len(tokens), TOKENS)
        return tokens

    def disturb(self, rank, number, calm):
        """Sends a signal to a rank in the middle of a stream: why its group was replaced."""
        stream = self.group.stream()
        first = stream.stdout.read(200)
        groups, begin = self.group.groups(), time.monotonic()
        pid = self.group.pids()[rank]
        os.kill(pid, number)
        tokens = (first + stream.stdout.read()).split()
        self.assertEqual(stream.wait(timeout=60), 0, self.group.log())
        self.assertEqual(len(tokens), TOKENS)
        # The known tokens are computed again in a prefill, whose sums have another order.
        before = len(first.split()) - 1
        self.assertEqual(tokens[:before], calm[:before])
        self.assertEqual(self.group.groups(), groups + 1)
        reason = self.group.reason()
        print(f"rank {rank}, signal {number}: the stream ended after "
              f"{time.monotonic() - begin:.1f} s; {reason}", flush=True)
        self.assertIn(f"worker {rank} (pid {pid})", reason)

    def test_killed_ranks(self):
        calm = self.calm()
        for rank in range(RANKS):
            self.disturb(rank, signal.SIGKILL, calm)

    def test_stopped_ranks_are_named(self):
        calm = self.calm()
        for rank in range(RANKS):
            self.disturb(rank, signal.SIGSTOP, calm)

    def test_a_rank_killed_while_its_group_starts(self):
        for rank in range(RANKS):
            if rank > 0:
                self.group.stop()
                self.start()
            os.kill(self.group.pids()[0], signal.SIGKILL)
            await_true(lambda: self.group.groups() == 2, "the next group")
            time.sleep(0.3 * rank)  # at different points of the start
            os.kill(self.group.pids()[rank], signal.SIGKILL)
            await_true(lambda: self.group.groups() == 3, "the group after it")
            self.assertEqual(len(self.group.ids(PROMPT, 20)), 20)


if __name__ == "__main__":
    unittest.main()
