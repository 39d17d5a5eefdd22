#!/usr/bin/python3
"""SIGTERM amid a flood of resets: each drain ends by itself. reset_drain_test.py SERVER [TIMES]

Several connections open calls and reset them: before, within and behind their message, on methods
of every kind. The signal comes while they do. TIMES, 20 by default, is the number of servers.
"""

import itertools
import socket
import subprocess
import sys
import threading
import unittest

from http2_frames import DATA, frame, headers, message, opening, reset

SERVER = sys.argv[1]
TIMES = int(sys.argv[2]) if len(sys.argv) > 2 else 20
PATIENCE = 120  # seconds after which a wait counts as a hang; no measurement
CONNECTIONS = 4
CALLS_AT_ONCE = 200
METHODS = (b"/quire.v1.Inference/Generate", b"/quire.v1.Inference/Tokenize",
           b"/quire.v1.Control/GetLoad", b"/grpc.health.v1.Health/Watch",
           b"/quire.v1.Sessions/Import",
           b"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", b"/no.such.Service/Method")
# GenerateRequest{text: "hi", stop {max_tokens: 1}}, which other methods refuse or read as theirs.
MESSAGE = message(b"\x1a\2hi\x42\2\x08\1")


def call(stream, way):
    """The frames of a call that is reset; `way` says where."""
    method, end = divmod(way, 4)
    frames = headers(stream, METHODS[method % len(METHODS)])
    if end == 1:
        frames += frame(DATA, 0, stream, MESSAGE[:6])
    if end >= 2:
        frames += frame(DATA, 1, stream, MESSAGE)
    return frames if end == 3 else frames + reset(stream)


def read_all(line):
    """Drops the server's data: otherwise both sides block. At its end, ends a blocked write too."""
    try:
        while line.recv(65536):
            pass
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def flood(port, ways, enough, stopped):
    """Calls and resets until the server is gone; connects again when it cuts the connection."""
    for sent in itertools.count():
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as line:
                threading.Thread(target=read_all, args=(line,), daemon=True).start()
                line.sendall(opening())
                for first in itertools.count(1, 2 * CALLS_AT_ONCE):
                    line.sendall(b"".join(call(i, next(ways))
                                          for i in range(first, first + 2 * CALLS_AT_ONCE, 2)))
                    if first > 10 * CALLS_AT_ONCE or sent > 0:
                        enough.set()
                    if stopped.is_set():
                        return
        except OSError:
            if stopped.is_set():
                return


def ports_of(log):
    """The gRPC port of the server that writes `log`, once it is READY."""
    for line in log:
        if " READY " in line:
            return int(line.split(" port=")[1].split()[0])
    raise AssertionError("the server did not start")


class ResetDrainTest(unittest.TestCase):
    def one(self, number):
        process = subprocess.Popen([SERVER, "--device", "cpu", "--port", "0", "--metrics-port", "0",
                                    "--shutdown-timeout", f"{PATIENCE}s", "--cpu-threads", "1"],
                                   stderr=subprocess.PIPE, text=True)
        port = ports_of(process.stderr)
        rest = []
        stopped = threading.Event()

        def read_log():
            for line in process.stderr:
                rest.append(line)
                if " drain ended " in line:
                    stopped.set()

        reader = threading.Thread(target=read_log)
        reader.start()
        floods = []
        for i in range(CONNECTIONS):
            enough = threading.Event()
            ways = itertools.count(number + 7 * i)
            thread = threading.Thread(target=flood, args=(port, ways, enough, stopped))
            thread.start()
            floods.append((thread, enough))
        for _, enough in floods:
            self.assertTrue(enough.wait(PATIENCE))
        process.terminate()
        code = process.wait(timeout=2 * PATIENCE)
        stopped.set()
        for thread, _ in floods:
            thread.join()
        reader.join()
        process.stderr.close()
        log = "".join(rest)
        self.assertEqual(code, 0, f"drain {number}:\n" + log[-4000:])
        # Each of its requests takes a token, so only the refused ones could have held it up.
        self.assertIn(" drain ended unfinished_streams=0 ", log, f"drain {number}")

    def test_each_drain_ends_by_itself(self):
        for number in range(TIMES):
            self.one(number)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
