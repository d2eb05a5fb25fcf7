# SPDX-License-Identifier: Apache-2.0
"""Trace databases, read through their SQL views as pandas or Arrow.

    with varve.open("run.db") as trace:
        trace.health                        # whether anything was lost; figures of a lossy trace are lower bounds
        trace.callsites.nlargest(10, "peak_bytes")
        trace.query("SELECT kind, count(*) AS events FROM events GROUP BY kind")
        trace.plot.timeline()

Times are ns since the trace began, sizes bytes, addresses integers; what a column means and its unit:
trace.help("callsite_total")."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Callable, Sequence, overload

from . import reading, wide
from .reading import TraceError

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from .plot import Plots

# Columns of views that SQLite knows no type of, and that are not integers. Everything else without a declared
# type is an integer.
_TEXT = {"activity", "before_file", "before_function", "behind_file", "behind_function", "cause", "evidence",
         "function", "kind", "moment", "op", "pattern", "source", "stage", "state"}
_REAL = {"byte_growth", "cover", "growth", "line_work", "overhead", "process_work", "recurrence", "score",
         "unused_share"}


class Health:
    """What a reader of the figures must know, as `varve report` begins with it.

    nothing_lost: every event that a recorded process emitted is in the figures
    figures:      emitted, stored, lost, lost_bytes, uncommitted, … in events and bytes, as under "loss" of
                  `varve report --json`
    kept:         'events': everything; 'lasting': no rows of what of heap and Python was freed within 4,096 events;
                  'allocations': no rows of events; 'totals': no rows of freed allocations either
    data_loss:    rows (name, idx, source, value) of the view data_loss
    """

    def __init__(self, trace: Trace) -> None:
        names, found = trace._rows(_HEALTH)
        self.figures: dict[str, int] = {name: value or 0 for name, value in zip(names, found[0])}
        self.data_loss = trace._rows("SELECT name, CASE WHEN idx >= 0 THEN idx END, source, value FROM data_loss ORDER "
                                     "BY name, idx")[1]
        self.kept = str(trace.meta.get("keep", "events"))
        if "kept_events" in trace.meta:
            self.kept = f"the first {int(trace.meta['kept_events']):,} events"
        figures = self.figures
        self.nothing_lost = (not self.data_loss and figures["emitted"] == figures["stored"] + figures["uncommitted"]
                             and figures["lost"] + figures["programs_unrecorded"] == 0)

    def __str__(self) -> str:
        figures = self.figures
        text = f"nothing lost: {figures['emitted']:,} events emitted" if self.nothing_lost else \
            f"INCOMPLETE: {figures['emitted']:,} events emitted, {figures['lost']:,} lost: all figures are lower bounds"
        for key, words in (("processes_running", "still running when the recording stopped"),
                           ("processes_killed", "killed"),
                           ("processes_gone", "ended for an unknown reason")):
            text += f"; {figures[key]:,} process(es) {words}" if figures[key] else ""
        if figures["programs_unrecorded"]:
            text += f"; {figures['programs_unrecorded']:,} program(s) not recorded"
        text += "".join(f"; {name} {value:,} ({source})" for name, _, source, value in self.data_loss)
        return text if self.kept == "events" else f"{text}; kept: {self.kept}"

    __repr__ = __str__


_HEALTH = """
    SELECT t.*, p.*, (SELECT count(*) FROM unrecorded_program) AS programs_unrecorded
    FROM (SELECT sum(emitted) AS emitted, sum(stored) AS stored, sum(spilled) AS spilled, sum(lost) AS lost,
            sum(lost_bytes) AS lost_bytes, sum(uncommitted) AS uncommitted,
            count(*) FILTER (WHERE lost > 0) AS threads_with_loss FROM thread) t
        CROSS JOIN (SELECT count(*) FILTER (WHERE end_cause = 'running') AS processes_running,
            count(*) FILTER (WHERE end_cause = 'signal') AS processes_killed,
            count(*) FILTER (WHERE end_cause = 'unknown') AS processes_gone FROM process) p"""


class View:
    """A property that reads a view anew each time."""

    def __init__(self, name: str, what: str, order: str = "") -> None:
        self.sql = f"SELECT * FROM {name}{order}"
        self.name = name
        self.__doc__ = f"{what} (view or table `{name}`)"

    @overload
    def __get__(self, trace: None, owner: type) -> View: ...
    @overload
    def __get__(self, trace: Trace, owner: type) -> pandas.DataFrame: ...

    def __get__(self, trace: Trace | None, owner: type) -> View | pandas.DataFrame:
        return self if trace is None else frame(trace.arrow(self.name if self.sql == f"SELECT * FROM {self.name}"
                                                            else self.sql))


class Trace:
    """A finished trace database, opened for reading. Made by varve.open()."""

    path: str
    meta: dict[str, Any]
    """facts of the recording: command, host, start_real_ns, … (table meta)"""

    recording = View("recording", "one row about all of it: begin, end, processes, events")
    events = View("events", "every event in order, with names in place of codes")
    allocations = View("allocations", "every allocation, with sizes, times, call site and domain")
    callsites = View("callsite_total", "what each call site allocated, has live, and had at the peak; bytes")
    callsites_process = View("callsite_total_process", "the same of each process")
    leaks = View("leak_line",
                 "lines by how likely they leak: what of them is live at the exit of main, and how it grew",
                 " ORDER BY score DESC")
    leaked = View("leak", "every allocation that was live when main ended, or, where that is not known, at the end")
    peak = View("peak", "call sites, and what of them was live when most was", " ORDER BY bytes DESC")
    peak_time = View("peak_time", "when that was, by domain and device")
    timeline = View("timeline", "bytes live over time, by domain and device, of all processes together")
    timeline_process = View("timeline_process", "the same of each process")
    totals = View("total", "domains and devices: allocations, frees, bytes, peak")
    totals_process = View("total_process", "the same of each process")
    sizes = View("size_total", "allocations by size, in powers of two")
    rss = View("rss_total", "resident memory over time, of all processes together")
    ladder = View("ladder", "why reserved memory serves no request, after each event of a caching allocator; bytes")
    ladder_peak = View("ladder_peak", "the same when most was reserved")
    fragmentation = View("fragmentation", "share of the reserved bytes that no allocation used, over time")
    segments = View("segment", "what caching allocators got from the device")
    holes = View("hole", "free ranges in segments at the end")
    peak_holes = View("peak_hole", "free ranges when most was reserved, and whose blocks lie around them")
    oom = View("oom", "requests that failed, with what was allocated, reserved and free then")
    oom_retry = View("oom_retry", "stages that an allocator went through when the device refused")
    marks = View("mark", "named phases of the program")
    processes = View("process", "process images, with pid, rank, times and how they ended")
    threads = View("thread", "threads that recorded, and what of their events was stored")
    devices = View("device", "GPUs")
    device_calls = View("device_call", "calls of the CUDA API by function: number, time, bytes")
    storages = View("storages", "storages and views of the storage layer")
    operators = View("operator_total", "operators under rematerialization: runs, recomputations, evictions")

    def __init__(self, path: str | os.PathLike[str], timeout: float | None = reading.TIMEOUT_S) -> None:
        self.path, self.timeout, self._is_open = os.fsdecode(path), timeout, True
        reading.check(self.path)
        self.meta = dict(self._rows("SELECT key, value FROM meta ORDER BY key")[1])

    # ---- questions ----

    def _rows(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[list[str], list[tuple]]:
        self._check_open()
        return reading.rows(self.path, sql, parameters, self.timeout)

    def _check_open(self) -> None:
        if not self._is_open:
            raise TraceError(f"{self.path}: the trace is closed")

    @property
    def views(self) -> dict[str, str]:
        """Views and tables of the database, and what a row of each is."""
        return dict(self._rows("SELECT s.name, coalesce(h.meaning, '') FROM sqlite_schema s LEFT JOIN help h ON h.name "
                               "= s.name AND h.column = '' WHERE s.type IN ('table', 'view') ORDER BY s.type = "
                               "'table', s.name")[1])

    def help(self, view: str) -> dict[str, str]:
        """What the columns of a view mean, with their units; under '' what a row of it is. TraceError: there is
        no such view."""
        found = dict(self._rows("SELECT column, meaning FROM help WHERE name = ? ORDER BY column", (view,))[1])
        if not found:
            raise TraceError(f"{self.path} has no view '{view}'; trace.views has them all")
        return found

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> pandas.DataFrame:
        """The rows of one SELECT; `?` in it are the parameters. Integers with NULL among them are Int64, so that
        addresses stay exact."""
        return frame(self.arrow(sql, parameters))

    def __getitem__(self, view: str) -> pandas.DataFrame:
        """A view or table by its name."""
        return frame(self.arrow(view))

    def arrow(self, view_or_sql: str, parameters: Sequence[Any] = ()) -> pyarrow.Table:
        """A view, a table or one SELECT as an Arrow table. Of `events` and `allocations`, names in place of codes are
        dictionaries; events are in their order."""
        table = _read_all(self.batches(view_or_sql, parameters))
        return table.sort_by("seq") if wide.BASES.get(view_or_sql.strip()) == "event" else table

    def batches(self, view_or_sql: str, parameters: Sequence[Any] = (), *, batch_rows: int = reading.BATCH_ROWS) \
            -> pyarrow.RecordBatchReader:
        """The same, a batch at a time: memory does not grow with the rows. Pass it to DuckDB or Polars as it is. Events
        come in no order."""
        self._check_open()
        sql, types, name = view_or_sql, None, view_or_sql.strip()
        if not re.search(r"[\s()*;'\"]", name):  # a statement has one of these
            plan = wide.plan(self, name)
            if plan is not None:
                return self._planned(plan, batch_rows)
            sql, types = self.select(name)
        return reading.stream(self.path, sql, parameters, types=types, batch_rows=batch_rows, timeout=self.timeout)

    def _planned(self, plan: wide.Plan, batch_rows: int,
                 part: tuple[int, int] = (-2**63, 2**63 - 1)) -> pyarrow.RecordBatchReader:
        return _finished(reading.stream(self.path, plan.sql, types=plan.types, batch_rows=batch_rows,
                                        timeout=self.timeout, key=plan.key, part=part), plan.finish)

    def _columns(self, view: str) -> list[str]:
        return [row[0] for row in self._rows("SELECT name FROM pragma_table_info(?)", (view,))[1]]

    def select(self, view: str) -> tuple[str, str]:
        """A statement with all rows of a view, and the types of its columns: these do not depend on the rows, so that
        files of many traces fit together."""
        columns = self._rows("SELECT name, type FROM pragma_table_info(?)", (view,))[1]
        if not columns:
            raise TraceError(f"{self.path} has no view '{view}'; trace.views has them all")
        letters = {"INTEGER": "l", "INT": "l", "NUM": "l", "REAL": "g", "TEXT": "u", "BLOB": "z", "ANY": "u"}
        types = "".join(letters.get(declared) or ("?" if view.startswith("sqlite_") else "u" if name in _TEXT else "g"
                                                  if name in _REAL else "l") for name, declared in columns)
        return f'SELECT * FROM "{view}"', types

    def stack(self, callsite_id: int) -> pandas.DataFrame:
        """Frames of a call site, the innermost (depth 0) first (view frame)."""
        return self.query("SELECT * FROM frame WHERE callsite_id = ? ORDER BY depth", (callsite_id,))

    @property
    def health(self) -> Health:
        """What was lost or not kept; print it beside every figure that you show."""
        return Health(self)

    @property
    def plot(self) -> Plots:
        """Figures of plotly: timeline(), block_map(), ladder(), lifetimes(), flame_graph(); see varve.plot."""
        from .plot import Plots
        return Plots(self)

    # ---- its life ----

    def close(self) -> None:
        """Answers no more questions. Each question has its own connection: there is nothing else to give back."""
        self._is_open = False

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<varve.Trace {self.path}: {self.health if self._is_open else 'closed'}>"


def open(path: str | os.PathLike[str], *, timeout: float | None = reading.TIMEOUT_S) -> Trace:
    """A finished trace database, for reading; nothing is ever written to it. `timeout`: seconds that SQLite may compute
    for a batch of rows, None: as long as it wants. TraceError: no trace, another version's, or not finished,
    with what to do."""
    return Trace(path, timeout)


def _finished(reader: pyarrow.RecordBatchReader, finish: Callable[[Any], Any]) -> pyarrow.RecordBatchReader:
    pa = reading.needs("pyarrow", "data")
    empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in reader.schema], schema=reader.schema)
    return pa.RecordBatchReader.from_batches(finish(empty).schema, (finish(batch) for batch in reader))


def _read_all(reader: pyarrow.RecordBatchReader) -> pyarrow.Table:
    import pyarrow
    try:
        return reader.read_all()
    except (pyarrow.ArrowException, OSError) as error:
        raise TraceError(reading.reason(error)) from None


def frame(table: pyarrow.Table) -> pandas.DataFrame:
    """A DataFrame. Integers stay integers: int64, or Int64 where there are NULLs."""
    pd = reading.needs("pandas", "data")
    import pyarrow
    names = table.column_names
    nullable = {index for index, column in enumerate(table.columns) if pyarrow.types.is_integer(column.type)
                and column.null_count > 0}
    columns = {index: column.to_pandas(types_mapper={pyarrow.int64(): pd.Int64Dtype()}.get)
               if index in nullable else column.to_pandas() for index, column in enumerate(table.columns)}
    made = pd.DataFrame(columns)
    made.columns = names
    return made
