"""A small template grammar: reads the files in text/, writes sentences and recognises them again.

A template is text with alternatives "[a|b|]" and slots "{name}". A slot takes the value bound to
its name, else a random option of the class of that name. "{a:name}" puts the article before it,
"{^name}" begins it with a capital letter, "{name~}" with a small one.
"""

import functools
import pathlib
import re

TEXT = pathlib.Path(__file__).parent / "text"
VOWEL_SOUND = re.compile(r"(?!uni|use|one)[aeiou]", re.IGNORECASE)


def split_top(text, separator):
    """Splits at `separator` where it is outside brackets and braces."""
    parts, depth, start, i = [], 0, 0, 0
    while i < len(text):
        c = text[i]
        depth += c in "[{"
        depth -= c in "]}"
        if depth == 0 and text.startswith(separator, i):
            parts.append(text[start:i])
            i += len(separator)
            start = i
            continue
        i += 1
    if depth != 0:
        raise ValueError(f"unbalanced brackets in: {text}")
    parts.append(text[start:])
    return parts


@functools.lru_cache(maxsize=None)
def compile_template(text):
    """Turns a template into a tuple of nodes: str, ('alt', options) or ('slot', name, modifier)."""
    nodes, literal, i = [], "", 0
    while i < len(text):
        c = text[i]
        if c not in "[{":
            literal += c
            i += 1
            continue
        if literal:
            nodes.append(literal)
            literal = ""
        depth, j = 0, i
        while True:
            depth += text[j] in "[{"
            depth -= text[j] in "]}"
            if depth == 0:
                break
            j += 1
        inner = text[i + 1 : j]
        if c == "[":
            nodes.append(("alt", tuple(compile_template(o) for o in split_top(inner, "|"))))
        elif inner.startswith("a:"):
            nodes.append(("slot", inner[2:], "a"))
        elif inner.startswith("^a:"):
            nodes.append(("slot", inner[3:], "A"))
        elif inner.startswith("^"):
            nodes.append(("slot", inner[1:], "^"))
        elif inner.endswith("~"):
            nodes.append(("slot", inner[:-1], "~"))
        else:
            nodes.append(("slot", inner, ""))
        i = j + 1
    if literal:
        nodes.append(literal)
    return tuple(nodes)


def article(word):
    return ("an " if VOWEL_SOUND.match(word) else "a ") + word


def modify(word, modifier):
    if modifier == "a":
        return article(word)
    if modifier == "A":
        return article(word).capitalize() if word.islower() else "A" + article(word)[1:]
    if modifier == "^":
        return word[:1].upper() + word[1:]
    if modifier == "~":
        return word[:1].lower() + word[1:]
    return word


class Grammar:
    """Word classes by name; each class is a list of templates."""

    def __init__(self, *files):
        self.classes = {}
        for name in files:
            self._read(TEXT / name)

    def _read(self, path):
        options = None
        for line in path.read_text().splitlines():
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            if re.fullmatch(r"\[\w+\]", line):
                options = self.classes.setdefault(line[1:-1], [])
                continue
            options += [o.strip().replace("\\n", "\n") for o in split_top(line, " | ")]

    def write(self, template, rng, bound):
        """One random expansion of `template`."""
        out = []
        self._expand(compile_template(template), rng, bound, out)
        return "".join(out)

    def _expand(self, nodes, rng, bound, out):
        for node in nodes:
            if node.__class__ is str:
                out.append(node)
            elif node[0] == "alt":
                options = node[1]
                self._expand(options[int(rng.random() * len(options))], rng, bound, out)
            else:
                word = bound.get(node[1])
                if word is None:
                    word = self.pick(node[1], rng, bound)
                out.append(modify(word, node[2]) if node[2] else word)

    def pick(self, name, rng, bound):
        """A random option of a class, expanded."""
        options = self.classes[name]
        return self.write(options[int(rng.random() * len(options))], rng, bound)

    def regex(self, template, bound):
        """A regular expression for all expansions; `bound` maps slot names to expressions."""
        return self._regex_nodes(compile_template(template), bound)

    def _regex_nodes(self, nodes, bound):
        out = []
        for node in nodes:
            if node.__class__ is str:
                out.append(re.escape(node))
            elif node[0] == "alt":
                out.append("(?:" + "|".join(self._regex_nodes(o, bound) for o in node[1]) + ")")
            else:
                out.append(self._regex_slot(node[1], node[2], bound))
        return "".join(out)

    def _regex_slot(self, name, modifier, bound):
        if name in bound:
            body = bound[name]
        else:
            options = sorted({self.regex(o, bound) for o in self.classes[name]})
            body = "(?:" + "|".join(options) + ")"
        if modifier in ("a", "A"):
            return "[Aa]n? " + body
        if modifier in ("^", "~"):
            return "(?i:" + body + ")"
        return body


SENTENCE_END = re.compile(r'(?<=[.!?])(?:"?)(?= |\n|$)')


def sentences(text):
    """Splits running text into sentences; a closing quotation mark stays with its sentence."""
    result = []
    for paragraph in text.split("\n"):
        start = 0
        for match in SENTENCE_END.finditer(paragraph):
            rest = paragraph[match.end() :].lstrip()
            if rest and not (rest[0].isupper() or rest[0] in '"0123456789'):
                continue
            result.append(paragraph[start : match.end()].strip())
            start = match.end()
        if paragraph[start:].strip():
            result.append(paragraph[start:].strip())
    return [s for s in result if s]


def template_sentences(template):
    """The sentences of a template; brackets never hold a sentence's end.

    A slot after a full stop begins a sentence; after a closing quotation mark it does so only if it
    is written with a capital letter ("Who is there?" {he} asked).
    """
    masked, depth = [], 0
    for i, c in enumerate(template):
        if c in "[{" and depth == 0:
            quoted = template[:i].endswith('" ')
            masked.append(
                "x"
                if quoted and not re.match(r"\^|(H|F|E|He|Him|His)}", template[i + 1 :])
                else "X"
            )
        else:
            masked.append("x" if depth or c in "[{" else c)
        depth += c in "[{"
        depth -= c in "]}"
    masked = "".join(masked)
    pieces, position = [], 0
    for sentence in sentences(masked):
        begin = masked.index(sentence, position)
        position = begin + len(sentence)
        pieces.append(template[begin:position])
    return pieces
