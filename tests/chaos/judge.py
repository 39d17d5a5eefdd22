"""What every call ended with, and whether it may end so: judged when the run is over."""

import collections
import contextlib
import dataclasses
import pathlib
import re
import threading
import time
import traceback

import grpc
from answers import Broken
from quire.errors import QuireError

ERRORS = (pathlib.Path(__file__).resolve().parents[2] / "docs/errors.md").read_text()
# A well-behaved client gets them from a server that ends or was lost, and at no other time.
OF_AN_END = {("UNAVAILABLE", None), ("UNAVAILABLE", "DRAINING"), ("UNAVAILABLE", "ENGINE_FAULT"),
             ("NOT_FOUND", "SESSION_NOT_FOUND"), ("ALREADY_EXISTS", "SESSION_EXISTS"),
             ("FAILED_PRECONDITION", "WRONG_POSITION"), ("FAILED_PRECONDITION", "SESSION_BUSY")}
LOST = ("INTERNAL", "ENGINE_FAULT")  # at the third death under the request, or at the last
NEVER = {("RESOURCE_EXHAUSTED", "SLOW_READER"), ("INTERNAL", "NUMERIC"),
         ("INVALID_ARGUMENT", "SESSION_FILE_DAMAGED"), ("INVALID_ARGUMENT", None),
         ("FAILED_PRECONDITION", "SESSION_FILE_MISMATCH"), ("UNAUTHENTICATED", None),
         ("PERMISSION_DENIED", None), ("NOT_FOUND", "MODEL_NOT_FOUND")}


def documented():
    """Codes with their reasons, or None, from the tables of docs/errors.md."""
    pairs = set()
    for line in ERRORS.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 6 and re.fullmatch("[A-Z_]{6,}", cells[2]):
            reasons = re.findall(r"`([A-Z_]{4,})`", cells[3])
            pairs |= {(cells[2], reason) for reason in reasons or (None,)}
    return pairs


@dataclasses.dataclass
class Call:
    """A call of a client; `cancelled` and `hasty` say that the client meant to leave it early."""

    name: str
    life: int  # the number of the server that it began with
    began: float = dataclasses.field(default_factory=time.monotonic)
    ended: float = 0
    cancelled: bool = False
    hasty: bool = False
    error: tuple = None
    message: str = ""


class Judge:
    """Any thread."""

    def __init__(self, servers):
        self.servers = servers
        self.outcomes = collections.Counter()
        self.faults = []
        self.failed = []  # calls with an error
        self._lock = threading.Lock()

    def fault(self, text):
        with self._lock:
            self.faults.append(text)
        print("FAULT:", text[:2000], flush=True)

    @contextlib.contextmanager
    def watching(self, name):
        """A thread that ends by an exception is a fault."""
        try:
            yield
        except Exception:  # pylint: disable=broad-except
            self.fault(f"{name}: {traceback.format_exc()}")

    @contextlib.contextmanager
    def call(self, name):
        call = Call(name, self.servers.life.number)
        try:
            yield call
        except QuireError as error:
            call.error, call.message = (error.code.name, error.reason), error.message
        except Broken as broken:
            self.fault(f"{name}: {broken}")
        call.ended = time.monotonic()
        with self._lock:
            self.outcomes[call.error or "OK"] += 1
            if call.error:
                self.failed.append(call)

    def refused(self, call, code, reason):
        """An item of a call whose own status is OK."""
        name = next(each.name for each in grpc.StatusCode if each.value[0] == code)
        with self._lock:
            self.failed.append(dataclasses.replace(call, error=(name, reason),
                                                   ended=time.monotonic()))

    def verdict(self, call, known):
        """What is wrong with the error of a call; None if it may have it."""
        disturbed = self.servers.disturbances.meets(call.began, call.ended)
        if call.error == ("CANCELLED", None):
            return None if call.cancelled or disturbed else "though its client waited"
        if call.error[0] == "DEADLINE_EXCEEDED":
            return None if call.hasty else "though its client waited"
        if call.error in OF_AN_END:
            return None if disturbed else "from a server that did not end"
        if call.error == LOST:
            # A worker may be found dead a moment after the blow, when the call has begun.
            deaths = sum(call.began - 1 <= when <= call.ended for when in self.servers.blows)
            last = disturbed and any(life.gave_up() for life in
                                     self.servers.lives[call.life:call.life + 2])
            return None if deaths >= 3 or last else f"after {deaths} deaths of a worker"
        if call.error in NEVER:
            return "which no client here has asked for"
        return None if call.error in known else "which docs/errors.md does not name"

    def figures(self):
        """How many calls had each end."""
        return {" ".join(map(str, key)) if key != "OK" else key: count
                for key, count in sorted(self.outcomes.items(), key=str)}

    def conclude(self):
        known = documented()
        for call in self.failed:
            wrong = self.verdict(call, known)
            if wrong:
                self.fault(f"{call.name} ended with {call.error} ({call.message}) {wrong}, after "
                           f"{call.ended - call.began:.1f} s, at {call.ended:.1f}")
        for life in self.servers.lives:
            for fault in life.faults():
                self.fault(fault)
            unsaved = len(life.lost) <= life.unsaved or life.disk_failed
            if not unsaved:
                self.fault(f"turns that server {life.number} had confirmed were gone, and it "
                           f"counted {life.unsaved} as unsaved: {life.lost}")
        return self.faults
