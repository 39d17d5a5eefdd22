#!/usr/bin/env python3
"""Asks several questions at once with asyncio: at_once.py [--target T] QUESTION ..."""

import argparse
import asyncio
from typing import Optional, Sequence

from quire import QuireError
from quire.aio import QuireClient


async def answer(client: QuireClient, question: str) -> str:
    """The whole answer. Cancelling the task would end the request in the server."""
    text = ""
    try:
        async with client.chat(question, temperature=0.0) as stream:
            async for delta in stream:
                text += delta.text
    except QuireError as error:
        return str(error)
    return text


async def ask_all(target: Optional[str], questions: Sequence[str]) -> None:
    async with QuireClient(target, timeout=120) as client:
        for text in await asyncio.gather(*(answer(client, question) for question in questions)):
            print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", help="default: QUIRE_SERVER, else 127.0.0.1:50051")
    parser.add_argument("question", nargs="+")
    args = parser.parse_args()
    asyncio.run(ask_all(args.target, args.question))


if __name__ == "__main__":
    main()
