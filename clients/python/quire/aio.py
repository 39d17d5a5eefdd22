"""The client for asyncio: quire.QuireClient's calls, awaited or iterated over with `async for`."""

import asyncio
import contextlib
import functools
import inspect
import weakref
from typing import (
    Any,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Optional,
    TypeVar,
    Union,
)

import grpc.aio

from quire import client as blocking
from quire import jobs as blocking_jobs
from quire import sessions as blocking_sessions
from quire.awaiting import awaited, iterated, returning
from quire.caller import BaseCaller, Call, Plan, one
from quire.connection import Connection
from quire.conversation import Conversation
from quire.errors import QuireError, calls_failing_as_ours, cancelled
from quire.resuming import StreamAttempts
from quire.retries import Attempts, Retries
from quire.stream import Progress
from quire.types import Delta, Finished, Session, SessionOptions

T = TypeVar("T")

__all__ = ["QuireClient", "Sessions", "Stream"]


class Stream(Progress, AsyncIterator[Delta]):
    """A completion while it is generated: iterate over its deltas with `async for`.

    `accepted` is set once the first Delta was asked for, `finished` when the iteration has ended.
    Leaving an `async with` block, cancel(), or cancelling the task that iterates stops the
    generation.
    """

    async def __anext__(self) -> Delta:
        async for frame in self._frames:
            delta = self._take(frame)
            if delta is not None:
                return delta
        raise StopAsyncIteration

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(self, *unused: object) -> None:
        self.cancel()


class Frames(AsyncIterator[Any]):
    """The replies of a streaming call, through all its attempts.

    Cancelling the task that reads them ends the call, also while the task does something else.
    """

    def __init__(self, caller: "Caller", call: Call) -> None:
        self._rpc: Any = None
        self._reader: "Optional[asyncio.Task[Any]]" = None
        self._caller, self._call = caller, call
        self._attempts = caller.stream_attempts(call)
        self._cancelled = asyncio.Event()
        self._reader_ended = functools.partial(_end_with, weakref.ref(self))
        with calls_failing_as_ours():
            self._rpc = caller.start(call, self._attempts)

    async def __anext__(self) -> Any:
        self._follow(asyncio.current_task())
        while True:
            try:
                with calls_failing_as_ours(), cancelled_by(self._is_cancelled):
                    frame = await self._rpc.read()
            except QuireError as error:
                delay = self._attempts.delay_after(error)
                if delay is None or self._cancelled.is_set():
                    raise
                await self._wait(delay)
                continue
            if frame is grpc.aio.EOF:
                self._follow(None)
                raise StopAsyncIteration
            if self._attempts.take(frame):
                return frame

    def _follow(self, task: "Optional[asyncio.Task[Any]]") -> None:
        """Makes `task` the one whose cancellation ends the call."""
        if task is self._reader:
            return
        if self._reader is not None:
            self._reader.remove_done_callback(self._reader_ended)
        if task is not None:
            task.add_done_callback(self._reader_ended)
        self._reader = task

    def __del__(self) -> None:
        self._follow(None)
        if self._rpc is not None:
            with contextlib.suppress(Exception):  # the event loop may have ended
                self._rpc.cancel()  # if it still runs; gRPC itself may keep it alive

    def _is_cancelled(self) -> bool:
        return self._cancelled.is_set() or self._caller.closed

    async def _wait(self, delay: float) -> None:
        """Waits and starts the next attempt, unless cancel() ends the wait."""
        if self._caller.retries.sleep:
            await _slept(self._caller.retries.sleep(delay))
        else:
            try:
                await asyncio.wait_for(self._cancelled.wait(), delay)
            except asyncio.TimeoutError:
                pass
        if self._cancelled.is_set():
            raise cancelled()
        with calls_failing_as_ours():
            self._rpc = self._caller.start_next(self._call, self._attempts)

    def cancel(self) -> None:
        self._cancelled.set()
        self._rpc.cancel()


def _end_with(frames: "weakref.ref[Frames]", task: "asyncio.Task[Any]") -> None:
    """Ends a call whose reader was cancelled; without it the task's exception may keep it alive."""
    reader_of = frames()
    if reader_of is not None and task.cancelled():
        reader_of.cancel()


@contextlib.contextmanager
def cancelled_by(is_ours: Callable[[], bool]) -> Iterator[None]:
    """Raises Cancelled if `is_ours` says that this client ended the RPC, not its task."""
    try:
        yield
    except asyncio.CancelledError:
        # Before Python 3.11 a task cannot tell whether it was asked to end.
        task = asyncio.current_task()
        ending = task is not None and hasattr(task, "cancelling") and task.cancelling() > 0
        if ending or not is_ours():
            raise
        raise cancelled() from None


async def _slept(waiting: Any) -> None:
    if inspect.isawaitable(waiting):
        await waiting


class Caller(BaseCaller):
    """Runs calls on one channel of the event loop in which the first call is made."""

    @functools.cached_property
    def _channel(self) -> grpc.aio.Channel:
        return self._connection.open(grpc.aio)

    def __init__(self, connection: Connection, timeout: Optional[float], retries: Retries) -> None:
        super().__init__(connection, timeout, retries)
        self.closed = False
        self._rpcs: "weakref.WeakSet[Any]" = weakref.WeakSet()

    def start(
        self, call: Call, attempts: Union[Attempts, StreamAttempts], request: Any = None
    ) -> Any:
        rpc = super().start(call, attempts, request)
        self._rpcs.add(rpc)
        return rpc

    async def close(self) -> None:
        """Ends the connection and the calls on it."""
        self.closed = True
        for rpc in list(self._rpcs):  # the channel of old versions cancels only some of them
            rpc.cancel()
        await self._channel.close()

    async def run(self, plan: Plan[T]) -> T:
        """Makes the calls of a plan and returns its result."""
        reply = None
        try:
            while True:
                reply = await self._reply(plan.send(reply))
        except StopIteration as end:
            return end.value

    def ask(self, call: Call, decode: Callable[[Any], T]) -> Awaitable[T]:
        """Makes one call and returns its decoded reply."""
        return self.run(one(call, decode))

    async def _reply(self, call: Call) -> Any:
        attempts = self.attempts(call)
        while True:
            try:
                with self._failures():
                    return await self.start(call, attempts)
            except QuireError as error:
                delay = attempts.delay_after(error)
                if delay is None:
                    raise
            await _slept((self.retries.sleep or asyncio.sleep)(delay))

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        with calls_failing_as_ours(), cancelled_by(lambda: self.closed):
            yield

    def stream(
        self, call: Call, on_finished: Optional[Callable[[Finished], None]] = None
    ) -> Stream:
        """Starts a generation."""
        return Stream(Frames(self, call), on_finished)

    async def each(self, call: Call, decode: Callable[[Any], T]) -> AsyncIterator[T]:
        """Yields the decoded replies of a streaming call."""
        frames = Frames(self, call)
        try:
            async for frame in frames:
                yield decode(frame)
        finally:
            frames.cancel()

    async def drain(self, call: Call, take: Callable[[Any], None], result: T) -> T:
        """Gives each reply of a streaming call to `take` and then returns `result`."""
        frames = Frames(self, call)
        try:
            async for frame in frames:
                take(frame)
            return result
        finally:
            frames.cancel()

    async def upload(
        self,
        call: Call,
        data: Any,
        requests_of: Callable[[bytes], Iterable[Any]],
        decode: Callable[[Any], T],
    ) -> T:
        """Sends the call's request and then those of each piece of `data`. It is not repeated."""

        async def requests() -> AsyncIterator[Any]:
            yield call.request
            if hasattr(data, "__aiter__"):
                async for piece in data:
                    for request in requests_of(piece):
                        yield request
                return
            for piece in [data] if isinstance(data, bytes) else data:
                for request in requests_of(piece):
                    yield request

        with self._failures():
            return decode(await self.start(call, self.attempts(call), requests()))


class Sessions:
    """quire.Sessions for asyncio. Unknown, expired and other callers' sessions raise NotFound."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    _change = blocking_sessions.Sessions._change
    _pages = blocking_sessions.Sessions._pages

    create = awaited(blocking_sessions.Sessions.create)
    get = awaited(blocking_sessions.Sessions.get)
    list = awaited(blocking_sessions.Sessions.list)
    fork = awaited(blocking_sessions.Sessions.fork)
    truncate = awaited(blocking_sessions.Sessions.truncate)
    touch = awaited(blocking_sessions.Sessions.touch)
    offload = awaited(blocking_sessions.Sessions.offload)
    prefetch = awaited(blocking_sessions.Sessions.prefetch)
    pin = awaited(blocking_sessions.Sessions.pin)
    unpin = awaited(blocking_sessions.Sessions.unpin)
    close = awaited(blocking_sessions.Sessions.close)
    watch = iterated(blocking_sessions.Sessions.watch)
    export = iterated(blocking_sessions.Sessions.export)

    def import_(
        self,
        data: Union[bytes, Iterable[bytes], AsyncIterator[bytes]],
        session_id: Optional[str] = None,
        options: SessionOptions = SessionOptions(),
        *,
        timeout: Optional[float] = None,
    ) -> Awaitable[Session]:
        """Like quire.Sessions.import_; `data` may also be the result of export()."""
        import_: Any = blocking_sessions.Sessions.import_
        return import_(self, data, session_id, options, timeout=timeout)


class Jobs:
    """quire.Jobs for asyncio. Deleted, expired and other callers' jobs raise NotFound."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    create = awaited(blocking_jobs.Jobs.create)
    get = awaited(blocking_jobs.Jobs.get)
    list = awaited(blocking_jobs.Jobs.list)
    cancel = awaited(blocking_jobs.Jobs.cancel)
    delete = awaited(blocking_jobs.Jobs.delete)
    results = iterated(blocking_jobs.Jobs.results)


class QuireClient(blocking.BaseClient):
    __doc__ = f"""{blocking.BaseClient.__doc__}
    The client belongs to the event loop in which the first call is made.
    """

    _caller_type = Caller
    _sessions_type = Sessions
    sessions: Sessions
    _jobs_type = Jobs
    jobs: Jobs

    async def close(self) -> None:
        """Ends the connection; live streams end with Cancelled."""
        await self._caller.close()

    async def __aenter__(self) -> "QuireClient":
        return self

    async def __aexit__(self, *unused: object) -> None:
        await self.close()

    _generation = blocking.QuireClient._generation
    _info = blocking.QuireClient._info

    generate = returning(Stream, blocking.QuireClient.generate)
    attach = returning(Stream, blocking.QuireClient.attach)
    generate_text = awaited(blocking.QuireClient.generate_text)
    chat = returning(Stream, blocking.QuireClient.chat)
    conversation = returning(Conversation[Stream], blocking.QuireClient.conversation)
    tokenize = awaited(blocking.QuireClient.tokenize)
    detokenize = awaited(blocking.QuireClient.detokenize)
    generate_batch = iterated(blocking.QuireClient.generate_batch)
    score = iterated(blocking.QuireClient.score)
    embed = iterated(blocking.QuireClient.embed)
    info = awaited(blocking.QuireClient.info)
    load = awaited(blocking.QuireClient.load)
    memory = awaited(blocking.QuireClient.memory)
    abort = awaited(blocking.QuireClient.abort)
    drain = awaited(blocking.QuireClient.drain)
    undrain = awaited(blocking.QuireClient.undrain)
    trace = awaited(blocking.QuireClient.trace)
