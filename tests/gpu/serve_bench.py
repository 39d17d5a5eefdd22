#!/usr/bin/env python3
"""Llama-3.1-8B's shape through the server on a GPU: serve_bench.py PACK.

Times exec to READY with dummy weights, before and after the algorithms of matrix products are
cached, and with 16 GB of safetensors in the page cache, as they are and made 8-bit; then the rate
over gRPC of 1000 tokens in, 1000 out, all requests at once. Prints one JSON object a line; run from
the repository's root.
"""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from gpu_server import ROOT, Server

CONFIG = ROOT / "bench/gpu/models/llama-3.1-8b/config.json"
CHECKPOINT_BYTES = 17 << 30
TOKENS = 1000
# As many rows as the pool holds on average; a prompt takes two steps, so that rows are of all ages.
ROWS, REQUESTS = 512, 1536
OFFLINE = ("--max-num-seqs", str(ROWS), "--max-num-batched-tokens", "1024",
           "--gpu-memory-utilization", "0.95")
# Operations and bytes of an output token: its products and those of its prompt's share, and K and V
# of the contexts, at the rates measured on an H200.
SERIAL_LIMIT = 1 / ((2 * 15.0e9 + 1.05e9) / 790e12 + 1.5 * TOKENS * 131072 / 4.43e12)


def roomy_folder():
    """A folder in memory if there is room, else on disk, where the page cache holds it."""
    for folder in ("/dev/shm", tempfile.gettempdir()):
        if shutil.disk_usage(folder).free > CHECKPOINT_BYTES:
            return tempfile.mkdtemp(prefix="quire-8b-", dir=folder)
    sys.exit("serve_bench: no room for a checkpoint of 16 GB")


def say(**facts):
    print(json.dumps(facts), flush=True)


def start(pack, checkpoint, cache, what, *flags):
    environment = dict(os.environ, XDG_CACHE_HOME=cache)
    server = Server(pack, "--device", "cuda", *flags, model=checkpoint, patience=120,
                    environment=environment)
    phases = {phase: server.metric("quire_startup_phase_seconds", phase=phase)
              for phase in ("plan", "tokenizer", "weights", "listen", "ready")}
    worker = {phase: server.metric("quire_worker_start_seconds", phase=phase)
              for phase in ("load", "warm")}
    memory = {part: server.metric("quire_worker_memory_bytes", part=part)
              for part in ("planned", "measured")}
    say(start=what, seconds=round(server.seconds_to_ready, 3), phases=phases, worker=worker,
        memory=memory)
    return server


def graphs(server):
    """The cost and the use of each captured size."""
    lines = [line for line in server.metrics().splitlines() if line.startswith("quire_cuda_graph")]
    sizes = {}
    for line in lines:
        series, _, value = line.rpartition(" ")
        size = int(series.split('size="')[1].split('"')[0])
        name = series.split("{")[0].removeprefix("quire_cuda_graph_")
        sizes.setdefault(size, {})[name] = float(value)
    return {size: sizes[size] for size in sorted(sizes)}


class Gauge:
    """The clock and power of the first visible device while something runs: medians of a sample
    every two seconds; None if there was none."""

    sm_mhz = watts = None

    def __enter__(self):
        self.process = subprocess.Popen(
            ["nvidia-smi", "--id=" + os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0],
             "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits",
             "--loop=2"], stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        lines = self.process.communicate()[0].splitlines()
        samples = [[float(value) for value in line.split(",")] for line in lines if "," in line]
        if samples:
            self.sm_mhz, self.watts = (statistics.median(values) for values in zip(*samples))


def offline(pack, server):
    with tempfile.TemporaryDirectory() as results, Gauge() as gauge:
        done = subprocess.run(
            [pack / "bin/quire-load", "--server", server.target, "--num-prompts", str(REQUESTS),
             "--random-input-len", str(TOKENS), "--random-output-len", str(TOKENS), "--ignore-eos",
             "--temperature", "0", "--no-text", "--seed", "1", "--quiet", "--time-limit", "240",
             "--result-dir", results, "--result-filename", "run.json"],
            capture_output=True, text=True,
        )
        path = pathlib.Path(results) / "run.json"
        if done.returncode != 0 or not path.exists():
            sys.exit(f"quire-load: {done.returncode}\n{done.stdout}{done.stderr}{server.log()}")
        run = json.loads(path.read_text())
    say(offline=f"{TOKENS} in, {TOKENS} out", requests=REQUESTS, rows=ROWS,
        seconds=run["duration"], output_tokens_per_second=run["output_throughput"],
        serial_limit=round(SERIAL_LIMIT), mean_tpot_ms=run["mean_tpot_ms"],
        preemptions=server.metric("quire_preemptions_total"), sm_mhz=gauge.sm_mhz,
        watts=gauge.watts, graphs=graphs(server))


def main():
    pack = pathlib.Path(sys.argv[1]).resolve()
    checkpoint = roomy_folder()
    with tempfile.TemporaryDirectory() as cache:
        try:
            made = subprocess.run(
                [sys.executable, ROOT / "tests/gpu/make_big_checkpoint.py", CONFIG, checkpoint],
                capture_output=True, text=True, check=True,
            )
            say(checkpoint=made.stdout.strip(), folder=str(pathlib.Path(checkpoint).parent))
            dummy = ("--load-format", "dummy")
            start(pack, checkpoint, cache, "dummy, first of all", *dummy).stop()
            start(pack, checkpoint, cache, "dummy", *dummy).stop()
            start(pack, checkpoint, cache, "safetensors").stop()
            start(pack, checkpoint, cache, "safetensors, to 8 bits", "--quantization", "fp8").stop()
            server = start(pack, checkpoint, cache, "offline", *dummy, *OFFLINE)
            offline(pack, server)
            server.stop()
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)


if __name__ == "__main__":
    main()
