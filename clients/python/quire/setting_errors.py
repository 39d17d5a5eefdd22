"""SettingsError, and the suggestion of the nearest name in its messages."""

import difflib
from typing import Iterable


class SettingsError(ValueError):
    """A setting of the connection is wrong; the message names it and its place."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, or all."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"the nearest is {close[0]!r}"
    return f"known are {', '.join(map(repr, names))}" if names else "there are none"
