"""The bounds that continuous integration holds ratios to."""

import importlib.util
import json
import pathlib
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / "bench" / "ratios"
SPEC = importlib.util.spec_from_file_location("check", FOLDER / "check.py")
check = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check)


class RatiosTest(unittest.TestCase):
    def faults(self, measured, baseline):
        return list(check.faults(measured, baseline))

    def test_sixty_percent_of_the_baseline_is_enough(self):
        self.assertEqual(self.faults({"a_over_b": 6.0, "c": 100}, {"a_over_b": 10.0, "c": 10}), [])

    def test_less_is_a_fault_that_says_how_much(self):
        self.assertEqual(
            self.faults({"a_over_b": 5.9}, {"a_over_b": 10.0}),
            ["a_over_b: 5.9 is 59% of the baseline's 10"],
        )

    def test_what_vanishes_or_is_new_is_a_fault(self):
        found = self.faults({"new": 1.0}, {"old": 1.0})
        self.assertEqual(len(found), 2)
        self.assertIn("old: no longer measured", found[0])

    def test_a_processor_may_lack_an_instruction_set(self):
        baseline = {"matmul_avx512_over_generic": 50.0, "rest": 1.0}
        self.assertEqual(self.faults({"rest": 1.0}, baseline), [])

    def test_the_committed_baseline_is_of_positive_ratios(self):
        baseline = json.loads(check.BASELINE.read_text())
        self.assertTrue(baseline)
        self.assertTrue(all(value > 0 for value in baseline.values()))


if __name__ == "__main__":
    unittest.main()
