"""Caller: runs calls on one channel and blocks until they end; quire.aio has its counterpart."""

import dataclasses
import functools
import math
import threading
from typing import Any, Callable, Generator, Iterable, Iterator, Optional, TypeVar, Union

import grpc

from quire.connection import Connection
from quire.errors import QuireError, calls_failing_as_ours, cancelled
from quire.resuming import StreamAttempts
from quire.retries import ONE_ATTEMPT, Attempts, Retries
from quire.stream import Stream
from quire.types import Finished
from quire.v1 import control_pb2_grpc, inference_pb2_grpc, jobs_pb2_grpc, sessions_pb2_grpc

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Call:
    """A call to make: a method of a stub, its request, and the rules for it.

    `timeout` None stands for the client's; math.inf for none. `session` is the name of the session
    that the call uses. `repeatable` says that the call changes nothing, `once` that it is not
    repeated, `traced` that it belongs to the trace of the environment, and `goes_on` that Attach
    can go on with its stream.
    """

    method: Callable[..., Any]
    request: Any
    timeout: Optional[float] = None
    session: Optional[str] = None
    repeatable: bool = False
    once: bool = False
    traced: bool = False
    goes_on: bool = False


# Yields calls, receives their replies and returns a result: a method of the client, whether its
# calls block or are awaited.
Plan = Generator[Call, Any, T]


def one(call: Call, decode: Callable[[Any], T]) -> Plan[T]:
    """The plan of a single call."""
    return decode((yield call))


class BaseCaller:
    """Starts attempts of calls, with the connection's metadata and the client's timeout."""

    def __init__(self, connection: Connection, timeout: Optional[float], retries: Retries) -> None:
        self.retries = retries
        self._connection, self._timeout = connection, timeout

    _channel: Any

    @functools.cached_property
    def inference(self) -> inference_pb2_grpc.InferenceStub:
        return inference_pb2_grpc.InferenceStub(self._channel)

    @functools.cached_property
    def control(self) -> control_pb2_grpc.ControlStub:
        return control_pb2_grpc.ControlStub(self._channel)

    @functools.cached_property
    def sessions(self) -> sessions_pb2_grpc.SessionsStub:
        return sessions_pb2_grpc.SessionsStub(self._channel)

    @functools.cached_property
    def jobs(self) -> jobs_pb2_grpc.JobsStub:
        return jobs_pb2_grpc.JobsStub(self._channel)

    def attempts(self, call: Call) -> Attempts:
        timeout = self._timeout if call.timeout is None else call.timeout
        retries = ONE_ATTEMPT if call.once else self.retries
        return Attempts(retries, None if timeout == math.inf else timeout, call.repeatable)

    def stream_attempts(self, call: Call) -> StreamAttempts:
        after = call.request.after_tokens if call.method == self.inference.Attach else 0
        return StreamAttempts(self.attempts(call), self.retries, call.goes_on, after)

    def start_next(self, call: Call, attempts: StreamAttempts) -> Any:
        """The RPC of the next attempt of a streaming call."""
        if attempts.rest.request_id:
            call = dataclasses.replace(call, method=self.inference.Attach, request=attempts.rest)
        return self.start(call, attempts)

    def start(
        self, call: Call, attempts: Union[Attempts, StreamAttempts], request: Any = None
    ) -> Any:
        """The RPC of one attempt; `request` replaces the call's own."""
        return call.method(
            call.request if request is None else request,
            timeout=attempts.remaining(),
            metadata=self._connection.metadata(session=call.session, traced=call.traced),
        )


class Frames(Iterator[Any]):
    """The replies of a streaming call, through all its attempts."""

    def __init__(self, caller: BaseCaller, call: Call) -> None:
        self._caller, self._call = caller, call
        self._attempts = caller.stream_attempts(call)
        self._cancelled = threading.Event()
        with calls_failing_as_ours():
            self._rpc = caller.start(call, self._attempts)

    def __next__(self) -> Any:
        while True:
            try:
                with calls_failing_as_ours():
                    frame = next(self._rpc, None)
            except QuireError as error:
                delay = self._attempts.delay_after(error)
                if delay is None or self._cancelled.is_set():
                    raise
                self._wait(delay)
                continue
            if frame is None:
                raise StopIteration
            if self._attempts.take(frame):
                return frame

    def _wait(self, delay: float) -> None:
        """Waits and starts the next attempt, unless cancel() ends the wait."""
        (self._caller.retries.sleep or self._cancelled.wait)(delay)
        if self._cancelled.is_set():
            raise cancelled()
        with calls_failing_as_ours():
            self._rpc = self._caller.start_next(self._call, self._attempts)
        if self._cancelled.is_set():
            self._rpc.cancel()

    def cancel(self) -> None:
        self._cancelled.set()
        self._rpc.cancel()


class Caller(BaseCaller):
    """Runs calls on one channel. Threads may share it."""

    def __init__(self, connection: Connection, timeout: Optional[float], retries: Retries) -> None:
        super().__init__(connection, timeout, retries)
        # Made before threads could make them twice.
        self._channel = connection.open(grpc)
        _ = self.inference, self.control, self.sessions

    def close(self) -> None:
        """Ends the connection and the calls on it."""
        self._channel.close()

    def run(self, plan: Plan[T]) -> T:
        """Makes the calls of a plan and returns its result."""
        reply = None
        try:
            while True:
                reply = self._reply(plan.send(reply))
        except StopIteration as end:
            return end.value

    def ask(self, call: Call, decode: Callable[[Any], T]) -> T:
        """Makes one call and returns its decoded reply."""
        return self.run(one(call, decode))

    def _reply(self, call: Call) -> Any:
        attempts = self.attempts(call)
        while True:
            try:
                with calls_failing_as_ours():
                    return self.start(call, attempts)
            except QuireError as error:
                delay = attempts.delay_after(error)
                if delay is None:
                    raise
            (self.retries.sleep or threading.Event().wait)(delay)

    def stream(
        self, call: Call, on_finished: Optional[Callable[[Finished], None]] = None
    ) -> Stream:
        """Starts a generation."""
        return Stream(Frames(self, call), on_finished)

    def each(self, call: Call, decode: Callable[[Any], T]) -> Iterator[T]:
        """Yields the decoded replies of a streaming call."""
        frames = Frames(self, call)
        try:
            for frame in frames:
                yield decode(frame)
        finally:
            frames.cancel()

    def drain(self, call: Call, take: Callable[[Any], None], result: T) -> T:
        """Gives each reply of a streaming call to `take` and then returns `result`."""
        frames = Frames(self, call)
        try:
            for frame in frames:
                take(frame)
            return result
        finally:
            frames.cancel()

    def upload(
        self,
        call: Call,
        data: Union[bytes, Iterable[bytes]],
        requests_of: Callable[[bytes], Iterable[Any]],
        decode: Callable[[Any], T],
    ) -> T:
        """Sends the call's request and then those of each piece of `data`. It is not repeated."""

        def requests() -> Iterator[Any]:
            yield call.request
            for piece in [data] if isinstance(data, bytes) else data:
                yield from requests_of(piece)

        with calls_failing_as_ours():
            return decode(self.start(call, self.attempts(call), requests()))
