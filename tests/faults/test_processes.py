#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 6 s
"""Many processes: fork, vfork, exec, daemons, children killed; each process image has its own rows and its own live
blocks, and one that never allocates has none."""

import json
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402


class Forks(recording.Case):
    def children(self, size):
        return self.sql("SELECT t.process_id, count(*) FROM event e JOIN thread t ON t.id = e.thread_id"
                        " WHERE e.kind = 32 AND e.size = ? GROUP BY t.process_id", size)

    def test_storm(self):
        """200 short-lived children: each kept block, each free of an inherited block, each end is there."""
        outcome = self.record(recording.program("forker"), "storm", "200", options=recording.PLAIN)
        self.assertEqual(json.loads(outcome.out)["children"], 200)
        self.assert_recording()
        self.assertEqual(self.one("SELECT count(*) FROM process"), 201)
        for size in (60100, 60200):
            rows = self.children(size)
            self.assertEqual((len(rows), {count for _, count in rows}), (200, {1}), size)
        self.assertEqual(self.pairs(60100), (200, 200))
        self.assertEqual(self.count("heap_free", "cause = 'inherited'"), 200)
        self.assertEqual(self.count("heap_free", "cause = 'unknown_address'"), 0)
        self.assertEqual(self.one("SELECT count(*) FROM leak WHERE size = 60200"), 200)
        parent = self.one("SELECT id FROM process WHERE parent_id IS NULL OR parent_id = 0")
        self.assertEqual(self.one("SELECT count(*) FROM process WHERE parent_id = ?", parent), 200)
        self.assertEqual(self.sql("SELECT DISTINCT end_cause FROM process"), [("exit",)])
        self.assertEqual(self.one("SELECT count(DISTINCT pid) FROM process"), 201)

    def test_storm_with_stacks(self):
        self.record(recording.program("forker"), "storm", "40")
        self.assert_recording()
        self.assertEqual(self.one("SELECT count(DISTINCT callsite_id) FROM allocation WHERE size = 60200"), 1)
        self.assert_shares()
        callsite = self.one("SELECT DISTINCT callsite_id FROM allocation WHERE size = 60200")
        self.assertLessEqual({"child_work", "main"}, set(self.functions(callsite)))

    def assert_shares(self):
        """What each process has of each call site, against its definition over the allocations; the peak is that of
        all."""
        figures = "allocations, frees, bytes, live_allocations, live_bytes, peak_allocations, peak_bytes, temporary"
        at_peak = "a.alloc_seq <= t.peak_seq AND coalesce(a.free_requested_seq, t.peak_seq + 1) > t.peak_seq"
        is_left = ("coalesce(a.alloc_ns <= p.main_end_ns, 1) AND coalesce(a.free_ns > p.main_end_ns, a.free_ns IS"
                   " NULL)")
        expected = self.sql(
            f"SELECT a.process_id, a.callsite_id, d.name, count(*), count(a.free_ns), sum(a.size), sum({is_left}),"
            f" sum(iif({is_left}, a.size, 0)), sum({at_peak}), sum(iif({at_peak}, a.size, 0)), sum(a.temporary)"
            " FROM allocation a JOIN process p ON p.id = a.process_id JOIN domain d ON d.code = a.domain"
            " JOIN total_stat t ON t.process_id = 0 AND t.domain = a.domain"
            " GROUP BY a.process_id, a.callsite_id, d.name"
            " ORDER BY 1, 2, 3")
        self.assertEqual(self.sql(f"SELECT process_id, callsite_id, domain, {figures} FROM callsite_total_process"
                                  " ORDER BY 1, 2, 3"),
                         expected)
        self.assertGreater(self.one("SELECT count(*) FROM callsite_share"), 40)
        self.assertEqual(self.one(f"SELECT count(*) FROM callsite_total t WHERE ({figures}) <> (SELECT "
                                  + ", ".join(f"sum({figure})" for figure in figures.split(", ")) +
                                  " FROM callsite_total_process p WHERE p.callsite_id = t.callsite_id AND p.domain ="
                                  " t.domain)"), 0)

    def test_fork_inside_threads(self):
        outcome = self.record(recording.program("forker"), "threads", "10", options=recording.PLAIN)
        children = json.loads(outcome.out)["children"]
        self.assert_recording()
        rows = self.children(60200)
        self.assertEqual((len(rows), {count for _, count in rows}), (children, {1}))
        self.assertEqual(self.count("heap_alloc", "size BETWEEN 100 AND 299 AND cause = 'malloc'"), 4 * 10 * 200)

    def test_vfork(self):
        """The parent's record goes on unharmed by what the children do in its memory."""
        self.record(recording.program("forker"), "vfork", options=recording.PLAIN)
        self.assert_recording()
        self.assertEqual(self.count("heap_alloc", "size = 60001"), 3)
        pid = self.one("SELECT DISTINCT pid FROM events WHERE size = 60001 AND kind = 'heap_alloc'")
        self.assertEqual(self.sql("SELECT end_cause, exit_status FROM process WHERE pid = ?", pid), [("exit", 0)])

    def test_daemon(self):
        """Recorded to its end, which comes after the program's."""
        outcome = self.record(recording.program("forker"), "daemon", options=recording.PLAIN)
        self.assertIn("daemon\n", outcome.out)
        self.assert_recording()
        self.assertEqual(self.pairs(60300), (1, 1))
        self.assertEqual(self.sql("SELECT DISTINCT end_cause FROM process"), [("exit",)])

    def test_daemon_not_waited_for(self):
        """--linger 0: the recording ends with the program, and says that a process went on."""
        self.record("/bin/sh", "-c", "python3 -S -c 'import time; time.sleep(5)' & sleep 1; exit 4",
                    options=[*recording.PLAIN, "--linger", "0"], status=4)
        self.assert_finished()
        self.assert_conserved()
        self.assertEqual(self.one("SELECT count(*) FROM process WHERE end_cause = 'running'"), 1)
        self.assertEqual(self.sql("SELECT * FROM data_loss"), [])

    def test_ends_of_children(self):
        """Whose status nobody tells us, by ways that do not come by _exit, or only inside the C library."""
        for way in ("quick_exit", "syscall", "daemon"):
            with self.subTest(way=way):
                outcome = self.record("sh", "-c", f"{recording.program('main_ends')} {way}; exit 0",
                                      options=recording.PLAIN)
                self.assert_finished()
                self.assert_no_loss()
                self.assertEqual(self.sql("SELECT DISTINCT end_cause FROM process"), [("exit",)])
                self.assertIn("nothing lost; next", outcome.err)

    def test_killed_child(self):
        self.record(recording.program("forker"), "signal", options=recording.PLAIN)
        self.assert_recording()
        self.assertEqual(self.count("heap_alloc", "size = 60200"), 1)
        row = self.sql("SELECT p.end_cause FROM process p JOIN leak l ON l.process_id = p.id WHERE l.size = 60200")
        self.assertIn(row, [[("unknown",)], [("signal",)]])

    def test_shell_pipeline(self):
        self.record("/bin/sh", "-c", "ls -l /usr/bin | sort | head -3 > /dev/null; exit 6", options=recording.PLAIN,
                    status=6)
        self.assert_recording()
        names = {os.path.basename(row[0]) for row in self.sql("SELECT executable FROM process")}
        self.assertTrue({"ls", "sort"} <= names, names)

    def test_python_multiprocessing(self):
        source = "import multiprocessing, os\n" \
                 "def work(n):\n    x = bytearray(90000 + n)\n    return len(x)\n" \
                 "if __name__ == '__main__':\n" \
                 "    with multiprocessing.get_context('fork').Pool(4) as pool: print(sum(pool.map(work, range(40))))\n"
        outcome = self.record("/usr/bin/python3", self.write("pool.py", source), options=recording.PLAIN)
        self.assertEqual(int(outcome.out), sum(90000 + n for n in range(40)))
        self.assert_recording()
        self.assertEqual(self.count("heap_alloc", "size BETWEEN 90001 AND 90041"), 40)


class Execs(recording.Case):
    def assert_unrecorded(self, outcome, name):
        self.assertIn(name, outcome.err)
        self.assert_finished()
        self.assert_conserved()
        self.assertEqual(self.count("heap_alloc", "size = 50000"), 1)
        self.assertEqual(self.sql("SELECT value FROM data_loss WHERE name = 'processes_unrecorded'"), [(1,)])

    def test_chain(self):
        """Ten images under one pid: ten rows of process, each with its own block."""
        outcome = self.record(recording.program("execer"), "chain", "9", options=recording.PLAIN)
        self.assert_recording()
        rows = self.sql("SELECT id, pid, end_cause, exec_path FROM process ORDER BY id")
        self.assertEqual(len(rows), 10)
        self.assertEqual({row[1] for row in rows}, {json.loads(outcome.out)["pid"]})
        self.assertEqual([row[2] for row in rows], ["exec"] * 9 + ["exit"])
        self.assertTrue(all(row[3].endswith("/execer") for row in rows[:-1]), rows)
        self.assertEqual([row[0] for row in self.sql(
            "SELECT size FROM event WHERE kind = 32 AND size BETWEEN 50000 AND 50009 ORDER BY seq")],
            list(range(50009, 49999, -1)))

    def test_static_program(self):
        """Reported on stderr and in the database: what the static image allocated is not there."""
        outcome = self.record(recording.program("execer"), "to", recording.program("static_hello"),
                              options=recording.PLAIN)
        self.assertEqual(outcome.out, "hello from a static program\n")
        self.assert_unrecorded(outcome, "static_hello")
        self.assert_pairs()

    def test_stripped_preload(self):
        outcome = self.record(recording.program("execer"), "strip", options=recording.PLAIN, status=9)
        self.assert_unrecorded(outcome, "execer")
        self.assertEqual(self.count("heap_alloc", "size = 50777"), 0)

    def test_failed_exec(self):
        self.record(recording.program("execer"), "fail", options=recording.PLAIN)
        self.assert_recording()
        self.assertEqual(self.count("heap_alloc", "size IN (50000, 50888)"), 2)
        self.assertEqual(self.sql("SELECT end_cause, exit_status FROM process"), [("exit", 0)])

    def test_other_program(self):
        outcome = self.record(recording.program("execer"), "to", "ls", "-d", "/", options=recording.PLAIN)
        self.assertEqual(outcome.out, "/\n")
        self.assert_recording()
        self.assertEqual(self.sql("SELECT end_cause FROM process ORDER BY id"), [("exec",), ("exit",)])


class Nothing(recording.Case):
    def test_program_without_allocations(self):
        """No row of a process; the status passes through; the database is whole."""
        outcome = self.record(recording.program("noalloc"), "5", options=recording.PLAIN, status=5)
        self.assertEqual(outcome.out, "no allocation here\n")
        self.assert_recording()
        self.assertEqual(self.one("SELECT count(*) FROM process"), 0)
        self.assertEqual(self.one("SELECT count(*) FROM event"), 0)
        for command in ("info", "report", "leaks", "peak", "timeline"):
            self.varve(command, self.path)

    def test_children_without_allocations(self):
        """They leave no file behind, even while they run."""
        outcome = self.record("/bin/sh", "-c", f"for i in 1 2 3 4 5; do {recording.program('noalloc')}; done; "
                              "ls -L $VARVE_SESSION/ring", options=recording.PLAIN)
        files = [line for line in outcome.out.splitlines() if line != "no allocation here"]
        # the session, and a control page and a ring for each of sh, its child, and ls
        self.assertLessEqual(len(files), 1 + 2 * 3, files)
        self.assert_recording()
        self.assertEqual(self.one("SELECT count(*) FROM process WHERE executable LIKE '%noalloc'"), 0)

    def test_nested_recording(self):
        """varve record under varve record: the inner one gets the program, both are whole."""
        if recording.IS_SANITIZED:
            self.skipTest("a sanitized varve can't have a library preloaded")
        inner = os.path.join(self.folder, "inner.db")
        outcome = recording.run(self.record_command(recording.VARVE, "record", "-o", inner, "--stacks", "none", "--",
                                                    recording.program("burst"), "1000", options=recording.PLAIN))
        self.assertEqual(outcome.returncode, 0, outcome)
        self.assert_finished()
        self.assert_recording(path=inner)
        self.assertEqual(self.count("heap_alloc", "size = 48"), 1000)


class Group(recording.Case):
    def test_stopped_and_continued(self):
        """SIGSTOP of the collector delays, but loses nothing."""
        process = self.start_recording(recording.program("rmdir_victim"), "1.5", "200", options=["--ring-size", "16K"],
                                       said="started")
        process.send_signal(signal.SIGSTOP)
        recording.wait_until(lambda: recording.process_state(process.pid) == "T")
        os.waitpid(os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "0.7"), 0)
        process.send_signal(signal.SIGCONT)
        outcome = recording.finish(process)
        self.assertEqual(outcome.returncode, 7, outcome)
        self.assert_recording()
        self.assertEqual(self.count("heap_alloc", "size = 1234"), recording.json_lines(outcome.out)[0]["pairs"])
        self.assertGreater(self.one("SELECT sum(spilled) FROM thread"), 0)


if __name__ == "__main__":
    recording.main()
