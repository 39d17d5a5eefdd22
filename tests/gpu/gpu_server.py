"""A quire-server of a pack of scripts/gpu-pack, started as a user starts it."""
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
READY = re.compile(r"READY .*?metrics_port=(\d+).*? seconds=([\d.e-]+)")


class Server:
    """On a Unix socket, until stop(); AssertionError with its log when it does not get ready."""

    def __init__(self, pack, *flags, model="models/demo", patience=60, environment=None):
        self.pack = pack
        self.folder = tempfile.TemporaryDirectory()
        self.target = f"unix:{self.folder.name}/quire.sock"
        self.log_path = pathlib.Path(self.folder.name) / "log"
        # GPU_TEST_RANKS runs every server on as many GPUs.
        ranks = os.environ.get("GPU_TEST_RANKS", "1")
        if ranks != "1" and "--tensor-parallel-size" not in flags:
            flags = ("--tensor-parallel-size", ranks, *flags)
        begin = time.monotonic()
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(
                [pack / "bin/quire-server", "--uds", f"{self.folder.name}/quire.sock",
                 "--metrics-port", "0", "--model", model, *flags],
                cwd=ROOT, stdout=log, stderr=log, env=environment,
            )
        while not (match := READY.search(self.log())):
            ended = self.process.poll() is not None
            if ended or time.monotonic() - begin > patience:
                self.process.kill()
                raise AssertionError(f"the server did not get ready:\n{self.log()}")
            time.sleep(0.01)
        self.seconds_to_ready = time.monotonic() - begin
        self.metrics_port = int(match.group(1))

    def log(self):
        return self.log_path.read_text() if self.log_path.exists() else ""

    def metrics(self):
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as reply:
            return reply.read().decode()

    def metric(self, name, **labels):
        """The value of a series, or None."""
        for line in self.metrics().splitlines():
            series, _, value = line.rpartition(" ")
            if series.split("{")[0] != name:
                continue
            if all(f'{label}="{wanted}"' in series for label, wanted in labels.items()):
                return float(value)
        return None

    def command(self, *arguments):
        return [self.pack / "bin/quire", "--server", self.target, *arguments]

    def ids(self, prompt_ids, count):
        """Greedy tokens after a prompt of token ids."""
        done = subprocess.run(
            self.command("generate", "--token-ids", ",".join(map(str, prompt_ids)),
                         "--temperature", "0", "-n", str(count), "--print-ids"),
            capture_output=True, text=True, cwd=ROOT,
        )
        if done.returncode != 0:
            raise AssertionError(done.stderr + self.log())
        return [int(i) for i in done.stdout.split()]

    def worker_pids(self):
        found = subprocess.run(["pgrep", "-P", str(self.process.pid), "-f", "quire-worker"],
                               capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]

    def close(self):
        self.stop()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.folder.cleanup()
        return code
