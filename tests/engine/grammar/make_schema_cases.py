#!/usr/bin/python3
"""Writes tests/testdata/grammar/schema_cases.json: schemas, and documents that jsonschema judged.

    make_schema_cases.py [--check PROGRAM COUNT]    needs the package python3-jsonschema

Documents are drawn from random schemas and changed a little. A schema here is narrower than the
standard in two points of docs/grammars.md, and so is the judgement: without
additionalProperties only declared members, and members in the order of the schema. With --check,
PROGRAM (judge_texts) judges COUNT documents of other schemas, and writes as many of its own, which
jsonschema judges.
"""

import copy
import datetime
import json
import random
import subprocess
import sys
from pathlib import Path

import jsonschema

OUT = Path(__file__).resolve().parents[2] / 'testdata/grammar/schema_cases.json'
NAMES = ['a', 'ab', 'name', 'é"', 'b', 'items', 'x y']
PATTERNS = ['^a+$', 'b', '^[a-z]{2,4}', '"', r'^\d{3}-\d{2}$', r'\\', 'a|^b|c$']
FORMATS = ['date', 'time', 'date-time', 'uuid', 'ipv4', 'ipv6', 'hostname', 'email', 'uri']


def scalar(rng):
    return rng.choice(['', 'a', 'aa', 'b', 'abc', 'é"', 'q\\\n', '123-45', 0, 1, -1, 7, 12, 100,
                       -250, 0.5, -3.25, 12.125, True, False, None])


def document(rng, depth=0):
    kind = rng.randint(0, 9 if depth < 2 else 7)
    if kind == 8:
        return [document(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    if kind == 9:
        return {name: document(rng, depth + 1) for name in rng.sample(NAMES, rng.randint(0, 3))}
    return scalar(rng)


def string_schema(rng):
    schema = {'type': 'string'}
    if rng.random() < 0.4:
        schema['minLength'] = rng.randint(0, 3)
    if rng.random() < 0.4:
        schema['maxLength'] = schema.get('minLength', 0) + rng.choice([0, 1, 2, 50])
    if rng.random() < 0.3:
        schema['pattern'] = rng.choice(PATTERNS)
    return schema


def number_schema(rng):
    schema = {'type': rng.choice(['integer', 'number'])}
    low = rng.randint(-300, 200)
    if rng.random() < 0.5:
        schema[rng.choice(['minimum', 'exclusiveMinimum'])] = low
    if rng.random() < 0.5:
        schema[rng.choice(['maximum', 'exclusiveMaximum'])] = low + rng.choice([2, 5, 100, 1500])
    return schema


def array_schema(rng, depth):
    schema = {'type': 'array', 'minItems': rng.randint(0, 2)}
    if rng.random() < 0.5:
        schema['maxItems'] = schema['minItems'] + rng.randint(0, 3)
    if rng.random() < 0.3:
        schema['prefixItems'] = [any_schema(rng, depth + 1) for _ in range(rng.randint(1, 2))]
        schema['items'] = rng.choice([False, any_schema(rng, depth + 1)])
        if schema['items'] is False and schema['minItems'] > len(schema['prefixItems']):
            schema['minItems'] = 0
            schema.pop('maxItems', None)
    elif rng.random() < 0.9:
        schema['items'] = any_schema(rng, depth + 1)
    return schema


def object_schema(rng, depth):
    names = rng.sample(NAMES, rng.randint(1, 4))
    schema = {'type': 'object', 'properties': {n: any_schema(rng, depth + 1) for n in names}}
    schema['required'] = [n for n in names if rng.random() < 0.5]
    if rng.random() < 0.4:
        schema['additionalProperties'] = rng.choice([False, True, any_schema(rng, depth + 1)])
    return schema


def any_schema(rng, depth=0):
    kind = rng.randint(0, 9 if depth < 3 else 4)
    if kind == 0:
        return {'enum': [document(rng, 2) for _ in range(rng.randint(1, 4))]}
    if kind == 1:
        return {'const': document(rng)}
    if kind == 2:
        return rng.choice([{'type': 'boolean'}, {'type': 'null'}, {}, True,
                           {'type': ['integer', 'null']}, {'type': ['string', 'boolean']}])
    if kind == 3:
        return number_schema(rng)
    if kind == 4:
        return string_schema(rng)
    if kind == 5:
        return array_schema(rng, depth)
    if kind == 6:
        return {'anyOf': [any_schema(rng, depth + 1) for _ in range(rng.randint(1, 3))]}
    if kind == 7 and depth == 0:
        node = object_schema(rng, 1)
        node['properties']['next'] = {'anyOf': [{'type': 'null'}, {'$ref': '#/$defs/node'}]}
        return {'$defs': {'node': node}, '$ref': '#/$defs/node'}
    if kind == 8:
        low = number_schema(rng)
        return {'allOf': [{'type': low['type']}, low], 'description': 'merged'}
    return object_schema(rng, depth)


def narrowed(schema):
    """The schema with additionalProperties as the server takes it."""
    if isinstance(schema, list):
        return [narrowed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    out = {}
    for key, value in schema.items():
        keyed = key in ('properties', '$defs') and isinstance(value, dict)
        if key in ('const', 'enum', 'required'):
            out[key] = value
        else:
            out[key] = {n: narrowed(s) for n, s in value.items()} if keyed else narrowed(value)
    if 'properties' in out:
        out.setdefault('additionalProperties', False)
    if 'prefixItems' in out:
        out.setdefault('items', False)
    return out


def is_valid(schema, value, root):
    if isinstance(schema, dict):
        schema = dict(schema, **{'$defs': root.get('$defs', {})})
    return jsonschema.Draft202012Validator(schema).is_valid(value)


def in_order(schema, value, root):
    """Whether some way to validate has all members in the order of the schema."""
    if not isinstance(schema, dict):
        return True
    if '$ref' in schema:
        return in_order(root['$defs']['node'], value, root)
    if 'anyOf' in schema:
        return any(is_valid(s, value, root) and in_order(s, value, root) for s in schema['anyOf'])
    if 'const' in schema or 'enum' in schema:
        same = [json.dumps(v) for v in schema.get('enum', [schema.get('const')])]
        return json.dumps(value) in same
    if isinstance(value, list):
        prefix = schema.get('prefixItems', [])
        items = prefix + [schema.get('items', True)] * max(0, len(value) - len(prefix))
        return all(in_order(s, v, root) for s, v in zip(items, value))
    if isinstance(value, dict) and 'properties' in schema:
        order = list(schema['properties'])
        places = [order.index(n) if n in order else len(order) for n in value]
        if places != sorted(places):
            return False
        other = schema.get('additionalProperties', True)
        return all(in_order(schema['properties'].get(n, other), v, root) for n, v in value.items())
    return True


def draw(schema, rng, root, depth=0):
    """A document that is likely to be valid."""
    if not isinstance(schema, dict) or depth > 6:
        return document(rng, 1)
    if '$ref' in schema:
        return draw(root['$defs']['node'], rng, root, depth + 1)
    for key in ('anyOf', 'allOf'):
        if key in schema:
            return draw(rng.choice(schema[key]), rng, root, depth + 1)
    if 'const' in schema or 'enum' in schema:
        return copy.deepcopy(rng.choice(schema.get('enum', [schema.get('const')])))
    kind = schema.get('type')
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    if kind == 'object':
        out = {}
        for name, each in schema['properties'].items():
            if name in schema['required'] or rng.random() < 0.5:
                out[name] = draw(each, rng, root, depth + 1)
        if schema.get('additionalProperties', False) is not False and rng.random() < 0.5:
            out['other'] = draw(schema['additionalProperties'], rng, root, depth + 1)
        return out
    if kind == 'array':
        prefix = schema.get('prefixItems', [])
        size = schema['minItems'] + rng.randint(0, 2)
        items = (prefix + [schema.get('items', True)] * 5)[:size]
        return [draw(each, rng, root, depth + 1) for each in items]
    if kind in ('integer', 'number'):
        near = [v + rng.randint(-2, 2) for k, v in schema.items() if k != 'type'] or [5]
        return rng.choice(near) + (0.5 if kind == 'number' and rng.random() < 0.3 else 0)
    if kind == 'string':
        return rng.choice(['', 'a', 'aaa', 'b', 'abcd', 'xb', '"', '\\', '123-45', 'ü' * 3, 'c'])
    return scalar(rng)


def change(value, rng):
    if rng.random() < 0.5:
        return value
    if isinstance(value, dict) and value and rng.random() < 0.8:
        names = list(value)
        at = rng.choice(names)
        kind = rng.randint(0, 3)
        if kind == 0:
            del value[at]
        elif kind == 1:
            value[rng.choice(NAMES + ['other'])] = scalar(rng)
        elif kind == 2:
            value[at] = change(value[at], rng)
        else:
            rng.shuffle(names)
            value = {n: value[n] for n in names}
        return value
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        value[at] = change(value[at], rng)
        return value
    return document(rng)


def cases_of(rng, count, per_schema):
    cases, texts = [], 0
    while texts < count:
        schema = any_schema(rng)
        if schema in (True, {}):
            continue
        root = narrowed(schema)
        source = root if isinstance(root, dict) else {}
        judged = {}
        for _ in range(per_schema):
            value = change(draw(source, rng, source), rng)
            text = json.dumps(value, ensure_ascii=False, indent=rng.choice([None, None, 2]))
            judged[text] = is_valid(source, value, source) and in_order(source, value, source)
        texts += len(judged)
        cases.append({'kind': 'schema', 'source': json.dumps(schema, ensure_ascii=False),
                      'texts': [list(pair) for pair in judged.items()]})
    return cases


def is_time(text):
    try:
        return datetime.datetime.fromisoformat('2026-01-01T' + text).tzinfo is not None
    except ValueError:
        return False


def check_walks(program, cases, per_schema):
    """Texts that the program draws from its masks must be valid."""
    cases += [{'kind': 'schema', 'source': json.dumps({'type': 'string', 'format': f})}
              for f in FORMATS for _ in range(20)]
    run = subprocess.run([program, '--walks', str(per_schema)], input=json.dumps(cases),
                         text=True, stdout=subprocess.PIPE, check=False)
    count = wrong = 0
    checker = jsonschema.FormatChecker()
    checker.checks('time')(is_time)
    for line in run.stdout.split('\n')[:-1]:
        source, text = json.loads(line)
        schema = narrowed(json.loads(source))
        count += 1
        try:
            value = json.loads(text)
        except ValueError:
            value = None
            print('no JSON', source, text)
            wrong += 1
        if not jsonschema.Draft202012Validator(schema, format_checker=checker).is_valid(value):
            wrong += 1
            print('not valid', source, text)
    print(f'{count} texts drawn from masks, {wrong} wrong')
    return wrong + (0 if count else 1)


def main():
    if sys.argv[1:2] == ['--check']:
        count, per_schema = int(sys.argv[3]), 20
        cases = cases_of(random.Random(2), count, per_schema)
        valid = sum(judged for case in cases for _, judged in case['texts'])
        run = subprocess.run([sys.argv[2]], input=json.dumps(cases), text=True, check=False)
        print(f'{len(cases)} schemas, {sum(len(c["texts"]) for c in cases)} documents, '
              f'{valid} of them valid')
        return run.returncode + check_walks(sys.argv[2], cases, count // len(cases))
    cases = cases_of(random.Random(1), 1500, 12)
    OUT.write_text('[\n' + ',\n'.join(json.dumps(case) for case in cases) + '\n]\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
