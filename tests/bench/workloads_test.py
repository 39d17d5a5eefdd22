#!/usr/bin/python3
"""The load client's figures in results: their names, and a point's gain over another."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from harness import workloads  # noqa: E402


def point(label, rate, ttft):
    figures = {"output_tokens_per_second": rate, "ttft_later_turns_ms_p50": ttft}
    return {"label": label, "figures": figures, "judged": list(figures)}


class WorkloadsTest(unittest.TestCase):
    def test_a_gain_is_how_many_times_better(self):
        points = [point("with", 250, 80), point("without", 100, 400)]
        self.assertEqual(
            workloads.gains(points, "with", "without"),
            {
                "label": "with, over without",
                "figures": {
                    "output_tokens_per_second_gain": 2.5,
                    "ttft_later_turns_ms_p50_gain": 5,
                },
                "judged": ["output_tokens_per_second_gain", "ttft_later_turns_ms_p50_gain"],
            },
        )

    def test_a_figure_that_the_baseline_lacks_has_no_gain(self):
        points = [point("with", 250, 80), {"label": "without", "figures": {}, "judged": []}]
        self.assertEqual(workloads.gains(points, "with", "without")["figures"], {})

    def test_figures_have_one_name_each(self):
        record = {
            "rates": {"requests_per_second": 4, "goodput_requests_per_second": None},
            "latencies": {
                "ttft_later_turns_ms": {"count": 2, "p50": 30, "p99.9": 40},
                "restore_ms": {"count": 0, "p50": 0},
            },
            "counts": {"peak_concurrency": 7},
            "residency": {"host_tokens": 112, "outcomes": {"restored": 1}},
        }
        self.assertEqual(
            workloads.flat_figures(record),
            {
                "requests_per_second": 4,
                "ttft_later_turns_ms_p50": 30,
                "ttft_later_turns_ms_p99_9": 40,
                "peak_concurrency": 7,
                "kv_host_tokens": 112,
            },
        )

    def test_every_baseline_is_a_point_before(self):
        for name in workloads.names():
            data = workloads.load(name).data
            for size in ("cpu", "gpu"):
                labels = []
                for entry in data[size].get("point", []):
                    if "baseline" in entry:
                        self.assertIn(entry["baseline"], labels, f"{name} {size}")
                    labels.append(entry.get("label"))


if __name__ == "__main__":
    unittest.main()
