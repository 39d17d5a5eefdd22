#!/usr/bin/python3
"""What a flood costs another tenant: bench/serve/fairness.py [--bin FOLDER] [--out FILE].

A quire-server with two keys. The light tenant sends a request now and then, first alone and then
beside a flood: thousands of requests of the other tenant, which are open all the time. Times of the
light tenant's first tokens and whole requests are compared, by the clients' clocks. A chunk is the
time that a step's budget of the flood's prompts takes, alone. Prints and writes JSON; exit code
1 if the p99 of the first tokens beside the flood exceeds 1.3 times the p99 alone and one chunk.

The model is the bundled one on the CPU; words after -- are the server's flags and replace these.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from harness.machine import commit, machine  # noqa: E402
from harness.process import BenchError, Server, find_program  # noqa: E402

BUDGET = 512  # prompt tokens of a step
SERVER_FLAGS = ["--device", "cpu", "--model", str(ROOT / "models/demo"), "--max-num-seqs", "16"]
# Prompt and answer of the flood, and of the light tenant.
SHAPES = {"chat": (512, 128, 128, 32), "long_prompts": (3000, 64, 128, 32),
          "long_outputs": (128, 1500, 128, 32), "short": (64, 8, 64, 8)}


class Bench:
    """The programs, a key for each tenant, and the load of one tenant on a running server."""

    def __init__(self, args, scratch):
        self.args, self.scratch = args, scratch
        self.keys = scratch / "keys.json"
        self.secrets = {tenant: self.new_key(tenant) for tenant in ("flood", "light")}

    def program(self, name):
        return str(find_program(self.args.bin, name))

    def new_key(self, tenant):
        command = [self.program("quire"), "key", "new", "--file", self.keys, "--tenant", tenant]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def server(self):
        command = [self.program("quire-server"), "--port", 0, "--metrics-port", 0, "--api-keys",
                   self.keys, "--no-log-requests", "--max-num-batched-tokens", BUDGET,
                   "--max-num-queued-reqs", self.args.flood, "--max-num-queued-tokens", 0]
        return Server([*command, *self.args.server_flags], self.scratch / "server.log")

    def start_load(self, server, tenant, shape, *flags):
        command = [self.program("quire-load"), "--server", server.address, "--quiet",
                   "--ignore-eos", "--random-input-len", shape[0],
                   "--random-output-len", shape[1], "--result-dir", self.scratch,
                   "--result-filename", f"{tenant}.json", *flags]
        with open(self.scratch / f"{tenant}.err", "w") as errors:
            return subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL,
                                    stderr=errors,
                                    env={**os.environ, "QUIRE_API_KEY": self.secrets[tenant]})

    def light(self, server, shape, count, *flags):
        """Times of the light tenant's requests, in milliseconds."""
        run = self.start_load(server, "light", shape, "--num-prompts", count, *flags)
        run.wait()
        try:
            result = json.loads((self.scratch / "light.json").read_text())
        except OSError:
            raise BenchError((self.scratch / "light.err").read_text()[-2000:]) from None
        if result["completed"] != count:
            raise BenchError(f"only {result['completed']} of {count} requests ended well")
        return {f"{kind}_{what}": result[f"{what}_{name}_ms"]
                for kind, name in (("first", "ttft"), ("whole", "e2el"))
                for what in ("mean", "median", "p99")}

    def measure(self, server, shape):
        """The light tenant alone and beside the flood."""
        flood, light = shape[:2], shape[2:]
        paced = ("--request-rate", self.args.rate)
        self.light(server, light, 10, *paced)
        whole = max(BUDGET, flood[0])  # tokens later in a prompt cost more: they look further back
        chunk = self.light(server, (whole, 1), 20, "--max-concurrency", 1)["first_median"]
        chunk *= BUDGET / whole
        alone = self.light(server, light, self.args.requests, *paced)
        run = self.start_load(server, "flood", flood, "--max-concurrency", self.args.flood,
                              "--num-prompts", 1000 * self.args.flood)
        time.sleep(self.args.settle)
        try:
            beside = self.light(server, light, self.args.requests, *paced)
            if run.poll() is not None:
                raise BenchError("the flood ended:\n" + (self.scratch / "flood.err").read_text())
        finally:
            run.kill()
            run.wait()
        return {"chunk_ms": chunk, "alone": alone, "beside": beside,
                "limit_first_ms": 1.3 * alone["first_p99"] + chunk,
                "limit_whole_ms": 1.3 * alone["whole_p99"] + chunk}


def main():
    text = __doc__.split("\n")
    parser = argparse.ArgumentParser(description=text[0], epilog="\n".join(text[2:]),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--flood", type=int, default=2000, help="open requests of the flood")
    parser.add_argument("--requests", type=int, default=200, help="requests of the light tenant")
    parser.add_argument("--rate", type=float, default=4, help="of them a second")
    parser.add_argument("--settle", type=float, default=10, help="seconds of flood before them")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("server_flags", nargs="*", default=SERVER_FLAGS, metavar="-- FLAG")
    args = parser.parse_args()
    result = {"machine": machine(), **commit(), "flood": args.flood, "shapes": {}}
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(args, pathlib.Path(scratch))
        for name in args.shapes:
            # A server each: the flood's KV of one shape is no part of the next.
            with bench.server() as server:
                result["shapes"][name] = bench.measure(server, SHAPES[name])
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(shape["beside"]["first_p99"] <= shape["limit_first_ms"]
                    for shape in result["shapes"].values()) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(f"fairness: {error}")
