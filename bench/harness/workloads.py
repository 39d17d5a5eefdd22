"""The workloads W1 to W9: a data file each (bench/serve/workloads), run by quire-load on a server.

A file has a section for each size, and a section has points, each of which is one call of
quire-load. Settings of all points are in the section; a point's `server` and `load` add to them.

    program    the server: quire-server, or null_server (no model)
    server     its flags
    load       flags of quire-load; {workloads} is the folder of the data files, {trace} the file
               that `mix` makes
    label      of a point
    tokens     checked: output tokens of each request, or "trace": those of the trace
    judged     figures that bench/compare judges
    floor      [{figure, kind = "decode" | "prefill" | "offline", ...}]: harness/floors.py
    mix        {file, every, prompt, output}: each `every`-th request of a trace becomes a long one
    sweep      true: the call sweeps over rates. Each rate is a point, judged if it is in
               `rates`; the best is another
    baseline   label of an earlier point: the gain over it becomes a point too
    parts      other benchmarks whose points belong to the workload
    timeout    seconds of a point
"""

import json
import pathlib
import tempfile
import tomllib

from . import comparison, floors, machine, micro, process
from .process import BenchError

FOLDER = machine.ROOT / "bench" / "serve" / "workloads"
KNOWN = {
    "program", "server", "load", "label", "tokens", "judged", "floor", "mix", "sweep", "rates",
    "parts", "timeout", "point", "baseline",
}  # fmt: skip


def names():
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name):
    return Workload(FOLDER / f"{name}.toml")


def percentile(values, percent):
    """Linear between order statistics, as numpy.percentile."""
    values = sorted(values)
    at = (len(values) - 1) * percent / 100
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def flat_figures(record):
    """The numbers of a line of perf.jsonl, each under one name, as ttft_ms_p99."""
    figures = {k: v for k, v in record["rates"].items() if v is not None}
    for name, values in record["latencies"].items():
        for statistic, value in values.items():
            if statistic != "count" and values["count"] > 0:
                figures[f"{name}_{statistic.replace('.', '_')}"] = value
    figures["peak_concurrency"] = record["counts"]["peak_concurrency"]
    residency = record.get("residency", {})
    figures |= {f"kv_{k}": v for k, v in residency.items() if k != "outcomes"}
    return figures


class Workload:
    def __init__(self, path):
        self.path = path
        self.data = tomllib.loads(path.read_text())
        for size in ("cpu", "gpu"):
            section = self.data[size]
            for table in (section, *section.get("point", [])):
                unknown = set(table) - KNOWN
                if unknown:
                    raise BenchError(f"{path}: unknown {', '.join(sorted(unknown))}")

    def targets(self):
        """The targets for ninja."""
        targets = {"quire-load", "roofline"}
        for size in ("cpu", "gpu"):
            section = self.data[size]
            targets.add(section.get("program", "quire-server"))
            for part in section.get("parts", []):
                targets.update(micro.PROGRAMS[part][0])
        return targets

    def describe(self, size):
        return {"title": self.data["title"], "what": self.data["what"], **self.data[size]}

    def execute(self, build, size, model):
        """The points of one run."""
        section = self.data[size]
        if size == "gpu" and not model and section.get("program", "quire-server") == "quire-server":
            raise BenchError("size gpu needs --model: a checkpoint that the GPU is for")
        points = []
        for part in section.get("parts", []):
            points += micro.execute(part, build)
        with tempfile.TemporaryDirectory(prefix="quire-bench-") as folder:
            load_run = LoadRun(build, size, model, pathlib.Path(folder))
            for point in section.get("point", []):
                joined = {k: section.get(k, []) + point.get(k, []) for k in ("server", "load")}
                points += load_run.measure({**section, **point, **joined})
        for point in section.get("point", []):
            if "baseline" in point:
                points.append(gains(points, point["label"], point["baseline"]))
        return points


class LoadRun:
    """Runs points, each with its own server, so that none finds the cache of another."""

    def __init__(self, build, size, model, folder):
        self.build, self.size, self.folder = build, size, folder
        self.model = pathlib.Path(model) if model else machine.ROOT / "models" / "demo"
        self.calls = 0
        self.machine = None  # of the floors, measured when first needed

    def measure(self, spec):
        self.calls += 1
        results = self.folder / f"results-{self.calls}"
        trace = self.mixed_trace(spec["mix"]) if "mix" in spec else ""
        flags = [word.format(workloads=FOLDER, trace=trace) for word in spec["load"]]
        log = self.folder / f"server-{self.calls}"
        with process.Server(self.server_command(spec), log) as server:
            command = [
                *(self.build / "bin/quire-load", "--server", server.address),
                *("--metrics", server.metrics, "--result-dir", results),
                *("--workload", self.label(spec)),
                *flags,
            ]
            before = server.cpu_seconds()
            done = process.run(command, spec.get("timeout", 300), watch=[server.process.pid])
            if not server.alive():
                raise BenchError(f"the server died:\n{server.tail()}")
            server_cpu = server.cpu_seconds() - before
        records = self.records(results, done)
        for record in records:
            self.check(record, spec, trace)
        points = [self.point(record, spec) for record in records]
        if len(points) == 1:
            figures, tokens = points[0]["figures"], records[0]["counts"]["output_tokens"]
            figures["server_cpu_us_per_token"] = 1e6 * server_cpu / tokens
            figures["client_cpu_us_per_token"] = 1e6 * done.cpu_seconds / tokens
            if trace:
                figures["short_itl_ms_p99"] = short_itl_ms_p99(results, spec["mix"]["prompt"])
            points[0]["judged"] = [f for f in spec.get("judged", []) if f in figures]
            points[0]["resident"] = done.resident
        points[0]["command"] = [str(word) for word in command[3:]]
        if spec.get("sweep"):
            points.append(best_of(points))
        return points

    def label(self, spec):
        return spec.get("label", "load")

    def server_command(self, spec):
        if spec.get("program") == "null_server":
            return [self.build / "bench/null_server", *spec.get("server", [])]
        command = [self.build / "bin/quire-server", "--port", "0", "--metrics-port", "0"]
        return [*command, "--model", self.model, *spec.get("server", [])]

    def mixed_trace(self, mix):
        """Every `every`-th request of a trace with a long prompt instead."""
        path = self.folder / f"mixed-{self.calls}.jsonl"
        rows = [json.loads(line) for line in (FOLDER / mix["file"]).read_text().splitlines()]
        for row in rows[mix["every"] - 1 :: mix["every"]]:
            row["input_length"], row["output_length"] = mix["prompt"], mix["output"]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def records(self, results, done):
        path = results / "perf.jsonl"
        if not path.exists():
            raise BenchError(f"quire-load ended with status {done.status}\n{done.stderr[-2000:]}")
        return [json.loads(line) for line in path.read_text().splitlines()]

    def check(self, record, spec, trace):
        """No request failed, no token was lost, and as many tokens came as were asked for."""
        counts = record["counts"]
        faults = sum(
            counts[k] for k in ("failed", "incomplete", "cancelled", "broken_sequences")
        )
        if faults or counts["completed"] != counts["planned"]:
            raise BenchError(f"{self.label(spec)}: not all requests came back whole: {counts}")
        tokens = spec.get("tokens")
        if tokens == "trace":
            path = trace or next(
                w.format(workloads=FOLDER) for w in spec["load"] if w.endswith(".jsonl")
            )
            rows = pathlib.Path(path).read_text().splitlines()
            lengths = [json.loads(row)["output_length"] for row in rows]
            expected = sum(lengths[i % len(lengths)] for i in range(counts["planned"]))
        elif tokens:
            expected = tokens * counts["planned"]
        else:
            return
        if counts["output_tokens"] != expected:
            came = counts["output_tokens"]
            raise BenchError(f"{self.label(spec)}: asked for {expected} tokens, {came} came")

    def point(self, record, spec):
        figures = flat_figures(record)
        label = self.label(spec)
        judged = [f for f in spec.get("judged", []) if f in figures]
        if spec.get("sweep"):
            rate = record["settings"]["request_rate"]
            label = f"{label}, rate {rate:g}"
            judged = judged if rate in spec["rates"] else []
        return {
            "label": label,
            "figures": figures,
            "judged": judged,
            "valid": record["valid"] and not record["partial"],
            "reasons": record["reasons"],
            "counts": record["counts"],
            "client": record["client"],
            "server": record["settings"]["server"],
            "floors": [self.floor(floor, figures) for floor in spec.get("floor", [])],
        }

    def floor(self, spec, figures):
        """The floor of a figure and the share of it that was reached."""
        model = floors.Model.load(self.model, kv_bytes=4 if self.size == "cpu" else 2)
        if self.machine is None:
            self.machine = self.measured_machine(model.bytes_of_weights())
        if spec["kind"] == "decode":
            value = 1e3 * model.decode_step(self.machine, spec["batch"], spec["context"])
        elif spec["kind"] == "prefill":
            value = 1e3 * model.prefill(self.machine, spec["prompt"])
        else:
            value = model.offline(self.machine, spec["prompt"], spec["output"], spec["batch"])
        measured = figures[spec["figure"]]
        smaller = comparison.smaller_is_better(spec["figure"])
        fraction = value / measured if smaller else measured / value
        return {**spec, "floor": value, "fraction": fraction}

    def measured_machine(self, weight_bytes):
        if self.size == "gpu":
            for name, gpu in floors.GPUS.items():
                if any(name in line for line in machine.gpus()):
                    return gpu
            raise BenchError(f"no floor is known for {machine.gpus()}: add it to harness/floors.py")
        done = process.run([self.build / "bench/roofline", weight_bytes], 60)
        peak = json.loads(done.stdout)
        return floors.Machine(peak["bytes_per_second"], peak["flops_per_second"])


def short_itl_ms_p99(results, long_prompt):
    """Figures of the short requests."""
    path = next(results.glob("quire-*.json"))
    detail = json.loads(path.read_text())
    gaps = [
        gap
        for length, itls in zip(detail["input_lens"], detail["itls"])
        if length < long_prompt
        for gap in itls
    ]
    return 1e3 * percentile(gaps, 99)


def gains(points, label, baseline):
    """The gain of a point's judged figures over those of another point of the same run."""
    ours, theirs = (next(p for p in points if p["label"] == name) for name in (label, baseline))
    figures = {}
    for figure in ours["judged"]:
        worse = comparison.worsening(figure, theirs["figures"].get(figure), ours["figures"][figure])
        if worse:
            figures[f"{figure}_gain"] = 1 / worse
    return {"label": f"{label}, over {baseline}", "figures": figures, "judged": list(figures)}


def best_of(points):
    """The result of a sweep: the most requests a second that met the limits, at any rate."""
    goodputs = [p["figures"].get("goodput_requests_per_second", 0) for p in points]
    rates = [p["figures"]["output_tokens_per_second"] for p in points]
    figures = {
        "best_goodput_requests_per_second": max(goodputs),
        "best_output_tokens_per_second": max(rates),
    }
    return {"label": "best of the sweep", "figures": figures, "judged": list(figures)}
