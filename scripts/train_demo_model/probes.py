"""Recall probes: prompts that tell facts, hold a set distance of other text, and ask for a fact."""

import dataclasses

import recall
from documents import BOS, Chat, USER, ASSISTANT, END


@dataclasses.dataclass
class Probe:
    form: str  # "chat" or "plain"
    prompt: list  # token ids, up to and including the last question
    messages: list  # the same as chat messages; empty for plain
    text: str  # the same as text; empty for chat
    answer: list  # token ids of the one right answer
    fact: recall.Fact
    distance: int  # tokens between the fact and the end of the prompt


def secret_facts(writer, count):
    """Secret numbers of `count` different people."""
    facts = {}
    while len(facts) < count:
        fact = recall.named_fact(writer.rng, writer.grammar, thing="secret number")
        facts.setdefault(fact.key, fact)
    return list(facts.values())


def chat_probe(writer, distance, count):
    """`count` facts in the first turn; the first of them is asked for."""
    facts = secret_facts(writer, count)
    chat = Chat(writer.encode)
    chat.turn("Remember this: " + " ".join(f.answer for f in facts), "I will remember that.")
    told = 1 + 1 + len(writer.encode("Remember this: " + facts[0].answer))
    question = f"What is the {facts[0].key}?"
    tail = len(writer.encode(question)) + 3
    while True:
        left = distance - (len(chat.ids) - told) - tail
        if left < 15:
            break
        if left > 420:
            request, story = writer.world.story_request(writer.rng)
            chat.turn(request, story.text)
        else:
            chat.turn(*writer.world.sum(writer.rng))
    ids = chat.ids + [USER, *writer.encode(question), END, ASSISTANT]
    messages = chat.messages + [{"role": "user", "content": question}]
    answer = [*writer.encode(facts[0].answer), END]
    return Probe("chat", ids, messages, "", answer, facts[0], len(ids) - told)


def plain_probe(writer, distance, count):
    """The same in running text: stories between the facts and a question with the answer begun."""
    facts = secret_facts(writer, count)
    text = "Remember: " + " ".join(f.answer for f in facts) + "\n\n"
    told = 1 + len(writer.encode("Remember: " + facts[0].answer))
    question = f"Question: What is the {facts[0].key}?\nAnswer:"
    tail = len(writer.encode(question))
    while True:
        left = distance - (1 + len(writer.encode(text)) - told) - tail
        if left < 25:
            break
        if left > 320:
            text += writer.world.story(writer.rng).text + "\n\n"
        else:
            asked, answer = writer.world.sum(writer.rng)
            text += f"Question: {asked}\nAnswer: {answer}\n\n"
    ids = [BOS, *writer.encode(text + question)]
    answer = writer.encode(" " + facts[0].answer[:-1])  # the full stop may join a line break
    return Probe("plain", ids, [], text + question, answer, facts[0], len(ids) - told)


def probes(writer, form, distance, count, number):
    make = chat_probe if form == "chat" else plain_probe
    return [make(writer, distance, count) for _ in range(number)]
