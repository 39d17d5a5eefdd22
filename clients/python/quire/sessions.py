"""Sessions: the conversations that the server keeps for this caller."""

from typing import Any, Iterable, Iterator, List, Optional, Union

import grpc

from quire import messages
from quire.errors import calls_failing_as_ours
from quire.types import Session, SessionOptions
from quire.v1 import sessions_pb2, sessions_pb2_grpc

CHUNK_BYTES = 1 << 20


class Sessions:
    """The caller's sessions. Unknown, expired and other callers' sessions raise NotFound."""

    def __init__(self, channel: grpc.Channel, timeout: Optional[float]) -> None:
        self._stub = sessions_pb2_grpc.SessionsStub(channel)
        self._timeout = timeout

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
        return self._session(self._stub.Create, request, timeout)

    def get(self, session_id: str, *, timeout: Optional[float] = None) -> Session:
        """The session's current state."""
        request = sessions_pb2.GetSessionRequest(session_id=session_id)
        return self._session(self._stub.Get, request, timeout)

    def list(self, *, timeout: Optional[float] = None) -> List[Session]:
        """All sessions, sorted by name."""
        request, sessions = sessions_pb2.ListSessionsRequest(), []
        while True:
            page = self._call(self._stub.List, request, timeout)
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
        return self._session(self._stub.Fork, request, timeout)

    def truncate(
        self, session_id: str, position: int, *, timeout: Optional[float] = None
    ) -> Session:
        """Removes the tokens from `position` to the end."""
        request = sessions_pb2.TruncateSessionRequest(session_id=session_id, position=position)
        return self._session(self._stub.Truncate, request, timeout)

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
        return self._session(self._stub.Touch, request, timeout)

    def offload(self, session_id: str, *, timeout: Optional[float] = None) -> Session:
        """Starts to copy the KV to the host and frees its blocks on the device."""
        request = sessions_pb2.OffloadSessionRequest(session_id=session_id)
        return self._session(self._stub.Offload, request, timeout)

    def prefetch(self, session_id: str, *, timeout: Optional[float] = None) -> Session:
        """Starts to load the KV to the device."""
        request = sessions_pb2.PrefetchSessionRequest(session_id=session_id)
        return self._session(self._stub.Prefetch, request, timeout)

    def pin(self, session_id: str, *, timeout: Optional[float] = None) -> Session:
        """Keeps the KV on the device until unpin()."""
        request = sessions_pb2.PinSessionRequest(session_id=session_id)
        return self._session(self._stub.Pin, request, timeout)

    def unpin(self, session_id: str, *, timeout: Optional[float] = None) -> Session:
        """Allows the KV to leave the device again."""
        request = sessions_pb2.UnpinSessionRequest(session_id=session_id)
        return self._session(self._stub.Unpin, request, timeout)

    def close(self, session_id: str, *, timeout: Optional[float] = None) -> None:
        """Ends the session."""
        request = sessions_pb2.CloseSessionRequest(session_id=session_id)
        self._call(self._stub.Close, request, timeout)

    def watch(self, session_id: str, *, timeout: Optional[float] = None) -> Iterator[Session]:
        """Yields the session now and after each change, until it is closed.

        Without `timeout` it waits forever, regardless of the client's timeout.
        """
        request = sessions_pb2.WatchSessionRequest(session_id=session_id)
        call = self._stub.Watch(request, timeout=timeout)
        try:
            with calls_failing_as_ours():
                for session in call:
                    yield messages.session_of(session)
        finally:
            call.cancel()

    def export(self, session_id: str, *, timeout: Optional[float] = None) -> Iterator[bytes]:
        """Yields tokens and KV as pieces of one file, for import_() here or on another server."""
        request = sessions_pb2.ExportSessionRequest(session_id=session_id)
        call = self._stub.Export(request, timeout=self._deadline(timeout))
        try:
            with calls_failing_as_ours():
                for chunk in call:
                    yield chunk.data
        finally:
            call.cancel()

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
        return self._session(self._stub.Import, _import_requests(first, data), timeout)

    def _deadline(self, timeout: Optional[float]) -> Optional[float]:
        return self._timeout if timeout is None else timeout

    def _call(self, method: Any, request: Any, timeout: Optional[float]) -> Any:
        with calls_failing_as_ours():
            return method(request, timeout=self._deadline(timeout))

    def _session(self, method: Any, request: Any, timeout: Optional[float]) -> Session:
        return messages.session_of(self._call(method, request, timeout))


def _import_requests(
    first: sessions_pb2.ImportSessionRequest, data: Union[bytes, Iterable[bytes]]
) -> Iterator[sessions_pb2.ImportSessionRequest]:
    """The first message has the name; the others have the bytes."""
    yield first
    for piece in [data] if isinstance(data, bytes) else data:
        for at in range(0, len(piece), CHUNK_BYTES):
            chunk = sessions_pb2.SessionChunk(data=piece[at : at + CHUNK_BYTES])
            yield sessions_pb2.ImportSessionRequest(chunk=chunk)
