"""Servers, a Prometheus that watches them, and a server that only tells of GPUs, for
observability_test.py.
"""

import concurrent.futures
import http.server
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request

import grpc
import quire
from made_certificates import Authority, rename_over
from processes import PATIENCE, await_true, free_port, make_certificate

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRAPE = "500ms"


class Server:
    """A quire-server on the CPU. `instance` is its label in Prometheus; restart() keeps it."""

    def __init__(self, binary, *flags, stderr=None, descriptors=None):
        self.binary = binary
        self._folder = tempfile.TemporaryDirectory()
        self.port = free_port()
        self.instance = f"127.0.0.1:{self.port}"
        self._log = open(stderr or f"{self._folder.name}/log", "w+")
        self._descriptors = descriptors
        self._command = [
            *(binary, "--device", "cpu", "--metrics-port", str(self.port)),
            *(*self._listen(binary), *flags),
        ]
        self.client = self._connect()
        self.start()

    def _listen(self, binary):
        """Sets `target`; the flags for it."""
        self.target = f"unix:{self._folder.name}/quire.sock"
        return "--uds", f"{self._folder.name}/quire.sock"

    def _connect(self):
        return quire.QuireClient(self.target, timeout=PATIENCE)

    def start(self):
        limit = ["prlimit", f"--nofile={self._descriptors}"] if self._descriptors else []
        self.process = subprocess.Popen(
            [*limit, *self._command], stdout=self._log, stderr=self._log
        )
        await_true(self.ready, "the server's start")

    def ready(self):
        assert self.process.poll() is None, "the server has ended:\n" + self.log()
        try:
            return "ok" in self.page("/readyz")
        except OSError:
            return False

    def page(self, path):
        with urllib.request.urlopen(f"http://{self.instance}{path}", timeout=PATIENCE) as page:
            return page.read().decode()

    def log(self):
        self._log.flush()
        return pathlib.Path(self._folder.name, "log").read_text()

    def metric(self, name):
        """The sum of the metric's series."""
        values = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", self.page("/metrics"), re.M)
        return sum(float(value) for value in values)

    def workers(self):
        """The pids of its worker processes."""
        threads = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for thread in threads for pid in thread.read_text().split()]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def restart(self):
        self.kill()
        pathlib.Path(self.target.removeprefix("unix:")).unlink(missing_ok=True)
        self.start()

    def stop(self):
        self.client.close()
        for pid in self.workers() if self.process.poll() is None else []:
            os.kill(pid, signal.SIGCONT)
        if self.process.poll() is None:
            self.kill()
        self._log.close()
        self._folder.cleanup()


class GuardedServer(Server):
    """A server with a certificate and a key, for the tenant acme, who may wait with one request."""

    def _listen(self, binary):
        self._make_certificate()
        self.keys = pathlib.Path(self._folder.name, "keys.json")
        made = subprocess.run(
            [binary.with_name("quire"), "key", "new", "--file", self.keys, "--tenant", "acme"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        self.key = made.stdout.strip()
        table = json.loads(self.keys.read_text())
        table["tenants"]["acme"] = {"max_running_requests": 1, "max_queued_requests": 1}
        self.keys.write_text(json.dumps(table))
        self.grpc_port = free_port()
        self.target = f"localhost:{self.grpc_port}"
        return (
            *("--port", str(self.grpc_port), "--api-keys", str(self.keys)),
            *("--ssl-certfile", str(self.certificate)),
            *("--ssl-keyfile", f"{self.certificate}.key"),
        )

    def _make_certificate(self):
        self.certificate = self.authority = make_certificate(self._folder.name)

    def connect(self, **changes):
        given = {"ca_cert": self.authority, "api_key": self.key, **changes}
        return quire.QuireClient(self.target, timeout=PATIENCE, retries=None, **given)

    _connect = connect


class ExpiringServer(GuardedServer):
    """A guarded server whose certificate can be replaced by one that ends soon."""

    def _make_certificate(self):
        self._issuer = Authority(self._folder.name, "issuer")
        self.authority = self._issuer.pem
        self.certificate = pathlib.Path(self._folder.name, "server.pem")
        self.certify(30 * 86400)

    def certify(self, seconds):
        """Serves from now on with a certificate that ends after so many seconds."""
        end = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + seconds))
        pem, key = self._issuer.make("server", end=end)
        rename_over(key, f"{self.certificate}.key")
        rename_over(pem, self.certificate)


class NotACollector:
    """A gRPC server that has no method of a collector of traces, nor any other."""

    def __init__(self):
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self):
        self._server.stop(None)


class GpuServer:
    """Answers /metrics with gpu_server.prom: the names and labels of a server on an H200.

    Counters grow with each scrape. `add` appends lines, which may replace those of a series.
    """

    def __init__(self):
        self._text = pathlib.Path(__file__).with_name("gpu_server.prom").read_text()
        self._scrapes = 0
        self._added = {}
        outer = self

        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = outer.exposition().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *unused):
                pass

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self.instance = "127.0.0.1:%d" % self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def add(self, series, value):
        self._added[series] = value

    def exposition(self):
        self._scrapes += 1
        lines = []
        for line in self._text.splitlines():
            series, _, value = line.rpartition(" ")
            if series in self._added:
                value = self._added[series]
            elif "_total{" in series:
                value = float(value) * self._scrapes
            lines.append(line if line.startswith("#") else f"{series} {value}")
        return "\n".join(lines) + "\n"

    def stop(self):
        self._http.shutdown()
        self._http.server_close()


class Prometheus:
    """Debian's prometheus with the files of deploy/prometheus, made quick.

    Ranges of minutes become seconds, `for` becomes nothing, and the targets are `targets`.
    """

    def __init__(self, targets):
        self._folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self._folder.name)
        shutil.copytree(ROOT / "deploy/prometheus", folder / "conf")
        self._replace(
            folder / "conf/prometheus.yml",
            (r"(scrape_interval|evaluation_interval): 15s", rf"\1: {SCRAPE}"),
            (r"scrape_timeout: 5s", f"scrape_timeout: {SCRAPE}"),
            (r"refresh_interval: 30s", "refresh_interval: 1s"),
        )
        for rules in (folder / "conf/rules").glob("*.yml"):
            self._replace(rules, (r"\bfor: \w+", "for: 0s"))
            # Three deaths take longer than five seconds on a busy machine.
            self._replace(rules, (r"(recoveries_total)\[5m\]", r"\1[30s]"))
            self._replace(rules, (r"\[(\d+)m\]", r"[\1s]"), (r"\[1h\]", "[60s]"))
        (folder / "conf/targets/quire.yml").write_text(json.dumps([{"targets": targets}]))
        self.url = f"http://127.0.0.1:{free_port()}"
        self._log = open(folder / "log", "w+")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder}/conf/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address={self.url.removeprefix('http://')}",
                "--log.level=warn",
            ],
            stdout=self._log,
            stderr=self._log,
        )
        await_true(self._ready, "Prometheus' start")

    @staticmethod
    def _replace(path, *changes):
        text = path.read_text()
        for pattern, replacement in changes:
            text = re.sub(pattern, replacement, text)
        path.write_text(text)

    def _ready(self):
        if self._process.poll() is not None:
            self._log.seek(0)
            raise AssertionError("prometheus has ended:\n" + self._log.read())
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=PATIENCE) as page:
                return page.status == 200
        except OSError:
            return False

    def get(self, path, **parameters):
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as page:
                return json.load(page)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def query(self, expression):
        """The values of an instant query that are numbers, by their labels."""
        result = self.get("query", query=expression)["result"]
        pairs = [(each["metric"], float(each["value"][1])) for each in result]
        return [(labels, value) for labels, value in pairs if math.isfinite(value)]

    def has_fired(self, alert, instance):
        """Whether the alert was firing at any time in the last minutes."""
        which = f'ALERTS{{alertname="{alert}", instance="{instance}", alertstate="firing"}}'
        return bool(self.query(f"max_over_time({which}[5m])"))

    def stop(self):
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._log.close()
        self._folder.cleanup()
