"""Stories, facts and conversations: turns the grammar into documents."""

import dataclasses
import random

from grammar import TEXT, Grammar, split_top

ELDERS = [
    ("Grandma", "she"),
    ("Grandpa", "he"),
    ("the old owl", "she"),
    ("the baker", "he"),
    ("the wise turtle", "he"),
    ("the gardener", "she"),
    ("Aunt Rose", "she"),
    ("Uncle Bob", "he"),
    ("the old sailor", "he"),
    ("the doctor", "she"),
]
TEACHERS = [
    ("Miss Rose", "she"),
    ("Mister Brown", "he"),
    ("the teacher", "she"),
    ("Miss Hill", "she"),
]
FORMS = {
    "he": {"he": "he", "him": "him", "his": "his", "himself": "himself"},
    "she": {"he": "she", "him": "her", "his": "her", "himself": "herself"},
}
PERSONAS = [
    ("princess", "she"),
    ("prince", "he"),
    ("queen", "she"),
    ("king", "he"),
    ("knight", None),
    ("pirate", None),
    ("robot", None),
    ("wizard", "he"),
    ("witch", "she"),
    ("fairy", "she"),
    ("giant", "he"),
    ("astronaut", None),
    ("mermaid", "she"),
    ("farmer", None),
    ("sailor", None),
    ("painter", None),
    ("shepherd", None),
]
PROUD = ["proud", "fast", "loud", "vain"]


@dataclasses.dataclass
class Plot:
    """One schema of a story: what it binds, its beats, and questions about it."""

    name: str
    roles: list = dataclasses.field(default_factory=list)  # (slot, template)
    people: list = dataclasses.field(default_factory=list)  # (slot, class)
    themes: list = dataclasses.field(default_factory=list)
    beats: list = dataclasses.field(
        default_factory=list
    )  # (optional, lines); None starts a paragraph
    questions: list = dataclasses.field(default_factory=list)  # (question, answer)


def read_plots(*files):
    plots = []
    for file in files:
        for line in (TEXT / file).read_text().splitlines():
            word, _, rest = line.partition(" ")
            if not line or line.startswith("#"):
                continue
            if word == "plot":
                plots.append(Plot(rest))
            elif word == "role":
                plots[-1].roles.append(tuple(rest.split(" = ")))
            elif word == "person":
                plots[-1].people.append(tuple(rest.split(" = ")))
            elif word == "theme":
                plots[-1].themes.append(rest)
            elif word == "qa":
                plots[-1].questions.append(tuple(rest.split(" => ")))
            elif line == "=":
                plots[-1].beats.append(None)
            elif line in ("-", "-?"):
                plots[-1].beats.append((line == "-?", []))
            else:
                plots[-1].beats[-1][1].append(line)
    return plots


def read_facts(file):
    """Pairs (questions, answers, bound words) of facts.txt."""
    facts, columns, rows = [], None, []
    for line in (TEXT / file).read_text().splitlines():
        line = line.strip().replace("\\n", "\n")
        if not line or line.startswith("#"):
            continue
        if line.startswith("table "):
            columns, rows = line[6:].split(" | "), []
        elif line == "end":
            columns = None
        elif columns and not line.startswith("ask "):
            rows.append(dict(zip(columns, line.split(" | "), strict=True)))
        else:
            questions, answers = line.removeprefix("ask ").split(" => ")
            for row in rows if columns else [{}]:
                facts.append((split_top(questions, " / "), split_top(answers, " / "), row))
    return facts


@dataclasses.dataclass
class Story:
    text: str
    bound: dict
    plot: Plot


class World:
    """Everything the model is told about. Deterministic in the rng that each method is given."""

    def __init__(self):
        self.grammar = Grammar("words.txt", "shared.txt", "chat.txt")
        self.plots = read_plots("plots1.txt", "plots2.txt")
        self.facts = read_facts("facts.txt")

    def bind_person(self, slot, kind, rng, bound, wish=None):
        """Binds a name, pronouns and a kind to `slot`; `wish` may fix the kind or the name."""
        words, pick = self.grammar.classes, rng.choice
        wish = wish or {}
        prefix = "" if slot == "H" else slot
        if kind in ("elder", "teacher"):
            name, pronoun = pick(ELDERS if kind == "elder" else TEACHERS)
        else:
            if kind == "friend":
                kind = pick(["child", "animal"])
            pronoun = wish.get("pronoun") or pick(["he", "she"])
            if kind == "persona":
                species, fixed = wish.get("persona") or pick(PERSONAS)
                pronoun = fixed or pronoun
                name = wish.get("name") or pick(words["boy" if pronoun == "he" else "girl"])
            elif kind == "child":
                name = wish.get("name") or pick(words["boy" if pronoun == "he" else "girl"])
                species = "boy" if pronoun == "he" else "girl"
            else:
                name = wish.get("name") or pick(words["petname"])
                species = wish.get("kind") or pick(words["animal"])
            if name in bound.values() or (kind == "animal" and species in bound.values()):
                return self.bind_person(slot, kind, rng, bound, wish)
            bound[slot + "kind"] = species
            bound[slot + "trait"] = pick(words["trait"])
            bound[slot + "trait2"] = pick(PROUD)
        bound[slot] = name
        for form, word in FORMS[pronoun].items():
            bound[prefix + form] = word
            if not prefix:
                bound[form.capitalize()] = word.capitalize()
        bound[slot + "pronoun"] = pronoun
        return kind

    def story(self, rng, plot=None, hero=None, chapters=1):
        """A whole story. `hero` may fix the main character's "kind", "persona", "name", "child".

        With several chapters, `bound` and `plot` of the result are those of the first.
        """
        plot = plot or rng.choice(self.plots)
        bound = {"Everytime": rng.choice(["Every time", "When"])}
        hero = hero or {}
        kind = rng.choice(["child", "child", "child", "animal", "animal", "persona"])
        kind = "animal" if "kind" in hero else "persona" if "persona" in hero else kind
        kind = "child" if hero.get("child") else kind
        kind = self.bind_person("H", kind, rng, bound, hero)
        if plot.name == "afraid" and bound["Htrait"] == "brave":
            bound["Htrait"] = "shy"
        bound["home"] = self.grammar.pick(kind + "home", rng, bound)
        bound["family"] = self.grammar.pick("family", rng, bound)
        bound["gladline1"] = f"{bound['H']} was {self.grammar.pick('feelgood', rng, bound)}."
        first = self._bind_plot(plot, rng, bound)
        texts = [self._tell(plot, rng, first, opening=True)]
        for other in rng.sample([p for p in self.plots if p is not plot], chapters - 1):
            texts.append(self._tell(other, rng, self._bind_plot(other, rng, bound), opening=False))
        if rng.random() < 0.3:
            texts[-1] += " The end."
        return Story("\n\n".join(texts), first, plot)

    def _bind_plot(self, plot, rng, hero_bound):
        bound = dict(hero_bound)
        for slot, person in plot.people:
            self.bind_person(slot, person, rng, bound)
        for slot, template in plot.roles:
            bound[slot] = self.grammar.write(template, rng, bound)
        return bound

    def _tell(self, plot, rng, bound, opening):
        write = self.grammar.write
        parts = []
        if opening:
            parts = [self.grammar.pick("opening", rng, bound)]
            if rng.random() < 0.6:
                about = self.grammar.pick("about", rng, bound)
                if not (bound["home"] in about and bound["home"] in parts[0]):
                    parts.append(about)
        paragraphs, used = [], set()
        for beat in plot.beats:
            if beat is None:
                paragraphs.append(" ".join(parts))
                parts = []
                continue
            optional, lines = beat
            if optional and rng.random() < 0.5:
                continue
            line = rng.choice([l for l in lines if l not in used] or lines)
            used.add(line)
            parts.append(write(line, rng, bound))
        paragraphs.append(" ".join(parts))
        return "\n\n".join(paragraphs)

    def fact(self, rng):
        """(question, answer)."""
        questions, answers, row = rng.choice(self.facts)
        write = self.grammar.write
        bound = dict(row)
        return write(rng.choice(questions), rng, bound), write(rng.choice(answers), rng, bound)

    def sum(self, rng):
        a, b = rng.randint(0, 20), rng.randint(0, 20)
        form = rng.random()
        if form < 0.12:
            a, b = rng.randint(2, 10), rng.randint(2, 10)
            return f"What is {a} times {b}?", f"{a} times {b} is {a * b}."
        if form < 0.2:
            return f"What comes after {a * 5 + b}?", f"{a * 5 + b + 1} comes after {a * 5 + b}."
        if form < 0.28 and a != b:
            return (
                f"Which number is bigger, {a} or {b}?",
                f"{max(a, b)} is bigger than {min(a, b)}.",
            )
        if form < 0.6:
            question = rng.choice(
                ["What is {} plus {}?", "How much is {} plus {}?", "What is {} + {}?"]
            )
            return question.format(a, b), f"{a} plus {b} is {a + b}."
        if form < 0.9:
            a, b = max(a, b), min(a, b)
            question = rng.choice(
                ["What is {} minus {}?", "How much is {} minus {}?", "What is {} - {}?"]
            )
            return question.format(a, b), f"{a} minus {b} is {a - b}."
        n = rng.randint(3, 20)
        return f"Count to {n}.", ", ".join(str(i) for i in range(1, n + 1)) + "."

    def meeting(self, rng, name):
        """The user's name told, and the greeting."""
        bound = {"X": name}
        return self.grammar.pick("meet", rng, bound), self.grammar.pick("met", rng, bound)

    def sentence(self, rng):
        one, other = rng.sample(self.grammar.classes["animal"], 2)
        bound = {"animal": one, "animal2": other}
        return self.grammar.pick("asksentence", rng, bound), self.grammar.pick(
            "sentence", rng, bound
        )

    def hard_question(self, rng):
        """Something that a small model cannot know, and the honest answer."""
        kind = rng.choice(["hardask", "hardask", "hardask2"])
        bound = {"digits": str(rng.randint(21, 9999))}
        return self.grammar.pick(kind, rng, bound), self.grammar.pick("dontknow", rng, bound)

    def poem(self, rng):
        bound = {"poemthing": self.grammar.pick("poemthing", rng, {})}
        question = self.grammar.pick("askpoem", rng, bound)
        return question, self.grammar.pick("poem", rng, bound) + self.grammar.pick(
            "poemb", rng, bound
        )

    def story_request(self, rng):
        """(request, Story): the story is about what was asked for."""
        ask = self.grammar.pick("askstory", rng, {})
        mark = "?" if ask.startswith(("Can", "Could", "Do")) else "."
        chapters = 2 if " long " in ask else 1
        form = rng.random()
        if form < 0.2:
            ask = self.grammar.pick("askany", rng, {})
            return ask, self.story(rng, chapters=2 if "long" in ask else 1)
        if form < 0.45:
            kind = rng.choice(self.grammar.classes["animal"])
            hero = {"kind": kind} if rng.random() < 0.7 else {"persona": rng.choice(PERSONAS)}
            story = self.story(rng, hero=hero, chapters=chapters)
            extra = f" named {story.bound['H']}" if rng.random() < 0.3 else ""
            return f"{ask} {self.grammar.write('{a:Hkind}', rng, story.bound)}{extra}{mark}", story
        if form < 0.65:
            child = rng.random() < 0.7
            story = self.story(rng, hero={"child": True} if child else None, chapters=chapters)
            forms = ["{H}", "{a:Hkind} named {H}", "{a:Htrait} {Hkind}", "{a:Hkind}"]
            if "F" in story.bound and "Fkind" in story.bound:
                forms += ["{H} and {F}", "{a:Hkind} and {a:Fkind}", "two friends"]
            form = rng.choice(forms)
            return f"{ask} {self.grammar.write(form, rng, story.bound)}{mark}", story
        story = self.story(rng, chapters=chapters)
        theme = self.grammar.write(rng.choice(story.plot.themes), rng, story.bound)
        return f"{ask} {theme}{mark}", story

    def story_question(self, story, rng):
        question, answer = rng.choice(story.plot.questions)
        if rng.random() < 0.2:
            question, answer = rng.choice(
                [
                    ("Who is the story about?", "The story is about {H}."),
                    ("What is the name of the {Hkind}?", "The name of the {Hkind} is {H}."),
                    ("Who was {H}?", "{H} was {a:Htrait} {Hkind}."),
                ]
            )
        write = self.grammar.write
        return write(question, rng, story.bound), modify_first(write(answer, rng, story.bound))


def modify_first(text):
    return text[:1].upper() + text[1:]


def roughen(text, rng):
    """A user's typing: sometimes without capitals or the final mark, sometimes with a courtesy."""
    roll = rng.random()
    if roll < 0.12:
        text = text.lower()
    elif roll < 0.16:
        text = text[:1].lower() + text[1:]
    if rng.random() < 0.18:
        text = text.rstrip(".?!")
    if rng.random() < 0.04:
        text += rng.choice([" please", " Please.", " Thank you!", "!"])
    return text


if __name__ == "__main__":
    world, rng = World(), random.Random(7)
    for _ in range(4):
        story = world.story(rng)
        print(story.text, "\n", world.story_question(story, rng), "\n")
    for _ in range(12):
        print(world.fact(rng), world.hard_question(rng))
