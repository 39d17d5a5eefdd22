"""Sessions: the conversations that the server keeps for this caller."""

import math
from typing import Any, Iterable, Iterator, List, Optional, Union

from quire import messages
from quire.caller import Call, Plan
from quire.types import Session, SessionOptions
from quire.v1 import sessions_pb2

CHUNK_BYTES = 1 << 20


class Sessions:
    """The caller's sessions. Unknown, expired and other callers' sessions raise NotFound."""

    def __init__(self, caller: Any) -> None:
        self._caller = caller

    def create(
        self,
        session_id: Optional[str] = None,
        options: SessionOptions = SessionOptions(),
        *,
        timeout: Optional[float] = None,
    ) -> Session:
        """Creates an empty session; without a name the server chooses one."""
        request = sessions_pb2.CreateSessionRequest(
            session_id=session_id, options=messages.session_options(options)
        )
        return self._change(self._caller.sessions.Create, request, timeout)

    def get(self, session_id: str, *, timeout: Optional[float] = None) -> Session:
        """The session's current state."""
        method, request = self._caller.sessions.Get, sessions_pb2.GetSessionRequest()
        request.session_id = session_id
        call = Call(method, request, timeout, session=session_id, repeatable=True)
        return self._caller.ask(call, messages.session_of)

    def list(self, *, timeout: Optional[float] = None) -> List[Session]:
        """All sessions, sorted by name."""
        return self._caller.run(self._pages(timeout))

    def _pages(self, timeout: Optional[float]) -> Plan[List[Session]]:
        request, sessions = sessions_pb2.ListSessionsRequest(), []
        while True:
            page = yield Call(self._caller.sessions.List, request, timeout, repeatable=True)
            sessions += [messages.session_of(session) for session in page.sessions]
            if not page.HasField("next_after"):
                return sessions
            request.after = page.next_after

    def fork(
        self,
        session_id: str,
        new_session_id: Optional[str] = None,
        *,
        position: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Session:
        """Creates a session with the first `position` tokens (None: all) of another."""
        request = sessions_pb2.ForkSessionRequest(
            session_id=session_id, new_session_id=new_session_id, position=position
        )
        return self._change(self._caller.sessions.Fork, request, timeout)

    def truncate(
        self, session_id: str, position: int, *, timeout: Optional[float] = None
    ) -> Session:
        """Removes the tokens from `position` to the end."""
        request = sessions_pb2.TruncateSessionRequest(session_id=session_id, position=position)
        return self._change(self._caller.sessions.Truncate, request, timeout)

    def touch(
        self,
        session_id: str,
        options: SessionOptions = SessionOptions(),
        *,
        timeout: Optional[float] = None,
    ) -> Session:
        """Renews the lease and changes the options that are not None."""
        request = sessions_pb2.TouchSessionRequest(
            session_id=session_id, options=messages.session_options(options)
        )
        return self._change(self._caller.sessions.Touch, request, timeout)

    def offload(self, session_id: str, *, timeout: Optional[float] = None) -> Session:
        """Starts to copy the KV to the host and frees its blocks on the device."""
        request = sessions_pb2.OffloadSessionRequest(session_id=session_id)
        return self._change(self._caller.sessions.Offload, request, timeout)

    def prefetch(self, session_id: str, *, timeout: Optional[float] = None) -> Session:
        """Starts to load the KV to the device."""
        request = sessions_pb2.PrefetchSessionRequest(session_id=session_id)
        return self._change(self._caller.sessions.Prefetch, request, timeout)

    def pin(self, session_id: str, *, timeout: Optional[float] = None) -> Session:
        """Keeps the KV on the device until unpin()."""
        request = sessions_pb2.PinSessionRequest(session_id=session_id)
        return self._change(self._caller.sessions.Pin, request, timeout)

    def unpin(self, session_id: str, *, timeout: Optional[float] = None) -> Session:
        """Allows the KV to leave the device again."""
        request = sessions_pb2.UnpinSessionRequest(session_id=session_id)
        return self._change(self._caller.sessions.Unpin, request, timeout)

    def close(self, session_id: str, *, timeout: Optional[float] = None) -> None:
        """Ends the session."""
        request = sessions_pb2.CloseSessionRequest(session_id=session_id)
        call = Call(self._caller.sessions.Close, request, timeout, session=session_id)
        return self._caller.ask(call, lambda reply: None)

    def watch(self, session_id: str, *, timeout: Optional[float] = None) -> Iterator[Session]:
        """Yields the session now and after each change, until it is closed.

        Without `timeout` it waits forever, regardless of the client's timeout.
        """
        request = sessions_pb2.WatchSessionRequest(session_id=session_id)
        deadline = math.inf if timeout is None else timeout
        call = Call(self._caller.sessions.Watch, request, deadline, session=session_id)
        return self._caller.each(call, messages.session_of)

    def export(self, session_id: str, *, timeout: Optional[float] = None) -> Iterator[bytes]:
        """Yields tokens and KV as pieces of one file, for import_() here or on another server."""
        request = sessions_pb2.ExportSessionRequest(session_id=session_id)
        call = Call(self._caller.sessions.Export, request, timeout, session=session_id)
        return self._caller.each(call, lambda chunk: chunk.data)

    def import_(
        self,
        data: Union[bytes, Iterable[bytes]],
        session_id: Optional[str] = None,
        options: SessionOptions = SessionOptions(),
        *,
        timeout: Optional[float] = None,
    ) -> Session:
        """Creates a session from the bytes of export(), or from their pieces in order."""
        first = sessions_pb2.ImportSessionRequest(
            session_id=session_id, options=messages.session_options(options)
        )
        call = Call(self._caller.sessions.Import, first, timeout, session=session_id)
        return self._caller.upload(call, data, _import_requests, messages.session_of)

    def _change(self, method: Any, request: Any, timeout: Optional[float]) -> Session:
        call = Call(method, request, timeout, session=request.session_id)
        return self._caller.ask(call, messages.session_of)


def _import_requests(piece: bytes) -> Iterator[sessions_pb2.ImportSessionRequest]:
    """The bytes of a piece in messages of the allowed size."""
    for at in range(0, len(piece), CHUNK_BYTES):
        chunk = sessions_pb2.SessionChunk(data=piece[at : at + CHUNK_BYTES])
        yield sessions_pb2.ImportSessionRequest(chunk=chunk)
