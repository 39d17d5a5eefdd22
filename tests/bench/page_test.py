"""The page of results over commits on made-up results."""

import html.parser
import json
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from harness import page  # noqa: E402


def entry(commit, date, value, figure="tpot_ms", cpu="A processor"):
    return {
        "name": "W3",
        "size": "cpu",
        "date": date + "T12:00:00+00:00",
        "commit": commit,
        "commit_date": date + "T11:00:00+00:00",
        "modified": False,
        "machine": {"cpu": cpu, "cores": 2},
        "model": "models/demo",
        "points": [{"label": "batch <1>", "judged": [figure], "figures": {figure: value}}],
    }


def render(*entries):
    with tempfile.TemporaryDirectory() as folder:
        for e in entries:
            name = f"{e['date'][:10]}-{e['commit']}.json"
            path = pathlib.Path(folder, e["size"], e["name"], name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(e))
        return page.render(page.read(pathlib.Path(folder)))


class Balance(html.parser.HTMLParser):
    """Fails on a tag that is closed out of order."""

    VOID = {"meta", "br", "polyline"}

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


class PageTest(unittest.TestCase):
    def test_is_one_well_formed_file_without_script_or_network(self):
        text = render(entry("aaa", "2026-01-01", 10), entry("bbb", "2026-01-02", 11))
        balance = Balance()
        balance.feed(text)
        self.assertEqual(balance.open, [])
        self.assertNotRegex(text, r"<script|https?://|<link|<img|@import")
        self.assertIn('name="viewport"', text)
        self.assertIn("batch &lt;1&gt;", text)

    def test_says_the_last_value_and_its_change(self):
        text = render(entry("bbb", "2026-01-02", 11), entry("aaa", "2026-01-01", 10))
        self.assertIn('11 <span class="worse">+10.0 %</span>', text)
        text = render(
            entry("bbb", "2026-01-02", 11, "rate"), entry("aaa", "2026-01-01", 10, "rate")
        )
        self.assertIn('<span class="better">+10.0 %</span>', text)

    def test_draws_values_in_order_of_commits_from_zero_up(self):
        text = render(
            entry("ccc", "2026-01-03", 40),
            entry("aaa", "2026-01-01", 20),
            entry("b", "2026-01-02", 0),
        )
        points = re.search(r'polyline points="([^"]*)"', text).group(1).split()
        self.assertEqual(points, ["4.0,22.0", "130.0,40.0", "256.0,4.0"])

    def test_keeps_machines_apart(self):
        text = render(entry("aaa", "2026-01-01", 10), entry("bbb", "2026-01-02", 99, cpu="Another"))
        self.assertEqual(text.count("<h2>"), 2)
        self.assertNotIn("+890", text)

    def test_without_results_there_is_still_a_page(self):
        self.assertIn("0 results", page.render([]))


if __name__ == "__main__":
    unittest.main()
