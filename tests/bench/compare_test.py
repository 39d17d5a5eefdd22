"""bench/compare on made-up numbers: its verdicts, the order and number of runs, and its sides."""

import argparse
import importlib.machinery
import importlib.util
import itertools
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from harness import comparison, machine, sides  # noqa: E402
from harness import runs as runs_of_bench  # noqa: E402

COMPARE = ROOT / "bench/compare"


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

    def test_six_percent_slower_without_noise_is_worse(self):
        self.assertEqual(self.verdict("tpot_ms", (10,) * 6, (10.6,) * 6), "worse")
        self.assertEqual(self.verdict("tokens_per_second", (106,) * 6, (100,) * 6), "worse")

    def test_four_percent_is_unharmed(self):
        self.assertEqual(self.verdict("tpot_ms", (10,) * 6, (10.4,) * 6), "unharmed")

    def test_an_interval_around_the_threshold_is_undecided(self):
        after = (10, 10.2, 10.4, 10.6, 10.8, 11)
        self.assertEqual(self.verdict("tpot_ms", (10,) * 6, after), "undecided")

    def test_fewer_pairs_than_the_first_look_decide_nothing(self):
        self.assertEqual(self.verdict("tpot_ms", (10,) * 5, (20,) * 5), "undecided")

    def test_a_drift_that_both_share_cancels(self):
        # The machine gets 50 % slower, then recovers; in each pair the two are alike.
        self.assertEqual(self.verdict("tpot_ms", (10, 12, 15, 14, 11, 10),
                                      (10.1, 12.1, 15.1, 13.9, 10.9, 10.1)), "unharmed")

    def test_a_regression_shows_through_a_drift_larger_than_itself(self):
        self.assertEqual(self.verdict("tpot_ms", (10, 12, 15, 14, 11, 10),
                                      (11.0, 13.3, 16.4, 15.5, 12.1, 11.1)), "worse")

    def test_one_outlier_makes_undecided_and_not_worse(self):
        self.assertEqual(self.verdict("tpot_ms", (10,) * 6, (11, 11, 30, 11, 11, 11)), "undecided")

    def test_a_verdict_once_reached_stays(self):
        self.assertEqual(self.verdict("tpot_ms", (10,) * 8, (11,) * 6 + (9, 9)), "worse")

    def test_a_pair_without_the_figure_does_not_count_for_it(self):
        before = runs("tpot_ms", *(10,) * 6) + [{"other": 1}]
        after = runs("tpot_ms", *(11,) * 6) + [{"other": 1}]
        verdicts = {j.figure: j.verdict for j in comparison.judge(before, after)}
        self.assertEqual(verdicts, {"tpot_ms": "worse", "other": "undecided"})

    def test_better_needs_the_whole_interval(self):
        self.assertEqual(self.verdict("tpot_ms", (10,) * 6, (9,) * 6), "better")
        self.assertEqual(self.verdict("tpot_ms", (10,) * 6, (9, 9, 9, 9, 9, 10)), "unharmed")

    def test_a_judgement_has_medians_the_geometric_mean_and_bounds(self):
        # Ratios 1.1 and 1.2 by turns: logarithms 0.09531 and 0.18232, mean 0.13882, error 0.01946;
        # t of five degrees at 1 - 0.05 / 6 is 4.219.
        judged = only(comparison.judge(runs("tpot_ms", *(10,) * 6), runs("tpot_ms", *(11, 12) * 3)))
        self.assertEqual((judged.before, judged.after), (10, 11.5))
        self.assertAlmostEqual(judged.ratio, math.sqrt(1.1 * 1.2))
        self.assertAlmostEqual(math.log(judged.low), 0.13882 - 4.219 * 0.01946, delta=1e-4)
        self.assertAlmostEqual(math.log(judged.high), 0.13882 + 4.219 * 0.01946, delta=1e-4)
        self.assertIn("+14.9%", comparison.table([judged]))

    def test_zero_and_missing_figures_are_not_judged(self):
        self.assertEqual(comparison.judge(runs("tpot_ms", 0, 0, 0), runs("tpot_ms", 1, 1, 1)), [])
        self.assertEqual(comparison.judge(runs("tpot_ms", 1, 1, 1), runs("ttft_ms", 1, 1, 1)), [])
        self.assertEqual(
            comparison.lost(runs("tpot_ms", 1, 1, 1), runs("ttft_ms", 1, 1, 1)), ["tpot_ms"]
        )


class FilesTest(unittest.TestCase):
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
                [sys.executable, COMPARE, *paths, *flags],
                capture_output=True, text=True, check=False,
            )

    def test_exit_status_says_the_verdict(self):
        self.assertEqual(self.compare((10,) * 6, (10,) * 6).returncode, 0)
        self.assertEqual(self.compare((10,) * 6, (9,) * 6).returncode, 0)
        self.assertEqual(self.compare((10,) * 5, (20,) * 5).returncode, 2)
        worse = self.compare((10,) * 6, (11,) * 6)
        self.assertEqual(worse.returncode, 1)
        self.assertIn("1 of 1 figures are worse by more than 5 %", worse.stdout)

    def test_the_threshold_can_be_moved(self):
        for threshold, status in (("20", 0), ("2", 1)):
            done = self.compare((10,) * 6, (11,) * 6, "--threshold", threshold)
            self.assertEqual(done.returncode, status)

    def test_bad_input_is_a_sentence_and_status_2(self):
        for words in (("/nonexistent", "/nonexistent"), ("HEAD", "HEAD", "no-such-benchmark")):
            done = subprocess.run([sys.executable, COMPARE, *words],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, "bench/compare: (.* is no commit|no benchmark)")
            self.assertNotIn("Traceback", done.stderr)


def load_compare():
    loader = importlib.machinery.SourceFileLoader("compare", str(COMPARE))
    spec = importlib.util.spec_from_loader("compare", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


class PairsTest(unittest.TestCase):
    """The order and number of runs, with made-up runs in place of benchmarks."""

    def pairs(self, figures, **wanted):
        """Runs benchmarks with {name: (before, after)} as figures, lists that repeat."""
        ran, given = [], {}

        def execute(name, build, size, model):
            ran.append((name, build))
            values = given.setdefault((name, build), itertools.cycle(figures[name][build == "B"]))
            return {"points": [{"label": "x", "judged": ["time_ns"],
                                "figures": {"time_ns": next(values)}}]}

        both = [sides.Side(name, name, None) for name in "AB"]
        args = argparse.Namespace(
            **({"minutes": 60, "pairs": 40, "size": "cpu", "model": None, "threshold": 5} | wanted))
        compare = load_compare()
        compare.say = lambda text: None
        pairs = compare.Pairs(both, list(figures), args)
        with unittest.mock.patch.object(runs_of_bench, "execute", execute):
            pairs.run()
        return pairs, ran

    def test_builds_take_turns_at_being_first(self):
        _, ran = self.pairs({"m": ([10], [10])})
        self.assertEqual("".join(build for _, build in ran), "ABBAABBAABBA")

    def test_only_undecided_benchmarks_are_run_again(self):
        pairs, ran = self.pairs({"calm": ([10], [10]), "noisy": ([10], [10, 11])})
        count = {name: sum(1 for ran_name, _ in ran if ran_name == name) // 2
                 for name in ("calm", "noisy")}
        self.assertEqual(count, {"calm": 6, "noisy": 40})
        verdicts = {j.figure: j.verdict for j in pairs.judgements()}
        self.assertEqual(verdicts, {"calm x: time_ns": "unharmed",
                                    "noisy x: time_ns": "undecided"})

    def test_pairs_and_minutes_are_bounds(self):
        noisy = {"noisy": ([10], [10, 11])}
        self.assertEqual(len(self.pairs(noisy, pairs=12)[1]), 24)
        self.assertEqual(len(self.pairs(noisy, minutes=-1)[1]), 0)


@unittest.skipUnless(shutil.which("git"), "git is not installed")
class SidesTest(unittest.TestCase):
    def test_a_commit_gets_a_worktree_with_what_it_held(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)

            def git(*words):
                identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
                subprocess.run(["git", *identity, *words], cwd=root, check=True,
                               capture_output=True)

            git("init")
            for text in ("first", "second"):
                (root / "file").write_text(text)
                git("add", "file")
                git("commit", "-m", text)
            with unittest.mock.patch.object(machine, "ROOT", root), \
                    unittest.mock.patch.object(sides, "FOLDER", root / "build/compare"):
                side = sides.parse("HEAD~1")
                sides.check_out(side)
                sides.check_out(side)  # it is there already
                self.assertEqual((side.source / "file").read_text(), "first")
                self.assertTrue(side.build.is_relative_to(side.source))
                with self.assertRaisesRegex(sides.BenchError, "no commit"):
                    sides.parse("no-such-commit")


if __name__ == "__main__":
    unittest.main()
