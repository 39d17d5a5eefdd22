#!/usr/bin/python3
"""docs/operations.md against alerts, programs and logs: operations_test.py BIN.

The page names each alert, each exit code and only lines of the log that the sources write. The exit
codes that the page calls tried are made here with real programs.
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

import yaml
from observability_servers import ROOT, GuardedServer, NotACollector, Server
from processes import PATIENCE, await_true

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
PAGE = (ROOT / "docs/operations.md").read_text()
LONG = ("--ignore-eos", "--max-tokens", "4000", "Once")
STATUS = 10  # the exit code of quire, plus the code of gRPC
CHECK_FAILED, KILLED = 134, 137  # as shells and containers report SIGABRT and SIGKILL


def constants(path, pattern):
    """The values of the exit codes that a source defines."""
    found = {int(value) for value in re.findall(pattern, (ROOT / path).read_text())}
    assert found, path
    return found


def codes_of_sources():
    enumerated = r"\bk[A-Z]\w+ = (\d+)[,}\s]"
    named = r"\bkExit(?!StatusBase)\w+ = (\d+);"
    worker = (ROOT / "engine/worker/program/worker_program.cc").read_text()
    codes = re.search(r"enum ExitCode : int {(.*?)}", worker).group(1)
    return {
        "quire-server": constants("server/start/start_error.h", enumerated)
        | {CHECK_FAILED, KILLED},
        "quire-worker": {int(code) for code in re.findall(r"= (\d+)", codes)},
        "quire": constants("clients/cpp/flags/exit_codes.h", named)
        | set(range(STATUS + 1, STATUS + 17)),
        "quire-load": constants("clients/load/options.h", named)
        | constants("clients/load/main.cc", named),
    }


def section(title):
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S).group(1)


def rows(program):
    """{exit code: whether the page calls it tried} of the program's section."""
    lines = re.findall(r"^\| (\d+)\b.*\| (.*) \|$", section(f"Exit codes of {program}"), re.M)
    assert len(lines) == len({code for code, _ in lines}), f"{program}: a code has two lines"
    return {int(code): not tried.startswith("not: ") for code, tried in lines}


def run(program, *arguments, **options):
    options = {"stdin": subprocess.DEVNULL, **options}
    words = [str(argument) for argument in (BIN / program, *arguments)]
    return subprocess.run(
        words, capture_output=True, text=True, timeout=PATIENCE, check=False, **options
    )


class PageTest(unittest.TestCase):
    def test_sections_are_the_alerts(self):
        rules = yaml.safe_load((ROOT / "deploy/prometheus/rules/alerts.yml").read_text())
        alerts = [rule for group in rules["groups"] for rule in group["rules"]]
        names = [rule["alert"] for rule in alerts]
        self.assertEqual(re.findall(r"^## (Quire\w+)$", PAGE, re.M), names)
        for rule in alerts:
            link = f"docs/operations.md#{rule['alert'].lower()}"
            self.assertEqual(rule["annotations"]["runbook"], link)
            for part in ("Look", "Do", "Tried"):
                self.assertIn(f"\n- {part}: ", section(rule["alert"]), rule["alert"])

    def test_rows_are_the_exit_codes(self):
        for program, codes in codes_of_sources().items():
            self.assertEqual(set(rows(program)), codes, program)
        titles = re.findall(r"^## Exit codes of (\S+)$", PAGE, re.M)
        self.assertEqual(set(titles), set(codes_of_sources()))

    def test_lines_of_the_log_are_in_the_sources(self):
        files = [*(ROOT / "server").rglob("*.cc"), *(ROOT / "engine").rglob("*.cc")]
        sources = "\n".join(file.read_text() for file in files)
        sources = re.sub(r'"\s*\n\s*"', "", sources)
        parts = re.findall(r"^- Log: .*(?:\n  .*)*", PAGE, re.M)
        parts.append(section("Exit codes of quire-server"))
        lines = re.findall(r'"([^"]+)"', "\n".join(parts).replace("\n  ", " "))
        self.assertGreater(len(lines), 20)
        for line in lines:
            self.assertTrue(line in sources, f"no source writes: {line}")

    def test_metrics_exist(self):
        written = (ROOT / "docs/metrics.md").read_text()
        for name in set(re.findall(r"`(quire_\w+)", PAGE)):
            self.assertIn(f"`{name}", written)


class ExitCodesTest(unittest.TestCase):
    """Every code that the page calls tried, and no other."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, kind=Server, *flags):
        server = kind(BIN / "quire-server", *flags)
        self.addCleanup(server.stop)
        return server

    def assert_tried(self, program, made):
        self.assertEqual(made, {code: True for code, tried in rows(program).items() if tried})

    def ends(self, server, code, line):
        """Whether the server ends with the code, and says so."""
        self.assertEqual(server.process.wait(PATIENCE) % 256, code, server.log())
        self.assertIn(line, server.log())
        return True

    def refuses(self, code, line, *flags):
        """Whether a start with the flags ends with the code, and says so."""
        done = run("quire-server", "--device", "cpu", "--metrics-port", "0", *flags)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(line, done.stderr)
        return True

    def talk(self, server):
        """A stream that lasts, for as long as the test does."""
        command = [BIN / "quire", "generate", "--server", server.target, *LONG]
        client = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)
        await_true(lambda: server.metric("quire_requests_running"), "a running request")
        return client

    def stop_with(self, code, line, *signals):
        server = self.start()
        self.talk(server) if len(signals) > 1 else None
        for number in signals:
            server.process.send_signal(number)
            if len(signals) > 1:
                await_true(lambda: "signal name=" in server.log(), "the first signal's line")
        return self.ends(server, code, line)

    def test_quire_server(self):
        with socket.create_server(("127.0.0.1", 0)) as used:
            port = str(used.getsockname()[1])
            cannot_listen = self.refuses(3, "cannot start", "--port", port)
        made = {
            0: self.stop_with(0, "stopped", signal.SIGTERM),
            1: self.stop_with(1, "second signal", signal.SIGTERM, signal.SIGTERM),
            2: self.refuses(2, "--max-num-seqs '0'", "--max-num-seqs", "0"),
            3: cannot_listen,
            4: self.refuses(4, "cannot start", "--model", self.folder / "none", "--port", "0"),
            5: self.refuses(5, "cannot start", "--kv-cache-memory-bytes", "900G", "--port", "0"),
            KILLED: self.stop_with(256 - signal.SIGKILL, "", signal.SIGKILL),
        }
        self.assert_tried("quire-server", made)

    def test_quire_worker(self):
        done = run("quire-worker")
        self.assertIn("quire-server, which starts it", done.stderr)
        server = self.start(Server, "--worker-process", "on")
        worker = server.workers()[0]
        os.kill(worker, signal.SIGKILL)
        await_true(lambda: "was killed by signal 9" in server.log(), "the worker's end")
        self.assert_tried("quire-worker", {done.returncode: True})

    def test_quire(self):
        server, guarded = self.start(), self.start(GuardedServer)
        elsewhere = NotACollector()
        self.addCleanup(elsewhere.stop)
        at = ("--server", server.target)
        door = ("--server", guarded.target, "--ca-cert", guarded.authority)
        key = {**os.environ, "QUIRE_API_KEY": guarded.key}
        large = {"input": "word " * 1_500_000, "stdin": None}
        cases = [
            (run("quire", "health", *at), 0),
            (run("quire", "key", "list", "--file", self.folder / "none"), 1),
            (run("quire", "--no-such-flag"), 2),
            (run("quire", "generate", *at, "--max-tokens", "1000000", "Once"), 13),
            (run("quire", "generate", *at, "--timeout", "0.2", *LONG), 14),
            (run("quire", "generate", *at, "--model", "another", "Once"), 15),
            (run("quire", "session", "create", *at, "a"), 0),
            (run("quire", "session", "create", *at, "a"), 16),
            (run("quire", "drain", *door, env=key), 17),
            (run("quire", "generate", *at, "-", **large), 18),
            (run("quire", "info", "--server", elsewhere.address), 22),
            (run("quire", "info", "--server", "127.0.0.1:1"), 24),
            (run("quire", "info", *door), 26),
        ]
        for done, code in cases:
            self.assertEqual(done.returncode, code, f"{done.args[1:4]}: {done.stderr}")
        codes = {code for _, code in cases}
        aborted = self.talk(server)
        self.assertEqual(run("quire", "abort", "--all", *at).returncode, 0)
        codes.add(aborted.wait(PATIENCE))
        interrupted = self.talk(server)
        interrupted.send_signal(signal.SIGINT)
        codes.add(interrupted.wait(PATIENCE))
        self.talk(server)  # so that the server does not end at once
        run("quire", "drain", "--exit-when-idle", *at)
        codes.add(run("quire", "drain", "--undo", *at).returncode)
        self.assert_tried("quire", dict.fromkeys(sorted(codes), True))

    def test_quire_load(self):
        server = self.start()
        at = ("--server", server.target, "--num-prompts", "2")
        made = {
            run("quire-load", *at).returncode: True,
            run("quire-load", "--server", "127.0.0.1:1", "--num-prompts", "1").returncode: True,
            run("quire-load", "--no-such-flag").returncode: True,
        }
        self.assert_tried("quire-load", made)


if __name__ == "__main__":
    unittest.main(verbosity=2)
