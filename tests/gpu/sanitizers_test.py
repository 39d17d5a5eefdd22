#!/usr/bin/env python3
"""Every pattern of the sanitizers' suites names a test: sanitizers_test.py FOLDER of the GPU tests.

Listing tests needs no GPU.
"""
import pathlib
import subprocess
import sys
import unittest

import sanitizers

FOLDER = pathlib.Path(sys.argv.pop(1))


class SuitesTest(unittest.TestCase):
    def test_every_pattern_names_a_test(self):
        suites = [*sanitizers.SUITES.items(), *sanitizers.RACE_SUITES.items()]
        for program, patterns in suites:
            for pattern in patterns.split(":"):
                listed = subprocess.run(
                    [FOLDER / program, "--gtest_list_tests", f"--gtest_filter={pattern}"],
                    capture_output=True, text=True, check=True).stdout
                tests = [line for line in listed.splitlines() if line.startswith("  ")]
                self.assertTrue(tests, f"{program} has no test {pattern}")


if __name__ == "__main__":
    unittest.main()
