"""Conversation: turns of one session."""

import dataclasses
from typing import Any, Generic, Optional, TypeVar, cast

from quire import messages
from quire.caller import Call
from quire.messages import Prompt
from quire.types import Finished, Options

S = TypeVar("S")  # the client's kind of Stream


class Conversation(Generic[S]):
    """Turns of one session; each turn expects the position at which the last one ended.

    If another client has changed the session since, the server refuses the turn and leaves the
    session unchanged. `position` None: unknown and not checked. One turn at a time.
    """

    def __init__(self, caller: Any, session_id: str, position: Optional[int]) -> None:
        self._caller = caller
        self.session_id = session_id
        self.position = position

    def say(
        self,
        prompt: Prompt,
        options: Options = Options(),
        *,
        timeout: Optional[float] = None,
        **changes: Any,
    ) -> S:
        """Appends a text or token ids to the session and streams the answer.

        A sequence of Message is the whole conversation: the session keeps the prefix that agrees
        with it. A stream that is not read to its end leaves the session unchanged.
        """
        turn = {"session_id": self.session_id, "create_session": True}
        if self.position is not None:
            turn["expected_position"] = self.position
        request = messages.generate_request(prompt, dataclasses.replace(options, **turn | changes))
        method = self._caller.inference.Generate
        call = Call(
            method, request, timeout, session=request.session_id, traced=True, goes_on=True
        )
        return cast(S, self._caller.stream(call, self._move))

    def _move(self, finished: Finished) -> None:
        self.position = finished.position
