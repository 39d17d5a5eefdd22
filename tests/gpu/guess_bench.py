#!/usr/bin/env python3
"""What guessing ahead gains a request that is alone: guess_bench.py PACK.

One row of Llama-3.1-8B's shape, greedy and drawn to a few tokens so that its output repeats itself,
and at temperature 1, where it does not; each with up to 8 guesses a step and without, in turns.
Then the same beside seven others. Prints one JSON object a line; run from the repository's root.
"""
import pathlib
import sys
import tempfile

import make_big_checkpoint
from asks_bench import measure, quire
from gpu_server import Server
from serve_bench import say

GUESSES = 8
MOST_TOKENS = 30000  # more than a row that guesses draws until its window ends
# The weights are random: without a bias the greedy output is a loop too, but only after a while.
REPEATS = {"ignore_eos": True, "temperature": 0.0, "logit_bias": {5: 100.0}}
VARIES = {"ignore_eos": True, "temperature": 1.0}


def guesses(server):
    names = ("guessed_tokens_total", "accepted_guesses_total")
    return [server.metric(f"quire_{name}") or 0.0 for name in names]


def compare(server, client, what, rows, options):
    """The ratio of tokens a second with guesses and without, three times each."""
    plain, guessing = [], []
    before = guesses(server)
    for _ in range(3):
        alone = options | {"max_guesses": 0}
        plain.append(measure(server, client, [(rows, alone)], MOST_TOKENS))
        guessing.append(measure(server, client, [(rows, options)], MOST_TOKENS))
    verified, right = (b - a for a, b in zip(before, guesses(server)))

    def rate(runs):
        return sorted(run["tokens_per_second"] for run in runs)[1]

    say(output=what, rows=rows, without=plain, with_guesses=guessing,
        acceptance=round(right / verified, 4) if verified else None,
        guessed=verified, ratio=round(rate(guessing) / rate(plain), 3))


def main():
    pack = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        model = make_big_checkpoint.write_shape("llama-3.1-8b", folder)
        server = Server(pack, "--device", "cuda", "--load-format", "dummy", "--max-num-seqs", "128",
                        "--max-model-len", "32768", "--speculate", str(GUESSES), model=model,
                        patience=120)
        with quire.QuireClient(server.target) as client:
            for rows in (1, 8):
                compare(server, client, "repeats itself", rows, REPEATS)
                compare(server, client, "does not repeat itself", rows, VARIES)
        server.stop()


if __name__ == "__main__":
    main()
