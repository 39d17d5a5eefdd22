#!/usr/bin/env python3
"""Answers many prompts at once, one a line: batch.py [--target T] < PROMPTS > JSON_LINES."""

import argparse
import concurrent.futures
import json
import sys

from quire import Options, QuireClient, QuireError, Retries

# While the server is full, a prompt waits as long as the server says, and tries again.
PATIENT = Retries(attempts=20, longest=120)


def answer(client: QuireClient, prompt: str, options: Options) -> dict:
    """The answer to one prompt as a JSON object."""
    try:
        done = client.generate_text([{"role": "user", "content": prompt}], options)
    except QuireError as error:
        return {"prompt": prompt, "error": str(error)}
    return {"prompt": prompt, "text": done.text, "reason": done.finished.reason.name}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", help="default: QUIRE_SERVER, else 127.0.0.1:50051")
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=200)
    args = parser.parse_args()
    prompts = [line.strip() for line in sys.stdin if line.strip()]
    options = Options(max_tokens=args.max_tokens, temperature=0.0)
    failed = False
    with QuireClient(args.target, timeout=300, retries=PATIENT) as client:
        with concurrent.futures.ThreadPoolExecutor(args.at_once) as pool:
            for result in pool.map(lambda p: answer(client, p, options), prompts):
                print(json.dumps(result, ensure_ascii=False))
                failed |= "error" in result
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
