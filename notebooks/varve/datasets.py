# SPDX-License-Identifier: Apache-2.0
"""One question over many traces: databases, one a run and rank, or one of several ranks; or the Parquet files that
varve.to_parquet made.

    varve.dataset("runs/*.db").stragglers()                     # SQLite, a database after the other
    varve.dataset("runs").callsites()                           # DuckDB over Parquet
    varve.dataset("runs", engine="dask", scheduler="tcp://host:8786").timeline(100_000_000)

Each question is a filter, keys and sums, maxima, counts or last values over one view, by run and rank: the engine does
that part, and all of them must give equal rows. What is computed from these rows is the same code for all. Ids of call
sites mean nothing in another trace: lines are known by function, file and line."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import urllib.parse
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Sequence

from . import reading
from .export import NONE, Ranks, run_names
from .reading import TraceError, needs
from .trace import Trace, frame

if TYPE_CHECKING:
    import pandas
    import pyarrow

ENGINES = ("sqlite", "duckdb", "dask")
SPANS_MAX = 10_000_000  # rows of a timeline: some seconds and 1 GB
LINE = ("domain", "user_function", "user_file", "user_line")


class Question(NamedTuple):
    """`figures`: name of a result: (sum, max, count or last, column). Keys come with run and rank before them. "last":
    the column's value after the last event, which a view with seq has."""

    view: str
    keys: tuple[str, ...]
    figures: dict[str, tuple[str, str]]
    bucket: tuple[str, int] | None = None  # a key more: a column's value, rounded down to a multiple


class Dataset:
    """Many traces; made by varve.dataset(). A trace is one (run, rank)."""

    def __init__(self, source: Any, engine: str | None, scheduler: str | None, timeout: float | None) -> None:
        self.directory, self.paths, self.timeout, self.scheduler = None, [], timeout, scheduler
        paths = list(dict.fromkeys(_paths(source)))  # one that is named twice is one trace
        if len(paths) == 1 and os.path.isdir(paths[0]):
            self.directory = paths[0]
            if not glob.glob(os.path.join(glob.escape(self.directory), "view=*")):
                raise TraceError(f"{self.directory} has no folders view=…: varve export DB --to parquet -o "
                                 f"{self.directory} makes them")
        else:
            self.paths = paths
            for path in paths:
                reading.check(path)
        self.names = run_names(self.paths)
        self.engine = engine or ("sqlite" if self.paths else "duckdb")
        if self.engine not in ENGINES:
            raise TraceError(f"unknown engine '{self.engine}': {', '.join(ENGINES)}")
        if self.engine == "sqlite" and self.directory:
            raise TraceError("the engine sqlite reads databases; Parquet files are for duckdb and dask")

    def __repr__(self) -> str:
        where = self.directory or f"{len(self.paths)} databases"
        return f"<varve.Dataset {where}, by {self.engine}>"

    # ---- questions ----

    def callsites(self) -> pandas.DataFrame:
        """The user's lines over all traces, the most bytes first: allocations, frees, bytes and live bytes added up; of
        the bytes live at the peak the sum and the most of one trace (peak_bytes_max); traces: in how many
        the line occurs."""
        rows = self._ask(Question("callsite_total_process", LINE, {
            name: ("sum", name) for name in ("allocations", "frees", "bytes", "live_bytes", "peak_bytes")}))
        rows["peak_bytes_max"], rows["traces"] = rows.peak_bytes, 1
        return _over_traces(rows, LINE, {"allocations": "sum", "frees": "sum", "bytes": "sum", "live_bytes": "sum",
                                         "peak_bytes": "sum", "peak_bytes_max": "max", "traces": "sum"}, "bytes")

    def peaks(self) -> pandas.DataFrame:
        """By run, rank, domain and device: the largest peak of one process (peak_bytes), how many processes there are,
        and what they allocated together, in bytes."""
        return self._ask(Question("total_process", ("domain", "device"), {
            "processes": ("count", "process_id"), "allocations": ("sum", "allocations"), "bytes": ("sum", "bytes"),
            "live_bytes": ("sum", "live_bytes"), "peak_bytes": ("max", "peak_bytes")}))

    def leaks(self) -> pandas.DataFrame:
        """The user's lines by how likely they leak: the highest score of a trace, in how many traces the line has live
        bytes at the exit of main, and these bytes together and of one trace at most."""
        rows = self._ask(Question("leak_line", LINE, {"live_allocations": ("sum", "live_allocations"),
                                                      "live_bytes": ("sum", "live_bytes"), "score": ("max", "score")}))
        rows["live_bytes_max"], rows["traces"] = rows.live_bytes, 1
        return _over_traces(rows, LINE, {"score": "max", "live_allocations": "sum", "live_bytes": "sum",
                                         "live_bytes_max": "max", "traces": "sum"}, "score")

    def timeline(self, freq_ns: int = 100_000_000) -> pandas.DataFrame:
        """By domain and span of time (begin_ns, freq_ns long, since each trace's beginning): the least, median and
        largest of what one process of a trace had live at most (allocated) and had reserved, in bytes. What was live
        stays live in a span without an event; a trace is counted from its first event of the domain to its last one of
        any."""
        if freq_ns < 1:
            raise TraceError("a span of time has 1 ns or more")
        rows = self._ask(Question("timeline_process", ("process_id", "domain", "device"), {
            "allocated": ("max", "allocated_max"), "allocated_last": ("last", "allocated"),
            "reserved": ("max", "reserved"), "reserved_last": ("last", "reserved")}, ("ts_ns", int(freq_ns))))
        rows = _carried(rows, ["run", "rank", "process_id", "domain", "device"], int(freq_ns))
        rows = rows.groupby(["run", "rank", "domain", "bucket"], dropna=False)[["allocated", "reserved"]].max()
        groups = rows.reset_index().rename(columns={"bucket": "begin_ns"}).groupby(["domain", "begin_ns"], dropna=False)
        made = groups.agg(traces=("allocated", "size"), allocated_min=("allocated", "min"),
                          allocated_median=("allocated", "median"),
                          allocated_max=("allocated", "max"), reserved_max=("reserved", "max"))
        return made.reset_index().sort_values(["domain", "begin_ns"], ignore_index=True)

    def stragglers(self, within: str | None = None) -> pandas.DataFrame:
        """Traces by how far their peak is from the median of the others, domain by domain, the farthest first.
        deviations: by how many median deviations, infinite where most have the same peak; peak_ratio, bytes_ratio: by
        the median. within "run" compares ranks of the same run, "all" all traces; default: "run" where a run has
        several ranks."""
        rows = self.peaks().groupby(["run", "rank", "domain"], dropna=False).agg(
            peak_bytes=("peak_bytes", "max"), bytes=("bytes", "sum"), allocations=("allocations", "sum")).reset_index()
        if within is None:
            within = "run" if len(rows) and rows.groupby("run")["rank"].nunique().max() > 1 else "all"
        if within not in ("run", "all"):
            raise TraceError(f"within is 'run' or 'all', not '{within}'")
        keys = ["run", "domain"] if within == "run" else ["domain"]
        for column in ("peak_bytes", "bytes"):
            median = rows.groupby(keys, dropna=False)[column].transform("median")
            rows[column.replace("_bytes", "") + "_ratio"] = rows[column] / median.where(median != 0)
        away = (rows.peak_bytes - rows.groupby(keys, dropna=False).peak_bytes.transform("median")).abs()
        typical = away.groupby([rows[key] for key in keys], dropna=False).transform("median")
        lone = ((typical == 0) & (away > 0)).fillna(False)
        rows["deviations"] = (away / typical.where(typical > 0)).fillna(0.0).mask(lone, float("inf"))
        rows["traces"] = rows.groupby(keys, dropna=False).peak_bytes.transform("size")
        order = (rows.peak_ratio - 1).abs().fillna(rows.deviations)
        return rows.assign(order=order).sort_values(["order", "run", "rank", "domain"],
                                                    ascending=[False, True, True, True],
                                                    ignore_index=True).drop(columns="order")

    def sql(self, sql: str) -> pandas.DataFrame:
        """The rows of any SELECT, by DuckDB, whatever the engine: a view is a table of its name with the columns run
        and rank. Of databases, the views that are named in it are read first."""
        connection = self._duckdb()
        for view in self.views:
            if re.search(rf"\b{re.escape(view)}\b", sql):
                self._define(connection, view)
        return self._duckdb_rows(connection, sql)

    @property
    def views(self) -> list[str]:
        """What sql() may ask for."""
        if self.directory:
            return sorted(name[5:] for name in os.listdir(self.directory) if name.startswith("view="))
        return sorted(Trace(self.paths[0], self.timeout).views)

    # ---- the engines ----

    def _ask(self, question: Question) -> pandas.DataFrame:
        if self.directory and not os.path.isdir(os.path.join(self.directory, f"view={question.view}")):
            raise TraceError(f"{self.directory} has no view {question.view}: export it too (--views)")
        rows = {"sqlite": self._by_sqlite, "duckdb": self._by_duckdb, "dask": self._by_dask}[self.engine](question)
        return _normal(rows, question)

    def _by_sqlite(self, question: Question) -> pandas.DataFrame:
        pd = needs("pandas", "data")
        parts = []
        for path in self.paths:
            trace = Trace(path, self.timeout)
            names = trace._columns(question.view)
            rank = "(SELECT p.rank FROM process p WHERE p.id = v.process_id)" if "process_id" in names else "NULL"
            found = trace.query(_statement(question, f'(SELECT {rank} AS rank, v.* FROM "{question.view}" v)',
                                           ["rank"]))
            if "process_id" not in names:
                found["rank"] = Ranks(trace).shared
            parts.append(found.assign(run=self.names[path]))
        return pd.concat([part for part in parts if len(part)] or parts[:1])

    def _by_duckdb(self, question: Question) -> pandas.DataFrame:
        connection = self._duckdb()
        self._define(connection, question.view)
        return self._duckdb_rows(connection, _statement(question, f'"{question.view}"', ["run", "rank"]))

    def _duckdb(self) -> Any:
        duckdb = needs("duckdb", "dataset")
        with _explained(duckdb):
            return duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})

    def _duckdb_rows(self, connection: Any, sql: str) -> pandas.DataFrame:
        with _explained(needs("duckdb", "dataset")):
            found = connection.sql(sql.rstrip().rstrip(";"))
            if found is None:
                raise TraceError("DuckDB: not a question")
            # A sum of integers is a HUGEINT, which pandas does not know; all of ours fit 64 bits. By their places:
            # names may be equal.
            chosen = [f"#{at}{'::BIGINT' if str(type) == 'HUGEINT' else ''} AS {_quoted(name)}"
                      for at, (name, type) in enumerate(zip(found.columns, found.types), 1)]
            return frame(found.project(", ".join(chosen)).to_arrow_table())

    def _define(self, connection: Any, view: str) -> None:
        duckdb = needs("duckdb", "dataset")
        if self.directory is None:
            table = self._table(view)
            with _explained(duckdb):
                connection.register(view, table)
            return
        files = self._files(view)
        levels = [name for name in ("run", "rank", "device") if _level(files[0], self.directory, name) is not None]
        # Not DuckDB's own partitions: it takes a level of any folder above, too. Files that a filter of these columns
        # leaves out are not read.
        below = f"substr(filename, {len(self.directory) + 1})"
        texts = {name: f"url_decode(regexp_extract({below}, '/{name}=([^/]*)/', 1))" for name in levels}
        columns = [f", {text if name == 'run' else f'nullif({text}::BIGINT, {NONE})'} AS {name}" for name,
                   text in texts.items()]
        # a column of the view's own is in its files, and is the same
        own = set(_schema(files[0]).names) & {*levels, "filename"}
        hidden = ", ".join(sorted({"filename", *own}))
        names = ", ".join("'" + glob.escape(path).replace("'", "''") + "'" for path in files)
        with _explained(duckdb):
            connection.execute(f"CREATE VIEW {_quoted(view)} AS SELECT * EXCLUDE ({hidden}){''.join(columns)} FROM "
                               f"read_parquet([{names}], "
                               "hive_partitioning = false, filename = true, union_by_name = true)")

    def _table(self, view: str) -> pyarrow.Table:
        pa = needs("pyarrow", "data")
        return pa.concat_tables([_labelled(path, self.names[path], view, self.timeout) for path in self.paths],
                                promote_options="default")

    def _by_dask(self, question: Question) -> pandas.DataFrame:
        dd = needs("dask.dataframe", "dataset")
        columns = sorted({*question.keys, *(column for _, column in question.figures.values()),
                          *([question.bucket[0]] if question.bucket else []),
                          *(["seq"] if _has_last(question) else [])})
        parts = self._files(question.view) if self.directory else self.paths
        runs = [self.names.get(path, "") for path in parts]
        # A file of a rank is small: several in a task, so that tasks do not cost more than their work.
        size = max(1, len(parts) // 256)
        groups, names = ([each[at:at + size] for at in range(0, len(parts), size)] for each in (parts, runs))
        partial = _load_partial(groups[0][:1], names[0][:1], question, columns, self.timeout, self.directory)
        frames = dd.from_map(_load_partial, groups, names, question=question, wanted=columns, timeout=self.timeout,
                             directory=self.directory, meta=partial.iloc[:0])
        keys = _keys(question)
        # a last value comes from one file: what a process did is not spread over several
        combined = frames.groupby(keys, dropna=False).agg({name: "max" if how in ("max", "last") else "sum"
                                                           for name, (how, _) in question.figures.items()}, split_out=1)
        return self._computed(combined).reset_index()

    def _computed(self, lazy: Any) -> Any:
        if self.scheduler is None:
            return lazy.compute(scheduler="threads")
        with connected(self.scheduler) as client:
            return client.compute(lazy, sync=True)

    def _files(self, view: str) -> list[str]:
        """The Parquet files of a view. TraceError: there are none, or some that are no Parquet."""
        found = glob.glob(os.path.join(glob.escape(str(self.directory)), f"view={glob.escape(view)}", "**", "*.*"),
                          recursive=True)
        files = sorted(path for path in found if path.endswith(".parquet"))
        others = [path for path in found if path.endswith(".arrow")]
        if others:
            raise TraceError(f"{min(others)} is an Arrow file: a dataset has Parquet files only (varve export DB --to "
                             "parquet -o DIR)")
        if not files:
            raise TraceError(f"{self.directory}: no Parquet files of view {view}")
        return files


def dataset(source: Any, *, engine: str | None = None, scheduler: Any = None,
            timeout: float | None = reading.TIMEOUT_S) -> Dataset:
    """Traces as one: a glob, a path or a list of paths of databases, or a directory of Parquet files. engine: "sqlite"
    (default for databases), "duckdb" (default for Parquet) or "dask", on threads of this process, or on `scheduler`: an
    address (tcp://…) whose workers see the same files, or a Client. TraceError: no such files, or one of them is no
    finished trace."""
    return Dataset(source, engine, scheduler, timeout)


@contextlib.contextmanager
def connected(scheduler: Any) -> Iterator[Any]:
    """A Client of Dask: the one that is given, or for a while one of an address. TraceError: nobody answers there."""
    if not isinstance(scheduler, str):
        yield scheduler
        return
    distributed = needs("dask.distributed", "dataset")
    try:
        client = distributed.Client(scheduler)
    except (OSError, ValueError) as error:
        raise TraceError(f"no scheduler of Dask at {scheduler}: {reading.reason(error)}") from None
    with client:
        yield client


@contextlib.contextmanager
def _explained(duckdb: Any) -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, UnicodeError) as error:
        raise TraceError(f"DuckDB: {reading.reason(error)}") from None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# ---- rows of one trace ----

def _paths(source: Any) -> list[str]:
    """Absolute: workers have other working directories, and no name begins as an option does."""
    if isinstance(source, Trace):
        return [os.path.abspath(source.path)]
    if isinstance(source, (str, bytes, os.PathLike)):
        text = os.fsdecode(source)
        found = [text] if os.path.exists(text) else sorted(glob.glob(text))
        if not found:
            raise TraceError(f"{text}: no such file")
        return [os.path.abspath(path) for path in found]
    found = [path for one in source for path in _paths(one)]
    if not found:
        raise TraceError("no traces were given")
    return found


def _labelled(path: str, run: str, view: str, timeout: float | None) -> pyarrow.Table:
    """A view with the columns run and rank."""
    pa = needs("pyarrow", "data")
    trace = Trace(path, timeout)
    ranks, batches = Ranks(trace), []
    reader = trace.batches(view)
    has_rank = "rank" in reader.schema.names
    try:
        for batch in reader:
            if not has_rank:
                rank = ranks.of(batch)
                if rank is None:
                    rank = pa.array([ranks.shared] * len(batch), pa.int64())
                batch = pa.RecordBatch.from_arrays([*batch.columns, rank], names=[*batch.schema.names, "rank"])
            batches.append(batch)
    except (pa.ArrowException, OSError) as error:
        raise TraceError(reading.reason(error)) from None
    table = pa.Table.from_batches(batches) if batches else reader.schema.empty_table()
    if "rank" not in table.column_names:
        table = table.append_column("rank", pa.array([], pa.int64()))
    return table.append_column("run", pa.array([run] * len(table), pa.string()))


def _read_databases(paths: Sequence[str], runs: Sequence[str], question: Question, columns: Sequence[str],
                    timeout: float | None) -> pyarrow.Table:
    pa = needs("pyarrow", "data")
    return pa.concat_tables([_labelled(path, run, question.view, timeout).select([*columns, "run", "rank"]) for path,
                             run in zip(paths, runs)])


def _level(path: str, directory: str, name: str) -> str | None:
    """What a folder below the dataset's directory says: of name=… the part behind it."""
    for part in os.path.relpath(path, directory).split(os.sep)[:-1]:
        if part.startswith(name + "="):
            return urllib.parse.unquote(part[len(name) + 1:])
    return None


def _schema(path: str) -> pyarrow.Schema:
    pa, pq = needs("pyarrow", "data"), needs("pyarrow.parquet", "data")
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise TraceError(f"{path}: {reading.reason(error)}") from None


def _read_file(path: str, directory: str, columns: Sequence[str]) -> pyarrow.Table:
    pa, pq = needs("pyarrow", "data"), needs("pyarrow.parquet", "data")
    try:
        table = pq.ParquetFile(path).read([column for column in columns if column != "device"])
        for name, type in (("run", pa.string()), ("rank", pa.int64())) + ((("device", pa.int64()),)
                                                                          if "device" in columns else ()):
            text = _level(path, directory, name)
            value = text if text is None or name == "run" else None if text == str(NONE) else int(text)
            table = table.append_column(name, pa.array([value] * len(table), type))
        return table.select([*columns, "run", "rank"])
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise TraceError(f"{path}: {reading.reason(error)}") from None


def _load_partial(paths: Sequence[str], runs: Sequence[str], question: Question, wanted: Sequence[str],
                  timeout: float | None, directory: str | None) -> pandas.DataFrame:
    """A Dask task: rows of some databases, or of some files below `directory`, added up."""
    if directory is None:
        return _partial(_read_databases(paths, runs, question, wanted, timeout), question)
    pa = needs("pyarrow", "data")
    return _partial(pa.concat_tables([_read_file(path, directory, wanted) for path in paths]), question)


def _keys(question: Question) -> list[str]:
    return ["run", "rank", *question.keys, *(["bucket"] if question.bucket else [])]


def _partial(table: pyarrow.Table, question: Question) -> pandas.DataFrame:
    """Added up by Arrow, which takes a tenth of the time that pandas does for a few thousand rows."""
    import pyarrow.compute as pc
    if question.bucket:
        column, width = question.bucket
        table = table.append_column("bucket", pc.multiply(pc.divide(table[column], width), width))
    if _has_last(question):
        table = table.sort_by("seq")
    keys = _keys(question)
    made = table.group_by(keys, use_threads=False).aggregate([(column, how) for how,
                                                              column in question.figures.values()])
    chosen = made.select([*keys, *(f"{column}_{how}" for how, column in question.figures.values())])
    return _typed(frame(chosen.rename_columns([*keys, *question.figures])), question)


# ---- from rows to answers ----

def _statement(question: Question, source: str, labels: Sequence[str]) -> str:
    """In the SQL that SQLite and DuckDB have in common; times are not negative."""
    keys = [f'"{key}"' for key in (*labels, *question.keys)]
    chosen = list(keys)
    if question.bucket:
        column, width = question.bucket
        chosen.append(f'"{column}" - "{column}" % {width} AS bucket')
        keys.append(f'"{column}" - "{column}" % {width}')
    figures = [f'max(CASE WHEN seq = last_seq THEN "{column}" END) AS "{name}"' if how == "last" else
               f'{how}("{column}") AS "{name}"' for name, (how, column) in question.figures.items()]
    if _has_last(question):
        source = f"(SELECT *, max(seq) OVER (PARTITION BY {', '.join(keys)}) AS last_seq FROM {source})"
    return f"SELECT {', '.join(chosen + figures)} FROM {source} GROUP BY {', '.join(keys)}"


def _has_last(question: Question) -> bool:
    return any(how == "last" for how, _ in question.figures.values())


_TEXTS, _REALS = {"run", "domain", "user_function", "user_file"}, {"score"}


def _typed(rows: pandas.DataFrame, question: Question) -> pandas.DataFrame:
    pd = needs("pandas", "data")
    for name in (*_keys(question), *question.figures):
        if name in _TEXTS:
            rows[name] = rows[name].astype(pd.StringDtype())
        elif name in _REALS:
            rows[name] = rows[name].astype("float64")
        else:
            rows[name] = rows[name].astype("Int64")
    return rows[[*_keys(question), *question.figures]]


def _normal(rows: pandas.DataFrame, question: Question) -> pandas.DataFrame:
    """One form whatever the engine: types, order of columns, order of rows."""
    return _typed(rows.copy(), question).sort_values(_keys(question), ignore_index=True)


def _carried(rows: pandas.DataFrame, series: Sequence[str], width: int) -> pandas.DataFrame:
    """Rows of a bucket of time, with one for each bucket that has none until the trace's last: the value before stays.
    A bucket's largest value is at least the one that it begins with. TraceError: too many buckets."""
    rows = rows.sort_values([*series, "bucket"], ignore_index=True)
    after = rows.groupby(["run", "rank"], dropna=False).bucket.transform("max") + width
    grouped = rows.groupby(list(series), dropna=False)
    spans = (grouped.bucket.shift(-1).fillna(after) - rows.bucket) // width
    if spans.sum() > SPANS_MAX:
        raise TraceError(f"spans of {width} ns are {spans.sum():,} rows: ask for longer ones")
    for name in ("allocated", "reserved"):
        before = grouped[f"{name}_last"].shift(1)
        rows[name] = rows[name].mask((before > rows[name]).fillna(False), before)
    carried = rows.loc[rows.index.repeat(spans.astype("int64"))]
    ordinal = carried.groupby(level=0).cumcount()
    carried = carried.assign(bucket=carried.bucket + ordinal * width)
    for name in ("allocated", "reserved"):
        carried[name] = carried[name].mask(ordinal > 0, carried[f"{name}_last"])
    return carried


def _over_traces(rows: pandas.DataFrame, keys: Sequence[str], figures: dict[str, str], first: str) -> pandas.DataFrame:
    made = rows.groupby(list(keys), dropna=False).agg(figures).reset_index()
    return made.sort_values([first, *keys], ascending=[False] + [True] * len(keys), ignore_index=True)
