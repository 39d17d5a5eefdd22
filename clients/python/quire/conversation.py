"""Conversation: turns of one session."""

import dataclasses
from typing import Any, Callable, Optional

from quire import messages
from quire.messages import Prompt
from quire.stream import Stream
from quire.types import Finished, Options


class Conversation:
    """Turns of one session; each turn expects the position at which the last one ended.

    If another client has changed the session since, the server refuses the turn and leaves the
    session unchanged. `position` None: unknown and not checked. One turn at a time.
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
        """Appends a text or token ids to the session and streams the answer.

        A sequence of Message is the whole conversation: the session keeps the prefix that agrees
        with it. A stream that is not read to its end leaves the session unchanged.
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
