"""Series: each figure of each benchmark over commits, by machine, with its floor and limit, from
everything that bench/results holds.

Results of bench/run come from bench/results/history and, if they are not there, from the newest
file of each name. The report of the GPU is one file that each measurement changes, so its series is
the file's history in git; without git it is one value. Sizes of images come from
history/images.json.
"""

import dataclasses
import json
import math
import re
import statistics
import subprocess

from . import comparison, confidence, machine

GPU_REPORT = "gpu.json"
IMAGES = "history/images.json"
IMAGE_LIMIT_MB, OVER_CUDA_LIMIT_MB = 120, 500
GIB = 2**30

# Area and the words that place a benchmark or a number there; the first match counts.
AREAS = (
    ("Start", r"exec to (READY|ready)|capture|while loading"),
    ("Memory", r"memory|bytes"),
    ("Images", r"^image "),
    ("Conversations", r"conversation|first minute|first 40 s|^steady|^W5|^session"),
    ("Kernels and collectives", r"attention|^2 GPUs: sum|^matmul|^sample"),
    ("Steps", r"decode|prefill|idle between|kill of a rank"),
    ("Serving", r"offline|^load,|^W[1-8]|^demo"),
    ("Text and streams", r"^W9|^tokenizer|^stream|^soak"),
    ("Observation", r"with a trace|^a scrape"),
    ("Scheduler and cache", r"^scheduler|^prefix_tree|^copy"),
)


@dataclasses.dataclass
class Value:
    value: float
    commit: str = ""
    date: str = ""
    modified: bool = False  # measured on a tree that was no commit


@dataclasses.dataclass
class Series:
    place: str  # the machine; with size and model, where results depend on them
    name: str  # of the benchmark
    label: str  # of the point
    figure: str
    unit: str
    smaller: bool  # is better
    values: list = dataclasses.field(default_factory=list)  # in order of commits
    # Of the last value; None: there is none.
    floor: float = None
    must: float = None
    aim: float = None
    note: str = ""

    @property
    def area(self):
        text = f"{self.name} {self.label} {self.figure}".strip()
        return next((area for area, words in AREAS if re.search(words, text)), "Others")

    @property
    def last(self):
        return self.values[-1].value

    def missed(self):
        """Whether the last value is beyond its limit."""
        if self.must is None:
            return False
        return self.last > self.must if self.smaller else self.last < self.must

    def share_of_floor(self):
        """How much of the floor was reached: 1 is all. None without a floor."""
        if not self.floor or self.last <= 0:
            return None
        return self.floor / self.last if self.smaller else self.last / self.floor

    def worsening(self, before, after):
        """How many times worse `after` is. None: not comparable."""
        if before <= 0 or after <= 0:
            return None
        return after / before if self.smaller else before / after

    def verdicts(self):
        """For each value "worse", "better", "unharmed" or "undecided" against those before it, back
        to the last one that was worse or better."""
        out, base = [], []
        for value in self.values:
            verdict = self.verdict(base, value.value)
            base = [value.value] if verdict in ("worse", "better") else [*base, value.value]
            out.append(verdict)
        return out

    def verdict(self, before, value):
        """By the rule of bench/compare: Student's t on logarithms of ratios, and a verdict only if
        the whole 95 % interval lies on one side of the threshold. The interval is for one new
        result beside those before, whose spread is the noise."""
        ratios = [self.worsening(other, value) for other in before]
        if len(ratios) < 2 or None in ratios:
            return "undecided"
        logs = [math.log(ratio) for ratio in ratios]
        quantile = confidence.t_quantile(confidence.CONFIDENCE, len(logs) - 1)
        reach = quantile * statistics.stdev(logs) * math.sqrt(1 + 1 / len(logs))
        mean = statistics.fmean(logs)
        return comparison.verdict_of(
            math.exp(mean - reach), math.exp(mean + reach), comparison.THRESHOLD
        )


class Collection:
    """Series by their names, filled value by value in order of commits."""

    def __init__(self):
        self.series = {}

    def add(self, series, value):
        key = (series.place, series.name, series.label, series.figure)
        known = self.series.setdefault(key, series)
        known.values.append(value)
        known.floor, known.must, known.aim = series.floor, series.must, series.aim
        known.note = series.note


# Figures that no comparison judges and the page shows: of a start, as it was measured once.
KEPT = ("exec_to_ready_seconds",)


def brief_point(point):
    """A point of a result as the history has it: the figures that are judged or kept, their floors,
    and the most memory that the server had."""
    figures = {f: v for f, v in point["figures"].items() if f in (*point["judged"], *KEPT)}
    if point.get("resident"):
        # A row has the time, then the bytes of the load client and of the server.
        figures["server_resident_bytes_max"] = max(row[-1] for row in point["resident"])
    floors = {"floors": point["floors"]} if point.get("floors") else {}
    return {"label": point["label"], "judged": point["judged"], "figures": figures} | floors


def brief(result):
    """A result of bench/run as the history has it: the last of its runs."""
    without = {k: v for k, v in result.items() if k not in ("workload", "runs")}
    return without | {"points": [brief_point(p) for p in result["runs"][-1]["points"]]}


def read_json(path, text=None):
    """The content of a file, or of a version of it; ValueError that names the file."""
    try:
        return json.loads(path.read_text() if text is None else text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_results(folder):
    """Every result of bench/run, oldest commit first."""
    entries = {}
    paths = [*folder.glob("history/*/*/*.json"), *folder.glob("cpu/*.json"),
             *folder.glob("gpu/*.json")]
    for path in sorted(paths):
        result = read_json(path)
        for key in ("name", "size", "date", "commit", "machine"):
            if key not in result:
                raise ValueError(f"{path}: no {key!r}: not a result of bench/run")
        # The newest file of a name comes before its copy in the history.
        key = tuple(result[k] for k in ("size", "name", "commit", "date"))
        entries.setdefault(key, brief(result) if "runs" in result else result)
    return sorted(entries.values(), key=lambda e: (e.get("commit_date") or e["date"], e["date"]))


def place_of(entry):
    """The facts that two comparable figures share: the machine, the size and the model."""
    host = entry["machine"]
    gpus = host.get("gpus")
    where = f"{len(gpus)} × {gpus[0].split(',')[0]}" if gpus else host["cpu"]
    return f"{where}, {host['cores']} cores · size {entry['size']} · {entry.get('model', '')}"


def add_results(entries, collection):
    for entry in entries:
        for point in entry["points"]:
            floors = {floor["figure"]: floor["floor"] for floor in point.get("floors", [])}
            for figure, value in point["figures"].items():
                series = Series(
                    place=place_of(entry), name=entry["name"], label=point["label"],
                    figure=figure.replace("_", " "), unit="",
                    smaller=comparison.smaller_is_better(figure), floor=floors.get(figure))
                collection.add(series, Value(value, entry["commit"], entry["date"][:10],
                                             bool(entry.get("modified"))))


def versions(path):
    """(commit, date, text) of each committed version of a file, oldest first; then the file as it
    stands, if that differs or there is no history."""
    def git(*words):
        done = subprocess.run(["git", *words], cwd=path.parent, capture_output=True, text=True,
                              check=False)
        return done.stdout if done.returncode == 0 else ""

    found = []
    for line in git("log", "--reverse", "--format=%h %cs", "--", path.name).splitlines():
        commit, date = line.split()
        if text := git("show", f"{commit}:./{path.name}"):
            found.append((commit, date, text))
    text = path.read_text() if path.exists() else ""
    if text and (not found or found[-1][2] != text):
        found.append(("", "", text))
    return found


def gpu_name(report):
    names = [run["gpu"]["name"] for run in report.get("runs", []) if run.get("gpu")]
    return names[-1] if names else "GPU"


def gpu_series(number, gpu):
    """The series of one number of the GPU's report, without values. Limits say which way is better;
    where they do not, the unit and the name do."""
    name, unit = number["name"], number["unit"]
    must, aim = number.get("must"), number.get("aim")
    if must is not None and aim is not None and must != aim:
        smaller = must > aim
    else:
        smaller = not (unit.endswith("/s") or "output tokens" in name)
    on_two = name.startswith("2 GPUs")
    return Series(place=f"2 × {gpu}" if on_two else gpu, name=name, label="", figure="", unit=unit,
                  smaller=smaller, floor=number.get("floor"), must=must, aim=aim)


def gpu_memory(report, gpu):
    """(series without values, value) of each start whose memory the report has."""
    for run in report.get("runs", []):
        for bench, entry in run.get("benches", {}).items():
            on_two = bench.startswith("group") or bench.endswith("x2")
            for line in entry.get("result") or []:
                if "planned_bytes" in line:
                    what = "a step"
                    planned, measured = line["planned_bytes"], line["measured_bytes"]
                elif "memory" in line and "start" in line:
                    memory = line["memory"]
                    what, planned, measured = line["start"], memory["planned"], memory["measured"]
                else:
                    continue
                of = ", ".join(filter(None, (line.get("model"), what)))
                note = f"planned {planned / GIB:.2f} GiB, measured {measured / GIB:.2f} GiB"
                yield (Series(place=f"2 × {gpu}" if on_two else gpu,
                              name=f"memory, measured over planned: {of}", label="", figure="",
                              unit="%", smaller=True, note=note),
                       round(100 * measured / planned, 3))


def gpu_figures(report):
    """(series without values, value) of everything that a version of the report holds."""
    gpu = gpu_name(report)
    for number in report.get("numbers", []):
        if number.get("value") is not None:
            yield gpu_series(number, gpu), number["value"]
    yield from gpu_memory(report, gpu)


def add_gpu(path, collection):
    """A report keeps numbers that were not measured again, so only a new value is a result. Numbers
    that the newest report lacks are left out."""
    reports = [(commit, date, read_json(path, text)) for commit, date, text in versions(path)]
    newest = {(s.place, s.name) for s, _ in gpu_figures(reports[-1][2])} if reports else set()
    seen = {}
    for commit, date, report in reports:
        for series, value in gpu_figures(report):
            key = (series.place, series.name)
            if key in newest and seen.get(key) != value:
                collection.add(series, Value(value, commit, date, modified=not commit))
                seen[key] = value


def add_images(path, collection):
    """The size of each image; of one with CUDA's libraries also what it has beyond them, because
    the limit is on that."""
    for entry in read_json(path) if path.exists() else []:
        whole, cuda = entry["bytes"] / 1e6, (entry.get("cuda_bytes") or 0) / 1e6
        name = f"image {entry['image']}"
        sizes = [(name, whole, None if cuda or entry["image"] != "cpu" else IMAGE_LIMIT_MB)]
        if cuda:
            sizes.append((f"{name} beyond CUDA's libraries", whole - cuda, OVER_CUDA_LIMIT_MB))
        for label, size, limit in sizes:
            series = Series(place="Container images", name=label, label="", figure="", unit="MB",
                            smaller=True, must=limit)
            collection.add(series, Value(size, entry.get("commit", ""), entry.get("date", "")[:10]))


def collect(folder=machine.ROOT / "bench" / "results"):
    """Every series of a folder of results."""
    collection = Collection()
    add_results(read_results(folder), collection)
    add_gpu(folder / GPU_REPORT, collection)
    add_images(folder / IMAGES, collection)
    return list(collection.series.values())
