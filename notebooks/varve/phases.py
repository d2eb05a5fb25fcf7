# SPDX-License-Identifier: Apache-2.0
"""Named phases of this program in the recording that is made of it, by whatever means: what `trace/emit.h` has for C.
Nothing happens where nobody records. Needs the standard library only.

    for epoch in range(10):
        varve.mark(f"epoch {epoch}")
        with varve.phase("validate"):
            ...
"""

from __future__ import annotations

import ctypes
import os
import threading
import time

_MARK_BEGIN, _MARK_END = 15, 16  # kinds of trace/event_list.h
_NAME_BYTES = 24
_LOOK_NS = 1_000_000_000  # a recorder that was not there is looked for no more often

_lock = threading.Lock()


class _Record(ctypes.Structure):
    """struct varve_record of trace/record.h; the name lies in its first words."""
    _fields_ = [("ticks", ctypes.c_uint64), ("name", ctypes.c_uint8 * _NAME_BYTES), ("arg", ctypes.c_uint64),
                ("id_stream", ctypes.c_uint64), ("tag", ctypes.c_uint64), ("callsite", ctypes.c_uint32),
                ("pool", ctypes.c_uint16), ("device", ctypes.c_uint8), ("cause", ctypes.c_uint8)]


def _recorder_library() -> ctypes.PyDLL | None:
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        path = next((line.split(maxsplit=5)[5].rstrip("\n") for line in maps if "/libvarve_preload.so" in line), None)
    if path is None:
        return None
    path = path.removesuffix(" (deleted)")  # replaced by an upgrade; the loader knows it by the old name
    library = ctypes.PyDLL(path, mode=os.RTLD_NOW | os.RTLD_NOLOAD)  # holds the GIL, whose frames it reads
    library.varve_records_wanted.restype = ctypes.c_bool
    library.varve_callsite_here.restype = ctypes.c_uint32
    library.varve_emit_record.restype = None
    return library


class _Recorder:
    """libvarve_preload.so, once it is in this process."""

    def __init__(self) -> None:
        self.library: ctypes.PyDLL | None = None
        self.looked_ns = -_LOOK_NS

    def find(self) -> ctypes.PyDLL | None:
        now = time.monotonic_ns()
        if self.library is None and now - self.looked_ns >= _LOOK_NS:
            self.looked_ns = now
            try:
                self.library = _recorder_library()
            except OSError:  # no /proc, or a recorder that is there but can't be called: nobody records
                pass
        return self.library

    def emit(self, kind: int, name: str) -> None:
        library = self.find()
        if library is None or not library.varve_records_wanted(ctypes.c_uint(0xffffffff)):
            return
        record = _Record(tag=kind << 8, callsite=library.varve_callsite_here())
        for at, letter in enumerate(str(name).encode("ascii", "replace")[:_NAME_BYTES]):
            record.name[at] = letter if 0x20 <= letter <= 0x7e else 0x3f
        library.varve_emit_record(ctypes.byref(record))


_recorder = _Recorder()
_marked: str | None = None  # the phase that mark() began last


def expect_recorder() -> None:
    """The next phase looks for the recorder again: it has come."""
    _recorder.looked_ns = -_LOOK_NS


def mark(name: str) -> None:
    """A phase of the program, of all its threads, begins, and the one that mark() began before ends. Of the name the
    first 24 characters count, and others than printable ASCII become '?'. The view `mark`, figures over time and
    pages have them."""
    global _marked
    with _lock:
        before, _marked = _marked, name
        if before is not None:
            _recorder.emit(_MARK_END, before)
        _recorder.emit(_MARK_BEGIN, name)


class phase:
    """A phase that is a block: `with varve.phase("load"):`. Phases nest; names as for mark()."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> phase:
        _recorder.emit(_MARK_BEGIN, self.name)
        return self

    def __exit__(self, *_: object) -> None:
        _recorder.emit(_MARK_END, self.name)
