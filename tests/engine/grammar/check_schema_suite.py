#!/usr/bin/python3
"""Holds the grammars of schemas against the cases of JSON-Schema-Test-Suite.

    check_schema_suite.py FOLDER PROGRAM

FOLDER is tests/draft2020-12 of the suite, which is json/tests/draft2020-12 of the source package of
jsonschema. A schema is refused by name, or PROGRAM (judge_texts) accepts no document that the suite
calls invalid. Of the valid ones those may be missing that docs/grammars.md takes out: of a type to
which the keywords do not apply, with members in another order or undeclared, of numbers beyond its
digits.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path


def cases_of(folder):
    for path in sorted(Path(folder).glob('*.json')):
        for group in json.loads(path.read_text(encoding='utf-8')):
            texts = {}
            for test in group['tests']:
                text = json.dumps(test['data'], ensure_ascii=False)
                texts.setdefault(text, test['valid'])
            yield path.stem, {'kind': 'schema', 'source': json.dumps(group['schema']),
                              'texts': list(texts.items())}


def main():
    counts, wrong = Counter(), 0
    for keyword, case in cases_of(sys.argv[1]):
        run = subprocess.run([sys.argv[2]], input=json.dumps([case]), text=True, check=False,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if run.returncode not in (0, 1):
            wrong += 1
            print('failed', case['source'], run.stdout[-300:])
        if 'INVALID_ARGUMENT' in run.stdout:
            reason = re.search(r'INVALID_ARGUMENT: (.*)', run.stdout).group(1)
            counts['refused schemas'] += 1
            if not re.match(r'schema|grammar', reason):
                wrong += 1
                print('refused without a name', case['source'], reason)
            continue
        counts['compiled schemas'] += 1
        counts['documents'] += len(case['texts'])
        for line in run.stdout.split('\n'):
            if line.startswith('  has not '):
                wrong += 1
                print('accepts', keyword, case['source'], line[10:])
            elif line.startswith('  has '):
                counts['valid documents that are left out'] += 1
    print(dict(counts), wrong, 'wrong')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
