# SPDX-License-Identifier: Apache-2.0
"""Traces as Parquet or Arrow files, partitioned so that one question over many of them reads little:

    DIR/view=events/run=NAME/rank=0/device=-1/part-0.parquet

rank and device are -1 where a row has none: readers that infer types know no column of NULLs. Views without devices
have no such level. What a trace gives appears at once, when all of it is written, or not at all."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Callable, Iterator, NamedTuple, Sequence

from . import reading, wide
from .reading import TraceError, needs
from .trace import Trace

if TYPE_CHECKING:
    import pyarrow

VIEWS = ("events", "allocations", "callsite_total_process", "total_process", "size_total_process", "timeline_process",
         "rss", "leak_line", "ladder", "ladder_peak", "segment", "mark", "oom", "process", "recording", "data_loss")
FORMATS = ("parquet", "arrow")
NONE = -1  # rank or device of rows that have none
# Columns whose neighbours differ by little, or that have few equal values: differences are smaller and quicker
# than dictionaries.
_DELTAS = {"seq", "ts_ns", "id", "ring_seq", "addr", "alloc_seq", "alloc_ns", "free_ns", "free_requested_seq",
           "free_completed_seq", "lifetime_ns"}
ROW_GROUP_ROWS = 1 << 20


class Summary(NamedTuple):
    """What to_parquet wrote."""

    rows: dict[str, int]
    files: int
    bytes: int
    seconds: float

    def __str__(self) -> str:
        rows = sum(self.rows.values())
        return (f"{rows:,} rows of {len(self.rows)} views in {self.files} files, {self.bytes:,} bytes, "
                f"{self.seconds:.2f} s")


# ---- whose rows they are ----

class Ranks:
    """The rank of each row of a trace's views: its process's. Rows of all processes together have the rank that all
    of them share."""

    def __init__(self, trace: Trace) -> None:
        found = trace._rows("SELECT id, rank, pid FROM process")[1]
        threads = trace._rows("SELECT id, (SELECT p.rank FROM process p WHERE p.id = t.process_id) FROM thread t")[1]
        ranks = {rank for _, rank, _ in found if rank is not None}
        self.shared = ranks.pop() if len(ranks) == 1 else None
        self._tables = {"process_id": {row[0]: row[1] for row in found}, "thread_id": dict(threads),
                        "pid": {row[2]: row[1] for row in found}}
        if {rank for _, rank, _ in found} <= {self.shared}:
            self._tables = {}

    def of(self, batch: pyarrow.RecordBatch) -> pyarrow.Array | None:
        """An integer for each row, NULL: none; None: all rows have the shared one."""
        pa = needs("pyarrow", "data")
        import pyarrow.compute as pc
        for column, ranks in self._tables.items():
            if column in batch.schema.names:
                places = pc.index_in(batch.column(column), value_set=pa.array(list(ranks), pa.int64()))
                return pa.array(list(ranks.values()), pa.int64()).take(places)
        return None

    def split(self, batch: pyarrow.RecordBatch) -> Iterator[tuple[int | None, pyarrow.RecordBatch]]:
        """The rows of each rank."""
        values = self.of(batch)
        return iter([(self.shared, batch)]) if values is None else _split(batch, values)


def run_names(paths: Sequence[str]) -> dict[str, str]:
    """What traces are called where they have no other names: each its file's name without `.db`, with as many of the
    folders above it as tell it from the others."""
    whole = {path: os.path.abspath(path) for path in paths}
    taken = set(whole.values())
    bare = {path: at[:-3] if at.endswith(".db") and os.path.basename(at) != ".db" and at[:-3] not in taken else at
            for path, at in whole.items()}
    names = reading.short_names(bare.values())
    return {path: names[bare[path]] for path in paths}


# ---- files ----

class _Partition:
    """The files of one part of a view, one for each rank and device that occurs in it."""

    def __init__(self, directory: str, part: int, format: str) -> None:
        self.directory, self.part, self.format = directory, part, format
        self.writers: dict[tuple, Any] = {}
        self.rows = self.files = 0

    def write(self, rank: int | None, device: int | None, has_device: bool, batch: pyarrow.RecordBatch) -> None:
        writer = self.writers.get((rank, device))
        if writer is None:
            levels = [f"rank={NONE if rank is None else rank}"] + ([f"device={NONE if device is None else device}"]
                                                                   if has_device else [])
            folder = os.path.join(self.directory, *levels)
            os.makedirs(folder, exist_ok=True)
            writer = self.writers[rank, device] = self._open(os.path.join(folder, f"part-{self.part}.{self.format}"),
                                                             batch.schema)
            self.files += 1
        self.rows += batch.num_rows
        writer.write_batch(batch)

    def _open(self, path: str, schema: pyarrow.Schema) -> Any:
        pa = needs("pyarrow", "data")
        if self.format == "arrow":
            needs("pyarrow.ipc", "data")
            return pa.ipc.new_file(path, schema, options=pa.ipc.IpcWriteOptions(compression="zstd",
                                                                                emit_dictionary_deltas=False,
                                                                               unify_dictionaries=False))
        pq = needs("pyarrow.parquet", "data")
        deltas = [field.name for field in schema if field.name in _DELTAS and pa.types.is_int64(field.type)]
        return pq.ParquetWriter(path, schema, compression="zstd",
                                column_encoding={name: "DELTA_BINARY_PACKED" for name in deltas},
                                use_dictionary=[name for name in schema.names if name not in deltas])

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()
        self.writers = {}


def _split(batch: pyarrow.RecordBatch, values: pyarrow.Array) -> Iterator[tuple[int | None, pyarrow.RecordBatch]]:
    """The rows of each value of a column beside the batch."""
    import pyarrow.compute as pc
    ends = pc.min_max(values)
    if values.null_count == len(values) or (values.null_count == 0 and ends["min"] == ends["max"]):
        yield ends["min"].as_py(), batch
        return
    for value in pc.unique(values):
        yield value.as_py(), batch.filter(pc.is_null(values) if value.as_py() is None
                                          else pc.fill_null(pc.equal(values, value), False))


def _write(reader: pyarrow.RecordBatchReader, ranks: Ranks, files: _Partition) -> _Partition:
    schema = reader.schema
    has_device = "device" in schema.names
    try:
        for batch in reader:
            for rank, rows in ranks.split(batch):
                if not has_device:
                    files.write(rank, None, False, rows)
                    continue
                at = rows.schema.get_field_index("device")
                for device, part in _split(rows, rows.column(at)):
                    files.write(rank, device, True, _without(part, "device"))
    finally:
        files.close()
    return files


def _without(batch: pyarrow.RecordBatch, name: str) -> pyarrow.RecordBatch:
    return batch.select([column for column in batch.schema.names if column != name])


def _parts(trace: Trace, view: str, jobs: int) -> list[Callable[[], pyarrow.RecordBatchReader]]:
    """Readers of a view whose rows together are all of it; those of views with millions of rows share them evenly."""
    plan = wide.plan(trace, view)
    if plan is None or plan.key is None or reading.library() is None:
        return [lambda: trace.batches(view)]
    least, most = (trace._rows(f"SELECT {end}({plan.key}) FROM {wide.BASES[view]}")[1][0][0] for end in ("min", "max"))
    count = 1 if least is None or most - least < 1 << 18 else jobs
    ends = [(-2**63 if count == 1 or least is None else least) + (0 if count == 1 else (most - least) * at // count)
            for at in range(count)]
    ends[0] = -2**63
    return [functools.partial(trace._planned, plan, reading.BATCH_ROWS, (begin, end - 1))
            for begin, end in zip(ends, ends[1:] + [2**63])]


def _view(trace: Trace, view: str, directory: str, ranks: Ranks, jobs: int, format: str) -> tuple[int, int]:
    readers = _parts(trace, view, jobs)
    with ThreadPoolExecutor(len(readers)) as pool:
        parts = list(pool.map(lambda item: _write(item[1](), ranks, _Partition(directory, item[0], format)),
                              enumerate(readers)))
    if not any(part.files for part in parts):
        empty = _Partition(directory, 0, format)
        table = readers[0]().read_all().slice(0, 0)
        has_device = "device" in table.column_names
        batch = table.drop_columns(["device"]) if has_device else table
        import pyarrow
        empty.write(ranks.shared, None, has_device, pyarrow.RecordBatch.from_arrays([column.combine_chunks()
                                                                                     for column in batch.columns],
                                                                                    schema=batch.schema))
        empty.close()
        parts.append(empty)
    return sum(part.rows for part in parts), sum(part.files for part in parts)


def _make(folder: str, made: list[str]) -> None:
    """Make a folder and those above it, and add to `made` the ones that were not there."""
    missing, at = [], folder
    while not os.path.exists(at):
        missing.append(at)
        at = os.path.dirname(at)
    for at in reversed(missing):
        try:
            os.mkdir(at)
            made.append(at)
        except FileExistsError:  # somebody else was quicker
            pass


def _remove_empty(folders: Sequence[str]) -> None:
    for folder in reversed(folders):
        try:
            os.rmdir(folder)
        except OSError:  # somebody else has put something there
            pass


def _publish(made: str, directory: str, views: Sequence[str], run: str) -> None:
    """Move the views of a run to their places, or none of them. What is there already goes to `made`, and comes back
    on a failure."""
    moved: list[tuple[str, str]] = []
    folders: list[str] = []
    try:
        for view in views:
            place, new, old = (os.path.join(at, f"view={view}", run)
                               for at in (directory, made, os.path.join(made, "replaced")))
            _make(os.path.dirname(place), folders)
            os.makedirs(os.path.dirname(old), exist_ok=True)
            if os.path.exists(place):
                os.rename(place, old)
                moved.append((old, place))
            os.rename(new, place)
            moved.append((place, new))
    except OSError as error:
        for now, before in reversed(moved):
            os.rename(now, before)
        _remove_empty(folders)
        raise TraceError(f"{error.filename2 or error.filename}: {error.strerror}") from None


def to_parquet(trace: Trace | str | os.PathLike[str], directory: str | os.PathLike[str], views: Sequence[str] = VIEWS,
               *,
               run: str | None = None, jobs: int | None = None, format: str = "parquet",
               force: bool = False) -> Summary:
    """Write views of a trace below `directory`, which may have other runs already; `run` is its name there (default:
    the file's). A view that is named twice is written once. `jobs`: threads, default: the processors. format "arrow":
    IPC files in place of Parquet. `force`: replace a run of the same name. TraceError: no such view, a run of this name
    is there already, or what reading a trace may say."""
    if format not in FORMATS:
        raise TraceError(f"unknown format '{format}': {', '.join(FORMATS)}")
    needs("pyarrow", "data")
    import pyarrow
    if isinstance(views, str):
        raise TraceError(f"views: a list of names, not '{views}' alone")
    if jobs is not None and jobs < 1:
        raise TraceError(f"{jobs} threads: 1 or more")
    begin, directory, views = time.monotonic(), os.path.abspath(os.fsdecode(directory)), list(dict.fromkeys(views))
    trace = trace if isinstance(trace, Trace) else Trace(trace)
    folder = "run=" + urllib.parse.quote(run or run_names([trace.path])[trace.path], safe="", errors="backslashreplace")
    for view in views:
        trace.select(view)
        if not force and os.path.exists(os.path.join(directory, f"view={view}", folder)):
            raise TraceError(f"{os.path.join(directory, f'view={view}', folder)} is there already: --force replaces "
                             "it; or another name (--run)")
    made, ranks, rows, files = None, Ranks(trace), {}, 0
    above: list[str] = []
    try:
        _make(os.path.dirname(directory), above)
        made = tempfile.mkdtemp(prefix=os.path.basename(directory) + ".partial-", dir=os.path.dirname(directory))
        for view in views:
            rows[view], count = _view(trace, view, os.path.join(made, f"view={view}", folder), ranks,
                                      jobs or os.cpu_count() or 1, format)
            files += count
        size = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(made) for name in names)
        _publish(made, directory, views, folder)
    except (OSError, UnicodeError, pyarrow.ArrowException) as error:
        raise TraceError(reading.reason(error)) from None
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
        if not os.path.exists(directory):
            _remove_empty(above)
    return Summary(rows, files, size, time.monotonic() - begin)
