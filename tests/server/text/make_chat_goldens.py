#!/usr/bin/env python3
"""Makes tests/testdata/chat_templates/goldens.json: what jinja2 prints for templates of every style.

The environment is the one transformers renders chat templates in: a sandbox with trim_blocks and
lstrip_blocks, loop controls, its own tojson, and raise_exception. Templates are written here in the
manner of the families (Llama, Qwen, Mistral, ChatML, ...), then single expressions, then random
arrangements of white space and tags.

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
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class Raised(Exception):
    pass


def raise_exception(message):
    raise Raised(message)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


FAMILIES = {
    "chatml": """{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
""",
    "llama3": """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}""",
    "llama31": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message is taken out so that it can be placed first. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\\n\\n"}}
{%- endif %}
{{- "Knowledge until: December 2023\\n" }}
{{- "Today: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("No first user message for the tools") }}
    {%- endif %}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One tool call at a time") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {%- for arg_name, arg_val in tool_call.arguments | items %}
            {{- arg_name + '="' + arg_val + '"' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- endif %}
        {%- endfor %}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "mistral": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
""",
    "qwen25": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n\\n{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}\\n</tool_call><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "qwen3": """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
""",
    "gemma": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}""",
    "deepseek": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endfor -%}{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜><think>\\n'}}{% endif %}""",
    "zephyr": """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}""",
    "macros": """{%- macro render(role, content, end="<end>") -%}
<{{ role | upper }}>{{ content | trim }}{{ end }}
{%- endmacro -%}
{%- for message in messages -%}
{{ render(message.role, message.content) }}{{ render(content=message.content, role="x", end="") if loop.first }}
{% endfor -%}
{%- set text %}
  block {{ messages | length }}
{% endset -%}
{{ text }}|{% generation %}{{ messages[-1].content }}{% endgeneration %}
{% raw %}{{ not run }} {% if %}{% endraw %}
""",
}

CONVERSATIONS = [
    [("user", "Hello")],
    [("system", "  Be brief.\n"), ("user", "Hi there "), ("assistant", " Hello!\n"), ("user", "Naïve café? 世界 😀")],
    [("user", "a"), ("assistant", "<think>\nreason\n</think>\n\nanswer"), ("user", "b"), ("assistant", "<think>x</think>y")],
    [("user", "one"), ("user", "two")],
    [("system", "s"), ("user", "<tool_response>x</tool_response>"), ("assistant", "quote \" and \\ \t end"), ("tool", "42")],
    [("assistant", "")],
]

EXPRESSIONS = r"""
1 + 2 * 3 - 4
7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 / 2, 2 ** 10
7.5 // 2, 7.5 % 2, 1e3, 0.1 + 0.2, 1e16, 1e-5, 123456789.0, 2.0
1 - 2 + 3 - 4 + 5
-2 ** 2, - -2, +3, not 1, not not 1
'a' ~ 1 ~ none ~ true ~ 1.5
'a' + 'b' * 3 + 'c'
'x' 'y' "z"
"esc: \n \t \\ \' \" \x41 \u00e9 \U0001F600 \q"
1 == 1.0, true == 1, 'a' == "a", none == none, [1] == [1], {} == {}, 'a' == 1, undefined_x == undefined_y
1 < 2 < 3, 1 < 2 > 3, 'a' < 'b', [1, 2] < [1, 3], 'Z' < 'a'
1 in [1, 2], 'a' in 'cat', 'z' not in 'cat', 'k' in {'k': 1}, 3 not in [1]
true and 'x', false or 'y', 0 or none, 1 and 0, '' or [] or 'last'
'yes' if messages else 'no', 'a' if false, ('b' if false else 'c' if true else 'd')
(1 if true else 2) + 1
[1, 'two', none, true, 3.0, [4], {'k': 'v'}, (1,), (1, 2)]
{'a': 1, "b": {'c': [1, 2]}, 'q': "it's"}
messages[0]
messages[0].role, messages[0]['role'], messages[-1].role, messages[99] is defined, messages[0].nothing is defined
messages[0].role[0], messages[0].role[-1], messages[0]['role'][1:3], messages[0].role[::-1], messages[0].role[:-1], messages[0].role[::2]
messages[1:] | length, messages[:1] | length, messages[::-1] | map(attribute='role') | list, messages[5:2], messages[-2:-1]
[1,2,3,4,5][1:4:2], [1,2,3,4,5][::-2], [1,2,3][10:], 'héllo wörld'[1:7], 'héllo'[4], (1, 2, 3)[1:]
'  a b '|trim, ' xx '.strip(), 'xxaxx'.strip('x'), 'abcba'.lstrip('ab'), 'abcba'.rstrip('ab'), '\u00a0a\u2003'.strip(), 'xay'|trim('xy')
'a,b,,c'.split(','), ' a  b '.split(), 'a,b,c'.split(',', 1), 'a b c d'.split(None, 2), 'a,b,c'.rsplit(',', 1), 'abc'.split('z'), ''.split(','), ''.split()
'a\nb\r\nc\n'.splitlines(), 'a\n\nb'.splitlines(true)
'hello'.startswith('he'), 'hello'.endswith('lo'), 'hello'.startswith(('x', 'h')), 'hello'.find('l'), 'hello'.rfind('l'), 'hello'.find('z'), 'héllo'.find('l'), 'hello'.count('l')
'Hello World'.upper(), 'Hello World'.lower(), 'hello world'.title(), 'hELLO wORLD'.capitalize(), 'straße'|upper|lower, 'ÉCOLE'|lower, 'hello world'|title, 'ab cD'|capitalize
'aXbXc'.replace('X', '-'), 'aXbXc'.replace('X', '-', 1), 'aXbXc'|replace('X', '+'), 'abc'|replace('', '.'), 'é'.replace('', '|')
'12'.isdigit(), 'a1'.isalnum(), 'ab'.isalpha(), ' '.isspace(), ''.isdigit(), 'ab'.islower(), 'AB'.isupper(), 'a1'.isalpha()
'prefix-x'.removeprefix('prefix-'), 'x.txt'.removesuffix('.txt'), 'x'.removeprefix('y')
'-'.join(['a', 'b']), ['a', 1, none]|join(', '), messages|map(attribute='role')|join('|'), 'abc'|join('.'), messages|join(',', attribute='role')
'abc'|length, 'héllo'|length, messages|count, {'a': 1}|length, []|length, undefined_x|length
undefined_x|default('d'), none|default('d'), ''|default('d', true), 0|d(5, boolean=true), 'v'|default('d'), undefined_x|default
[3,1,2]|sort, ['b','A','c']|sort, ['b','A','c']|sort(case_sensitive=true), [3,1,2]|sort(reverse=true), messages|sort(attribute='role')|map(attribute='role')|list
[1,2,3]|reverse|list, 'abc'|reverse, [1,2,3]|first, [1,2,3]|last, 'abc'|first, [1,2,2,1]|unique|list, ['a','A']|unique|list
[1,2,3]|sum, [1,5,2]|max, [4,5,2]|min, -3|abs, 2.6|round, '42'|int, 'x'|int, '3.9'|int, 3.9|int, '2.5'|float, 'x'|int(7), 1|string, 2.5|string ~ 'x'
[1,2,3,4]|select('even')|list, [1,2,3,4]|reject('even')|list, [0,1,'',none]|select|list, messages|selectattr('role','equalto','user')|list|length, messages|rejectattr('role','==','user')|map(attribute='role')|list
['a','b']|map('upper')|list, ['a', ' b ']|map('trim')|join, [1, 2]|map('string')|list, messages|map(attribute='x', default='?')|list
{'b': 1, 'a': 2}|dictsort, {'b': 1, 'a': 2}|items|list, {'b': 1}.items()|list, {'b': 1}.keys()|list, {'b': 1}.values()|list, {'b': 1}.get('b'), {'b': 1}.get('x'), {'b': 1}.get('x', 0)
{'a': [1, {'b': none}], 'c': 'é"\n\u0001\t'}|tojson, [true, 1.5, 'x']|tojson, []|tojson, {}|tojson, 'ünï'|tojson, none|tojson
{'b': [1, 2], 'a': {'x': {}}, 'e': []}|tojson(indent=2), {'b': 1, 'a': 2}|tojson(sort_keys=true), {'a': [1, 2]}|tojson(separators=(',', ':'))
'line1\nline2\n\nline3'|indent, 'a\nb'|indent(2, true), 'a\n\nb'|indent(3, blank=true), 'a\nb'|indent('> ')
messages is defined, messages is iterable, messages is sequence, messages is mapping, messages[0] is mapping, 'a' is string, 1 is number, 1.0 is float, 1 is integer, true is boolean, true is integer, true is true, 1 is true, none is none, undefined_x is undefined, undefined_x is not defined
4 is even, 3 is odd, 4 is divisibleby 2, 4 is divisibleby(3), 1 is eq 1, 1 is ne 2, 1 is lt 2, 3 is ge 3, 'a' is in ['a'], 'x' is sameas 'y', 'ab' is lower, 'AB' is upper, none is sameas none
range(3)|list, range(1, 4)|list, range(5, 0, -2)|list, range(0)|list
namespace(a=1).a, dict(a=1, b='x'), namespace(a=1).zzz is defined
undefined_x, [undefined_x], undefined_x ~ 'a', undefined_x == none, undefined_x or 'e', undefined_x in ['a'], 'a' in undefined_x
bos_token + eos_token, pad_token, tools is none, tools is defined, documents
'%s' is string, 10 > 9, '10' > '9'
[[1, 2], [3]]|map('length')|list, [[1, 2], [3]]|map('first')|list, ['a']|first|upper
(messages|length) - 1, messages|length - 1, messages|length == 1, -messages|length
true is not none and not false, not messages is none, not 'a' in 'b'
messages[0].content|trim|upper + '!' , (messages[0].content|trim)[0], messages[0].content.strip().upper()
{'role': 'x'}.role, {'x-y': 1}['x-y'], {'a': {'b': {'c': 5}}}.a.b.c, [[1, [2, 3]]][0][1][-1], [1,2].0
'a' is in 'abc', [1, 2] is iterable, 'abc' is iterable, 5 is iterable, {} is sequence, 'x' is mapping
1_000 + 1, 0 == false, '' == false, [] == false, 1.5e2
""".strip().split("\n")

STATEMENTS = [
    "{% for i in range(5) %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for i in [1,2,3] %}{{ loop.previtem }}-{{ i }}-{{ loop.nextitem }} {{ loop.cycle('a', 'b') }} {% endfor %}",
    "{% for i in [] %}x{% else %}empty{% endfor %}|{% for i in [1] %}x{% else %}empty{% endfor %}",
    "{% for i in [1,2,3,4] if i is even %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}{% for k in {'x': 1} %}{{ k }}{% endfor %}{% for c in 'héy' %}[{{ c }}]{% endfor %}",
    "{% for a in [1,2] %}{% for b in [3,4] %}{{ a }}{{ b }}{{ loop.index }} {% endfor %}{{ loop.index }}|{% endfor %}",
    "{% for i in [1,2,3,4] %}{% if i == 3 %}{% break %}{% endif %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
    "{% set x = 0 %}{% for i in [1,2] %}{{ x }}{% set x = i %}{{ x }},{% endfor %}{{ x }}",
    "{% set x = 0 %}{% if true %}{% set x = 5 %}{% endif %}{{ x }}",
    "{% set ns = namespace(n=0, s='') %}{% for i in [1,2,3] %}{% set ns.n = ns.n + i %}{% set ns.s = ns.s ~ i %}{% endfor %}{{ ns.n }}{{ ns.s }}",
    "{% set a, b = 1, 'two' %}{{ a }}{{ b }}{% set t = (1, 2) %}{{ t }}{% set (c, d) = t %}{{ c + d }}",
    "{% set x %}  inner {{ 1 + 1 }}\n{% endset %}[{{ x }}]{{ x|length }}",
    "{% macro f(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}|{{ f(1, 3) }}|{{ f(c='z', a=0) }}|{{ f() }}|{{ f(1)|upper }}|{{ f(1) ~ '!' }}",
    "{% set g = 'global' %}{% macro f() %}{{ g }}{{ messages|length }}{% endmacro %}{% set g = 'later' %}{{ f() }}",
    "{% macro fact(n) %}{{ 1 if n <= 1 else n * fact(n - 1)|int }}{% endmacro %}{{ fact(5) }}",
    "{% macro out(x) %}{% for i in x %}<{{ i }}>{% endfor %}{% endmacro %}{% for j in [[1,2],[3]] %}{{ out(j) }}{{ loop.index }}{% endfor %}",
    "{% if 0 %}a{% elif '' %}b{% elif [] %}c{% elif none %}d{% elif undefined_x %}e{% else %}f{% endif %}",
    "{% if messages and messages[0].role == 'user' and not tools %}ok{% endif %}",
    "{{ raise_exception('stop: ' ~ messages|length) }}",
    "{% for m in messages %}{% if loop.first and m.role != 'nobody' %}{{ raise_exception('bad role ' + m.role) }}{% endif %}{% endfor %}",
    "{# comment #}a{#- strip -#}  b {# multi\nline #}\nc",
    "a{% raw %}{{ x }}{% raw %}{# #}{% endraw %}b{%- raw -%}  y  {%- endraw -%}  c",
    "{% for m in messages %}{{ loop.index }}. {{ m.role }}\n{% endfor %}\n\nend\n",
    "line\r\n{% if true %}\r\nx\r{% endif %}\r\n",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a': '}}'}['a'] }}{{ '%}' }}{{ \"{{\" }}",
    "{{- 1 -}} {{ -1 }}{{-1}} {{ 2 - -1 }}",
    "{% set messages = messages[1:] %}{{ messages|length }}{% for m in messages %}{{ m.role }}{% endfor %}",
    "{% set content = messages[0].content if messages[0].content is string else messages[0].content|join %}{{ content }}",
    "{% for m in messages|reverse %}{{ m.role }},{% endfor %}{% for m in messages|selectattr('role', 'in', ['user', 'tool']) %}{{ m.content }}{% endfor %}",
    "{% for i in range(3) %}{% for j in range(i) %}{{ i }}{{ j }} {% else %}none {% endfor %}{% endfor %}",
    "{% set x = [1, 2] + [3] %}{{ x }}{% set x = x + [x|length] %}{{ x }}{{ 'a' in x }}",
    "{% for m in messages %}{% set is_last = loop.last %}{% if is_last %}{{ m.role }}{% endif %}{% endfor %}{{ is_last is defined }}",
]

ERRORS = [
    "{{ undefined_x.y }}", "{{ undefined_x['y'] }}", "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ none + 'a' }}", "{{ 'a' < 1 }}", "{{ 1 // 0 }}",
    "{{ 5 % 0 }}", "{% for i in 5 %}{% endfor %}", "{{ unknown_function(1) }}", "{{ x | unknown_filter }}", "{{ x is unknown_test }}",
    "{% if %}{% endif %}", "{% for %}{% endfor %}", "{% endif %}", "{% if true %}", "{{ 1 + }}", "{{ (1 }}", "{{ 'abc }}", "{% unknown %}",
    "{{ [1, 2 }}", "{# open", "{{ messages.append(1) }}", "{% set x.y = 1 %}", "{% set messages.x = 1 %}", "{% raw %} x", "{{ 1 2 }}",
    "{{ messages[0].role.nothing() }}", "{% for a, b in [[1]] %}{% endfor %}", "{{ }}", "{{ undefined_x + 1 }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}",
    "{% for i in range(3) %}{% break %}{% endfor %}{% break %}", "{{ {'a' 1} }}", "{{ 'x'.startswith(1) }}",
]


def whitespace_templates(count):
    """Random arrangements of text, line ends and tags with every sign."""
    rng = random.Random(5)
    texts = ["a", " ", "  ", "\n", "\n\n", " \n ", "\t", "x y", " b", "c ", "\n  ", "  \n", ""]
    tags = ["{%{l} if true {r}%}T{%{l} endif {r}%}", "{{{l} 'o' {r}}}", "{#{l} note {r}#}", "{%{l} set v = 1 {r}%}",
            "{%{l} for i in [1,2] {r}%}\n  {{ i }}\n  {%{l} endfor {r}%}", "{%{l} if false {r}%}\n F {%{l} else {r}%}\n E {%{l} endif {r}%}",
            "{%{l} raw {q}%} {{ r }} \n{%{l} endraw {r}%}"]
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
    entry = {"name": name, "source": source, "messages": messages, "add_generation_prompt": add_generation_prompt}
    try:
        entry["output"] = env.from_string(source).render(
            messages=messages, tools=None, documents=None, add_generation_prompt=add_generation_prompt,
            bos_token=BOS, eos_token=EOS)
    except Raised as raised:
        entry["raised"] = str(raised)
    except Exception as error:  # syntax and type errors alike: only that there is one is compared
        entry["error"] = type(error).__name__
    return entry


def main():
    env = environment()
    cases = []
    for name, source in FAMILIES.items():
        for number, conversation in enumerate(CONVERSATIONS):
            for add_generation_prompt in (False, True):
                cases.append(case(env, f"{name}/{number}", source, conversation, add_generation_prompt))
    for number, line in enumerate(EXPRESSIONS):
        # Each expression alone, with a bar after it, then the line as one tuple.
        for part in split_top(line):
            cases.append(case(env, f"expression/{number}", "{{ " + part + " }}|", CONVERSATIONS[1], True))
        cases.append(case(env, f"expression/{number}", "{% set t = [" + line + "] %}{{ t }}", CONVERSATIONS[1], True))
    for number, source in enumerate(STATEMENTS):
        cases.append(case(env, f"statement/{number}", source, CONVERSATIONS[1], True))
    for number, source in enumerate(ERRORS):
        cases.append(case(env, f"error/{number}", source, CONVERSATIONS[1], True))
        assert "error" in cases[-1], (source, cases[-1])
    for number, source in enumerate(whitespace_templates(400)):
        cases.append(case(env, f"whitespace/{number}", source, CONVERSATIONS[0], True))
    with open(os.path.join(sys.argv[1], "goldens.json"), "w", encoding="utf-8") as out:
        json.dump(cases, out, ensure_ascii=False, indent=0)
        out.write("\n")
    print(len(cases), "cases,", sum("error" in c for c in cases), "errors,", sum("raised" in c for c in cases), "raised")


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
