# SPDX-License-Identifier: Apache-2.0
"""A block of this program, recorded: `varve attach` runs beside it, from its first line to its last. Needs the standard
library only.

    with varve.record("x.db") as recording:
        work()
    recording.peak()["heap"]    # bytes; `varve report x.db` has all the rest
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import threading
import warnings
from typing import TYPE_CHECKING, Sequence

from . import reading
from .command import find_command
from .phases import expect_recorder

if TYPE_CHECKING:
    from .trace import Trace

_PR_SET_PTRACER = 0x59616d61  # of prctl(2)
_ANY_PROCESS = ctypes.c_ulong(-1).value
_BEGUN = "varve: recording process "  # the line that `varve attach` says once it records

_lock = threading.Lock()
_current: Recording | None = None  # of this process: it has one recorder


class RecordingError(RuntimeError):
    """A block that can't be recorded, or whose recording failed: one line with what is wrong and what to do."""


class Recording:
    """What varve.record() returns: a context manager, whose block is recorded.

    path:    of the database, which is finished when the block has ended
    summary: what `varve attach` said at the end, with what was lost, if anything was
    """

    def __init__(self, path: str, words: list[str]) -> None:
        self.path, self.summary = path, ""
        self._words, self._pid = words, 0
        self._attach: subprocess.Popen[str] | None = None

    def __enter__(self) -> Recording:
        global _current
        with _lock:
            if _current is not None and _current._pid == os.getpid():
                raise RecordingError(f"{self.path}: this process is being recorded into {_current.path}: one recording "
                                     "at a time")
            _current, self._pid = self, os.getpid()
        try:
            self._begin()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pid != os.getpid():  # a fork child leaves the block
            return
        try:
            self._end()
        except RecordingError as error:
            if kind is None:
                raise
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)

    def _begin(self) -> None:
        self._attach = _start("attach", "-o", self.path, *self._words, str(self._pid))
        said = []
        for line in iter(self._attach.stderr.readline, ""):  # type: ignore[union-attr]
            if line.startswith(_BEGUN):
                expect_recorder()
                return
            said.append(line)
        attach, self._attach = self._attach, None
        attach.communicate()
        raise RecordingError(_reason(said, attach.returncode))

    def _end(self) -> None:
        global _current
        attach, self._attach = self._attach, None
        try:
            if attach is not None:
                self._finish(attach)
        finally:
            _allow_tracing_by(0)
            with _lock:
                _current = None

    def _finish(self, attach: subprocess.Popen[str]) -> None:
        if attach.poll() is None:
            attach.send_signal(signal.SIGTERM)
        self.summary = attach.communicate()[1].rstrip("\n")
        status = attach.returncode
        if status < 0:
            _start("detach", "--quiet", str(self._pid)).communicate()
            raise RecordingError(f"{self.path}: varve attach was ended by signal {-status}: varve recover "
                                 f"{self.path}.d finishes the database")
        if status > 0:
            raise RecordingError(_reason(self.summary.splitlines(), status))

    def peak(self) -> dict[str, int]:
        """varve.peak() of this recording, which may still be going on."""
        return peak() if self._is_under_way() else peak(self.path)

    def _is_under_way(self) -> bool:
        return self is _current and self._pid == os.getpid()  # a fork child has a copy of us

    def open(self) -> Trace:
        """The database, by varve.open()."""
        from .trace import Trace
        return Trace(self.path)

    def __repr__(self) -> str:
        return f"<varve.Recording {self.path}{': under way' if self._is_under_way() else ''}>"


def record(path: str | os.PathLike[str], *, native: bool = True, keep: str | None = None, torch: bool = False,
           force: bool = False, options: Sequence[str] = ()) -> Recording:
    """Record what this process allocates, all its threads and those that it forks, while the block of a `with` runs,
    into the database `path`. Memory from before is not known; objects that Python cuts from its arenas are not seen,
    as by `varve attach` (docs/live.md). One recording at a time, and none beside `varve record`.

    native: frames of native code too, not only those of Python
    keep:   "events" (all that happens), "lasting", "allocations" or "totals": how much the database keeps
    torch:  PyTorch's own history too
    force:  replace the database if there is one
    options: more of `varve attach`'s, such as ["--max-size", "1G"]

    RecordingError, when the block begins or at its end: it can't be recorded, with the reason."""
    words = [] if native else ["--stacks", "python"]
    words += [] if keep is None else ["--keep", keep]
    words += ["--torch"] * torch + ["--force"] * force
    words += [word for word in options if word not in ("-q", "--quiet")]  # the block begins when `varve attach` says so
    return Recording(os.path.abspath(os.fsdecode(path)), words)


def peak(path: str | os.PathLike[str] | None = None) -> dict[str, int]:
    """Bytes that were live at the peak of each domain, as {"heap": bytes, "mmap": …}; of GPU runs by device, "block:0".
    Of a finished trace; None: of the recording of this process that is under way, so far (takes up to a second).
    TraceError: no trace. RecordingError: this process is not being recorded."""
    if path is not None:
        reading.check(os.fspath(path))
        rows = reading.rows(os.fspath(path), "SELECT domain, device, peak_bytes FROM total ORDER BY domain, device")[1]
        return {_domain_name(*row[:2]): row[2] for row in rows}
    answer = subprocess.run([find_command(), "top", "--json", str(os.getpid())], stdin=subprocess.DEVNULL,
                            capture_output=True, text=True, errors="replace", env=_environment())
    if answer.returncode != 0:
        raise RecordingError(_reason(answer.stderr.splitlines(), answer.returncode))
    totals = json.loads(answer.stdout)["figures"]["totals"]
    return {_domain_name(row["domain"], row["device"]): row["peak_bytes"] for row in totals}


def _start(*words: str) -> subprocess.Popen[str]:
    """A command of varve that traces this process, and is no part of the program. RecordingError: there is none."""
    command = [find_command(), *words]
    _allow_tracing_by(_ANY_PROCESS)  # it may look at us before we know its number
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True, errors="replace", env=_environment(),
                                   start_new_session=True)  # Ctrl-C ends the block, which ends the recording
    except OSError as error:
        _allow_tracing_by(0)
        raise RecordingError(f"{command[0]}: {error.strerror}: VARVE names the command, if it is not in PATH") from None
    _allow_tracing_by(process.pid)
    return process


def _environment() -> dict[str, str]:
    """Of a process that a recording of this one does not miss (trace/format/session_format.h), and whose options are
    all said here."""
    return {**os.environ, "VARVE_UNRECORDED": "1", "VARVE_CONFIG": ""}


def _domain_name(domain: str, device: int | None) -> str:
    return domain if domain in ("heap", "mmap", "python") else f"{domain}:{device}"


def _allow_tracing_by(pid: int) -> None:
    """Where only descendants may be traced (Yama): this process and what it starts may trace us; 0: nobody more."""
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


def _reason(said: list[str], status: int) -> str:
    line = said[-1].strip() if said else f"varve ended with exit status {status}"
    return line.split(": ", 1)[1] if line.startswith("varve attach: ") or line.startswith("varve top: ") else line
