#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Python program recorded by default: the whole time until the result is ready, and the time inside the program.

The program imports numpy, pandas, scipy, scikit-learn and matplotlib and trains a forest, on one thread; it times
itself from its first line to its last. By itself, under `varve record`, `memray run --native`, `memray run` and
heaptrack, in turn, VARVE_BENCH_PROGRAM_ROUNDS times. Then once with `--keep totals`, of which the size counts, and once
for the page of `varve report --html`, beside memray's flame graph. Its libraries and memray are in a virtual
environment that is made once, in VARVE_BENCH_VENV (default: below the user's cache folder), of what PyPI has then;
VARVE_BENCH_PYTHON says with which interpreter. An environment that was made otherwise is taken as it is."""

import json
import os
import sys
import time

BENCH = "python_program"
WHOLE_RATIO = 1.25  # memray --native's whole time over ours
ADDED_RATIO = 2  # the same of what is added inside the program
EVENT_BYTES = 45
TOTALS_BYTES = 5_000_000
PAGE_SECONDS, PAGE_BYTES = 10, 3_000_000
VENV = os.environ.get("VARVE_BENCH_VENV") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "varve", "bench-python")
PACKAGES = ("numpy", "pandas", "scipy", "scikit-learn", "matplotlib")


def program():
    begin = time.perf_counter()
    import matplotlib  # pylint: disable=import-outside-toplevel
    import numpy  # pylint: disable=import-outside-toplevel
    import pandas  # pylint: disable=import-outside-toplevel
    import scipy.sparse  # pylint: disable=import-outside-toplevel
    import scipy.stats  # pylint: disable=import-outside-toplevel
    import sklearn  # pylint: disable=import-outside-toplevel
    matplotlib.use("Agg")
    import matplotlib.pyplot  # pylint: disable=import-outside-toplevel
    from sklearn.ensemble import RandomForestClassifier  # pylint: disable=import-outside-toplevel

    random = numpy.random.default_rng(0)
    points = random.normal(size=(2000, 20))
    classes = (points[:, 0] + points[:, 1] > 0).astype(int)
    forest = RandomForestClassifier(n_estimators=30, n_jobs=1, random_state=0).fit(points, classes)
    pandas.DataFrame(points).describe()
    score = forest.score(points, classes)
    versions = {library.__name__: library.__version__ for library in (numpy, pandas, scipy, sklearn, matplotlib)}
    print(json.dumps({"program": BENCH, "s": time.perf_counter() - begin, "score": score,
                      "python": sys.version.split()[0], **versions}))


# ---- how it is run ----

def environment():
    """The interpreter with the libraries; None, with a line that says why. memray may be missing: that is a peer."""
    python = os.path.join(VENV, "bin", "python")

    def works(*command):
        return os.path.exists(command[0]) and bench.subprocess.run(command, stdout=sys.stderr, stderr=sys.stderr,
                                                                   check=False).returncode == 0

    def is_there():
        return works(python, "-c", "import numpy, pandas, scipy, sklearn, matplotlib")

    if is_there():
        return python
    bench.note(f"{BENCH}: installing {' '.join(PACKAGES)} and memray from PyPI into {VENV}")
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    if not works(bench.shutil.which(os.environ.get("VARVE_BENCH_PYTHON", "python3")), "-m", "venv", VENV):
        return bench.skip(BENCH, "no virtual environment")
    if not works(*pip, *PACKAGES) or not is_there():
        return bench.skip(BENCH, "the program's libraries could not be installed from PyPI")
    if not works(*pip, "memray"):
        bench.note(f"{BENCH}: memray could not be installed")
    return python


def figures_of(out):
    """The program's own line: a recorder may print before and after it."""
    for line in out.splitlines():
        if line.startswith('{"program"'):
            return json.loads(line)
    raise bench.Broken(f"the program printed no figures: {out[-500:]!r}")


def timed(arguments):
    """The program's figures, with the whole time."""
    begin = time.perf_counter()
    out = bench.run(arguments)
    whole = time.perf_counter() - begin
    return {"whole": whole, **figures_of(out)}


def seconds_of(arguments):
    begin = time.perf_counter()
    bench.run(arguments)
    return time.perf_counter() - begin


def bytes_of(folder, prefix):
    """Size of the files whose names begin so, which go."""
    size = 0
    for name in os.listdir(folder):
        if name.startswith(prefix):
            path = os.path.join(folder, name)
            size += os.path.getsize(path)
            os.remove(path)
    return size


def recorded(folder, command, *options):
    database = os.path.join(folder, "varve.db")
    run = timed([*bench.record_command(database, *options), *command])
    run["bytes"] = os.path.getsize(database)
    if not options:
        run.update(bench.conservation(database, 1))
    os.remove(database)
    return run


def under(folder, prefix, command):
    run = timed([*prefix, *command])
    run["bytes"] = bytes_of(folder, "peer")
    return run


def peers(folder, python):
    """What each peer is run with, in front of the program; None: it is not there."""
    out = os.path.join(folder, "peer")
    has_memray = bench.subprocess.run([python, "-c", "import memray"], capture_output=True, check=False).returncode == 0
    memray = [python, "-m", "memray", "run", "--quiet", "--force", "--output", out]
    return {
        "memray --native": [*memray, "--native"] if has_memray else None,
        "memray": memray if has_memray else None,
        "heaptrack": ["heaptrack", "--output", out, python] if bench.shutil.which("heaptrack") else None,
    }


# ---- figures ----

def added(runs, plain):
    """What is added inside the program; a run that is no slower than by itself adds next to nothing."""
    return [max(run["s"] - own["s"], 0.001) for run, own in zip(runs, plain)]


def compare(name, ours, theirs, plain):
    is_native = name == "memray --native"
    median = bench.statistics.median
    bench.compare(BENCH, "whole time", bench.column(ours, "whole"), bench.column(theirs, "whole"), "s", name,
                  WHOLE_RATIO if is_native else None,
                  own=round(median(bench.column(plain, "whole")), 3), bytes=int(median(bench.column(ours, "bytes"))),
                  peer_bytes=int(median(bench.column(theirs, "bytes"))))
    bench.compare(BENCH, "added inside the program", added(ours, plain), added(theirs, plain), "s", name,
                  ADDED_RATIO if is_native else None, own=round(median(bench.column(plain, "s")), 3))


def measure_page(folder, command, memray):
    """The page of the program, beside memray's flame graph of what memray recorded."""
    database, page = os.path.join(folder, "varve.db"), os.path.join(folder, "page.html")
    timed([*bench.record_command(database), *command])
    seconds, size = seconds_of([bench.VARVE, "report", "--html", page, database]), os.path.getsize(page)
    bench.figure(BENCH, "page", seconds, "s", PAGE_SECONDS)
    bench.figure(BENCH, "size of the page", size, "bytes", PAGE_BYTES)
    if memray is None:
        bench.skip(BENCH, "no comparison with memray flamegraph: memray is not installed")
    else:
        timed([*memray, *command[1:]])
        graph = os.path.join(folder, "peer.html")
        theirs = seconds_of([command[0], "-m", "memray", "flamegraph", "--force", "--output", graph,
                             os.path.join(folder, "peer")])
        bench.compare(BENCH, "page", [seconds], [theirs], "s", "memray flamegraph", bytes=size,
                      peer_bytes=os.path.getsize(graph))
        bytes_of(folder, "peer")
    os.remove(database)
    os.remove(page)


def measure_totals(folder, command):
    if "--keep" not in bench.run([bench.VARVE, "record", "--help"]):
        bench.skip(BENCH, "size with --keep totals: this varve has no such option")
        return
    run = recorded(folder, command, "--keep", "totals")
    bench.figure(BENCH, "size with --keep totals", run["bytes"], "bytes", TOTALS_BYTES, whole=round(run["whole"], 3))


def measure(folder):
    python = environment()
    if python is None:
        return
    command = [os.path.abspath(__file__), "program"]
    prefixes = peers(folder, python)
    plain, ours = [], []
    theirs = {name: [] for name in prefixes}
    timed([python, *command])  # the files are read, the bytecode is written
    for _ in range(bench.number("VARVE_BENCH_PROGRAM_ROUNDS", 3)):
        plain.append(timed([python, *command]))
        ours.append(recorded(folder, [python, *command]))
        for name, prefix in prefixes.items():
            if prefix is not None:
                theirs[name].append(under(folder, prefix, command))
    for name, runs in theirs.items():
        if runs:
            compare(name, ours, runs, plain)
        else:
            bench.skip(BENCH, f"no comparison with {name}: it is not installed")
    bench.figure(BENCH, "bytes an event", bench.statistics.median(run["bytes"] / run["stored"] for run in ours),
                 "bytes", EVENT_BYTES, events=ours[0]["stored"], **bench.overflow_figures(ours))
    bench.note(f"{BENCH}: {json.dumps(plain[0])}")
    measure_totals(folder, [python, *command])
    measure_page(folder, [python, *command], prefixes["memray"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["program"]:
        program()
    else:
        import common as bench

        bench.main(measure)
