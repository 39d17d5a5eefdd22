#!/usr/bin/env python3
"""Ranks on several GPUs, as a user starts them, and their failures: group_serve_gpu_test.py PACK.

Every rank in turn is killed and stopped while it serves and while it starts; the group is replaced
and streams go on. Times of the start and of a replacement are printed. Run by tests/gpu/run from
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


def gpus():
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    return len(listed.stdout.splitlines())


RANKS = 4 if gpus() >= 4 else 2


class Group(Server):
    def __init__(self, *flags, **keywords):
        super().__init__(PACK, "--device", "cuda", "--tensor-parallel-size", str(RANKS), *flags,
                         **keywords)

    def pids(self):
        """Of the newest process of each rank."""
        found = re.findall(r"worker started rank=(\d+) pid=(\d+)", self.log())
        return [int(pid) for _, pid in sorted((int(r), int(p)) for r, p in found[-RANKS:])]

    def groups(self):
        return self.log().count("worker started rank=0 ")

    def stream(self):
        return subprocess.Popen(
            self.command("generate", "--token-ids", ",".join(map(str, PROMPT)), "--temperature",
                         "1", "--seed", "5", "-n", str(TOKENS), "--ignore-eos", "--print-ids"),
            stdout=subprocess.PIPE, text=True, cwd=ROOT)


class RankTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.group = Group("--gpu-memory-utilization", "0.3", "--kv-offloading-size", "1",
                          "--worker-step-timeout", str(STEP_TIMEOUT))
        cls.addClassCleanup(cls.group.stop)
        print(f"exec to READY with the demo model on {RANKS} GPUs: "
              f"{cls.group.seconds_to_ready:.2f} s", flush=True)
        calm = cls.group.stream()
        cls.calm = calm.stdout.read().split()
        assert calm.wait() == 0 and len(cls.calm) == TOKENS

    def disturb(self, rank, number):
        """Sends a signal to a rank in the middle of a stream; the stream's end, and the seconds."""
        stream = self.group.stream()
        first = stream.stdout.read(200)
        groups, begin = self.group.groups(), time.monotonic()
        os.kill(self.group.pids()[rank], number)
        tokens = (first + stream.stdout.read()).split()
        self.assertEqual(stream.wait(timeout=60), 0, self.group.log())
        self.assertEqual(len(tokens), TOKENS)
        # The known tokens are computed again in a prefill, whose sums have another order.
        before = len(first.split()) - 1
        self.assertEqual(tokens[:before], self.calm[:before])
        self.assertEqual(self.group.groups(), groups + 1)
        return time.monotonic() - begin

    def test_killed_ranks(self):
        for rank in range(RANKS):
            self.disturb(rank, signal.SIGKILL)
            self.assertIn(f"worker {rank} (pid", self.group.log().splitlines()[-1]
                          + self.reason(), rank)

    def reason(self):
        return [line for line in self.group.log().splitlines() if "workers died" in line][-1]

    def test_stopped_ranks_are_named_within_the_step_timeout(self):
        for rank in range(RANKS):
            pid = self.group.pids()[rank]
            seconds = self.disturb(rank, signal.SIGSTOP)
            print(f"rank {rank} stopped: the stream ended after {seconds:.1f} s; "
                  f"{self.reason()}", flush=True)
            self.assertIn(f"worker {rank} (pid {pid})", self.reason())
            self.assertLess(seconds, STEP_TIMEOUT + 30)

    def test_a_rank_killed_while_its_group_starts(self):
        for rank in range(RANKS):
            groups = self.group.groups()
            os.kill(self.group.pids()[0], signal.SIGKILL)
            await_true(lambda: self.group.groups() > groups, "the next group")
            time.sleep(0.3 * rank)  # at different points of the start
            os.kill(self.group.pids()[rank], signal.SIGKILL)
            await_true(lambda: self.group.groups() > groups + 1, "the group after it")
            ids = self.group.ids(PROMPT, 20)
            self.assertEqual(len(ids), 20)


class BigTest(unittest.TestCase):
    """The times of a start and of a replacement with the shapes of large models."""

    def start(self, model, *flags):
        group = Group("--load-format", "dummy", *flags, model=f"bench/gpu/models/{model}",
                      patience=120)
        print(f"exec to READY with {model} on {RANKS} GPUs: {group.seconds_to_ready:.2f} s",
              flush=True)
        return group

    def test_8b_serves_again_after_a_kill(self):
        self.start("llama-3.1-8b").stop()  # times the algorithms
        group = self.start("llama-3.1-8b")
        self.addCleanup(group.stop)
        group.ids(PROMPT, 4)
        begin = time.monotonic()
        os.kill(group.pids()[RANKS - 1], signal.SIGKILL)
        group.ids(PROMPT, 4)
        print(f"kill of a rank to a whole answer, 8B: {time.monotonic() - begin:.2f} s", flush=True)

    def test_70b_starts(self):
        self.start("llama-3.1-70b").stop()
        group = self.start("llama-3.1-70b")
        self.addCleanup(group.stop)
        self.assertEqual(len(group.ids(PROMPT, 8)), 8)


if __name__ == "__main__":
    unittest.main()
