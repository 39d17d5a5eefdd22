#!/usr/bin/python3
"""Holds the ratios of this build against the committed baseline: check.py PROGRAM [--update].

A ratio compares two speeds of one run (vector code with plain, a batch with one sequence), so that
it says the same on any machine. Below 60 % of the baseline fails, if a second run does not do
better: a shared machine can spoil one. --update writes the baseline.
"""

import json
import pathlib
import subprocess
import sys

BASELINE = pathlib.Path(__file__).resolve().parent / "baseline.json"
LEAST = 0.6
# Of instruction sets that a processor may lack.
OPTIONAL = ("avx2", "avx512")


def measure(program):
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{program} ended with status {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def faults(measured, baseline):
    """What is too slow, unknown or gone."""
    for name, base in baseline.items():
        if name not in measured:
            if not any(word in name for word in OPTIONAL):
                yield f"{name}: no longer measured"
        elif measured[name] < LEAST * base:
            share = measured[name] / base
            yield f"{name}: {measured[name]:.3g} is {share:.0%} of the baseline's {base:.3g}"
    for name in measured:
        if name not in baseline:
            yield f"{name}: not in {BASELINE.name}; write it with --update"


def main():
    program = sys.argv[1]
    measured = measure(program)
    if "--update" in sys.argv[2:]:
        BASELINE.write_text(json.dumps(measured, indent=2) + "\n")
        return 0
    baseline = json.loads(BASELINE.read_text())
    found = list(faults(measured, baseline))
    if found:
        again = measure(program)
        measured = {name: max(value, again.get(name, 0)) for name, value in measured.items()}
        found = list(faults(measured, baseline))
    for name, value in measured.items():
        print(f"{name:40} {value:8.3g}   baseline {baseline.get(name, 0):8.3g}")
    for fault in found:
        print(f"FAILED {fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
