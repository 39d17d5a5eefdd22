"""Comparison of builds on made-up numbers: what counts as a regression, and what is noise."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from harness import comparison  # noqa: E402


def only(judgements):
    assert len(judgements) == 1
    return judgements[0]


def runs(figure, *values):
    return [{figure: value} for value in values]


class DirectionTest(unittest.TestCase):
    def test_times_and_sizes_are_better_small_and_rates_large(self):
        for name in ("ttft_ms_p99", "W3 batch 1: mean_tpot_ms", "time_ns", "step_us_p50",
                     "detokenize_ns_per_token", "server_cpu_us_per_token", "exec_to_ready_seconds",
                     "peak_rss_bytes", "client_lag_ms_p99_9"):
            self.assertTrue(comparison.smaller_is_better(name), name)
        for name in ("tokens_per_second", "encode_mb_per_s", "of_fma_peak", "GB/s", "goodput",
                     "output_tokens_per_second", "times_the_package"):
            self.assertFalse(comparison.smaller_is_better(name), name)


class JudgeTest(unittest.TestCase):
    def verdict(self, figure, before, after):
        return only(comparison.judge(runs(figure, *before), runs(figure, *after))).verdict

    def test_six_percent_slower_in_three_pairs_is_worse(self):
        self.assertEqual(self.verdict("tpot_ms", (10, 10, 10), (10.6, 10.6, 10.6)), "worse")
        self.assertEqual(self.verdict("tokens_per_second", (106, 107, 106), (100, 100, 100)),
                         "worse")

    def test_four_percent_is_equal(self):
        self.assertEqual(self.verdict("tpot_ms", (10, 10, 10), (10.4, 10.4, 10.4)), "equal")

    def test_two_pairs_of_three_are_not_enough(self):
        self.assertEqual(self.verdict("tpot_ms", (10, 10, 10), (13, 13, 10.4)), "equal")

    def test_fewer_than_three_pairs_decide_nothing(self):
        self.assertEqual(self.verdict("tpot_ms", (10, 10), (20, 20)), "undecided")

    def test_a_drift_that_both_share_cancels(self):
        # The machine gets 50 % slower, then recovers; in each pair the two are alike.
        self.assertEqual(self.verdict("tpot_ms", (10, 15, 11), (10.1, 15.2, 10.9)), "equal")

    def test_a_regression_shows_through_a_drift_larger_than_itself(self):
        self.assertEqual(self.verdict("tpot_ms", (10, 15, 11), (10.8, 16.4, 12.0)), "worse")

    def test_a_confirmation_that_fails_takes_the_charge_back(self):
        self.assertEqual(self.verdict("tpot_ms", (10,) * 5, (11, 11, 11, 10.2, 11)), "equal")

    def test_a_pair_without_the_figure_says_nothing_of_it(self):
        before = runs("tpot_ms", 10, 10, 10) + [{"other": 1}]
        after = runs("tpot_ms", 11, 11, 11) + [{"other": 1}]
        self.assertEqual(only(comparison.judge(before, after)).verdict, "worse")

    def test_better_needs_every_pair_too(self):
        self.assertEqual(self.verdict("tpot_ms", (10, 10, 10), (9, 9, 9)), "better")
        self.assertEqual(self.verdict("tpot_ms", (10, 10, 10), (9, 9, 9.8)), "equal")

    def test_says_medians_ratios_and_noise(self):
        judged = only(comparison.judge(runs("tpot_ms", 10, 12, 11), runs("tpot_ms", 11, 12, 22)))
        self.assertEqual((judged.before, judged.after), (11, 12))
        self.assertEqual([round(r, 6) for r in judged.ratios], [1.1, 1.0, 2.0])
        self.assertAlmostEqual(judged.ratio, 1.1)
        self.assertAlmostEqual(judged.band, 1.0)  # 22 / 11 - 1
        self.assertIn("+10.0% +0.0% +100.0%", comparison.table([judged]))

    def test_zero_and_missing_figures_are_not_judged(self):
        self.assertEqual(comparison.judge(runs("tpot_ms", 0, 0, 0), runs("tpot_ms", 1, 1, 1)), [])
        self.assertEqual(comparison.judge(runs("tpot_ms", 1, 1, 1), runs("ttft_ms", 1, 1, 1)), [])
        self.assertEqual(
            comparison.lost(runs("tpot_ms", 1, 1, 1), runs("ttft_ms", 1, 1, 1)), ["tpot_ms"]
        )


class ProgramTest(unittest.TestCase):
    """bench/compare itself, on result files."""

    def compare(self, before, after, *flags):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, values in (("before", before), ("after", after)):
                path = pathlib.Path(folder, name + ".json")
                point = {"label": "batch 1", "judged": ["tpot_ms"]}
                made = [{"points": [point | {"figures": {"tpot_ms": v}}]} for v in values]
                path.write_text(json.dumps({"runs": made}))
                paths.append(path)
            return subprocess.run(
                [sys.executable, ROOT / "bench/compare", *paths, *flags],
                capture_output=True, text=True, check=False,
            )

    def test_exit_status_says_the_verdict(self):
        self.assertEqual(self.compare((10, 10, 10), (10, 10, 10)).returncode, 0)
        self.assertEqual(self.compare((10, 10, 10), (9, 9, 9)).returncode, 0)
        self.assertEqual(self.compare((10, 10), (20, 20)).returncode, 2)
        worse = self.compare((10, 10, 10), (11, 11, 11))
        self.assertEqual(worse.returncode, 1)
        self.assertIn("1 of 1 figures are worse by more than 5 %", worse.stdout)

    def test_the_threshold_can_be_moved(self):
        done = self.compare((10, 10, 10), (11, 11, 11), "--threshold", "20")
        self.assertEqual(done.returncode, 0)

    def test_bad_input_is_a_sentence_and_status_2(self):
        done = subprocess.run(
            [sys.executable, ROOT / "bench/compare", "/nonexistent", "/nonexistent"],
            capture_output=True, text=True, check=False,
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("bench/compare: give two result files", done.stderr)
        self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
