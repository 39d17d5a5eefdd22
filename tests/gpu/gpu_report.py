"""bench/results/gpu.json: the findings of tests/gpu/run, run by run.

A report is {"numbers": [...], "missed": [...], "runs": [...]}: the summary, the numbers of it that
do not reach their limit, and the runs. A run has the hash of the sources that its programs were
built from, the device's state before and after, and under tests, benches and sanitizers an entry
for each program. A new run replaces the entries of older runs for the same programs, so each entry
is there once, and a report may be made in parts.
"""
import json
import pathlib
import sys

import report_numbers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from harness import compact_json  # noqa: E402

KINDS = ("tests", "benches", "sanitizers")


def without(older, run):
    """An older run without the entries that a newer one replaces; tools of a sanitizer are
    replaced one by one."""
    left = dict(older)
    for kind in ("tests", "benches"):
        left[kind] = {name: entry for name, entry in older[kind].items() if name not in run[kind]}
    left["sanitizers"] = {}
    for name, tools in older["sanitizers"].items():
        again = run["sanitizers"].get(name, {})
        if rest := {tool: entry for tool, entry in tools.items() if tool not in again}:
            left["sanitizers"][name] = rest
    return left


def finished(tools):
    return {tool: entry for tool, entry in tools.items() if entry["status"] != "not finished"}


def read_runs(path):
    return json.loads(path.read_text())["runs"] if path.exists() else []


def latest(runs, kind):
    """Every program's entry; of sanitizers, every program's tools."""
    entries = {}
    for run in runs:
        for name, entry in run[kind].items():
            entries[name] = entries.get(name, {}) | entry if kind == "sanitizers" else entry
    return entries


class Report:
    """The report of one run, saved after each program, so that a run cut short keeps entries."""

    def __init__(self, path, sources):
        self.path = path
        self.older = read_runs(path) if path else []
        self.run = {"sources": sources} | {kind: {} for kind in KINDS}

    def add(self, kind, name, entry):
        if kind == "sanitizers":
            # A tool that did not finish does not replace an older finding.
            done = latest(self.older, kind).get(name, {})
            new = finished(entry)
            entry = {tool: entry[tool] for tool in entry if tool in new or tool not in done}
        self.run[kind][name] = entry
        self.save()

    def runs(self):
        older = [without(run, self.run) for run in self.older]
        return [run for run in older if any(run[kind] for kind in KINDS)] + [self.run]

    def numbers(self):
        return report_numbers.collect(latest(self.runs(), "benches"))

    def save(self):
        if self.path:
            numbers = self.numbers()
            report = {"numbers": numbers, "missed": report_numbers.missed(numbers),
                      "runs": self.runs()}
            self.path.write_text(compact_json.dumps(report) + "\n")
