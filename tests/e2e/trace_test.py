#!/usr/bin/python3
"""quire trace against a server under load: trace_test.py QUIRE_SERVER QUIRE."""
# Covers server/timeline/trace_call.cc, server/timeline/trace_file.cc,
# server/timeline/step_breakdown.cc, server/generate/request_timeline.cc, clients/cpp/trace.cc,
# clients/cpp/call/whole_file.cc

import collections
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import quire
from quire.v1 import control_pb2, control_pb2_grpc

import grpc

QUIRE = sys.argv.pop(2)
from running_server import RunningServer  # noqa: E402

TEXT = "Once upon a time there was a fox."
STORY = quire.Options(temperature=1.0, seed=3, ignore_eos=True, max_tokens=200)
PARTS = {"idle", "products", "attention", "norms", "elementwise", "sampling", "collectives",
         "copies"}


class Load:
    """Threads that generate until the end of the block."""

    def __init__(self, target, threads=3):
        self._target, self._stop = target, threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(threads)]

    def _run(self, number):
        with quire.QuireClient(self._target) as client:
            turn = 0
            while not self._stop.is_set():
                turn += 1
                for _ in client.generate(TEXT, STORY, request_id=f"load-{number}-{turn}"):
                    pass

    def __enter__(self):
        for thread in self._threads:
            thread.start()

    def __exit__(self, *unused):
        self._stop.set()
        for thread in self._threads:
            thread.join()


def end_of(event):
    return event["ts"] + event["dur"]


class TraceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = RunningServer("--device", "cpu", "--tensor-parallel-size", "2")
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    def quire(self, *args):
        return subprocess.run([QUIRE, "--server", self.server.target, "trace", *args],
                              capture_output=True, text=True, timeout=120)

    def record(self, *args):
        """The file and the breakdown of a recording under load."""
        path = pathlib.Path(self.folder.name) / "trace.json"
        with Load(self.server.target):
            done = self.quire("--out", path, "--json", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(path.read_text()), json.loads(done.stdout)

    def test_file_shows_scheduler_ranks_text_output_and_requests(self):
        file, breakdown = self.record("--seconds", "4")
        tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in file["traceEvents"]
                  if e["name"] == "thread_name"}
        events = collections.defaultdict(list)
        for event in file["traceEvents"]:
            if event["ph"] == "X":
                events[tracks[event["pid"], event["tid"]], event["pid"]].append(event)
        by_track = collections.defaultdict(list)
        for (track, _), of_track in events.items():
            by_track[track.split()[0]] += of_track
        for track in ("scheduler", "host", "device", "text", "output"):
            self.assertTrue(by_track[track], track)
        self.assertEqual({e["name"] for e in by_track["scheduler"]},
                         {"inbox", "plan", "retire", "deliver"})
        # Both ranks ran the same steps, one behind the other.
        steps = []
        for rank in (0, 1):
            of_rank = sorted((e for e in events["device", 10 + rank] if "step" in e["args"]),
                             key=lambda e: e["ts"])
            steps.append([e["args"]["step"] for e in of_rank])
            for before, after in zip(of_rank, of_rank[1:]):
                self.assertLessEqual(end_of(before), after["ts"] + 0.001)
                self.assertEqual(after["args"]["step"], before["args"]["step"] + 1)
            # Parts lie within the timed step that they belong to.
            timed = [e for e in of_rank if e["name"] == "timed step"]
            self.assertTrue(timed)
            parts = [e for e in events["device", 10 + rank] if e["name"] in PARTS]
            for part in parts:
                self.assertTrue(any(step["ts"] <= part["ts"] + 0.001 and
                                    end_of(part) <= end_of(step) + 0.001 for step in timed), part)
            self.assertIn("collectives", {e["name"] for e in parts})
        self.assertEqual(steps[0], steps[1])
        # Stages of a request are pairs with one id.
        pairs = collections.Counter()
        for event in file["traceEvents"]:
            if event["ph"] in "be":
                self.assertTrue(event["id"].startswith("load-"))
                pairs[event["id"], event["name"]] += 1 if event["ph"] == "b" else -1
        self.assertEqual(set(pairs.values()), {0})
        self.assertEqual({name for _, name in pairs}, {"request", "queue", "prefill", "decode"})
        self.check_breakdown(breakdown, len(steps[0]))

    def check_breakdown(self, breakdown, steps):
        self.assertGreater(breakdown["seconds"], 3.9)
        # Steps on the edge of the recording may be in one only.
        self.assertAlmostEqual(int(breakdown["steps"]), steps, delta=3)
        self.assertGreater(int(breakdown["generated_tokens"]), 0)
        self.assertEqual([rank.get("rank", 0) for rank in breakdown["ranks"]], [0, 1])
        for rank in breakdown["ranks"]:
            self.assertGreater(int(rank["timed_steps"]), 0)
            seconds = {part["name"]: part.get("seconds", 0) for part in rank["parts"]}
            self.assertEqual(set(seconds), PARTS)
            for name in ("products", "attention", "norms", "elementwise", "sampling",
                         "collectives"):
                self.assertGreater(seconds[name], 0, name)

    def test_people_read_a_table(self):
        path = pathlib.Path(self.folder.name) / "table.json"
        with Load(self.server.target):
            done = self.quire("--seconds", "3", "--out", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"recorded   3\.\d s, \d+ steps, \d+ generated and \d+ p")
        self.assertRegex(done.stdout, r"rank 1 +\d+\.\d+ ms a step, the mean of \d+ that were")
        self.assertRegex(done.stdout, r" products +\d+\.\d+ ms +\d+\.\d %")
        self.assertIn(f"wrote      {path.stat().st_size} bytes to {path}", done.stdout)

    def test_idle_server_says_that_no_step_was_timed(self):
        done = self.quire("--seconds", "0.1", "--out", "/dev/null")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no step was timed", done.stdout)

    def test_one_recording_at_a_time_and_the_next_after_a_cancel(self):
        with grpc.insecure_channel(self.server.target) as channel:
            control = control_pb2_grpc.ControlStub(channel)
            first = control.Trace(control_pb2.TraceRequest(seconds=60))
            while self.server.metric("quire_traces") < 1:
                pass
            with self.assertRaises(grpc.RpcError) as caught:
                next(control.Trace(control_pb2.TraceRequest(seconds=0.1)))
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
            self.assertIn("another trace", caught.exception.details())
            first.cancel()
            while self.server.metric("quire_traces") > 0:
                pass
            chunks = list(control.Trace(control_pb2.TraceRequest(seconds=0.1)))
            self.assertTrue(chunks[-1].HasField("breakdown"))

    def test_python_client_records_too(self):
        file = io.BytesIO()
        with Load(self.server.target), quire.QuireClient(self.server.target) as client:
            ranks = client.trace(file, seconds=3)
        self.assertIn("traceEvents", json.loads(file.getvalue()))
        self.assertEqual([rank.rank for rank in ranks], [0, 1])
        self.assertGreater(ranks[0].timed_steps, 0)
        self.assertGreater(ranks[0].seconds["products"], 0)

    def test_bad_requests_are_refused_by_name(self):
        for args, words in ((("--seconds", "61"), "seconds: must be 0.1 to 60"),
                            (("--seconds", "nan"), ""),
                            (("--seconds", "0"), "seconds: must be 0.1 to 60"),
                            (("--profile-steps", "200000"), "profile_steps: must be at most")):
            done = self.quire("--out", "/dev/null", *args)
            self.assertNotEqual(done.returncode, 0, args)
            self.assertIn(words, done.stderr)

    def test_full_disk_is_named_and_leaves_no_file(self):
        done = self.quire("--seconds", "0.1", "--out", "/dev/full")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("cannot write /dev/full", done.stderr)
        missing = pathlib.Path(self.folder.name) / "no folder" / "trace.json"
        done = self.quire("--seconds", "0.1", "--out", missing)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"cannot write {missing}: No such file", done.stderr)

    def test_profiled_steps_give_the_same_tokens(self):
        with quire.QuireClient(self.server.target) as client:
            greedy = quire.Options(temperature=0, ignore_eos=True, max_tokens=60)
            expected = [t for d in client.generate(TEXT, greedy) for t in d.token_ids]
            done = []
            thread = threading.Thread(target=lambda: done.append(self.quire(
                "--seconds", "2", "--profile-steps", "30", "--uncaptured", "--out", "/dev/null")))
            thread.start()
            while self.server.metric("quire_traces") < 1 and thread.is_alive():
                pass
            found = [t for d in client.generate(TEXT, greedy) for t in d.token_ids]
            thread.join()
        self.assertEqual(done[0].returncode, 0, done[0].stderr)
        self.assertEqual(found, expected)


if __name__ == "__main__":
    unittest.main()
