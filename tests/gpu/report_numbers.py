"""The summary of a report: each number beside its limit (must), its target (aim) and its floor."""

# name, unit, must, aim, bench, key values of its line, value field, floor field. A field may be a
# function, which takes the line and all lines of its benchmark.
STEP, SERVE, ATTENTION = "step_gpu_bench", "serve_bench", "paged_attention_gpu_bench"
SESSION, LOAD = "session_bench", "load_bench"
BIG = "llama-3.1-8b"


def over_the_largest(line, _):
    """Memory of all captures beyond the largest and its buffers, in percent of these two."""
    alone = line["shared_bytes"] + line["largest_bytes"]
    return 100 * (line["bytes"] - line["largest_bytes"]) / alone


def decode(model, batch, must=None, aim=None):
    return (f"{model} decode, batch {batch}, 1k context", "ms", must, aim, STEP,
            {"model": model, "decode_batch": batch}, "step_ms", "floor_ms")


def start(what, must=None, aim=None):
    return (f"exec to READY: {what}", "s", must, aim, SERVE, {"start": what}, "seconds", None)


def back(kv, must=None, aim=None):
    return (f"first token of an idle 8k conversation, KV {kv}", "ms", must, aim, SESSION,
            {"idle_tokens": 8192, "kv": kv}, "ttft_ms", None)


def whole_run(line, lines):
    """All tokens received with host memory over those without, in runs of the same length."""
    runs = [other for other in lines if other.get("think_seconds") == line["host_over_none"]]
    tokens = {run["host_gib"] > 0: sum(run["timeline"]["tokens"]) for run in runs}
    return tokens[True] / tokens[False] if len(tokens) == 2 else None


def host_over_none(think):
    """Conversations whose KV is three times the pool, with host memory over without."""
    keys, name = {"host_over_none": think}, f"conversations, {think} s of thought, host over none"
    first = f"{name}: first token, later turns"
    return [(f"{name}: output tokens, settled part", "x", -2, -2, SESSION, keys, "output_tokens",
             None),
            (f"{name}: output tokens, whole run", "x", *{10: (-1.4, -1.5), 6: (-1.6, -1.8)}[think],
             SESSION, keys, whole_run, None),
            (f"{first}, p50", "x", 0.25, 0.25, SESSION, keys,
             lambda line, _: line["ttft_later"]["p50"], None),
            (f"{first}, mean", "x", None, None, SESSION, keys,
             lambda line, _: line["ttft_later"]["mean"], None),
            (f"{first}, p99", "x", None, None, SESSION, keys,
             lambda line, _: line["ttft_later"]["p99"], None)]


def conversations(name, tokens, **first_token):
    """Conversations on the host's memory: output tokens a second, and the first token of later
    turns in milliseconds. Each limit is a pair: must, aim."""
    keys = {"conversations": name}
    rows = [(f"{name}: output tokens, whole run", "/s", -tokens[0], -tokens[1], SESSION, keys,
             "whole_run_tokens_per_second", None)] if tokens else []
    for figure in ("mean", "p50", "p90", "p99"):
        must, aim = first_token.get(figure, (None, None))
        rows.append((f"{name}: first token of later turns, {figure}", "ms", must, aim, SESSION,
                     keys, lambda line, _, figure=figure: line["ttft_later_ms"][figure], None))
    rows.append((f"{name}: times that health turned off", "", 0, 0, SESSION, keys, "health_off",
                 None))
    return rows


FAMILY_STEPS = "family_step_bench"
FAMILIES = ("gemma-2-9b", "phi-4", "mistral-small-24b", "qwen3-32b")


def of_family(model):
    """Steps of a further family: each beside its floor, and the floor's share of it."""
    steps = [(f"{model} decode, batch {batch}, 1k context", {"model": model, "decode_batch": batch},
              "step_ms", limits) for batch, limits in ((1, (-0.85, -0.92)), (64, (-0.75, -0.85)))]
    steps.append((f"{model} prefill 2k", {"model": model, "prefill": 2048}, "ms", (-0.75, -0.85)))
    rows = []
    for name, keys, field, limits in steps:
        rows.append((name, "ms", None, None, FAMILY_STEPS, keys, field, "floor_ms"))
        rows.append((f"{name}: floor over time", "x", *limits, FAMILY_STEPS, keys, "fraction",
                     None))
    return rows


def load(name, must, aim):
    """Output tokens a second of the server under a load of load_bench."""
    return (f"load, {name}: output tokens", "/s", -must, -aim, LOAD, {"load": name},
            "output_throughput", None)


STEP_2, GROUP, HUGE = "step_gpu_bench x2", "group_gpu_bench", "llama-3.1-70b"


def summed(what, rows, must=None, aim=None):
    """One collective of 8192 bf16 a row between two GPUs, with NCCL's time in place of a floor."""
    nccl = {"ranks": 2, "collective": what, "method": "nccl", "rows": rows}
    return (f"2 GPUs: {what}, {rows} x 8192", "us", must, aim, GROUP, nccl | {"method": "one-shot"},
            "us", lambda _, lines: find(lines, nccl)["us"])


def on_two(number):
    """The same number of a step on two GPUs."""
    return (f"2 GPUs: {number[0]}", *number[1:4], STEP_2, *number[5:])


NUMBERS = [
    decode(BIG, 1, 4.6, 3.85),
    decode(BIG, 8, 5.0, 4.1),
    decode(BIG, 64, 7.5, 6.5),
    decode(BIG, 256, 16.8, 15.0),
    *[decode(f"{BIG}-fp8", batch) for batch in (1, 64, 256)],
    decode(f"{BIG}-fp8-fp8kv", 1, 2.25, 2.05),
    decode(f"{BIG}-fp8-fp8kv", 64, 3.7, 3.2),
    decode(f"{BIG}-fp8-fp8kv", 256, 9.3, 8.0),
    *[(f"{BIG}-fp8-fp8kv prefill {tokens // 1024}k", "ms", *limits, STEP,
       {"model": f"{BIG}-fp8-fp8kv", "prefill": tokens}, "ms", "floor_ms")
      for tokens, limits in ((2048, (33, 29)), (8192, (148, 132)))],
    decode(f"{BIG}-int4", 1, 1.6, 1.35),
    *[decode(f"{BIG}-{form}", batch) for form, batches in
      (("int4", (64, 256)), ("fp8blocks", (1, 64, 256)), ("int8", (1, 64, 256)),
       ("w8a8", (1, 64, 256))) for batch in batches],
    decode(f"{HUGE}-fp8-fp8kv", 1, 19, 17.5),
    decode(f"{HUGE}-fp8-fp8kv", 64),
    *[(f"{BIG}-fp8 prefill {tokens // 1024}k", "ms", None, None, STEP,
       {"model": f"{BIG}-fp8", "prefill": tokens}, "ms", "floor_ms") for tokens in (2048, 8192)],
    ("decode attention, 64 x 4k", "us", 300, 258, ATTENTION,
     {"sequences": 64, "context": 4096, "queries": 1, "block": 64}, "us", "floor_us"),
    (f"{BIG} prefill 2k", "ms", 48, 44, STEP, {"model": BIG, "prefill": 2048}, "ms", "floor_ms"),
    (f"{BIG} prefill 8k", "ms", 226, 190, STEP, {"model": BIG, "prefill": 8192}, "ms", "floor_ms"),
    ("GPU idle between decode steps, batch 256", "us", 35, 10, STEP,
     {"model": BIG, "decode_batch": 256}, "idle_us", None),
    ("all graphs: capture", "ms", 2000, 500, STEP, {"model": BIG, "graphs": None}, "capture_ms",
     None),
    ("all graphs: memory over the largest alone", "%", 10, 5, STEP, {"model": BIG, "graphs": None},
     over_the_largest, None),
    start("dummy", 5, 1.5),
    start("dummy, first of all"),
    start("safetensors", 10, 4),
    start("safetensors, to 8 bits"),
    ("16 GB made 8-bit while loading", "s", 8, 4, SERVE, {"start": "safetensors, to 8 bits"},
     lambda line, _: line["worker"]["load"], None),
    load("bf16 2048/128", 2270, 2470),
    load("bf16 1000/1000", 10900, 11600),
    load("bf16 128/2048", 16000, 16700),
    load("fp8 1000/1000", 17500, 20500),
    ("load, bf16 poisson 1024/256: mean time per token", "ms", 18, 14, LOAD,
     {"load": "bf16 poisson 1024/256"}, "mean_tpot_ms", None),
    ("offline 1000 in, 1000 out, output tokens", "/s", -12000, -16600, SERVE,
     {"offline": "1000 in, 1000 out"}, "output_tokens_per_second", None),
    back("on the device"),
    back("on the host", 35, 25),
    back("in a file", 180, 80),
    back("nowhere"),
    ("exec to READY with 74.5 GiB of host memory", "s", 5, 2, SESSION,
     {"conversations": "first minute"}, "seconds_to_ready", None),
    *conversations("first minute", (900, 1000), p50=(500, 150), p99=(4000, 2000)),
    *conversations("first 40 s, saturated", (1150, 1250), mean=(1200, 900)),
    *conversations("steady", None, mean=(250, 120), p90=(700, 300), p99=(1600, 800)),
    *host_over_none(10),
    *host_over_none(6),
    ("restores beside conversations", "GB/s", -45, -52, SESSION,
     {"think_seconds": 6, "host_gib": 74.5},
     lambda line, _: line["copies"]["load_gb_per_second"], None),
    *[(f"throughput with a trace over without, {rows} rows", "x", -0.99, -1, "trace_bench",
       {"rows": rows}, "traced_over_plain", None) for rows in (256, 1)],
    ("a scrape beside 256 rows, longest of 50", "ms", 2, 1, "trace_bench", {"rows": 256},
     lambda line, _: line["scrape_milliseconds"]["max"], None),
    decode("llama-3.2-1b", 1, 0.8, 0.66),
    decode("llama-3.2-1b", 256),
    decode("qwen2.5-0.5b", 1),
    decode("qwen2.5-0.5b", 256),
    *[row for model in FAMILIES for row in of_family(model)],
    summed("sum", 1, 4.1, 3),
    summed("sum", 32, 8.9, 7),
    summed("sum and norm", 1, 6, 4),
    summed("sum and norm", 64, 12, 9),
    summed("sum", 1024),
    ("2 GPUs: activation memory of a rank over its share's alone", "x", 1, 1, STEP_2,
     {"model": HUGE, "activation_bytes": None},
     lambda line, _: line["activation_bytes"] / line["of_its_share_alone"], None),
    *[on_two(decode(BIG, batch)) for batch in (1, 8, 64, 256)],
    *[on_two(decode(HUGE, batch)) for batch in (1, 8, 64, 256)],
    ("2 GPUs over one: 8B decode, batch 1", "x", -1.5, -1.75, STEP_2,
     {"model": BIG, "decode_batch": 1}, lambda line, lines:
     find(lines, {"model": BIG, "alone_decode_batch": 1})["step_ms"] / line["step_ms"], None),
    *[(f"2 GPUs: exec to READY, {model} dummy", "s", *limits, "group_serve_bench",
       {"ranks": 2, "model": model, "start": "next"}, "seconds", None)
      for model, limits in ((BIG, (None, None)), (HUGE, (10, 4)))],
    ("2 GPUs: kill of a rank to a whole answer, 8B", "s", 20, 5, "group_serve_bench",
     {"ranks": 2, "model": BIG, "killed_rank": None}, "seconds_to_an_answer", None),
    ("2 GPUs: 70B offline 1000 in, 1000 out, output tokens", "/s", None, None, "group_serve_bench",
     {"ranks": 2, "model": HUGE, "offline": None}, "output_tokens_per_second", None),
    *[on_two((f"{model} prefill 8k", "ms", None, None, STEP, {"model": model, "prefill": 8192},
              "ms", "floor_ms")) for model in (BIG, HUGE)],
]


def find(lines, keys):
    """The first line that has the keys, with these values where they are not None."""
    for line in lines:
        if all(key in line and value in (None, line[key]) for key, value in keys.items()):
            return line
    return None


def verdict(value, must, aim):
    """A limit below zero belongs to a number that should be large."""
    if must is None:
        return ""
    if must < 0:
        value = -value
    return "aim" if value <= aim else "must" if value <= must else "MISSED"


def collect(benches):
    """The entries of NUMBERS that the benchmarks' lines have. Lines of servers with further flags
    compare settings; they are no numbers of the default."""
    found = []
    for name, unit, must, aim, bench, keys, field, floor_field in NUMBERS:
        lines = [line for line in benches.get(bench, {}).get("result", []) if "flags" not in line]
        line = find(lines, keys)
        if line is None:
            continue
        value = field(line, lines) if callable(field) else line.get(field)
        if value is None:
            continue
        entry = {"name": name, "value": round(value, 3), "unit": unit}
        if must is not None:
            entry |= {"must": abs(must), "aim": abs(aim), "reached": verdict(value, must, aim)}
        if floor_field is not None:
            floor = floor_field(line, lines) if callable(floor_field) else line[floor_field]
            entry["floor"] = floor
        found.append(entry)
    return found


def missed(numbers):
    """A sentence for each number that does not reach its limit."""
    return [f"{number['name']}: {number['value']:g} {number['unit']}, limit {number['must']:g}"
            for number in numbers if number.get("reached") == "MISSED"]


def table(numbers):
    rows = [("", "measured", "", "floor", "must", "aim", "")]
    for number in numbers:
        rows.append((number["name"], f"{number['value']:g}", number["unit"],
                     f"{number.get('floor', ''):}", f"{number.get('must', ''):}",
                     f"{number.get('aim', ''):}", number.get("reached", "")))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
                     for row in rows)
