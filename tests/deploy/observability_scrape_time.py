#!/usr/bin/python3
"""Measures a scrape of /metrics, idle and under load: observability_scrape_time.py BIN [STREAMS].

No test: prints milliseconds of the whole request, as Prometheus sees it, and of processor time that
the server's process spends on it while idle.
"""

import pathlib
import statistics
import subprocess
import sys
import time
import urllib.request

from observability_servers import Server
from processes import await_true

SCRAPES = 300


def milliseconds(server):
    begin = time.perf_counter()
    with urllib.request.urlopen(f"http://{server.instance}/metrics") as page:
        size = len(page.read())
    return (time.perf_counter() - begin) * 1e3, size


def measure(server, title):
    took = []
    for _ in range(SCRAPES):
        time.sleep(0.01)
        one, size = milliseconds(server)
        took.append(one)
    took.sort()
    p50, p99 = statistics.median(took), took[SCRAPES * 99 // 100]
    print(f"{title}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, {size} bytes")


def main():
    folder = pathlib.Path(sys.argv[1])
    streams = sys.argv[2] if len(sys.argv) > 2 else "16"
    server = Server(folder / "quire-server", "--no-log-requests")
    measure(server, "idle")
    before = server.metric("process_cpu_seconds_total")
    measure(server, "idle")
    spent = server.metric("process_cpu_seconds_total") - before
    print(f"processor time: {spent / SCRAPES * 1e3:.2f} ms a scrape")
    command = [folder / "quire-load", "--server", server.target, "--max-concurrency", streams]
    command += ["--random-input-len", "64", "--random-output-len", "200", "--duration", "600"]
    load = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    await_true(lambda: server.metric("quire_requests_running") > 0, "load")
    measure(server, f"{streams} streams")
    load.kill()
    load.wait()
    server.stop()


if __name__ == "__main__":
    main()
