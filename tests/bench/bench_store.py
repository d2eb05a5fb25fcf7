#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast events become a database, beside the ways that others take, on the same rows in turns: a prepared statement
per row, and the sqlite3 shell's .import of them as CSV, in which unused fields are 0, since it knows no NULL. Then one
of ten million events, and what it takes: bytes per event, the time of `varve report` and other commands, of the page
and its size, of each of the ten questions of `varve query --examples`, and of two groupings that people write."""

import csv
import os
import re
import shutil
import sqlite3
import statistics
import time

import common as bench

ROUNDS = bench.number("VARVE_BENCH_STORE_ROUNDS", 3)
EVENTS = bench.number("VARVE_BENCH_STORE_EVENTS", 1_000_000)
LONG = bench.number("VARVE_BENCH_REPORT_EVENTS", 10_000_000)
QUESTIONS = {"report": 3, "info": None, "leaks": None, "peak": None, "timeline": None}  # seconds
PAGE_SECONDS, PAGE_BYTES = 10, 3_000_000
GROUPINGS = {  # 3 s for five million events
    "events by line":
        "SELECT s.file, s.line, count(*), sum(e.size) FROM events e JOIN callsite c ON c.id = e.callsite_id JOIN symbol"
        " s ON s.id = coalesce(c.user_symbol_id, c.symbol_id) WHERE e.kind = 'heap_alloc' GROUP BY 1, 2",
    "functions anywhere in the stack":
        "SELECT function, file, module, bytes, allocations FROM function_total WHERE domain = 'heap' ORDER BY bytes",
}
SETTINGS = "PRAGMA synchronous = OFF; PRAGMA secure_delete = OFF; PRAGMA cache_size = -8192; PRAGMA temp_store = FILE;"


def make(way, path, events):
    for suffix in ("", "-wal", "-shm", "-journal"):
        if os.path.exists(path + suffix):
            os.remove(path + suffix)
    return bench.run_json([bench.program("bench_store", "bench"), way, path, str(events)])


def ask(path, sql):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def write_csv(path, database):
    with open(path, "w", encoding="ascii", newline="") as stream:
        csv.writer(stream).writerows([value or 0 for value in row] for row in ask(database, "SELECT * FROM event"))


def import_csv(folder, path):
    """The shell's own time, and that of the empty table."""
    empty = make("prepared", path, 0)["seconds"]
    begin = time.monotonic()
    bench.run(["sqlite3", "-batch", path, SETTINGS, ".mode csv", ".import events.csv event"], cwd=folder)
    return empty + time.monotonic() - begin


def measure_ways(folder):
    paths = {way: os.path.join(folder, way + ".db") for way in ("insert", "prepared", "whole", "import")}
    seconds, derived, has_shell = {way: [] for way in paths}, [], shutil.which("sqlite3") is not None
    for _ in range(ROUNDS):
        for way in ("insert", "prepared", "whole"):
            made = make(way, paths[way], EVENTS)
            seconds[way].append(made["seconds"])
            derived += [made["derive_s"]] if way == "insert" else []
        if has_shell:
            write_csv(os.path.join(folder, "events.csv"), paths["prepared"])
            seconds["import"].append(import_csv(folder, paths["import"]))
    if not has_shell:
        bench.skip("store", "no comparison with .import: the program sqlite3 is not installed")
    sums = {way: ask(path, "SELECT count(*), max(seq), sum(addr % 1000) FROM event")
            for way, path in paths.items() if seconds[way] and way != "insert"}  # whose database is not complete
    if any(rows != sums["whole"] or rows[0][0] != EVENTS for rows in sums.values()):
        raise bench.Broken(f"rows differ: {sums}")
    bench.figure("store", "derive_event", statistics.median(derived) / EVENTS * 1e9, "ns", events=EVENTS)
    for peer, name in (("prepared", "a prepared statement per row"), ("import", ".import")):
        if seconds[peer]:
            bench.compare("store", "events", seconds["whole"], seconds[peer], "s", name, events=EVENTS,
                          bytes_per_event=round(os.path.getsize(paths["whole"]) / EVENTS, 1))
    for path in paths.values():
        if os.path.exists(path):
            os.remove(path)


def seconds_of(question, path, *more):
    """The median of three, the answers thrown away."""
    times = []
    for _ in range(3):
        begin = time.monotonic()
        bench.run([bench.VARVE, question, path, *more])
        times.append(time.monotonic() - begin)
    return statistics.median(times)


def measure_page(path):
    page = path + ".html"
    seconds = seconds_of("report", path, "--html", page, "--force")
    bench.figure("store", "page", seconds, "s", PAGE_SECONDS)
    bench.figure("store", "size of the page", os.path.getsize(page), "bytes", PAGE_BYTES)
    os.remove(page)


def measure_questions(folder):
    path = os.path.join(folder, "trace.db")
    made = make("whole", path, LONG)
    bench.figure("store", "event on disk", os.path.getsize(path) / LONG, "bytes", 100, events=LONG)
    bench.note(f"bench_store: {made['stored_s']} s to store the events,"
               f" {made['seconds'] - made['stored_s']:.1f} s to complete the database")
    for question, target in QUESTIONS.items():
        bench.figure("store", f"varve {question}", seconds_of(question, path), "s", target)
    measure_page(path)
    for name, sql in GROUPINGS.items():
        bench.figure("store", name, seconds_of("query", path, sql), "s", round(LONG * 3 / 5e6, 3))
    with open(os.path.join(bench.ROOT, "analysis", "query", "questions.sql"), encoding="utf-8") as stream:
        examples = [text for text in stream.read().split("\n\n") if re.match(r"-- \d", text) and "SELECT" in text]
    if len(examples) != 10:
        raise bench.Broken("there are not ten questions")
    for sql in examples:
        title = sql.splitlines()[0].removeprefix("-- ")
        bench.figure("store", f"question {title}", seconds_of("query", path, sql), "s", round(LONG / 4e6, 3))


def measure(folder):
    measure_ways(folder)
    measure_questions(folder)


if __name__ == "__main__":
    bench.main(measure)
