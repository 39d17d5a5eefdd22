"""English that a stranger reads once: the habits of comments and pages that a machine can refuse.

Subject, verb, object; the field's word for a thing. People's words for things, clauses that stand
where a noun belongs, and old-fashioned turns make a reader go back; CONTRIBUTING.md has the rule.
"""

import re

HABITS = [  # pattern, what to write instead
    (r"\b(nobody|somebody|anybody|everybody)('s)?\b", 'name the thing: no sequence, another rank'),
    (r'\b(whoever|whomever|whosoever|whatsoever)\b', 'name the thing that does it'),
    (r'\bfor the taking\b', 'reusable, free'),
    (r'\b(thereof|therein|whereof|wherein|hitherto|heretofore)\b', 'say which'),
    (r'\bbe it\b', 'or'),
    (r'\bof whom\b', 'name the thing'),
    (r'^ *(What|Who|Whose) [a-z](?!.*\?)(?!ould change our mind)',
     'begin with the thing that the sentence is about'),
]
PATTERNS = [(re.compile(pattern, 0 if 'What' in pattern else re.I), instead)
            for pattern, instead in HABITS]
COMMENT = {'.h': '//', '.cc': '//', '.cu': '//', '.cuh': '//', '.proto': '//', '.py': '#'}


def prose_lines(tree, path):
    """Line numbers and prose of a file: comments of sources, text of pages outside of code."""
    if path.endswith('.md'):
        fenced = False
        for number, line in enumerate(tree.lines(path), 1):
            fenced ^= line.startswith('```')
            if not fenced:
                yield number, re.sub(r'`[^`]*`', '', line)
        return
    mark = COMMENT[path[path.rindex('.'):]]
    for number, line in enumerate(tree.lines(path), 1):
        before, found, comment = line.partition(mark)
        if found and before.count('"') % 2 == 0 and before.count("'") % 2 == 0:
            yield number, comment


def plain_english(tree):
    for path in tree.code(*COMMENT, '.md'):
        if path.startswith(('tests/tidy/', 'models/')):  # the rules themselves; a model's stories
            continue
        for number, prose in prose_lines(tree, path):
            for pattern, instead in PATTERNS:
                match = pattern.search(prose)
                if match:
                    yield path, number, f'"{match.group()}": {instead}'


RULES = [plain_english]
