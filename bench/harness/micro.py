"""The benchmarks that are programs of their own: the command of each, and the figures among the
numbers that it prints.

A point of a result is {"label", "figures", "judged"}: judged are the figures that compare judges.
"""

import json
import sys

from . import machine, process

GOOGLE = ["--benchmark_format=json"]
SCRIPTS = machine.ROOT / "bench" / "serve"

# name -> ninja targets, command below the build directory, timeout in seconds
PROGRAMS = {
    "scheduler": (["scheduler_bench"], lambda b: [b / "bench/scheduler_bench"], 120),
    "session": (["session_bench"], lambda b: [b / "bench/session_bench"], 120),
    "prefix_tree": (["prefix_tree_bench"], lambda b: [b / "bench/prefix_tree_bench"], 120),
    "copy": (["copy_bench"], lambda b: [b / "bench/copy_bench"], 120),
    "stream": (["stream_bench"], lambda b: [b / "bench/stream_bench"], 120),
    "tokenizer": (
        ["tokenizer_bench"],
        lambda b: [sys.executable, SCRIPTS / "tokenizer_bench.py", b],
        1200,
    ),
    "demo": (
        ["demo_bench", "quire-server"],
        lambda b: [b / "bench/demo_bench", b / "bin/quire-server"],
        120,
    ),
    "matmul": (["matmul_bench"], lambda b: [b / "bench/matmul_bench", *GOOGLE], 300),
    "paged_attention": (
        ["paged_attention_bench"],
        lambda b: [b / "bench/paged_attention_bench", *GOOGLE],
        300,
    ),
    "sample": (["sample_bench"], lambda b: [b / "bench/sample_bench", *GOOGLE], 300),
}


# Status 1 of these means that a limit in time was passed: a busy machine, and no wrong answer.
OVER_LIMIT = {"scheduler"}


def parse(output):
    """One JSON document, or one JSON object a line."""
    try:
        return json.loads(output)
    except json.JSONDecodeError:
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def point(label, figures, judged):
    figures = {k: v for k, v in figures.items() if isinstance(v, (int, float))}
    return {"label": label, "figures": figures, "judged": [k for k in judged if k in figures]}


def google_points(name, document):
    """Of a Google Benchmark document; a wrong result is an error of the whole run."""
    points = []
    for entry in document["benchmarks"]:
        if entry.get("error_occurred"):
            raise process.BenchError(f"{name}: {entry['name']}: {entry.get('error_message')}")
        figures = {"time_ns": entry["real_time"]}
        for counter in ("GB/s", "GFLOP/s", "of_read", "of_fma_peak", "of_one_pass"):
            if counter in entry:
                figures[counter] = entry[counter]
        points.append(point(entry["name"], figures, ["time_ns"]))
    return points


def scheduler_points(rows):
    for row in rows:
        if row["allocations_per_step"] > 0:
            raise process.BenchError("scheduler: a step allocates")
        figures = {"step_us_p50": row["p50_us"], "step_us_p99": row["p99_us"]}
        figures["add_us_p50"] = row["add_p50_us"]
        figures["allocations_per_step"] = row["allocations_per_step"]
        label = f"waiting {row['waiting']}, idle sessions {row['idle_sessions']}"
        yield point(label, figures, ["step_us_p50", "step_us_p99"])


def session_points(rows):
    for row in rows:
        judged = ["resident_ms", "restored_ms", "recomputed_ms"]
        yield point(f"{row['tokens']} tokens, {row['outcome']}", row, judged)


def prefix_tree_points(rows):
    for row in rows:
        judged = [k for k in row if k.endswith(("_us", "_ns"))]
        what = "map" if "kv_map_us" in row else row.get("lookup", "replaced")
        yield point(f"blocks of {row['block_size']}, {what}", row, judged)


def copy_points(rows):
    for row in rows:
        label = f"{row['what']}, ranks as {row['ranks']}, blocks of {row['block_bytes']}"
        yield point(label, row, ["gbps", "fraction"])


def stream_points(rows):
    for row in rows:
        pace = row["paced_tokens_per_second"]
        figures = dict(row)
        # Latency under a pace is too small a share of a fast machine's time to be judged.
        judged = ["tokens_per_second", "server_cpu_us_per_token"]
        yield point(f"paced {pace}" if pace else "unpaced", figures, judged)


def tokenizer_points(document):
    figures = {k: v for k, v in document["documents"].items() if k not in ("bytes", "tokens")}
    figures["times_the_package"] = document.get("ratio")
    judged = ["encode_mb_per_s", "encode_with_offsets_mb_per_s", "detokenize_ns_per_token"]
    yield point(f"documents, vocabulary {document['vocabulary']}", figures, judged)
    for row in document.get("shapes", []):
        label = f"documents, {row['shape']}, vocabulary {row['vocabulary']}"
        names = ("load_ms", "encode_mb_per_s", "encode_with_offsets_mb_per_s")
        yield point(label, {name: row[name] for name in names}, ["encode_mb_per_s"])
    for row in document["one_letter"]:
        figures = {"ns_per_byte_64k": row["kb_64_ns_per_byte"]}
        figures["ns_per_byte_1m"] = row["kb_1024_ns_per_byte"]
        yield point(f"one letter {row['unit']!r}", figures, [])


def demo_points(document):
    row = document[0] if isinstance(document, list) else document
    judged = ["alone_tokens_per_second", "together_tokens_per_second"]
    yield point("demo model", row, judged)


def points_of(name, document):
    if name == "scheduler":
        return list(scheduler_points(document))
    if name == "session":
        return list(session_points(document))
    if name == "prefix_tree":
        return list(prefix_tree_points(document))
    if name == "copy":
        return list(copy_points(document))
    if name == "stream":
        return list(stream_points(document))
    if name == "tokenizer":
        return list(tokenizer_points(document))
    if name == "demo":
        return list(demo_points(document))
    return google_points(name, document)


def execute(name, build):
    """The points of one run."""
    _, command, timeout = PROGRAMS[name]
    done = process.run(command(build), timeout)
    if done.status != 0 and not (done.status == 1 and name in OVER_LIMIT):
        last = "\n".join(done.stderr.splitlines()[-10:])
        raise process.BenchError(f"{name} ended with status {done.status}\n{last}")
    return points_of(name, parse(done.stdout))
