"""Judges a build against another by pairs of runs made one after the other on one machine.

A figure of one run says little: machines are shared, clocks move. What two neighbouring runs share
cancels in their ratio, so a figure counts as worse only when the ratio says so in every pair, of
three at least. Everything here is arithmetic on plain numbers.
"""

import dataclasses
import re
import statistics

THRESHOLD = 0.05
PAIRS = 3
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


def spread(values):
    """The noise band: how far apart runs of one build lie, as a share of the least."""
    return max(values) / min(values) - 1 if values and min(values) > 0 else 0.0


@dataclasses.dataclass
class Judgement:
    figure: str
    before: float  # medians
    after: float
    ratios: list  # of worsening, by pair
    band: float  # the wider of the two builds' spreads
    verdict: str  # "worse", "better", "equal", or "undecided": fewer than PAIRS pairs

    @property
    def ratio(self):
        return statistics.median(self.ratios) if self.ratios else None


def verdict_of(ratios, threshold):
    if len(ratios) < PAIRS:
        return "undecided"
    if min(ratios) > 1 + threshold:
        return "worse"
    if max(ratios) < 1 / (1 + threshold):
        return "better"
    return "equal"


def judgement(figure, pairs, threshold):
    """Of one figure, from its values before and after in each pair."""
    before, after = zip(*pairs)
    ratios = [worsening(figure, a, b) for a, b in pairs]
    return Judgement(
        figure=figure,
        before=statistics.median(before),
        after=statistics.median(after),
        ratios=ratios,
        band=max(spread(before), spread(after)),
        verdict=verdict_of(ratios, threshold),
    )


def judge(before_runs, after_runs, threshold=THRESHOLD):
    """Judgements on every figure of the first run; each run is a dict from figure to number.

    The i-th run of one side was made beside the i-th of the other. A pair that lacks a figure says
    nothing of it.
    """
    judgements = []
    for name in before_runs[0] if before_runs else []:
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


def regressions(judgements):
    return [j for j in judgements if j.verdict == "worse"]


def table(judgements):
    """The judgements as text, worst first."""
    columns = f"{'figure':56} {'before':>11} {'after':>11}  {'change in each pair':24}"
    lines = [columns + " noise   verdict"]
    for j in sorted(judgements, key=lambda j: -j.ratio):
        pairs = " ".join(f"{(ratio - 1) * 100:+.1f}%" for ratio in j.ratios)
        lines.append(
            f"{j.figure:56} {j.before:11.4g} {j.after:11.4g}  {pairs:24}"
            f" {j.band * 100:4.1f} %  {j.verdict}"
        )
    lines.append("change: + is worse. noise: how far runs of one build lie apart.")
    return "\n".join(lines)
