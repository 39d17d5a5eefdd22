"""A quire-server on a Unix socket, for the tests of the Python client."""

import http.client
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import grpc

BINARY = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else None
START_SECONDS = 120  # with sanitizers and a busy machine; a plain build needs less than one
PAGE_SECONDS = 60  # beyond it something hangs


class LogFile:
    """What a program prints, for a test that reads it meanwhile.

    The program writes to it as `stdout` or `stderr` of Popen. A reader opens the file anew: with a
    shared position each would move the other's place.
    """

    def __init__(self):
        self._file = tempfile.NamedTemporaryFile(mode="ab")

    def fileno(self):
        return self._file.fileno()

    def text(self):
        return pathlib.Path(self._file.name).read_text(encoding="utf-8")

    def close(self):
        self._file.close()


class RunningServer:
    """Serves the bundled model, or the one of `flags`, until stop(); `binary` is BINARY's copy."""

    def __init__(self, *flags, binary=None, environment=None):
        self._folder = tempfile.TemporaryDirectory()
        self.target = f"unix:{self._folder.name}/quire.sock"
        self._log = LogFile()
        listen = ["--uds", f"{self._folder.name}/quire.sock", "--metrics-port", "0"]
        self.process = subprocess.Popen(
            [binary or BINARY, *listen, *flags],
            stdout=self._log,
            stderr=self._log,
            env=environment,
        )
        channel = grpc.insecure_channel(self.target)
        try:
            grpc.channel_ready_future(channel).result(timeout=START_SECONDS)
        except grpc.FutureTimeoutError:
            log = self.log()
            self.stop()
            raise AssertionError(f"the server did not start; its log:\n{log}") from None
        finally:
            channel.close()

    def log(self):
        return self._log.text()

    def admin_port(self):
        """Its number, from the line with READY: the socket may accept calls before that is said."""
        deadline = time.monotonic() + START_SECONDS
        while not (ready := re.search(r" READY .*metrics_port=(\d+)", self.log())):
            assert time.monotonic() < deadline and self.process.poll() is None, self.log()
            time.sleep(0.01)
        return int(ready.group(1))

    def get(self, path):
        """Status and text of a page of the admin port, once the server is READY."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.admin_port(), timeout=PAGE_SECONDS
        )
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def metric(self, name):
        """The value of the metric's first series."""
        return float(re.search(rf"^{name}{{.*}} (\S+)$", self.get("/metrics")[1], re.M).group(1))

    def stop(self):
        """Ends the server at once and returns its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self._folder.cleanup()
        self._log.close()
        return self.process.wait()
