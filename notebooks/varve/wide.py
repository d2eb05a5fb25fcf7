# SPDX-License-Identifier: Apache-2.0
"""The two views that have millions of rows, `events` and `allocations` (and `event`, `allocation` with codes), read as
their definitions say but quicker: SQLite looks nothing up for a row. Thread ids, names of codes and ranks are put in
batch by batch, by Arrow. A view whose text is not the expected one is read as it is. The conformance tests compare
every column with the view."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from .reading import needs

if TYPE_CHECKING:
    import pyarrow

    from .trace import Trace

# As views.sql has it: pid and tid are those of the thread where the row has none of its own.
_OF_THREAD = re.compile(r"coalesce\((pid|tid), \(SELECT t\.\1 FROM thread t WHERE t\.id = (\w)\.thread_id\)\) AS \1\b")
_NAMES = {"events": {"kind": "SELECT code, name FROM event_kind", "cause": "SELECT code, text FROM event_cause"},
          "allocations": {"domain": "SELECT code, name FROM domain", "source": "SELECT code, text FROM event_cause"}}
BASES = {"events": "event", "event": "event", "allocations": "allocation", "allocation": "allocation"}
KEYS = {"allocation": "id"}  # events are put together of rows that have other keys


class Plan(NamedTuple):
    """How to read a view: rows of `sql`, each batch through `finish`. key: an integer column by which parts are
    read quickly; None: there is none, and rows come in no order."""

    sql: str
    types: str
    finish: Callable[[pyarrow.RecordBatch], pyarrow.RecordBatch]
    key: str | None


def plan(trace: Trace, view: str) -> Plan | None:
    """None: a view that has no such short cut, in this database."""
    base = BASES.get(view)
    if base is None:
        return None
    text = dict(trace._rows("SELECT name, sql FROM sqlite_schema WHERE type = 'view' AND name = ?",
                            (base,))[1]).get(base, "")
    body = re.sub(r"^CREATE VIEW \w+ AS\s+", "", text)
    body, changed = _OF_THREAD.subn(r"\1", body)
    parts = re.split(r"\n\s*FROM ", body, maxsplit=1)  # those of a column's own query stand within a line
    if changed != 2 or len(parts) != 2:
        return None
    head, tail = parts
    columns = trace._columns(view)
    extra = ", free_ns - alloc_ns AS lifetime_ns" if "lifetime_ns" in columns else ""
    sql = f"SELECT *{extra} FROM ({head}, thread_id AS \"of thread\" FROM {tail})" + (" WHERE domain <> 7" if view
                                                                                      == "allocations" else "")
    # The key is the table's own number: SQLite walks the rows in its order.
    return Plan(sql, "l" * (len(trace._columns(base)) + 1 + bool(extra)), _finisher(trace, view, columns),
                KEYS.get(base))


class _Table:
    """Values by number, each value once, as pandas' categories must be. Small numbers, which is all that varve writes,
    are places in an array; others are looked for."""

    def __init__(self, pa: Any, rows: list[tuple], type: Any) -> None:
        place_of = {value: place for place, value in enumerate(dict.fromkeys(row[1] for row in rows))}
        self.values = pa.array(place_of, type)
        self.numbers = pa.array([row[0] for row in rows], pa.int64())
        self.places_of_numbers = pa.array([place_of[row[1]] for row in rows], pa.int32())
        most = max((row[0] for row in rows), default=0)
        self.places = None
        if rows and min(row[0] for row in rows) >= 0 and most < 1 << 20:
            places: list[int | None] = [None] * (most + 1)
            for row in rows:
                places[row[0]] = place_of[row[1]]
            self.places = pa.array(places, pa.int32())

    def find(self, numbers: Any) -> Any:
        """Places in `values`; NULL where there is none."""
        import pyarrow
        import pyarrow.compute as pc
        if self.places is not None:
            try:
                return self.places.take(numbers)
            except pyarrow.ArrowIndexError:
                pass
        return self.places_of_numbers.take(pc.index_in(numbers, value_set=self.numbers))


def _finisher(trace: Trace, view: str, columns: list[str]) -> Callable[[Any], Any]:
    pa = needs("pyarrow", "data")
    import pyarrow.compute as pc
    tables = {name: _Table(pa, trace._rows(f"SELECT id, {name} FROM thread")[1], pa.int64()) for name in ("pid", "tid")}
    texts = {name: _Table(pa, trace._rows(sql)[1], pa.string()) for name, sql in _NAMES.get(view, {}).items()}

    def finish(batch: Any) -> Any:
        arrays = []
        for name in columns:
            array = batch.column(name)
            if name in tables and array.null_count > 0:
                found = tables[name].values.take(tables[name].find(batch.column("of thread")))
                array = found if array.null_count == len(array) else pc.coalesce(array, found)
            elif name in texts:
                array = pa.DictionaryArray.from_arrays(texts[name].find(array), texts[name].values)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, names=columns)

    return finish
