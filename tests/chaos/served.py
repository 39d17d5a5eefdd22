"""A quire-server that is started again whenever it ends, and what was done to it, and when."""

import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import threading
import time
import urllib.request

from answers import PATIENCE

SETTLE = 5  # seconds: a call that was lost within them of a disturbance was lost by it
EXIT_OK, EXIT_DEVICE = 0, 5
BAD_LINES = ("CHECK failed", "shutdown hung", "Sanitizer", "terminate called")


def await_true(condition, what, patience=PATIENCE):
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"never: {what() if callable(what) else what}"
        time.sleep(0.05)


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Disturbances:
    """The times in which connections may be lost or refused. Any thread."""

    def __init__(self):
        self._lock = threading.Lock()
        self._times = []  # begin and end; an open one has no end yet

    def begin(self):
        with self._lock:
            self._times.append([time.monotonic(), None])
            return self._times[-1]

    def end(self, one):
        with self._lock:
            one[1] = time.monotonic()

    def meets(self, began, ended):
        with self._lock:
            return any(begin - SETTLE <= ended and (end is None or began <= end + SETTLE)
                       for begin, end in self._times)


class Life:
    """One process of the server, from its start to its end."""

    def __init__(self, number, log):
        self.number, self.log_path = number, log
        self.process = None
        self.signals = []  # that ended it, if any
        self.disk_failed = False  # a fault of the disk, or of descriptors, met it
        self.flooded = False  # a flood of resets met it
        self.unsaved = 0  # turns that it counted as unsaved, when they were last read
        self.lost = []  # turns that their client knew of and the next process did not

    def log(self):
        return self.log_path.read_text(errors="replace")

    def events(self, name):
        lines = [line for line in self.log().splitlines() if line.startswith("{")]
        return [event for event in map(json.loads, lines) if event["event"].startswith(name)]

    def worker(self):
        """The process id of its worker, if it lives."""
        started = self.events("worker started")
        pid = started[-1]["pid"] if started else None
        return pid if pid is not None and alive(pid) else None

    def deaths(self):
        return len(self.events("workers died"))

    def gave_up(self):
        """Whether its workers died too often."""
        return "the workers failed" in self.log()

    def faults(self):
        """What its end and its log tell against it."""
        code, log = self.process.returncode, self.log()
        allowed = [-number for number in self.signals if number == signal.SIGKILL]
        allowed += [EXIT_OK] if signal.SIGTERM in self.signals else []
        allowed += [EXIT_DEVICE] if self.gave_up() else []
        found = [] if code in allowed else [f"server {self.number} ended with code {code} after "
                                            f"signals {self.signals}:\n{log[-3000:]}"]
        return found + [f"server {self.number}: {line}" for line in log.splitlines()
                        if any(bad in line for bad in BAD_LINES)]


class Servers:
    """One server after another, on the same ports and with the same files."""

    def __init__(self, command, folder, group):
        self.command, self.folder, self.group = command, folder, group
        self.disturbances = Disturbances()
        self.lives = []
        self.blows = []  # when a worker was killed or stopped
        self.up = threading.Event()
        self.stopped = threading.Event()
        self._lock = threading.Lock()  # one signal at a time
        self._begin = self.disturbances.begin()
        self._start()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    @property
    def life(self):
        return self.lives[-1]

    def _start(self):
        life = Life(len(self.lives), self.folder / f"server-{len(self.lives)}.log")
        with open(life.log_path, "wb") as log:
            life.process = subprocess.Popen(self.group.inside(self.command), stdout=log,
                                            stderr=log, stdin=subprocess.DEVNULL)
        self.lives.append(life)

    def _keep(self):
        while True:
            life = self.life
            while life.process.poll() is None:
                with self._lock:
                    if not (self.up.is_set() or life.signals) and life.events("READY"):
                        self.disturbances.end(self._begin)
                        self.up.set()
                time.sleep(0.02)
            if self.up.is_set():  # it ended by itself, or a signal is about to be noted
                self.up.clear()
                self._begin = self.disturbances.begin()
            if self.stopped.is_set():
                return
            self._start()

    def end(self, number):
        """Sends the signal that ends the server; it comes back."""
        with self._lock:
            if not self.up.is_set():
                return
            life = self.life
            self.note_unsaved(life)
            life.signals.append(number)
            self.up.clear()
            self._begin = self.disturbances.begin()
            life.process.send_signal(number)

    def note_unsaved(self, life):
        try:
            life.unsaved = self.sum("quire_session_turns_unsaved_total")
        except OSError:
            pass  # it ends already

    def port_of_metrics(self):
        return self.command[self.command.index("--metrics-port") + 1]

    def page(self, path="/metrics"):
        address = f"http://127.0.0.1:{self.port_of_metrics()}{path}"
        with urllib.request.urlopen(address, timeout=PATIENCE) as page:
            return page.read().decode()

    def sum(self, name, labels=""):
        """The sum of the metric's series with these labels."""
        found = re.findall(rf"^{name}{{[^}}]*{labels}[^}}]*}} (\S+)$", self.page(), re.M)
        return sum(map(float, found))

    def starve(self, seconds):
        """Leaves the process a few descriptors for so long."""
        life = self.life
        begin = self.disturbances.begin()
        life.disk_failed = True
        pid = life.process.pid
        try:
            limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            used = len(os.listdir(f"/proc/{pid}/fd"))
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 3, limits[1]))
            self.stopped.wait(seconds)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        except (OSError, ProcessLookupError):
            pass  # the process ended
        self.disturbances.end(begin)

    def figures(self):
        """What the process holds."""
        root = pathlib.Path(f"/proc/{self.life.process.pid}")
        resident = re.search(r"VmRSS:\s+(\d+) kB", (root / "status").read_text())
        return {"descriptors": len(os.listdir(root / "fd")),
                "threads": len(os.listdir(root / "task")),
                "resident_mib": int(resident.group(1)) >> 10}

    def stop(self):
        """Ends the last server; its life has the exit code."""
        self.stopped.set()
        if self.life.process.poll() is None:
            self.end(signal.SIGTERM)
        try:
            self.life.process.wait(PATIENCE)
        finally:
            self.life.process.kill()
        self._keeper.join()
