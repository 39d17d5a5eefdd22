#!/usr/bin/env python3
"""Streams a continuation of a text: stream.py [--target HOST:PORT] [PROMPT]."""

import argparse

from quire import QuireClient, QuireError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", help="default: QUIRE_SERVER, else 127.0.0.1:50051")
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("prompt", nargs="?", default="Once upon a time")
    args = parser.parse_args()
    with QuireClient(args.target, timeout=120) as client:
        print(args.prompt, end="", flush=True)
        try:
            stream = client.generate(args.prompt, max_tokens=args.max_tokens)
            for delta in stream:
                print(delta.text, end="", flush=True)
        except QuireError as error:
            print(f"\n{error}")
            return 1
        done = stream.finished
        tokens = done.usage.completion_tokens
        print(f"\n\n{done.reason.name}: {tokens} tokens", end="")
        # There is one interval less than tokens.
        if done.timings.decode_seconds > 0:
            print(f", {(tokens - 1) / done.timings.decode_seconds:.0f} a second", end="")
        print()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
