#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package: events a second into Parquet (at least 1 M/s), on one core and on all; and one question over
many ranks by SQLite, DuckDB and Dask, beside that over one rank. Ranks are recorded; more than these are simulated by
files of the recorded ones under other ranks. Sizes are options; Python is that of VARVE_PYTHON3 or build/venv."""

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")]
from python_packages import missing  # noqa: E402
import common  # noqa: E402

BENCH = "dataset"
QUESTIONS = ("callsites", "peaks", "leaks", "timeline", "stragglers")
VIEWS = ("callsite_total_process", "total_process", "timeline_process", "leak_line", "process")


def record(path, operations, rank, threads=4):
    common.run([common.VARVE, "record", "-q", "-o", path, "--", common.program("churn"), "--ops", str(operations), "--seed", str(rank + 1),
                "--threads", str(threads)], env={**os.environ, "RANK": str(rank)})


def tree_bytes(folder):
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def export(folder, operations):
    """Steps by themselves in CPU time, which other load disturbs less, and the whole by the clock."""
    import pyarrow
    import varve
    from varve import reading, wide
    path = os.path.join(folder, "big.db")
    record(path, operations, 0)
    trace = varve.open(path)
    events = int(trace.query("SELECT count(*) AS n FROM event").n[0])
    plan = wide.plan(trace, "events")

    def step(name, work):
        begin, clock = cpu_s(), time.monotonic()
        work()
        common.figure(BENCH, name, events / (time.monotonic() - clock) / 1e6, "M events/s", cpu_ns=round((cpu_s() - begin) / events * 1e9, 1))

    pyarrow.set_cpu_count(1)
    step("statement to record batches", lambda: sum(batch.num_rows for batch in reading.stream(path, plan.sql, types=plan.types, key=plan.key)))
    step("view events to record batches", lambda: sum(batch.num_rows for batch in trace.batches("events")))
    step("sqlite3 of Python, fetched alone", lambda: sum(1 for _ in reading.connect(path, None).execute("SELECT * FROM events")))
    for jobs in sorted({1, os.cpu_count() or 1}):
        best = None
        for turn in range(3):
            out = os.path.join(folder, f"parquet{jobs}-{turn}")
            begin = cpu_s()
            summary = varve.to_parquet(trace, out, ["events"], jobs=jobs)
            used = cpu_s() - begin
            if best is None or summary.seconds < best[0].seconds:
                best = (summary, used)
        common.figure(BENCH, "events into Parquet", events / best[0].seconds / 1e6, "M events/s", target=1, more_is_better=True, threads=jobs,
                      cpu_ns=round(best[1] / events * 1e9, 1), events=events, bytes_an_event=round(best[0].bytes / events, 1))


def ask(data, **labels):
    total, answers = 0.0, {}
    for question in QUESTIONS:
        begin = time.monotonic()
        answers[question] = getattr(data, question)()
        total += time.monotonic() - begin
    common.figure(BENCH, "five questions", total, "s", engine=data.engine, **labels)
    return answers


def expect_same(answers, others, what):
    for question in QUESTIONS:
        if not answers[question].equals(others[question]):
            raise common.Broken(f"{what}: other {question}")


def ranks(folder, count, simulated, operations, workers):
    import distributed
    import varve
    paths = []
    for rank in range(count):
        paths.append(os.path.join(folder, f"rank{rank:04}.db"))
        record(paths[-1], operations + 10 * (rank % 7), rank, threads=2)
    parquet, begin = os.path.join(folder, "ranks"), time.monotonic()
    for path in paths:
        varve.to_parquet(path, parquet, VIEWS, jobs=1)
    common.figure(BENCH, "export of the views for these questions", (time.monotonic() - begin) / count, "s a rank", ranks=count,
                  database_bytes=sum(map(os.path.getsize, paths)), parquet_bytes=tree_bytes(parquet))
    ask(varve.dataset(paths[:1]), ranks=1)
    by_sqlite = ask(varve.dataset(paths), ranks=count)
    expect_same(by_sqlite, ask(varve.dataset(parquet), ranks=count), "duckdb")
    with distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None, local_directory=folder) as cluster, \
            distributed.Client(cluster) as client:
        expect_same(by_sqlite, ask(varve.dataset(parquet, engine="dask", scheduler=client), ranks=count, workers=workers), "dask")
        many = os.path.join(folder, "many")
        for rank in range(simulated):
            for view in VIEWS:
                source = os.path.join(parquet, f"view={view}", f"run=rank{rank % count:04}", f"rank={rank % count}")
                shutil.copytree(source, os.path.join(many, f"view={view}", f"run=rank{rank:04}", f"rank={rank}"))
        size = {"ranks": simulated, "simulated_from": count, "parquet_bytes": tree_bytes(many)}
        answers = ask(varve.dataset(many), **size)
        expect_same(answers, ask(varve.dataset(many, engine="dask", scheduler=client), workers=workers, **size), "dask")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=250_000, help="of each of four threads of the trace that is exported")
    parser.add_argument("--ranks", type=int, default=64, help="recorded")
    parser.add_argument("--rank-operations", type=int, default=500, help="of each of two threads of a rank")
    parser.add_argument("--simulated", type=int, default=1000, help="ranks")
    parser.add_argument("--workers", type=int, default=4, help="of Dask")
    chosen = parser.parse_args()
    lacking = missing("pandas", "pyarrow", "duckdb", "dask", "distributed")
    if lacking:
        common.skip(BENCH, f"no Python packages {', '.join(lacking)}: ./dev notebooks installs them")
        return 0
    with tempfile.TemporaryDirectory(prefix="varve-bench-") as folder:
        export(folder, chosen.operations)
        ranks(folder, chosen.ranks, chosen.simulated, chosen.rank_operations, chosen.workers)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except common.Broken as error:
        print(f"bench_{BENCH}: {error}", file=sys.stderr)
        sys.exit(1)
