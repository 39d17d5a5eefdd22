#!/usr/bin/python3
"""Confidence intervals: Student's t against printed tables, and the promise over all looks against
simulated comparisons whose truth is known."""

import math
import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from harness import comparison, confidence  # noqa: E402

RUN_SPREAD = 0.03  # standard deviation of one run's figure
COMPARISONS = 1000


class StudentTest(unittest.TestCase):
    def test_quantiles_are_those_of_printed_tables(self):
        for level, freedom, t in ((0.95, 1, 12.706), (0.95, 2, 4.303), (0.95, 5, 2.571),
                                  (0.95, 10, 2.228), (0.95, 30, 2.042), (0.99, 4, 4.604),
                                  (0.99, 7, 3.499), (0.99, 39, 2.708), (0.999, 25, 3.725)):
            self.assertAlmostEqual(confidence.t_quantile(level, freedom), t, delta=0.0006)

    def test_an_interval_worked_out_by_hand(self):
        # Mean 3, deviation sqrt(2.5), error sqrt(0.5) = 0.70711, t of 4 degrees 2.776.
        low, high = confidence.interval([1, 2, 3, 4, 5], 0.95)
        self.assertAlmostEqual(low, 3 - 1.963, delta=0.001)
        self.assertAlmostEqual(high, 3 + 1.963, delta=0.001)


class LooksTest(unittest.TestCase):
    def test_there_are_no_bounds_before_the_first_look(self):
        self.assertEqual(confidence.sequential_bounds([0.5] * 5), (-math.inf, math.inf))
        self.assertEqual(confidence.sequential_bounds([0.5] * 6), (0.5, 0.5))

    def test_numbers_between_two_looks_change_nothing(self):
        values = [0.1, 0.2, 0.1, 0.2, 0.1, 0.2]
        self.assertEqual(confidence.sequential_bounds(values + [9.0]),
                         confidence.sequential_bounds(values))

    def test_later_looks_never_widen_the_bounds(self):
        source = random.Random(3)
        values = [source.gauss(0, 1) for _ in range(40)]
        bounds = [confidence.sequential_bounds(values[:look]) for look in confidence.LOOKS]
        self.assertEqual(bounds, sorted(bounds, key=lambda b: b[1] - b[0], reverse=True))

    def test_looks_are_even_and_end(self):
        self.assertTrue(all(look % 2 == 0 for look in confidence.LOOKS))
        self.assertEqual([confidence.next_look(n) for n in (0, 5, 6, 26, 40)],
                         [6, 6, 8, 40, None])


def simulated(change, seed):
    """The share of each verdict in comparisons of builds that truly differ by `change`. Each stops
    at the first look that decides, as bench/compare does."""
    source = random.Random(seed)
    verdicts = dict.fromkeys(("worse", "better", "unharmed", "undecided"), 0)
    for _ in range(COMPARISONS):
        values = []
        while look := confidence.next_look(len(values)):
            while len(values) < look:
                noise = source.gauss(0, RUN_SPREAD) - source.gauss(0, RUN_SPREAD)
                values.append(math.log(1 + change) + noise)
            low, high = map(math.exp, confidence.sequential_bounds(values))
            verdict = comparison.verdict_of(low, high, comparison.THRESHOLD)
            if verdict != "undecided":
                break
        verdicts[verdict] += 1
    return {verdict: count / COMPARISONS for verdict, count in verdicts.items()}


class PromiseTest(unittest.TestCase):
    """Shares of 1,000 comparisons; three standard errors of a share of 2.5 % are 1.5 %."""

    def test_noise_alone_is_never_called_worse(self):
        shares = simulated(0, seed=1)
        self.assertEqual(shares["worse"], 0)
        self.assertGreater(shares["unharmed"], 0.99)

    def test_a_change_at_the_threshold_is_called_worse_as_seldom_as_promised(self):
        shares = simulated(comparison.THRESHOLD, seed=2)
        self.assertLess(shares["worse"], 0.04)
        self.assertLess(shares["unharmed"], 0.04)

    def test_a_loss_of_eight_percent_is_found(self):
        shares = simulated(0.08, seed=3)
        self.assertGreater(shares["worse"], 0.85)
        self.assertLess(shares["unharmed"], 0.01)

    def test_a_loss_of_fifteen_percent_is_always_found(self):
        self.assertGreater(simulated(0.15, seed=4)["worse"], 0.999)


if __name__ == "__main__":
    unittest.main()
