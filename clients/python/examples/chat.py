#!/usr/bin/env python3
"""A conversation, typed or from the arguments: chat.py [--target T] [MESSAGE ...]."""

import argparse
from typing import Iterator, Sequence

from quire import Message, QuireClient, QuireError


def questions(given: Sequence[str]) -> Iterator[str]:
    """The messages of the command line, or else typed lines."""
    if given:
        for message in given:
            print(f"> {message}")
            yield message
        return
    while True:
        try:
            line = input("> ")
        except EOFError:
            return
        if line.strip():
            yield line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", help="default: QUIRE_SERVER, else 127.0.0.1:50051")
    parser.add_argument("--temperature", type=float)
    parser.add_argument("message", nargs="*")
    args = parser.parse_args()
    conversation = []
    with QuireClient(args.target, timeout=120) as client:
        for question in questions(args.message):
            conversation.append(Message("user", question))
            answer = ""
            try:
                for delta in client.chat(conversation, temperature=args.temperature):
                    print(delta.text, end="", flush=True)
                    answer += delta.text
            except QuireError as error:
                print(error)
                return 1
            print()
            conversation.append(Message("assistant", answer))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
