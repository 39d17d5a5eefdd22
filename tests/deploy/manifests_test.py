#!/usr/bin/python3
"""The files of deploy/ name only flags, ports, pages, paths and metrics that exist:
manifests_test.py BIN, the folder of the programs.
"""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import grpc
import yaml
from manifests_build import build, find, load, patch

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
K8S = DEPLOY / "k8s"
OVERLAYS = ("cpu", "gpu", "gpu-tp")
ADDED = ("podmonitor", "inference-pool")  # components that fit to every overlay
GIB = 1 << 30
MUST_NOT_WAIT = 60  # seconds


def help_of(program):
    return subprocess.run(
        [BIN / program, "--help"], capture_output=True, text=True, check=True
    ).stdout


def flags_of(program):
    """The flags that `--help` lists: --name, and --[no-]name of switches."""
    return {name.replace("[no-]", "") for name in re.findall(r"^  (--\S+)", help_of(program), re.M)}


def default_of(flag):
    return re.search(rf"^  {flag} [^[]*\[(\w+)", help_of("quire-server"), re.M).group(1)


def dry_run(arguments, environment):
    """The exit code and the end of the log of a dry run with these settings."""
    done = subprocess.run(
        [BIN / "quire-server", *arguments, "--dry-run"],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=MUST_NOT_WAIT,
    )
    return done.returncode, done.stderr[-1000:]


def make_certificate(folder):
    """tls.crt and tls.key, and the first again as ca.crt."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=quire"]
        + ["-keyout", f"{folder}/tls.key", "-out", f"{folder}/tls.crt"],
        check=True,
        capture_output=True,
    )
    shutil.copy(f"{folder}/tls.crt", f"{folder}/ca.crt")


def seconds(text):
    number, unit = re.fullmatch(r"([\d.]+)(ms|s|m|min|h|d)?", str(text)).groups()
    return float(number) * {"ms": 0.001, "m": 60, "min": 60, "h": 3600, "d": 86400}.get(unit, 1)


def documented_metrics():
    """Those of docs/metrics.md, which metrics_test compares with the program."""
    rows = re.findall(r"^\| `.*$", (ROOT / "docs/metrics.md").read_text(), re.M)
    return {name for row in rows for name in re.findall(r"`((?:quire_|vllm:|process_)\w+)`", row)}


def metrics_in(text):
    """The names of our metrics in a text, without the suffixes of histograms' series."""
    names = re.findall(r"(?<![\w:.-])(?:quire_|vllm:|process_)\w+", text)
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


class ComposeTest(unittest.TestCase):
    def setUp(self):
        self.content = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
        self.services = self.content["services"]

    def command(self, service):
        return self.services[service]["command"]

    def test_flags_exist_and_the_server_takes_them(self):
        self.assertLessEqual(
            {flag.split("=")[0] for flag in self.command("quire")}, flags_of("quire-server")
        )
        self.assertLessEqual(
            {flag.split("=")[0] for flag in self.command("load")}, flags_of("quire-load")
        )
        code, log = dry_run(self.command("quire"), {"QUIRE_MODEL": ""})
        self.assertEqual(code, 0, log)

    def test_tls_takes_the_place_of_plain_text_and_of_nothing_else(self):
        services = yaml.safe_load((DEPLOY / "compose.tls.yaml").read_text())["services"]
        command = services["quire"]["command"]
        tls = {flag for flag in command if flag.startswith("--ssl-")}
        plain = {flag for flag in self.command("quire") if flag != "--insecure-plaintext"}
        self.assertEqual(set(command) - tls, plain)
        self.assertEqual(services["load"]["environment"], services["quire"]["environment"])
        with tempfile.TemporaryDirectory() as folder:
            make_certificate(folder)
            here = [flag.replace("/tls/", folder + "/") for flag in command]
            code, log = dry_run(here, {"QUIRE_MODEL": "", **services["quire"]["environment"]})
            self.assertEqual(code, 0, log)

    def test_the_load_reaches_the_server(self):
        flags = dict(flag.partition("=")[::2] for flag in self.command("load"))
        self.assertEqual(flags["--server"], "quire:" + default_of("--port"))
        self.assertEqual(flags["--metrics"], "quire:" + default_of("--metrics-port"))
        published = [port.split(":")[-1] for port in self.services["quire"]["ports"]]
        self.assertEqual(published, [default_of("--port"), default_of("--metrics-port")])
        targets = yaml.safe_load((DEPLOY / "prometheus/targets/quire.yml").read_text())
        self.assertEqual(targets[0]["targets"], [flags["--metrics"]])

    def test_the_gateway_reaches_the_server(self):
        flags = dict(flag.partition("=")[::2] for flag in self.command("gateway"))
        self.assertEqual(flags["--worker-urls"], "grpc://quire:" + default_of("--port"))
        self.assertEqual(
            self.services["gateway"]["ports"][0].split(":")[-1], flags["--port"]
        )
        build = self.services["gateway"]["build"]
        copied = re.findall(r"(?m)^COPY (\S+)", (ROOT / build["dockerfile"]).read_text())
        self.assertTrue(copied and all((ROOT / path).is_file() for path in copied))

    def test_ports_are_published_on_this_machine_only(self):
        for name, service in self.services.items():
            for port in service.get("ports", []):
                self.assertTrue(port.startswith("127.0.0.1:"), f"{name}: {port}")

    def test_referenced_files_and_volumes_exist(self):
        for name, service in self.services.items():
            for volume in service.get("volumes", []):
                source = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", volume).split(":")[0]
                if source.startswith("."):
                    self.assertTrue((DEPLOY / source).exists(), f"{name}: {source}")
                else:
                    self.assertIn(source, self.content["volumes"], name)

    def test_grafana_finds_its_files(self):
        grafana = self.services["grafana"]
        mounts = dict(volume.split(":")[:2] for volume in grafana["volumes"])
        inside = {path: DEPLOY / source for source, path in mounts.items() if source[0] == "."}
        provider = load(DEPLOY / "grafana/provisioning/dashboards/quire.yml")[0]["providers"][0]
        self.assertIn(provider["options"]["path"], inside)
        home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
        folder, _, file = home.rpartition("/")
        self.assertTrue((inside[folder] / file).is_file(), home)
        source = load(DEPLOY / "grafana/provisioning/datasources/prometheus.yml")[0]["datasources"]
        self.assertIn(source[0]["url"].strip("${}"), grafana["environment"])

    def test_the_server_may_drain(self):
        flags = dict(flag.partition("=")[::2] for flag in self.command("quire"))
        wait = seconds(flags["--shutdown-timeout"]) + seconds(flags.get("--drain-delay", 0))
        self.assertGreaterEqual(seconds(self.services["quire"]["stop_grace_period"]), wait + 5)

    def test_image_targets_exist(self):
        dockerfile = (ROOT / self.services["quire"]["build"]["dockerfile"]).read_text()
        gpu = yaml.safe_load((DEPLOY / "compose.gpu.yaml").read_text())["services"]
        ours = ("quire", "load")
        # The image's health check asks a server in the same container.
        self.assertEqual(self.services["load"]["healthcheck"], {"disable": True})
        variables = gpu["quire"]["environment"]
        self.assertEqual(variables["QUIRE_DEVICE"], "cuda")
        self.assertRegex(dockerfile, "(?m)^ARG VERSION=")
        self.assertEqual(set(self.services["quire"]["build"]["args"]), {"COMMIT", "VERSION"})
        for service in (*(self.services[name] for name in ours), *(gpu[name] for name in ours)):
            target = service["build"]["target"]
            self.assertRegex(dockerfile, rf"(?m)^FROM .* AS {target}$")
            self.assertEqual(service["image"], f"quire:{target}")
        for name in ("quire-server", "quire-load", "quire"):
            self.assertTrue((BIN / name).exists(), name)

    def test_compose_reads_the_files(self):
        program = shutil.which("docker-compose")
        if program is None:
            self.skipTest("docker-compose is not installed")
        for files in (["compose.yaml"], ["compose.yaml", "compose.gpu.yaml"],
                      ["compose.yaml", "compose.tls.yaml"]):
            arguments = [part for file in files for part in ("-f", DEPLOY / file)]
            done = subprocess.run([program, *arguments, "config", "-q"], capture_output=True)
            self.assertEqual(done.returncode, 0, done.stderr.decode())


def for_each_overlay(test):
    """Calls a test for each overlay, with the objects in self.items."""

    def run(self):
        for name in OVERLAYS:
            items = build(K8S / "overlays" / name)
            for component in ADDED:
                items = build(K8S / "components" / component, items)
            with self.subTest(overlay=name):
                self.overlay, self.items = name, items
                self.pod = self.get("StatefulSet", "quire")["spec"]["template"]["spec"]
                self.server = self.pod["containers"][0]
                self.settings = self.get("ConfigMap", "quire-settings")["data"]
                test(self)

    run.__name__ = test.__name__
    return run


class KubernetesTest(unittest.TestCase):

    def get(self, kind, name):
        return self.items[find(self.items, kind, name)]

    def of_kind(self, kind):
        return [item for item in self.items if item["kind"] == kind]

    def pods(self):
        """Each workload with its pod."""
        for item in self.items:
            if "template" in item.get("spec", {}):
                yield item, item["spec"]["template"]

    @for_each_overlay
    def test_settings_exist_and_the_server_takes_them(self):
        flags = flags_of("quire-server")
        for variable in self.settings:
            self.assertRegex(variable, "^QUIRE_")
            self.assertIn("--" + variable[6:].lower().replace("_", "-"), flags)
        code, log = dry_run([], self.settings)
        # No GPU, or no such model, on this machine; 2 would be a bad setting.
        self.assertIn(code, (0,) if self.overlay == "cpu" else (4, 5), log)

    @for_each_overlay
    def test_probes_ask_pages_that_exist(self):
        with tempfile.TemporaryDirectory() as folder:
            server = subprocess.Popen(
                [BIN / "quire-server", "--device", "cpu", "--uds", f"{folder}/socket"]
                + ["--metrics-port", "0"],
                stderr=subprocess.PIPE,
                text=True,
            )
            try:
                line = next(line for line in server.stderr if " READY " in line)
                port = re.search(r"metrics_port=(\d+)", line).group(1)
                for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                    get = self.server[probe]["httpGet"]
                    self.assertEqual(get["port"], "metrics")
                    url = f"http://127.0.0.1:{port}{get['path']}"
                    with urllib.request.urlopen(url, timeout=MUST_NOT_WAIT) as page:
                        self.assertEqual(page.status, 200)
                with self.assertRaises(urllib.error.HTTPError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/no-such-page")
            finally:
                server.terminate()
                server.communicate()

    @for_each_overlay
    def test_named_ports_exist(self):
        ports = {}
        for item, template in self.pods():
            pod = template["spec"]
            for container in pod.get("initContainers", []) + pod["containers"]:
                for port in container.get("ports", []):
                    ports[port["name"]] = port["containerPort"]
        self.assertEqual(str(ports["metrics"]), self.settings["QUIRE_METRICS_PORT"])
        for service in self.of_kind("Service"):
            for port in service["spec"]["ports"]:
                self.assertIn(port["targetPort"], ports, service["metadata"]["name"])
        requests, *scrapes = self.get("NetworkPolicy", "quire")["spec"]["ingress"]
        self.assertEqual(requests["ports"], [{"port": ports["grpcs"]}])
        self.assertTrue(scrapes)
        for rule in scrapes:
            self.assertEqual(rule["ports"], [{"port": ports["metrics"]}])
        proxy = self.get("ConfigMap", "quire-tls-proxy")["data"]["haproxy.cfg"]
        self.assertIn(f"bind :{ports['grpcs']} ", proxy)
        pool = self.get("InferencePool", "quire")["spec"]
        self.assertEqual(pool["targetPorts"], [{"number": ports["grpcs"]}])
        self.assertEqual(pool["endpointPickerRef"]["port"]["number"], ports["picker"])
        monitor = self.get("PodMonitor", "quire")["spec"]["podMetricsEndpoints"][0]
        self.assertIn(monitor["port"], ports)
        self.assertEqual(monitor["path"], "/metrics")

    @for_each_overlay
    def test_selectors_find_pods(self):
        labels = [template["metadata"]["labels"] for _, template in self.pods()]
        for item in self.items:
            spec = item.get("spec", {})
            wanted = spec.get("selector") or spec.get("podSelector")
            if not isinstance(wanted, dict):
                continue
            wanted = wanted.get("matchLabels", wanted)
            self.assertTrue(wanted, f"{item['kind']} selects every pod")
            found = [each for each in labels if wanted.items() <= each.items()]
            self.assertEqual(len(found), 1, f"{item['kind']} {item['metadata']['name']}")

    @for_each_overlay
    def test_references_exist(self):
        for item, template in self.pods():
            pod = template["spec"]
            claims = item["spec"].get("volumeClaimTemplates", [])
            volumes = {each["name"] for each in pod["volumes"]}
            volumes |= {claim["metadata"]["name"] for claim in claims}
            for container in pod.get("initContainers", []) + pod["containers"]:
                mounts = container["volumeMounts"]
                self.assertLessEqual({mount["name"] for mount in mounts}, volumes)
                paths = [mount["mountPath"] for mount in mounts]
                self.assertEqual(len(paths), len(set(paths)))
                for source in container.get("envFrom", []):
                    self.get("ConfigMap", source["configMapRef"]["name"])
            for volume in pod["volumes"]:
                if "configMap" in volume:
                    self.get("ConfigMap", volume["configMap"]["name"])
            self.get("ServiceAccount", pod["serviceAccountName"])
        stateful = self.get("StatefulSet", "quire")["spec"]
        self.assertEqual(
            self.get("Service", stateful["serviceName"])["spec"]["clusterIP"], "None"
        )

    @for_each_overlay
    def test_paths_of_the_settings_are_mounted(self):
        mounts = {mount["mountPath"]: mount for mount in self.server["volumeMounts"]}
        for setting in ("QUIRE_UDS", "QUIRE_SESSION_DIR", "QUIRE_MODEL"):
            if setting not in self.settings:
                continue
            path = self.settings[setting]
            mount = next((at for at in mounts if path.startswith(at + "/")), None)
            self.assertIsNotNone(mount, f"{setting}={path}")
            writable = not mounts[mount].get("readOnly", False)
            self.assertEqual(writable, setting != "QUIRE_MODEL")
        proxy = self.get("ConfigMap", "quire-tls-proxy")["data"]["haproxy.cfg"]
        self.assertIn(f"unix@{self.settings['QUIRE_UDS']} ", proxy)

    @for_each_overlay
    def test_times_fit_each_other(self):
        drain = seconds(self.settings["QUIRE_DRAIN_DELAY"])
        drain += seconds(self.settings["QUIRE_SHUTDOWN_TIMEOUT"])
        self.assertGreaterEqual(self.pod["terminationGracePeriodSeconds"], drain + 5)
        ready = self.server["readinessProbe"]
        notice = ready["periodSeconds"] * ready["failureThreshold"] + ready["timeoutSeconds"]
        self.assertLessEqual(notice, seconds(self.settings["QUIRE_DRAIN_DELAY"]))
        live = self.server["livenessProbe"]
        self.assertGreater(
            live["periodSeconds"] * live["failureThreshold"],
            float(default_of("--worker-step-timeout")),
            "a server must be able to replace its workers before it is killed",
        )

    @for_each_overlay
    def test_memory_covers_pages_and_weights(self):
        limit = float(self.server["resources"]["limits"]["memory"].removesuffix("Gi"))
        about = (K8S / "overlays" / self.overlay / "kustomization.yaml").read_text()
        weights = float(re.search(r"([\d.]+) GB of\s+(?:# )?weights", about).group(1))
        needed = float(self.settings["QUIRE_KV_OFFLOADING_SIZE"]) + (weights + 2) * 1e9 / GIB
        if self.settings["QUIRE_DEVICE"] == "cpu":
            cache = self.settings["QUIRE_KV_CACHE_MEMORY_BYTES"]
            needed += float(cache.removesuffix("MiB")) / 1024
        for volume in self.pod["volumes"]:
            if volume["name"] == "shm":
                needed += float(volume["emptyDir"]["sizeLimit"].removesuffix("Gi"))
        self.assertGreater(limit, needed)
        gpus = self.server["resources"]["limits"].get("nvidia.com/gpu", 0)
        ranks = int(self.settings.get("QUIRE_TENSOR_PARALLEL_SIZE", 1))
        self.assertEqual(gpus, ranks if self.settings["QUIRE_DEVICE"] == "cuda" else 0)

    @for_each_overlay
    def test_pods_are_restricted(self):
        for _, template in self.pods():
            pod = template["spec"]
            self.assertTrue(pod["securityContext"]["runAsNonRoot"])
            self.assertEqual(
                pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"}
            )
            for container in pod.get("initContainers", []) + pod["containers"]:
                context = container["securityContext"]
                self.assertIs(context["allowPrivilegeEscalation"], False)
                self.assertIs(context["readOnlyRootFilesystem"], True)
                self.assertEqual(context["capabilities"], {"drop": ["ALL"]})
                self.assertIn("memory", container["resources"]["limits"])
        self.assertIs(self.pod["automountServiceAccountToken"], False)

    @for_each_overlay
    def test_nothing_listens_in_plain_text(self):
        self.assertNotIn("QUIRE_HOST", self.settings)
        self.assertNotIn("QUIRE_INSECURE_PLAINTEXT", self.settings)

    def test_the_group_of_hosts_is_whole(self):
        group, service, policy = load(K8S / "leaderworkerset.yaml")
        spec = group["spec"]["leaderWorkerTemplate"]
        base = build(K8S / "base")
        identity = base[find(base, "StatefulSet", "quire")]["spec"]["template"]["spec"]
        for role in ("leader", "worker"):
            pod = spec[f"{role}Template"]["spec"]
            self.assertEqual(pod["securityContext"], identity["securityContext"])
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            self.assertEqual(volumes["key"]["secret"]["defaultMode"], 0o440)
            mounted = {
                mount["name"]
                for container in pod.get("initContainers", []) + pod["containers"]
                for mount in container["volumeMounts"]
            }
            self.assertEqual(mounted, set(volumes))
            server = pod["containers"][0]
            flags = {flag.split("=")[0] for flag in server["args"]}
            self.assertLessEqual(flags, flags_of("quire-server"))
        leader = spec["leaderTemplate"]
        proxy = leader["spec"]["initContainers"][0]
        component = build(K8S / "overlays/cpu")
        sidecar = component[find(component, "StatefulSet", "quire")]["spec"]["template"]["spec"]
        self.assertEqual(proxy, sidecar["initContainers"][0])
        wanted = service["spec"]["selector"]
        self.assertLessEqual(wanted.items(), leader["metadata"]["labels"].items())
        self.assertFalse(wanted.items() <= spec["workerTemplate"]["metadata"]["labels"].items())
        self.assertEqual(service["spec"]["ports"][0]["targetPort"], proxy["ports"][0]["name"])
        admitted = [rule for rule in policy["spec"]["ingress"] if "ports" in rule]
        port = {"port": proxy["ports"][0]["containerPort"]}
        self.assertIn({"from": [{"podSelector": {}}], "ports": [port]}, admitted)

    def test_the_server_ends_tls_itself_with_the_files_of_its_secret(self):
        items = build(K8S / "components/mutual-tls", build(K8S / "base"))
        pod = items[find(items, "StatefulSet", "quire")]["spec"]["template"]["spec"]
        settings = dict(items[find(items, "ConfigMap", "quire-settings")]["data"])
        server = pod["containers"][0]
        mounts = {mount["name"]: mount["mountPath"] for mount in server["volumeMounts"]}
        with tempfile.TemporaryDirectory() as folder:
            make_certificate(folder)
            for name in ("CERTFILE", "KEYFILE", "CA_CERTS"):
                path = settings[f"QUIRE_SSL_{name}"]
                self.assertTrue(path.startswith(mounts["tls"] + "/"), path)
                settings[f"QUIRE_SSL_{name}"] = path.replace(mounts["tls"], folder)
            code, log = dry_run(["--device", "cpu"], settings)
            self.assertEqual(code, 0, log)
            os.remove(f"{folder}/tls.key")
            self.assertEqual(dry_run(["--device", "cpu"], settings)[0], 2)
        ports = {port["name"]: port["containerPort"] for port in server["ports"]}
        self.assertEqual(settings["QUIRE_PORT"], str(ports["grpcs"]))
        requests = items[find(items, "NetworkPolicy", "quire")]["spec"]["ingress"][0]
        self.assertEqual(requests["ports"], [{"port": ports["grpcs"]}])

    def test_autoscalers_own_the_number_of_servers(self):
        for component in ("hpa", "keda"):
            items = build(K8S / "components" / component, build(K8S / "overlays/gpu"))
            self.assertNotIn("replicas", items[find(items, "StatefulSet", "quire")]["spec"])
            kind = {"hpa": "HorizontalPodAutoscaler", "keda": "ScaledObject"}[component]
            target = items[find(items, kind, "quire")]["spec"]["scaleTargetRef"]
            find(items, target["kind"], target["name"])

    def test_kubectl_builds_the_same(self):
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            self.skipTest("kubectl is not installed")
        for name in OVERLAYS:
            done = subprocess.run(
                [kubectl, "kustomize", K8S / "overlays" / name],
                capture_output=True,
                text=True,
                timeout=MUST_NOT_WAIT,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            theirs = list(yaml.safe_load_all(without_hashes(done.stdout)))
            ours = build(K8S / "overlays" / name)
            for item in theirs:
                item["metadata"].setdefault("labels", {})
            for item in ours:
                item["metadata"].setdefault("labels", {})
            key = lambda item: (item["kind"], item["metadata"]["name"])  # noqa: E731
            self.maxDiff = None
            self.assertEqual(
                json.loads(json.dumps(sorted(ours, key=key))), sorted(theirs, key=key)
            )

    def test_the_proxy_ends_tls_in_front_of_the_socket(self):
        haproxy = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin")
        if haproxy is None:
            self.skipTest("haproxy is not installed: see scripts/deps")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        certificate = pathlib.Path(folder.name, "tls.pem")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=quire"]
            + ["-addext", "subjectAltName=DNS:quire"]
            + ["-keyout", f"{certificate}.key", "-out", certificate],
            check=True,
            capture_output=True,
        )
        text = (K8S / "components/tls-sidecar/haproxy.cfg").read_text()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % probe.getsockname()[1]
        for inside, here in (
            ("/etc/quire-tls/tls.pem", certificate),
            ("/run/quire/", folder.name + "/"),
            ("socket /tmp/", f"socket {folder.name}/"),
            ("bind :8443", f"bind {address}"),
        ):
            self.assertIn(inside, text)
            text = text.replace(inside, str(here))
        config = pathlib.Path(folder.name, "haproxy.cfg")
        config.write_text(text)
        done = subprocess.run([haproxy, "-c", "-f", config], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

        server = subprocess.Popen(
            [BIN / "quire-server", "--device", "cpu", "--uds", f"{folder.name}/grpc.sock"]
            + ["--metrics-port", "0", "--log-level", "error"],
        )
        self.addCleanup(lambda: (server.kill(), server.wait()))
        proxy = subprocess.Popen([haproxy, "-db", "-f", config], stdout=subprocess.DEVNULL)
        self.addCleanup(lambda: (proxy.kill(), proxy.wait()))
        credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
        options = [("grpc.ssl_target_name_override", "quire")]
        with grpc.secure_channel(address, credentials, options) as channel:
            deadline = time.monotonic() + MUST_NOT_WAIT
            while health(channel) != b"\x08\x01":  # SERVING, once the model is loaded
                self.assertLess(time.monotonic(), deadline)
        with grpc.insecure_channel(address) as channel:
            self.assertEqual(health(channel), b"", "plain text passes the proxy")


def health(channel):
    """The bytes of the health service's answer; none if the call fails."""
    try:
        return channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=2)
    except grpc.RpcError:
        return b""


def without_hashes(text):
    """kustomize adds ten characters to the names of generated ConfigMaps."""
    return re.sub(r"\b(quire-(?:settings|tls-proxy|endpoint-picker))-[a-z0-9]{10}\b", r"\1", text)


class MonitoringPageTest(unittest.TestCase):
    def example(self, begin):
        text = (ROOT / "docs/monitoring.md").read_text()
        return re.search(rf"^```\w*\n({re.escape(begin)}.*?)^```", text, re.M | re.S).group(1)

    def test_its_command_makes_a_rule_object_of_the_shipped_rules(self):
        command = self.example("{ printf").replace("kubectl apply -f -", "cat")
        done = subprocess.run(
            ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True
        )
        rules = [
            group
            for file in sorted((DEPLOY / "prometheus/rules").glob("*.yml"))
            for group in load(file)[0]["groups"]
        ]
        made = yaml.safe_load(done.stdout)
        self.assertEqual(made["kind"], "PrometheusRule")
        self.assertEqual(made["spec"], {"groups": rules})

    def test_its_patches_fit_the_network_policy(self):
        items = build(K8S / "overlays/gpu")
        for entry in yaml.safe_load(self.example("patches:"))["patches"]:
            patch(items, entry, K8S)
        policy = items[find(items, "NetworkPolicy", "quire")]["spec"]
        ports = [
            [port["port"] for port in rule["ports"]]
            for rule in policy["ingress"] + policy["egress"]
        ]
        self.assertEqual(ports, [[8443], [9464], [9464], [8443], [53, 53], [4317]])


class MetricNamesTest(unittest.TestCase):
    def test_every_metric_named_in_deploy_is_exported(self):
        documented = documented_metrics()
        self.assertGreater(len(documented), 100)
        files = [
            *K8S.rglob("*.yaml"),
            *DEPLOY.glob("*.md"),
            *(DEPLOY / "prometheus").rglob("*.yml"),
            *(DEPLOY / "grafana").rglob("*.json"),
        ]
        seen = set()
        for file in files:
            named = metrics_in(re.sub(r"instance:quire_\w+:\w+", "", file.read_text()))
            self.assertLessEqual(named, documented, file)
            seen |= named
        self.assertGreater(len(seen), 100)

    def test_recorded_names_are_recorded(self):
        rules = load(DEPLOY / "prometheus/rules/recording.yml")[0]["groups"][0]["rules"]
        recorded = {rule["record"] for rule in rules}
        for file in (*DEPLOY.rglob("*.yml"), *DEPLOY.rglob("*.json")):
            named = set(re.findall(r"instance:quire_\w+:\w+", file.read_text()))
            self.assertLessEqual(named, recorded, file)

    def test_flags_of_alerts_exist(self):
        flags = flags_of("quire-server") | flags_of("quire")
        flags |= {"--undo", "--exit-when-idle", "--all", "--after"}  # of commands of quire
        flags |= {"--help", "--previous", "--gpus"}  # the last two are kubectl's and docker's
        text = (DEPLOY.parent / "docs/operations.md").read_text()
        named = {flag.replace("--no-", "--") for flag in re.findall(r"(?<!-)--[a-z][a-z-]+", text)}
        self.assertLessEqual(named, flags)


if __name__ == "__main__":
    unittest.main(verbosity=2)
