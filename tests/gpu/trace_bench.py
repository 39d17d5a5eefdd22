#!/usr/bin/env python3
"""Looking inside a server with Llama-3.1-8B's shape, and its cost: trace_bench.py PACK.

Requests decode without a pause. Windows with and without a trace alternate in the same server, and
their rates of output tokens are compared. Then scrapes under load are timed. Prints one JSON object
a line, with the step breakdown of each load; run from the repository's root.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import make_big_checkpoint
from gpu_server import ROOT, Server

MODEL = "llama-3.1-8b"
WINDOW_SECONDS = 4
TRACES = 5
SCRAPES = 50


def say(**facts):
    print(json.dumps(facts), flush=True)


def tokens_a_second(server, seconds):
    """The rate of output tokens, by the server's counter."""
    begin, before = time.monotonic(), server.metric("quire_generated_tokens_total")
    time.sleep(seconds)
    after = server.metric("quire_generated_tokens_total")
    return (after - before) / (time.monotonic() - begin)


def trace(server, seconds, folder):
    """Starts a recording; its breakdown on stdout."""
    return subprocess.Popen(
        server.command("trace", "--seconds", str(seconds), "--json", "--out",
                       str(pathlib.Path(folder) / "trace.json")),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def breakdown_of(process):
    """Milliseconds of a step by part, of rank 0."""
    out, error = process.communicate(timeout=60)
    if process.returncode != 0:
        sys.exit(f"trace_bench: quire trace: {error}")
    said = json.loads(out)
    rank = said["ranks"][0]
    parts = {part["name"]: round(1e3 * part.get("seconds", 0), 4) for part in rank["parts"]}
    return {"steps": int(said["steps"]), "timed_steps": int(rank["timed_steps"]),
            "milliseconds": parts, "dropped": int(said.get("droppedEvents", 0))}


def scrape_milliseconds(server):
    times = []
    for _ in range(SCRAPES):
        begin = time.monotonic()
        server.metrics()
        times.append(1e3 * (time.monotonic() - begin))
    return {"p50": round(statistics.median(times), 3), "max": round(max(times), 3)}


def load(pack, server, requests):
    """Requests that outlive the measurement; ended by abort."""
    return subprocess.Popen(
        [pack / "bin/quire-load", "--server", server.target, "--num-prompts", str(requests),
         "--random-input-len", "100", "--random-output-len", "30000", "--ignore-eos",
         "--temperature", "0", "--no-text", "--seed", "1", "--quiet", "--time-limit", "150"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure(pack, server, requests):
    running = load(pack, server, requests)
    try:
        while server.metric("quire_requests_running") < requests:
            time.sleep(0.2)
        time.sleep(3)  # until every prompt is computed
        plain, traced, breakdown = [], [], None
        with tempfile.TemporaryDirectory() as folder:
            plain.append(tokens_a_second(server, WINDOW_SECONDS))
            for _ in range(TRACES):
                process = trace(server, WINDOW_SECONDS + 0.6, folder)
                time.sleep(0.3)  # it has begun
                traced.append(tokens_a_second(server, WINDOW_SECONDS))
                breakdown = breakdown_of(process)
                plain.append(tokens_a_second(server, WINDOW_SECONDS))
        # Contexts and the time of a step grow alike, so a window is compared with the mean time of
        # its neighbours.
        ratios = [with_trace / statistics.harmonic_mean(plain[i : i + 2])
                  for i, with_trace in enumerate(traced)]
        say(rows=requests, plain_tokens_per_second=round(statistics.mean(plain), 1),
            traced_tokens_per_second=round(statistics.mean(traced), 1),
            traced_over_plain=round(statistics.mean(ratios), 4),
            least=round(min(ratios), 4), most=round(max(ratios), 4),
            step_breakdown=breakdown, scrape_milliseconds=scrape_milliseconds(server))
    finally:
        subprocess.run(server.command("abort", "--all"), capture_output=True)
        running.terminate()
        running.wait()


def main():
    pack = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        model = make_big_checkpoint.write_shape(MODEL, folder)
        server = Server(pack, "--device", "cuda", "--load-format", "dummy", "--max-model-len",
                        "32768", model=model, patience=120)
        for requests in (256, 1):
            measure(pack, server, requests)
        server.stop()


if __name__ == "__main__":
    main()
