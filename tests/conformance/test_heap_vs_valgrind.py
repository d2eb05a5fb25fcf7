#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 80 s
"""The heap figures of `varve record` beside valgrind memcheck's, process by process, on real programs.

Allocations, frees, bytes allocated, and blocks and bytes in use at exit must be equal, or each difference must be
explained to the byte by a mechanism of heap_vs_valgrind_match.py that the table names. There are no tolerances; instead
both runs get the same folder, files, file descriptors and an environment with the same names and lengths in the same
order, which is checked, and valgrind does not free the C library's own memory at exit. The quick tier has all functions
that allocate, threads, forks, and a control that must come out as different."""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [FOLDER, os.path.dirname(FOLDER)]
import heap_vs_valgrind_match as matching  # noqa: E402
import heap_vs_valgrind_programs as programs  # noqa: E402
import recording  # noqa: E402
from recording import VARVE  # noqa: E402

# The process that starts the recorder or valgrind is new, too: programs see its number, and it is as long as theirs.
WRAPPER = ["/bin/sh", "-c", '"$@"; exit $?', "sh", "/usr/bin/env", "-i"]
# Debian's valgrind is a script that adds variables to the environment; the program is behind it.
VALGRIND = shutil.which("valgrind.bin") or shutil.which("valgrind")
PROGRAMS_MIN, VARIED_MAX, RUNS_MAX = 10 if recording.IS_FULL else 3, 1, 4
PADDED, DUMMY_SESSION = "LD_PRELOAD", "VARVE_SESSION"
LAST = (PADDED, DUMMY_SESSION)
PROBES = (["/usr/bin/env", "-0"],
          ["/bin/sh", "-c", "/usr/bin/env -0; /bin/sh -c '/usr/bin/env -0; exit'; exec /usr/bin/env -0"])
CHILD = (["/bin/sh", "-c", "/usr/bin/env -0; exit"],)


def pid_max():
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as stream:
        return int(stream.read())


def number_first():
    """The least number of a process with as many digits as the largest."""
    return 10 ** (len(str(pid_max() - 1)) - 1)


def take_own_numbers():
    """The program again, as the first process of a namespace whose numbers begin there, so that nobody else uses them
    up. Where that is not allowed, it goes on."""
    if os.environ.pop("VARVE_TEST_NUMBERS", None) is not None:
        return
    inside = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
              f'echo {number_first()} >/proc/sys/kernel/ns_last_pid && exec "$@"', "sh"]
    if subprocess.run([*inside, "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0:
        os.environ["VARVE_TEST_NUMBERS"] = "own"
        os.execvp(inside[0], [*inside, sys.executable, *sys.argv])


def await_numbers():
    """Uses up numbers of processes until the next one has as many digits as the largest, and many more of them come;
    for a minute at most."""
    first, end = number_first(), time.monotonic() + 60
    while time.monotonic() < end:
        with open("/proc/loadavg", encoding="ascii") as stream:
            last = int(stream.read().split()[-1])
        if first <= last < first + (pid_max() - first) // 8:
            return
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)


@functools.lru_cache(None)
def fixed_addresses():
    """The command that starts a program without address space randomization, or nothing where that is not allowed."""
    command = ["setarch", "-R"]
    try:
        is_possible = subprocess.run([*command, "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return ()
    return tuple(command) if is_possible else ()


class Failure(Exception):
    """The two runs cannot be compared; the text says why."""


class Tool:
    """One of the two: how it starts a program, and the environment that it must be given."""

    def __init__(self, tag, environment):
        self.tag, self.environment = tag, environment

    def run(self, folder, prefix, step, environment=None):
        """(exit status, output, pid) of one command with files as stdout and stderr."""
        paths = [os.path.join(folder, f"{self.tag}.{name}") for name in ("out", "err")]
        with open(paths[0], "wb") as out, open(paths[1], "wb") as err:
            process = subprocess.Popen([*fixed_addresses(), *WRAPPER, *self.entries(environment or {}),
                                        *self.command(prefix), *step],
                                       stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                                       cwd=os.path.join(folder, "work"), env={"PATH": programs.PATH})
            status = process.wait()
        with open(paths[0], "rb") as out:
            return status, out.read(), process.pid

    def entries(self, more):
        """NAME=VALUE in the order in which varve leaves them: what it sets itself comes last."""
        names = [name for name in self.environment if name not in LAST] + list(more)
        names += [name for name in LAST if name in self.environment]
        return [f"{name}={more.get(name, self.environment.get(name))}" for name in names]

    def errors(self, folder):
        with open(os.path.join(folder, f"{self.tag}.err"), encoding="utf-8", errors="replace") as stream:
            return stream.read()[-2000:]


class Varve(Tool):
    stacks = "none"

    def command(self, prefix):
        name = prefix + ("" if self.stacks == "none" else ".again")
        return [VARVE, "record", "--stacks", self.stacks, "-o", name + ".db", "--"]


class Valgrind(Tool):
    def command(self, prefix):
        return [VALGRIND, "--tool=memcheck", "--vgdb=no", "--trace-children=yes", "--run-libc-freeres=no",
                "--run-cxx-freeres=no", "--undef-value-errors=no", "--trace-malloc=yes",
                f"--log-file={prefix}.log.%p.%n"]


# --- equal environments --------------------------------------------------------------------------------------------


def clean(folder):
    """Remove the databases and logs of all steps: the files whose names begin with a number."""
    for name in os.listdir(folder):
        if name[0].isdigit():
            os.unlink(os.path.join(folder, name))


def environment_seen(tool, folder, probes=CHILD):
    """What a program, or it and children as well, finds in its environment, in order: [(name, value)]."""
    seen = []
    for probe in probes:
        status, out, _ = tool.run(folder, os.path.join(folder, "0"), probe)
        if status != 0:
            raise Failure(f"{tool.tag} cannot run {probe}: {tool.errors(folder)}")
        clean(folder)
        seen += [entry.split("=", 1) for entry in out.decode().split("\0") if "=" in entry]
    return seen


def lengths(seen):
    return [(name, len(value)) for name, value in seen]


def equal_tools(folder):
    """The two tools with environments that look the same to every program they start, or Failure."""
    base = {"PATH": programs.PATH, "HOME": os.path.join(folder, "work"), "LC_ALL": "C", "TZ": "UTC", "TMPDIR": "/tmp"}
    varve, valgrind = Varve("varve", dict(base)), Valgrind("valgrind", dict(base))
    # Valgrind passes the folder of its tools on to the valgrinds of child processes.
    inherited = {name: value for name, value in environment_seen(valgrind, folder) if name.startswith("VALGRIND_")}
    for tool in (varve, valgrind):
        tool.environment.update(inherited)
        tool.environment[PADDED] = ":"
    # What varve adds is for valgrind a variable that nobody reads; the shorter list of libraries gets more colons.
    ours = dict(environment_seen(varve, folder))
    valgrind.environment[DUMMY_SESSION] = "-" * len(ours[DUMMY_SESSION])
    missing = len(ours[PADDED]) - len(dict(environment_seen(valgrind, folder))[PADDED])
    (valgrind if missing > 0 else varve).environment[PADDED] += ":" * abs(missing)
    ours, theirs = (lengths(environment_seen(tool, folder, PROBES)) for tool in (varve, valgrind))
    if ours != theirs:
        raise Failure(f"the environments differ:\n  varve    {ours}\n  valgrind {theirs}")
    return varve, valgrind


# --- one program ---------------------------------------------------------------------------------------------------


class Row:
    """A line of the table."""

    def __init__(self, program, process="", pair=None, verdict="failed", explanation=""):
        self.program, self.process, self.verdict, self.explanation = program, process, verdict, explanation
        self.varve = pair.varve if pair else None
        self.valgrind = pair.valgrind if pair else None

    def difference(self):
        return matching.subtract(self.valgrind, self.varve) if self.varve and self.valgrind else None

    def __str__(self):
        def text(figures):
            return " ".join(f"{number:,}" for number in figures) if figures else "-"

        figures = f": varve {text(self.varve)}, valgrind {text(self.valgrind)}" if self.varve or self.valgrind else ""
        return f"{self.program.title()}: {self.verdict:9} {self.process}{figures}; {self.explanation}"


class Comparison:
    """One program under both tools, in one folder; files of step N are FOLDER/N.…"""

    def __init__(self, program, tools, folder):
        self.program, self.tools, self.folder = program, tools, folder

    def run_step(self, tool, number):
        prefix, step = os.path.join(self.folder, str(number)), self.program.steps[number - 1]
        status, output, pid = tool.run(self.folder, prefix, step, self.program.environment)
        if status != 0:
            raise Failure(f"{' '.join(step)} ended with status {status} under {tool.tag}: {tool.errors(self.folder)}")
        return output, pid

    def run_steps(self, tool):
        """All steps in a fresh working directory: [(output, pid)]."""
        work = os.path.join(self.folder, "work")
        shutil.rmtree(work)
        os.mkdir(work)
        programs.write_files(self.program, work)
        return [self.run_step(tool, number) for number in range(1, len(self.program.steps) + 1)]

    def record_again(self, number):
        """For rules that ask who allocated: the database of the same step once more, with Python stacks."""
        again = Varve("again", self.tools[0].environment)
        again.stacks = "python"
        self.run_step(again, number)
        return matching.Database(os.path.join(self.folder, f"{number}.again.db"), self.program.normalize)

    def judge(self, number, pair, database):
        """The row of one process: equal, explained, or failed."""
        row = Row(self.program, pair.command if len(pair.command) < 60 else pair.command[:57] + "...", pair)
        if not pair.is_matched:
            row.explanation = pair.note
            return row
        is_traced = not pair.report.is_forked and pair.image is not None
        if is_traced and not pair.report.is_consistent():
            row.explanation = "valgrind's trace of allocations and its summary differ"
        elif pair.difference() == matching.ZERO:
            row.verdict, row.explanation = "equal", pair.note
        elif is_traced:
            evidence = matching.Evidence(pair, database, lambda: self.record_again(number))
            texts = evidence.explain(self.program.rules.get(pair.command.split(" ")[0], ()))
            if evidence.is_complete():
                row.verdict, row.explanation = "explained", "; ".join(texts)
            else:
                row.explanation = f"left unexplained: {evidence.left()}"
        return row

    def judge_step(self, number, root, recorder):
        """(rows, widths of all process numbers) of one step."""
        prefix = os.path.join(self.folder, str(number))
        database = matching.Database(prefix + ".db", self.program.normalize)
        try:
            reports = matching.read_reports(prefix + ".log", self.program.normalize)
            rows = [Row(self.program, explanation=text) for text in database.losses()]
            rows += [self.judge(number, pair, database)
                     for pair in matching.match(reports, root, database, recorder, pid_max())]
            pids = [root, recorder] + [report.pid for report in reports] + [image.pid for image in database.images]
            return rows, {len(str(pid)) for pid in pids}
        finally:
            database.close()

    def rows(self):
        """Programs may keep process numbers as text: if these have not all the same number of digits, all runs
        again."""
        for run in range(RUNS_MAX):
            if run > 0:
                await_numbers()
            clean(self.folder)
            results = [self.run_steps(tool) for tool in self.tools]
            rows, widths = [], set()
            for number, (ours, theirs) in enumerate(zip(*results), 1):
                if ours[0] != theirs[0]:
                    rows.append(Row(self.program, explanation=f"step {number} wrote other output under valgrind"))
                found, seen = self.judge_step(number, theirs[1], ours[1])
                rows += found
                widths |= seen
            if len(widths) == 1:
                return rows
        return [Row(self.program, explanation="process numbers never had the same length")]


def control(tools, folder):
    """One byte more in the environment of one run must come out as a difference."""
    program = programs.CONTROL
    varve, valgrind = tools
    longer = Varve(varve.tag, {**varve.environment, "HOME": varve.environment["HOME"] + "/"})
    rows = Comparison(program, (longer, valgrind), folder).rows()
    row = rows[0]
    seen = any(row.verdict == "failed" and row.difference() not in (None, matching.ZERO) for row in rows)
    row.verdict = "control" if seen else "failed"
    row.explanation = f"one byte more in varve's environment {'is seen' if seen else 'went unnoticed'}"
    return rows


# --- all programs --------------------------------------------------------------------------------------------------


def compare(program, tools, folder):
    """A program itself may do something more once in a while. Where varve has all that valgrind has, and more, it is
    run again, and said to have varied if it is equal then; what varve lacks is a failure at once, and so is a second
    such program."""
    if program.missing():
        return [Row(program, verdict="skipped", explanation=f"not installed: {' '.join(program.missing())}")]
    try:
        if program is programs.CONTROL:
            return control(tools, folder)
        rows = Comparison(program, tools, folder).rows()
        differing = [row for row in rows if row.verdict == "failed"]
        differences = [row.difference() for row in differing]
        if differing and all(found and max(found) <= 0 for found in differences):
            again = Comparison(program, tools, folder).rows()
            if not any(row.verdict == "failed" for row in again):
                for row in differing:
                    row.verdict = "varied"
                return differing + again
        return rows
    except (Failure, OSError, ValueError, AttributeError) as problem:
        return [Row(program, explanation=str(problem))]


class Programs(unittest.TestCase):
    def test_real_programs(self):
        if recording.IS_SANITIZED:
            self.skipTest("what is compared is never sanitized: done in the plain build")
        self.assertTrue(VALGRIND, "valgrind is not installed")
        rows = []
        with tempfile.TemporaryDirectory(prefix="varve-valgrind-") as folder:
            os.mkdir(os.path.join(folder, "work"))
            tools = equal_tools(folder)
            for program in [*programs.LIST, programs.CONTROL]:
                if recording.IS_FULL or program.is_quick:
                    rows += compare(program, tools, folder)
        print("allocations, frees, bytes allocated; blocks, bytes in use at exit")
        for row in rows:
            print(row)
        self.assertEqual([row.process for row in rows if row.verdict == "failed"], [])
        self.assertLessEqual(len({row.program.name for row in rows if row.verdict == "varied"}), VARIED_MAX)
        compared = {row.program.name for row in rows if row.verdict in ("equal", "explained")}
        self.assertGreaterEqual(len(compared), PROGRAMS_MIN)


if __name__ == "__main__":
    take_own_numbers()
    recording.main()
