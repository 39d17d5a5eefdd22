#!/usr/bin/env python3
"""Writes tests/testdata/chat_templates/calls.json: answers with calls that transformers rendered.

The assistant's turn of each format of calls, as the families' published templates write it, is
rendered by transformers with calls that are drawn at random. The test beside this file reads it.

usage: pip install transformers jinja2; make_call_goldens.py
"""

import json
import random
import string
from pathlib import Path

from transformers.utils.chat_template_utils import render_jinja_template

OUT = Path(__file__).resolve().parents[2] / 'testdata/chat_templates/calls.json'
NAMES = ['get_weather', 'get_time', 'f']
CALLS = '{%- for call in messages[0].tool_calls %}{%- set f = call.function %}'
FORMATS = [  # the parser, the most calls of one answer, the turn
    ('hermes', 3, CALLS + '''{{- '\\n<tool_call>\\n{"name": "' + f.name + '", "arguments": ' }}
{{- f.arguments | tojson }}{{- '}\\n</tool_call>' }}{%- endfor %}'''),
    ('hermes', 3, CALLS + '''{{- '<tool_call>' }}{{- f | tojson }}{{- '</tool_call>\\n' }}
{%- endfor %}'''),
    ('llama3_json', 1, CALLS + '''{{- '{"name": "' + f.name + '", "parameters": ' }}
{{- f.arguments | tojson }}{{- '}' }}{%- endfor %}'''),
    ('mistral', 3, '''{{- '[TOOL_CALLS][' }}''' + CALLS + '''{%- set text = f | tojson %}
{{- text[:-1] + ', "id": "' + call.id + '"}' }}{%- if not loop.last %}{{- ', ' }}{%- endif %}
{%- endfor %}{{- ']' }}'''),
    ('mistral', 3, CALLS + '''{{- '[TOOL_CALLS]' + f.name + '[ARGS]' }}{{- f.arguments | tojson }}
{%- endfor %}'''),
]


def value(rng, depth=0):
    kind = rng.randint(0, 7 if depth < 2 else 4)
    if kind == 0:
        return rng.choice([True, False, None])
    if kind == 1:
        return rng.choice([0, -7, 123456, 1.5, -2e-7])
    if kind <= 4:
        letters = string.ascii_letters + ' {}[]":,\\/<>\n\t\u00e9\u4e16\U0001f600'
        return ''.join(rng.choice(letters) for _ in range(rng.randint(0, 20)))
    if kind == 5:
        return [value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    names = ['a', 'city', 'x y', '}"']
    return {rng.choice(names): value(rng, depth + 1) for _ in range(rng.randint(0, 3))}


def case(parser, most, turn, rng):
    calls = []
    for i in range(rng.randint(1, most)):
        arguments = {name: value(rng) for name in ('a', 'b')[:rng.randint(0, 2)]}
        function = {'name': rng.choice(NAMES), 'arguments': arguments}
        calls.append({'type': 'function', 'id': f'abcDEF12{i}', 'function': function})
    message = {'role': 'assistant', 'content': '', 'tool_calls': calls}
    texts, _ = render_jinja_template([[message]], chat_template=turn)
    return {'parser': parser, 'answer': texts[0],
            'calls': [[call['function']['name'], call['function']['arguments']] for call in calls]}


def main():
    rng = random.Random(3)
    cases = [case(*each, rng) for each in FORMATS for _ in range(25)]
    OUT.write_text('[\n' + ',\n'.join(map(json.dumps, cases)) + '\n]\n')


if __name__ == '__main__':
    main()
