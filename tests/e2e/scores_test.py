#!/usr/bin/python3
"""Scores, Score and Embed on a server, against the logits of transformers: scores_test.py SERVER.

The expected values are those of tests/engine/model/make_checkpoints.py.
"""
# Covers server/batch/batch_call.cc, server/batch/read_formats.cc

import json
import math
import pathlib
import struct
import unittest

import quire
from running_server import RunningServer

MODEL = pathlib.Path(__file__).resolve().parents[1] / "testdata" / "models" / "llama"
GREEDY = quire.Options(temperature=0.0, max_tokens=20, ignore_eos=True)
BOUND = 2e-4


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def read_head():
    """The matrix of the head, a row for each token."""
    data = (MODEL / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8 : 8 + size])["lm_head.weight"]
    begin, end = (8 + size + offset for offset in entry["data_offsets"])
    values, width = floats(data[begin:end]), entry["shape"][1]
    return [values[i : i + width] for i in range(0, len(values), width)]


def read_prompts():
    """Known tokens, their number before the continuation, and logits by position."""
    expected = json.loads((MODEL / "expected.json").read_text(encoding="utf-8"))
    logits, vocab = floats((MODEL / "expected.f32").read_bytes()), expected["vocab_size"]
    prompts, at = [], 0
    for prompt in expected["prompts"]:
        rows = {}
        for position in prompt["positions"]:
            rows[position] = logits[at : at + vocab]
            at += vocab
        prompts.append((prompt["tokens"] + prompt["greedy"], len(prompt["tokens"]), rows))
    return prompts


def log_softmax(row):
    top = max(row)
    log_sum = top + math.log(math.fsum(math.exp(x - top) for x in row))
    return [x - log_sum for x in row]


class ScoresTest(unittest.TestCase):
    FLAGS = ("--device", "cpu", "--worker-process", "off")

    @classmethod
    def setUpClass(cls):
        cls.server = RunningServer(
            "--model", str(MODEL), "--skip-tokenizer-init", "--max-num-batched-tokens", "64",
            "--max-num-seqs", "32", *cls.FLAGS,
        )  # fmt: skip
        cls.addClassCleanup(cls.server.stop)
        cls.client = quire.QuireClient(cls.server.target, timeout=120)
        cls.addClassCleanup(cls.client.close)
        cls.prompts = read_prompts()

    def expect(self, score, token, row):
        """`score` is that of `token` in the distribution of `row`, with its top tokens."""
        logprobs = log_softmax(row)
        best = sorted(range(len(row)), key=lambda i: (-row[i], i))
        self.assertEqual(score.token_id, token)
        self.assertAlmostEqual(score.logprob, logprobs[token], delta=BOUND)
        self.assertAlmostEqual(logprobs[best[score.rank - 1]], logprobs[token], delta=BOUND)
        for place, (i, logprob) in enumerate(score.top.items()):
            self.assertAlmostEqual(logprob, logprobs[i], delta=BOUND)
            self.assertAlmostEqual(logprob, logprobs[best[place]], delta=BOUND)

    def test_scores_of_prompt_and_output(self):
        for known, length, rows in self.prompts:
            answer = self.client.generate_text(
                known[:length], GREEDY, top_logprobs=5, prompt_logprobs=20,
                logprob_token_ids=[7, 3],
            )  # fmt: skip
            self.assertEqual(len(answer.prompt_scores), length - 1)
            self.assertEqual(len(answer.scores), 20)
            self.assertEqual(answer.accepted.options.top_logprobs, 5)
            self.assertEqual(answer.accepted.options.logprob_token_ids, (7, 3))
            scores = (*answer.prompt_scores, *answer.scores)
            for position, row in rows.items():
                if position >= len(scores):
                    continue
                score, drawn = scores[position], position >= length - 1
                self.expect(score, known[position + 1], row)
                self.assertEqual(len(score.top), 5 if drawn else 20)
                if drawn:
                    for i, logprob in zip((7, 3), score.requested):
                        self.assertAlmostEqual(logprob, log_softmax(row)[i], delta=BOUND)

    def test_a_stream_has_the_scores_of_the_whole_answer(self):
        known, length, _ = self.prompts[2]
        asked = {"top_logprobs": 2, "prompt_logprobs": 0}
        whole = self.client.generate_text(known[:length], GREEDY, **asked)
        deltas = list(self.client.generate(known[:length], GREEDY, **asked))
        self.assertEqual(tuple(s for d in deltas for s in d.scores), whole.scores)
        self.assertEqual(deltas[0].prompt_scores, whole.prompt_scores)
        self.assertFalse(any(d.prompt_scores for d in deltas[1:]))
        for delta in deltas:
            self.assertEqual([s.token_id for s in delta.scores], list(delta.token_ids))

    def test_processed_scores_are_of_the_tokens_drawn_from(self):
        known, length, rows = self.prompts[1]
        answer = self.client.generate_text(
            known[:length], max_tokens=1, temperature=0.5, top_k=3, seed=4, top_logprobs=6,
            processed_logprobs=True, logprob_token_ids=[known[0]],
        )  # fmt: skip
        score, row = answer.scores[0], rows[length - 1]
        best = sorted(range(len(row)), key=lambda i: -row[i])[:3]
        self.assertEqual(list(score.top), best)
        expected = log_softmax([2 * row[i] for i in best])
        for i, logprob in zip(best, expected):
            self.assertAlmostEqual(score.top[i], logprob, delta=BOUND)
        if known[0] not in best:
            self.assertEqual(score.requested, (-math.inf,))

    def test_scoring_computes_all_and_keeps_the_kv(self):
        known = [(7 * i) % 250 for i in range(100)]
        first, second = ({s.index: s for s in self.client.score([known])}[0] for _ in range(2))
        self.assertEqual(first.scores, second.scores)
        self.assertEqual(first.count, 99)
        self.assertAlmostEqual(first.sum, math.fsum(s.logprob for s in first.scores), places=6)
        answer = self.client.generate_text(known, GREEDY)
        self.assertEqual(answer.finished.usage.cached_tokens, 96)

    def test_items_of_a_batch_have_their_own_status(self):
        lists = [known for known, _, _ in self.prompts]
        items = [[1, 2], [999], *lists, [], [5], *[[i % 250, i % 7, 3] for i in range(200)]]
        results = {s.index: s for s in self.client.score(items, top_logprobs=3)}
        self.assertEqual(sorted(results), list(range(len(items))))
        fault = results[1].fault
        self.assertEqual((fault.code, fault.field), (3, "items[1].token_ids.ids"))
        self.assertIn("outside the vocabulary", fault.message)
        self.assertEqual(results[5].fault.code, 3)
        self.assertEqual(results[6].count, 0)  # nothing stands before its token
        for index, (known, _, rows) in enumerate(self.prompts, start=2):
            self.assertIsNone(results[index].fault)
            for position, row in rows.items():
                if position + 1 < len(known):
                    self.expect(results[index].scores[position], known[position + 1], row)
        for index in range(7, len(items)):
            self.assertEqual(results[index].count, 2)

    def test_embeddings_are_the_hidden_states(self):
        head = read_head()
        for known, _, rows in self.prompts:
            places = sorted(rows)
            begins = [known[: place + 1] for place in places]
            results = {e.index: e for e in self.client.embed(begins, normalize=False)}
            for index, place in enumerate(places):
                hidden = results[index].embedding
                for weights, logit in zip(head, rows[place]):
                    self.assertAlmostEqual(
                        math.fsum(w * h for w, h in zip(weights, hidden)), logit, delta=BOUND
                    )

    def test_means_and_norms(self):
        known = self.prompts[1][0][:12]
        begins = [known[: i + 1] for i in range(12)]
        lasts = [e.embedding for e in self.client.embed(begins, normalize=False)]
        plain = next(iter(self.client.embed([known], mean=True, normalize=False))).embedding
        for h, x in enumerate(plain):
            self.assertAlmostEqual(x, math.fsum(last[h] for last in lasts) / 12, places=5)
        unit = next(iter(self.client.embed([known], mean=True))).embedding
        norm = math.sqrt(math.fsum(x * x for x in plain))
        for x, y in zip(plain, unit):
            self.assertAlmostEqual(x / norm, y, places=6)

    def test_refusals_name_the_field(self):
        cases = (
            ({"top_logprobs": 21}, "output.top_logprobs"),
            ({"prompt_logprobs": 99}, "output.prompt_logprobs"),
            ({"logprob_token_ids": [300]}, "output.logprob_token_ids"),
            ({"logprob_token_ids": list(range(33))}, "output.logprob_token_ids"),
            ({"prompt_logprobs": 1, "session_id": "s", "create_session": True},
             "output.prompt_logprobs"),
        )  # fmt: skip
        for options, field in cases:
            with self.subTest(options), self.assertRaises(quire.InvalidRequest) as raised:
                self.client.generate_text([1, 2], GREEDY, **options)
            self.assertIn(field, str(raised.exception))
        for call in (self.client.score, self.client.embed):
            with self.assertRaisesRegex(quire.InvalidRequest, "items"):
                list(call([]))
        with self.assertRaisesRegex(quire.InvalidRequest, "top_logprobs"):
            list(self.client.score([[1]], top_logprobs=21))

    def test_a_deadline_ends_the_items(self):
        with self.assertRaises(quire.QuireError):
            list(self.client.score([[1] * 500] * 1024, timeout=0.05))
        # The streams and rows are free again.
        self.assertEqual(len(list(self.client.score([[1, 2, 3]] * 3))), 3)


class TwoRanksScoresTest(ScoresTest):
    """Ranks score their own rows, and their results pass through memory shared by processes."""

    FLAGS = ("--device", "cpu", "--worker-process", "on", "--tensor-parallel-size", "2")


if __name__ == "__main__":
    unittest.main()
