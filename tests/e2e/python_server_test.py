#!/usr/bin/python3
"""The Python client and its examples against a real server: python_server_test.py QUIRE_SERVER."""

import concurrent.futures
import json
import pathlib
import subprocess
import sys
import unittest

import quire
from running_server import RunningServer

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "examples"
GREEDY = quire.Options(temperature=0.0, max_tokens=24)
ENDLESS = quire.Options(ignore_eos=True, max_tokens=3000)


class PythonServerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = RunningServer()
        cls.addClassCleanup(cls.server.stop)
        cls.client = quire.QuireClient(cls.server.target, timeout=120)
        cls.addClassCleanup(cls.client.close)

    def test_streams_and_whole_answers_are_equal(self):
        stream = self.client.generate("Once upon a time", GREEDY)
        deltas = list(stream)
        whole = self.client.generate_text("Once upon a time", GREEDY)
        self.assertEqual("".join(d.text for d in deltas), whole.text)
        ids = [i for d in deltas for i in d.token_ids]
        self.assertEqual(ids, list(whole.token_ids))
        self.assertEqual(deltas[-1].cumulative_tokens, len(ids))
        self.assertEqual(stream.finished.reason, quire.FinishReason.MAX_TOKENS)
        self.assertEqual(stream.finished.usage.completion_tokens, 24)
        self.assertEqual(stream.accepted.options.max_tokens, 24)
        self.assertEqual(stream.accepted.prompt_tokens, stream.finished.usage.prompt_tokens)
        self.assertGreater(stream.finished.timings.total_seconds, 0)

    def test_text_ids_and_conversations(self):
        ids = [t.id for t in self.client.tokenize("Once upon a time")]
        from_text = self.client.generate_text("Once upon a time", GREEDY)
        from_ids = self.client.generate_text(ids, GREEDY)
        self.assertEqual(from_text.token_ids, from_ids.token_ids)
        answer = self.client.generate_text(
            [quire.Message("user", "Which animal says moo?")], GREEDY
        )
        self.assertEqual(answer.text, "The cow says moo.")
        self.assertEqual(answer.finished.reason, quire.FinishReason.EOS)
        text = "".join(d.text for d in self.client.chat("Which animal says moo?", GREEDY))
        self.assertEqual(text, answer.text)

    def test_tokens_round_trip(self):
        text = "Ünïcödé, 漢字 and 1234 🙂"
        tokens = self.client.tokenize(text, add_special_tokens=False, offsets=True)
        self.assertEqual(self.client.detokenize([t.id for t in tokens]), text)
        self.assertEqual(tokens[0].begin, 0)
        self.assertEqual(tokens[-1].end, len(text.encode()))
        self.assertEqual(len(self.client.tokenize(text)), len(tokens) + 1)  # BOS

    def test_seeds_and_logprobs(self):
        ask = [quire.Message("user", "Tell me a story.")]
        options = quire.Options(temperature=1.0, max_tokens=20, logprobs=True)
        first, second, other = (
            self.client.generate_text(ask, options, seed=seed) for seed in (11, 11, 12)
        )
        self.assertEqual(first.token_ids, second.token_ids)
        self.assertNotEqual(first.token_ids, other.token_ids)
        self.assertEqual(len(first.logprobs), len(first.token_ids))
        self.assertTrue(all(p <= 0 for p in first.logprobs))

    def test_ids_that_a_request_allows_or_forbids(self):
        ask, greedy = "Once upon a time", GREEDY
        plain = self.client.generate_text(ask, greedy).token_ids
        other = self.client.generate_text(ask, greedy, banned_token_ids=plain[:1]).token_ids
        self.assertNotIn(plain[0], other)
        # A bad word of two ids leaves the first of them alone.
        self.assertNotEqual(plain[0], plain[1])
        parted = self.client.generate_text(ask, greedy, bad_word_ids=[plain[:2]]).token_ids
        self.assertEqual(parted[0], plain[0])
        self.assertNotIn(tuple(plain[:2]), list(zip(parted, parted[1:])))
        allowed = self.client.generate_text(
            ask, temperature=2.0, seed=5, max_tokens=50, allowed_token_ids=plain[:4]
        )
        self.assertEqual(set(allowed.token_ids), set(plain[:4]))
        with self.assertRaises(quire.QuireError) as refused:
            self.client.generate_text(ask, allowed_token_ids=[5], banned_token_ids=[5])
        self.assertIn("sampling.allowed_token_ids", str(refused.exception))

    def test_a_loop_ends_where_the_request_says(self):
        one = {"allowed_token_ids": [40], "max_tokens": 50}
        done = self.client.generate_text("Once", loop_max_tokens=4, loop_min_repeats=6, **one)
        self.assertEqual(done.finished.reason, quire.FinishReason.LOOP)
        self.assertEqual(list(done.token_ids), [40] * 6)
        self.assertEqual(done.accepted.options.loop_min_repeats, 6)
        done = self.client.generate_text("Once", **one)
        self.assertEqual(done.finished.reason, quire.FinishReason.MAX_TOKENS)
        # DRY takes the only token's logit, not the token.
        done = self.client.generate_text("Once", dry_multiplier=100.0, dry_base=4.0, **one)
        self.assertEqual(list(done.token_ids), [40] * 50)

    def test_stop_strings(self):
        whole = self.client.generate_text("Once upon a time", GREEDY).text
        stop = whole[30:38]  # from inside a word to inside another
        done = self.client.generate_text("Once upon a time", GREEDY, stop=stop)
        self.assertEqual(done.finished.reason, quire.FinishReason.STOP_TEXT)
        self.assertEqual(done.finished.stop_text, stop)
        self.assertEqual(done.text, whole[: whole.index(stop)])

    def test_concurrent_requests(self):
        alone = self.client.generate_text("One day", GREEDY).token_ids
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            runs = list(pool.map(lambda _: self.client.generate_text("One day", GREEDY), range(16)))
        self.assertEqual({r.token_ids for r in runs}, {alone})

    def test_errors_name_the_field(self):
        for changes, field in (({"top_p": 2.0}, "top_p"), ({"temperature": -1.0}, "temperature")):
            with self.assertRaises(quire.InvalidRequest) as caught:
                self.client.generate_text("hi", **changes)
            self.assertIn(field, " ".join(v.field for v in caught.exception.violations))
            self.assertIn(field, caught.exception.message)
        with self.assertRaises(quire.InvalidRequest):
            self.client.generate_text("", add_special_tokens=False)
        with self.assertRaises(quire.NotFound):
            self.client.generate_text("hi", model="nobody")

    def test_live_requests_end_by_abort_cancel_and_deadline(self):
        stream = self.client.generate("Once", ENDLESS, request_id="to-abort")
        next(stream)
        with self.assertRaises(quire.AlreadyExists):
            self.client.generate_text("Once", request_id="to-abort")
        self.assertEqual(self.client.abort("to-abort", "unknown"), 1)
        with self.assertRaises(quire.Cancelled):
            list(stream)
        with self.client.generate("Once", ENDLESS, request_id="to-leave") as left:
            next(left)
        with self.assertRaises(quire.DeadlineExceeded):
            list(self.client.generate("Once", ENDLESS, timeout=0.2))
        # The id is free once the server has processed the cancellation.
        done = self.client.generate_text("Once", GREEDY, request_id="to-abort")
        self.assertEqual(len(done.token_ids), 24)

    def test_a_conversation_in_a_session(self):
        talk = self.client.conversation("python-fox")
        first = talk.say("Once upon a time", GREEDY)
        ids = [i for d in first for i in d.token_ids]
        known = [t.id for t in self.client.tokenize("Once upon a time")] + ids
        self.assertEqual(talk.position, len(known))
        second = talk.say(known[:3], GREEDY)
        ids = [i for d in second for i in d.token_ids]
        alone = self.client.generate_text(known + known[:3], GREEDY, bypass_prefix_cache=True)
        self.assertEqual(ids, list(alone.token_ids))
        self.assertEqual(alone.finished.residency.outcome, quire.Outcome.NONE)
        self.assertEqual(second.finished.residency.outcome, quire.Outcome.DEVICE)
        with self.assertRaises(quire.InvalidRequest) as caught:
            list(self.client.conversation("python-fox", position=1).say("x", GREEDY))
        self.assertEqual(caught.exception.metadata["position"], str(talk.position))
        self.client.sessions.fork("python-fox", "python-owl", position=len(known))
        owl = self.client.sessions.import_(self.client.sessions.export("python-owl"))
        self.assertEqual((owl.position, owl.host_tokens), (len(known), len(known)))
        there = self.client.conversation(owl.session_id, position=len(known))
        self.assertEqual([i for d in there.say(known[:3], GREEDY) for i in d.token_ids], ids)
        listed = {session.session_id for session in self.client.sessions.list()}
        self.assertEqual(listed, {"python-fox", "python-owl", owl.session_id})
        watch = self.client.sessions.watch("python-owl")
        next(watch)
        for name in listed:
            self.client.sessions.close(name)
        self.assertEqual([s.state for s in watch][-1], quire.SessionState.CLOSED)
        with self.assertRaises(quire.NotFound):
            self.client.sessions.get("python-fox")

    def test_info_and_load(self):
        info = self.client.info()
        self.assertEqual((info.state, info.model.architecture), ("READY", "LlamaForCausalLM"))
        self.assertEqual((info.model.vocab_size, info.model.max_model_len), (2048, 4096))
        self.assertEqual(list(info.model.eos_token_ids), [1, 6])
        self.assertTrue(info.model.has_chat_template)
        self.assertEqual(list(info.models), [info.model.model])
        load = self.client.load()
        self.assertEqual(load.total_blocks, info.model.num_blocks)
        self.assertGreater(load.generated_tokens + load.steps, 0)

    def example(self, name, *args, stdin=""):
        command = [sys.executable, EXAMPLES / name, "--target", self.server.target, *args]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=120, check=True
        ).stdout

    def test_examples(self):
        self.assertIn("MAX_TOKENS: 30 tokens", self.example("stream.py", "--max-tokens", "30"))
        out = self.example("chat.py", "--temperature", "0", "My name is Zoe.", "What is my name?")
        self.assertIn("Your name is Zoe.", out)
        lines = self.example("batch.py", stdin="What is 2 plus 2?\nWhich animal says woof?\n")
        texts = [json.loads(line)["text"] for line in lines.splitlines()]
        self.assertEqual(texts, ["2 plus 2 is 4.", "The dog says woof."])
        out = self.example("structured.py")
        self.assertRegex(out, r"is (happy|sad)\nthe day was (sunny|rainy)")


class DrainTest(unittest.TestCase):
    def test_a_draining_server_finishes_its_requests_and_exits(self):
        server = RunningServer()
        self.addCleanup(server.stop)
        with quire.QuireClient(server.target, timeout=120) as client:
            stream = client.generate("Once", ENDLESS, max_tokens=1500)
            received = len(next(stream).token_ids)
            self.assertGreaterEqual(client.drain(exit_when_idle=True), 1)
            with self.assertRaises(quire.Unavailable):
                client.generate_text("Once")
            received += sum(len(delta.token_ids) for delta in stream)
            self.assertEqual(received, 1500)
            self.assertEqual(stream.finished.reason, quire.FinishReason.MAX_TOKENS)
        self.assertEqual(server.process.wait(timeout=60), 0)


if __name__ == "__main__":
    unittest.main()
