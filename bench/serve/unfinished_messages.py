#!/usr/bin/python3
"""Memory of unfinished messages: bench/serve/unfinished_messages.py [--bin FOLDER].

Connections open calls, send each message but its last byte, and keep the call open; one that the
server closes is not opened again. Meanwhile other clients ask for tokens, one request after the
other, and one of them for long streams. The server's resident memory is read ten times a second,
and the clients' times are compared with those before. Each round has a new server, with
--limit-mib in a control group whose memory is limited. Prints and writes JSON; exit code 1 if the
memory grew beyond --most-mib, if the kernel killed a server for its memory, if a client's request
failed, or if the p99 beside, by the median of the rounds, is more than --most-p99-ratio of that
before.

The model is the bundled one on the CPU; words after -- are the server's flags and replace these.
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import selectors
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time

import grpc

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("bench", "clients/python", "tests/chaos")]
from faults import MemoryGroup  # noqa: E402
from harness.machine import commit, machine  # noqa: E402
from harness.process import BenchError, Server, find_program, resident_bytes  # noqa: E402

import quire  # noqa: E402

# Small pools, so that memory of the KV cache that is touched first hides nothing.
SERVER_FLAGS = ["--device", "cpu", "--model", str(ROOT / "models/demo"),
                "--kv-cache-memory-bytes", "32MiB", "--kv-offloading-size", "0"]
HEADERS, SETTINGS, DATA, WINDOW = 1, 4, 0, 8
LONG_TOKENS = 1000  # of one client that streams all the time
PATIENCE = 60  # seconds after which a client's request counts as failed
# Without an index: an uncompressed header, its name and its value.
HEADER_WORDS = (b":path", b"/quire.v1.Inference/Generate", b":authority", b"x", b"content-type",
                b"application/grpc", b"te", b"trailers")


def frame(kind, flags, stream, payload):
    return (len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
            + payload)


def header_block():
    words = b"".join(bytes([len(word)]) + word for word in HEADER_WORDS[:2])
    rest = b"".join(b"\0" + bytes([len(HEADER_WORDS[i])]) + HEADER_WORDS[i]
                    + bytes([len(HEADER_WORDS[i + 1])]) + HEADER_WORDS[i + 1]
                    for i in range(2, len(HEADER_WORDS), 2))
    return b"\x83\x86\0" + words + rest  # POST, http


class Holder:
    """A connection whose calls lack the last byte of their message; keeps HTTP/2's windows."""

    def __init__(self, address, calls, message_bytes):
        self.line = socket.create_connection(address)
        self.line.setblocking(False)
        self.window, self.first_window, self.read = 65535, 65535, b""
        self.out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b"")
        self.left, self.windows = {}, {}
        for stream in range(1, 2 * calls, 2):
            self.out += frame(HEADERS, 4, stream, header_block())
            self.out += frame(DATA, 0, stream, struct.pack(">BI", 0, message_bytes))
            self.left[stream] = message_bytes - 1
            self.windows[stream] = -5
        self.window -= 5 * calls
        self.sent = 0

    def take(self):
        """Reads the server's frames; OSError when it has closed the connection."""
        data = self.line.recv(65536)
        if not data:
            raise ConnectionError
        self.read += data
        while len(self.read) >= 9:
            size, kind = int.from_bytes(self.read[:3], "big"), self.read[3]
            if len(self.read) < 9 + size:
                return
            self.apply(kind, self.read[4], int.from_bytes(self.read[5:9], "big"),
                       self.read[9:9 + size])
            self.read = self.read[9 + size:]

    def apply(self, kind, flags, stream, payload):
        if kind == WINDOW:
            more = int.from_bytes(payload, "big")
            if stream == 0:
                self.window += more
            elif stream in self.windows:
                self.windows[stream] += more
        elif kind == SETTINGS and not flags & 1:
            self.out += frame(SETTINGS, 1, 0, b"")
            for at in range(0, len(payload), 6):
                key, value = struct.unpack(">HI", payload[at:at + 6])
                if key == 4:
                    self.first_window = value
        elif kind == 6 and not flags & 1:  # PING
            self.out += frame(6, 1, 0, payload)
        elif kind == 3:  # RST_STREAM
            self.left.pop(stream, None)

    def fill(self):
        """Adds as much of the messages as the windows take."""
        for stream, left in self.left.items():
            while left > 0 and len(self.out) < 262144:
                count = min(left, 16384, self.window, self.first_window + self.windows[stream])
                if count <= 0:
                    break
                self.out += frame(DATA, 0, stream, b"\0" * count)
                self.window -= count
                self.windows[stream] -= count
                left -= count
                self.sent += count
            self.left[stream] = left

    def give(self):
        self.fill()
        if self.out:
            self.out = self.out[self.line.send(self.out):]


def attack(address, args, sent, cut):
    """Runs until it is ended; `sent` and `cut` count bytes of messages, and closed connections."""
    selector = selectors.DefaultSelector()
    for _ in range(args.connections):
        holder = Holder(address, args.calls, args.message_bytes)
        selector.register(holder.line, selectors.EVENT_READ | selectors.EVENT_WRITE, holder)
    while True:
        for key, events in selector.select(1):
            holder = key.data
            before = holder.sent
            try:
                if events & selectors.EVENT_READ:
                    holder.take()
                holder.give()
                idle = not holder.out
                selector.modify(holder.line, selectors.EVENT_READ
                                | (0 if idle else selectors.EVENT_WRITE), holder)
            except BlockingIOError:
                pass
            except OSError:
                selector.unregister(holder.line)
                holder.line.close()
                cut.value += 1
            sent.value += holder.sent - before


class Watch:
    """The largest resident memory of a process while the block runs."""

    def __init__(self, pid):
        self.pid, self.peak, self.done = pid, 0, threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.done.wait(0.1):
            self.peak = max(self.peak, resident_bytes(self.pid))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.done.set()
        self.thread.join()


def client_times(address, args):
    """Milliseconds of the clients' short requests; how many failed, of long streams too."""
    times, streams, failed = [], [], []

    def ask(tokens, done):
        with quire.QuireClient(address, timeout=PATIENCE) as client:
            end = time.monotonic() + args.seconds
            while time.monotonic() < end:
                began = time.monotonic()
                try:
                    for _ in client.generate("Tell me a story.", max_tokens=tokens,
                                             ignore_eos=True):
                        pass
                    done.append(1000 * (time.monotonic() - began))
                except (quire.QuireError, grpc.RpcError) as error:
                    failed.append(str(error))
                time.sleep(0.05)

    threads = [threading.Thread(target=ask, args=(4, times)) for _ in range(args.clients)]
    threads.append(threading.Thread(target=ask, args=(LONG_TOKENS, streams)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not times:
        raise BenchError(f"no request was answered: {sorted(set(failed))[:3]}")
    cuts = statistics.quantiles(times, n=100) if len(times) > 1 else 99 * times
    return {"requests": len(times), "streams": len(streams),
            "failed": len(failed), "errors": sorted(set(failed))[:3],
            "p50_ms": round(cuts[49], 2), "p99_ms": round(cuts[98], 2)}


def beside_attack(args, server):
    """The clients' times beside the unfinished messages, and what these cost."""
    host, port = server.address.rsplit(":", 1)
    before = resident_bytes(server.process.pid)
    sent, cut = multiprocessing.Value("q"), multiprocessing.Value("q")
    attacker = multiprocessing.Process(target=attack, args=((host, int(port)), args, sent, cut),
                                       daemon=True)
    with Watch(server.process.pid) as watch:
        attacker.start()
        time.sleep(args.settle)
        open_then = args.connections - cut.value
        try:
            times = client_times(server.address, args)
            end = resident_bytes(server.process.pid)
            if not attacker.is_alive() and server.alive():
                raise BenchError("the connections ended")
        finally:
            attacker.kill()
            attacker.join()
    return {"beside": times, "before_mib": before >> 20, "peak_mib": watch.peak >> 20,
            "end_mib": end >> 20, "growth_mib": (watch.peak - before) >> 20,
            "sent_mib": sent.value >> 20, "connections_cut": cut.value,
            "connections_open_meanwhile": [open_then, args.connections - cut.value]}


def in_group(args, group, log):
    """The round of a server in this control group."""
    command = [find_program(args.bin, "quire-server"), "--port", 0, "--metrics-port", 0,
               "--no-log-requests", *args.server_flags]
    found = {"load_before": round(os.getloadavg()[0], 1)}
    with Server(group.inside(command), log) as server:
        try:
            client_times(server.address, argparse.Namespace(seconds=2, clients=args.clients))
            found["alone"] = client_times(server.address, args)
            found |= beside_attack(args, server)
        except BenchError as error:  # the kernel may have killed the server
            found["error"] = str(error)
        found |= {"server_lives": server.alive(), "load_after": round(os.getloadavg()[0], 1)}
    return found


def one_round(args, log):
    if not args.limit_mib:
        return in_group(args, argparse.Namespace(inside=lambda command: command), log)
    group = MemoryGroup(f"quire-unfinished-{os.getpid()}", args.limit_mib)
    if group.folder is None:
        raise BenchError("no control group can be made here: memory is not limited")
    try:
        found = in_group(args, group, log)
        return found | {"group": group.figures()}
    finally:
        group.close()


def verdict(args, rounds):
    """What the rounds say together, and what of it is refused."""
    whole = [each for each in rounds if "beside" in each]
    failed = sum(each["beside"]["failed"] for each in whole)
    kills = sum(each["group"]["oom_kills"] for each in rounds) if args.limit_mib else 0
    growth = max((each["growth_mib"] for each in whole), default=0)
    found = {"failed": failed, "growth_mib": growth}
    refused = [each["error"] for each in rounds if "error" in each]
    refused += [] if all(each["server_lives"] for each in rounds) else ["a server ended"]
    refused += [f"memory grew by {growth} MiB"] if growth > args.most_mib else []
    refused += [f"{failed} requests failed"] if failed else []
    if args.limit_mib:
        found["bound_held"] = not kills
        refused += [f"{args.limit_mib} MiB did not hold"] if kills else []
    if whole:
        alone, beside = (statistics.median(each[half]["p99_ms"] for each in whole)
                         for half in ("alone", "beside"))
        found |= {"p99_ms_alone": alone, "p99_ms_beside": beside,
                  "p99_ratio": round(beside / alone, 2)}
        if args.most_p99_ratio and beside > args.most_p99_ratio * alone:
            refused.append(f"the p99 is {found['p99_ratio']} of that without")
    return found | {"refused": refused}


def arguments():
    text = __doc__.split("\n")
    parser = argparse.ArgumentParser(description=text[0], epilog="\n".join(text[2:]),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=4, help="unfinished, on each connection")
    parser.add_argument("--message-bytes", type=int, default=4 << 20)
    parser.add_argument("--clients", type=int, default=4, help="that ask for tokens meanwhile")
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement")
    parser.add_argument("--settle", type=float, default=5, help="seconds before the second one")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--most-mib", type=int, default=512, help="growth that is accepted")
    parser.add_argument("--limit-mib", type=int, help="of the server's control group")
    parser.add_argument("--most-p99-ratio", type=float, help="beside, of that before")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("server_flags", nargs="*", default=SERVER_FLAGS, metavar="-- FLAG")
    return parser.parse_args()


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        rounds = [one_round(args, pathlib.Path(scratch) / f"server-{i}.log")
                  for i in range(args.rounds)]
    found = verdict(args, rounds)
    result = {"machine": machine(), **commit(), "connections": args.connections,
              "calls": args.calls, "message_bytes": args.message_bytes,
              "limit_mib": args.limit_mib, "rounds": rounds, **found}
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if found["refused"] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(f"unfinished_messages: {error}")
