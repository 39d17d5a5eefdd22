#!/usr/bin/python3
"""What slow readers cost the others: bench/serve/slow_readers.py [--bin FOLDER] [--out FILE].

A server without a model gives each of 10,000 streams a token in every step. In turn all of them
read, or 2,000 read no more. The times between frames are those of the 8,000 others, by the client's
clock, in which the client's own lateness is included; its processor time and the server's are told
beside them. Exit code 1 if the p99 beside slow readers, by the median of the rounds, is more than
1.2 times the p99 without.
"""
import argparse
import json
import pathlib
import re
import selectors
import socket
import statistics
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("bench", "clients/python", "tests/e2e")]
from harness.machine import commit, machine  # noqa: E402
from harness.process import BenchError, Server, find_program  # noqa: E402
from http2_frames import DATA, END_OF_STREAM, INITIAL_WINDOW, SETTINGS, frame  # noqa: E402
from http2_frames import headers, message, opening  # noqa: E402

from quire import messages  # noqa: E402
from quire.types import Options  # noqa: E402

GENERATE = b"/quire.v1.Inference/Generate"
PING, GOAWAY, WINDOW, ACK = 6, 7, 8, 1
MOST_STREAMS = 1000  # of a connection; the server takes 1,024
WIDE = (1 << 31) - 1  # bytes that a stream may get
SETTLE = 3  # seconds before each phase is measured
PATIENCE = 600


class Connection:
    """Streams of one connection, and the times between their frames while `gaps` is a list."""

    def __init__(self, address, request, streams):
        self.line = socket.create_connection(address)
        self.read, self.gaps, self.last, self.frames = b"", None, {}, 0
        out = opening(WIDE) + frame(WINDOW, 0, 0, (WIDE - 65535).to_bytes(4, "big"))
        for stream in range(1, 2 * streams, 2):
            out += headers(stream, GENERATE) + frame(DATA, END_OF_STREAM, stream, request)
        self.line.sendall(out)

    def allow(self, window):
        """What each stream may get, from its beginning on; less than it got: it gets no more."""
        self.line.sendall(frame(SETTINGS, 0, 0, INITIAL_WINDOW.to_bytes(2, "big")
                                + window.to_bytes(4, "big")))

    def take(self):
        """Reads what has come; all of it came now."""
        data = self.line.recv(1 << 20)
        if not data:
            raise BenchError("the server closed a connection")
        now, read, at = time.monotonic(), self.read + data, 0
        while at + 9 <= len(read):
            size, kind = int.from_bytes(read[at:at + 3], "big"), read[at + 3]
            end = at + 9 + size
            if end > len(read):
                break
            if kind == DATA:
                stream = int.from_bytes(read[at + 5:at + 9], "big")
                if self.gaps is not None and stream in self.last:
                    self.gaps.append(now - self.last[stream])
                self.last[stream] = now
                self.frames += 1
            elif kind in (PING, SETTINGS) and not read[at + 4] & ACK:
                payload = read[at + 9:end] if kind == PING else b""
                self.line.sendall(frame(kind, ACK, 0, payload))
            elif kind == GOAWAY:
                raise BenchError(f"the server refused a connection: {read[at + 17:end]}")
            at = end
        self.read = read[at:]


def pump(selector, seconds):
    """Reads all connections for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for key, _ in selector.select(0.05):
            key.data.take()


def running(server):
    """The requests that have a row."""
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=PATIENCE) as page:
        text = page.read().decode()
    return int(re.search(r"^quire_requests_running{.*} (\d+)$", text, re.M).group(1))


def measure(args, server, selector, groups, slow):
    """One phase, in which the second group's connections read or do not."""
    fast, late = groups
    for each in late:
        each.allow(0 if slow else WIDE)
    pump(selector, SETTLE)
    for each in fast:
        each.gaps = []
    cpu, own, before = server.cpu_seconds(), time.process_time(), sum(e.frames for e in late)
    pump(selector, args.seconds)
    gaps = [gap for each in fast for gap in each.gaps]
    cuts = statistics.quantiles(gaps, n=100)
    for each in fast:
        each.gaps = None
    return {"slow": slow, "p50_ms": round(1000 * cuts[49], 1), "p99_ms": round(1000 * cuts[98], 1),
            "frames": len(gaps), "frames_of_the_slow": sum(e.frames for e in late) - before,
            "server_cores": round((server.cpu_seconds() - cpu) / args.seconds, 2),
            "client_cores": round((time.process_time() - own) / args.seconds, 2)}


def phases(args, log):
    """The streams are begun once, which takes minutes: a step admits a few requests only."""
    request = message(messages.generate_request([5], Options(
        max_tokens=2000, ignore_eos=True, temperature=0.0)).SerializeToString())
    command = [find_program(args.bin, "null_server"), "--port", 0, "--max-num-seqs", args.streams,
               "--token-us", args.token_us, "--max-model-len", 2048]
    with Server(command, log) as server:
        host, port = server.address.rsplit(":", 1)
        selector, groups = selectors.DefaultSelector(), ([], [])
        for count, group in zip((args.streams - args.slow, args.slow), groups):
            for first in range(0, count, MOST_STREAMS):
                group.append(Connection((host, int(port)), request,
                                        min(MOST_STREAMS, count - first)))
                selector.register(group[-1].line, selectors.EVENT_READ, group[-1])
        deadline = time.monotonic() + PATIENCE
        while running(server) < args.streams:
            if time.monotonic() > deadline:
                raise BenchError(f"{running(server)} of {args.streams} streams run")
            pump(selector, 1)
        return [measure(args, server, selector, groups, slow)
                for _ in range(args.rounds) for slow in (False, True)]


def main():
    text = __doc__.split("\n")
    parser = argparse.ArgumentParser(description=text[0], epilog="\n".join(text[2:]),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--streams", type=int, default=10000)
    parser.add_argument("--slow", type=int, default=2000)
    parser.add_argument("--token-us", type=float, default=40, help="of a step, for each stream")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=float, default=1.2)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        rounds = phases(args, pathlib.Path(scratch) / "server.log")
    without, beside = ([each["p99_ms"] for each in rounds if each["slow"] == slow]
                       for slow in (False, True))
    ratio = statistics.median(beside) / statistics.median(without)
    result = {"machine": machine(), **commit(), "streams": args.streams, "slow": args.slow,
              "token_us": args.token_us, "rounds": rounds, "p99_ms_without": without,
              "p99_ms_beside": beside, "ratio": round(ratio, 3)}
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if ratio <= args.most else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(f"slow_readers: {error}")
