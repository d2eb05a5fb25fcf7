#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who needs most memory at the peak, as varve, memray and heaptrack have it of the same programs.

    bench_leaders.py [--table] [--top N]

Each tool records each program once, by itself. memray and varve are compared by the innermost Python line (heap and
mappings together, as memray counts both), heaptrack and varve by the function that calls the allocator (heap alone,
as heaptrack counts). A line of output is one leader of a peer, what varve has of it, and the line that varve's report
names in its place; --table prints them as docs/results/leaders.md. Threads and the order in which memory is taken
differ from run to run, and so do peaks. """
import argparse
import collections
import itertools
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
VARVE = os.environ.get("VARVE", os.path.join(HERE, "../../build/varve"))
VENV = os.environ.get("VARVE_BENCH_VENV",
                      os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")),
                                   "varve/bench-python"))

NAME_COLUMNS = 48

# The demo, and a program of others: pip lists what is installed, as JSON.
PROGRAMS = {
    "demo": [os.path.join(HERE, "../programs/demo_numpy.py")],
    "pip": ["-m", "pip", "inspect"],
}


def run(command, **keywords):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, **keywords)


def varve_leaders(database, domains, frames):
    """By the innermost of these frames: bytes at the peak, and the user's line that most of them are reported under."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    rows = connection.execute(f"""
        WITH innermost AS (SELECT f.* FROM callsite_total c JOIN frame f ON f.callsite_id = c.callsite_id
                           WHERE {frames}),
        chosen AS (SELECT callsite_id, min(depth), function, file, line FROM innermost GROUP BY callsite_id)
        SELECT i.function, i.file, i.line, c.user_function, c.user_file, c.user_line, sum(c.peak_bytes)
        FROM callsite_total c JOIN chosen i ON i.callsite_id = c.callsite_id WHERE c.domain IN ({domains})
        GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 7""")
    peaks, lines = collections.Counter(), {}
    for function, file, line, user_function, user_file, user_line, peak in rows:
        key = (function, os.path.basename(file or ""), line) if "is_python" in frames else (function,)
        peaks[key] += peak
        lines[key] = f"{user_function} {os.path.basename(user_file or '')}:{user_line}" if user_line else user_function
    connection.close()
    return peaks, lines


READ_MEMRAY = """
import collections, json, sys
import memray
sums = collections.Counter()
for record in memray.FileReader(sys.argv[1]).get_high_watermark_allocation_records(merge_threads=True):
    stack = record.stack_trace(max_stacks=1)
    if stack:
        sums[stack[0]] += record.size
print(json.dumps([[*key, size] for key, size in sums.most_common()]))
"""


def memray_leaders(python, program, folder):
    path = os.path.join(folder, "memray.bin")
    # the demo ends by _exit, after which memray's file lacks its end
    run([python, "-m", "memray", "run", "--force", "--quiet", "-o", path, *program])
    answer = subprocess.run([python, "-c", READ_MEMRAY, path], capture_output=True, text=True, check=True)
    leaders = collections.OrderedDict()
    for function, file, line, size in json.loads(answer.stdout):
        leaders[(function, os.path.basename(file), line)] = size
    return leaders


def heaptrack_leaders(python, program, folder):
    path = os.path.join(folder, "heaptrack")
    run(["heaptrack", "-o", path, python, *program])
    written = next(os.path.join(folder, name) for name in os.listdir(folder) if name.startswith("heaptrack."))
    text = subprocess.run(["heaptrack_print", "-f", written, "-p", "1", "-l", "0", "-T", "0", "-a", "0", "-n", "60"],
                          capture_output=True, text=True, check=True).stdout.splitlines()
    units = {"B": 1, "K": 1e3, "M": 1e6, "G": 1e9}
    leaders = collections.OrderedDict()
    for index, line in enumerate(text[:-1]):
        if "peak memory consumed over" in line and not text[index + 1].startswith("0x"):
            figure = line.split()[0]
            leaders.setdefault((text[index + 1].strip(),), round(float(figure[:-1]) * units[figure[-1]]))
    return leaders


def compare(name, tool, leaders, ours, top):
    peaks, lines = ours
    by_size = [key for key, _ in peaks.most_common()]
    for rank, (key, size) in enumerate(list(leaders.items())[:top], 1):
        place = {"function": key[0]} if len(key) == 1 else {"function": key[0], "file": key[1], "line": key[2]}
        mine = peaks.get(key)
        yield {"bench": "leaders", "metric": f"{name}, peak", **place, "peer": tool, "peer_rank": rank,
               "peer_value": size,
               "value": mine, "unit": "bytes", "rank": by_size.index(key) + 1 if mine is not None else None,
               "user_line": lines.get(key), "ratio": round(mine / size, 3) if mine is not None and size > 0 else None}


def rows_of(name, program, python, top):
    with tempfile.TemporaryDirectory() as folder:
        database = os.path.join(folder, "run.db")
        subprocess.run([VARVE, "record", "--quiet", "-o", database, "--", python, *program], stdout=subprocess.DEVNULL,
                       check=True)
        if run([python, "-c", "import memray"]).returncode == 0:
            yield from compare(name, "memray", memray_leaders(python, program, folder),
                               varve_leaders(database, "'heap', 'mmap'", "f.is_python"), top)
        else:
            yield {"bench": "leaders", "skipped": f"{python} has no memray"}
        if shutil.which("heaptrack"):
            yield from compare(name, "heaptrack", heaptrack_leaders(python, program, folder),
                               varve_leaders(database, "'heap'", "f.depth = 0"), top)
        else:
            yield {"bench": "leaders", "skipped": "no heaptrack here"}


def cut(name):
    return name if len(name) <= NAME_COLUMNS else name[:NAME_COLUMNS // 2] + "…" + name[-(NAME_COLUMNS // 2 - 1):]


def print_as_page(rows):
    """In Markdown, a table for each program and peer."""
    print("# Who needs most at the peak, as others have it\n\n"
          "Made by `tests/bench/bench_leaders.py --table --top 3`: the leaders of memray (by innermost Python line;"
          " heap and\n"
          "mappings together) and heaptrack (by the function that calls malloc, rounded as it prints), and what varve"
          " has of\n"
          "each, in bytes. Each tool recorded each program once; peaks differ from run to run. memray has one peak of"
          " heap\nand mappings together; varve's figure is what each of the two had at its own.")
    for (program, peer), group in itertools.groupby(rows, lambda row: (row["metric"].split(",")[0], row["peer"])):
        print(f"\n## {program}, beside {peer}\n\n| | {peer} says | bytes | varve: bytes | rank | in varve's report |\n"
              "|---:|---|---:|---:|---:|---|")
        for row in group:
            where = f" {row['file']}:{row['line']}" if "file" in row else ""
            value = "" if row["value"] is None else format(row["value"], ",")
            print(f"| {row['peer_rank']} | {cut(row['function'] + where)} | {row['peer_value']:,} | {value} |"
                  f" {row['rank']} | {cut(row['user_line'])} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="a page in Markdown instead of JSON lines")
    parser.add_argument("--top", type=int, default=5, help="leaders of each peer (default 5)")
    arguments = parser.parse_args()
    python = os.path.join(VENV, "bin/python")
    if not os.path.exists(python):
        print(json.dumps({"bench": "leaders", "skipped": f"no environment in {VENV}: bench_python_program.py makes"
                                                         " it"}))
        return
    rows = (row for name, program in PROGRAMS.items() for row in rows_of(name, program, python, arguments.top))
    if arguments.table:
        print_as_page(row for row in rows if "skipped" not in row)
        return
    for row in rows:
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    sys.exit(main())
