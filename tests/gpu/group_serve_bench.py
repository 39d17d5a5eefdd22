#!/usr/bin/env python3
"""Large models' shapes on several GPUs through the server: group_serve_bench.py PACK.

Times exec to READY with dummy weights, before and after the algorithms are cached, and the time
from the kill of a rank to a whole answer; then the rate over gRPC of 1000 tokens in, 1000 out with
the largest model. Prints one JSON object a line; run from the repository's root.
"""
import json
import os
import pathlib
import re
import signal
import shutil
import subprocess
import sys
import tempfile
import time

import make_big_checkpoint
from gpu_server import ROOT, Server

RANKS = int(os.environ.get("GPU_TEST_RANKS", "2"))
TOKENS = 1000
REQUESTS = 192
PROMPT = list(range(300, 400))


def say(**facts):
    print(json.dumps({"ranks": RANKS} | facts), flush=True)


def start(pack, model, folder, cache, what):
    environment = dict(os.environ, XDG_CACHE_HOME=cache)
    server = Server(pack, "--device", "cuda", "--tensor-parallel-size", str(RANKS),
                    "--load-format", "dummy", model=folder, patience=120, environment=environment)
    phases = {phase: server.metric("quire_worker_start_seconds", phase=phase)
              for phase in ("load", "warm")}
    memory = {part: server.metric("quire_worker_memory_bytes", part=part)
              for part in ("planned", "measured")}
    say(model=model, start=what, seconds=round(server.seconds_to_ready, 3), worker=phases,
        memory=memory)
    return server


def replaced(server, model):
    """Kills the last rank: seconds to a whole answer."""
    server.ids(PROMPT, 4)
    pid = re.findall(rf"worker started rank={RANKS - 1} pid=(\d+)", server.log())[-1]
    begin = time.monotonic()
    os.kill(int(pid), signal.SIGKILL)
    server.ids(PROMPT, 4)
    say(model=model, killed_rank=RANKS - 1, seconds_to_an_answer=round(time.monotonic() - begin, 3))


def offline(pack, server, model):
    with tempfile.TemporaryDirectory() as results:
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
    say(model=model, offline=f"{TOKENS} in, {TOKENS} out", requests=REQUESTS,
        seconds=run["duration"], output_tokens_per_second=run["output_throughput"],
        mean_tpot_ms=run["mean_tpot_ms"])


def main():
    pack = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as cache:
        for model in ("llama-3.1-8b", "llama-3.1-70b"):
            with tempfile.TemporaryDirectory() as folder:
                make_big_checkpoint.write_shape(model, folder)
                start(pack, model, folder, cache, "first of all").stop()
                server = start(pack, model, folder, cache, "next")
                replaced(server, model)
                if model == "llama-3.1-70b":
                    offline(pack, server, model)
                server.stop()


if __name__ == "__main__":
    main()
