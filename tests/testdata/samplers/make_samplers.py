"""Writes samplers.txt: exact probabilities of draws, for tests/kernels/sample_filters_test.cc.

Each sampler is written as its source describes it, in double arithmetic and with sorting, not in
the form of kernels/sampling.h:
- typical_p: Meister et al., "Locally Typical Sampling" (2022), algorithm of its section 4.
- top_n_sigma: Tang et al., "Top-n-sigma: Not All Logits Are You Need" (2024), algorithm 1.
- XTC: exclude the top choices above the threshold, but the last of them (p-e-w, 2024).
- DRY: the longest match that precedes a token, base^(length - allowed) (p-e-w, 2024).
- dynamic temperature: entropy over its maximum, to a power, between two temperatures (kalomaze).
The order is the one that inference.proto states.

Usage: make_samplers.py > samplers.txt
"""

import math
import random

OFF = float("-inf")


def softmax(logits):
    top = max(logits)
    weights = [math.exp(l - top) for l in logits]
    total = sum(weights)
    return [w / total for w in weights]


def dry(logits, tokens, c):
    """Subtracts a penalty from every token that would prolong a repetition."""
    window = tokens[-c["dry_last_n"]:] if c.get("dry_last_n") else tokens
    breakers = set(c.get("breakers", ()))
    longest = {}
    for i in range(1, len(window)):
        if window[i] in breakers:
            continue
        length = 0
        while length < 50 and length < i:
            here, last = window[i - 1 - length], window[len(window) - 1 - length]
            if here != last or last in breakers:
                break
            length += 1
        longest[window[i]] = max(longest.get(window[i], 0), length)
    allowed = c.get("dry_allowed_length", 2)
    for token, length in longest.items():
        if length >= allowed:
            logits[token] -= c["dry_multiplier"] * c.get("dry_base", 1.75) ** (length - allowed)


def edit(c):
    """The logits before the draw."""
    logits = list(c["logits"])
    for token, value in c.get("bias", ()):
        logits[token] += value
    tokens = c.get("tokens", [])
    for word in c.get("bad_words", ()):
        before = word[:-1]
        if not before or tokens[-len(before):] == before:
            logits[word[-1]] = OFF
    if c.get("allowed"):
        logits = [l if i in c["allowed"] else OFF for i, l in enumerate(logits)]
    if c.get("dry_multiplier"):
        dry(logits, tokens, c)
    return logits


def temper(logits, c):
    """top_n_sigma, then temperature."""
    if c.get("top_n_sigma"):
        possible = [l for l in logits if l > OFF]
        mean = sum(possible) / len(possible)
        sigma = math.sqrt(sum((l - mean) ** 2 for l in possible) / len(possible))
        least = max(logits) - c["top_n_sigma"] * sigma
        logits = [l if l >= least else OFF for l in logits]
    temperature = c.get("temperature", 1.0)
    if c.get("dynatemp_range"):
        p = [x for x in softmax(logits) if x > 0]
        entropy = -sum(x * math.log(x) for x in p)
        low, high = temperature - c["dynatemp_range"], temperature + c["dynatemp_range"]
        share = entropy / math.log(len(p)) if len(p) > 1 else 0.0
        temperature = max(low + (high - low) * share ** c.get("dynatemp_exponent", 1.0), 2**-10)
    return [l / temperature for l in logits]


def keep(p, kept):
    """Renormalises over the kept tokens."""
    total = sum(p[i] for i in kept)
    return [p[i] / total if i in kept else 0.0 for i in range(len(p))]


def until(order, p, share):
    """The first tokens in this order whose probabilities reach the share."""
    kept, total = set(), 0.0
    for i in order:
        if total >= share:
            break
        kept.add(i)
        total += p[i]
    return kept


def likeliest(p):
    return sorted((i for i in range(len(p)) if p[i] > 0), key=lambda i: -p[i])


def filtered(p, c):
    """top_k, top_p, min_p, typical_p."""
    if c.get("top_k"):
        p = keep(p, set(likeliest(p)[: c["top_k"]]))
    if c.get("top_p"):
        p = keep(p, until(likeliest(p), p, c["top_p"]))
    if c.get("min_p"):
        p = keep(p, {i for i in likeliest(p) if p[i] >= c["min_p"] * max(p)})
    if c.get("typical_p"):
        entropy = -sum(x * math.log(x) for x in p if x > 0)
        order = sorted(likeliest(p), key=lambda i: abs(-math.log(p[i]) - entropy))
        p = keep(p, until(order, p, c["typical_p"]))
    return p


def without_top_choices(p, threshold):
    above = [i for i in likeliest(p) if p[i] >= threshold]
    return keep(p, set(likeliest(p)) - set(above[:-1]))


def probabilities(c):
    p = filtered(softmax(temper(edit(c), c)), c)
    chance = c.get("xtc_probability", 0.0)
    if chance == 0.0:
        return p
    other = without_top_choices(p, c.get("xtc_threshold", 0.1))
    return [(1 - chance) * a + chance * b for a, b in zip(p, other)]


def cases():
    # A loop of three with a breaker, 9, in an earlier round; the longest match is of 5 tokens.
    loop = [7, 3, 4, 5, 9, 3, 4, 5, 1, 3, 4, 5, 3, 4, 5, 3, 4]
    dry_loop = {"tokens": loop, "dry_multiplier": 0.8}
    return [
        ("typical", {"typical_p": 0.4}),
        ("typical_wide", {"typical_p": 0.85, "temperature": 1.5}),
        ("typical_of_nucleus", {"typical_p": 0.5, "top_p": 0.9, "top_k": 10}),
        ("sigma", {"top_n_sigma": 1.0}),
        ("sigma_hot", {"top_n_sigma": 1.5, "temperature": 3.0}),
        ("sigma_of_allowed", {"top_n_sigma": 0.8, "allowed": [1, 2, 5, 6, 9, 12, 15]}),
        ("xtc", {"xtc_probability": 0.5, "xtc_threshold": 0.1}),
        # Token 1 is excluded and token 0 not, so token 0's noise must not depend on the coin.
        ("xtc_coin", {"xtc_probability": 0.5, "xtc_threshold": 0.3,
                      "logits": [2.0, 2.4] + [-1.0] * 14}),
        ("xtc_always", {"xtc_probability": 1.0, "xtc_threshold": 0.05, "min_p": 0.02}),
        ("xtc_of_typical", {"xtc_probability": 0.3, "typical_p": 0.8, "temperature": 1.3}),
        ("xtc_none_above", {"xtc_probability": 1.0, "xtc_threshold": 0.5, "temperature": 5.0}),
        ("dynatemp", {"temperature": 1.0, "dynatemp_range": 0.8}),
        ("dynatemp_power", {"temperature": 1.2, "dynatemp_range": 1.2, "dynatemp_exponent": 2.5}),
        ("dynatemp_flat", {"dynatemp_range": 0.5, "dynatemp_exponent": 0.0}),
        ("dynatemp_of_sigma", {"temperature": 2.0, "dynatemp_range": 1.5, "top_n_sigma": 1.2}),
        ("dry", dry_loop),
        ("dry_breaker", dry_loop | {"breakers": [9, 1], "dry_base": 1.2}),
        ("dry_breaks_at_once", dry_loop | {"breakers": [4]}),
        ("dry_breaker_is_free", {"tokens": [1, 2, 9, 4, 1, 2, 5, 1, 2], "breakers": [9],
                                 "bias": [(9, 3.0)], "dry_multiplier": 1.5}),
        ("dry_window", dry_loop | {"dry_last_n": 6, "dry_allowed_length": 1}),
        ("dry_all_known", {"tokens": [2] * 80, "dry_multiplier": 0.001, "dry_base": 1.15}),
        ("bad_words", {"tokens": [8, 3, 4], "bad_words": [[6], [3, 4, 5], [4, 7], [4, 4, 2],
                                                          [9, 8, 3, 4, 1]]}),
        ("allowed", {"allowed": [0, 4, 7, 11], "bias": [(4, 1.0), (5, 20.0)]}),
        ("everything", dry_loop | {
            "dry_base": 1.1, "bad_words": [[0], [4, 1]], "bias": [(2, 0.5), (13, 1.0)],
            "allowed": list(range(14)), "top_n_sigma": 2.0, "temperature": 1.1,
            "dynatemp_range": 0.4, "top_k": 12, "top_p": 0.97, "min_p": 0.01, "typical_p": 0.9,
            "xtc_probability": 0.4, "xtc_threshold": 0.15}),
    ]  # fmt: skip


def main():
    values = random.Random(20)
    for name, c in cases():
        c.setdefault("logits", [round(values.gauss(0, 1.4), 4) for _ in range(16)])
        print("case", name)
        for key, value in c.items():
            if not isinstance(value, (list, tuple)):
                print("set", key, value)
        print("tokens", *c.get("tokens", []))
        print("bias", *(x for pair in c.get("bias", ()) for x in pair))
        print("bad_words", *(x for w in c.get("bad_words", ()) for x in w[:-1] + [~w[-1]]))
        print("allowed", *c.get("allowed", []))
        print("breakers", *c.get("breakers", []))
        print("logits", *c["logits"])
        print("p", *(f"{x:.12g}" for x in probabilities(c)))


if __name__ == "__main__":
    main()
