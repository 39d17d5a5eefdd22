#!/usr/bin/env python3
"""What guessing ahead gains where code is edited: edit_bench.py PACK.

Real edits of PACK/edits.json (collect_edits.py): the prompt is a file, the output the file after
the edit. The model has Llama-3.1-8B's shape and computes all of it, but its weights are made so
that its greedy output is known: every word that old and new file share at the same place is one
token id, every other word has an id of its own, and each id is followed by the next word's. Then a
text that has nothing of its prompt. Each is written twice with up to 8 guesses a step, whole, and
twice without, as far as 400 tokens, by turns, and must be the known one. Prints one JSON object a
line; run from the repository's root.
"""
import difflib
import json
import pathlib
import shutil
import statistics
import sys
import time

import make_big_checkpoint as shapes
from asks_bench import quire
from gpu_server import ROOT, Server
from serve_bench import roomy_folder, say

GUESSES = 8
FIRST_ID = 1000
FREE_TOKENS = 600
PLAIN_TOKENS = 400  # every one takes as long as another
ROUNDS = 2


class Tasks:
    """Prompts and outputs as ids, and which id follows which."""

    def __init__(self):
        self.next_id = FIRST_ID
        self.follower = {}
        self.tasks = []  # (what, prompt, output)

    def take(self, count):
        begin, self.next_id = self.next_id, self.next_id + count
        return list(range(begin, self.next_id))

    def add(self, what, prompt, output):
        """`prompt` gets a last id of its own, which asks for the output."""
        chain = self.take(1) + output
        self.follower.update(zip(chain, chain[1:]))
        self.tasks.append((what, prompt + chain[:1], output))

    def add_edit(self, edit):
        old_words, new_words = edit["old"], edit["new"]
        old = self.take(len(old_words))
        new = []
        matcher = difflib.SequenceMatcher(None, old_words, new_words, autojunk=False)
        for kind, begin, end, new_begin, new_end in matcher.get_opcodes():
            new += old[begin:end] if kind == "equal" else self.take(new_end - new_begin)
        self.add(f"{edit['path']} at {edit['commit'][:10]}", old, new)


def write_model(config_path, tasks, out):
    """A llama whose layers add nothing, and whose logits are largest for the follower."""
    config = json.loads(config_path.read_text())
    row_bytes = 2 * config["hidden_size"]
    # Random rows are almost at right angles.
    rows = shapes.small_values((tasks.next_id - FIRST_ID) * config["hidden_size"])

    def content(name, shape):
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            yield bytes(2 * shape[0] * shape[1])
        elif name.endswith("norm.weight"):
            yield b"\x80\x3f" * shape[0]  # 1 in bf16
        elif name == "model.embed_tokens.weight":
            yield bytes(FIRST_ID * row_bytes)
            yield rows
            yield bytes((shape[0] - tasks.next_id) * row_bytes)
        elif name == "lm_head.weight":
            head = bytearray(shape[0] * row_bytes)
            for token, after in tasks.follower.items():
                begin = (token - FIRST_ID) * row_bytes
                head[after * row_bytes:(after + 1) * row_bytes] = rows[begin:begin + row_bytes]
            yield head
        else:
            yield from shapes.random_content(name, shape)

    shapes.write_checkpoint(config_path, out, content)


def seconds_a_token(client, prompt, output, guesses):
    """From the first token to the last."""
    got, first = [], None
    with client.generate(prompt, max_tokens=len(output), temperature=0.0, ignore_eos=True,
                         max_guesses=guesses, timeout=120) as stream:
        for delta in stream:
            got += delta.token_ids
            first = first or (time.monotonic(), len(got))
        last = time.monotonic()
    assert got == output, "the output is another"
    return (last - first[0]) / (len(output) - first[1])


def compare(server, client, what, prompt, output):
    def counts():
        return [server.metric(f"quire_{name}_total") or 0.0
                for name in ("guessed_tokens", "accepted_guesses")]

    before, plain, guessing = counts(), [], []
    for _ in range(ROUNDS):
        plain.append(seconds_a_token(client, prompt, output[:PLAIN_TOKENS], 0))
        guessing.append(seconds_a_token(client, prompt, output, GUESSES))
    guessed, right = (b - a for a, b in zip(before, counts()))
    ratio = statistics.median(plain) / statistics.median(guessing)
    say(text=what, prompt_tokens=len(prompt), output_tokens=len(output),
        tokens_per_second_without=[round(1 / s, 1) for s in plain],
        tokens_per_second_with=[round(1 / s, 1) for s in guessing],
        guessed=guessed, right=right, ratio=round(ratio, 3))
    return ratio


def main():
    pack = pathlib.Path(sys.argv[1]).resolve()
    tasks = Tasks()
    for edit in json.loads((pack / "edits.json").read_text()):
        tasks.add_edit(edit)
    edited = len(tasks.tasks)
    tasks.add("nothing of its prompt", tasks.take(300), tasks.take(FREE_TOKENS))
    folder = pathlib.Path(roomy_folder())
    try:
        write_model(ROOT / "bench/gpu/models/llama-3.1-8b/config.json", tasks, folder)
        server = Server(pack, "--device", "cuda", "--max-num-seqs", "16", "--max-model-len",
                        "16384", "--speculate", str(GUESSES), model=folder, patience=120)
        with quire.QuireClient(server.target) as client:
            ratios = [compare(server, client, *task) for task in tasks.tasks]
        say(edits=edited, median_ratio=round(statistics.median(ratios[:edited]), 3),
            least_ratio=round(min(ratios[:edited]), 3), ratio_of_other_text=round(ratios[-1], 3))
        server.stop()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
