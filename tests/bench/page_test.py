"""The page of results over commits, on made-up results and on those of this tree."""

import html.parser
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from harness import page, series  # noqa: E402


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
            path = pathlib.Path(folder, "history", e["size"], e["name"], name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(e))
        return page.render(series.collect(pathlib.Path(folder)))


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

    def test_jump_list_and_attention_lead_to_what_is_there(self):
        text = page.render([made([5, 5.01, 4.99, 8]), made([3], name="copy", must=2)])
        ids = re.findall(r' id="([^"]+)"', text)
        self.assertEqual(len(ids), len(set(ids)))
        targets = re.findall(r'href="#([^"]+)"', text)
        self.assertGreaterEqual(len(targets), 4)
        self.assertLessEqual(set(targets), set(ids))
        self.assertIn("Worse than before:", text)
        self.assertIn("Beyond a limit:", text)

    def test_without_scripts_a_filter_hides_by_class(self):
        text = page.render([made([5, 5.01, 4.99, 8]), made([3], name="copy")])
        self.assertIn("#worse:checked ~ main .figure:not(.is-worse)", text)
        self.assertEqual(len(re.findall(r'<input type="radio" name="show"', text)), 4)
        self.assertEqual(len(re.findall(r'class="figure is-changed is-worse"', text)), 1)

    def test_floor_and_limit_are_lines_and_words(self):
        text = page.render([made([8, 10], floor=5, must=12)])
        # From the bottom at 40 to the top at 4: the limit is the highest value in the picture.
        self.assertIn('<line class="floor" x1="4" x2="256" y1="25.0" y2="25.0"/>', text)
        self.assertIn('<line class="must" x1="4" x2="256" y1="4.0" y2="4.0"/>', text)
        self.assertIn("floor 5, 50% of it reached", text)
        self.assertNotIn("beyond its limit", text)
        self.assertIn("beyond its limit", page.render([made([8, 13], must=12)]))
        self.assertIn("beyond its limit", page.render([made([8, 11], must=12, smaller=False)]))

    def test_a_far_limit_does_not_press_the_line_flat(self):
        self.assertNotIn('<line class="must"', page.render([made([8, 10], must=1000)]))


def made(values, name="W3", smaller=True, **levels):
    """A series of these values."""
    return series.Series(
        place="A machine", name=name, label="a point", figure="tpot ms", unit="", smaller=smaller,
        values=[series.Value(v, f"c{i}", f"2026-01-{i + 1:02}") for i, v in enumerate(values)],
        **levels)


class VerdictTest(unittest.TestCase):
    """When a value counts as worse or better."""

    def test_two_results_before_it_are_the_least(self):
        self.assertEqual(made([10]).verdicts(), ["undecided"])
        self.assertEqual(made([10, 100]).verdicts(), ["undecided"] * 2)

    def test_a_change_beyond_the_spread_is_marked_where_it_happens(self):
        steady = [100, 101, 99, 100, 101]
        self.assertEqual(made([*steady, 120]).verdicts()[-1], "worse")
        self.assertEqual(made([*steady, 80]).verdicts()[-1], "better")
        self.assertEqual(made([*steady, 80], smaller=False).verdicts()[-1], "worse")
        # The values behind it are compared with the new level.
        verdicts = made([*steady, 120, 121, 119, 120]).verdicts()
        self.assertEqual(verdicts.count("worse"), 1)
        self.assertEqual(verdicts[5], "worse")

    def test_a_change_within_the_spread_is_not(self):
        self.assertEqual(made([100, 130, 90, 120, 85, 130]).verdicts()[-1], "undecided")
        self.assertEqual(made([100, 101, 99, 100, 101, 102]).verdicts()[-1], "unharmed")

    def test_the_interval_is_students_for_one_new_result(self):
        # t(0.975, 3) = 3.182446; logs of the ratios have mean ln 1.2 and deviation 0.01. The
        # interval of one new value is mean ± t * 0.01 * sqrt(1 + 1/4) = ln 1.2 ± 0.0355808.
        spread = 0.01 * (3 / 4) ** 0.5
        before = [math.exp(x) for x in (spread, spread, -spread, -spread)]
        for value, verdict in ((1.05 * 1.0364, "worse"), (1.05 * 1.0360, "undecided"),
                               (1.05 / 1.0360, "undecided"), (1.05 / 1.0364, "unharmed")):
            self.assertEqual(made([*before, value]).verdict(before, value), verdict, value)

    def test_zero_and_less_are_no_ratio(self):
        self.assertEqual(made([0, 0, 0, 5]).verdicts()[-1], "undecided")


class GpuHistoryTest(unittest.TestCase):
    """bench/results/gpu.json over its commits."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def git(self, *words):
        identity = ["-c", "user.name=T", "-c", "user.email=t@t"]
        return subprocess.run(["git", *identity, *words], cwd=self.folder, check=True,
                              capture_output=True, text=True).stdout.strip()

    def write(self, *numbers, memory=None):
        lines = [{"start": "dummy", "memory": memory}] if memory else []
        (self.folder / "gpu.json").write_text(json.dumps({
            "numbers": [{"name": n, "value": v, "unit": u, **more} for n, v, u, more in numbers],
            "runs": [{"gpu": {"name": "A GPU"}, "benches": {"serve_bench": {"result": lines}}}]}))

    def commit(self, *numbers, **memory):
        self.write(*numbers, **memory)
        self.git("add", ".")
        self.git("commit", "-qm", "measured")
        return self.git("rev-parse", "--short", "HEAD")

    def collected(self):
        return {s.name: s for s in series.collect(self.folder)}

    def test_each_new_value_is_a_result_of_its_commit(self):
        self.git("init", "-q")
        decode = ("decode", 4.0, "ms", {"must": 5, "aim": 3, "floor": 2})
        rate = ("output tokens", 90, "/s", {})
        gone = ("measured once", 1, "ms", {})
        first = self.commit(decode, gone)
        second = self.commit(decode, rate)  # decode was not measured again
        third = self.commit(("decode", 6.0, "ms", {"must": 5, "aim": 3, "floor": 2}), rate,
                            memory={"planned": 1 << 30, "measured": 1.5 * (1 << 30)})
        found = self.collected()
        values = [(v.commit, v.value) for v in found["decode"].values]
        self.assertEqual(values, [(first, 4.0), (third, 6.0)])
        self.assertTrue(found["decode"].missed() and found["decode"].smaller)
        self.assertAlmostEqual(found["decode"].share_of_floor(), 1 / 3)
        self.assertEqual([v.commit for v in found["output tokens"].values], [second])
        self.assertFalse(found["output tokens"].smaller)
        self.assertNotIn("measured once", found, "the newest report has no such number")
        memory = found["memory, measured over planned: dummy"]
        self.assertEqual((memory.last, memory.area), (150, "Memory"))
        self.assertIn("planned 1.00 GiB", memory.note)
        self.assertEqual({s.place for s in found.values()}, {"A GPU"})

    def test_a_report_that_is_not_committed_is_marked(self):
        self.git("init", "-q")
        self.commit(("decode", 4.0, "ms", {}))
        self.write(("decode", 5.0, "ms", {}))
        value = self.collected()["decode"].values[-1]
        self.assertEqual((value.value, value.commit, value.modified), (5.0, "", True))

    def test_without_git_there_is_the_file(self):
        self.write(("2 GPUs: decode", 4.0, "ms", {}))
        [found] = self.collected().values()
        self.assertEqual((len(found.values), found.place), (1, "2 × A GPU"))


class ResultsTest(unittest.TestCase):
    """Results as bench/run writes them."""

    def collected(self, *points):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "cpu", "demo.json")
            path.parent.mkdir()
            whole = entry("aaa", "2026-01-01", 0) | {"name": "demo", "runs": [{"points": points}]}
            path.write_text(json.dumps(whole))
            return {s.figure: s for s in series.collect(pathlib.Path(folder))}

    def test_start_memory_and_floors_come_with_the_judged_figures(self):
        found = self.collected({
            "label": "a point", "judged": ["tpot_ms"],
            "figures": {"tpot_ms": 4, "exec_to_ready_seconds": 0.5, "not_judged_ms": 7},
            "floors": [{"figure": "tpot_ms", "floor": 3}],
            "resident": [[1.0, 900, 100], [2.0, 900, 300], [3.0, 900, 200]]})
        self.assertEqual({figure: s.last for figure, s in found.items()},
                         {"tpot ms": 4, "exec to ready seconds": 0.5,
                          "server resident bytes max": 300})
        self.assertEqual(found["tpot ms"].floor, 3)
        self.assertEqual(found["tpot ms"].share_of_floor(), 0.75)
        self.assertEqual(found["exec to ready seconds"].area, "Start")
        self.assertEqual(found["server resident bytes max"].area, "Memory")

    def test_a_file_that_is_no_result_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "history", "cpu", "W3", "x.json")
            path.parent.mkdir(parents=True)
            path.write_text("{}")
            with self.assertRaisesRegex(ValueError, "x.json: no 'name'"):
                series.collect(pathlib.Path(folder))


class CommandTest(unittest.TestCase):
    """bench/page as a command."""

    def run_page(self, *words):
        return subprocess.run([ROOT / "bench" / "page", *words], capture_output=True, text=True,
                              check=False)

    def test_writes_the_page_of_this_tree(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "page.html")
            done = self.run_page(out)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("results of", done.stdout)
            self.assertTrue(out.read_text().startswith("<!doctype html>"))

    def test_says_in_a_sentence_what_is_wrong(self):
        self.assertEqual(self.run_page("--help").returncode, 0)
        self.assertEqual(self.run_page("--all").returncode, 2)
        done = self.run_page("/nonexistent/page.html")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^bench/page: .*/nonexistent/page.html")
        self.assertEqual(done.stderr.count("\n"), 1)


class ImagesTest(unittest.TestCase):
    def test_sizes_of_images_are_a_series_with_its_limit(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "history", "images.json")
            path.parent.mkdir()
            path.write_text(json.dumps([
                {"image": "cpu", "bytes": 90_000_000, "commit": "a"},
                {"image": "cuda", "bytes": 900_000_000, "cuda_bytes": 300_000_000, "commit": "a"},
                {"image": "cpu", "bytes": 130_000_000, "commit": "b"},
            ]))
            found = {s.name: s for s in series.collect(pathlib.Path(folder))}
        self.assertEqual([v.value for v in found["image cpu"].values], [90, 130])
        self.assertTrue(found["image cpu"].missed(), "120 MB is its limit")
        self.assertIsNone(found["image cuda"].must)
        beyond = found["image cuda beyond CUDA's libraries"]
        self.assertEqual((beyond.last, beyond.missed()), (600, True))
        self.assertEqual(found["image cpu"].area, "Images")


class CommittedResultsTest(unittest.TestCase):
    """The results of this tree."""

    def test_every_benchmark_and_number_of_the_gpu_is_on_the_page(self):
        results = ROOT / "bench" / "results"
        found = series.collect(results)
        names = {s.name for s in found}
        report = json.loads((results / "gpu.json").read_text())
        self.assertLessEqual({n["name"] for n in report["numbers"]}, names)
        self.assertLessEqual({p.stem for p in results.glob("cpu/*.json")}, names)
        self.assertNotIn("Others", {s.area for s in found})
        missed = {s.name for s in found if s.missed()}
        images = {s.name for s in found if s.area == "Images"}
        self.assertEqual(len(missed - images), len(report["missed"]))
        for name in missed - images:
            self.assertTrue(any(m.startswith(name) for m in report["missed"]), name)
        text = page.render(found)
        balance = Balance()
        balance.feed(text)
        self.assertEqual(balance.open, [])
        self.assertLess(len(text), 1 << 20)

    def test_better_is_the_way_that_the_limits_point(self):
        """Numbers whose two limits differ say which way is better; the rule for the others, by unit
        and name, agrees with all of these."""
        report = json.loads((ROOT / "bench" / "results" / "gpu.json").read_text())
        count = 0
        for number in report["numbers"]:
            if "must" in number and number["must"] != number["aim"] and number["unit"] != "x":
                bare = {k: number[k] for k in ("name", "unit", "value")}
                self.assertEqual(series.gpu_series(number, "").smaller,
                                 series.gpu_series(bare, "").smaller, number["name"])
                count += 1
        self.assertGreater(count, 10)


if __name__ == "__main__":
    unittest.main()
