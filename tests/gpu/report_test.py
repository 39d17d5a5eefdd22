#!/usr/bin/python3
"""CUDA sources change together with a report that proves them: report_test.py.

bench/results/gpu.json is what tests/gpu/run wrote on a GPU host; it names the hash of the sources
it proved and must be without failures. Where a change cannot be run on a GPU at once, the message
of its commit says "gpu-untested:" and why.
"""
import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPORT = ROOT / "bench/results/gpu.json"


def load_sources_hash():
    path = str(ROOT / "tests/gpu/sources_hash")
    loader = importlib.machinery.SourceFileLoader("sources_hash", path)
    spec = importlib.util.spec_from_loader("sources_hash", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def excused(sources):
    """Whether the last commit that touched the sources says why they were not run."""
    message = subprocess.run(
        ["git", "log", "-1", "--format=%B", "--", *sources.SOURCES], cwd=ROOT, capture_output=True,
        text=True,
    ).stdout
    return "gpu-untested:" in message


class ReportTest(unittest.TestCase):
    def test_the_report_proves_these_sources(self):
        sources = load_sources_hash()
        report = json.loads(REPORT.read_text())
        if report["sources"] != sources.sources_hash():
            self.assertTrue(
                excused(sources),
                "CUDA sources changed since bench/results/gpu.json: run tests/gpu/run on a GPU "
                "host and commit its report, or say gpu-untested: and why in the commit's message",
            )

    def test_the_report_is_without_failures(self):
        report = json.loads(REPORT.read_text())
        self.assertGreater(len(report["tests"]), 0)
        for name, entry in report["tests"].items():
            self.assertEqual(entry["status"], 0, name)
            self.assertEqual(entry["failures"], 0, name)


if __name__ == "__main__":
    unittest.main()
