#!/usr/bin/python3
"""Writes tests/testdata/grammar/lark_cases.json: grammars, and texts that the package lark judged.

    make_lark_cases.py [--check PROGRAM COUNT]    needs the package lark of PyPI

Lark judges with its Earley parser and the lexer `dynamic_complete`, which accepts a text if any
way to cut it into terminals derives it. Texts are drawn from the grammar, or given beside it, and
changed a little. With --check, PROGRAM (judge_texts) judges COUNT texts of other random grammars
instead, and every difference is printed; texts that it draws from its masks must be accepted.
"""

import json
import random
import subprocess
import sys
from pathlib import Path

import lark

OUT = Path(__file__).resolve().parents[2] / 'testdata/grammar/lark_cases.json'

CALCULATOR = '''
// the calculator of Lark's documentation, by its meaning
?start: sum | NAME "=" sum -> assign
?sum: product
    | sum "+" product -> add
    | sum "-" product -> sub
?product: atom
    | product "*" atom -> mul
    | product "/" atom -> div
?atom: NUMBER -> number
     | "-" atom -> neg
     | NAME -> var
     | "(" sum ")"
%import common.CNAME -> NAME
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
'''

JSON = r'''
?start: value
?value: object | array | STRING | NUMBER | "true" | "false" | "null"
array: "[" [value ("," value)*] "]"
object: "{" [pair ("," pair)*] "}"
pair: STRING ":" value
%import common.ESCAPED_STRING -> STRING
%import common.SIGNED_NUMBER -> NUMBER
%import common.WS
%ignore WS
'''

GRAMMARS = [  # a grammar, and texts near which others are drawn
    (CALCULATOR, ['1', 'a = 2 * (3.5 + b)', '-x', '1 - 2 - 3 / 4', '(1', '.5e-3', '7.', ' 1 ',
                  'a==1', '--1', '1+', '2e5 * _a1']),
    (JSON, ['{}', '[1, -2.5e3, "a"]', '{"a": [true, null], "b\\"": {}}', '"\\\\"', '"\\"', '[,]',
            ' [ ] ', '{"a" 1}', '01', '-.5', '"a" "b"', '"a\nb"']),
    ('start: "SELECT"i columns "from"i NAME\ncolumns: NAME ("," NAME)*\nNAME: /[a-z_]+/i\n'
     '%ignore " "', ['select a FROM b', 'Select a, B from c', 'selecta from b',
                     'select from from x', 'select a,from b', ' SELECT a fromb ']),
    ('start: A~2 B~1..3 "c"~0..1\nA: "a"\nB.2: "b" | "d".."f"', [
        'aab', 'aabdfc', 'ab', 'aaebb', 'aac', 'aabbbb', 'aagc']),
    ('start: item+\n!item.5: "x" /[0-9]+/ -> number\n | "y" [WORD] -> word\nWORD: LETTER+\n'
     'LETTER: "a".."z"\n', ['x1', 'x12y', 'yab', 'yx3', 'x', 'y y', 'yaby', 'x1x2yq']),
    ('start: a\n_x: "," // dropped from trees\na: [a _x] "q"\n', ['q', 'q,q,q', 'q,', ',q', 'qq']),
    ('start: list?\nlist: list? "i" | (list ";") "j"\n', [
        '', 'i', 'iii', 'i;j', 'i;ji', ';j', 'ij']),
    ('start:\n  | "x" start "y"', ['', 'xy', 'xxyy', 'xyx', 'xxy']),
    ('start: NAME NAME?\nNAME: /[a-z]+/\nNUMBER: /[0-9]/', ['ab', 'a', 'a1', '']),
    (r'start: "\"" /[^"\\]/* "\"" | "\x41\u00e9\U0001F600\t\\"',
     ['"abc"', '""', 'A\u00e9\U0001F600\t\\', '"a\\b"', '"\u4e16"']),
    ('start: block\nblock: "{" (block | LINE)* "}"\nLINE: /[a-z ]+;/s\n%ignore /[ \\n]/\n'
     '%ignore COMMENT LF\n%import common.CPP_COMMENT -> COMMENT\n%import common.LF\n',
     ['{}', '{ab c;{} x; }', '{ // note\n a; }', '{a}', '{{}', '{ab; ; }', '// x\n{}']),
    ('start: /a.c/s "-" /a.c/ /[k-m]/i\n', ['abc-axcK', 'a\nc-abcm', 'abc-a\nck', 'abc-abcj']),
    ('%import common (INT, SIGNED_INT, DECIMAL, FLOAT, SIGNED_FLOAT, HEXDIGIT, DIGIT, LF, CR)\n'
     'start: "i" INT | "s" SIGNED_INT | "d" DECIMAL | "f" FLOAT | "g" SIGNED_FLOAT | "h" HEXDIGIT+'
     ' | "n" DIGIT | "l" LF | "c" CR\n',
     ['i12', 's-3', 's+3', 'd.5', 'd5.', 'd5', 'd1.25', 'f1e5', 'f1.5E-2', 'f12', 'g-.5e+1',
      'hfF09', 'hg', 'n7', 'n77', 'l\n', 'c\r', 'i-1', 'f1.e2']),
    ('%import common (LCASE_LETTER, UCASE_LETTER, LETTER, WORD, NEWLINE, SH_COMMENT, C_COMMENT)\n'
     '%import common.SQL_COMMENT\nstart: "l" LCASE_LETTER | "u" UCASE_LETTER | "b" LETTER'
     ' | "w" WORD | "n" NEWLINE | "s" SH_COMMENT | "c" C_COMMENT | "q" SQL_COMMENT\n',
     ['la', 'lA', 'uA', 'ua', 'bQ', 'wabC', 'wa1', 'n\n', 'n\r\n\n', 'n\r', 's#a b', 's#a\n',
      'c/**/', 'c/* a\n* / */', 'c/*/', 'c/* */ */', 'c/***/', 'q-- a', 'q-a', 'q--']),
    ('start: ("a" | "b"\n  | "c")+\n', ['abc', 'd', 'cab', '']),
]

WORDS = ['a', 'b', 'ab', 'if', 'x', '+', ',', '(', ')', '\u00e9']
REGEXES = [('/[a-c]+/', 'abc'), ('/[0-9]/', '0159'), ('/x[yz]/', None), ('/[^a-y]/', 'z,('),
           ('/[ab]{2}/', None)]


class Maker:
    """A random grammar, and texts of it."""

    def __init__(self, rng):
        self.rng = rng
        self.num_rules = rng.randint(1, 4)
        self.terminals = {f'T{i}': self.terminal() for i in range(3)}
        self.ignore = rng.choice(['', '', '/[ ]/', 'WS'])
        self.rules = [self.rule(i) for i in range(self.num_rules)]

    def terminal(self):
        kind = self.rng.randint(0, 3)
        if kind == 0:
            text, chars = self.rng.choice(REGEXES)
            draws = {'/x[yz]/': ['xy', 'xz'], '/[ab]{2}/': ['ab', 'ba', 'aa']}.get(text)
            return ('token', text, draws or list(chars) + ([chars[:2]] if '+' in text else []))
        if kind == 1:
            return ('token', '"a".."d"', list('abcd'))
        return self.literal()

    def literal(self):
        word = self.rng.choice(WORDS)
        if word.isascii() and word.isalpha() and self.rng.random() < 0.3:
            return ('token', f'"{word}"i', [word, word.upper(), word.title()])
        return ('token', f'"{word}"', [word])

    def token(self):
        if self.rng.random() < 0.4:
            return ('terminal', self.rng.choice(list(self.terminals)))
        return self.literal()

    def item(self, index, depth):
        kind = self.rng.randint(0, 9)
        if kind <= 4 or depth > 2:
            return self.token()
        if kind == 5 and index + 1 < self.num_rules:
            return ('rule', self.rng.randint(index + 1, self.num_rules - 1))
        if kind == 6:  # any rule behind a token, so that no rule begins with itself
            return ('sequence', [self.literal(), ('rule', self.rng.randrange(self.num_rules))])
        if kind == 7:
            return ('choice', [self.sequence(index, depth + 1) for _ in range(2)])
        low, high, text = self.rng.choice([(0, 1, '?'), (0, 9, '*'), (1, 9, '+'), (2, 2, '~2'),
                                           (1, 3, '~1..3')])
        return ('repeat', self.item(index, depth + 1), low, high, text)

    def sequence(self, index, depth):
        return ('sequence', [self.item(index, depth) for _ in range(self.rng.randint(1, 3))])

    def rule(self, index):
        parts = [self.sequence(index, 0) for _ in range(self.rng.randint(1, 3))]
        if self.rng.random() < 0.4:
            again = ('rule', index)
            if self.rng.random() < 0.4:
                again = ('repeat', ('sequence', [again, self.literal()]), 0, 1, '?')
            parts.append(('sequence', [again, self.token(), self.item(index, 1)]))
        self.rng.shuffle(parts)
        return ('choice', parts)

    @staticmethod
    def name(index):
        return f'r{index}' if index else 'start'

    def text(self, expr):
        kind = expr[0]
        if kind in ('token', 'terminal'):
            return expr[1]
        if kind == 'rule':
            return self.name(expr[1])
        if kind == 'sequence':
            return ' '.join(self.text(part) for part in expr[1])
        if kind == 'choice':
            return '(' + ' | '.join(self.text(part) for part in expr[1]) + ')'
        return '(' + self.text(expr[1]) + ')' + expr[4]

    def source(self):
        lines = [f'{self.name(i)}: {self.text(rule)[1:-1]}' for i, rule in enumerate(self.rules)]
        lines += [f'{name}: {expr[1]}' for name, expr in self.terminals.items()]
        if self.ignore == 'WS':
            lines.append('%import common.WS')
        if self.ignore:
            lines.append(f'%ignore {self.ignore}')
        return '\n'.join(lines) + '\n'

    def draw(self, expr, depth=0):
        kind = expr[0]
        if depth > 40:
            return ''  # no text of the grammar, perhaps; Lark judges
        if kind == 'terminal':
            return self.draw(self.terminals[expr[1]], depth)
        if kind == 'token':
            gap = ' ' if self.ignore and self.rng.random() < 0.2 else ''
            return self.rng.choice(expr[2]) + gap
        if kind == 'rule':
            return self.draw(self.rules[expr[1]], depth + 1)
        if kind == 'sequence':
            return ''.join(self.draw(part, depth + 1) for part in expr[1])
        if kind == 'choice':
            return self.draw(self.rng.choice(expr[1]), depth + 1)
        times = self.rng.randint(expr[2], min(expr[3], expr[2] + 2))
        return ''.join(self.draw(expr[1], depth + 1) for _ in range(times))


def change(text, rng):
    chars = list(text)
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        at = rng.randint(0, len(chars))
        kind = rng.randint(0, 2)
        if kind == 0:
            chars.insert(at, rng.choice('abxy01 +,("\n\u00e9'))
        elif kind == 1 and at < len(chars):
            del chars[at]
        elif at < len(chars):
            chars[at] = rng.choice('abfiz9 ).-')
    return ''.join(chars)


class Judge:
    def __init__(self, source):
        self.parser = lark.Lark(source, parser='earley', lexer='dynamic_complete')

    def accepts(self, text):
        """None where Lark's parser fails by itself, as it does on some ambiguous texts."""
        try:
            self.parser.parse(text)
        except lark.exceptions.UnexpectedInput:
            return False
        except RuntimeError:
            return None
        return True


def case_of(source, drawn):
    judge = Judge(source)
    texts = sorted(set(text for text in drawn if len(text) < 40))
    judged = [[text, judge.accepts(text)] for text in texts]
    return {'kind': 'lark', 'source': source, 'texts': [t for t in judged if t[1] is not None]}


def random_cases(rng, count, per_grammar):
    cases, texts = [], 0
    while texts < count:
        maker = Maker(rng)
        drawn = [change(maker.draw(maker.rules[0]), rng) for _ in range(per_grammar)]
        try:
            cases.append(case_of(maker.source(), drawn))
        except lark.exceptions.GrammarError:  # such as the same alternative twice
            continue
        texts += len(cases[-1]['texts'])
    return cases


def check_walks(program, cases, per_grammar):
    """Texts that the program draws from its masks must be accepted."""
    run = subprocess.run([program, '--walks', str(per_grammar)], input=json.dumps(cases), text=True,
                         stdout=subprocess.PIPE, check=False)
    judges, count, wrong = {}, 0, 0
    for line in run.stdout.split('\n')[:-1]:
        source, text = json.loads(line)
        if len(text) > 60:
            continue
        judge = judges.setdefault(source, None) or Judge(source)
        judges[source] = judge
        count += 1
        if judge.accepts(text) is False:
            wrong += 1
            print('not accepted', repr(source), repr(text))
    print(f'{count} texts drawn from masks, {wrong} wrong')
    return wrong + (0 if count else 1)


def main():
    if sys.argv[1:2] == ['--check']:
        cases = random_cases(random.Random(2), int(sys.argv[3]), 20)
        run = subprocess.run([sys.argv[2]], input=json.dumps(cases), text=True, check=False)
        accepted = sum(judged for case in cases for _, judged in case['texts'])
        print(f'{len(cases)} grammars, {sum(len(c["texts"]) for c in cases)} texts, '
              f'{accepted} of them accepted')
        return run.returncode + check_walks(sys.argv[2], cases, 4)
    rng = random.Random(1)
    cases = [case_of(source, texts + [change(rng.choice(texts), rng) for _ in range(12)])
             for source, texts in GRAMMARS]
    cases += random_cases(rng, 2500, 12)
    OUT.write_text('[\n' + ',\n'.join(json.dumps(case) for case in cases) + '\n]\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
