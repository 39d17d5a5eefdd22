#!/usr/bin/python3
"""The committed report of the GPU host proves the committed sources, is without a fault, and
docs/gpu.md names every limit it misses: report_test.py.

bench/results/gpu.json is the output of tests/gpu/run on a GPU host; it names the hash of the
sources it proved. Where a change cannot be run on a GPU at once, the message of its commit says
"gpu-untested:" and why. Changes that are not committed are not judged.
"""
import importlib.machinery
import importlib.util
import json
import pathlib
import re
import subprocess
import tempfile
import unittest

import gpu_report
import report_numbers
import sanitizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPORT = ROOT / "bench/results/gpu.json"
TESTS = ["tests/gpu/*_gpu_test.cc", "tests/gpu/*_gpu_test.py"]
UNPROVED = ("run tests/gpu/run on a GPU host and commit its report as bench/results/gpu.json, or "
            "write gpu-untested: and why into the commit's message")


def load_script(name):
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "tests/gpu" / name))
    spec = importlib.util.spec_from_loader(name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


SOURCES = load_script("sources_hash")
RUN = load_script("run")


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout


def excused(paths):
    """Whether the last commit that touched them says why they were not run."""
    return "gpu-untested:" in git("log", "-1", "--format=%B", "--", *paths)


class ReportTest(unittest.TestCase):
    """The report in the tree."""

    def setUp(self):
        self.runs = gpu_report.read_runs(REPORT)

    def test_the_report_proves_these_sources(self):
        if git("status", "--porcelain", "--", *SOURCES.SOURCES):
            self.skipTest("sources of the GPU's programs have changes that are not committed")
        if {run["sources"] for run in self.runs if run["tests"]} != {SOURCES.sources_hash()}:
            self.assertTrue(excused(SOURCES.SOURCES),
                            f"sources of the GPU's programs changed: {UNPROVED}")

    def test_every_test_was_run(self):
        written = {path.stem for pattern in TESTS for path in ROOT.glob(pattern)}
        if missing := written - set(gpu_report.latest(self.runs, "tests")):
            self.assertTrue(excused(TESTS), f"{missing} not in the report: {UNPROVED}")

    def test_every_test_passed(self):
        tests = gpu_report.latest(self.runs, "tests")
        self.assertGreater(len(tests), 0)
        for name, entry in tests.items():
            self.assertEqual(entry["status"], 0, name)
            self.assertEqual(entry["failures"], 0, name)
            self.assertGreater(entry["tests"], 0, name)

    def test_every_sanitizer_ran_its_tests_and_found_nothing(self):
        programs = gpu_report.latest(self.runs, "sanitizers")
        self.assertEqual(sanitizers.faults(programs), [])
        ran = {(name, tool) for name, tools in programs.items() for tool in tools}
        if missing := sanitizers.EXPECTED - ran:
            self.assertTrue(excused(["tests/gpu/sanitizers.py"]),
                            f"{sorted(missing)} not in the report: {UNPROVED}")

    def test_the_summary_is_that_of_the_runs(self):
        report = json.loads(REPORT.read_text())
        numbers = report_numbers.collect(gpu_report.latest(self.runs, "benches"))
        self.assertEqual(report["numbers"], numbers)
        self.assertEqual(report["missed"], report_numbers.missed(numbers))

    def test_the_documentation_names_every_missed_limit(self):
        numbers = json.loads(REPORT.read_text())["numbers"]
        page = (ROOT / "docs/gpu.md").read_text()
        listed = re.findall(r"^\| (.+?) \| ([\d.,]+) \S+ \| ([\d.,]+) \S+ \|$",
                            page.partition("## Limits that it misses")[2], re.M)
        said = {name: [float(value.replace(",", "")) for value in values]
                for name, *values in listed}
        expected = {number["name"]: [float(f"{number['value']:.4g}"), number["must"]]
                    for number in numbers if number.get("reached") == "MISSED"}
        for sentence in report_numbers.missed(numbers):
            print(f"MISSED: {sentence}", flush=True)
        rows = [f"| {number['name']} | {float(format(number['value'], '.4g')):,g} {number['unit']}"
                f" | {number['must']:,g} {number['unit']} |"
                for number in numbers if number.get("reached") == "MISSED"]
        self.assertEqual(said, expected, "docs/gpu.md needs these rows:\n" + "\n".join(rows))


class ProgramsTest(unittest.TestCase):
    def test_several_gpus_run_the_programs_of_several(self):
        pack = ["group_gpu_test", "matmul_gpu_test", "step_gpu_bench", "matmul_gpu_bench"]

        def run(only, several):
            return [name for name in pack if RUN.belongs(name, only, several)]

        self.assertEqual(run(None, False), pack[1:])
        self.assertEqual(run(None, True), ["group_gpu_test", "step_gpu_bench"])
        self.assertEqual(run(["matmul_gpu_test", "group_gpu_test"], False), ["matmul_gpu_test"])
        self.assertEqual(run(["matmul_gpu_test"], True), ["matmul_gpu_test"])


class SanitizersTest(unittest.TestCase):
    def test_a_run_that_proves_nothing_is_a_fault(self):
        good = {"status": 0, "tests": 2, "findings": 0}
        self.assertEqual(sanitizers.faults({"a": {"memcheck": good}}), [])
        for change, fault in (({"status": 9}, "a under memcheck ended with status 9"),
                              ({"status": "not finished"},
                               "a under memcheck ended with status not finished"),
                              ({"tests": 0}, "a under memcheck ran no test"),
                              ({"findings": 3}, "a under memcheck has 3 findings"),
                              ({"findings": None}, "a under memcheck has None findings")):
            self.assertEqual(sanitizers.faults({"a": {"memcheck": good | change}}), [fault])

    def test_every_filter_matches_a_test(self):
        for suites in (sanitizers.SUITES, sanitizers.RACE_SUITES):
            for program, filters in suites.items():
                source = (ROOT / f"tests/gpu/{program}.cc").read_text()
                names = re.findall(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*\w+,\s*(\w+)", source, re.M)
                for one in filters.split(":"):
                    self.assertNotRegex(one, r"[][{}|]", "GoogleTest knows * and ? alone")
                    word = one.split(".")[-1].partition("/")[0].strip("*")
                    self.assertTrue(any(word in name for name in names),
                                    f"{program}: no test matches {one}")


class NumbersTest(unittest.TestCase):
    def test_a_number_beyond_its_limit_is_missed(self):
        self.assertEqual(report_numbers.verdict(5, 6, 5), "aim")
        self.assertEqual(report_numbers.verdict(6, 6, 5), "must")
        self.assertEqual(report_numbers.verdict(6.1, 6, 5), "MISSED")
        self.assertEqual(report_numbers.verdict(1.9, -2, -3), "MISSED")
        numbers = [{"name": "a", "value": 1.9, "unit": "x", "must": 2, "reached": "MISSED"},
                   {"name": "b", "value": 3, "unit": "x", "must": 2, "reached": "aim"}]
        self.assertEqual(report_numbers.missed(numbers), ["a: 1.9 x, limit 2"])

    def test_conversations_have_mean_tail_and_whole_run_beside_the_median(self):
        users = [{"think_seconds": 10, "host_gib": gib, "timeline": {"tokens": tokens}}
                 for gib, tokens in ((0, [10, 30]), (8, [20, 30]))]
        gain = {"host_over_none": 10, "output_tokens": 1.5,
                "ttft_later": {"p50": 0.1, "mean": 1.7, "p99": 3.7}}
        numbers = report_numbers.collect({"session_bench": {"result": [*users, gain]}})
        name = "conversations, 10 s of thought, host over none: "
        self.assertEqual(
            {number["name"].removeprefix(name): number["value"] for number in numbers},
            {"output tokens, settled part": 1.5, "output tokens, whole run": 1.25,
             "first token, later turns, p50": 0.1, "first token, later turns, mean": 1.7,
             "first token, later turns, p99": 3.7})


class SourcesHashTest(unittest.TestCase):
    def test_every_included_file_counts(self):
        hashed = set(SOURCES.paths())
        for path in sorted(hashed):
            if path.endswith((".cc", ".cu", ".h", ".cuh")):
                for include in re.findall(r'^#include "(.+)"', (ROOT / path).read_text(), re.M):
                    if (ROOT / include).exists():
                        self.assertIn(include, hashed, path)

    def test_content_and_path_count_and_nothing_else_does(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)

            def hash_of(**files):
                for path in root.glob("engine/*"):
                    path.unlink()
                (root / "engine").mkdir(exist_ok=True)
                for name, text in files.items():
                    (root / "engine" / name.replace("_", ".")).write_text(text)
                return SOURCES.sources_hash(root)

            first = hash_of(a_cc="1", b_h="2")
            self.assertEqual(hash_of(b_h="2", a_cc="1"), first)  # written in another order
            self.assertEqual(hash_of(a_cc="1", b_h="2", c_md="3"), first)
            self.assertEqual(hash_of(a_cc="// one\n1 /* more */\n", b_h="\n  2"), first)
            self.assertNotEqual(hash_of(a_cc='"// a"'), hash_of(a_cc='"// b"'))
            self.assertNotEqual(hash_of(a_py="1"), hash_of(a_py="1  # one"))
            self.assertEqual(len({first, hash_of(a_cc="1", b_h="3"), hash_of(a_cc="12", b_h=""),
                                  hash_of(a_cc="1", c_h="2"), hash_of(a_cc="2", b_h="1")}), 5)


if __name__ == "__main__":
    unittest.main()
