"""A program under the fault shim (fault_shim.cc), and the schedule that its calls meet."""

import mmap
import os
import pathlib
import struct
import tempfile

FILE_BYTES, TEXT_AT, COUNTS_AT = 8192, 64, 4096


class Faults:
    """The schedule of one program and its children; the program runs with `environment()`."""

    def __init__(self, shim):
        self._shim = str(pathlib.Path(shim).resolve())
        self._file = tempfile.NamedTemporaryFile()
        self._file.truncate(FILE_BYTES)
        self._map = mmap.mmap(self._file.fileno(), FILE_BYTES)
        self._version = 0
        self._rules = 0

    def environment(self):
        return {**os.environ, "LD_PRELOAD": self._shim, "FAULT_SHIM_FILE": self._file.name}

    def set(self, *rules):
        """From now on calls meet these rules, and no others; the counts begin anew."""
        text = "\n".join(rules).encode() + b"\0"
        assert len(text) <= COUNTS_AT - TEXT_AT
        self._map[COUNTS_AT:FILE_BYTES] = bytes(FILE_BYTES - COUNTS_AT)
        self._map[TEXT_AT : TEXT_AT + len(text)] = text
        self._version += 1
        self._map[:8] = struct.pack("<Q", self._version)
        self._rules = len(rules)

    def end(self):
        self.set()

    def seen(self, rule=0):
        """Calls that matched the rule."""
        return self._count(2 * rule)

    def met(self, rule=0):
        """Calls that met the fault of the rule."""
        return self._count(2 * rule + 1)

    def _count(self, index):
        at = COUNTS_AT + 8 * index
        return struct.unpack("<Q", self._map[at : at + 8])[0]
