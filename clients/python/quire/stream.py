"""Stream: a completion while it is generated."""

from typing import Any, Callable, Iterator, Optional

from quire import messages
from quire.errors import calls_failing_as_ours
from quire.types import Accepted, Delta, Finished


class Stream(Iterator[Delta]):
    """A completion while it is generated: iterate over its deltas.

    `accepted` is set once the first Delta was asked for, `finished` when the iteration has ended.
    Leaving a `with` block, or cancel(), stops the generation. One thread iterates; any thread may
    cancel.
    """

    def __init__(
        self, call: Any, on_finished: Optional[Callable[[Finished], None]] = None
    ) -> None:
        self._call = call
        self._on_finished = on_finished
        self.accepted: Optional[Accepted] = None
        self.finished: Optional[Finished] = None

    def __next__(self) -> Delta:
        with calls_failing_as_ours():
            for frame in self._call:
                event = frame.WhichOneof("event")
                if event == "accepted":
                    self.accepted = messages.accepted_of(frame.request_id, frame.accepted)
                elif event == "tokens":
                    return messages.delta_of(frame.tokens)
                elif event == "finished":
                    self.finished = messages.finished_of(frame.finished)
                    if self._on_finished:
                        self._on_finished(self.finished)
        raise StopIteration

    def cancel(self) -> None:
        """Stops the generation; an iteration under way ends with Cancelled."""
        self._call.cancel()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *unused: object) -> None:
        self.cancel()
