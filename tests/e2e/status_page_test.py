#!/usr/bin/python3
"""The status page in a headless Chromium, over a quire-server on the CPU under load:
status_page_test.py QUIRE_SERVER. The figures on the page are compared with /status.json.
"""
# Covers server/admin/page/status.html, clients/python/quire/types.py

import json
import threading
import unittest

import browser
import quire
from conversation import await_true
from conversing_server import ConversingServer

SETTINGS = ("--num-blocks-override", "101", "--kv-offloading-size", "0.01", "--max-num-seqs", "4",
            "--served-model-name", "<b>bold</b>")
LATEST = "latest !== null && latest.kv.map !== null"


class Load:
    """Requests of two priorities, three at a time, until the `with` block ends."""

    def __init__(self, server):
        self._server, self._over = server, threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(3)]

    def _run(self, number):
        with quire.QuireClient(self._server.target, timeout=120) as client:
            while not self._over.is_set():
                client.generate_text("Once upon a time", max_tokens=60, ignore_eos=True,
                                     temperature=1.0, seed=number, priority=10 * (number % 2))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *unused):
        self._over.set()
        for thread in self._threads:
            thread.join()


@unittest.skipIf(browser.program() is None,
                 "no chromium-headless-shell or chromium on this machine")
class StatusPageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = ConversingServer(*SETTINGS)
        cls.page = browser.Browser()
        cls.url = f"http://127.0.0.1:{cls.server.admin_port()}/"

    @classmethod
    def tearDownClass(cls):
        cls.page.__exit__()
        cls.server.__exit__()

    def setUp(self):
        self.page.errors.clear()
        self.page.shape(1200, 900)

    def status(self):
        return json.loads(self.server.get("/status.json")[1])

    def open(self):
        self.page.open(self.url)
        self.page.wait(f"typeof latest !== 'undefined' && {LATEST}")

    def text(self, element):
        return self.page.evaluate(f"document.getElementById('{element}').textContent")

    def table(self, element):
        """The rows of a table: the first cell, and the number in the second."""
        rows = self.page.evaluate(
            f"[...document.querySelectorAll('#{element} tbody tr')].map(row =>"
            " [...row.cells].map(cell => cell.textContent))")
        return {row[0]: int(row[1].replace(",", "")) for row in rows}

    def converse(self, name):
        self.server.client.generate_text("Once upon a time", max_tokens=80, ignore_eos=True,
                                         session_id=name, create_session=True)

    def test_shows_the_figures_of_status_json(self):
        self.converse("kept")
        self.converse("gone")
        self.server.sessions.offload("gone")
        await_true(lambda: self.server.sessions.get("gone").state == quire.SessionState.HOST,
                   "KV on the host")
        await_true(lambda: self.status()["kv"]["map"]["pages"]["session"] > 0, "a view with it")
        self.open()
        status = self.status()
        blocks = status["kv"]["map"]["blocks"]
        self.assertGreater(blocks["session"], 0)
        self.assertEqual(sum(blocks.values()), 100)
        # Nothing runs, so the page and this answer show the same moment.
        self.page.wait(f"latest.kv.map.pages.session === {status['kv']['map']['pages']['session']}")
        device = self.table("device-owners")
        self.assertEqual(device["idle session"], blocks["session"])
        self.assertEqual(device["cached prompt"], blocks["cached"])
        self.assertEqual(device["free"], blocks["free"])
        self.assertEqual(device["running request"], 0)
        host = self.table("host-owners")
        self.assertEqual(host["idle session, only copy"], status["kv"]["map"]["pages"]["session"])
        sessions = self.table("sessions")
        self.assertEqual(sessions["on the host"], status["sessions"]["by_state"]["host"])
        self.assertEqual(sessions["idle, on the device"],
                         status["sessions"]["by_state"]["resident_idle"])
        self.assertEqual(self.text("state"), "ready")
        # The model's name is text, and no element.
        self.assertIn("<b>bold</b>", self.text("identity"))
        self.assertEqual(self.page.evaluate("document.querySelectorAll('b').length"),
                         self.page.evaluate("document.querySelectorAll('.key b').length"))
        self.assertIn(status["address"], self.text("commands"))
        hits = self.table("hits")
        self.assertEqual(sum(hits.values()), status["totals"]["queried_tokens"])
        plan = self.page.evaluate("document.querySelectorAll('#plan tbody tr').length")
        self.assertEqual(plan, len(status["memory_plan"]["parts"]))
        # The map has a cell of its owner's colour for each block.
        self.assertEqual(self.page.evaluate("maps['device-map'].cells.length"), 100)
        painted = self.page.evaluate(
            "(() => { const canvas = byId('device-map'), pixels = canvas.getContext('2d');"
            " const at = maps['device-map'].cells.indexOf('s'), map = maps['device-map'];"
            " const data = pixels.getImageData((at % map.across) * map.pitch + 3,"
            " Math.floor(at / map.across) * map.pitch + 3, 1, 1).data;"
            " return '#' + [...data].slice(0, 3).map(v => v.toString(16).padStart(2, '0')).join('')"
            "})()")
        self.assertEqual(painted, self.page.evaluate("color('session')"))
        self.assertEqual(self.page.errors, [])

    def test_follows_the_server_without_a_reload(self):
        self.open()
        self.page.evaluate("window.sameDocument = true")
        with Load(self.server):
            self.page.wait("latest.requests.running > 0 && latest.requests.classes.length === 2"
                           " && latest.now.generated_tokens_per_second > 0")
            self.page.wait("/^[1-9]/.test(byId('tile-requests').textContent)")
            self.page.wait("/^[1-9]/.test(byId('tile-generated').textContent)")
            self.page.wait("parseFloat(byId('tile-first-token').textContent) > 0")
            rows = self.page.evaluate(
                "[...document.querySelectorAll('#classes tbody tr')]"
                ".map(row => row.cells[0].textContent)")
            self.assertEqual(rows, ["10", "0"])
            self.page.wait("latest.kv.map.blocks.running > 0")
            before = self.page.evaluate("latest.now.number")
            self.page.wait(f"latest.now.number >= {before} + 2")
        # Each second stands once, in order, and a line is drawn through them.
        numbers = self.page.evaluate("history.number")
        self.assertEqual(numbers, list(range(numbers[0], numbers[-1] + 1)))
        self.assertGreater(len(self.page.evaluate(
            "document.querySelector('#chart-generated path').getAttribute('d')")), 10)
        self.assertTrue(self.page.evaluate("window.sameDocument"))
        self.assertEqual(self.page.errors, [])

    def test_a_cursor_reads_a_moment(self):
        self.open()
        self.page.wait("history.number.length > 1")
        self.page.evaluate("document.querySelector('#chart-requests .plot').focus()")
        for key in ("ArrowLeft", "ArrowRight"):
            self.page.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        label = "document.querySelector('#chart-requests .plot').getAttribute('aria-label')"
        self.assertRegex(self.page.evaluate(label), r"^Requests, at \d\d:\d\d:\d\d; running ")
        self.page.call("Input.dispatchKeyEvent", type="keyDown", key="Escape")
        self.assertIn("Requests, now; running", self.page.evaluate(label))

    def test_fits_a_phone_and_the_dark(self):
        papers = set()
        for dark in (False, True):
            self.page.shape(360, 740, dark)
            self.open()
            self.assertEqual(self.page.evaluate("document.documentElement.scrollWidth"), 360)
            papers.add(self.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        self.assertEqual(len(papers), 2)
        self.assertEqual(self.page.errors, [])

    def test_says_that_the_server_is_away_and_resumes(self):
        self.open()
        # The page's own requests fail as if the network were gone.
        offline = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self.page.call("Network.emulateNetworkConditions", offline=True, **offline)
        self.page.wait("byId('state').textContent === 'no answer' && !byId('notice').hidden")
        self.assertIn("has not answered since", self.text("notice"))
        self.page.call("Network.emulateNetworkConditions", offline=False, **offline)
        self.page.wait("byId('state').textContent === 'ready' && byId('notice').hidden")

    def test_memory_over_python(self):
        self.converse("python")
        memory = self.server.client.memory()
        self.assertEqual([tier.name for tier in memory.tiers], ["device", "host"])
        self.assertEqual(memory.tiers[0].total_blocks, 100)
        self.assertEqual(sum(memory.tiers[0].blocks_by_owner.values()), 100)
        self.assertGreater(memory.plan["kv_cache"], memory.plan["row_tables"])
        await_true(lambda: self.server.client.memory().seconds > 1, "two seconds of history")
        series = self.server.client.memory().series["used_blocks"]
        self.assertLessEqual(series.min, series.mean)
        self.assertLessEqual(series.mean, series.max)


if __name__ == "__main__":
    unittest.main()
