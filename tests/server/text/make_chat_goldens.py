#!/usr/bin/env python3
"""Makes what jinja2 prints for chat templates, in tests/testdata/chat_templates.

The environment is the one transformers renders chat templates in: a sandbox with trim_blocks and
lstrip_blocks, loop controls, its own tojson, raise_exception and strftime_now, whose clock stands.

goldens.json: families/*.jinja, written in the manner of the model families, with every input of
chats.json (tools, documents, calls, parts, ...); snippets.json, single expressions and statements;
random arrangements of white space and tags.
expressions.json: the systematic and random cases of jinja_cases.py.

usage: pip install jinja2==3.1.6; make_chat_goldens.py DIRECTORY
"""

import datetime
import json
import os
import re
import random
import sys
import warnings

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

import jinja_cases

BOS, EOS = "<s>", "</s>"
NOW = datetime.datetime(2024, 7, 6, 15, 4, 9, 1234)
# Outputs that are not the same in every run, or that need integers of more than 64 bits.
UNSTABLE = re.compile(
    r"0x[0-9a-f]{6}|[0-9]{19}| object at |built-in method|<filter|<Macro|bound method"
    r"|<generator|generator object",
    re.I,
)


class Generation(Extension):
    """{% generation %} prints its body; transformers notes where it was."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_keep"), [], [], body).set_lineno(line)

    def _keep(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class Raised(Exception):
    pass


def raise_exception(message):
    raise Raised(message)


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def whitespace_templates(count):
    """Random arrangements of text, line ends and tags with every sign."""
    rng = random.Random(5)
    texts = ["a", " ", "  ", "\n", "\n\n", " \n ", "\t", "x y", " b", "c ", "\n  ", "  \n", ""]
    tags = [
        "{%{l} if true {r}%}T{%{l} endif {r}%}",
        "{{{l} 'o' {r}}}",
        "{#{l} note {r}#}",
        "{%{l} set v = 1 {r}%}",
        "{%{l} for i in [1,2] {r}%}\n  {{ i }}\n  {%{l} endfor {r}%}",
        "{%{l} if false {r}%}\n F {%{l} else {r}%}\n E {%{l} endif {r}%}",
        "{%{l} raw {q}%} {{ r }} \n{%{l} endraw {r}%}",
    ]
    out = []
    for _ in range(count):
        parts = []
        for _ in range(rng.randint(1, 5)):
            parts.append(rng.choice(texts))
            tag = rng.choice(tags)
            while "{l}" in tag:
                tag = tag.replace("{l}", rng.choice(["", "", "-", "+"]), 1)
            while "{r}" in tag:
                signs = ["", "", "-"] if tag.startswith("{{") else ["", "", "-", "+"]
                tag = tag.replace("{r}", rng.choice(signs), 1)
            tag = tag.replace("{q}", rng.choice(["", "-"]))
            parts.append(tag)
            parts.append(rng.choice(texts))
        out.append("".join(parts))
    return out


def render(env, source, variables):
    """["ok", text], ["raised", message] or ["error", type]; only the fact of an error counts."""
    try:
        return ["ok", env.from_string(source).render(**variables)]
    except Raised as raised:
        return ["raised", str(raised)]
    except Exception as error:
        return ["error", type(error).__name__]


def read(*path):
    with open(os.path.join(sys.argv[1], *path), encoding="utf-8", newline="") as file:
        return file.read()


def write(name, value):
    """One line for each case."""
    with open(os.path.join(sys.argv[1], name), "w", encoding="utf-8") as out:
        out.write("{\n")
        for number, (key, part) in enumerate(value.items()):
            out.write(("" if number == 0 else ",\n") + json.dumps(key) + ": ")
            if isinstance(part, list):
                lines = (json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in part)
                out.write("[\n" + ",\n".join(lines) + "\n]")
            else:
                out.write(json.dumps(part, ensure_ascii=False))
        out.write("\n}\n")


def chat_variables(chat):
    """What apply_chat_template gives a template."""
    given = {key: value for key, value in chat.items() if key != "kwargs"}
    variables = {"tools": None, "documents": None, "bos_token": BOS, "eos_token": EOS}
    return {**variables, **given, **chat.get("kwargs", {})}


def text_chat(conversation, add_generation_prompt):
    messages = [{"role": role, "content": content} for role, content in conversation]
    return {"messages": messages, "add_generation_prompt": add_generation_prompt}


def make_goldens(env):
    snippets = json.loads(read("snippets.json"))
    texts = [text_chat(chat, add) for chat in snippets["conversations"] for add in (False, True)]
    chats = texts + json.loads(read("chats.json"))
    sources, cases = [], []

    def add(name, source, chat):
        if source not in sources[-1:]:
            sources.append(source)
        cases.append(
            [name, len(sources) - 1, chat] + render(env, source, chat_variables(chats[chat]))
        )

    for name in sorted(os.listdir(os.path.join(sys.argv[1], "families"))):
        source = read("families", name)
        for chat in range(len(chats)):
            add(name, source, chat)
    for number, line in enumerate(snippets["expressions"]):
        # Each expression alone, with a bar after it, then the line as one tuple.
        for part in split_top(line):
            add(f"expression/{number}", "{{ " + part + " }}|", 3)
        add(f"expression/{number}", "{% set t = [" + line + "] %}{{ t }}", 3)
    for number, source in enumerate(snippets["statements"]):
        add(f"statement/{number}", source, 3)
    for number, source in enumerate(snippets["errors"]):
        add(f"error/{number}", source, 3)
        assert cases[-1][3] == "error", (source, cases[-1])
    for number, source in enumerate(whitespace_templates(400)):
        add(f"whitespace/{number}", source, 1)
    cases = [case for case in cases if not UNSTABLE.search(case[4])]
    write("goldens.json", {"chats": chats, "sources": sources, "cases": cases})
    return cases


def make_expressions(env):
    variables = jinja_cases.jinja_values()
    sources = ["{{ " + expression + " }}" for expression in jinja_cases.systematic()]
    sources += ["{{ " + expression + " }}" for expression in jinja_cases.random_expressions(1500)]
    sources += list(jinja_cases.random_statements(1500))
    cases, errors = [], 0
    for source in dict.fromkeys(sources):
        if "map('upper')|trim" in source:
            continue  # the text of a generator
        outcome = render(env, source, jinja_cases.jinja_values())
        if outcome[0] == "error":
            errors += 1
            if errors % 3 == 0:  # the commonest outcome, and the least telling
                cases.append([source])
        elif len(outcome[1]) < 400 and not UNSTABLE.search(outcome[1]):
            cases.append([source] + outcome)
    write("expressions.json", {"variables": variables, "cases": cases})
    return cases


def main():
    warnings.simplefilter("ignore")  # of constants that cannot be subscripted
    env = environment()
    print(len(make_goldens(env)), "chats,", len(make_expressions(env)), "expressions")


def split_top(line):
    """Splits at commas outside of brackets and strings."""
    parts, depth, quote, start = [], 0, None, 0
    position = 0
    while position < len(line):
        c = line[position]
        if quote:
            if c == "\\":
                position += 1
            elif c == quote:
                quote = None
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(line[start:position])
            start = position + 1
        position += 1
    parts.append(line[start:])
    return [part.strip() for part in parts]


if __name__ == "__main__":
    main()
