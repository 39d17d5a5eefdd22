#!/usr/bin/env python3
"""Writes edits of code that people made: collect_edits.py OUT.

They are changes of this repository's sources: of each of the newest commits that changed between 8
and 80 lines of one file of 150 to 600 lines, at most EDITS of them. OUT gets a JSON list of the
commit, the path, and the words of the file before and after; words are split as the first step of
common tokenizers splits them, so a model's tokens are as long or shorter.
"""
import json
import pathlib
import re
import subprocess
import sys

EDITS = 5
WORD = re.compile(r" ?[A-Za-z_]+|\d{1,3}| ?[^\sA-Za-z_\d]+\n*|\s*\n+|\s+(?!\S)|\s+")


def git(*arguments):
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def changed_files(commit):
    """Paths of a commit and how many lines it added and took away."""
    for line in git("show", "--numstat", "--diff-filter=M", "--format=", commit).splitlines():
        added, removed, path = line.split("\t")
        if added.isdigit() and "=>" not in path:
            yield path, int(added), int(removed)


def edits():
    found = []
    for commit in git("rev-list", "--no-merges", "--max-count=2000", "HEAD").split():
        for path, added, removed in changed_files(commit):
            if not path.endswith((".cc", ".cu", ".py")) or not removed:
                continue
            if not 8 <= added + removed <= 80:
                continue
            old, new = (git("show", f"{at}:{path}") for at in (commit + "^", commit))
            if not 150 <= old.count("\n") <= 600:
                continue
            found.append({"commit": commit, "path": path, "lines_changed": added + removed,
                          "old": WORD.findall(old), "new": WORD.findall(new)})
            break
        if len(found) == EDITS:
            break
    return found


def main():
    pathlib.Path(sys.argv[1]).write_text(json.dumps(edits()))


if __name__ == "__main__":
    main()
