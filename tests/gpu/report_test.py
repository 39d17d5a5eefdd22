#!/usr/bin/python3
"""CUDA sources change together with a report that proves them: report_test.py.

bench/results/gpu.json is what tests/gpu/run wrote on a GPU host; it names the hash of the sources
it proved and must be without failures. Where a change cannot be run on a GPU at once, the message
of its commit says "gpu-untested:" and why. What is not committed yet is not judged.
"""
import importlib.machinery
import importlib.util
import pathlib
import subprocess
import unittest

import gpu_report

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPORT = ROOT / "bench/results/gpu.json"
TESTS = ["tests/gpu/*_gpu_test.cc", "tests/gpu/*_gpu_test.py"]
UNPROVED = ("run tests/gpu/run on a GPU host and commit its report as bench/results/gpu.json, or "
            "say gpu-untested: and why in the commit's message")


def load_sources_hash():
    path = str(ROOT / "tests/gpu/sources_hash")
    loader = importlib.machinery.SourceFileLoader("sources_hash", path)
    spec = importlib.util.spec_from_loader("sources_hash", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout


def excused(paths):
    """Whether the last commit that touched them says why they were not run."""
    return "gpu-untested:" in git("log", "-1", "--format=%B", "--", *paths)


class ReportTest(unittest.TestCase):
    def setUp(self):
        self.runs = gpu_report.read_runs(REPORT)

    def test_the_report_proves_these_sources(self):
        sources = load_sources_hash()
        if git("status", "--porcelain", "--", *sources.SOURCES):
            self.skipTest("CUDA sources with changes that are not committed")
        if {run["sources"] for run in self.runs if run["tests"]} != {sources.sources_hash()}:
            self.assertTrue(excused(sources.SOURCES), f"CUDA sources changed: {UNPROVED}")

    def test_every_test_was_run(self):
        written = {path.stem for pattern in TESTS for path in ROOT.glob(pattern)}
        if missing := written - set(gpu_report.latest(self.runs, "tests")):
            self.assertTrue(excused(TESTS), f"{missing} not in the report: {UNPROVED}")

    def test_the_report_is_without_failures(self):
        tests = gpu_report.latest(self.runs, "tests")
        self.assertGreater(len(tests), 0)
        for name, entry in tests.items():
            self.assertEqual(entry["status"], 0, name)
            self.assertEqual(entry["failures"], 0, name)
            self.assertGreater(entry["tests"], 0, name)
        for name, tools in gpu_report.latest(self.runs, "sanitizers").items():
            for tool, entry in tools.items():
                self.assertFalse(entry.get("findings"), f"{name} under {tool}")


if __name__ == "__main__":
    unittest.main()
