#!/usr/bin/python3
"""The asyncio client against a real server: python_aio_test.py QUIRE_SERVER."""

import asyncio
import io
import json
import pathlib
import subprocess
import sys
import unittest

import quire
import quire.aio
from running_server import BINARY, RunningServer

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "examples"
GREEDY = quire.Options(temperature=0.0, max_tokens=24)
# Long enough that none ends by itself while a test looks at it.
ENDLESS = quire.Options(ignore_eos=True, max_tokens=3000)
PATIENCE_SECONDS = 10  # beyond it something hangs


def public_methods(kind):
    return {n for n in dir(kind) if not n.startswith("_") and callable(getattr(kind, n))}


class SurfaceTest(unittest.TestCase):
    def test_both_clients_have_the_same_calls(self):
        self.assertEqual(public_methods(quire.aio.QuireClient), public_methods(quire.QuireClient))
        self.assertEqual(public_methods(quire.aio.Sessions), public_methods(quire.Sessions))


@unittest.skipUnless(BINARY, "no server was named")
class AioTest(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = RunningServer()
        cls.addClassCleanup(cls.server.stop)

    async def asyncSetUp(self):
        self.client = quire.aio.QuireClient(self.server.target, timeout=PATIENCE_SECONDS)
        self.addAsyncCleanup(self.client.close)

    async def until(self, condition):
        async def look():
            while not await condition():
                await asyncio.sleep(0.01)

        await asyncio.wait_for(look(), PATIENCE_SECONDS)

    async def until_running(self, count):
        """Waits until the server runs `count` requests."""

        async def runs():
            return (await self.client.load()).running_requests == count

        await self.until(runs)

    def cancelled_requests(self):
        line = 'quire_requests_finished_total{model_name="demo",reason="CANCELLED"} '
        text = self.server.get("/metrics")[1]
        found = [part for part in text.splitlines() if part.startswith(line)]
        return int(found[0].split()[-1]) if found else 0

    async def test_answers_are_those_of_the_blocking_client(self):
        with quire.QuireClient(self.server.target, timeout=PATIENCE_SECONDS) as blocking:
            expected = blocking.generate_text("Once upon a time", GREEDY)
            tokens = blocking.tokenize("Once upon", offsets=True)
        stream = self.client.generate("Once upon a time", GREEDY)
        self.assertEqual("".join([d.text async for d in stream]), expected.text)
        self.assertEqual(stream.finished.reason, quire.FinishReason.MAX_TOKENS)
        self.assertEqual(stream.accepted.prompt_tokens, expected.accepted.prompt_tokens)
        whole = await self.client.generate_text("Once upon a time", GREEDY)
        self.assertEqual(whole.token_ids, expected.token_ids)
        self.assertEqual(await self.client.tokenize("Once upon", offsets=True), tokens)
        ids = [token.id for token in tokens][1:]  # without BOS
        self.assertEqual(await self.client.detokenize(ids), "Once upon")

    async def test_chats_run_side_by_side(self):
        async def answer(question):
            turns = [{"role": "user", "content": question}]
            return "".join([d.text async for d in self.client.chat(turns, GREEDY)])

        answers = await asyncio.gather(
            answer("Which animal says moo?"), answer("Which animal says woof?"))  # fmt: skip
        self.assertEqual(answers, ["The cow says moo.", "The dog says woof."])

    async def test_cancelling_a_task_aborts_its_request(self):
        async def read_stream():
            async for _ in self.client.generate("Once", ENDLESS):
                pass

        async def pause_between_tokens():
            async for _ in self.client.generate("Once", ENDLESS):
                await asyncio.sleep(PATIENCE_SECONDS)

        async def pause_with_a_named_stream():
            stream = self.client.generate("Once", ENDLESS)
            async for _ in stream:
                await asyncio.sleep(PATIENCE_SECONDS)

        async def wait_for_whole_answer():
            await self.client.generate_text("Once", ENDLESS)

        for way in (read_stream, pause_between_tokens, pause_with_a_named_stream,
                    wait_for_whole_answer):  # fmt: skip
            with self.subTest(way.__name__):
                before = self.cancelled_requests()
                task = asyncio.create_task(way())
                await self.until_running(1)
                task.cancel()
                kept = None
                try:
                    await task
                except asyncio.CancelledError as error:
                    kept = error  # keeps the variables of the task alive
                self.assertIsNotNone(kept)

                async def counted(before=before):
                    return self.cancelled_requests() == before + 1

                await self.until(counted)

    async def test_streams_end_by_cancel_abort_and_deadline(self):
        async with self.client.generate("Once", ENDLESS) as left:
            await left.__anext__()
        with self.assertRaises(quire.Cancelled):
            await left.__anext__()
        stream = self.client.generate("Once", ENDLESS, request_id="to-abort")
        await stream.__anext__()
        self.assertEqual(await self.client.abort("to-abort"), 1)
        with self.assertRaises(quire.Cancelled):
            async for _ in stream:
                pass
        with self.assertRaises(quire.DeadlineExceeded):
            async for _ in self.client.generate("Once", ENDLESS, timeout=0.2):
                pass
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(self.client.generate_text("Once", ENDLESS), 0.2)
        await self.until_running(0)

    async def test_closing_the_client_ends_streams(self):
        other = quire.aio.QuireClient(self.server.target)
        stream = other.generate("Once", ENDLESS)
        await stream.__anext__()
        await other.close()
        with self.assertRaises(quire.Cancelled):
            async for _ in stream:
                pass
        with self.assertRaises(quire.Cancelled):
            await other.load()
        await self.until_running(0)

    async def test_errors_are_those_of_the_blocking_client(self):
        with self.assertRaises(quire.InvalidRequest) as caught:
            await self.client.generate_text("hi", top_p=2.0)
        self.assertIn("top_p", caught.exception.violations[0].field)
        with self.assertRaises(quire.NotFound):
            async for _ in self.client.generate("hi", model="other"):
                pass
        with self.assertRaisesRegex(TypeError, "message 1 lacks 'content'"):
            self.client.chat([quire.Message("user", "a"), {"role": "user"}])

    async def test_sessions(self):
        talk = self.client.conversation("aio-fox")
        first = talk.say("Once upon a time", GREEDY)
        known = [t.id for t in await self.client.tokenize("Once upon a time")]
        known += [i async for d in first for i in d.token_ids]
        self.assertEqual(talk.position, len(known))
        sessions = self.client.sessions
        self.assertEqual((await sessions.get("aio-fox")).position, len(known))
        await sessions.fork("aio-fox", "aio-owl", position=3)
        pieces = [piece async for piece in sessions.export("aio-owl")]
        for data in (pieces, b"".join(pieces), sessions.export("aio-owl")):
            copy = await sessions.import_(data, "aio-copy", quire.SessionOptions(ttl_seconds=60))
            self.assertEqual((copy.position, copy.options.ttl_seconds), (3, 60))
            await sessions.close("aio-copy")
        self.assertEqual([s.session_id for s in await sessions.list()], ["aio-fox", "aio-owl"])
        watch = sessions.watch("aio-owl")
        await watch.__anext__()
        await sessions.close("aio-owl")
        self.assertEqual([s.state async for s in watch][-1], quire.SessionState.CLOSED)
        await sessions.close("aio-fox")

    async def test_facts_and_a_trace(self):
        info, memory = await asyncio.gather(self.client.info(), self.client.memory())
        self.assertEqual((info.state, info.model.architecture), ("READY", "LlamaForCausalLM"))
        self.assertEqual([tier.name for tier in memory.tiers][:1], ["device"])
        file = io.BytesIO()
        recording = asyncio.create_task(self.client.trace(file, seconds=1))
        await asyncio.gather(recording, self.client.generate_text("Once", GREEDY))
        self.assertIn("traceEvents", json.loads(file.getvalue()))
        self.assertFalse(await self.client.undrain())

    async def test_a_client_may_be_made_outside_of_the_loop(self):
        client = await asyncio.to_thread(quire.aio.QuireClient, self.server.target)
        async with client:
            self.assertEqual((await client.info()).state, "READY")

    def test_example(self):
        command = [sys.executable, EXAMPLES / "at_once.py", "--target", self.server.target]
        questions = ["What is 2 plus 2?", "Which animal says woof?"]
        done = subprocess.run([*command, *questions], capture_output=True, text=True, check=True,
                              timeout=PATIENCE_SECONDS)  # fmt: skip
        self.assertEqual(done.stdout.splitlines(), ["2 plus 2 is 4.", "The dog says woof."])


if __name__ == "__main__":
    unittest.main()
