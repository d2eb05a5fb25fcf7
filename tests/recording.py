# SPDX-License-Identifier: Apache-2.0
"""What the tests of the whole recorder share: run `varve record`, open the database, and check what must hold for every
recording, by a naive model of who owns which address. Standard library only.

A test file is a unittest program that ends with recording.main(): exit status 0, 1, or 77 if everything was skipped.
VARVE names the command, VARVE_PROGRAMS the folder of the workload programs (default: the release build).
"""

import ctypes
import errno
import functools
import glob
import itertools
import json
import os
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VARVE = os.path.abspath(os.environ.get("VARVE") or os.path.join(ROOT, "build", "varve"))
PROGRAMS = os.path.abspath(os.environ.get("VARVE_PROGRAMS") or os.path.join(os.path.dirname(VARVE), "programs"))
# A sanitized varve can neither be recorded (its run-time library must come first) nor be a plug-in of babeltrace2.
IS_SANITIZED = os.environ.get("VARVE_SANITIZE", "none") not in ("", "none")
# `./dev test full`: inputs of full size in tests that have smaller ones as well
IS_FULL = bool(os.environ.get("VARVE_FULL"))

FLAG_FAILED, FLAG_NESTED, FLAG_LATE = 1, 2, 4
KIND_MAIN_END = 65
POLICIES = ("spill", "block", "drop")
PLAIN = ["--stacks", "none"]


def sample(paths, *names):
    """All of them in full size; else those of these names, without what follows the first dot, and of a sanitized varve
    the first half of these."""
    names = names[:(len(names) + 1) // 2] if IS_SANITIZED else names
    return [path for path in paths if IS_FULL or os.path.basename(path).split(".")[0] in names]


def program(name):
    return os.path.join(PROGRAMS, name)


def processes():
    """(pid, state, parent, session) of every process."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as stream:
                    state, parent, _, session = stream.read().rsplit(")", 1)[1].split()[:4]
            except OSError:
                continue
            yield int(entry), state, int(parent), int(session)


def process_state(pid):
    """The letter of /proc/PID/stat, or None if there is no such process."""
    return next((state for one, state, _, _ in processes() if one == pid), None)


def children_of(pid):
    """As the kernel lists them, if it does: all of /proc takes longer to read than some children live."""
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return [one for one, _, parent, _ in processes() if parent == pid]
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as stream:
                found += [int(child) for child in stream.read().split()]
    except OSError:  # it has ended
        pass
    return found


def has_open(pid, path):
    """False also once it has ended."""
    try:
        return path in [os.readlink(link) for link in glob.glob(f"/proc/{pid}/fd/*")]
    except OSError:  # closed meanwhile: what else it has is not known
        return os.path.exists(f"/proc/{pid}/fd")


def program_of(process, name):
    """The child of a running `varve record` that has become the program of that name, or None."""
    for pid in children_of(process.pid):
        try:
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == name:
                return pid
        except OSError:  # it has ended
            continue
    return None


def wait_for_session(process):
    """Until nothing that `start` started runs any more, whoever its parent has become."""
    wait_until(lambda: all(session != process.pid or state in "ZX" for _, state, _, session in processes()),
               what=f"the end of all processes of {process.args}")


class Outcome:
    """A command that ended: returncode as of subprocess (negative: signal), out and err as text."""

    def __init__(self, returncode, out, err):
        self.returncode, self.out, self.err = returncode, out, err

    def __repr__(self):
        return f"status {self.returncode}\n--- stdout\n{self.out[-2000:]}\n--- stderr\n{self.err[-4000:]}"


def text_of(source):
    """A program of tests/programs that is not built beforehand."""
    with open(os.path.join(ROOT, "tests", "programs", source), encoding="utf-8") as file:
        return file.read()


def start(arguments, **options):
    """A process in a process group of its own, so that nothing it leaves behind survives the test."""
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, errors="replace", start_new_session=True, **options)


def finish(process):
    """Waits as long as it takes: whether a test hangs is the runner's to say, who knows nothing of how busy a machine
    is."""
    out, err = process.communicate()
    return Outcome(process.returncode, out, err)


def finish_orphan(process):
    """After a SIGKILL of varve: what the program, which has inherited the pipes, prints up to its own end."""
    with process.stdout, process.stderr:
        out = process.stdout.read()
    process.wait()
    wait_for_session(process)
    return out


def run(arguments, **options):
    return finish(start(arguments, **options))


def varve(*arguments, **options):
    return run([VARVE, *map(str, arguments)], **options)


def kill_group(process):
    """What `start` has started, if it still runs, and what that has left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def mappings(pid):
    """Lines of the process's maps, also where its main thread has ended."""
    try:
        for thread in sorted(os.listdir(f"/proc/{pid}/task"), key=int):
            with open(f"/proc/{pid}/task/{thread}/maps", encoding="utf-8", errors="replace") as stream:
                lines = list(stream)
            if lines:
                return lines
    except OSError:
        pass
    return []


def is_attached(pid):
    """Has the process a recording mapped?"""
    return any("/session" in line and "varve-" in line for line in mappings(pid))


@functools.cache
def attach_is_possible():
    """May we trace a process that is no child of varve? Found out once."""
    process = subprocess.Popen(["sleep", "100"])  # pylint: disable=consider-using-with
    try:
        with tempfile.TemporaryDirectory() as folder:
            outcome = varve("attach", "--for", "0", "-q", "-o", os.path.join(folder, "x.db"), str(process.pid))
        return "may not be traced" not in outcome.err
    finally:
        process.kill()
        process.wait()


def confine(forbidden=None):
    """This process and all that it becomes, by a filter that refuses one system call, or none; False: none here."""
    libc = ctypes.CDLL(None)
    rules = [(6, 0, 0, 0x7fff0000)]  # allow
    if forbidden is not None:
        rules = [(0x20, 0, 0, 0), (0x15, 0, 1, forbidden), (6, 0, 0, 0x50000 | errno.EPERM)] + rules
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(text)))
    return libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0


@functools.cache
def interpreters():
    """Pythons that the recorder knows, one of each version, from PATH, pyenv and VARVE_TEST_PYTHONS (colons between
    paths); the one that runs this comes first."""
    found = {}
    names = ["python3"] + [f"python3.{minor}" for minor in range(9, 16)]
    paths = [sys.executable, *os.environ.get("VARVE_TEST_PYTHONS", "").split(":"),
             *glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3")),
             *(os.path.join(folder, name) for folder in os.get_exec_path() for name in names)]
    question = ("import os, sys, sysconfig; print(0 if sysconfig.get_config_var('Py_GIL_DISABLED') else"
                " sys.version_info[1], os.path.realpath(sys.executable))")
    for path in paths:
        outcome = os.access(path, os.X_OK) and subprocess.run([path, "-c", question], check=False, text=True,
                                                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if outcome and outcome.returncode == 0:
            minor, executable = outcome.stdout.split(maxsplit=1)
            found.setdefault(int(minor), executable.strip())
    return [python for minor, python in found.items() if 9 <= minor <= 15]


def wait_until(condition, what="the condition"):
    """Without a limit, as `finish`; from time to time it says what is waited for."""
    for naps in itertools.count(1):
        result = condition()
        if result:
            return result
        if naps % 3000 == 0:
            print(f"waiting for {what}", flush=True)
        time.sleep(0.01)
    return None


def copy_directory(source, target):
    """A recording directory of its own, with its rings in a real folder; holes in files stay holes."""
    copy = ["cp", "--recursive", "--sparse=always", "--no-target-directory"]
    subprocess.run([*copy, "--no-dereference", source, target], check=True)
    ring = os.path.join(target, "ring")
    if os.path.islink(ring):
        rings = os.path.realpath(ring)
        os.unlink(ring)
        subprocess.run([*copy, rings, ring], check=True)
    return target


def is_tmpfs_possible():
    if os.geteuid() != 0 or not shutil.which("mount"):
        return False
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "varve-test", folder], check=False,
                                 stderr=subprocess.DEVNULL).returncode == 0
        if mounted:
            subprocess.run(["umount", folder], check=True)
        return mounted


class Case(unittest.TestCase):
    """A folder per test and the assertions that every recording must pass."""

    def setUp(self):
        if not os.access(VARVE, os.X_OK):
            self.skipTest(f"{VARVE} is not built")
        # Not under /tmp if that is not writable for others: some tests run the program as nobody.
        self.folder = tempfile.mkdtemp(prefix="varve-test-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(self.remove_rings)
        self.path = os.path.join(self.folder, "trace.db")
        self.connection = None
        self.addCleanup(lambda: self.connection and self.connection.close())

    def remove_rings(self):
        """What lies in shared memory for recordings that this test left unfinished on purpose. A test may have made
        the link lead anywhere: nothing is removed but what a recording names so."""
        for folder, _, _ in os.walk(self.folder):
            ring = os.path.join(folder, "ring")
            if os.path.islink(ring) and re.fullmatch(r"/dev/shm/varve-\d+-[0-9a-f]{16}", os.readlink(ring)):
                shutil.rmtree(os.readlink(ring), ignore_errors=True)

    # ---- what tests prepare ----

    def write(self, name, content="", mode=None):
        """A file of the test's folder; its path."""
        path = os.path.join(self.folder, name)
        with open(path, "wb") as stream:
            stream.write(content if isinstance(content, bytes) else content.encode())
        if mode is not None:
            os.chmod(path, mode)
        return path

    def need_root(self, why):
        if os.geteuid() != 0:
            self.skipTest(why)

    def mount_disk(self, size):
        """The folder of a small file system."""
        if not is_tmpfs_possible():
            self.skipTest("mounting a small tmpfs is not permitted here")
        disk = os.path.join(self.folder, "disk")
        os.mkdir(disk)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "varve-test", disk], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", disk], check=False)
        return disk

    # ---- running ----

    def record_command(self, *command, options=()):
        """In the place of a recording before that."""
        if os.path.isfile(self.path):
            os.unlink(self.path)
        return [VARVE, "record", "-o", self.path, *options, "--", *command]

    def record(self, *command, options=(), status=0, **more):
        """Record a command; its status is expected to be handed through."""
        outcome = run(self.record_command(*command, options=options), **more)
        self.assertEqual(outcome.returncode, status, outcome)
        return outcome

    def start_recording(self, *command, options=(), said=None):
        """A recording under way, of a program that has said its first line."""
        process = start(self.record_command(*command, options=[*PLAIN, *options]))
        self.addCleanup(kill_group, process)
        if said is not None:
            self.assertEqual(process.stdout.readline(), said + "\n")
        return process

    def kill_collector(self, process, after=0.0):
        """While its program runs, which goes on alone to its end: what it says by then."""
        wait_until(lambda: children_of(process.pid) or process.poll() is not None, what="the program's start")
        time.sleep(after)
        self.assertIsNone(process.poll(), "varve was to be killed, but has ended")
        process.kill()
        return finish_orphan(process)

    def varve(self, *arguments, status=0, **more):
        """A command that ends with that status."""
        outcome = varve(*arguments, **more)
        self.assertEqual(outcome.returncode, status, (arguments, outcome))
        return outcome

    def assert_refused(self, outcome, *words):
        """Exit status 2, and one line that has the words; how to use the command may follow."""
        self.assertEqual((outcome.returncode, outcome.out), (2, ""), outcome)
        lines = outcome.err.splitlines()
        self.assertEqual(len(lines), 2 if lines[-1].startswith("usage: ") else 1, outcome)
        for word in words:
            self.assertIn(word, outcome.err)

    def open(self, path=None):
        if self.connection:
            self.connection.close()
        path = path or self.path
        self.assertTrue(os.path.exists(path), f"no database {path}; the folder holds {os.listdir(self.folder)}")
        self.connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        return self.connection

    def sql(self, query, *parameters):
        return self.connection.execute(query, parameters).fetchall()

    def one(self, query, *parameters):
        rows = self.sql(query, *parameters)
        self.assertEqual(len(rows), 1, query)
        self.assertEqual(len(rows[0]), 1, query)
        return rows[0][0]

    def count(self, kind, where="1", *parameters):
        return self.one(f"SELECT count(*) FROM events WHERE kind = ? AND ({where})", kind, *parameters)

    def pairs(self, size):
        """How many blocks of that size were allocated, and how many freed."""
        return self.count("heap_alloc", "size = ?", size), self.count("heap_free", "size = ?", size)

    def functions(self, callsite):
        """Of its frames, the innermost first."""
        return [name for name, in self.sql("SELECT function FROM frame WHERE callsite_id = ? ORDER BY depth", callsite)]

    # ---- what holds for every recording ----

    def assert_finished(self, path=None):
        """One file, whole, readable without sidecars; no recording directory left."""
        path = path or self.path
        self.open(path)
        self.assertEqual(self.one("PRAGMA integrity_check"), "ok")
        self.assertEqual(str(self.one("SELECT value FROM meta WHERE key = 'complete'")), "1")
        left = [name for name in os.listdir(os.path.dirname(path)) if name.startswith(os.path.basename(path) + "-")]
        self.assertEqual(left, [], "sidecar files")
        self.assertFalse(os.path.lexists(path + ".d"), "the recording directory is still there")
        self.assertEqual(self.one("SELECT count(*) FROM ring_position"), 0)
        self.assert_documented()

    def assert_documented(self):
        """The table help names what there is, and nothing else."""
        there = ("SELECT s.name, c.name FROM sqlite_schema s JOIN pragma_table_info(s.name) c"
                 " WHERE s.type IN ('table', 'view') AND s.name NOT LIKE 'sqlite%'")
        self.assertGreater(self.one(f"SELECT count(*) FROM ({there})"), 700)
        self.assertEqual(self.sql(f"{there} EXCEPT SELECT name, column FROM help"), [], "columns without help")
        self.assertEqual(self.sql(f"SELECT name, column FROM help WHERE column <> '' EXCEPT {there}"), [],
                         "help of nothing")

    def assert_conserved(self):
        """emitted = stored + lost + uncommitted, ring by ring, and stored is what is there. Returns the losses."""
        stored = dict(self.sql("SELECT thread_id, count(*) FROM event GROUP BY thread_id"))
        lost = uncommitted = 0
        for row in self.sql("SELECT id, emitted, stored, lost, uncommitted, tid FROM thread"):
            self.assertEqual(row[1], row[2] + row[3] + row[4], f"emitted = stored + lost + uncommitted: {row}")
            self.assertEqual(row[2], stored.pop(row[0], 0), f"rows of thread {row}")
            # After a loss the event that says so is begun when the next one has been, and written before it.
            self.assertIn(row[4], (0, 1, 2) if row[3] else (0, 1), f"more records than one are being written: {row}")
            lost += row[3]
            uncommitted += row[4]
        self.assertEqual(stored, {}, "events of no thread")
        self.assertEqual(self.sql("SELECT count(*), min(seq), max(seq) FROM event WHERE seq > 0"),
                         [(self.one("SELECT count(*) FROM event"),) +
                          self.sql("SELECT min(seq), max(seq) FROM event")[0]])
        return lost, uncommitted

    def assert_no_loss(self):
        self.assertEqual(self.sql("SELECT name, idx, source, value FROM data_loss"), [])
        self.assertEqual(self.assert_conserved()[0], 0)

    def assert_sane_rows(self):
        """No torn record: every row is one that the recorder can have written."""
        bad = self.sql(
            "SELECT e.* FROM event e LEFT JOIN event_kind k ON k.code = e.kind LEFT JOIN event_cause c ON c.code ="
            " e.cause LEFT JOIN thread t ON t.id = e.thread_id LEFT JOIN process p ON p.id = t.process_id"
            " WHERE k.code IS NULL OR c.code IS NULL OR t.id IS NULL OR p.id IS NULL OR t.tid <> e.tid OR p.pid <>"
            " e.pid OR k.grp NOT IN ('heap', 'process') OR e.ts_ns IS NULL OR e.flags & ~7 <> 0"
            " OR (e.kind IN (32, 34, 35) AND e.addr = 0 AND e.flags & 1 = 0 AND e.size <> 0)"
            " OR (e.kind = 33 AND (e.addr = 0 OR e.flags & 1 <> 0))"
            " OR (e.kind IN (32, 33, 34) AND e.addr % 8 <> 0) OR (e.kind IN (35, 36) AND e.addr % 4096 <> 0) LIMIT 3")
        self.assertEqual(bad, [], "impossible rows")
        self.assertEqual(self.sql("SELECT seq FROM (SELECT seq, ts_ns, flags, lag(ts_ns) OVER w AS before, thread_id ="
                                  " lag(thread_id) OVER w AS is_same FROM event WINDOW w AS (ORDER BY seq))"
                                  " WHERE is_same AND ts_ns < before AND flags & 2 = 0 LIMIT 3"),
                         [], "a thread's events are in its own order (a signal handler may have read the clock before"
                         " what it interrupted)")

    def assert_callsites(self):
        """Stacks of the same lines are one call site, what names one names a row, and has what that has."""
        self.assertEqual(self.sql("SELECT node_id, count(*) FROM callsite GROUP BY 1 HAVING count(*) > 1 LIMIT 3"), [])
        self.assertEqual(self.sql("SELECT id - parent_lag, frame_id, count(*) FROM stack_node_row GROUP BY 1, 2"
                                  " HAVING count(*) > 1 LIMIT 3"), [], "a line that is there twice")
        self.assertEqual(self.sql("SELECT symbol_id, count(*) FROM stack_frame f JOIN symbol s ON s.id = f.symbol_id"
                                  " WHERE s.function IS NOT NULL GROUP BY 1 HAVING count(*) > 1 LIMIT 3"), [])
        self.assertEqual(self.sql("SELECT f.id FROM stack_frame f JOIN frame_address a ON a.frame_id = f.id GROUP BY 1"
                                  " HAVING count(*) = 1 OR min(a.pc) <> f.pc LIMIT 3"), [])
        for table in ("event", "allocation", "storage", "callsite_stat"):
            self.assertEqual(self.sql(f"SELECT callsite_id FROM {table} WHERE callsite_id <> 0 AND callsite_id NOT IN"
                                      " (SELECT id FROM callsite) LIMIT 3"), [], table)
        self.assertEqual(self.sql("SELECT coalesce(callsite_id, 0), domain, count(*), sum(size) FROM allocation"
                                  " WHERE domain <> 7 GROUP BY 1, 2 EXCEPT SELECT callsite_id, domain, allocations,"
                                  " bytes FROM callsite_stat LIMIT 3"), [])

    def assert_pairs(self, may_know_unknown=False):
        """Replay the heap events in the order of seq: no address is given out twice, none freed that is not live, and
        the tables made from the events say the same; what they call live was so when main ended, if it did. Returns
        blocks that are live at the end per process: {process: {addr: size}}."""
        live, pending_realloc, parents = {}, {}, dict(self.sql("SELECT id, parent_id FROM process"))
        left = {}
        totals, problems = {}, []
        for seq, process, thread, kind, cause, addr, size, arg, flags in self.connection.execute(
                "SELECT e.seq, t.process_id, e.thread_id, e.kind, c.text, e.addr, e.size, e.arg, e.flags FROM event e"
                " JOIN thread t ON t.id = e.thread_id JOIN event_cause c ON c.code = e.cause"
                " WHERE e.kind IN (32, 33, 34, 65) ORDER BY e.seq"):
            blocks = live.setdefault(process, {})
            if kind == KIND_MAIN_END:
                left.setdefault(process, dict(blocks))
                continue
            total = totals.setdefault(process, [0, 0, 0])
            if flags & FLAG_FAILED and kind == 32:
                continue
            if kind == 33:
                if addr in blocks:
                    old = blocks.pop(addr)
                    if size != old:
                        problems.append((seq, "freed with another size", addr, size, old))
                    total[1] += 1
                elif not (cause == "inherited" and parents[process]) and not (
                        may_know_unknown and cause == "unknown_address"):
                    problems.append((seq, "freed, but not live", process, hex(addr), cause))
                if cause == "realloc":
                    pending_realloc[thread] = (addr, size)
                continue
            if kind == 34 and flags & FLAG_FAILED:
                blocks[addr] = pending_realloc[thread][1]
                total[1] -= 1
                continue
            if kind == 34 and addr == 0:
                continue
            if addr in blocks:
                problems.append((seq, "given out twice", process, hex(addr), cause))
            blocks[addr] = size
            total[0] += 1
            total[2] += size
        self.assertEqual(problems[:5], [], f"{len(problems)} problems")
        left = {**live, **left}
        for process, (allocations, frees, size) in totals.items():
            self.assertEqual(allocations - frees, len(live[process]))
            if allocations:
                self.assertEqual(self.sql("SELECT allocations, frees, bytes, live_allocations, live_bytes FROM"
                                          " total_process WHERE domain = 'heap' AND process_id = ?", process),
                                 [(allocations, frees, size, len(left[process]), sum(left[process].values()))])
        table = {(row[0], row[1]): row[2] for row in self.sql(
            "SELECT process_id, addr, size FROM leak WHERE domain = 'heap'")}
        self.assertEqual(table, {(process, addr): size for process, blocks in left.items()
                                 for addr, size in blocks.items()}, "view leak = what the replay leaves live")
        return live

    def assert_recording(self, may_lose=False, **options):
        """All of the above, for a recording that ended."""
        self.assert_finished(options.pop("path", None))
        if may_lose:
            self.assert_conserved()
            self.assert_sane_rows()
            return None
        self.assert_no_loss()
        self.assert_sane_rows()
        self.assert_callsites()
        return self.assert_pairs(**options)


class AttachCase(Case):
    """Programs that run already, and collectors that are attached to them."""

    def setUp(self):
        super().setUp()
        if not attach_is_possible():
            self.skipTest("no process may be traced here")

    def begin(self, *command, said="ready", **options):
        """A program that has said its first line."""
        process = start([*command], **options)
        self.addCleanup(kill_group, process)
        if said is not None:
            self.assertEqual(process.stdout.readline().strip(), said)
        return process

    def attach(self, pid, *options):
        """The collector, once the process is recorded and both it and its injector, its child, have let go of it."""
        collector = start([VARVE, "attach", "-o", self.path, *options, str(pid)])
        self.addCleanup(kill_group, collector)
        wait_until(lambda: collector.poll() is not None or is_attached(pid) and not children_of(collector.pid) and
                   not has_open(collector.pid, f"/proc/{pid}/personality"), what="the attaching")
        if collector.poll() is not None:
            self.fail(finish(collector))
        return collector

    def touch(self, name):
        with open(os.path.join(self.folder, name), "w", encoding="ascii"):
            pass

    def quit(self, process):
        """It ends, and has come to no harm; the words that it says."""
        self.touch("quit")
        outcome = finish(process)
        self.assertEqual(outcome.returncode, 0, outcome)
        return outcome.out.split()


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def main():
    ran = unittest.main(module="__main__", exit=False, verbosity=2).result
    if not ran.wasSuccessful():
        sys.exit(1)
    for case, reason in ran.skipped:
        print(f"skipped case {case.id().removeprefix('__main__.')}: {reason}")
    sys.exit(77 if ran.testsRun <= len(ran.skipped) else 0)
