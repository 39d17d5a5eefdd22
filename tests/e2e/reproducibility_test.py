#!/usr/bin/python3
"""The promises of docs/reproducibility.md, over gRPC: reproducibility_test.py SERVER.

The same requests on servers of different settings, one by one and among others: the same tokens,
and log probabilities that are equal to the last bit.
"""

import concurrent.futures
import unittest

import quire
from running_server import RunningServer

TOKENS = 150
STORY = "Once upon a time there was a fox who lived near the river. "
# Prompts of 5 to 400 tokens; every kind of sampling.
ASKS = [
    (STORY[:20], quire.Options(seed=1, temperature=1.0)),
    (STORY, quire.Options(seed=2, temperature=0.8, top_k=40)),
    (STORY * 3, quire.Options(seed=3, temperature=1.0, top_p=0.9, min_p=0.02)),
    (STORY * 8, quire.Options(seed=4, temperature=1.0, frequency_penalty=0.5)),
    (STORY * 20, quire.Options(seed=5, temperature=1.2, repetition_penalty=1.1)),
    (STORY * 5, quire.Options(seed=6, temperature=1.3, dynatemp_range=0.6, typical_p=0.9)),
    (STORY * 6, quire.Options(seed=7, temperature=2.0, top_n_sigma=1.5, xtc_probability=0.5)),
    (STORY * 7, quire.Options(seed=8, temperature=1.0, dry_multiplier=0.8, dry_last_n=200)),
    (STORY * 2, quire.Options(temperature=0.0)),
    (STORY * 2, quire.Options(seed=2**64 - 1, temperature=1.0, logit_bias={5: 3.0})),
]


class ReproducibilityTest(unittest.TestCase):
    def outputs(self, *flags, neighbours):
        """Token ids and log probabilities of every request, on a separate server."""
        server = RunningServer(*flags)
        self.addCleanup(server.stop)
        with quire.QuireClient(server.target, timeout=120) as client:

            def run(ask):
                done = client.generate_text(
                    ask[0], ask[1], max_tokens=TOKENS, ignore_eos=True, logprobs=True
                )
                return done.token_ids, done.logprobs

            if neighbours == 0:
                return [run(ask) for ask in ASKS]
            with concurrent.futures.ThreadPoolExecutor(len(ASKS) + neighbours) as pool:
                other = ("Tell me another story.", quire.Options(temperature=1.0))  # any seed
                others = [pool.submit(run, other) for _ in range(neighbours)]
                done = list(pool.map(run, ASKS))
                self.assertEqual({len(o.result()[0]) for o in others}, {TOKENS})
                return done

    def test_tokens_and_logprobs_do_not_depend_on_settings_or_other_requests(self):
        alone = self.outputs("--cpu-threads", "1", neighbours=0)
        self.assertEqual(len({ids for ids, _ in alone}), len(ASKS))
        for flags in (
            (),
            ("--cpu-threads", "3", "--max-num-batched-tokens", "24", "--max-num-seqs", "24"),
            ("--block-size", "64", "--num-blocks-override", "40", "--max-model-len", "1024"),
        ):
            with self.subTest(flags=flags):
                self.assertEqual(self.outputs(*flags, neighbours=12), alone)

    def test_a_seed_chosen_by_the_server_can_be_sent_again(self):
        server = RunningServer()
        self.addCleanup(server.stop)
        with quire.QuireClient(server.target, timeout=120) as client:
            first = client.generate_text(STORY, temperature=1.0, max_tokens=TOKENS)
            seed = first.accepted.options.seed
            again = client.generate_text(STORY, temperature=1.0, max_tokens=TOKENS, seed=seed)
            other = client.generate_text(STORY, temperature=1.0, max_tokens=TOKENS)
        self.assertEqual(again.token_ids, first.token_ids)
        self.assertNotEqual(other.token_ids, first.token_ids)


if __name__ == "__main__":
    unittest.main()
