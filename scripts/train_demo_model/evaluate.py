"""Measures a trained demo model with transformers in float32 and writes the scores.

usage: evaluate.py MODEL_DIR OUT_DIR [--seed 1000]

OUT_DIR gets scores.json, samples.md and greedy.json (prompts with the tokens that greedy decoding
must give; tests compare the server's with them).
"""

import argparse
import json
import pathlib
import random

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from documents import ASSISTANT, BOS, END, EOS, PAD, USER, Writer, load_encoder
from probes import probes
from recognize import Judge
from world import World

DISTANCES = [50, 100, 250, 500, 1000, 1500, 2000, 3000, 3800]
GREEDY_LENGTH = 96


class Bench:
    def __init__(self, folder, seed):
        self.device = torch.device("cuda")
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.model = model.to(self.device).eval()
        self.world = World()
        self.encode = load_encoder(folder / "tokenizer.json")
        self.writer = Writer(self.world, self.encode, random.Random(seed))

    @torch.no_grad()
    def nats_per_token(self, rows):
        ids = torch.tensor(rows, device=self.device)
        logits = self.model(input_ids=ids[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).item()

    @torch.no_grad()
    def share_answered(self, pairs, batch=50):
        """The part of (prompt, answer) pairs that greedy decoding would answer exactly so."""
        good = 0
        for start in range(0, len(pairs), batch):
            part = pairs[start : start + batch]
            width = max(len(p) + len(a) for p, a in part)
            ids = torch.full((len(part), width), PAD, device=self.device)
            for i, (prompt, answer) in enumerate(part):
                ids[i, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
            best = self.model(input_ids=ids).logits.argmax(-1).cpu()
            for i, (prompt, answer) in enumerate(part):
                begin = len(prompt) - 1
                good += best[i, begin : begin + len(answer)].tolist() == answer
        return good / len(pairs)

    @torch.no_grad()
    def sample(self, prompts, length, temperature=0.7, top_p=0.95):
        """Sampled continuations (ids, cut after the end token) of prompts of any lengths."""
        width = max(map(len, prompts))
        ids = torch.full((len(prompts), width), PAD, device=self.device)
        mask = torch.zeros_like(ids)
        for i, prompt in enumerate(prompts):
            ids[i, width - len(prompt) :] = torch.tensor(prompt)
            mask[i, width - len(prompt) :] = 1
        out = self.model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=length,
            do_sample=True,
            temperature=temperature,
            top_p=top_p,
            top_k=0,
            eos_token_id=[EOS, END],
            pad_token_id=PAD,
        )[:, width:].tolist()
        results = []
        for row in out:
            ends = [i for i, t in enumerate(row) if t in (EOS, END)]
            results.append((row[: ends[0]], True) if ends else (row, False))
        return results

    @torch.no_grad()
    def greedy(self, prompt, length):
        """(ids, for each the distance between the best and the second logit)."""
        ids = torch.tensor([prompt], device=self.device)
        out = self.model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=length,
            do_sample=False,
            temperature=None,
            top_p=None,
            top_k=None,
            eos_token_id=[EOS, END],
            pad_token_id=PAD,
            output_logits=True,
            return_dict_in_generate=True,
        )
        margins = [round(float(torch.diff(step[0].topk(2).values).abs()), 4) for step in out.logits]
        return out.sequences[0, len(prompt) :].tolist(), margins

    def text(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def chat_ids(self, question):
        return [BOS, USER, *self.encode(question), END, ASSISTANT]


def recall_scores(bench):
    scores = []
    for form in ("chat", "plain"):
        for count in (1, 4):
            for distance in DISTANCES:
                found = probes(bench.writer, form, distance, count, 100)
                score = bench.share_answered([(p.prompt, p.answer) for p in found])
                mean = round(sum(p.distance for p in found) / len(found))
                scores.append({"form": form, "facts": count, "distance": mean, "accuracy": score})
                print(form, count, mean, score, flush=True)
    return scores


def story_scores(bench, prompts, length=700):
    judge = Judge(bench.world)
    accepted = total = consistent = ended = 0
    texts = []
    for prompt, (ids, end) in zip(prompts, bench.sample(prompts, length)):
        text = bench.text(ids)
        if prompt[-1] != ASSISTANT:
            text = bench.text(prompt) + text
        good, count, fits = judge.story(text)
        accepted, total, consistent, ended = (
            accepted + good,
            total + count,
            consistent + fits,
            ended + end,
        )
        texts.append(text)
    number = len(prompts)
    scores = {
        "stories": number,
        "sentences": total,
        "sentences_accepted": accepted / total,
        "stories_consistent": consistent / number,
        "stories_ended": ended / number,
    }
    print(scores, flush=True)
    return scores, texts


def fact_pairs(bench):
    pairs = []
    for questions, answers, row in bench.world.facts:
        if len(answers) == 1:
            write = bench.world.grammar.write
            question = write(questions[0], bench.writer.rng, dict(row))
            answer = write(answers[0], bench.writer.rng, dict(row))
            if "[" not in answers[0]:
                pairs.append((bench.chat_ids(question), bench.encode(answer) + [END]))
    return pairs


SHOWN = [
    "Hello!",
    "Who are you?",
    "What is Quire?",
    "What is the KV cache?",
    "Tell me a story about a fox.",
    "tell me a story about a dragon who was lonely",
    "Write a short story about a girl named Mia and a lost kite.",
    "How do I plant a seed?",
    "What is the opposite of hot?",
    "Why does it rain?",
    "What is 7 plus 5?",
    "Write a poem about the moon.",
    "What is quantum physics?",
    "Tell me a joke.",
    "I am sad today.",
    "Can you tell me a long story about two friends?",
    "Which animal says moo?",
    "List some animals.",
]
STARTS = [
    "Once upon a time",
    "One day, a little fox",
    "In a small village by the sea",
    "There was once a brave girl named",
    "The sun was shining and",
    "Question: What color is the sky?\nAnswer:",
]


def write_samples(bench, path):
    lines = ["# Samples", "", "Temperature 0.7, top_p 0.95, one try each.", ""]
    prompts = [[BOS, *bench.encode(s)] for s in STARTS] + [bench.chat_ids(q) for q in SHOWN]
    for title, prompt, (ids, _) in zip(STARTS + SHOWN, prompts, bench.sample(prompts, 500)):
        text = bench.text(ids)
        if prompt[-1] != ASSISTANT:
            lines += ["**Continue:**", "", (title + text).replace("\n", "\n> "), ""]
        else:
            lines += [f"**{title}**", "", text.replace("\n", "\n> "), ""]
        lines[-2] = "> " + lines[-2]
    path.write_text("\n".join(lines) + "\n")


def greedy_cases(bench):
    """Cases for tests: the clearest prompts of each kind. Recall cases must name the value."""
    ask = lambda question: dict(messages=[{"role": "user", "content": question}])
    groups = [
        ("plain", 3, [dict(text=s) for s in STARTS]),
        ("chat_story", 3, [ask(q) for q in SHOWN if "story" in q]),
        ("chat_fact", 3, [ask(q) for q in SHOWN if "story" not in q]),
    ]
    for form, distance, keep in (
        ("chat", 300, 1),
        ("chat", 1100, 2),
        ("plain", 1100, 1),
        ("chat", 1600, 1),
        ("plain", 3000, 1),
    ):
        candidates = []
        for probe in probes(bench.writer, form, distance, 3, 4):
            prompt = dict(text=probe.text) if form == "plain" else dict(messages=probe.messages)
            candidates.append(prompt | {"value": probe.fact.value, "distance": probe.distance})
        groups.append(("recall_" + form, keep, candidates))
    cases = []
    for kind, keep, candidates in groups:
        tried = []
        for case in candidates:
            if "messages" in case:
                ids = bench.tokenizer.apply_chat_template(
                    case["messages"], add_generation_prompt=True, tokenize=True, return_dict=False
                )
            else:
                ids = [BOS, *bench.encode(case["text"])]
            out, margins = bench.greedy(list(ids), GREEDY_LENGTH)
            text = bench.text(out)
            if case.get("value", "") in text:
                tried.append(
                    {
                        "kind": kind,
                        **case,
                        "prompt_ids": list(ids),
                        "expected_ids": out,
                        "expected_text": text,
                        "margins": margins,
                    }
                )
        cases += sorted(tried, key=lambda t: -min(t["margins"]))[:keep]
    return cases


def write_greedy(bench, path):
    """One case's fields a line, so that differences can be read."""
    about = {
        "model": "models/demo",
        "arithmetic": "float32 on the bf16 weights",
        "made_by": "scripts/train_demo_model/evaluate.py",
        "margins": "distance between the best and the second logit at each expected token",
    }
    fields = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in about.items()]
    cases = []
    for case in greedy_cases(bench):
        parts = [f"   {json.dumps(k)}: {json.dumps(v)}" for k, v in case.items()]
        cases.append("  {\n" + ",\n".join(parts) + "\n  }")
    body = ",\n".join(fields) + ',\n "cases": [\n' + ",\n".join(cases) + "\n ]"
    path.write_text("{\n" + body + "\n}\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model_dir", type=pathlib.Path)
    parser.add_argument("out_dir", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1000)
    args = parser.parse_args()
    args.out_dir.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    bench = Bench(args.model_dir, args.seed)
    write_samples(bench, args.out_dir / "samples.md")
    write_greedy(bench, args.out_dir / "greedy.json")
    scores = {"seed": args.seed}
    stories = [bench.writer.story()[:513] for _ in range(200)]
    stories = [s + bench.writer.story()[: 513 - len(s)] for s in stories]
    stories = [s for s in stories if len(s) >= 300]
    width = min(map(len, stories))
    nats = bench.nats_per_token([s[:width] for s in stories])
    scores["story_perplexity"] = round(float(torch.tensor(nats).exp()), 4)
    scores["facts_answered"] = round(bench.share_answered(fact_pairs(bench)), 4)
    starts = [[BOS, *bench.encode("Once upon a time")]] * 150
    requests = [bench.chat_ids(bench.world.story_request(bench.writer.rng)[0]) for _ in range(150)]
    scores["stories_plain"], _ = story_scores(bench, starts)
    scores["stories_chat"], _ = story_scores(bench, requests)
    scores["recall"] = recall_scores(bench)
    (args.out_dir / "scores.json").write_text(json.dumps(scores, indent=1) + "\n")


if __name__ == "__main__":
    main()
