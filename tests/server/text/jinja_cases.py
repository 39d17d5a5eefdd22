"""Sources of chat templates for make_chat_goldens.py: every filter, test and method with every kind
of value, and random expressions and statements. The same every time: all draws are seeded.

cases.json has the filters and methods with arguments, formats and literals.
"""

import itertools
import json
import os
import random

HERE = os.path.dirname(os.path.abspath(__file__))
with open(
    os.path.join(HERE, "../../testdata/chat_templates/cases.json"), encoding="utf-8"
) as cases_file:
    CASES = json.load(cases_file)
FILTERS_WITH, METHODS = CASES["filters"], CASES["methods"]

# Names of the variables that jinja_values() sets, and literals.
VALUES = [
    "word",
    "text",
    "empty",
    "number",
    "negative",
    "zero",
    "real",
    "yes",
    "nothing",
    "missing",
    "names",
    "numbers",
    "mixed",
    "pair",
    "table",
    "schema",
    "people",
    "no_items",
    "no_members",
    "range(4)",
    "table.items()",
    "words|map('upper')",
]
RECEIVERS = [
    "word",
    "text",
    "empty",
    "number",
    "missing",
    "names",
    "pair",
    "table",
    "words|map('upper')",
]
ARGUMENTS = ["'a'", "''", "2", "0", "-1", "none", "true", "1.5", "['a', 'b']", "names", "missing"]


def jinja_values():
    """The variables of the cases, as JSON."""
    return {
        "word": "Hello",
        "text": "  The quick\n\n  brown 'fox' <b>\u00e9t\u00e9 \u4e16\u754c</b>\t1 2\n",
        "empty": "",
        "number": 42,
        "negative": -7,
        "zero": 0,
        "real": 2.5,
        "yes": True,
        "nothing": None,
        "names": ["bob", "Alice", "carol", "alice"],
        "words": ["one", "Two", "three"],
        "numbers": [3, 1, 2, 2],
        "mixed": [1, "a", None, True, 2.0, [1], {"k": 1}],
        "pair": ["x", "y"],
        "table": {"b": 2, "a": 1, "C": "three", "items": [1]},
        "schema": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": 'A "city" & more', "enum": ["P", "Q"]},
                "days": {"type": ["integer", "null"], "minimum": 1},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["city"],
        },
        "people": [
            {"name": "Ann", "age": 30, "city": "Rome", "tags": ["x"]},
            {"name": "Bob", "age": 25, "city": "Oslo", "tags": []},
            {"name": "Cid", "age": 30, "city": "rome", "tags": ["x", "y"], "extra": None},
        ],
        "no_items": [],
        "no_members": {},
    }


FILTERS_PLAIN = """abs capitalize count default dictsort e escape first float forceescape int items
join last length list lower max min reverse round safe select reject sort string sum title tojson
trim unique upper indent""".split()


TESTS_PLAIN = (
    """defined undefined none string mapping iterable sequence number integer float boolean
true false callable even odd lower upper escaped""".split()
)
TESTS_WITH = """eq equalto ne lt le gt ge in sameas divisibleby lessthan greaterthan""".split()
OPERATORS = [
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "in",
    "not in",
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "~",
    "and",
    "or",
]


def systematic():
    """Every filter, test, operator and method with every kind of value."""
    for value, name in itertools.product(VALUES, FILTERS_PLAIN):
        yield f"{value}|{name}"
    rng = random.Random(1)
    for name in FILTERS_WITH:
        for value in rng.sample(VALUES, 11):
            yield f"{value}|{name}"
    for value, name in itertools.product(VALUES, TESTS_PLAIN):
        yield f"{value} is {name}"
    for value, name in itertools.product(VALUES, TESTS_WITH):
        for argument in rng.sample(ARGUMENTS + VALUES[:19], 3):
            yield f"{value} is {name}({argument})"
    for value, operator in itertools.product(VALUES[:20], OPERATORS):
        for other in rng.sample(VALUES[:20], 3):
            yield f"{value} {operator} {other}"
    for value, method in itertools.product(RECEIVERS, METHODS):
        yield f"{value}.{method}"
    for value, argument in itertools.product(VALUES, ARGUMENTS):
        yield f"{value}[{argument}]"
        yield f"{value}[{argument}:]"
    yield from CASES["formats"]
    yield from CASES["literals"]


class Expressions:
    """Random expressions."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def atom(self):
        return self.rng.choice(VALUES + ["1", "2", "'x'", "[1, 2]", "{'k': 'v'}", "('a', 1)"])

    def make(self, depth):
        rng = self.rng
        if depth == 0:
            return self.atom()
        kind = rng.randrange(12)
        one = self.make(depth - 1)
        if kind < 3:
            return f"({one})|{rng.choice(FILTERS_PLAIN + FILTERS_WITH)}"
        if kind < 5:
            return f"({one}).{rng.choice(METHODS)}"
        if kind == 5:
            return f"({one}) is {rng.choice(['', 'not '])}{rng.choice(TESTS_PLAIN)}"
        if kind < 8:
            return f"({one}) {rng.choice(OPERATORS)} ({self.make(depth - 1)})"
        if kind == 8:
            return f"({one}) if ({self.make(depth - 1)}) else ({self.atom()})"
        if kind == 9:
            return f"[{one}, {self.atom()}]"
        if kind == 10:
            return f"({one})[{rng.choice(ARGUMENTS + ['::-1', '1:', ':2', '0', '-2:'])}]"
        key = rng.choice(VALUES[:8] + ["'b'"] * 8)
        return f"{{'a': {one}, {key}: {self.atom()}}}"


LOOP_FIELDS = """loop.index
loop.index0
loop.revindex
loop.revindex0
loop.first
loop.last
loop.length
loop.previtem
loop.nextitem
loop.cycle('a', 'b')
loop.changed(x)
loop.depth0
loop.previtem is defined
',' if not loop.last
loop.nope
loop|length""".split("\n")
ITERABLES = {
    "k, v": ["table.items()", "table|dictsort", "table|items", "[(1, 2), (3, 4)]", "people"],
    "x, (y, z)": ["[(1, (2, 3)), (4, (5, 6))]", "numbers"],
    "x": """numbers|names|people|'abc'|range(3)|table|no_items|missing|nothing""".split("|")
    + ["words|map('upper')", "people|groupby('age')", "numbers|batch(2)", "pair"],
}


class Statements:
    """Random templates of statements."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.expressions = Expressions(seed)
        self.names = ["x", "y", "z"]

    def value(self):
        if self.rng.random() < 0.4:
            return self.rng.choice(self.names)
        return self.expressions.make(self.rng.randrange(2))

    def tag(self, inside):
        left, right = self.rng.choice(["", "-", ""]), self.rng.choice(["", "-", ""])
        return "{%" + left + " " + inside + " " + right + "%}"

    def text(self):
        return self.rng.choice(["a", "\n", " ", " b\n", "\n  ", "", "<c>"])

    def block(self, depth, in_loop):
        return "".join(self.statement(depth, in_loop) for _ in range(self.rng.randint(1, 3)))

    def statement(self, depth, in_loop):
        kinds = ["text", "print", "print", "set"]
        if depth:
            kinds += ["if", "for", "for", "macro", "setblock", "filter", "with", "call"]
            kinds += ["recursive", "ns", "generation"]
        if in_loop:
            kinds += ["break", "continue", "loop", "loop"]
        kind = self.rng.choice(kinds)
        if kind == "text":
            return self.text()
        if kind == "print":
            return "{{ " + self.value() + " }}"
        if kind in ("break", "continue"):
            when = ["loop.index == 2", "loop.last", "x == 1", "loop.first"]
            return "{% if " + self.rng.choice(when) + " %}" + self.tag(kind) + "{% endif %}"
        if kind == "loop":
            return "{{ " + self.rng.choice(LOOP_FIELDS) + " }}"
        return getattr(self, "make_" + kind)(depth, in_loop)

    def make_set(self, _depth, _in_loop):
        rng = self.rng
        if rng.random() < 0.2:
            names = f"{rng.choice(self.names)}, {rng.choice(self.names)}"
            return self.tag(f"set {names} = {self.value()}, {self.value()}")
        return self.tag(f"set {rng.choice(self.names)} = {self.value()}")

    def make_if(self, depth, in_loop):
        rng, tag = self.rng, self.tag
        out = tag(f"if {self.value()}") + self.block(depth - 1, in_loop)
        if rng.random() < 0.3:
            out += tag(f"elif {self.value()}") + self.block(depth - 1, in_loop)
        if rng.random() < 0.5:
            out += tag("else") + self.block(depth - 1, in_loop)
        return out + tag("endif")

    def make_for(self, depth, _in_loop):
        rng, tag = self.rng, self.tag
        target = rng.choice(["x", "y", "k, v", "x, (y, z)", "z"])
        head = f"for {target} in {rng.choice(ITERABLES.get(target, ITERABLES['x']))}"
        if rng.random() < 0.25:
            head += f" if {rng.choice(['x', 'y', 'loop', 'true', 'x is string', 'x != 2', 'v'])}"
        out = tag(head) + self.block(depth - 1, True)
        if rng.random() < 0.2:
            out += tag("else") + self.block(depth - 1, False)
        return out + tag("endfor")

    def make_macro(self, depth, _in_loop):
        rng, tag = self.rng, self.tag
        name = rng.choice(["m", "w"])
        parameters = rng.choice(["", "x", "x, y=2", "x=1, y='q'", "x, y=x"])
        body = self.block(depth - 1, False)
        body += rng.choice(["", "", "{{ varargs }}", "{{ kwargs }}", "{{ x }}|{{ y }}"])
        given = ["", "1", "1, 2", "x=3", "1, y=4", "1, 2, 3", "q=1", "*pair", "**{'x': 9}"]
        calls = "".join(
            "{{ " + name + "(" + rng.choice(given) + ") }}" for _ in range(rng.randint(1, 2))
        )
        return tag(f"macro {name}({parameters})") + body + tag("endmacro") + calls

    def make_setblock(self, depth, _in_loop):
        rng = self.rng
        head = f"set {rng.choice(self.names)}" + rng.choice(["", " | upper", " | trim | title"])
        return self.tag(head) + self.block(depth - 1, False) + self.tag("endset")

    def make_filter(self, depth, _in_loop):
        filters = ["upper", "trim", "replace('a', 'b')", "indent(2)|upper"]
        head = self.tag("filter " + self.rng.choice(filters))
        return head + self.block(depth - 1, False) + self.tag("endfilter")

    def make_with(self, depth, in_loop):
        head = self.tag(f"with x = {self.value()}, y = {self.value()}")
        return head + self.block(depth - 1, in_loop) + self.tag("endwith")

    def make_call(self, depth, _in_loop):
        rng, tag = self.rng, self.tag
        bodies = ["[{{ t }}{{ caller() }}]", "{{ caller(t) }}", "{{ t }}"]
        bodies.append("{% if caller is defined %}c{{ caller(1, 2) }}{% endif %}")
        out = tag("macro f(t='d')") + rng.choice(bodies) + tag("endmacro")
        call = rng.choice(["call", "call(x)", "call(x, y=5)"])
        out += tag(call + " f(" + rng.choice(["", "1", "t=x"]) + ")")
        return out + self.block(depth - 1, False) + tag("endcall")

    def make_recursive(self, _depth, _in_loop):
        tree = "[{'v': 1, 'c': [{'v': 2, 'c': []}, {'v': 3}]}, {'v': 4}]"
        shown = ["{{ n.v }}", "{{ loop.depth }}{{ n.v }}", "{{ loop.index }}/{{ loop.length }}"]
        return (
            "{%- for n in "
            + tree
            + " recursive %}"
            + self.rng.choice(shown)
            + "{% if n.c %}({{ loop(n.c) }}){% endif %}{% endfor %}"
        )

    def make_ns(self, depth, _in_loop):
        over = self.rng.choice(["numbers", "people", "names"])
        return (
            "{% set ns = namespace(c=0, l=[]) %}{% for x in " + over + " %}"
            "{% set ns.c = ns.c + loop.index %}{% set ns.l = ns.l + [x] %}"
            + self.block(depth - 1, True)
            + "{% endfor %}{{ ns.c }}{{ ns.l }}"
        )

    def make_generation(self, depth, _in_loop):
        return self.tag("generation") + self.block(depth - 1, False) + self.tag("endgeneration")


def random_expressions(count):
    expressions = Expressions(11)
    for _ in range(count):
        yield expressions.make(expressions.rng.randint(2, 3))


def random_statements(count):
    statements = Statements(17)
    for _ in range(count):
        yield statements.block(3, False)
