"""Documents as token ids, and rows of a fixed length packed with them."""

import random

import numpy

import recall
from world import World, roughen

BOS, EOS, PAD, SYSTEM, USER, ASSISTANT, END = range(7)
SPECIAL = ["<|bos|>", "<|eos|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]


class Chat:
    """A conversation under construction. ids and text always agree."""

    def __init__(self, encode):
        self._encode = encode
        self.ids = [BOS]
        self.messages = []

    def add(self, role, text):
        self.messages.append({"role": role, "content": text})
        mark = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}[role]
        self.ids += [mark, *self._encode(text), END]

    def turn(self, question, answer):
        self.add("user", question)
        self.add("assistant", answer)


class Writer:
    """Writes documents of every kind with one tokenizer and one source of randomness."""

    def __init__(self, world, encode, rng):
        self.world, self.encode, self.rng = world, encode, rng
        self.grammar = world.grammar

    def story(self):
        chapters = 2 if self.rng.random() < 0.12 else 1
        text = self.world.story(self.rng, chapters=chapters).text
        if self.rng.random() < 0.15:  # begin anywhere, as a prompt may
            starts = [i + 2 for i, c in enumerate(text) if c == "." and text[i + 1 : i + 2] == " "]
            text = text[self.rng.choice(starts[: len(starts) // 2]) :]
        return [BOS, *self.encode(text), EOS]

    def questions(self):
        """Plain text: a story with questions, or facts as questions and answers."""
        rng, world = self.rng, self.world
        if rng.random() < 0.5:
            story = world.story(rng)
            text = story.text
            for _ in range(rng.randint(1, 3)):
                question, answer = world.story_question(story, rng)
                text += f"\n\nQuestion: {question}\nAnswer: {answer}"
        else:
            pairs = [self._simple_pair() for _ in range(rng.randint(1, 6))]
            text = "\n\n".join(f"Question: {q}\nAnswer: {a}" for q, a in pairs)
        return [BOS, *self.encode(text), EOS]

    def _simple_pair(self):
        roll = self.rng.random()
        if roll < 0.72:
            return self.world.fact(self.rng)
        if roll < 0.86:
            return self.world.sum(self.rng)
        return self.world.hard_question(self.rng)

    def _filler_turns(self, chat, stories=0.4):
        """One or two turns about anything."""
        rng, world = self.rng, self.world
        roll = rng.random()
        if roll < stories:
            request, story = world.story_request(rng)
            chat.turn(roughen(request, rng), story.text)
            if rng.random() < 0.35:
                question, answer = world.story_question(story, rng)
                chat.turn(roughen(question, rng), answer)
            if rng.random() < 0.1:
                chat.turn(self.grammar.pick("askagain", rng, {}), world.story(rng).text)
        elif roll < stories + 0.07:
            story = world.story(rng)
            cut = story.text.find(" ", rng.randint(60, 160))
            ask = self.grammar.pick("askcontinue", rng, {})
            chat.turn(f"{ask} {story.text[:cut]}", story.text[cut + 1 :])
        elif roll < stories + 0.1:
            chat.turn(*world.poem(rng))
        elif roll < stories + 0.12:
            chat.turn(*world.sentence(rng))
        elif roll < stories + 0.16:
            chat.turn(*world.meeting(rng, recall.name(rng, self.grammar)))
        elif roll < stories + 0.2:
            words = rng.choice(
                [
                    recall.digits(rng, 3, 8),
                    recall.made_up_word(rng, 3),
                    world.fact(rng)[1].split("\n")[0],
                ]
            )
            ask = rng.choice(["Repeat after me:", "Say this:", "Please repeat:"])
            chat.turn(f"{ask} {words}", words)
        else:
            question, answer = self._simple_pair()
            chat.turn(roughen(question, rng), answer)

    def _start_chat(self):
        chat = Chat(self.encode)
        if self.rng.random() < 0.15:
            chat.add("system", self.grammar.pick("system", self.rng, {}))
        return chat

    def chat(self):
        chat = self._start_chat()
        for _ in range(self.rng.choice([1, 1, 1, 2, 2, 3, 4])):
            self._filler_turns(chat, stories=0.35)
        return chat.ids

    def recall_chat(self, length):
        """Facts, much else, and questions about the facts; about `length` tokens."""
        rng, known = self.rng, {}
        chat = self._start_chat()
        self._tell_in_chat(chat, known)
        while len(chat.ids) < length - 500:
            roll = rng.random()
            if roll < 0.1 and len(known) < 24:
                self._tell_in_chat(chat, known)
            elif roll < 0.3:
                self._ask_in_chat(chat, known)
            else:
                self._filler_turns(chat, stories=0.5)
        while len(chat.ids) < length - 60:
            self._ask_in_chat(chat, known)
            if rng.random() < 0.5:
                chat.turn(*self._simple_pair())
        return chat.ids

    def _tell_in_chat(self, chat, known):
        rng = self.rng
        facts = recall.some_facts(
            rng, self.grammar, rng.choice([1, 1, 2, 3, 4, 6]), known, chat=True
        )
        text = " ".join(f.tell for f in facts)
        if rng.random() < 0.8:
            text = self.grammar.pick("remember", rng, {}) + " " + text
        chat.turn(text, self.grammar.pick("ack", rng, {}))

    def _ask_in_chat(self, chat, known):
        if self.rng.random() < 0.05:
            chat.turn(*recall.never_told(self.rng, self.grammar, known))
            return
        fact = self.rng.choice(list(known.values()))
        chat.turn(
            roughen(fact.question, self.rng) if self.rng.random() < 0.3 else fact.question,
            fact.answer,
        )

    def recall_plain(self, length):
        """The same as running text."""
        rng, known, ids = self.rng, {}, [BOS]
        ids += self.encode(self._told(known))
        while len(ids) < length - 350:
            roll = rng.random()
            if roll < 0.08 and len(known) < 24:
                ids += self.encode(self._told(known))
            elif roll < 0.3:
                ids += self.encode(self._asked(known))
            else:
                ids += self.encode(self.world.story(rng).text + "\n\n")
        while len(ids) < length - 50:
            ids += self.encode(self._asked(known))
        return ids + [EOS]

    def _told(self, known):
        facts = recall.some_facts(
            self.rng, self.grammar, self.rng.choice([1, 1, 2, 3, 4, 6]), known, chat=False
        )
        return (
            self.grammar.pick("remember", self.rng, {})
            + " "
            + " ".join(f.tell for f in facts)
            + "\n\n"
        )

    def _asked(self, known):
        fact = self.rng.choice(list(known.values()))
        if self.rng.random() < 0.3:
            return fact.answer + "\n\n"
        return f"Question: {fact.question}\nAnswer: {fact.answer}\n\n"

    def document(self, room):
        """Any document; those that are built to a length keep within `room`."""
        rng = self.rng
        roll = rng.random()
        if roll < (0.3 if room > 600 else 0.12) and room > 150:
            length = rng.randint(150, room) if room < 1000 else rng.randint(room // 3, room)
            return self.recall_chat(length) if rng.random() < 0.65 else self.recall_plain(length)
        roll = rng.random()
        if roll < 0.42:
            return self.story()
        if roll < 0.52:
            return self.questions()
        return self.chat()

    def row(self, length):
        """Exactly `length` ids: whole documents one after another, the last one cut."""
        ids = []
        while len(ids) < length:
            ids += self.document(length - len(ids))
        return ids[:length]


def load_encoder(path):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


_state = {}


def open_worker(tokenizer_path):
    """Called once in every process that makes rows."""
    _state["world"], _state["encode"] = World(), load_encoder(tokenizer_path)


def make_rows(task):
    """The rows of one task (seed, rows, length) as uint16: always the same ones."""
    seed, rows, length = task
    writer = Writer(_state["world"], _state["encode"], random.Random(seed))
    return numpy.array([writer.row(length) for _ in range(rows)], dtype=numpy.uint16)
