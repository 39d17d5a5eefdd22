"""The server of the chaos test, its files and its callers, and what tells all threads to end."""

import hashlib
import json
import random
import secrets
import socket
import sys
import threading

import seccomp_filter
from answers import PATIENCE, Broken, Line, Told
from faults import Disk, MemoryGroup
from judge import Judge
from running_server import BINARY
from served import Servers

TENANTS = ("acme", "beta")
MEMORY_MIB = 1024  # of the server, its worker and its files in memory
DISK_MIB = 8
DRAIN_SECONDS = 10
FILTER = seccomp_filter.__file__  # a program too
FLAGS = ("--device", "cpu", "--cpu-threads", "1", "--worker-process", "on",
         "--worker-step-timeout", "3", "--max-num-seqs", "12", "--max-num-queued-reqs", "48",
         "--kv-cache-memory-bytes", "24MiB", "--kv-offloading-size", "0.03", "--kv-checksum",
         "--session-idle-offload-after", "0.3", "--slow-reader-timeout", "10", "--log-format",
         "json", "--shutdown-timeout", str(DRAIN_SECONDS))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class World:
    """The server and all that is done with it."""

    def __init__(self, folder, *flags):
        self.folder, self.stopped, self.flood = folder, threading.Event(), threading.Event()
        self.port, self.metrics_port = free_port(), free_port()
        self.sessions = folder / "sessions"
        self.sessions.mkdir()
        self.disk = Disk(self.sessions, DISK_MIB)
        self.group = MemoryGroup(f"quire-chaos-{self.port}", MEMORY_MIB)
        self.keys = {}
        self.make_keys()
        self.key_header = ((b"authorization", f"Bearer {self.keys['acme']}".encode()),)
        # A call that the container's profile does not list ends the server, or its worker.
        strict = (sys.executable, FILTER) if seccomp_filter.is_possible() else ()
        command = (*strict, BINARY, *FLAGS, *flags, "--port", self.port, "--metrics-port",
                   self.metrics_port, "--session-dir", self.sessions, "--api-keys",
                   folder / "keys.json")
        self.servers = Servers([str(word) for word in command], folder, self.group)
        self.judge = Judge(self.servers)

    def make_keys(self):
        """A key for each tenant, in the file of --api-keys (docs/keys.md)."""
        listed = []
        for tenant, scopes in (*((name, ("infer", "session")) for name in TENANTS),
                               ("ops", ("admin", "metrics"))):
            key_id, secret = secrets.token_hex(8), secrets.token_hex(32)
            key = self.keys[tenant] = f"qk-{key_id}-{secret}"
            listed.append({"id": key_id, "sha256": hashlib.sha256(key.encode()).hexdigest(),
                           "tenant": tenant, "scopes": scopes})
        text = json.dumps({"tenants": {name: {} for name in self.keys}, "keys": listed})
        (self.folder / "keys.json").write_text(text)

    def line(self, tenant="acme", key=None):
        return Line(f"127.0.0.1:{self.port}", self.keys[tenant] if key is None else key)

    def close(self):
        self.stopped.set()
        self.servers.stopped.set()
        self.servers.life.process.kill()
        self.servers.life.process.wait()
        self.disk.close()
        self.group.close()


class Caller(threading.Thread):
    """Asks for known answers, some of which it leaves early."""

    def __init__(self, world, line, known, seed):
        super().__init__(daemon=True, name="caller")
        self.world, self.line, self.known, self.chance = world, line, known, random.Random(seed)

    def run(self):
        with self.world.judge.watching(self.name):
            while not self.world.stopped.is_set():
                if self.world.servers.up.wait(1):
                    self.ask(self.chance.choice(sorted(self.known)))
                    self.world.stopped.wait(0.05)

    def ask(self, name, hasty=True):
        request, expected = self.known[name]
        told, way = Told(), self.chance.random() if hasty else 1
        with self.world.judge.call(name) as call:
            call.cancelled, call.hasty = way < 0.1, 0.1 <= way < 0.2
            try:
                request.run(self.line, told,
                            timeout=self.chance.uniform(0.02, 1) if call.hasty else PATIENCE,
                            cancel_after=self.chance.randint(1, 50) if call.cancelled else None)
                for code, reason in told.refused:
                    self.world.judge.refused(call, code, reason)
                if not told.refused and not told.equals(expected):
                    raise Broken(f"{told}, not {expected}")
            finally:
                if not told.begins(expected):
                    self.world.judge.fault(f"{name}: {told} is no beginning of {expected}")
