#!/usr/bin/env python3
"""Llama-3.1-8B's shape under load, over gRPC: load_bench.py PACK [--flags FLAGS]... [NAME...].

Loads without a rate send all requests at once; "poisson" sends them at 24 a second and "sparse" at
16. "bf16" and "fp8" are the server's weights and KV cache; --quantization makes the 8-bit weights.
A NAME, such as fp8 or "fp8 1000/1000", chooses the loads that begin with it. FLAGS, in one word,
are further ones of the server; each --flags is a server of its own, so that settings are compared
on one machine, which differs from others by more than they do. Prints one JSON object a line; run
from the repository's root.
"""
import argparse
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile
from typing import NamedTuple, Optional

import make_big_checkpoint
from gpu_server import Server
from serve_bench import Gauge, say

MODEL = "llama-3.1-8b"
HOST_MEMORY = ("--kv-offloading-size", "16")  # GiB; a quarter of the machine if not said
SERVERS = {
    "bf16": HOST_MEMORY + ("--max-num-seqs", "512"),
    "fp8": HOST_MEMORY + ("--max-num-seqs", "512", "--quantization", "fp8",
                          "--kv-cache-dtype", "fp8"),
}
SHOWN = ("output_throughput", "mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms",
         "mean_itl_ms", "p99_itl_ms")


class Load(NamedTuple):
    name: str
    prompt: int
    output: int
    requests: int
    rate: Optional[float] = None  # of requests a second


LOADS = (
    Load("2048/128", 2048, 128, 1024),
    Load("poisson 1024/256", 1024, 256, 1200, 24.0),
    Load("sparse 1024/256", 1024, 256, 640, 16.0),
    Load("1000/1000", 1000, 1000, 1536),
    Load("128/2048", 128, 2048, 1024),
)


def put(pack, server, load):
    """The facts of one load, by quire-load. Its seed is its own: with one seed, prompts of one load
    begin like those of another, whose KV the server may still have."""
    preempted = server.metric("quire_preemptions_total")
    with tempfile.TemporaryDirectory() as results, Gauge() as gauge:
        rate = ("--request-rate", str(load.rate)) if load.rate else ()
        done = subprocess.run(
            [pack / "bin/quire-load", "--server", server.target, "--ignore-eos", "--no-text",
             "--temperature", "0", "--seed", str(1 + LOADS.index(load)), "--quiet",
             "--num-prompts", str(load.requests),
             "--random-input-len", str(load.prompt), "--random-output-len", str(load.output),
             "--time-limit", "300", "--result-dir", results, "--result-filename", "run.json",
             *rate],
            capture_output=True, text=True,
        )
        path = pathlib.Path(results) / "run.json"
        if done.returncode != 0 or not path.exists():
            sys.exit(f"quire-load: {done.returncode}\n{done.stdout}{done.stderr}{server.log()}")
        run = json.loads(path.read_text())
    facts = {name: round(run[name], 2) for name in SHOWN if run.get(name) is not None}
    return facts | {"requests": load.requests, "seconds": round(run["duration"], 1),
                    "preemptions": server.metric("quire_preemptions_total") - preempted,
                    "sm_mhz": gauge.sm_mhz, "watts": gauge.watts}


def measure(pack, kind, further, loads, folder):
    """One server under one load after another."""
    server = Server(pack, "--device", "cuda", "--load-format", "dummy",
                    "--gpu-memory-utilization", "0.95", *SERVERS[kind], *further, model=folder,
                    patience=120)
    told = {"flags": shlex.join(further)} if further else {}
    for load in loads:
        say(load=f"{kind} {load.name}", **told, **put(pack, server, load))
    server.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pack", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("names", nargs="*", default=list(SERVERS))
    parser.add_argument("--flags", action="append", type=shlex.split, default=[])
    told = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as folder:
        make_big_checkpoint.write_shape(MODEL, folder)
        for kind in SERVERS:
            loads = [load for load in LOADS
                     if any(f"{kind} {load.name}".startswith(name) for name in told.names)]
            for further in (told.flags or [[]]) if loads else ():
                measure(told.pack, kind, further, loads, folder)


if __name__ == "__main__":
    main()
