#!/usr/bin/python3
"""Writes tests/testdata/grammar/regex_cases.json: patterns, and texts as Python judges them.

    make_regex_cases.py [--check PROGRAM COUNT]

Texts are drawn from the pattern and changed a little. Python's `re` judges them with re.ASCII. A
case in GBNF stands beside a pattern of the same texts. With --check, PROGRAM (judge_texts) judges
COUNT texts of random patterns instead, and every difference is printed.
"""

import json
import random
import re
import subprocess
import sys
from pathlib import Path

try:
    import re._parser as sre_parse  # Python 3.11
except ImportError:
    import sre_parse

OUT = Path(__file__).resolve().parents[2] / 'testdata/grammar/regex_cases.json'

PATTERNS = [
    r'abc', r'a|bc|', r'(?:ab)*', r'(ab|a)(bc|c)?', r'a{3}', r'a{2,}', r'a{0,2}b', r'a{,', r'x{a}',
    r'[a-f0-9]{8}-[a-f0-9]{4}', r'[^a-c]+', r'[a\-z]', r'[-a]', r'[a-]', r'[\d_]+', r'[^\W\d]+',
    r'\d{4}-(0[1-9]|1[0-2])-([0-2]\d|3[01])', r'\w+@\w+\.(com|org)', r'\s*\S+\s*', r'.', r'.*x.*',
    r'(a|ab)*c', r'\x41\u00e9', r'[\u4e00-\u9fff]+', r'[é-ü]?',
    r'\t\n\r\f\v\0', r'\.\*\+\?\(\)\[\]\{\}\|\^\$\\\/', r'a+?b*?c??',
    r'(?P<year>\d\d)(?P<month>\d)',
    r'^abc$', r'^a|b$', r'\D\S\W', r'[^\n]*', r'😀+', r'([01]?\d|2[0-3]):[0-5]\d', r'a{20}',
    r'[ab]{17,19}c?',
    r'(ab){18,}', r'.{0,30}z', r'[^"\\]{1,25}', r'(a{1,20}b){2}',
    r'-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?',
    r'((((((a))))))', r'(?:(?:a|b)(?:c|d))+', r'a]b}', r'[\]\[]', r'[\^a]', r'(|a)b', r'()',
    r'[a-zA-Z_]\w{0,20}',
    r'x?', r'[\s\S]', r'[\w.]+', r'(\+|-)?\d', r'[+\-*/]',
]

AMBIGUOUS = [  # patterns on which `re` takes exponential time, and others of the same texts
    (r'(a*)*b', r'a*b'), (r'(a|a)*', r'a*'), (r'(x+x+)+y', r'xx+y'),
    (r'(a?){30}a{20}', r'a{20,50}'),
]

GBNF = [  # a grammar, and a pattern of the same texts
    ('root ::= "a" | "b" "c"', r'a|bc'),
    ('# comment\nroot ::= item ("," item)* # more\nitem ::= [a-z]+ | [0-9]\n',
     r'([a-z]+|[0-9])(,([a-z]+|[0-9]))*'),
    ('root ::= (\n  "x" |\n  "y"\n)+ end\nend ::= [^xy\\n]', r'[xy]+[^xy\n]'),
    ('root ::= "\\"" [^"\\\\]* "\\""', r'"[^"\\]*"'),
    ('root ::= a{2} b{1,} c{0,2} d{,3}\na ::= "a"\nb ::= "b"\nc ::= "c"\nd ::= "d"',
     r'aab+c{0,2}d{0,3}'),
    ('root ::= "\\x41" "\\u00e9" "\\U0001F600" "\\t\\n"', 'A\u00e9\U0001F600\t\n'),
    ('root ::= . "é" [à-ü]?', r'(.|\n)é[à-ü]?'),
    ('root ::= "" | "a" root', r'a*'),
    ('root   ::= ws "x" ws\nws     ::= ([ \\t\\n] ws)?', r'[ \t\n]*x[ \t\n]*'),
    ('root ::= [a\\-z] [\\]\\[^]', r'[a\-z][\]\[^]'),
    ('root ::= one-two_3?\none-two_3 ::= ("a"? "b")+', r'((a?b)+)?'),
    ('root ::= "a"?* "b"', r'(a?)*b'),
]


def draw(parsed, rng):
    """A text of a parsed pattern."""
    out = []
    for op, arg in parsed:
        name = str(op)
        if name == 'LITERAL':
            out.append(chr(arg))
        elif name == 'NOT_LITERAL':
            out.append(rng.choice('ab1 \u00e9\n'))
        elif name == 'ANY':
            out.append(rng.choice('axz0 \u4e16'))
        elif name == 'IN':
            out.append(draw_class(arg, rng))
        elif name == 'BRANCH':
            out.append(draw(rng.choice(arg[1]), rng))
        elif name == 'SUBPATTERN':
            out.append(draw(arg[3], rng))
        elif name in ('MAX_REPEAT', 'MIN_REPEAT'):
            low, high, part = arg
            high = min(int(high), low + rng.choice([0, 1, 3, 25]))
            out.extend(draw(part, rng) for _ in range(rng.randint(low, max(low, high))))
    return ''.join(out)


def draw_class(members, rng):
    op, arg = rng.choice(members)
    name = str(op)
    if name == 'LITERAL':
        return chr(arg)
    if name == 'RANGE':
        return chr(rng.randint(*arg))
    if name == 'NEGATE':
        return rng.choice('aZ5-_ \u00e9')
    return {'CATEGORY_DIGIT': '7', 'CATEGORY_WORD': 'w', 'CATEGORY_SPACE': ' '}.get(str(arg), '!')


def change(text, rng):
    chars = list(text)
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        at = rng.randint(0, len(chars))
        kind = rng.randint(0, 2)
        if kind == 0:
            chars.insert(at, rng.choice('abcxyz019 -_.,"\\\n\u00e9\u4e16'))
        elif kind == 1 and at < len(chars):
            del chars[at]
        elif at < len(chars):
            chars[at] = rng.choice('abcxyz019 -_.,"\\\n\u00e9')
    return ''.join(chars)


def judge(pattern, text):
    # Line ends that only ECMAScript knows, and spaces that only it knows, are never drawn.
    return re.compile(pattern, re.ASCII).fullmatch(text) is not None


def texts_of(pattern, rng, count):
    parsed = sre_parse.parse(pattern, re.ASCII)
    texts = {change(draw(parsed, rng), rng) for _ in range(count)}
    return [[text, judge(pattern, text)] for text in sorted(texts)
            if '\r' not in text or '.' not in pattern]


def random_pattern(rng, depth=0, repeats=True):
    def atom(repeats):
        kind = rng.randint(0, 6 if depth < 3 else 4)
        if kind <= 2:
            return rng.choice(['a', 'b', 'c', 'ab', 'é', '0', r'\.'])
        if kind == 3:
            return rng.choice(['[abc]', '[^a]', '[a-c0-9]', r'[\w-]', '.'])
        if kind == 4:
            return rng.choice([r'\d', r'\w', r'\s', r'\S', r'\D'])
        return '(' + random_pattern(rng, depth + 1, repeats) + ')'
    parts = []
    for _ in range(rng.randint(1, 3)):
        # Nested quantifiers make `re` take exponential time.
        parts.append(atom(repeats) if not repeats or rng.random() < 0.6 else
                     '(?:' + atom(False) + ')' + rng.choice(
                         ['*', '+', '?', '{2}', '{1,3}', '{0,40}', '{38,}']))
    text = ''.join(parts)
    if rng.random() < 0.25 and depth < 3:
        return text + '|' + random_pattern(rng, depth + 1, repeats)
    return text


def main():
    rng = random.Random(1)
    if sys.argv[1:2] == ['--check']:
        cases, count = [], 0
        while count < int(sys.argv[3]):
            pattern = random_pattern(rng)
            texts = texts_of(pattern, rng, 40)
            count += len(texts)
            cases.append({'kind': 'regex', 'source': pattern, 'texts': texts})
        run = subprocess.run([sys.argv[2]], input=json.dumps(cases), text=True, check=False)
        print(f'{len(cases)} patterns, {count} texts')
        return run.returncode
    cases = [{'kind': 'regex', 'source': p, 'texts': texts_of(p, rng, 24)} for p in PATTERNS]
    cases += [{'kind': 'regex', 'source': a, 'texts': texts_of(p, rng, 24)} for a, p in AMBIGUOUS]
    cases += [{'kind': 'gbnf', 'source': g, 'texts': texts_of(p, rng, 24)} for g, p in GBNF]
    OUT.write_text('[\n' + ',\n'.join(json.dumps(case) for case in cases) + '\n]\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
