#!/usr/bin/env python3
"""What a request may ask for, and what it costs the others: asks_bench.py PACK.

Rows of Llama-3.1-8B's shape decode without a pause: free ones, ones under a JSON schema, and ones
with the log probabilities of the 20 most likely tokens. Each window lasts three seconds; free rows
and the others take turns, three times, after a first window of free rows that does not count. Then
requests for eight answers to a prompt of 2,048 tokens are compared with requests for one, by the
time to the first token. Prints one JSON object a line; run from the repository's root.
"""
import pathlib
import statistics
import sys
import tempfile
import threading
import time
from random import Random

import make_big_checkpoint
from gpu_server import ROOT, Server
from serve_bench import say

sys.path.insert(0, str(ROOT / "clients/python"))
import quire  # noqa: E402  its path is known now

WINDOW_SECONDS = 3
PROMPT_TOKENS = 2048
MOST_TOKENS = 4000
LONG_LIST = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 200, "maxLength": 300},
            "age": {"type": "integer"},
        },
        "required": ["name", "age"],
    },
    "minItems": 30,
}
FREE = {"ignore_eos": True}
MASKED = {"json_schema": LONG_LIST}
SCORED = {"ignore_eos": True, "top_logprobs": 20}


def counted(server):
    return {name: server.metric(f"quire_{name}") or 0.0
            for name in ("steps_total", "generated_tokens_total", "masks_late_total")}


def measure(server, client, groups, most_tokens=MOST_TOKENS):
    """Steps and tokens a second of rows that ask for `groups`: pairs of a number and options."""
    rows = sum(count for count, _ in groups)

    def ask(options, seed):
        try:
            client.generate_text([5, 6, 7, 8], max_tokens=most_tokens, seed=seed, timeout=120,
                                 **{"temperature": 1.0, **options})
        except quire.QuireError:
            pass  # ended below

    threads = [threading.Thread(target=ask, args=(options, index), daemon=True)
               for index, options in enumerate(o for count, o in groups for _ in range(count))]
    for thread in threads:
        thread.start()
    while server.metric("quire_requests_running") < rows:
        time.sleep(0.05)
    time.sleep(2)  # until masks and prompts are there
    begin, before = time.monotonic(), counted(server)
    time.sleep(WINDOW_SECONDS)
    after, seconds = counted(server), time.monotonic() - begin
    client.abort(everything=True)
    for thread in threads:
        thread.join()
    rates = {name: (after[name] - before[name]) / seconds for name in before}
    return {"steps_per_second": round(rates["steps_total"], 1),
            "tokens_per_second": round(rates["generated_tokens_total"], 1)}


def compare(server, client, what, free, asked):
    measure(server, client, free)
    before, during = [], []
    for _ in range(3):
        before.append(measure(server, client, free))
        during.append(measure(server, client, asked))

    def rate(windows, name):
        return statistics.median(window[name] for window in windows)

    ratios = {name: round(rate(before, name) / rate(during, name), 4)
              for name in ("steps_per_second", "tokens_per_second")}
    say(asked=what, free=before, with_it=during, step_ratio=ratios["steps_per_second"],
        token_ratio=ratios["tokens_per_second"])


def mask_seconds(server):
    """Percentiles of the time to make a mask, from the buckets of its histogram."""
    counts = {}
    for line in server.metrics().splitlines():
        if line.startswith("quire_mask_seconds_bucket"):
            bound = float(line.split('le="')[1].split('"')[0].replace("+Inf", "inf"))
            counts[bound] = counts.get(bound, 0) + float(line.rpartition(" ")[2])
    buckets = sorted(counts.items())
    total = buckets[-1][1] if buckets else 0

    def at(share):
        return next((bound for bound, count in buckets if count >= total * share), 0)

    return {"p50": at(0.5), "p99": at(0.99), "masks": total}


def first_tokens(server, client, answers, seed):
    """Milliseconds until the first token of any answer, and until each has one."""
    random = Random(seed)
    prompt = [random.randrange(1000, 100000) for _ in range(PROMPT_TOKENS)]
    options = {"n": answers} if answers > 1 else {}
    begin, first = time.monotonic(), {}
    for delta in client.generate(prompt, max_tokens=16, temperature=1.0, seed=seed,
                                 ignore_eos=True, **options):
        if delta.token_ids:
            first.setdefault(delta.index or 0, time.monotonic() - begin)
    assert len(first) == answers, first
    return min(first.values()) * 1e3, max(first.values()) * 1e3


def compare_answers(server, client, answers, rounds=30):
    """Requests for one answer and for several, of prompts that are all different, by turns."""
    one, any_of, all_of = [], [], []
    for index in range(rounds + 2):
        single = first_tokens(server, client, 1, 2 * index)[0]
        several = first_tokens(server, client, answers, 2 * index + 1)
        if index < 2:
            continue  # warms up
        one.append(single)
        any_of.append(several[0])
        all_of.append(several[1])

    def figures(values):
        ordered = sorted(values)
        return {"mean": round(sum(ordered) / len(ordered), 2),
                "p50": round(ordered[len(ordered) // 2], 2), "worst": round(ordered[-1], 2)}

    say(answers=answers, prompt_tokens=PROMPT_TOKENS, first_token_ms_of_one=figures(one),
        first_token_ms=figures(any_of), every_first_token_ms=figures(all_of),
        ratio=round(figures(any_of)["p50"] / figures(one)["p50"], 3),
        ratio_of_every=round(figures(all_of)["p50"] / figures(one)["p50"], 3))


def main():
    pack = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        model = make_big_checkpoint.write_shape("llama-3.1-8b", folder)
        server = Server(pack, "--device", "cuda", "--load-format", "dummy", "--max-num-seqs", "128",
                        "--max-model-len", "8192", model=model, patience=120)
        with quire.QuireClient(server.target) as client:
            compare(server, client, "a JSON schema, 64 of 128 rows", [(128, FREE)],
                    [(64, FREE), (64, MASKED)])
            say(mask_seconds=mask_seconds(server))
            compare(server, client, "a JSON schema, 1 row of 1", [(1, FREE)], [(1, MASKED)])
            compare_answers(server, client, 8)
            compare(server, client, "20 most likely tokens, 64 rows", [(64, FREE)], [(64, SCORED)])
        server.stop()


if __name__ == "__main__":
    main()
