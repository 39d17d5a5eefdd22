#!/usr/bin/python3
"""deploy/prometheus and deploy/grafana against real servers: observability_test.py BIN.

Debian's Prometheus scrapes servers under load and in trouble. Every panel's query returns data, and
every alert fires in a fault made for it.
"""

import concurrent.futures
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml
from observability_faults import Faults
from observability_servers import ROOT, GpuServer, GuardedServer, Prometheus, Server
from observability_traffic import GuardedTraffic, Load
from processes import PATIENCE, await_true

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
SERVER = BIN / "quire-server"
DASHBOARDS = sorted((ROOT / "deploy/grafana/dashboards").glob("*.json"))
ALERTS = yaml.safe_load((ROOT / "deploy/prometheus/rules/alerts.yml").read_text())

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
    "QuireNoServer": "the servers of the other faults are targets: it has a test of its own",
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
        cls.faults = Faults(cls, SERVER)
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

    def test_no_server(self):
        lonely = self.cleaned(Prometheus([]))
        firing = 'ALERTS{alertname="QuireNoServer", alertstate="firing"}'
        await_true(lambda: lonely.query(firing), "QuireNoServer")

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


if __name__ == "__main__":
    unittest.main(verbosity=2)
