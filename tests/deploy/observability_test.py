#!/usr/bin/python3
"""deploy/prometheus and deploy/grafana against real servers: observability_test.py BIN.

Debian's Prometheus scrapes servers under load and in trouble. Every panel's query returns data, and
every alert fires in a fault made for it.
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

import quire
import yaml
from observability_servers import ROOT, GpuServer, GuardedServer, Prometheus, Server
from processes import PATIENCE, await_true

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
SERVER = BIN / "quire-server"
DASHBOARDS = sorted((ROOT / "deploy/grafana/dashboards").glob("*.json"))
ALERTS = yaml.safe_load((ROOT / "deploy/prometheus/rules/alerts.yml").read_text())
LONG = quire.Options(ignore_eos=True, max_tokens=2000)

# Panels that a server on the CPU cannot fill, and why; gpu_server.prom fills them.
GRAPHS = "steps are captured on a GPU only"
DRIVER = "the driver's library tells it"
NOT_ON_THE_CPU = {
    "Replays a second, by size": GRAPHS,
    "Share of steps replayed": GRAPHS,
    "Padding": GRAPHS,
    "Capture time": GRAPHS,
    "Memory of the captures": GRAPHS,
    "Nodes": GRAPHS,
    "Start of a worker (GPU only)": "a worker of the CPU measures no phases",
    "Busy": DRIVER,
    "Multiprocessors busy": DRIVER,
    "Memory bandwidth": DRIVER,
    "Tensor cores busy": DRIVER,
    "Memory": DRIVER,
    "Memory of a worker": "memory of the CPU is not measured by part",
    "Power": DRIVER,
    "Energy per output token": DRIVER,
    "Temperature": DRIVER,
    "Clock of the multiprocessors": DRIVER,
    "Clock of the memory": DRIVER,
    "Reasons for lower clocks": DRIVER,
    "NVLink": DRIVER,
    "NVLink errors": DRIVER,
    "Memory errors": DRIVER,
}
# Alerts whose fault no test can make here. `promtool test rules` shows them fire.
NOT_MADE = {
    "QuireRankMismatch": "ranks that compute differently need broken hardware",
    "QuireKeyFileRefused": "DoorKeeperTest makes it, without a Prometheus",
    "QuireCallersRefused": "more than five minutes of refusals",
    "QuireTlsFilesRefused": "tls_process_test makes it, on a server with certificates",
    "QuireCertificateExpiring": "as QuireTlsFilesRefused",
    "QuireCertificateExpired": "a certificate that expires while it is used takes time",
    "QuireSpansLost": "spans are given up after a minute only",
    "QuireNoServer": "the servers of the other faults are targets",
}

# Queries of vLLM's dashboards, and of the endpoint picker and the autoscalers that know its names.
VLLM = 'model_name=~".*", engine=~".*"'
VLLM_QUERIES = (
    *(
        f"histogram_quantile(0.95, sum by (le) (rate(vllm:{name}_bucket{{{VLLM}}}[5s])))"
        for name in (
            "e2e_request_latency_seconds time_to_first_token_seconds inter_token_latency_seconds"
            " request_time_per_output_token_seconds request_queue_time_seconds"
            " request_prefill_time_seconds request_decode_time_seconds"
            " request_inference_time_seconds request_prompt_tokens request_generation_tokens"
            " request_max_num_generation_tokens request_params_max_tokens request_params_n"
            " request_prefill_kv_computed_tokens iteration_tokens_total"
        ).split()
    ),
    *(
        f"sum(rate(vllm:{name}{{{VLLM}}}[5s]))"
        for name in (
            "e2e_request_latency_seconds_sum e2e_request_latency_seconds_count"
            " request_queue_time_seconds_sum request_prefill_time_seconds_sum"
            " request_decode_time_seconds_sum prompt_tokens_total generation_tokens_total"
            " request_success_total num_preemptions_total prefix_cache_queries_total"
            " prefix_cache_hits_total external_prefix_cache_queries_total"
            " external_prefix_cache_hits_total prompt_tokens_cached_total corrupted_requests_total"
        ).split()
    ),
    f"sum by (finished_reason) (increase(vllm:request_success_total{{{VLLM}}}[5s]))",
    f"sum by (source) (rate(vllm:prompt_tokens_by_source_total{{{VLLM}}}[5s]))",
    f'2 - (max(vllm:engine_sleep_state{{{VLLM}, sleep_state="awake"}}) == bool 0)',
    f'sum(vllm:num_requests_waiting_by_reason{{{VLLM}, reason="capacity"}})',
    f'sum(vllm:num_requests_waiting_by_reason{{{VLLM}, reason="deferred"}})',
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    'vllm:cache_config_info{block_size=~".+", num_gpu_blocks=~".+"}',
    'vllm:lora_requests_info{max_lora="0", running_lora_adapters="", waiting_lora_adapters=""}',
    # Label values of the dashboards' variables.
    "count by (model_name) (vllm:num_requests_running)",
)


def panels():
    """(dashboard, title, query) of every query of every panel, its variables filled in."""
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel.get("targets", []):
                query = target["expr"].replace("$__rate_interval", "5s").replace("[1m]", "[5s]")
                yield file.stem, panel["title"], query


def ask(query, instance):
    return query.replace("$model_name", ".*").replace("$instance", instance)


def start_load(server, *flags):
    command = [BIN / "quire-load", "--server", server.target, "--max-concurrency", "16"]
    return subprocess.Popen(
        [*command, "--ignore-eos", "--duration", "600", *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


class GuardedTraffic:
    """Answers, refusals by a limit, by the door and by TLS on a guarded server, until stop()."""

    def __init__(self, server):
        self._server = server
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(4)]
        self._threads.append(threading.Thread(target=self._be_refused))
        for thread in self._threads:
            thread.start()

    def _ask(self):
        """Four ask, one may run and one may wait: the limit refuses the others."""
        while not self._ending.wait(0.05):
            self._try(self._server.client, max_tokens=40)

    def _be_refused(self):
        while not self._ending.wait(0.2):
            with self._server.connect(api_key=None) as stranger:
                self._try(stranger, max_tokens=1)
            with quire.QuireClient(self._server.target, timeout=5, retries=None) as plaintext:
                self._try(plaintext, max_tokens=1)

    @staticmethod
    def _try(client, **options):
        try:
            client.generate_text("Once", quire.Options(ignore_eos=True, **options))
        except quire.QuireError:
            pass

    def stop(self):
        self._ending.set()
        for thread in self._threads:
            thread.join()


class Load:
    """Traffic of every kind on one server, until stop()."""

    def __init__(self, server):
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._talk, args=(server, i)) for i in range(4)]
        self._threads.append(threading.Thread(target=self._cancel, args=(server,)))
        self._threads.append(threading.Thread(target=self._load, args=(server,)))
        for thread in self._threads:
            thread.start()

    def _talk(self, server, number):
        """Sessions that come back after others have taken the device: their KV is restored."""
        client, round_ = server.client, 0
        options = quire.Options(max_tokens=40, ignore_eos=True)
        while not self._ending.is_set():
            round_ += 1
            for turn in range(3):
                for name in range(4):
                    client.generate_text(
                        "A prompt that begins alike. " * 4 if turn == 0 else f"Turn {turn}.",
                        options,
                        session_id=f"talk-{number}-{name}-{round_ % 3}",
                        create_session=True,
                    )
            client.generate_text("A prompt that begins alike. " * 4, options)
            client.sessions.close(f"talk-{number}-0-{round_ % 3}")

    def _cancel(self, server):
        while not self._ending.wait(0.2):
            stream = server.client.generate("Once upon a time", LONG)
            next(iter(stream))
            stream.cancel()
            try:
                server.client.generate_text("too long " * 3000, LONG)
            except quire.QuireError:
                pass

    def _load(self, server):
        client = start_load(
            server, "--random-input-len", "32:200", "--random-output-len", "8:40"
        )
        self._ending.wait()
        client.kill()
        client.wait()

    def stop(self):
        self._ending.set()
        for thread in self._threads:
            thread.join()


needs_prometheus = unittest.skipIf(
    shutil.which("prometheus") is None, "prometheus is not installed: see scripts/deps"
)


class WatchedTest(unittest.TestCase):
    """A test with servers and a folder that end with it."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    @classmethod
    def start(cls, *flags, **options):
        return cls.cleaned(Server(SERVER, *flags, **options))

    @classmethod
    def cleaned(cls, thing):
        cls.addClassCleanup(thing.stop)
        return thing


@needs_prometheus
class DashboardsTest(WatchedTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.busy = cls.start(
            *("--num-blocks-override", "160", "--kv-offloading-size", "0.02"),
            *("--session-idle-offload-after", "0", "--session-dir", f"{cls.folder}/sessions"),
            *("--max-num-seqs", "8", "--no-log-requests"),
        )
        cls.gpu = cls.cleaned(GpuServer())
        cls.guarded = cls.cleaned(GuardedServer(SERVER, "--no-log-requests"))
        servers = (cls.busy, cls.gpu, cls.guarded)
        cls.prometheus = cls.cleaned(Prometheus([server.instance for server in servers]))
        cls.cleaned(Load(cls.busy))
        cls.cleaned(GuardedTraffic(cls.guarded))

    def test_every_query_of_every_panel_returns_data(self):
        missing = {}

        def complete():
            missing.clear()
            for dashboard, title, query in panels():
                server = self.guarded if dashboard == "tenants" else self.busy
                server = self.gpu if title in NOT_ON_THE_CPU else server
                if not self.prometheus.query(ask(query, server.instance)):
                    missing[f"{dashboard}: {title}"] = query
            return not missing

        await_true(complete, lambda: f"data of {missing}")

    def test_panels_without_data_on_the_cpu_are_listed(self):
        titles = {title for _, title, _ in panels()}
        self.assertLessEqual(set(NOT_ON_THE_CPU), titles)
        for _, title, query in panels():
            if title in NOT_ON_THE_CPU:
                found = self.prometheus.query(ask(query, self.busy.instance))
                self.assertEqual(found, [], f"{title} has data on the CPU")

    def test_every_query_of_vllms_consumers_returns_data(self):
        for query in VLLM_QUERIES:
            await_true(lambda: self.prometheus.query(query), query)  # noqa: B023

    def test_the_scrape_is_clean(self):
        done = subprocess.run(
            ["promtool", "check", "metrics"],
            input=self.busy.page("/metrics"),
            capture_output=True,
            text=True,
        )
        # vLLM chose the colons of its names, which the linter leaves to recording rules.
        complaints = [
            line
            for line in done.stderr.splitlines()
            if not line.startswith("vllm:") and line.strip()
        ]
        self.assertEqual(complaints, [])

    def test_the_targets_are_up_and_the_rules_are_well(self):
        def up():
            return self.prometheus.query(f'up{{job="quire", instance="{self.busy.instance}"}} == 1')

        await_true(up, "the target")
        took = f'avg_over_time(scrape_duration_seconds{{instance="{self.busy.instance}"}}[10s])'
        seconds = await_true(lambda: self.prometheus.query(took), "a scrape's duration")[0][1]
        print(f"scrape_duration_seconds of a busy server: {seconds:.4f}")
        groups = self.prometheus.get("rules")["groups"]
        for rule in (rule for group in groups for rule in group["rules"]):
            self.assertEqual(rule.get("lastError", ""), "", rule["name"])


@needs_prometheus
class AlertsTest(WatchedTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.faults = Faults(cls)
        cls.prometheus = cls.cleaned(Prometheus(cls.faults.instances()))

    def test_every_alert_fires_in_its_fault(self):
        named = {rule["alert"] for group in ALERTS["groups"] for rule in group["rules"]}
        made = self.faults.made()
        self.assertEqual({alert for alert, _ in made} | set(NOT_MADE), named)
        # An alert on an increase needs to see what was before.
        before = 'count_over_time(up{job="quire"}[30s]) >= 2'
        instances = {instance for _, instance in made}
        await_true(
            lambda: instances <= {each["instance"] for each, _ in self.prometheus.query(before)},
            "two scrapes of each target",
        )
        with concurrent.futures.ThreadPoolExecutor(len(made)) as pool:
            running = [pool.submit(fault) for fault in self.faults.steps()]
            try:
                self.await_alerts(made, running)
            finally:
                for _, instance in made:
                    self.faults.end(instance)
            for step in running:
                step.result(PATIENCE)
        for alert, why in NOT_MADE.items():
            self.assertFalse(self.prometheus.query(f'ALERTS{{alertname="{alert}"}}'), why)


    def await_alerts(self, made, running):
        silent = list(made)

        def all_fired():
            for step in running:
                if step.done():
                    step.result()
            silent[:] = [each for each in silent if not self.prometheus.has_fired(*each)]
            waiting = {instance for _, instance in silent}
            for _, instance in made:
                if instance not in waiting:
                    self.faults.end(instance)
            return not silent

        await_true(all_fired, lambda: f"alerts {silent}")


class StaticTest(unittest.TestCase):
    @needs_prometheus
    def test_promtool_accepts_configuration_rules_and_their_tests(self):
        folder = ROOT / "deploy/prometheus"
        for command in (
            ["check", "config", folder / "prometheus.yml"],
            ["check", "rules", *sorted((folder / "rules").glob("*.yml"))],
            ["test", "rules", *sorted((folder / "tests").glob("*.yml"))],
        ):
            done = subprocess.run(["promtool", *command], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_alert_has_a_section_in_the_runbook(self):
        text = (ROOT / "deploy/RUNBOOK.md").read_text()
        for rule in (rule for group in ALERTS["groups"] for rule in group["rules"]):
            self.assertIn(f"\n## {rule['alert']}\n", text)
            runbook = rule["annotations"]["runbook"]
            self.assertEqual(runbook, f"deploy/RUNBOOK.md#{rule['alert'].lower()}")

    def test_dashboards_are_those_of_the_script(self):
        with tempfile.TemporaryDirectory() as folder:
            script = ROOT / "deploy/grafana/make_dashboards.py"
            subprocess.run([sys.executable, script, folder], check=True)
            made = sorted(pathlib.Path(folder).iterdir())
            self.assertEqual([file.name for file in made], [file.name for file in DASHBOARDS])
            for file, shipped in zip(made, DASHBOARDS):
                self.assertEqual(file.read_text(), shipped.read_text(), shipped)

    def test_dashboards_keep_grafanas_rules(self):
        units = "none s bytes Bps percentunit reqps watt joule celsius hertz".split()
        kinds = ("row", "stat", "timeseries", "heatmap", "bargauge")
        uids = set()
        for file in DASHBOARDS:
            board = json.loads(file.read_text())
            uids.add(board["uid"])
            self.assertGreaterEqual(board["schemaVersion"], 36)
            variables = [each["name"] for each in board["templating"]["list"]]
            self.assertEqual(variables, ["datasource", "model_name", "instance"])
            ids = [panel["id"] for panel in board["panels"]]
            self.assertEqual(len(ids), len(set(ids)), file)
            cells = set()
            for panel in board["panels"]:
                self.assertIn(panel["type"], kinds)
                at = panel["gridPos"]
                self.assertLessEqual(at["x"] + at["w"], 24)
                for x in range(at["x"], at["x"] + at["w"]):
                    for y in range(at["y"], at["y"] + at["h"]):
                        self.assertNotIn((x, y), cells, f"{file}: {panel['title']} overlaps")
                        cells.add((x, y))
                if panel["type"] == "row":
                    continue
                unit = panel["fieldConfig"]["defaults"]["unit"]
                if panel["type"] == "heatmap":
                    self.assertEqual(unit, "short")
                    unit = panel["options"]["yAxis"]["unit"]
                self.assertIn(unit, units)
                self.assertEqual(panel["datasource"]["uid"], "${datasource}")
                self.assertTrue(panel["targets"])
                refs = [target["refId"] for target in panel["targets"]]
                self.assertEqual(len(refs), len(set(refs)))
                self.assertTrue(all(target["expr"] for target in panel["targets"]))
        self.assertEqual(len(uids), len(DASHBOARDS))


class Faults:
    """Servers in trouble. made() lists which alert fires on which of them; steps() make it so."""

    def __init__(self, test):
        self.killed = test.start()
        self.drained = test.start()
        self.restarting = test.start("--no-log-requests")
        self.worker = test.start("--worker-process", "on")
        self.stalled = test.start(
            *("--worker-process", "on", "--worker-step-timeout", "80"),
            *("--session-idle-offload-after", "2"),
        )
        self.full = test.start("--max-num-seqs", "1", "--max-num-queued-reqs", "4")
        self.tight = test.start(
            *("--num-blocks-override", "40", "--kv-offloading-size", "0.002"),
            *("--session-idle-offload-after", "0"),
        )
        self.slow = test.start("--slow-reader-timeout", "1")
        self.crowded = test.start(descriptors=96)
        self.silent = test.start(stderr="/dev/full")
        self.gpu = test.cleaned(GpuServer())
        self.disk = self._on_a_small_disk(test)
        self._ends = {instance: threading.Event() for _, instance in self.made()}

    def _on_a_small_disk(self, test):
        self._folder = folder = test.folder / "disk"
        folder.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder], capture_output=True
        )
        if mounted.returncode != 0:
            print("not shown: QuireSessionDirectoryFailing needs the right to mount")
            return None
        test.addClassCleanup(subprocess.run, ["umount", folder], check=True)
        return test.start("--session-dir", folder)

    def made(self):
        pairs = [
            ("QuireServerDown", self.killed),
            ("QuireNotReady", self.drained),
            ("QuireRestarting", self.restarting),
            ("QuireWorkersReplaced", self.worker),
            ("QuireAnswersFailed", self.worker),
            ("QuireEngineFault", self.worker),
            ("QuireStepStalled", self.stalled),
            ("QuireKvCopiesFailing", self.stalled),
            ("QuireRequestsRefused", self.full),
            ("QuireFirstTokenLate", self.full),
            ("QuireKvCacheFull", self.tight),
            ("QuireHostMemoryFull", self.tight),
            ("QuireSlowReadersShed", self.slow),
            ("QuireConnectionsRefused", self.crowded),
            ("QuireLogDropped", self.silent),
            ("QuireGpuThrottled", self.gpu),
            ("QuireGpuErrors", self.gpu),
            ("QuireSessionDirectoryFailing", self.disk),
            ("QuireTurnsUnsaved", self.disk),
        ]
        return [(alert, server.instance) for alert, server in pairs if server is not None]

    def instances(self):
        return list(self._ends)

    def end(self, instance):
        """Its alerts have fired."""
        self._ends[instance].set()

    def steps(self):
        steps = [
            self.killed.kill,
            self.drained.client.drain,
            self._restart,
            self._kill_workers,
            self._stop_the_worker,
            self._fill_the_queue,
            self._fill_memory,
            self._read_nothing,
            self._crowd,
            self._log_into_a_full_disk,
            self._heat,
        ]
        return steps + ([self._fill_the_disk] if self.disk else [])

    def _ended(self, server, seconds=0.0):
        """Whether the fault is over; waits so long for that."""
        return self._ends[server.instance].wait(seconds)

    @staticmethod
    def _together(count, function):
        threads = [threading.Thread(target=function, args=(i,)) for i in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _restart(self):
        while not self._ended(self.restarting, 0.6):
            self.restarting.restart()

    def _kill_workers(self):
        """Three times under a running request, and, when the alerts were seen, once more."""
        server = self.worker
        stream = server.client.generate("Once", quire.Options(ignore_eos=True, max_tokens=4000))
        threading.Thread(target=read, args=(stream,), daemon=True).start()
        for deaths in range(1, 4):
            await_true(lambda: server.metric("quire_requests_running"), "a running request")
            os.kill(server.workers()[0], signal.SIGKILL)
            await_true(
                lambda: server.metric("quire_engine_recoveries_total") == deaths  # noqa: B023
                and not server.metric("quire_engine_recovering"),
                "new workers",
            )
        self._ended(server, PATIENCE)
        os.kill(server.workers()[0], signal.SIGKILL)
        server.process.wait(PATIENCE)

    def _stop_the_worker(self):
        """Right after a turn, whose KV is to be copied to the host."""
        client = self.stalled.client
        options = quire.Options(max_tokens=60, ignore_eos=True)
        client.generate_text("Once", options, session_id="a", create_session=True)
        worker = self.stalled.workers()[0]
        os.kill(worker, signal.SIGSTOP)
        stream = client.generate("Once", LONG)
        self._ended(self.stalled, PATIENCE)
        os.kill(worker, signal.SIGCONT)
        stream.cancel()

    def _fill_the_queue(self):
        def ask_again(_):
            while not self._ended(self.full, 0.05):
                read(self.full.client.generate("Once", LONG))

        self._together(8, ask_again)

    def _fill_memory(self):
        """More sequences than the device holds, and more idle sessions than the host does."""
        options = quire.Options(max_tokens=300, ignore_eos=True)

        def converse(number):
            turn = 0
            while not self._ended(self.tight):
                turn += 1
                self.tight.client.generate_text(
                    "Once", options, session_id=f"{number}-{turn}", create_session=True
                )

        self._together(8, converse)

    def _read_nothing(self):
        """A client with many streams stands still, with all its buffers."""
        client = start_load(self.slow, "--random-input-len", "8", "--random-output-len", "3500")
        await_true(lambda: self.slow.metric("quire_streams_open"), "streams")
        client.send_signal(signal.SIGSTOP)
        self._ended(self.slow, PATIENCE)
        client.kill()
        client.wait()

    def _crowd(self):
        path = self.crowded.target.removeprefix("unix:")
        while not self._ended(self.crowded, 0.2):
            sockets = [socket.socket(socket.AF_UNIX) for _ in range(120)]
            for each in sockets:
                each.connect(path)
            self._ended(self.crowded, 0.2)
            for each in sockets:
                each.close()

    def _log_into_a_full_disk(self):
        while not self._ended(self.silent, 0.1):
            self.silent.client.generate_text("Once", quire.Options(max_tokens=1))

    def _heat(self):
        series = 'model_name="llama",gpu="0",{},uuid="GPU-1"}}'
        hot = series.format('reason="hardware_thermal"')
        self.gpu.add("quire_gpu_clocks_limited{" + hot, 1)
        errors = series.format('kind="uncorrected"')
        count = 0
        while not self._ended(self.gpu, 0.5):
            count += 1
            self.gpu.add("quire_gpu_ecc_errors_total{" + errors, count)

    def _fill_the_disk(self):
        with open(self._folder / "filler", "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                pass  # no space is left
        options = quire.Options(max_tokens=20)
        number = 0
        while not self._ended(self.disk, 0.1):
            number += 1
            self.disk.client.generate_text(
                "Once", options, session_id=f"s{number}", create_session=True
            )


def read(stream):
    """To its end, or to its error."""
    try:
        for _ in stream:
            pass
    except quire.QuireError:
        pass


if __name__ == "__main__":
    unittest.main(verbosity=2)
