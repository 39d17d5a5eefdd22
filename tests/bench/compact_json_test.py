#!/usr/bin/python3
"""compact_json writes the same values, in lines that a person can read."""
# Covers
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from harness import compact_json  # noqa: E402


class CompactJsonTest(unittest.TestCase):
    def test_nothing_is_lost(self):
        long = "x" * 200
        for value in ({}, [], [[]], 3, "ä\n", None, [long, [long, {"a": long}]],
                      {"a": {long: [1, [2, long]]}, "b": []}):
            self.assertEqual(json.loads(compact_json.dumps(value)), value)

    def test_a_value_that_fits_a_line_is_one(self):
        rows = [[float(i), i, i] for i in range(100)]
        lines = compact_json.dumps({"name": "soak", "rows": rows}).splitlines()
        self.assertEqual(lines[:4], ["{", ' "name": "soak",', ' "rows": [', "  [0.0, 0, 0],"])
        self.assertEqual(len(lines), 105)


if __name__ == "__main__":
    unittest.main()
