"""Programs that a benchmark starts: servers that say READY, and clients whose CPU time counts."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time


class BenchError(Exception):
    """A benchmark without figures; the message has the reason."""


READY_SECONDS = 600  # loading a large checkpoint


def find_program(build, name):
    """The path of a program in a build folder, or in bin/ of a pack of scripts/gpu-pack."""
    for folder in ("", "bin", "bench"):
        path = build / folder / name
        if path.is_file():
            return path
    raise BenchError(f"no {name} in {build}")


class Server:
    """A server process on free ports; ends with the block.

    `log` receives its stderr, in which the line with READY says where it listens.
    """

    def __init__(self, command, log):
        self.command = [str(word) for word in command]
        self.log = pathlib.Path(log)
        self.process = None
        self.address = self.metrics = None
        self.ready_seconds = None

    def __enter__(self):
        start = time.monotonic()
        with open(self.log, "wb") as stderr:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr
            )
        while True:
            line = re.search(r"^.*\bREADY\b.*\baddress=(\S+).*$", self.log.read_text(), re.M)
            if line:
                break
            if self.process.poll() is not None:
                raise BenchError(f"{self.command[0]} ended before it was ready:\n{self.tail()}")
            if time.monotonic() - start > READY_SECONDS:
                self.__exit__(None, None, None)
                raise BenchError(f"{self.command[0]} was not ready in {READY_SECONDS} s")
            time.sleep(0.01)
        self.ready_seconds = time.monotonic() - start
        self.address = line.group(1)
        port = re.search(r"metrics_port=(\d+)", line.group(0))
        self.metrics = f"127.0.0.1:{port.group(1)}" if port else None
        return self

    def __exit__(self, *exception):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def tail(self):
        return "\n".join(self.log.read_text().splitlines()[-15:])

    def alive(self):
        return self.process.poll() is None

    def cpu_seconds(self):
        """User and system time of the process so far."""
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = stat.rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid):
    try:
        pages = pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Done:
    """A program that has ended."""

    def __init__(self, status, stdout, stderr, cpu_seconds, resident):
        self.status, self.stdout, self.stderr = status, stdout, stderr
        self.cpu_seconds = cpu_seconds
        self.resident = resident  # [seconds, bytes of each watched process ...] once a second


def run(command, timeout, watch=()):
    """Runs a program to its end; looks once a second at its memory and that of `watch`'s pids."""
    command = [str(word) for word in command]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.monotonic()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, process_group=0
        )
        # With the processes that it started itself.
        killer = threading.Timer(timeout, lambda: os.killpg(process.pid, signal.SIGKILL))
        killer.start()
        ended = threading.Event()
        resident = []

        def look():
            while not ended.wait(1):
                pids = (process.pid, *watch)
                seconds = round(time.monotonic() - start, 1)
                resident.append([seconds] + [resident_bytes(pid) for pid in pids])

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGINT)
            raise
        finally:
            killer.cancel()
            ended.set()
            watcher.join()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if time.monotonic() - start > timeout:
            raise BenchError(f"{command[0]} did not end within {timeout} s")
        return Done(
            process.returncode,
            out.read().decode(errors="replace"),
            err.read().decode(errors="replace"),
            usage.ru_utime + usage.ru_stime,
            resident,
        )
