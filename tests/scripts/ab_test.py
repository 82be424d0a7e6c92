#!/usr/bin/env python3
"""Checks which figures tools/scripts/ab counts as missed.

    ab_test.py SCRIPT
"""

import importlib.machinery
import importlib.util
import sys
import unittest

sys.dont_write_bytecode = True  # next to the script in the source tree
loader = importlib.machinery.SourceFileLoader("ab", sys.argv.pop(1))
ab = importlib.util.module_from_spec(importlib.util.spec_from_loader("ab", loader))
loader.exec_module(ab)

STEADY = [1.0, 1.01, 0.99] * 5
NOISY = [0.8, 1.0, 1.3] * 5


def scaled(samples, factor):
    return [factor * sample for sample in samples]


class Judge(unittest.TestCase):
    def missed(self, a, b, peak_b=1.0, kind="files"):
        peaks = {"A": STEADY, "B": scaled(STEADY, peak_b)}
        return ab.judge(kind, {"A": a, "B": b}, peaks)["missed"]

    def test_ratio_above_one_means_that_b_is_faster(self):
        ratio, low, high = ab.ratio_with_interval(STEADY, scaled(STEADY, 0.5))
        self.assertAlmostEqual(ratio, 2)
        self.assertLessEqual(low, ratio)
        self.assertGreaterEqual(high, ratio)

    def test_slower_than_the_bound_is_missed(self):
        self.assertEqual(self.missed(STEADY, STEADY), [])
        self.assertEqual(self.missed(STEADY, scaled(STEADY, 1.03)), [])
        self.assertEqual(self.missed(STEADY, scaled(STEADY, 1.09)), ["time"])
        self.assertEqual(self.missed(STEADY, scaled(STEADY, 1.09), kind="memory"), [])
        self.assertEqual(self.missed(STEADY, scaled(STEADY, 1.2), kind="memory"), ["time"])

    def test_interval_that_reaches_the_bound_is_not_missed(self):
        self.assertEqual(self.missed(NOISY, scaled(NOISY[1:] + NOISY[:1], 1.09)), [])

    def test_more_peak_memory_than_the_bound_is_missed(self):
        self.assertEqual(self.missed(STEADY, STEADY, peak_b=1.1), ["memory"])
        self.assertEqual(self.missed(STEADY, STEADY, peak_b=0.5), [])

    def test_names_of_cases_differ(self):
        self.assertEqual(len({case.name for case in ab.CASES}), len(ab.CASES))


if __name__ == "__main__":
    unittest.main()
