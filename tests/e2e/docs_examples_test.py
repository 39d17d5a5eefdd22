#!/usr/bin/python3
"""The examples of docs/jobs.md and docs/detach.md, run as they stand: docs_examples_test.py BIN.

The environment of the README's reader: `quire` on the path, and a server at the default address,
which QUIRE_SERVER replaces by a free one.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
sys.argv.insert(1, str(BIN / "quire-server"))  # what running_server takes
import quire  # noqa: E402  pylint: disable=wrong-import-position
from running_server import RunningServer  # noqa: E402  pylint: disable=wrong-import-position

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks(page, language):
    """The page's blocks of a language, in order."""
    text = (ROOT / "docs" / page).read_text()
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    return [block for name, block in found if name == language]


class DocsExamplesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.server = RunningServer("--device", "cpu", "--session-dir", cls.folder / "sessions")
        cls.addClassCleanup(cls.server.stop)

    def run_here(self, *command):
        path = f"{BIN}:{os.environ['PATH']}"
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, "PATH": path, "QUIRE_SERVER": self.server.target},
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def shell(self, text):
        return self.run_here("bash", "-euo", "pipefail", "-c", text)

    def python(self, text):
        return self.run_here(sys.executable, "-c", text)

    def test_the_commands_of_jobs(self):
        commands = blocks("jobs.md", "")[0]
        self.assertIn("quire job create requests.jsonl night", commands)
        lines = [quire.job_line(f"q{i}", "Once", max_tokens=3, seed=i) for i in range(4)]
        (self.folder / "requests.jsonl").write_bytes(b"".join(lines))
        self.shell(commands)
        results = (self.folder / "results.jsonl").read_text().splitlines()
        self.assertEqual({json.loads(r)["custom_id"] for r in results}, {"q0", "q1", "q2", "q3"})

    def test_the_program_of_jobs(self):
        (program,) = blocks("jobs.md", "python")
        self.assertEqual(len(re.findall(r"^q\d+ ", self.python(program), re.M)), 100)

    def test_the_lines_and_results_in_openais_format(self):
        lines, written = blocks("jobs.md", "")[1:]
        (self.folder / "openai.jsonl").write_text(lines)
        out = self.shell("quire job create openai.jsonl openai --wait; quire batch openai.jsonl")
        results = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(len(results), 4)
        for result in results:
            self.assertEqual(result["response"]["status_code"], 200, result)
        # The members of the page are those of the program, in their order.
        page = [json.loads(line.replace("[...]", "[]").replace("{...}", "{}"))
                for line in written.splitlines()]  # fmt: skip
        self.assertEqual(list(results[0]), list(page[0]))
        self.assertEqual(list(results[0]["response"]), list(page[0]["response"]))
        self.assertEqual(
            list(results[0]["response"]["body"]), list(page[0]["response"]["body"])
        )
        bad = json.loads(lines.splitlines()[1])
        bad["body"]["store"] = True
        (self.folder / "bad.jsonl").write_text("\n" + json.dumps(bad) + "\n")
        out = self.shell("quire job create bad.jsonl bad --wait")
        self.assertEqual(json.loads(out), page[1])

    def test_the_commands_of_detaching(self):
        (commands,) = blocks("detach.md", "")
        marked = commands.replace("\nquire attach", "\necho ====\nquire attach")
        whole, rest = self.shell(marked).split("====\n")
        self.assertGreater(len(rest.strip()), 10)
        self.assertTrue(whole.strip().endswith(rest.strip()), (whole, rest))

    def test_the_program_of_detaching(self):
        (program,) = blocks("detach.md", "python")
        out = self.python(program)
        with quire.QuireClient(self.server.target) as client:
            whole = "".join(d.text or "" for d in client.attach("tale"))
        self.assertEqual(out.rstrip("\n"), whole.rstrip("\n"))


if __name__ == "__main__":
    unittest.main()
