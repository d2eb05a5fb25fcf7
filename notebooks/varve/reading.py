# SPDX-License-Identifier: Apache-2.0
"""Rows of a trace database as Arrow record batches: read by libvarve_query.so where there is one, else by Python's
sqlite3, several times slower. Each question has a connection of its own, so that any number of threads may ask at the
same time. Nothing is written."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import numbers
import os
import sqlite3
import sys
import time
import urllib.parse
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, Sequence

from .library import Message, candidates

if TYPE_CHECKING:
    import pyarrow

APPLICATION_ID, SCHEMA_VERSION = 0x56525645, 8  # as in trace/writer.h
BATCH_ROWS = 1 << 16
TIMEOUT_S = 60.0  # of computing: a file may come from anybody, and its views need not end

Parameter = "int | float | str | None"

# What the extras of pyproject.toml are, by name: the package itself is in this tree, not in an index.
_EXTRAS = {"data": "pandas pyarrow", "plot": "pandas pyarrow plotly",
           "dataset": "pandas pyarrow duckdb 'dask[dataframe,distributed]'"}


class TraceError(Exception):
    """A trace that can't be read, or a question that it can't answer: one line with what is wrong, where,
    and what to do."""


def needs(module: str, extra: str) -> Any:
    """`module`, which the package does without until it is needed. TraceError: it is not installed; the
    message says how."""
    try:
        return __import__(module, fromlist=["*"])
    except ImportError as error:
        raise TraceError(f"this needs {module.split('.')[0]}: pip install {_EXTRAS[extra]} ({error})") from error


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """Of each path the shortest end that no other one has: its file's name, or a/trace.db where there is a
    b/trace.db too."""
    parts = {path: os.path.abspath(path).split(os.sep) for path in paths}
    files = set(map(tuple, parts.values()))
    count = collections.Counter(file[at:] for file in files for at in range(len(file)))

    def name(part: list[str]) -> str:
        at = next((at for at in reversed(range(len(part))) if count[tuple(part[at:])] == 1), 0)
        return os.fsencode("/".join(part[at:])).decode("utf-8", "backslashreplace")

    return {path: name(part) for path, part in parts.items()}


# ---- what a file is ----

def check(path: str) -> None:
    """TraceError unless `path` is a finished trace database of this version. Reads 100 bytes and the row
    `complete` of meta."""
    directory = path + ".d"
    if os.path.exists(os.path.join(directory, "owner")):
        raise TraceError(f"{path}: the recording is still running or incomplete: wait for its end, or run varve "
                         f"recover {directory}")
    try:
        with open(path, "rb") as file:
            header = file.read(100)
    except IsADirectoryError:
        raise TraceError(f"{path} is a directory, not a trace database; varve.dataset() reads directories of Parquet "
                         "files") from None
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # a zero byte in it
        raise TraceError(f"{path!r}: {error}") from None
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise TraceError(f"{path} is not a trace database (not an SQLite file): varve import makes one of snapshots, "
                         "CTF and RMM logs")
    if os.path.exists(path + "-wal") and os.path.getsize(path + "-wal") > 0:
        raise TraceError(f"{path}: the recording is still running or incomplete: wait for its end, or run varve "
                         f"recover {directory}")
    application, version = (int.from_bytes(header[at:at + 4], "big") for at in (68, 60))
    if application != APPLICATION_ID:
        raise TraceError(f"{path} is an SQLite database of another tool (application_id {application:#010x})")
    if version != SCHEMA_VERSION:
        raise TraceError(f"{path} was written by {'a newer' if version > SCHEMA_VERSION else 'an older'} varve (schema "
                         f"{version}, this package reads {SCHEMA_VERSION}): use the package of that version, or record "
                         "again")
    if scalar(path, "SELECT value FROM meta WHERE key = 'complete'") != 1:
        raise TraceError(f"{path}: the recording was cut off before its totals were made: run varve recover "
                         f"{directory}")


def connect(path: str, timeout: float | None = TIMEOUT_S) -> sqlite3.Connection:
    """A connection that only reads and gives up after `timeout` seconds of this thread's computing;
    None: it does not."""
    wal = os.path.exists(path + "-wal") or _is_wal(path)
    options = "?mode=ro&immutable=1" if wal else "?mode=ro"
    uri = "file:" + urllib.parse.quote(os.fsencode(os.path.abspath(path))) + options
    connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
    connection.execute("PRAGMA trusted_schema = 0")
    connection.execute("PRAGMA query_only = 1")
    _limit(connection, timeout)
    return connection


def _limit(connection: sqlite3.Connection, timeout: float | None) -> None:
    """From now on: `timeout` seconds of the calling thread, whose clock is no other thread's."""
    if timeout:
        end = time.thread_time() + timeout
        connection.set_progress_handler(lambda: time.thread_time() > end, 200000)


def _is_wal(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(20)[18:] != b"\1\1"


def rows(path: str, sql: str, parameters: Sequence[Any] = (),
         timeout: float | None = TIMEOUT_S) -> tuple[list[str], list[tuple]]:
    """Names of the columns and all rows, by sqlite3: for small answers, which then need no other package."""
    sql, values = _text(path, sql), _values(path, parameters)
    with _sqlite_errors(path, timeout), contextlib.closing(connect(path, timeout)) as connection:
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        cursor = connection.execute(sql, values)
        return [column[0] for column in cursor.description or ()], cursor.fetchall()


@contextlib.contextmanager
def _sqlite_errors(path: str, timeout: float | None) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError:  # of a name in what SQLite says is wrong
        raise _explained(path, "the file is damaged", timeout) from None
    except MemoryError:  # SQLite's word for a length that no row has, too
        raise _explained(path, "the file is damaged, or there is too little memory", timeout) from None
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise _explained(path, str(error), timeout) from None


def scalar(path: str, sql: str, parameters: Sequence[Any] = ()) -> Any:
    """The first column of the first row; None if there is none."""
    found = rows(path, sql, parameters)[1]
    return found[0][0] if found else None


def reason(error: Exception) -> str:
    """One line of an exception of Arrow or of the operating system."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error).split(". Detail:")[0].splitlines()[0] if str(error) else type(error).__name__


def _explained(path: str, reason: str, timeout: float | None) -> TraceError:
    if reason == "interrupted":
        return TraceError(f"{path}: no end after {timeout:g} s of computing: open(path, timeout=SECONDS) gives it "
                          "more, None all it wants")
    return TraceError(f"{path}: {' '.join(reason.split())}")  # names of a damaged schema may have lines


# ---- what is asked ----

def _text(path: str, text: str) -> str:
    """TraceError: a text that SQLite would cut at a zero, or that is no UTF-8."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise TraceError(f"{path}: no UTF-8: {text[:60]!a} ({error.reason})") from None
    if b"\0" in data:
        raise TraceError(f"{path}: a text with a zero character: {text[:60]!a}")
    return text


def _value(path: str, parameter: Any) -> int | float | str | None:
    if parameter is None:
        return None
    if isinstance(parameter, str):
        return _text(path, parameter)
    if isinstance(parameter, numbers.Integral):  # of NumPy too
        if not -2**63 <= int(parameter) < 2**63:
            raise TraceError(f"{path}: parameter {int(parameter):#x} does not fit 64 bits with a sign")
        return int(parameter)
    if isinstance(parameter, numbers.Real):
        try:
            return float(parameter)
        except OverflowError as error:
            raise TraceError(f"{path}: parameter: {error}") from None
    raise TraceError(f"{path}: a parameter is an integer, a float, a text or None, not {type(parameter).__name__}")


def _values(path: str, parameters: Sequence[Any]) -> tuple[int | float | str | None, ...]:
    """Parameters as SQLite has them, each with the value that was given. TraceError: one has no such."""
    if isinstance(parameters, (str, bytes, Mapping)):
        raise TraceError(f"{path}: parameters are a list of values, not {type(parameters).__name__}")
    return tuple(_value(path, parameter) for parameter in parameters)


# ---- the library ----

class _Value(Structure):
    _fields_ = [("type", c_int32), ("integer", c_int64), ("real", c_double), ("text", c_char_p)]


class _Options(Structure):
    _fields_ = [("sql", c_char_p), ("types", c_char_p), ("parameters", POINTER(_Value)), ("parameter_count", c_size_t),
                ("batch_rows", c_int64), ("timeout_ns", c_int64), ("key", c_char_p), ("first", c_int64),
                ("last", c_int64)]


class _Stream(Structure):
    _fields_ = [("get_schema", c_void_p), ("get_next", c_void_p), ("get_last_error", c_void_p), ("release", c_void_p),
                ("private_data", c_void_p)]


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL | None:
    """libvarve_query.so: in VARVE_BUILD_DIR, else in build/ of this source tree, else where the system's loader finds
    it; None: nowhere, which a line on stderr says once."""
    reasons = []
    for path in candidates("libvarve_query.so"):
        try:
            loaded = ctypes.CDLL(path)
        except OSError as error:
            reasons.append(str(error))
            continue
        loaded.varve_query_arrow.restype = c_int
        loaded.varve_query_arrow.argtypes = [c_char_p, POINTER(_Options), POINTER(_Stream), POINTER(Message)]
        return loaded
    print(f"varve: no libvarve_query.so ({'; '.join(reasons)}): traces are read by Python's sqlite3, several times "
          "slower", file=sys.stderr)
    return None


def _bound(parameters: Sequence[int | float | str | None]) -> Any:
    values = (_Value * len(parameters))()
    for value, parameter in zip(values, parameters):
        if parameter is None:
            continue
        if isinstance(parameter, str):
            value.type, value.text = 3, parameter.encode()
        elif isinstance(parameter, float):
            value.type, value.real = 2, parameter
        else:
            value.type, value.integer = 1, parameter
    return values


def stream(path: str, sql: str, parameters: Sequence[Any] = (), *, types: str | None = None,
           batch_rows: int = BATCH_ROWS,
           timeout: float | None = TIMEOUT_S, key: str | None = None,
           part: tuple[int, int] = (-2**63, 2**63 - 1)) -> pyarrow.RecordBatchReader:
    """The rows of one statement, a batch at a time. `types` has a letter for each column: l integer, g real, u text, z
    bytes, ? by what the first batch holds, as without `types`. `timeout`: seconds of computing for each batch. `key`:
    an integer column by which SQLite finds rows; then only those with it in `part` are read."""
    pa = needs("pyarrow", "data")
    loaded = library()
    sql, given = _text(path, sql), _values(path, parameters)
    if loaded is None:
        if key is not None:
            sql, given = f'SELECT * FROM ({sql}) WHERE "{key}" BETWEEN ? AND ? ORDER BY "{key}"', part
        return _slow_stream(pa, path, sql, given, types, batch_rows, timeout)
    values = _bound(given)
    options = _Options(sql.encode(), types.encode() if types else None, values, len(values), batch_rows,
                       int((timeout or 0) * 1e9), key.encode() if key else None, *part)
    made, message = _Stream(), Message()
    if loaded.varve_query_arrow(os.fsencode(path), byref(options), byref(made), byref(message)) != 0:
        raise TraceError(message.text.decode("utf-8", "replace"))
    return pa.RecordBatchReader._import_from_c(ctypes.addressof(made))


# ---- without the library ----

def _letter(values: Sequence[Any]) -> str:
    found = {type(value) for value in values} - {type(None)}
    if found <= {int}:
        return "l"
    if found <= {int, float}:
        return "g"
    return "z" if found == {bytes} else "u"


def _array(pa: Any, letter: str, values: Sequence[Any]) -> Any:
    if letter == "u":
        values = [value.hex() if isinstance(value, bytes) else None if value is None else str(value)
                  for value in values]
    return pa.array(values, {"l": pa.int64(), "g": pa.float64(), "u": pa.string(), "z": pa.binary()}[letter])


def _slow_stream(pa: Any, path: str, sql: str, parameters: Sequence[Any], types: str | None, batch_rows: int,
                 timeout: float | None) -> pyarrow.RecordBatchReader:
    with contextlib.ExitStack() as stack:
        with _sqlite_errors(path, timeout):
            connection = stack.enter_context(contextlib.closing(connect(path, timeout)))
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            cursor = connection.execute(sql, tuple(parameters))
            first = cursor.fetchmany(batch_rows)
        names = [column[0] for column in cursor.description or ()]
        if not names:
            raise TraceError(f"{path}: not a question: {' '.join(sql.split())[:100]}")
        columns = list(zip(*first)) or [()] * len(names)
        letters = [_letter(column) if letter == "?" else letter for letter,
                   column in zip(types or "?" * len(names), columns)]
        schema = pa.schema([(name, _array(pa, letter, ()).type) for name, letter in zip(names, letters)])
        stack.pop_all()  # the batches close it
    return pa.RecordBatchReader.from_batches(schema, _slow_batches(pa, path, connection, cursor, first, schema, letters,
                                                                   batch_rows, timeout))


def _slow_batches(pa: Any, path: str, connection: sqlite3.Connection, cursor: sqlite3.Cursor,
                  part: list[tuple[Any, ...]], schema: pyarrow.Schema,
                  letters: Sequence[str], batch_rows: int, timeout: float | None) -> Iterator[pyarrow.RecordBatch]:
    """`part` and what follows it. Each batch has its own `timeout`, of the thread that reads it: what is done between
    them does not count."""
    try:
        while part:
            yield pa.record_batch([_array(pa, letter, column) for letter, column in zip(letters, zip(*part))],
                                  schema=schema)
            _limit(connection, timeout)
            with _sqlite_errors(path, timeout):
                part = cursor.fetchmany(batch_rows)
    except (pa.ArrowException, OverflowError) as error:
        raise TraceError(f"{path}: {reason(error)}") from None
    finally:
        connection.close()
