#!/usr/bin/env python3
"""Makes goldens.json in tests/testdata/chat_templates: what jinja2 prints for chat templates.

The environment is the one transformers renders chat templates in: a sandbox with trim_blocks and
lstrip_blocks, loop controls, its own tojson, and raise_exception. The *.jinja files there are
written in the manner of the families (Llama, Qwen, Mistral, ChatML, ...); snippets.json has single
expressions and statements; the rest are random arrangements of white space and tags.

usage: pip install jinja2==3.1.6; make_chat_goldens.py DIRECTORY
"""

import json
import os
import random
import sys

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

BOS, EOS = "<s>", "</s>"


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


def case(env, name, source, conversation, add_generation_prompt):
    messages = [{"role": role, "content": content} for role, content in conversation]
    entry = {
        "name": name,
        "source": source,
        "messages": messages,
        "add_generation_prompt": add_generation_prompt,
    }
    try:
        entry["output"] = env.from_string(source).render(
            messages=messages,
            tools=None,
            documents=None,
            add_generation_prompt=add_generation_prompt,
            bos_token=BOS,
            eos_token=EOS,
        )
    except Raised as raised:
        entry["raised"] = str(raised)
    except Exception as error:  # syntax and type errors alike: only that there is one is compared
        entry["error"] = type(error).__name__
    return entry


def read(*path):
    with open(os.path.join(sys.argv[1], *path), encoding="utf-8", newline="") as file:
        return file.read()


def main():
    env = environment()
    snippets = json.loads(read("snippets.json"))
    conversations = snippets["conversations"]
    cases = []
    for name in sorted(name for name in os.listdir(sys.argv[1]) if name.endswith(".jinja")):
        source = read(name)
        for number, conversation in enumerate(conversations):
            for add_generation_prompt in (False, True):
                cases.append(
                    case(env, f"{name}/{number}", source, conversation, add_generation_prompt)
                )
    for number, line in enumerate(snippets["expressions"]):
        # Each expression alone, with a bar after it, then the line as one tuple.
        for part in split_top(line):
            cases.append(
                case(env, f"expression/{number}", "{{ " + part + " }}|", conversations[1], True)
            )
        cases.append(
            case(
                env,
                f"expression/{number}",
                "{% set t = [" + line + "] %}{{ t }}",
                conversations[1],
                True,
            )
        )
    for number, source in enumerate(snippets["statements"]):
        cases.append(case(env, f"statement/{number}", source, conversations[1], True))
    for number, source in enumerate(snippets["errors"]):
        cases.append(case(env, f"error/{number}", source, conversations[1], True))
        assert "error" in cases[-1], (source, cases[-1])
    for number, source in enumerate(whitespace_templates(400)):
        cases.append(case(env, f"whitespace/{number}", source, conversations[0], True))
    with open(os.path.join(sys.argv[1], "goldens.json"), "w", encoding="utf-8") as out:
        json.dump(cases, out, ensure_ascii=False, indent=0)
        out.write("\n")
    print(
        len(cases),
        "cases,",
        sum("error" in c for c in cases),
        "errors,",
        sum("raised" in c for c in cases),
        "raised",
    )


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
