"""Judges stories: is every sentence one of the grammar's, and do names and pronouns agree?

Run as a program it checks the judge on stories from the grammar itself: all must pass.
"""

import random
import re
import sys

from grammar import sentences, template_sentences
from world import ELDERS, PERSONAS, TEACHERS, World

NAME = "[A-Z][a-z]+"
PEOPLE = [name for name, _ in ELDERS + TEACHERS]


class Judge:
    """Accepts the sentences of all plots; built from the same files that the stories are."""

    def __init__(self, world):
        self.world = world
        words = world.grammar.classes
        self.gender = {n: "she" for n in words["girl"]} | {n: "he" for n in words["boy"]}
        self.names = set(self.gender) | set(words["petname"])
        self._accepted = {}
        patterns = set()
        for option in words["opening"] + words["about"]:
            patterns |= self._patterns(option, self._bound(None))
        for plot in world.plots:
            bound = self._bound(plot)
            for beat in plot.beats:
                for line in beat[1] if beat else []:
                    patterns |= self._patterns(line, bound)
        patterns.add(r"The end\.")
        self._expressions = [re.compile(p) for p in sorted(patterns)]

    def _bound(self, plot):
        grammar, words = self.world.grammar, self.world.grammar.classes
        kinds = "(?:" + "|".join(words["animal"] + ["boy", "girl"] + [p for p, _ in PERSONAS]) + ")"
        traits = "(?:" + "|".join(words["trait"] + ["proud", "fast", "loud", "vain"]) + ")"
        bound = {
            "H": NAME,
            "F": NAME,
            "E": "(?:" + "|".join(PEOPLE) + ")",
            "Everytime": "(?:Every time|When)",
        }
        for prefix in ("", "F", "E"):
            bound |= {
                prefix + "he": "(?:he|she)",
                prefix + "him": "(?:him|her)",
                prefix + "his": "(?:his|her)",
                prefix + "himself": "(?:himself|herself)",
            }
        bound |= {"He": "(?:He|She)", "Him": "(?:Him|Her)", "His": "(?:His|Her)"}
        for person in "HF":
            bound |= {person + "kind": kinds, person + "trait": traits, person + "trait2": traits}
        bound["home"] = grammar.regex("[{childhome}|{animalhome}|{personahome}]", bound)
        bound["gladline1"] = grammar.regex("{H} was {feelgood}.", bound)
        for slot, template in plot.roles if plot else []:
            bound[slot] = grammar.regex(template, bound)
        return bound

    def _patterns(self, line, bound):
        """Expressions for a line's sentences; a slot that stands alone is a class of sentences."""
        result = set()
        for piece in template_sentences(line):
            slot = re.fullmatch(r"\{\^?(\w+)\}", piece)
            if slot and slot[1] in self.world.grammar.classes:
                for option in self.world.grammar.classes[slot[1]]:
                    result |= self._patterns(option, bound)
            else:
                result.add(self.world.grammar.regex(piece, bound))
        return result

    def accepts(self, sentence):
        if sentence not in self._accepted:
            self._accepted[sentence] = any(e.fullmatch(sentence) for e in self._expressions)
        return self._accepted[sentence]

    def story(self, text):
        """(sentences accepted, sentences, are names and pronouns consistent)."""
        parts = sentences(text)
        return sum(map(self.accepts, parts)), len(parts), self.consistent(text)

    def consistent(self, text):
        """Whether the text names no more characters than a story has, and pronouns fit them.

        Elders, animals and snowmen may be "he" or "she", so the pronouns are only judged where
        all the characters are girls, or all are boys.
        """
        named = {w for w in re.findall(r"\b[A-Z][a-z]+\b", text) if w in self.names}
        chapters = max(1, text.count("\n\n") // 2)
        if not 1 <= len(named) <= 1 + chapters:
            return False
        genders = {self.gender.get(n) for n in named}
        if any(e in text for e in [*PEOPLE, "snowman", "postman"]):
            return True
        if genders == {"she"}:
            return not re.search(r"\b([Hh]e|[Hh]is|[Hh]im|himself)\b", text)
        if genders == {"he"}:
            return not re.search(r"\b([Ss]he|[Hh]er|herself)\b", text)
        return True


def main():
    world, rng = World(), random.Random(3)
    judge = Judge(world)
    accepted = total = consistent = 0
    stories = 400
    for _ in range(stories):
        text = world.story(rng).text
        good, count, fits = judge.story(text)
        accepted, total, consistent = accepted + good, total + count, consistent + fits
        for sentence in sentences(text):
            if not judge.accepts(sentence):
                print("not accepted:", sentence)
        if not fits:
            print("not consistent:", text, "\n")
    print(f"{accepted}/{total} sentences accepted, {consistent}/{stories} stories consistent")
    return 0 if accepted == total and consistent == stories else 1


if __name__ == "__main__":
    sys.exit(main())
