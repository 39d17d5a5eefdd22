#!/usr/bin/python3
"""Results of benchmarks: which trees may write into bench/results, and which files they write."""
# Covers
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from harness import machine, micro, process, runs  # noqa: E402

POINT = {"label": "x", "judged": ["time_ns"], "figures": {"time_ns": 5, "other": 1}}


def content(**changes):
    return {"name": "matmul", "size": "cpu", "date": "2026-01-02T03:04:05", "commit": "abc",
            "modified": False, "runs": [{"points": [POINT]}]} | changes


class StoreTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for module, name, value in ((runs, "RESULTS", self.root / "results"),
                                    (machine, "ROOT", self.root)):
            self.enterContext(unittest.mock.patch.object(module, name, value))

    def written(self):
        return sorted(path.relative_to(self.root).as_posix()
                      for path in self.root.rglob("*") if path.is_file())

    def test_a_result_becomes_the_newest_and_a_line_of_history(self):
        runs.store(content())
        history = "results/history/cpu/matmul/2026-01-02-abc.json"
        self.assertEqual(self.written(), ["results/cpu/matmul.json", history])
        points = json.loads((self.root / history).read_text())["points"]
        self.assertEqual(points[0]["figures"], {"time_ns": 5})

    def test_a_modified_tree_is_refused(self):
        for changes in ({"modified": True}, {"commit": ""}):
            with self.assertRaisesRegex(runs.BenchError, "the tree is modified"):
                runs.store(content(**changes))
        self.assertEqual(self.written(), [])

    def test_a_modified_tree_may_write_elsewhere_or_when_told(self):
        runs.store(content(modified=True), out=self.root / "out.json")
        self.assertEqual(self.written(), ["out.json"])
        runs.store(content(modified=True), allow_modified=True)
        newest = json.loads((self.root / "results/cpu/matmul.json").read_text())
        self.assertTrue(newest["modified"])


class CommandTest(unittest.TestCase):
    """bench/run refuses before it builds or measures."""

    def test_a_wrong_line_is_refused_at_once(self):
        program = pathlib.Path(__file__).resolve().parents[2] / "bench" / "run"
        for words, said in ((["--out", "/nonexistent/x.json", "scheduler"], "no folder"),
                            (["--runs", "0", "scheduler"], "1 or more"),
                            (["--out", "x.json", "scheduler", "copy"], "one name"),
                            (["nothing"], "no benchmark nothing")):
            done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(said, done.stderr)


class SchedulerTest(unittest.TestCase):
    def points(self, **changes):
        row = {"p50_us": 1, "p99_us": 2, "add_p50_us": 3, "allocations_per_step": 0, "waiting": 10}
        rows = [row | {"idle_sessions": count} | changes for count in (0, 100)]
        return micro.points_of("scheduler", rows)

    def test_each_row_has_a_label_of_its_own(self):
        self.assertEqual([point["label"] for point in self.points()],
                         ["waiting 10, idle sessions 0", "waiting 10, idle sessions 100"])

    def test_a_step_that_allocates_is_an_error(self):
        with self.assertRaises(process.BenchError):
            self.points(allocations_per_step=0.001)


if __name__ == "__main__":
    unittest.main()
