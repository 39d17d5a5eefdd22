"""Exceptions for failed calls, with the details that the server sent."""

import contextlib
import dataclasses
from typing import Dict, Iterator, Optional, Sequence, Tuple, Union

import grpc
import grpc.aio

DETAILS_KEY = "grpc-status-details-bin"  # trailing metadata with a serialized google.rpc.Status


@dataclasses.dataclass(frozen=True)
class FieldViolation:
    """One field of the request that the server refuses, with the reason."""

    field: str
    description: str


class QuireError(Exception):
    """A call failed. `code` is the gRPC status, `message` the server's message."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.violations: Sequence[FieldViolation] = ()
        self.reason: Optional[str] = None  # a stable name, such as "QUEUE_FULL"
        self.metadata: Dict[str, str] = {}  # facts about the reason
        self.retry_after: Optional[float] = None  # seconds to wait before a retry


class InvalidRequest(QuireError):
    """The request is invalid, or contradicts the session's state: see `reason`."""


class Unauthenticated(QuireError):
    """The server wants a key or a certificate, and this one is missing, wrong or expired."""


class PermissionDenied(QuireError):
    """The server knows the caller, who may not make this call."""


class NotFound(QuireError):
    """No such model or session."""


class AlreadyExists(QuireError):
    """Another live request has this request_id, or another session this name."""


class Overloaded(QuireError):
    """A queue or quota is full; try again after `retry_after` seconds."""


class Unavailable(QuireError):
    """The server cannot be reached, is starting, or accepts no new requests."""


class DeadlineExceeded(QuireError):
    """The timeout passed first."""


class Cancelled(QuireError):
    """The request was aborted, or the caller cancelled it."""


class ServerFault(QuireError):
    """The server failed."""


_CLASSES = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.FAILED_PRECONDITION: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Overloaded,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Cancelled,
}


def error_of(rpc_error: grpc.RpcError) -> QuireError:
    """The exception for a failed call."""
    code = rpc_error.code()
    error = _CLASSES.get(code, ServerFault)(code, rpc_error.details() or "")
    for key, value in rpc_error.trailing_metadata() or ():
        if key == DETAILS_KEY:
            try:
                _add_details(error, value)
            except (ValueError, IndexError):
                pass  # status and message are enough
    return error


def _fields(data: bytes) -> Iterator[Tuple[int, Union[int, bytes]]]:
    """(number, value) of each field of a protobuf message: varints as int, the rest as bytes.

    The standard detail messages are read by hand, because two packages that both bring
    google/rpc/*.proto cannot be loaded into one program.
    """
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        if kind not in (1, 2, 5):
            raise ValueError(f"wire type {kind}")
        size = varint() if kind == 2 else 8 if kind == 1 else 4
        if at + size > len(data):
            raise ValueError("truncated")
        yield key >> 3, data[at : at + size]
        at += size


def _strings(data: bytes) -> Dict[int, str]:
    return {n: v.decode() for n, v in _fields(data) if isinstance(v, bytes)}


def _add_details(error: QuireError, status: bytes) -> None:
    """Reads a google.rpc.Status: BadRequest, ErrorInfo and RetryInfo among its details."""
    for number, detail in _fields(status):
        if number != 3 or not isinstance(detail, bytes):
            continue
        parts = dict(_fields(detail))  # google.protobuf.Any: type_url = 1, value = 2
        name = bytes(parts.get(1, b"")).decode().rpartition("/")[2]
        value = bytes(parts.get(2, b""))
        if name == "google.rpc.BadRequest":
            found = [_strings(v) for n, v in _fields(value) if n == 1 and isinstance(v, bytes)]
            error.violations = tuple(FieldViolation(f.get(1, ""), f.get(2, "")) for f in found)
        elif name == "google.rpc.ErrorInfo":
            for n, v in _fields(value):
                if n == 1:
                    error.reason = bytes(v).decode()
                elif n == 3 and isinstance(v, bytes):
                    entry = _strings(v)
                    error.metadata[entry.get(1, "")] = entry.get(2, "")
        elif name == "google.rpc.RetryInfo":
            delay = dict(_fields(bytes(dict(_fields(value)).get(1, b""))))
            error.retry_after = int(delay.get(1, 0)) + int(delay.get(2, 0)) / 1e9


def cancelled(message: str = "the caller cancelled the call") -> Cancelled:
    """The exception for a call that ended on this side."""
    return Cancelled(grpc.StatusCode.CANCELLED, message)


@contextlib.contextmanager
def calls_failing_as_ours() -> Iterator[None]:
    """Raises the QuireError that a gRPC error stands for."""
    try:
        yield
    except grpc.RpcError as error:
        raise error_of(error) from None
    except ValueError as error:
        if "closed channel" not in str(error):
            raise
        raise cancelled("the client is closed") from None
    except grpc.aio.UsageError as error:
        if "closed" not in str(error).lower():
            raise
        raise cancelled("the client is closed") from None
