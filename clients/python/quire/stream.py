"""Stream: a completion while it is generated."""

from typing import Any, Callable, Dict, Iterator, Optional

from quire import messages
from quire.types import Accepted, Delta, Finished


class Progress:
    """How far a completion has come: `accepted` and `finished` are None before their frames.

    `ends` has the answers that have ended, by index; `finished` is the last of them. `tokens` is
    the number of output tokens that have come, those before an attach() included.
    """

    def __init__(
        self, frames: Any, on_finished: Optional[Callable[[Finished], None]] = None
    ) -> None:
        self._frames = frames
        self._on_finished = on_finished
        self.accepted: Optional[Accepted] = None
        self.finished: Optional[Finished] = None
        self.ends: Dict[int, Finished] = {}
        self.tokens = 0

    def cancel(self) -> None:
        """Stops the generation; an iteration under way ends with Cancelled."""
        self._frames.cancel()

    def _take(self, frame: Any) -> Optional[Delta]:
        """The frame's tokens, if it has any."""
        event = frame.WhichOneof("event")
        if event == "tokens":
            self.tokens = frame.tokens.cumulative_tokens
            return messages.delta_of(frame.tokens)
        if event == "accepted":
            self.accepted = messages.accepted_of(frame.request_id, frame.accepted)
        elif event == "finished":
            self.finished = messages.finished_of(frame.finished)
            self.ends[self.finished.index] = self.finished
            if self._on_finished:
                self._on_finished(self.finished)
        return None


class Stream(Progress, Iterator[Delta]):
    """A completion while it is generated: iterate over its deltas.

    `accepted` is set once the first Delta was asked for, `finished` when the iteration has ended.
    Leaving a `with` block, or cancel(), stops the generation. One thread iterates; any thread may
    cancel.
    """

    def __next__(self) -> Delta:
        for frame in self._frames:
            delta = self._take(frame)
            if delta is not None:
                return delta
        raise StopIteration

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *unused: object) -> None:
        self.cancel()
