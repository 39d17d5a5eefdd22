#!/usr/bin/env python3
"""Asks for a JSON object of a given form: structured.py [--target HOST:PORT] [PROMPT]."""

import argparse
import json

from quire import QuireClient, QuireError

PERSON = r'\{"name": "[A-Z][a-z]{2,8}", "age": [1-9][0-9]?, "mood": "(happy|sad)"\}'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", help="default: QUIRE_SERVER, else 127.0.0.1:50051")
    parser.add_argument("prompt", nargs="?", default="Once upon a time there was a child.")
    args = parser.parse_args()
    with QuireClient(args.target, timeout=120) as client:
        try:
            answer = client.generate_text(args.prompt, regex=PERSON, max_tokens=100, seed=1)
            person = json.loads(answer.text)
            print(f"{person['name']!r}, {person['age']}, is {person['mood']}")
            choice = client.generate_text(args.prompt + " The day was", choice=["sunny", "rainy"])
            print(f"the day was {choice.text}")
        except QuireError as error:
            print(error)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
