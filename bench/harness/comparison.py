"""Judges a build against another by pairs of runs made one after the other on one machine.

A single run says little: machines are shared and clocks move. Two neighbouring runs share most of
that, so it cancels in their ratio. A figure is judged by a confidence interval for the mean of the
logarithms of these ratios (confidence.py). It is worse only if the whole interval lies above the
threshold, and unharmed only if the whole interval lies below it. Everything here is arithmetic on
plain numbers.
"""

import dataclasses
import math
import re
import statistics

from . import confidence

THRESHOLD = 0.05
# The unit is the last word of a name, or the last before a statistic.
STATISTIC = r"(_(mean|median|min|max|p[0-9_]+))?$"
SMALLER_IS_BETTER = re.compile(r"_(ns|us|ms|seconds|bytes)(_per_token)?" + STATISTIC)


def smaller_is_better(figure):
    return SMALLER_IS_BETTER.search(figure) is not None


def worsening(figure, before, after):
    """How many times worse `after` is: 1.1 is a tenth worse, 0.9 better. None: not comparable."""
    if before is None or after is None or before <= 0 or after <= 0:
        return None
    return after / before if smaller_is_better(figure) else before / after


@dataclasses.dataclass
class Judgement:
    figure: str
    before: float  # medians
    after: float
    ratios: list  # of worsening, by pair
    low: float  # the bounds of the ratio: 0 and infinity before the first look
    high: float
    verdict: str  # "worse", "better", "unharmed" or "undecided"

    @property
    def ratio(self):
        return math.exp(statistics.fmean(math.log(ratio) for ratio in self.ratios))


def verdict_of(low, high, threshold):
    """The verdict of an interval of ratios; "undecided" if the threshold lies within it."""
    if low > 1 + threshold:
        return "worse"
    if high < 1 / (1 + threshold):
        return "better"
    return "unharmed" if high < 1 + threshold else "undecided"


def judgement(figure, pairs, threshold):
    """Of one figure, from its values before and after in each pair."""
    before, after = zip(*pairs)
    ratios = [worsening(figure, a, b) for a, b in pairs]
    low, high = confidence.sequential_bounds([math.log(ratio) for ratio in ratios])
    low, high = math.exp(low), math.exp(high)
    return Judgement(
        figure=figure,
        before=statistics.median(before),
        after=statistics.median(after),
        ratios=ratios,
        low=low,
        high=high,
        verdict=verdict_of(low, high, threshold),
    )


def judge(before_runs, after_runs, threshold=THRESHOLD):
    """Judgements on every figure of any run before; each run is a dict from figure to number.

    The i-th run of one side was made beside the i-th of the other. A pair that lacks a figure does
    not count for that figure.
    """
    judgements = []
    for name in dict.fromkeys(name for run in before_runs for name in run):
        pairs = [
            (a[name], b[name])
            for a, b in zip(before_runs, after_runs)
            if worsening(name, a.get(name), b.get(name)) is not None
        ]
        if pairs:
            judgements.append(judgement(name, pairs, threshold))
    return judgements


def lost(before_runs, after_runs):
    """Figures that the first run before has and the first after lacks."""
    return [name for name in before_runs[0] if name not in after_runs[0]]


def with_verdict(judgements, verdict):
    return [j for j in judgements if j.verdict == verdict]


def percent(ratio):
    return f"{(ratio - 1) * 100:+.1f}%"


def table(judgements):
    """The judgements as text, worst first."""
    lines = [f"{'figure':56} {'before':>11} {'after':>11} {'pairs':>5} {'change':>8}"
             f"  {'at least':>8} {'at most':>8}  verdict"]
    for j in sorted(judgements, key=lambda j: -j.ratio):
        bounds = f"{percent(j.low):>8} {percent(j.high):>8}" if j.low > 0 else f"{'?':>8} {'?':>8}"
        lines.append(f"{j.figure:56} {j.before:11.4g} {j.after:11.4g} {len(j.ratios):5}"
                     f" {percent(j.ratio):>8}  {bounds}  {j.verdict}")
    lines.append("change: + is worse; the geometric mean over the pairs. at least, at most: its "
                 f"{confidence.CONFIDENCE:.0%} confidence interval.")
    return "\n".join(lines)
