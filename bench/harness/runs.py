"""A run: one benchmark by name, from its programs to a result with commit, machine and settings."""

import datetime
import json
import pathlib
import subprocess

from . import compact_json, machine, micro, series, workloads
from .process import BenchError

RESULTS = machine.ROOT / "bench" / "results"


def names():
    """All benchmarks: the workloads, then the programs of their own."""
    return [*workloads.names(), *micro.PROGRAMS]


def default_names():
    """The benchmarks of a run without names: all but those that take minutes."""
    return [n for n in names() if n in micro.PROGRAMS or not workloads.load(n).data.get("long")]


def check(wanted):
    unknown = [name for name in wanted if name not in names()]
    if unknown:
        raise BenchError(f"no benchmark {', '.join(unknown)}; there are {', '.join(names())}")


def configure(source, build, *settings):
    command = ["cmake", "-G", "Ninja", "-S", source, "-B", build, *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{build} cannot be configured:\n{done.stderr[-3000:]}")


def build_targets(wanted, build):
    """Builds the targets of the benchmarks in a build folder that CMake has configured."""
    targets = set()
    for name in wanted:
        own = micro.PROGRAMS.get(name)
        targets.update(own[0] if own else workloads.load(name).targets())
    done = subprocess.run(
        ["ninja", "-C", build, *sorted(targets)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise BenchError(f"{build} does not build:\n{done.stdout[-3000:]}")


def prepare(wanted, build):
    """Configures this tree in `build`, unless that is done, and builds the benchmarks' targets."""
    if not (build / "build.ninja").exists():
        configure(machine.ROOT, build)
    build_targets(wanted, build)


def execute(name, build, size="cpu", model=None):
    """One run of one benchmark: {"points": [...]}. Correctness comes first: a wrong answer, a lost
    token or a failed request is a BenchError and no figure."""
    check([name])
    if name in micro.PROGRAMS:
        return {"points": micro.execute(name, build)}
    return {"points": workloads.load(name).execute(build, size, model)}


def judged_figures(run):
    """The figures of a run that a comparison judges."""
    return {
        f"{point['label']}: {figure}": point["figures"][figure]
        for point in run["points"]
        for figure in point["judged"]
    }


def result(name, build, size, model, all_runs):
    """The content of a result file."""
    content = {
        "name": name,
        "size": size,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        **machine.commit(),
        "machine": machine.machine(),
        "build": machine.build_type(build),
        "model": str(model or "models/demo"),
    }
    if name not in micro.PROGRAMS:
        content["workload"] = workloads.load(name).describe(size)
    content["runs"] = all_runs
    return content


def check_tree(commit):
    """BenchError if results of this tree belong to no commit, so that their figures could not be
    measured again."""
    if commit["modified"] or not commit["commit"]:
        raise BenchError("the tree is modified: bench/results keeps results of commits only. "
                         "Commit first, or write elsewhere with --out, or use --allow-modified")


def store(content, out=None, allow_modified=False):
    """Writes a result to `out`, or as the newest of its name and, once, into the history; the
    latter only of an unmodified tree, unless told otherwise."""
    if out is not None:
        out.write_text(compact_json.dumps(content) + "\n")
        return [out]
    if not allow_modified:
        check_tree(content)
    newest = RESULTS / content["size"] / f"{content['name']}.json"
    day = content["date"][:10]
    history = RESULTS / "history" / content["size"] / content["name"]
    kept = [newest, history / f"{day}-{content['commit']}.json"]
    texts = [compact_json.dumps(content), json.dumps(series.brief(content), ensure_ascii=False)]
    for path, text in zip(kept, texts):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return [pathlib.Path(p).relative_to(machine.ROOT) for p in kept]
