"""Reads C++ as this project formats it: functions with their sizes, comments and strings away."""

import re
from dataclasses import dataclass

STRIP = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', re.S)


@dataclass
class Function:
    name: str
    parameters: int
    line: int     # of its opening brace
    device: bool  # a kernel body, which may be longer
    lines: int = 0
    nesting: int = 0


def code_only(text):
    """The text with comments and literals blanked, line by line as before."""
    def blank(match):
        kept = re.sub(r'[^\n]', ' ', match.group())
        return '""' + kept[2:] if match.group()[0] in '"R' and len(kept) >= 2 else kept
    return STRIP.sub(blank, text)


def close_of(text, open_at):
    """Index after the bracket that closes the one at open_at."""
    depth = 0
    for i in range(open_at, len(text)):
        depth += (text[i] in '([{') - (text[i] in ')]}')
        if depth == 0:
            return i + 1
    return len(text)


def parameters_of(head):
    """Name and number of parameters of the function whose definition starts with `head`."""
    head = re.sub(r'__attribute__\s*\(\(.*?\)\)|template\s*<[^()]*>\s', '', head, flags=re.S)
    match = re.search(r'(operator\s*\S+?|[~\w:]+)\s*\(', head)
    if not match:
        return '', 0
    inner = head[match.end():close_of(head, match.end() - 1) - 1]
    if match.group(1) in ('TEST', 'TEST_F', 'TEST_P'):
        return '.'.join(part.strip() for part in inner.split(',')), 0
    depth, count = 0, 1 if inner.strip() not in ('', 'void') else 0
    for c in inner:
        depth += (c in '(<[{') - (c in ')>]}')
        count += c == ',' and depth == 0
    return match.group(1), count


def opens_initialiser(head):
    """Whether a brace after `head` starts a value, as in `b_{2}`, `= {` or `f({`: before a body
    there is a blank, and no operator."""
    return bool(re.search(r'[\w>\]]$', head) or re.search(r'[=(,{]$', head.rstrip()))


def opens_function(head):
    return '(' in head and not re.match(
        r'\s*(if|for|while|switch|catch|do|else|try|extern|namespace)\b', head)


def functions(text):
    """Every function defined at namespace or class level, in order of its end."""
    code = re.sub(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', lambda m: re.sub(r'[^\n]', ' ', m.group()),
                  code_only(text), flags=re.M)
    found, stack, head_from = [], [], 0  # the stack: 'scope', 'value', 'block' or a Function
    for i, c in enumerate(code):
        if c == '{':
            head = code[head_from:i]
            inside = next((s for s in stack if isinstance(s, Function)), None)
            if opens_initialiser(head):
                stack.append('value')
                continue  # the statement goes on after it
            if inside:
                stack.append('block')
                inside.nesting = max(inside.nesting, stack.count('block'))
            elif opens_function(head):
                line = code.count('\n', 0, i) + 1
                stack.append(Function(*parameters_of(head), line, '__global__' in head))
            else:
                stack.append('scope')
            head_from = i + 1
        elif c == '}' and stack:
            top = stack.pop()
            if top == 'value':
                continue
            if isinstance(top, Function):
                top.lines = code.count('\n', 0, i) + 2 - top.line
                found.append(top)
            head_from = i + 1
        elif c == ';' and 'value' not in stack:
            head_from = i + 1
    return found
