"""The facts that a figure depends on besides the code: machine, commit, build."""

import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def output(*command):
    """A command's output, or nothing where there is no such command."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def gpus():
    """Name, memory and driver of each GPU, by nvidia-smi."""
    query = "--query-gpu=name,memory.total,driver_version,clocks.max.sm"
    return output("nvidia-smi", query, "--format=csv,noheader").splitlines()


def machine():
    facts = {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "kernel": platform.release(),
    }
    if gpus():
        facts["gpus"] = gpus()
    return facts


def commit():
    """The commit, and whether the tree differs from it."""
    return {
        "commit": output("git", "rev-parse", "--short=12", "HEAD"),
        "commit_date": output("git", "show", "-s", "--format=%cI", "HEAD"),
        "modified": bool(output("git", "status", "--porcelain", "--untracked-files=no")),
    }


def build_type(build):
    """The settings of CMake in a build directory."""
    wanted = {}
    cache = pathlib.Path(build) / "CMakeCache.txt"
    for line in cache.read_text().splitlines() if cache.exists() else []:
        name = line.split(":", 1)[0]
        if name in ("CMAKE_BUILD_TYPE", "CMAKE_CXX_FLAGS_RELEASE", "QUIRE_SANITIZE"):
            wanted[name] = line.split("=", 1)[1]
    return wanted
