"""Servers on ports of the loopback and the gateway smg in front of them, for gateway_test."""

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

from python_tools import ROOT
from running_server import BINARY, START_SECONDS, LogFile

PATIENCE = 60  # seconds: beyond it something hangs; never how long a thing should take


def wait_for(condition, what):
    """The first true value of `condition`, which is asked until it has one."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {PATIENCE} seconds for {what}")


def free_ports(count):
    """Ports of the loopback that are unused now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def fetch(url, body=None):
    """Status and text of a request; `body` is sent as JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Process:
    """A program whose output a test reads."""

    def __init__(self, command, **options):
        self._log = LogFile()
        self.process = subprocess.Popen(
            command, stdout=self._log, stderr=self._log, start_new_session=True, **options
        )

    def log(self):
        return self._log.text()

    def kill(self):
        """Ends it and its children at once."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.kill()
        self._log.close()


class Server(Process):
    """Serves the bundled model on a free port."""

    def __init__(self, *flags):
        super().__init__([BINARY, "--port", "0", "--metrics-port", "0", *flags])
        deadline = time.monotonic() + START_SECONDS
        while not (ready := re.search(r" READY .* port=(\d+) metrics_port=(\d+)", self.log())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the server did not start; its log:\n{self.log()}")
            time.sleep(0.02)
        self.address = f"127.0.0.1:{ready.group(1)}"
        self.admin = f"http://127.0.0.1:{ready.group(2)}"

    def metric(self, name, labels=""):
        """The sum of the metric's series whose labels contain `labels`."""
        page = fetch(f"{self.admin}/metrics")[1]
        series = re.findall(rf"^{name}{{(.*)}} (\S+)$", page, re.M)
        return sum(float(value) for which, value in series if labels in which)


class Gateway(Process):
    """smg, as scripts/gateway starts it, in front of servers."""

    def __init__(self, servers, *flags):
        port, metrics_port = free_ports(2)
        self.url = f"http://127.0.0.1:{port}"
        self.metrics = f"http://127.0.0.1:{metrics_port}/metrics"
        ports = ["--port", str(port), "--prometheus-port", str(metrics_port)]
        addresses = [server.address for server in servers]
        super().__init__([ROOT / "scripts/gateway", *addresses, "--", *ports, *flags])
        try:
            wait_for(lambda: self._ready(len(servers)), "the gateway")
        except AssertionError as error:
            raise AssertionError(f"{error}; its log:\n{self.log()}") from None

    def _ready(self, servers):
        """Knows all servers and the model's tokenizer."""
        if self.process.poll() is not None:
            raise AssertionError("the gateway ended")
        try:
            workers = json.loads(fetch(f"{self.url}/workers")[1])["workers"]
            if sum(worker["is_healthy"] for worker in workers) < servers:
                return False
            ask = {"model": "demo", "prompt": "a", "max_tokens": 1}
            return fetch(f"{self.url}/v1/completions", ask)[0] == 200
        except (OSError, KeyError, ValueError):
            return False

    def indexed_blocks(self):
        """Blocks with KV that it knows of, by server address."""
        page = fetch(self.metrics)[1]
        series = re.findall(r'^smg_kv_index_blocks{.*"grpc://([^"]+)".*} (\S+)$', page, re.M)
        return {address: float(value) for address, value in series}
