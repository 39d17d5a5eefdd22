#!/usr/bin/python3
"""What a flood of resets costs others: bench/serve/reset_flood.py [--bin FOLDER] [--out FILE].

Ten connections open 20,000 calls a second together and reset each at once. Beside them clients ask
a real server for a few tokens, as unfinished_messages.py has them do; their times are compared with
those without the flood, in rounds that alternate. The rate that the server and the machine let
through is told. Exit code 1 if a request fails, or if the p99 beside the flood, by the median of
the rounds, is more than twice the p99 without.
"""
import argparse
import json
import multiprocessing
import pathlib
import socket
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("bench", "clients/python", "tests/e2e")]
from harness.machine import commit, machine  # noqa: E402
from harness.process import BenchError, Server, find_program  # noqa: E402
from http2_frames import headers, opening, reset  # noqa: E402
from unfinished_messages import SERVER_FLAGS, client_times  # noqa: E402

TURNS = 100  # a second, in each of which every connection sends its part
LAST_STREAM = (1 << 31) - 1
TEMPLATE = headers(0, b"/quire.v1.Inference/Generate") + reset(0)
ID_AT, RESET_ID_AT = 5, len(TEMPLATE) - 8  # of the two frames' streams


def call(stream):
    number = stream.to_bytes(4, "big")
    return (TEMPLATE[:ID_AT] + number + TEMPLATE[ID_AT + 4:RESET_ID_AT] + number
            + TEMPLATE[RESET_ID_AT + 4:])


class Line:
    """One connection of the flood. While much waits for the socket, no more is made."""

    def __init__(self, address):
        self.address, self.line, self.cuts = address, None, 0
        self.open()

    def open(self):
        self.line = socket.create_connection(self.address)
        self.line.setblocking(False)
        self.out, self.stream = opening(), 1

    def send(self, calls):
        """Adds so many calls; returns how many were made."""
        made = 0
        try:
            try:
                while self.line.recv(65536):
                    pass
                raise ConnectionError
            except BlockingIOError:
                pass
            if len(self.out) < 65536:
                last = min(self.stream + 2 * calls, LAST_STREAM)
                made = (last - self.stream) // 2
                self.out += b"".join(map(call, range(self.stream, last, 2)))
                self.stream = last
            self.out = self.out[self.line.send(self.out):]
        except BlockingIOError:
            pass
        except OSError:
            self.line.close()
            self.cuts += 1
            self.open()
        return made


def flood(address, args, made, cuts):
    """Runs until it is ended."""
    lines = [Line(address) for _ in range(args.connections)]
    due = time.monotonic()
    while True:
        for line in lines:
            made.value += line.send(args.rate // args.connections // TURNS)
        cuts.value = sum(line.cuts for line in lines)
        due = max(due + 1 / TURNS, time.monotonic() - 1)  # a late turn is made up for
        time.sleep(max(0, due - time.monotonic()))


def one_round(args, server):
    """The clients' times alone, then beside the flood."""
    host, port = server.address.rsplit(":", 1)
    cpu = server.cpu_seconds()
    alone = client_times(server.address, args)
    alone["server_cores"] = round((server.cpu_seconds() - cpu) / args.seconds, 2)
    made, cuts = multiprocessing.Value("q"), multiprocessing.Value("q")
    peer = multiprocessing.Process(target=flood, args=((host, int(port)), args, made, cuts),
                                   daemon=True)
    peer.start()
    try:
        time.sleep(1)
        before, cpu, began = made.value, server.cpu_seconds(), time.monotonic()
        beside = client_times(server.address, args)
        seconds = time.monotonic() - began
        if not peer.is_alive():
            raise BenchError("the flood ended")
    finally:
        peer.kill()
        peer.join()
    beside |= {"resets_per_second": round((made.value - before) / seconds), "cuts": cuts.value,
               "server_cores": round((server.cpu_seconds() - cpu) / seconds, 2)}
    return alone, beside


def main():
    text = __doc__.split("\n")
    parser = argparse.ArgumentParser(description=text[0], epilog="\n".join(text[2:]),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--connections", type=int, default=10)
    parser.add_argument("--rate", type=int, default=20000, help="resets a second, of all together")
    parser.add_argument("--clients", type=int, default=4, help="that ask for tokens meanwhile")
    parser.add_argument("--seconds", type=float, default=10, help="of each half of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=float, default=2.0)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("server_flags", nargs="*", default=SERVER_FLAGS, metavar="-- FLAG")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        command = [find_program(args.bin, "quire-server"), "--port", 0, "--metrics-port", 0,
                   "--no-log-requests", *args.server_flags]
        with Server(command, pathlib.Path(scratch) / "server.log") as server:
            client_times(server.address, argparse.Namespace(seconds=2, clients=args.clients))
            rounds = [one_round(args, server) for _ in range(args.rounds)]
    p99 = [[half["p99_ms"] for half in halves] for halves in zip(*rounds)]
    ratio = statistics.median(p99[1]) / statistics.median(p99[0])
    failed = sum(half["failed"] for halves in rounds for half in halves)
    result = {"machine": machine(), **commit(), "connections": args.connections,
              "rate": args.rate, "rounds": rounds, "p99_ms_alone": p99[0],
              "p99_ms_beside": p99[1], "ratio": round(ratio, 2), "failed": failed}
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if ratio <= args.most and not failed else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(f"reset_flood: {error}")
