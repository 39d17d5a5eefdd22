"""The sides of bench/compare: a commit, a build folder, or the tree as it stands.

A commit is checked out in a worktree of its own, build/compare/<commit>, and built there in
build/release. The compiler cache shares objects between worktrees.
"""

import dataclasses
import os
import pathlib
import subprocess

from . import machine, runs
from .process import BenchError

FOLDER = machine.ROOT / "build" / "compare"


@dataclasses.dataclass
class Side:
    name: str  # for tables and messages
    build: pathlib.Path
    source: pathlib.Path | None  # the tree it is built from; None: a finished build folder


def commit_of(text):
    """The full id of a commit; None when git knows none by that name."""
    return machine.output("git", "rev-parse", "--verify", "--quiet", f"{text}^{{commit}}") or None


def parse(text):
    """The side that a word of the command line names."""
    folder = pathlib.Path(text)
    if (folder / "build.ninja").exists():
        return Side(text, folder, None)
    commit = commit_of(text)
    if commit is None:
        raise BenchError(f"{text} is no commit, no build folder, no result file and no benchmark")
    source = FOLDER / commit[:12]
    return Side(f"{text} ({commit[:12]})", source / "build/release", source)


def working_tree():
    return Side("the working tree", FOLDER / "tree", machine.ROOT)


def check_out(side):
    """Makes the worktree of a commit, unless it is there."""
    if side.source is None or side.source == machine.ROOT or side.source.exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    machine.output("git", "worktree", "prune")  # forgets those that were deleted by hand
    command = ["git", "worktree", "add", "--detach", "--quiet", side.source, side.source.name]
    done = subprocess.run(command, cwd=machine.ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"git worktree add {side.source}: {done.stderr.strip()}")


def prepare(side, names, size):
    """Builds the targets of the benchmarks. Both sides get the same settings of CMake."""
    if side.source is None:
        return runs.build_targets(names, side.build)
    check_out(side)
    os.environ.update(CCACHE_BASEDIR=str(side.source), CCACHE_NOHASHDIR="1")
    if not (side.build / "build.ninja").exists():
        cuda = "ON" if size == "gpu" else "OFF"
        settings = ("-DCMAKE_BUILD_TYPE=Release", f"-DQUIRE_CUDA={cuda}")
        runs.configure(side.source, side.build, *settings)
    runs.build_targets(names, side.build)
