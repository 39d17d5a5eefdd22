#!/usr/bin/python3
"""One fault, many times, under load: drills.py SERVER deaths|drains [TIMES [SEED]].

deaths: the worker is killed every three seconds; a stream may be lost at its third death only.
drains: the server gets SIGTERM; it ends within its time, and the streams that run then are whole.
Prints JSON; the exit code is 1 if a call ended as it may not.
"""

import json
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import time

from answers import PATIENCE, Line, Told, kinds
from faults import signal_worker
from running_server import RunningServer
from served import await_true
from world import DRAIN_SECONDS, Caller, World

DRILL, TIMES = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 32)
EVERY_SECONDS = 3  # between two deaths: for a request that takes longer, the third may be near
CALLERS = 8


class SteadyCaller(Caller):
    """Waits for each answer."""

    def ask(self, name, hasty=False):
        super().ask(name, hasty)


def known_answers(folder):
    calm = RunningServer("--device", "cpu", "--worker-process", "off")
    line, known = Line(calm.target), {}
    for name, request in kinds(folder).items():
        told = Told()
        request.run(line, told)
        known[name] = (request, told)
    line.close()
    calm.stop()
    return known


def deaths(world):
    """Kills the worker TIMES times."""
    killed = 0
    while killed < TIMES:
        time.sleep(EVERY_SECONDS)
        await_true(lambda: signal_worker(world, signal.SIGKILL), "a worker")
        killed += 1
    life = world.servers.life
    await_true(lambda: life.deaths() == TIMES and life.worker() is not None, "the last worker")
    return {"kills": killed, "servers": len(world.servers.lives)}


def drains(world, chance):
    """Ends TIMES servers, and measures how long each takes."""
    seconds = []
    for _ in range(TIMES):
        assert world.servers.up.wait(PATIENCE), "a server did not start"
        time.sleep(chance.uniform(0.2, 1.5))
        process, began = world.servers.life.process, time.monotonic()
        world.servers.end(signal.SIGTERM)
        await_true(lambda: process.poll() is not None, "the end of a drain")
        seconds.append(time.monotonic() - began)
    ends = [event["unfinished_streams"] for life in world.servers.lives
            for event in life.events("drain ended")]
    return {"drains": len(seconds), "longest_seconds": round(max(seconds), 2),
            "median_seconds": round(statistics.median(seconds), 2),
            "allowed_seconds": DRAIN_SECONDS, "with_unfinished_streams": sum(map(bool, ends))}


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        known = known_answers(folder)
        world = World(folder, "--max-worker-deaths", str(TIMES)) if DRILL == "deaths" else World(
            folder)
        try:
            assert world.servers.up.wait(PATIENCE), world.servers.life.log()
            callers = [SteadyCaller(world, world.line(), known, SEED + i) for i in range(CALLERS)]
            for caller in callers:
                caller.start()
            began = time.monotonic()
            figures = deaths(world) if DRILL == "deaths" else drains(world, random.Random(SEED))
            figures["minutes"] = round((time.monotonic() - began) / 60, 1)
            world.stopped.set()
            for caller in callers:
                caller.join(2 * PATIENCE)
            world.servers.stop()
            figures["outcomes"] = world.judge.figures()
            wrong = world.judge.conclude()
        finally:
            world.close()
    print(json.dumps({"drill": DRILL, "seed": SEED, **figures, "wrong": len(wrong)}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
