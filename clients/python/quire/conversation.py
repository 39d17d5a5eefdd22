"""Conversation: turns of one session, each sent to where the last one ended."""

import dataclasses
from typing import Any, Callable, Optional

from quire import messages
from quire.messages import Prompt
from quire.stream import Stream
from quire.types import Finished, Options


class Conversation:
    """Turns of one session, each sent to where the last one ended.

    The server refuses a turn, and leaves the session as it is, when somebody else has added to it
    since; `position` None means that it is not known and not checked. One turn at a time.
    """

    def __init__(
        self,
        generate: Callable[..., Any],
        session_id: str,
        position: Optional[int],
        timeout: Optional[float],
    ) -> None:
        self._generate, self._timeout = generate, timeout
        self.session_id = session_id
        self.position = position

    def say(
        self,
        prompt: Prompt,
        options: Options = Options(),
        *,
        timeout: Optional[float] = None,
        **changes: Any,
    ) -> Stream:
        """Appends a text or token ids to the session and streams what follows.

        A sequence of Message is the whole conversation, of which the session keeps what agrees.
        A stream that is not read to its end leaves the session as it was.
        """
        turn = {"session_id": self.session_id, "create_session": True}
        if self.position is not None:
            turn["expected_position"] = self.position
        options = dataclasses.replace(options, **turn | changes)
        deadline = self._timeout if timeout is None else timeout
        call = self._generate(messages.generate_request(prompt, options), timeout=deadline)
        return Stream(call, self._move)

    def _move(self, finished: Finished) -> None:
        self.position = finished.position
