"""Confidence bounds for a mean that is looked at several times while numbers come in.

Each look uses Student's t interval. It needs numbers that are roughly normal and independent, which
logarithms of ratios of neighbouring runs are. A sign test or a bootstrap would not need normality,
but a sign test takes half as many pairs again, and a bootstrap of six numbers does not keep its
promise. One far outlier widens the interval: the answer is then "undecided", not wrong.

Stopping as soon as the answer pleases errs more often than one interval says. So looks are fixed
in advance, at 6, 8, 12, 18, 26 and 40 numbers, and share the risk evenly (Bonferroni): all six
intervals hold together with 95 %, whenever the looking stops. The bounds are the overlap of all
intervals so far, so a verdict, once reached, stays. The looks are even numbers, because pairs are
run A B, B A: an advantage of the first run of a pair cancels.
"""

import functools
import math
import statistics

CONFIDENCE = 0.95
LOOKS = (6, 8, 12, 18, 26, 40)


def t_distribution(t, freedom):
    """P(|T| < t) of Student's t with a whole number of degrees of freedom (Abramowitz and Stegun,
    26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2 == 1
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range(freedom // 2):
        total += term
        step = (2 * k + 2) / (2 * k + 3) if odd else (2 * k + 1) / (2 * k + 2)
        term *= step * cosine * cosine
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@functools.cache
def t_quantile(confidence, freedom):
    """The t with P(|T| < t) = confidence, to 1e-9 of itself."""
    low, high = 0.0, 1.0
    while t_distribution(high, freedom) < confidence:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if t_distribution(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return high


def interval(values, confidence):
    """Student's two-sided interval for the mean of at least two values."""
    mean = statistics.fmean(values)
    error = statistics.stdev(values) / math.sqrt(len(values))
    reach = t_quantile(confidence, len(values) - 1) * error
    return mean - reach, mean + reach


def sequential_bounds(values):
    """Bounds of the mean from the looks that `values`, in the order in which they came, allow; the
    infinities before the first look."""
    low, high = -math.inf, math.inf
    each = 1 - (1 - CONFIDENCE) / len(LOOKS)
    for look in LOOKS:
        if look <= len(values):
            ends = interval(values[:look], each)
            low, high = max(low, ends[0]), min(high, ends[1])
    return low, high


def next_look(count):
    """The number of values at the first look after `count` of them; None after the last."""
    return next((look for look in LOOKS if look > count), None)
