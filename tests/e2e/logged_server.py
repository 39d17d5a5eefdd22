"""A quire-server on a TCP port whose log is read as JSON, for tests of whole programs."""

import http.client
import json
import os
import re
import subprocess
import time

from running_server import LogFile

PATIENCE = 120  # seconds after which a wait counts as a hang; no measurement


def await_true(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what}"
        time.sleep(0.05)


def clean_environment():
    return {k: v for k, v in os.environ.items() if not k.startswith("QUIRE_")}


class LoggedServer:
    """quire-server of the folder `programs` on a free port; ends with its `with` block."""

    def __init__(self, programs, *flags):
        self._log = LogFile()
        self.process = subprocess.Popen(
            [programs / "quire-server", "--port", "0", "--metrics-port", "0", "--log-format",
             "json", *flags], env=clean_environment(), stdout=self._log, stderr=self._log)
        await_true(lambda: self.events("READY") or self.process.poll() is not None, "READY")
        ready = self.events("READY")
        assert ready, self.log()
        self.port, self.metrics_port = ready[0]["port"], ready[0]["metrics_port"]
        self.address = f"localhost:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.kill()
        self.process.wait()
        self._log.close()

    def log(self):
        return self._log.text()

    def events(self, name):
        lines = [line for line in self.log().splitlines(keepends=True) if line.endswith("\n")]
        return [e for e in (json.loads(line) for line in lines if line.startswith("{"))
                if e["event"].startswith(name)]

    def metric(self, name, label=""):
        """The value of a series; None if it is not exported."""
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=PATIENCE)
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
        connection.close()
        found = re.search(rf"^{name}{{[^}}]*{label}[^}}]*}} (\S+)$", page, re.M)
        return float(found.group(1)) if found else None
