#!/usr/bin/python3
"""docs/operations.md against alerts, programs and logs: operations_test.py BIN.

The page names each alert, each exit code and only lines of the log that the sources write. The exit
codes that the page calls tried are made here with real programs.
"""

import concurrent.futures
import contextlib
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

import grpc
import yaml
from observability_servers import ROOT, GuardedServer, NotACollector, Server
from processes import PATIENCE, await_true

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
PAGE = (ROOT / "docs/operations.md").read_text()
LONG = ("--ignore-eos", "--max-tokens", "4000", "Once")
WORKER_SOCKET = 3  # the descriptor at which a worker finds its server
REFUSED = 6
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


def refuse_threads():
    """From now on this process, and the program that it becomes, has no address space for one."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36))
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 40, 1 << 40))  # the size of a thread's stack


def code_without_threads(program, *arguments):
    done = run(program, *arguments, preexec_fn=refuse_threads)
    assert "the system refuses this process a thread" in done.stderr, done.stderr
    return done.returncode


class AnsweringServer(grpc.GenericRpcHandler):
    """Another server of gRPC, which ends every call with one status."""

    def __init__(self, status):
        self._status = status
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(1), handlers=[self])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def service(self, handler_call_details):
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: context.abort(self._status, "from another server")
        )

    def stop(self):
        self._server.stop(None)


def copy_with_recorded_workers(folder):
    """A copy of the server, and the file to which the exit codes of its workers go.

    A shell stands between the two: a worker ends with its parent, and the shell outlives the
    server.
    """
    codes = folder / "codes"
    codes.touch()
    worker = folder / "quire-worker"
    worker.write_text(f"""#!/bin/bash
'{(BIN / "quire-worker").resolve()}' "${{@/#--server=*/--server=$$}}"
code=$?
echo $code >> '{codes}'
exit $code
""")
    worker.chmod(0o755)
    return pathlib.Path(shutil.copy(BIN / "quire-server", folder)), codes


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
        folders = ("server", "engine", "flags")
        files = [file for folder in folders for file in (ROOT / folder).rglob("*.cc")]
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

    def start(self, kind=Server, *flags, binary=BIN / "quire-server"):
        server = kind(binary, *flags)
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

    def begin(self, program, server, *arguments, stdout=subprocess.DEVNULL):
        """The program, which runs until it ends or the test does."""
        name, *command = program.split()
        words = [BIN / name, *command, "--server", server.target, *arguments]
        process = subprocess.Popen(words, stdout=stdout, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def talk(self, server, *flags):
        """A stream that lasts, for as long as the test does."""
        client = self.begin("quire generate", server, *flags, *LONG)
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
            REFUSED: self.refuses_without_threads(),
            5: self.refuses(5, "cannot start", "--kv-cache-memory-bytes", "900G", "--port", "0"),
            KILLED: self.stop_with(256 - signal.SIGKILL, "", signal.SIGKILL),
        }
        self.assert_tried("quire-server", made)

    def refuses_without_threads(self):
        command = ("quire-server", "--device", "cpu", "--metrics-port", "0", "--port", "0")
        self.assertEqual(code_without_threads(*command), REFUSED)
        return True

    def test_quire_worker(self):
        done = run("quire-worker")
        self.assertIn("quire-server, which starts it", done.stderr)
        server = self.start(Server, "--worker-process", "on")
        worker = server.workers()[0]
        os.kill(worker, signal.SIGKILL)
        await_true(lambda: "was killed by signal 9" in server.log(), "the worker's end")
        made = {
            self.worker_code_after(signal.SIGTERM): True,
            self.worker_code_of_a_failure(): True,
            done.returncode: True,
            self.worker_code_after(signal.SIGKILL): True,
            self.worker_code_without_threads(): True,
        }
        self.assert_tried("quire-worker", made)

    def worker_code_after(self, number):
        """The exit code of a worker whose server gets the signal."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        binary, codes = copy_with_recorded_workers(folder)
        server = self.start(Server, "--worker-process", "on", binary=binary)
        server.process.send_signal(number)
        return int(await_true(codes.read_text, "the worker's exit code"))

    @contextlib.contextmanager
    def lone_worker(self, **options):
        """A worker that takes this test for its server, and the server's end of their socket."""
        ours, its = socket.socketpair()
        start = f'exec "$0" --rank=0 --server=$PPID {WORKER_SOCKET}<&{its.fileno()}'
        command = ["bash", "-c", start, BIN / "quire-worker"]
        with ours, its, subprocess.Popen(command, pass_fds=[its.fileno()], **options) as worker:
            self.addCleanup(worker.kill)
            its.close()
            yield worker, ours

    def worker_code_without_threads(self):
        options = {"preexec_fn": refuse_threads, "stderr": subprocess.PIPE, "text": True}
        with self.lone_worker(**options) as (worker, _):
            self.assertIn("refuses this process a thread", worker.stderr.read())
            return worker.wait(PATIENCE)

    def worker_code_of_a_failure(self):
        """The exit code of a worker that gets an order which it cannot read, and says so."""
        with self.lone_worker() as (worker, ours):
            order = b"no order"
            ours.sendall(struct.pack("<I", len(order)) + order)
            ours.settimeout(PATIENCE)
            (length,) = struct.unpack("<I", ours.recv(4, socket.MSG_WAITALL))
            self.assertIn(b"order", ours.recv(length, socket.MSG_WAITALL))
            return worker.wait(PATIENCE)

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
        codes.add(code_without_threads("quire", "health", *at))
        aborted = self.talk(server)
        self.assertEqual(run("quire", "abort", "--all", *at).returncode, 0)
        codes.add(aborted.wait(PATIENCE))
        interrupted = self.talk(server)
        interrupted.send_signal(signal.SIGINT)
        codes.add(interrupted.wait(PATIENCE))
        codes |= self.codes_of_other_servers() | self.codes_of_a_detached_answer()
        codes.add(self.code_of_a_fatal_request())
        self.talk(server)  # so that the server does not end at once
        run("quire", "drain", "--exit-when-idle", *at)
        codes.add(run("quire", "drain", "--undo", *at).returncode)
        self.assert_tried("quire", dict.fromkeys(sorted(codes), True))

    def codes_of_other_servers(self):
        codes = set()
        for status in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS):
            other = AnsweringServer(status)
            self.addCleanup(other.stop)
            done = run("quire", "info", "--server", other.address)
            self.assertIn(f"{status.name}: from another server", done.stderr)
            self.assertEqual(done.returncode, STATUS + status.value[0])
            codes.add(done.returncode)
        return codes

    def codes_of_a_detached_answer(self):
        """Of a call beyond its end, and of a reader whose place another takes."""
        server = self.start(Server, "--worker-process", "on")
        client = self.talk(server, "--detach-seconds", "60", "--request-id", "tale")
        os.kill(server.workers()[0], signal.SIGSTOP)  # the answer does not end meanwhile
        client.kill()
        await_true(lambda: server.metric("quire_detached_streams"), "a detached stream")
        beyond = run("quire", "attach", "--server", server.target, "--after", "100000", "tale")
        self.assertEqual(beyond.returncode, 21, beyond.stderr)
        first = self.begin("quire attach", server, "tale")
        await_true(lambda: not server.metric("quire_detached_streams"), "a reader")
        second = self.begin("quire attach", server, "tale")
        self.assertEqual(first.wait(PATIENCE), 20)
        self.assertIsNone(second.poll())
        return {20, 21}

    def code_of_a_fatal_request(self):
        """Of a request whose worker is killed three times."""
        server = self.start(Server, "--worker-process", "on")
        client = self.talk(server)
        for deaths in (1, 2, 3):
            await_true(lambda: server.metric("quire_requests_running"), "a running request")
            os.kill(server.workers()[0], signal.SIGKILL)
            await_true(
                lambda: server.metric("quire_engine_recoveries_total") == deaths  # noqa: B023
                and not server.metric("quire_engine_recovering"), "new workers",
            )
        return client.wait(PATIENCE)

    def load_code_of_two_interrupts(self, server):
        """Of a run whose report is not read, so that it waits when the second one comes."""
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        os.set_blocking(writer, False)
        try:
            while os.write(writer, b" " * 4096):
                pass
        except BlockingIOError:
            os.set_blocking(writer, True)
        flags = ("--num-prompts", "4", "--random-output-len", "900", "--ignore-eos")
        load = self.begin("quire-load", server, *flags, stdout=writer)
        os.close(writer)
        await_true(lambda: server.metric("quire_requests_running"), "a running request")

        def ended():  # a signal that finds another one waiting is not counted
            load.send_signal(signal.SIGINT)
            return load.poll() is not None

        await_true(ended, "the end of quire-load")
        return load.returncode

    def test_quire_load(self):
        server = self.start()
        at = ("--server", server.target, "--num-prompts", "2")
        made = {
            run("quire-load", *at).returncode: True,
            run("quire-load", "--server", "127.0.0.1:1", "--num-prompts", "1").returncode: True,
            run("quire-load", "--no-such-flag").returncode: True,
            self.load_code_of_two_interrupts(server): True,
        }
        made[code_without_threads("quire-load", "--server", "127.0.0.1:1")] = True
        self.assert_tried("quire-load", made)


if __name__ == "__main__":
    unittest.main(verbosity=2)
