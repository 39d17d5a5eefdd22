#!/usr/bin/python3
"""Jobs with the demo model over real gRPC: jobs_test.py QUIRE_SERVER.

The server is killed while it runs a job, again and again; the answers expected are those of direct
requests with the same seeds.
"""
# Covers server/jobs/job_runner.cc, server/jobs/job_upload.cc, server/jobs/job_results.cc
# Covers server/jobs/job_call.cc, server/jobs/jobs_service.cc, server/jobs/job_codec.cc

import asyncio
import json
import pathlib
import random
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import quire
import quire.aio
from running_server import RunningServer

LINES = 200
BAD = {17: "request", 101: "line", 150: "request"}  # the number and the field that is at fault
OPTIONS = quire.Options(temperature=0.9, top_p=0.95)


def prompt_of(number):
    return f"Line {number} of the file tells"


def options_of(number):
    return {"max_tokens": 4 + number % 30, "seed": number}


def make_file():
    lines = []
    for number in range(1, LINES + 1):
        name = f"line-{number}"
        line = quire.job_line(name, prompt_of(number), OPTIONS, **options_of(number))
        if number == 17:
            line = json.dumps({"custom_id": name}).encode() + b"\n"
        elif number == 101:
            line = line[: len(line) // 2] + b"\n"
        elif number == 150:
            line = line.replace(b'"temperature"', b'"temprature"')
        lines.append(line)
    return b"".join(lines)


def all_results(client, job_id, **options):
    return [r for batch in client.jobs.results(job_id, **options) for r in batch.results]


class Server(RunningServer):
    def __init__(self, *flags):
        super().__init__("--device", "cpu", *flags)
        self.client = quire.QuireClient(self.target, timeout=120)

    def kill(self):
        self.client.close()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.client.close()
        self.stop()


class JobsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Server() as server:
            items = [
                (prompt_of(n), quire.Options(temperature=0.9, top_p=0.95, **options_of(n)))
                for n in range(1, LINES + 1)
            ]
            cls.expected = {
                item.index + 1: item.completion.text
                for item in server.client.generate_batch(items)
            }

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.flags = ("--session-dir", folder.name)

    def check(self, results):
        """Each line once, with the answer of a direct request, or its fault."""
        self.assertEqual(sorted(r["line"] for r in results), list(range(1, LINES + 1)))
        for result in results:
            number = result["line"]
            if number in BAD:
                self.assertEqual(result["status"]["code"], 3, result)
                self.assertEqual(result["status"]["field"], BAD[number], result)
                continue
            self.assertEqual(result["custom_id"], f"line-{number}")
            self.assertEqual(result["result"]["text"], self.expected[number])

    def test_a_job_beside_requests(self):
        with Server(*self.flags) as server:
            waits, ended = [], threading.Event()

            def ask():
                while not ended.is_set():
                    answer = server.client.generate_text("Once", max_tokens=5, seed=1)
                    waits.append(answer.finished.timings.first_token_seconds)

            asking = threading.Thread(target=ask)
            asking.start()
            job = server.client.jobs.create(make_file(), "beside")
            self.assertEqual((job.job_id, job.lines), ("beside", LINES))
            results = all_results(server.client, "beside")
            ended.set()
            asking.join()
            self.check(results)
            self.assertGreater(len(waits), 3)
            done = server.client.jobs.get("beside")
            self.assertEqual(done.state, quire.JobState.COMPLETED)
            self.assertEqual((done.done_lines, done.failed_lines), (LINES, len(BAD)))
            self.assertIsNotNone(done.ended_at)
            page = server.get("/metrics")[1]
            self.assertRegex(page, rf'quire_job_items_total{{.*status="failed"}} {len(BAD)}\n')
            self.assertRegex(page, r'quire_jobs{.*state="completed"} 1\n')

    def kill_again_and_again(self, name):
        """Kills the server of a job until it has ended; returns how many times."""
        seeded, kills = random.Random(4), 1
        flags = (*self.flags, "--max-num-seqs", "1")  # few lines end before a kill
        with Server(*flags) as server:
            server.client.jobs.create(make_file(), name)
            server.kill()
        while kills < 20:
            with Server(*flags) as server:
                job = server.client.jobs.get(name)
                if job.state == quire.JobState.COMPLETED:
                    break
                before = job.done_lines
                bound = before + (seeded.randrange(1, 30) if kills > 1 else 0)
                while job.done_lines < bound and job.state == quire.JobState.RUNNING:
                    job = server.client.jobs.get(name)
                if job.state == quire.JobState.RUNNING:
                    kills += 1
                    server.kill()
        with Server(*self.flags) as server:
            self.check(all_results(server.client, name))
        return kills

    def test_a_server_that_is_killed_again_and_again(self):
        # On a busy machine a job may end before this process comes to kill its server.
        for attempt in range(10):
            if self.kill_again_and_again(f"tough-{attempt}") > 1:
                return
        self.fail("every job ended before its server was killed twice")

    def test_results_are_resumed_at_every_message(self):
        with Server(*self.flags) as server:
            server.client.jobs.create(make_file(), "resumed")
            whole = all_results(server.client, "resumed")
            got, offset = [], 0
            while len(got) < LINES:
                stream = server.client.jobs.results("resumed", offset=offset)
                batch = next(stream)
                stream.close()
                got += batch.results
                offset = batch.next_offset
            self.assertEqual(got, whole)
            self.assertEqual(list(server.client.jobs.results("resumed", offset=offset)), [])
            for wrong in (1, offset - 1, offset + 1, 2**63):
                with self.assertRaisesRegex(quire.QuireError, "no result begins"):
                    list(server.client.jobs.results("resumed", offset=wrong))

    def test_cancel_delete_and_names(self):
        with Server(*self.flags) as server:
            jobs = server.client.jobs
            slow = b"".join(
                quire.job_line(str(i), "Once", OPTIONS, max_tokens=150, ignore_eos=True)
                for i in range(2000)
            )
            jobs.create([slow[:1000], slow[1000:]], "slow")
            with self.assertRaises(quire.AlreadyExists):
                jobs.create(b"", "slow")
            while jobs.get("slow").done_lines == 0:
                pass
            job = jobs.cancel("slow")
            self.assertEqual(job.state, quire.JobState.CANCELLED)
            self.assertEqual(jobs.cancel("slow").state, quire.JobState.CANCELLED)
            results = all_results(server.client, "slow")
            self.assertEqual(len(results), job.done_lines)
            self.assertEqual([j.job_id for j in jobs.list()], ["slow"])
            self.assertEqual(server.client.generate_text("One", max_tokens=2).finished.reason,
                             quire.FinishReason.MAX_TOKENS)
            server.kill()
        with Server(*self.flags) as server:
            jobs = server.client.jobs
            self.assertEqual(jobs.get("slow").state, quire.JobState.CANCELLED)
            self.assertEqual(all_results(server.client, "slow"), results)
            jobs.delete("slow")
            with self.assertRaises(quire.NotFound):
                jobs.get("slow")
            self.assertEqual(list((self.folder / "jobs").iterdir()), [])
            empty = jobs.create(b"\n \n")
            self.assertEqual((empty.lines, empty.state), (0, quire.JobState.COMPLETED))

    def test_a_job_expires(self):
        with Server(*self.flags) as server:
            server.client.jobs.create(b"", "short", expires_after_seconds=1)
            while server.client.jobs.list():
                time.sleep(0.05)
            self.assertEqual(list((self.folder / "jobs").iterdir()), [])

    def test_a_full_disk_ends_the_job_and_nothing_else(self):
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(self.folder)],
            capture_output=True, check=False,
        )  # fmt: skip
        if mounted.returncode != 0:
            self.skipTest("needs the right to mount")
        self.addCleanup(subprocess.run, ["umount", str(self.folder)], check=True)
        with Server(*self.flags) as server:
            server.client.jobs.create(make_file(), "large")
            results = all_results(server.client, "large")
            job = server.client.jobs.get("large")
            self.assertEqual(job.state, quire.JobState.FAILED)
            self.assertIn("cannot be written", job.failure)
            self.assertEqual(len(results), job.done_lines)
            self.assertGreater(len(results), 0)
            server.client.generate_text("One", max_tokens=2)
            with self.assertRaisesRegex(quire.QuireError, "space"):
                server.client.jobs.create(make_file() * 3, "larger")
            server.client.jobs.delete("large")
            self.assertEqual(server.client.jobs.list(), [])

    def test_bad_uploads(self):
        with Server(*self.flags) as server:
            jobs = server.client.jobs
            for options, words in (
                ({"job_id": "a/b"}, "job_id"), ({"priority": 101}, "priority"),
                ({"expires_after_seconds": 0.5}, "expires_after_seconds"),
                ({"expires_after_seconds": float("nan")}, "expires_after_seconds"),
            ):  # fmt: skip
                with self.subTest(options), self.assertRaisesRegex(quire.InvalidRequest, words):
                    jobs.create(b"", **options)
            with self.assertRaisesRegex(quire.QuireError, "100000 lines"):
                jobs.create(b"\n" * 100_001)
            self.assertEqual(jobs.list(), [])
        with Server() as server:
            for call in (server.client.jobs.list, lambda: server.client.jobs.create(b"")):
                with self.assertRaisesRegex(quire.QuireError, "--session-dir"):
                    call()
            with self.assertRaisesRegex(quire.QuireError, "--session-dir"):
                list(server.client.jobs.results("a"))

    def test_asyncio(self):
        async def run(target):
            async with quire.aio.QuireClient(target, timeout=120) as client:
                line = quire.job_line("a", "Once", OPTIONS, max_tokens=3, seed=1)
                job = await client.jobs.create(line)
                return [r async for batch in client.jobs.results(job.job_id)
                        for r in batch.results]  # fmt: skip

        with Server(*self.flags) as server:
            (result,) = asyncio.run(run(server.target))
            alone = server.client.generate_text("Once", OPTIONS, max_tokens=3, seed=1)
            self.assertEqual(result["result"]["text"], alone.text)
            self.assertEqual(result["result"]["token_ids"], list(alone.token_ids))


if __name__ == "__main__":
    unittest.main()
