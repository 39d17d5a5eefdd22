"""The conversation of the session tests, and the wait for a condition: for the CPU and for a GPU
host, so without any package of gRPC."""

import os
import pathlib
import signal
import time

PATIENCE = 60  # seconds: beyond it something hangs; never how long a thing should take
WORDS = (
    "Hello, my name is Ben. Remember this: The secret number of Mia is 4172.",
    "Tell me a story about a dragon who was lonely.",
    "What is my name?",
    "How do I plant a seed?",
    "What is a KV cache?",
    "What is the secret number of Mia?",
)


def spoken(turn):
    """The prompt of a turn. It begins with the end mark of the answer before, which may lack it."""
    end = "" if turn == 0 else "<|end|>"
    return f"{end}<|user|>{WORDS[turn]}<|end|><|assistant|>"


def await_true(condition, what):
    """Returns once the condition holds; AssertionError that names it after PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"never: {what}")
        time.sleep(0.005)


def halt(pid):
    """Stops a process; returns when none of its threads runs any more."""
    os.kill(pid, signal.SIGSTOP)
    threads = pathlib.Path(f"/proc/{pid}/task").glob
    await_true(lambda: all(stat.read_text().rpartition(") ")[2][0] == "T"
                           for stat in threads("*/stat")), "a stopped process")
