# SPDX-License-Identifier: Apache-2.0
"""What the benchmark scripts share: where the programs are, how a figure is printed, how a recording is made.

A figure is one JSON line on standard output; everything else goes to standard error. `met` reports whether a target was
reached and never decides the exit status: machines are noisy, and a benchmark fails only if something is broken.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("VARVE_BUILD_DIR") or os.path.join(ROOT, "build"))
VARVE = os.path.abspath(os.environ.get("VARVE") or os.path.join(BUILD, "varve"))
PRELOAD = os.path.join(BUILD, "libvarve_preload.so")
TIMEOUT_S = 300


class Broken(Exception):
    """Something does not work at all: the benchmark ends with status 1."""


def number(name, default):
    """A size from the environment, for short or long runs."""
    return int(os.environ.get(name) or default)


def program(name, folder="programs"):
    path = os.path.join(BUILD, folder, name)
    if not os.access(path, os.X_OK):
        raise Broken(f"{path} is missing: run ./dev build first")
    return path


def note(text):
    print(text, file=sys.stderr, flush=True)


def figure(bench, metric, value, unit, target=None, more_is_better=False, **others):
    """Print one figure; `target` is a limit for the value, or a least one if more is better."""
    line = {"bench": bench, "metric": metric, "value": round(value, 3), "unit": unit, **others}
    if target is not None:
        line["target"] = target
        line["met"] = value >= target if more_is_better else value <= target
    print(json.dumps(line), flush=True)


def compare(bench, metric, ours, peers, unit, peer, target=None, **others):
    """Print the median of `ours` beside the median of `peers` and how many times cheaper ours is: the median of the
    ratios of neighbouring runs, which a machine that slows down for a while does not move."""
    ratio = statistics.median(theirs / mine for mine, theirs in zip(ours, peers))
    line = {"bench": bench, "metric": metric, "value": round(statistics.median(ours), 3), "unit": unit, "peer": peer,
            "peer_value": round(statistics.median(peers), 3), "ratio": round(ratio, 3), **others}
    if target is not None:
        line["target"] = target
        line["met"] = ratio >= target
    print(json.dumps(line), flush=True)


def skip(bench, reason):
    print(json.dumps({"bench": bench, "skipped": reason}), flush=True)


def run(arguments, **options):
    """Standard output of a command that must succeed."""
    result = subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, timeout=TIMEOUT_S, check=False, **options)
    if result.returncode != 0:
        raise Broken(f"{' '.join(arguments)}: status {result.returncode}\n{result.stderr[-2000:]}")
    return result.stdout


def run_json(arguments, **options):
    """The last line that a program printed, which is a JSON object."""
    out = run(arguments, **options)
    try:
        return json.loads(out.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise Broken(f"{' '.join(arguments)} printed no JSON: {out[-500:]!r}") from None


def record_command(database, *options):
    return [VARVE, "record", "--quiet", "--force", "-o", database, *options, "--"]


def query(database, sql):
    return json.loads(run([VARVE, "query", "--json", database, sql]))


def conservation(database, events):
    """Nothing may be missing: what was emitted is at least `events`, and is stored or counted as lost. Also returns how
    far rings were too small: rings beyond the first of a thread, and records that went to spill files."""
    row = query(database, "SELECT sum(emitted) AS emitted, sum(stored) AS stored, sum(spilled) AS spilled, "
                          "sum(lost) AS lost, count(*) AS rings FROM thread")[0]
    if row["emitted"] < events or row["emitted"] != row["stored"] + row["lost"]:
        raise Broken(f"{events} events were emitted, but the database says {row}")
    return {"rings": row["rings"], "stored": row["stored"], "spilled_share": row["spilled"] / row["emitted"],
            "lost": row["lost"]}


def recorded(folder, command, options, least):
    """The figures that a program prints under `varve record`, of which at least `least(figures)` events are there."""
    database = os.path.join(folder, "recorded.db")
    figures = run_json([*record_command(database, *options), *command])
    figures.update(conservation(database, least(figures)))
    os.remove(database)
    return figures


def column(runs, key):
    return [run[key] for run in runs]


def overflow_figures(runs):
    return {"rings": statistics.median(run["rings"] for run in runs),
            "spilled_share": round(statistics.median(run["spilled_share"] for run in runs), 4)}


def main(measure):
    """Run `measure` with a new folder for its files; the folder is removed afterwards."""
    folder = tempfile.mkdtemp(prefix="varve-bench-", dir=os.environ.get("TMPDIR"))
    try:
        if not os.access(VARVE, os.X_OK):
            raise Broken(f"{VARVE} is missing: run ./dev build first")
        measure(folder)
    except (Broken, subprocess.TimeoutExpired) as error:
        note(f"{os.path.basename(sys.argv[0])}: {error}")
        sys.exit(1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
