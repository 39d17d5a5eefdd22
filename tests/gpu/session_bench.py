#!/usr/bin/env python3
"""Conversations of Llama-3.1-8B's shape on a GPU: session_bench.py PACK [--small] [--only PART...].

idle: time to the first token of an idle conversation of 8k tokens, with its KV on the device, on
the host, and nowhere. disk: the same after a restart of the server, the KV in a file of the
session directory (in the page cache). minute: users who think between turns and whose KV is three
times the pool, from the moment the server is ready, while host memory is still being allocated.
steady: half as many on half the pool, from the moment of READY (saturated), then at rest. users:
as minute, with host memory that is ready and without (W5 of bench/serve/workloads). Dummy
weights. Prints one JSON object a line; run from the repository's root. --keep DIR keeps each
run's turns for bench/turns; --small is the demo model on the CPU, to try this.
"""
import argparse
import contextlib
import json
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time

from gpu_server import ROOT, Server

BIG = dict(
    flags=["--device", "cuda", "--load-format", "dummy"], vocabulary=128256,
    idle_tokens=8192, idle_host_gib=8, turns=12, restarts=4,
    pool=["--num-blocks-override", "2501", "--block-size", "64"],  # 160k tokens, 21 GB
    host_gib=74.5, users=80, seconds=70, settled=25, think=(10, 6),
    half_pool=["--num-blocks-override", "1251", "--block-size", "64"], saturated=4,
    first="2000:8000", more="300:600", answer="200:350",
)
SMALL = dict(
    flags=["--device", "cpu", "--max-model-len", "2048"], vocabulary=2000,
    idle_tokens=1024, idle_host_gib=0.25, turns=3, restarts=2,
    pool=["--num-blocks-override", "226", "--session-idle-offload-after", "0.1"],
    host_gib=1, users=12, seconds=15, settled=5, think=(1, 0.6),
    half_pool=["--num-blocks-override", "142", "--session-idle-offload-after", "0.1"],
    saturated=0.3,
    first="200:800", more="30:60", answer="20:35",
)
ANSWER = 16  # tokens of a turn of the idle conversation
QUESTION = "Tell me a story about a dragon who was lonely, and say what is in the box on the table."


def say(**facts):
    print(json.dumps(facts), flush=True)


FLAGS = ("--temperature", "0", "-n", str(ANSWER), "--ignore-eos", "--print-ids", "--stats")
FIRST_TOKEN = re.compile(r"time to first token: ([\d.]+) ms")
DESCRIBED = re.compile(r"(\d+) tokens? from the device, (\d+) from the host(?: in (.*?))?, "
                       r"(\d+) computed again")


class Idle:
    """One conversation of many tokens, typed into one `quire generate`; no other request runs.
    `begins`: it does not exist yet."""

    def __init__(self, server, size, begins=True):
        self.server = server
        ids = random.Random(1).choices(range(300, size["vocabulary"]),
                                       k=size["idle_tokens"] - ANSWER)
        self.prompt = ("--token-ids", ",".join(map(str, ids)), *FLAGS)
        if begins:
            self.quire("generate", *self.prompt, "--session", "idle")
        self.typist = subprocess.Popen(
            server.command("generate", "--session", "idle", *FLAGS), stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )

    def quire(self, *arguments):
        done = subprocess.run(self.server.command(*arguments), capture_output=True, text=True,
                              cwd=ROOT)
        assert done.returncode == 0, done.stderr + self.server.log()
        return done

    def offload(self):
        self.quire("session", "offload", "idle")
        while json.loads(self.quire("session", "get", "idle", "--json").stdout)["device_tokens"]:
            time.sleep(0.01)

    def back(self):
        """A turn, by the client's clock."""
        self.typist.stdin.write(QUESTION + "\n")
        self.typist.stdin.flush()
        said = ""
        while not (found := DESCRIBED.search(said)):
            line = self.typist.stderr.readline()
            assert line, said + self.server.log()
            said += line
        return {"ms": float(FIRST_TOKEN.search(said).group(1)), "device_tokens": int(found[1]),
                "host_tokens": int(found[2]), "restore": found[3], "computed": int(found[4])}

    def computed(self):
        """As many tokens, none of them known: by the server's clock, as the command is new."""
        said = self.quire("generate", *self.prompt, "--no-prefix-cache", "--no-stream").stderr
        return {"ms": float(FIRST_TOKEN.search(said).group(1))}

    def leave(self):
        self.typist.stdin.close()
        self.typist.wait()


def idle_conversation(pack, model, size):
    flags = ["--kv-offloading-size", str(size["idle_host_gib"]), "--session-idle-offload-after",
             "1h"]
    with serving(pack, model, size, flags) as server:
        idle = Idle(server, size)
        for _ in range(2):  # the first copy and the first turn load code
            idle.back()
            idle.offload()
        ways = {"on the host": [], "on the device": [], "nowhere": []}
        for _ in range(size["turns"]):
            ways["on the host"].append(idle.back())
            ways["on the device"].append(idle.back())
            ways["nowhere"].append(idle.computed())
            idle.offload()
        idle.leave()
        for way, turns in ways.items():
            say(idle_tokens=size["idle_tokens"], kv=way, 
                ttft_ms=statistics.median(t["ms"] for t in turns),
                ttft_ms_worst=max(t["ms"] for t in turns), turns=turns)


def restarted_conversation(pack, model, size):
    """Each turn is the first of a server that found the conversation in its session directory."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--kv-offloading-size", str(size["idle_host_gib"]), "--session-idle-offload-after",
                 "0.1", "--session-dir", folder]
        turns, rates = [], []
        for start in range(size["restarts"] + 1):
            with serving(pack, model, size, flags) as server:
                await_host_memory(server)
                idle = Idle(server, size, begins=start == 0)
                if start > 0:
                    turns.append(idle.back())
                    read = server.metric("quire_session_dir_read_bytes_total")
                    rates.append(1e-6 * read / turns[-1]["ms"])
                idle.leave()
                saved = server.metric("quire_session_dir_written_bytes_total")
                while server.metric("quire_session_dir_bytes", file="kv") == 0 or saved != (
                        saved := server.metric("quire_session_dir_written_bytes_total")):
                    time.sleep(1)
        say(idle_tokens=size["idle_tokens"], kv="in a file",
            ttft_ms=statistics.median(turn["ms"] for turn in turns),
            ttft_ms_worst=max(turn["ms"] for turn in turns), turns=turns,
            gb_per_second_to_first_token=statistics.median(rates))


def serving(pack, model, size, flags):
    server = Server(pack, *size["flags"], *flags, model=model, patience=120)
    return contextlib.closing(server)


def copied(server):
    """Bytes copied between the tiers so far, and the copies' faults."""
    names = ("quire_kv_stored_bytes_total", "quire_kv_loaded_bytes_total",
             "quire_kv_copies_failed_total", "quire_kv_copies_late_total",
             "quire_kv_dropped_pages_total", "quire_kv_restores_declined_total",
             "quire_kv_restores_late_total", "quire_kv_stores_given_up_total",
             "quire_session_kv_lost_blocks_total", "quire_host_pages_used",
             "quire_host_pages_ready", "quire_preemptions_total")
    values = {name.removeprefix("quire_"): server.metric(name) for name in names}
    for direction in ("store", "load"):
        values[f"{direction}_gb_per_second"] = 1e-9 * (server.metric(
            "quire_kv_copy_bytes_per_second", direction=direction) or 0)
    return values


def load(pack, server, size, name, *flags):
    """The record of a quire-load run."""
    with tempfile.TemporaryDirectory() as results:
        done = subprocess.run(
            [pack / "bin/quire-load", "--server", server.target, "--metrics",
             f"127.0.0.1:{server.metrics_port}", "--sessions", "on", "--random-input-len",
             size["first"], "--turn-input-len", size["more"], "--random-output-len",
             size["answer"], "--ignore-eos", "--temperature", "0", "--no-text", "--quiet",
             "--result-dir", results, *flags],
            capture_output=True, text=True,
        )
        path = pathlib.Path(results) / "perf.jsonl"
        if not path.exists():
            raise AssertionError(f"quire-load: {done.stdout}{done.stderr}{server.log()}")
        for turns in pathlib.Path(results).glob("turns.jsonl"):
            if size["keep"] is not None:
                shutil.copy(turns, size["keep"] / f"{name}.turns.jsonl")
        return json.loads(path.read_text().splitlines()[-1])


def await_host_memory(server):
    while server.metric("quire_host_pages_ready") < server.metric("quire_host_pages"):
        time.sleep(0.2)


def converse(pack, server, size, run):
    """A run that its time limit ends. Each has a seed of its own, because the tokens of earlier
    runs are still in the cache."""
    return load(pack, server, size, run["name"], "--turns", "5:8", "--think-time",
                str(run["think"]), "--think-sigma", "0.8", "--num-prompts", str(5 * run["users"]),
                "--max-concurrency", str(run["users"]), "--seed", str(run["seed"]), "--time-limit",
                str(run["seconds"]))


def throughput(run, settled):
    """Output tokens a second after the first turns, the settled part: until then all users
    prefill."""
    timeline = run["timeline"]
    seconds = timeline["seconds"]
    points = [i for i, at in enumerate(seconds) if at > settled]
    tokens = sum(timeline["tokens"][i] for i in points)
    return tokens / (seconds[points[-1]] - seconds[points[0] - 1])


def facts(server, size, run, record):
    """What one run found."""
    latencies, timeline = record["latencies"], record["timeline"]
    return dict(
        users=run["users"], think_seconds=run["think"], host_gib=run["host_gib"],
        output_tokens_per_second=round(throughput(record, size["settled"]), 1),
        whole_run_tokens_per_second=round(sum(timeline["tokens"]) / timeline["seconds"][-1], 1),
        ttft_later_ms=latencies["ttft_later_turns_ms"], tpot_ms=latencies["tpot_ms"],
        restore_ms=latencies["restore_ms"], counts=record["counts"],
        residency=record["residency"], reasons=record["reasons"], copies=copied(server),
        health_off=server.log().count("the engine makes no progress"),
        timeline={key: timeline[key] for key in ("running", "waiting", "kv_usage", "tokens")},
    )


def from_the_start(pack, model, size, flags, runs):
    """Runs one after the other on one server, the first from its first moment on."""
    with serving(pack, model, size, [*flags, "--kv-offloading-size", str(runs[0]["host_gib"])]) as \
            server:
        ready = server.seconds_to_ready
        for run in runs:
            record = converse(pack, server, size, run)
            say(conversations=run["name"], seconds_to_ready=round(ready, 2),
                host_memory_ready=[line for line in server.log().splitlines()
                                   if "host memory for KV" in line],
                **facts(server, size, run, record))


def first_minute(pack, model, size):
    from_the_start(pack, model, size, size["pool"], [
        dict(name="first minute", users=size["users"], think=size["think"][0], seed=10,
             seconds=60 * size["seconds"] // 70, host_gib=size["host_gib"])])


def steady(pack, model, size):
    half = dict(users=size["users"] // 2, host_gib=size["host_gib"] / 2)
    from_the_start(pack, model, size, size["half_pool"], [
        dict(name="first 40 s, saturated", think=size["saturated"], seed=11,
             seconds=40 * size["seconds"] // 70, **half),
        dict(name="steady", think=size["think"][1], seed=12, seconds=size["seconds"], **half)])


def users(pack, model, size, host_gib):
    """A run for each think time."""
    flags = [*size["pool"], "--kv-offloading-size", str(host_gib)]
    lines = []
    with serving(pack, model, size, flags) as server:
        if host_gib > 0:
            await_host_memory(server)
        for seed, think in enumerate(size["think"]):
            run = dict(name=f"{think} s, {host_gib} GiB", users=size["users"], think=think,
                       seed=seed, seconds=size["seconds"], host_gib=host_gib)
            lines.append(facts(server, size, run, converse(pack, server, size, run)))
            say(**lines[-1])
    return lines


def compare(without, with_host):
    """The figures with host memory over those without."""
    for before, after in zip(without, with_host):
        ttft = [line["ttft_later_ms"] for line in (after, before)]
        say(host_over_none=before["think_seconds"],
            output_tokens=round(after["output_tokens_per_second"] /
                                before["output_tokens_per_second"], 3),
            whole_run=round(after["whole_run_tokens_per_second"] /
                            before["whole_run_tokens_per_second"], 3),
            ttft_later={p: round(ttft[0][p] / ttft[1][p], 4) for p in ("p50", "mean", "p99")})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pack", type=pathlib.Path)
    parser.add_argument("--small", action="store_true")
    parts = ("idle", "disk", "minute", "steady", "users")
    parser.add_argument("--only", nargs="*", choices=parts, default=parts)
    parser.add_argument("--keep", type=pathlib.Path)
    args = parser.parse_args()
    pack, size = args.pack.resolve(), (SMALL if args.small else BIG) | dict(keep=args.keep)
    with tempfile.TemporaryDirectory() as folder:
        model = "models/demo"
        if not args.small:
            model = folder
            shutil.copy(ROOT / "bench/gpu/models/llama-3.1-8b/config.json", folder)
            shutil.copy(ROOT / "models/demo/tokenizer.json", folder)
        if "idle" in args.only:
            idle_conversation(pack, model, size)
        if "disk" in args.only:
            restarted_conversation(pack, model, size)
        if "minute" in args.only:
            first_minute(pack, model, size)
        if "steady" in args.only:
            steady(pack, model, size)
        if "users" in args.only:
            compare(users(pack, model, size, 0), users(pack, model, size, size["host_gib"]))


if __name__ == "__main__":
    main()
