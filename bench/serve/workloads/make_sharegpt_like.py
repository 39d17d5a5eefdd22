#!/usr/bin/python3
"""Makes sharegpt_like.jsonl: prompt and output lengths that resemble ShareGPT's conversations.

No quantiles of ShareGPT were ever published, only means: 215 prompt and 179 output tokens for the
pairs that serving benchmarks keep (prompt of 4 to 1,024 tokens, 2,048 together at most, output of
at least 4). This is our own distribution with these means and that filter: both lengths log-normal,
sigma 1.2 and 1.0, their logarithms correlated by 0.3. Call it ShareGPT-like, never ShareGPT.

Times are Poisson at 1 request a second, so that a trace speed of N is a rate of N.

usage: make_sharegpt_like.py [FILE]
The same bytes everywhere: a fixed seed, and no library's generator.
"""

import json
import math
import pathlib
import statistics
import sys

SEED = 20_2407
PAIRS = 2000
MEAN_INPUT, MEAN_OUTPUT = 215, 179
SIGMA_INPUT, SIGMA_OUTPUT = 1.2, 1.0
CORRELATION = 0.3
NORMAL = statistics.NormalDist()


def uniforms(seed):
    """Numbers in (0, 1) by splitmix64."""
    state = seed
    while True:
        state = (state + 0x9E3779B97F4A7C15) % (1 << 64)
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % (1 << 64)
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % (1 << 64)
        z ^= z >> 31
        yield ((z >> 11) + 0.5) / (1 << 53)


def pairs(mu_input, mu_output):
    """The first PAIRS pairs that pass the filter."""
    draw = uniforms(SEED)
    kept = []
    while len(kept) < PAIRS:
        a, b = NORMAL.inv_cdf(next(draw)), NORMAL.inv_cdf(next(draw))
        b = CORRELATION * a + math.sqrt(1 - CORRELATION**2) * b
        length_in = round(math.exp(mu_input + SIGMA_INPUT * a))
        length_out = round(math.exp(mu_output + SIGMA_OUTPUT * b))
        if 4 <= length_in <= 1024 and length_out >= 4 and length_in + length_out <= 2048:
            kept.append((length_in, length_out))
    return kept


def means(kept):
    return [sum(column) / len(kept) for column in zip(*kept)]


def fit():
    """The pairs whose means after the filter are the published ones, to within half a token."""
    mu = [math.log(MEAN_INPUT), math.log(MEAN_OUTPUT)]
    for _ in range(200):
        kept = pairs(*mu)
        mean_input, mean_output = means(kept)
        if abs(mean_input - MEAN_INPUT) < 0.5 and abs(mean_output - MEAN_OUTPUT) < 0.5:
            return kept
        # Truncation makes the mean grow slower than exp(mu): a step of the logarithm is too short,
        # never too long.
        mu[0] += math.log(MEAN_INPUT / mean_input)
        mu[1] += math.log(MEAN_OUTPUT / mean_output)
    raise SystemExit("make_sharegpt_like.py: the means cannot be met")


def main():
    here = pathlib.Path(__file__).resolve().parent
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "sharegpt_like.jsonl"
    gaps = uniforms(SEED + 1)
    seconds = 0.0
    lines = []
    for length_in, length_out in fit():
        row = {
            "arrival_s": round(seconds, 3),
            "input_length": length_in,
            "output_length": length_out,
        }
        lines.append(json.dumps(row))
        seconds -= math.log(next(gaps))
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
