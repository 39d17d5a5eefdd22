"""Retries: when a failed call is repeated, and how long the client waits before it."""

import dataclasses
import random
import time
from typing import Any, Callable, Optional

import grpc

from quire.errors import QuireError

# Codes with which the server refuses a call that it has not begun. RetryInfo says that it was one.
REFUSALS = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
# At most this share of the server's delay is added, so that clients do not return together.
SPREAD = 0.25
FIRST_BACKOFF = 0.2  # seconds before a lost connection is tried again; doubles with each attempt
LAST_BACKOFF = 5.0


@dataclasses.dataclass(frozen=True)
class Retries:
    """Repeats calls that the server refused, at most `attempts` times in all.

    A refusal that has RetryInfo is repeated after the server's delay: the server has not accepted
    the request. Without RetryInfo, after a lost connection, only calls that change nothing are
    repeated. Once a frame of a stream has arrived it is not repeated; one whose request has
    detach_seconds goes on where it was lost. A delay that ends after the call's deadline, or is
    longer than `longest` seconds, is not waited for: the call fails at once.
    """

    attempts: int = 4
    longest: float = 30.0
    # For tests. `sleep` None: a wait that Stream.cancel() ends. It may return an awaitable to
    # asyncio clients. `jitter` returns a number in [0, 1).
    sleep: Optional[Callable[[float], Any]] = dataclasses.field(default=None, repr=False)
    clock: Callable[[], float] = dataclasses.field(default=time.monotonic, repr=False)
    jitter: Callable[[], float] = dataclasses.field(default=random.random, repr=False)

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts is at least 1, not {self.attempts}")


ONE_ATTEMPT = Retries(attempts=1)


class Attempts:
    """The attempts of one call; `repeatable` says that the call changes nothing."""

    def __init__(self, retries: Retries, timeout: Optional[float], repeatable: bool) -> None:
        self._retries = retries
        self._repeatable = repeatable
        self._deadline = None if timeout is None else retries.clock() + timeout
        self._made = 1

    def remaining(self) -> Optional[float]:
        """The seconds until the call's deadline; None if it has none."""
        return None if self._deadline is None else max(0.0, self._deadline - self._retries.clock())

    def delay_after(self, error: QuireError) -> Optional[float]:
        """The seconds to wait before the next attempt; None if `error` is final."""
        if error.code not in REFUSALS or self._made >= self._retries.attempts:
            return None
        if error.retry_after is not None:
            delay = error.retry_after * (1 + SPREAD * self._retries.jitter())
        elif self._repeatable and error.code == grpc.StatusCode.UNAVAILABLE:
            backoff = min(LAST_BACKOFF, FIRST_BACKOFF * 2 ** (self._made - 1))
            delay = backoff * (0.5 + self._retries.jitter())
        else:
            return None
        remaining = self.remaining()
        if delay > self._retries.longest or (remaining is not None and delay >= remaining):
            return None
        self._made += 1
        return delay
