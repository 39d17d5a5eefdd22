"""StreamAttempts: the calls that read one stream, which a lost connection need not end."""

from typing import Any, Optional

import grpc

from quire.errors import QuireError
from quire.retries import FIRST_BACKOFF, LAST_BACKOFF, Attempts, Retries
from quire.v1 import inference_pb2


class StreamAttempts:
    """The attempts of a streaming call: the call itself while no frame has come, and Attach later.

    A request with detach_seconds goes on without a reader. When the connection of its stream is
    lost, Attach is tried until the server would have forgotten the request, unless retries are
    off. `goes_on` says that the call's frames are those of a request that may have it, behind its
    first `after_tokens` tokens.
    """

    def __init__(
        self, attempts: Attempts, retries: Retries, goes_on: bool, after_tokens: int
    ) -> None:
        self._attempts, self._retries = attempts, retries
        self._goes_on = goes_on and retries.attempts > 1
        self._begun = False
        self._seconds = 0.0  # that the server waits for a reader
        self._until = 0.0  # the server may have forgotten the request
        self._lost = 0  # connections since the last frame
        # For Attach; without an id before the first frame has come.
        self.rest = inference_pb2.AttachRequest(after_tokens=after_tokens)

    def remaining(self) -> Optional[float]:
        """The seconds until the call's deadline; None if it has none."""
        return self._attempts.remaining()

    def take(self, frame: Any) -> bool:
        """Notes how far the stream has come; False if the caller has had the frame before."""
        again = self._lost > 0 and self._goes_on
        self._begun = True
        if not self._goes_on:
            return True
        event = frame.WhichOneof("event")
        if event == "accepted":
            self.rest.request_id = frame.request_id
            self._seconds = frame.accepted.detach_seconds
            return not again
        self._lost = 0
        if event == "tokens":
            self.rest.after_tokens = frame.tokens.cumulative_tokens
        return True

    def delay_after(self, error: QuireError) -> Optional[float]:
        """The seconds to wait before the next attempt; None if `error` is final."""
        if not self._begun:
            return self._attempts.delay_after(error)
        # A server that ends a call says why; without that, the connection is lost.
        is_lost = error.code == grpc.StatusCode.UNAVAILABLE and error.reason is None
        if not (is_lost and self._seconds > 0):
            return None
        now = self._retries.clock()
        if self._lost == 0:
            self._until = now + self._seconds
        delay = min(LAST_BACKOFF, FIRST_BACKOFF * 2**self._lost) * (0.5 + self._retries.jitter())
        remaining = self.remaining()
        if now + delay >= self._until or (remaining is not None and delay >= remaining):
            return None
        self._lost += 1
        return delay
