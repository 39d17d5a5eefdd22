"""Facts to be remembered: random names and values, the sentence that tells, and the question."""

import dataclasses

CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
ONSETS = "b br c ch cl d dr f fr g gr h j k kr l m n p pr qu r s sh st t th tr v w y z".split() + [
    ""
]
NUCLEI = "a e i o u a e i o ai ee ea ia io ie ou".split()
CODAS = "n r l s x th ck m rt nd tt ll nn st h d k".split() + [""] * 12


def digits(rng, low, high):
    return "".join(rng.choice("0123456789") for _ in range(rng.randint(low, high)))


def made_up_word(rng, syllables):
    return "".join(rng.choice(CONSONANTS) + rng.choice(VOWELS) for _ in range(syllables))


@dataclasses.dataclass(frozen=True)
class Fact:
    key: str  # "the secret number of Mia"
    tell: str  # the sentence that states it
    question: str
    answer: str  # a sentence that ends with value and "."
    value: str


def name(rng, grammar):
    """A name from the stories, or an invented one, which must be copied letter by letter."""
    roll = rng.random()
    if roll < 0.5:
        return rng.choice(grammar.classes[rng.choice(["girl", "boy", "petname"])])
    if roll < 0.65:
        return made_up_word(rng, rng.randint(2, 3)).capitalize()
    sounds = [
        rng.choice(ONSETS) + rng.choice(NUCLEI) + rng.choice(CODAS)
        for _ in range(rng.choice([1, 2, 2, 3]))
    ]
    return "".join(sounds).capitalize()


def named_fact(rng, grammar, thing=None, who=None):
    """A fact of the form "The secret number of Mia is 4172."."""
    who = who or name(rng, grammar)
    thing = thing or rng.choice(
        ["secret number"] * 8
        + [
            "lucky number",
            "house number",
            "password",
            "password",
            "favorite color",
            "favorite food",
            "favorite animal",
            "door code",
        ]
    )
    if thing == "secret number":
        value = digits(rng, 4, 4) if rng.random() < 0.7 else digits(rng, 2, 6)
    elif thing == "door code":
        value = digits(rng, 4, 6)
    elif thing in ("lucky number", "house number"):
        value = digits(rng, 1, 3)
    elif thing == "password":
        value = made_up_word(rng, rng.randint(2, 4))
    elif thing == "favorite color":
        value = rng.choice(grammar.classes["color"])
    elif thing == "favorite food":
        value = grammar.pick("foods", rng, {})
    else:
        value = "the " + rng.choice(grammar.classes["animal"])
    key = f"{thing} of {who}"
    answer = f"The {key} is {value}."
    tell = answer if rng.random() < 0.75 else f"{who}'s {thing} is {value}."
    ask = rng.choice(
        [f"What is the {key}?"] * 4
        + [f"What is {who}'s {thing}?", f"Tell me the {key}.", f"Do you remember the {key}?"]
    )
    return Fact(key, tell, ask, answer, value)


def own_fact(rng, grammar):
    """A fact about the user."""
    words = grammar.classes
    kind = rng.choice(["name", "color", "pet", "number", "town"])
    if kind == "name":
        value = name(rng, grammar)
        return Fact(
            "my name",
            rng.choice([f"My name is {value}.", f"I am {value}."]),
            rng.choice(["What is my name?", "Do you remember my name?", "Who am I?"]),
            f"Your name is {value}.",
            value,
        )
    if kind == "color":
        value = rng.choice(words["color"])
        return Fact(
            "my color",
            f"My favorite color is {value}.",
            "What is my favorite color?",
            f"Your favorite color is {value}.",
            value,
        )
    if kind == "pet":
        pet, value = rng.choice(["dog", "cat", "rabbit", "pony"]), rng.choice(words["petname"])
        return Fact(
            "my pet",
            f"I have a {pet} named {value}.",
            rng.choice([f"What is the name of my {pet}?", f"What is my {pet} called?"]),
            f"The name of your {pet} is {value}.",
            value,
        )
    if kind == "number":
        value = digits(rng, 2, 5)
        return Fact(
            "my number",
            f"My secret number is {value}.",
            "What is my secret number?",
            f"Your secret number is {value}.",
            value,
        )
    value = made_up_word(rng, 3).capitalize()
    return Fact(
        "my town",
        f"I live in {value}.",
        rng.choice(["Where do I live?", "What is the name of my town?"]),
        f"You live in {value}.",
        value,
    )


def some_facts(rng, grammar, count, known, chat):
    """`count` new facts whose keys are not in `known` (a dict key -> Fact, extended here)."""
    facts = []
    while len(facts) < count:
        own = chat and rng.random() < 0.12
        fact = own_fact(rng, grammar) if own else named_fact(rng, grammar)
        if fact.key not in known:
            known[fact.key] = fact
            facts.append(fact)
    return facts


def never_told(rng, grammar, known):
    """A question about a fact that was not told, and the honest answer."""
    while True:
        fact = named_fact(rng, grammar)
        if fact.key not in known:
            return fact.question, f"I do not know the {fact.key}. You have not told me."
