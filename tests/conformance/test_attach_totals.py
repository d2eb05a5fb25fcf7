#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 90 s
"""varve attach against what the attached programs count themselves: a C++ program of several threads and a Python
program are recorded from the middle of their run, with exact totals from then on, and go on unharmed, many times
over. Only with an unsanitized command: it loads a library into programs that have no sanitizer."""

import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

TARGET = recording.program("attach_target")
PYTHON_TARGET = os.path.join(recording.ROOT, "tests", "programs", "python", "attach_target.py")
CYCLES = 50 if recording.IS_FULL else 6
COUNT, SIZE = 321, 40_007


class Attached(recording.AttachCase):
    def detach(self, pid, collector):
        self.varve("detach", str(pid))
        self.assertTrue(os.path.exists(self.path), "varve detach ends when the database is there")
        outcome = recording.finish(collector)
        self.assertEqual(outcome.returncode, 0, outcome)
        self.assertIn("nothing lost", outcome.err)
        return outcome

    def answer_unattached(self, *command):
        words = self.quit(self.begin(*command))
        os.unlink(os.path.join(self.folder, "quit"))
        return words

    def resources(self, pid):
        """Mappings, descriptors, resident KiB."""
        with open(f"/proc/{pid}/maps", encoding="utf-8") as stream:
            maps = len(stream.readlines())
        with open(f"/proc/{pid}/status", encoding="utf-8") as stream:
            resident = next(int(line.split()[1]) for line in stream if line.startswith("VmRSS:"))
        return maps, len(os.listdir(f"/proc/{pid}/fd")), resident

    def check_cycles(self, process, growth_kib):
        """Attached and detached again and again: what that takes does not grow from one time to the next."""
        first = None
        for cycle in range(CYCLES):
            self.varve("attach", "--for", "0.05", "--force", "-q", "-o", self.path, str(process.pid))
            self.assertFalse(recording.is_attached(process.pid), f"cycle {cycle}")
            if cycle == 2:
                first = self.resources(process.pid)
        last = self.resources(process.pid)
        self.assertLessEqual(last[0], first[0] + 8, "mappings")
        self.assertEqual(last[1], first[1], "descriptors")
        self.assertLessEqual(last[2], first[2] + growth_kib, "resident KiB")
        self.open()
        self.assertGreater(self.one("SELECT count(*) FROM event"), 0)


class CxxProgram(Attached):
    def test_totals(self):
        answer = self.answer_unattached(TARGET, self.folder, "4", "steady")
        process = self.begin(TARGET, self.folder, "4")
        collector = self.attach(process.pid)
        self.touch("begin")
        self.touch("end")
        words = process.stdout.readline().split()
        self.assertEqual(words[0], "counted")
        blocks, size, frees, maps, map_bytes = (int(word) for word in words[1:])
        self.assertGreater(blocks, 0)
        self.detach(process.pid, collector)
        self.assertEqual(self.quit(process), answer, "the checksum is that of a run nobody attached to")
        self.assert_finished()
        self.assert_no_loss()
        self.assert_sane_rows()
        self.assert_pairs(may_know_unknown=True)
        odd = "domain = 'heap' AND requested % 2 = 1 AND tid <> pid"  # the main thread makes paths
        self.assertEqual(self.sql(f"SELECT count(*), sum(requested) FROM allocations WHERE {odd}"), [(blocks, size)])
        self.assertEqual(self.one(f"SELECT count(*) FROM allocations WHERE {odd} AND free_ns IS NOT NULL"), frees)
        self.assertEqual(self.sql("SELECT count(*), sum(size) FROM allocations WHERE domain = 'mmap' AND size = 3 *"
                                  " 4096"),
                         [(maps, map_bytes)])
        unknown = self.one("SELECT value FROM stats WHERE name = 'frees_unknown'")
        self.assertTrue(600 <= unknown <= 600 + 4 * 9 + 1, f"{unknown}: 500 freed, 100 resized, and what each thread"
                                                           " had just then")
        self.assertEqual(self.one("SELECT count(*) FROM leak WHERE domain = 'heap' AND requested = 300"), 100)
        self.assertEqual(self.one("SELECT count(*) FROM thread"), 5)
        self.assertEqual(self.one("SELECT value FROM meta WHERE key = 'attached_pid'"), process.pid)
        self.assertGreater(self.one("SELECT count(*) FROM frame WHERE function LIKE '%step%'"), 0)
        report = self.varve("report", self.path).out
        self.assertRegex(" ".join(report.split()), f"attached to process {process.pid}, which ran already: blocks"
                                                   " from before are "
                                                   f"not known .{unknown} of them freed or resized since.")
        self.assertIn("attached_ns", self.varve("info", self.path).out)

    def test_again_and_again(self):
        answer = self.answer_unattached(TARGET, self.folder, "2", "steady")
        process = self.begin(TARGET, self.folder, "2", "steady")
        self.check_cycles(process, 2000)
        self.assertEqual(self.quit(process), answer)

    def test_program_that_ends(self):
        process = self.begin(TARGET, self.folder, "2", "steady")
        collector = self.attach(process.pid)
        self.quit(process)
        outcome = recording.finish(collector)
        self.assertEqual(outcome.returncode, 0, outcome)
        self.assertIn(f"end of process {process.pid}", outcome.err)
        self.assert_finished()
        self.assert_no_loss()
        self.assertEqual(self.sql("SELECT end_cause FROM process"), [("exit",)])

    def test_signals_end_the_recording(self):
        process = self.begin(TARGET, self.folder, "2", "steady")
        for number in (signal.SIGINT, signal.SIGTERM):
            collector = self.attach(process.pid, "--force")
            collector.send_signal(number)
            self.assertEqual(recording.finish(collector).returncode, 0)
            self.assertFalse(recording.is_attached(process.pid))
            self.assert_finished()
        self.quit(process)

    def test_library_that_is_loaded_later(self):
        host = subprocess.Popen(  # pylint: disable=consider-using-with
            [recording.program("plugin_host"), "3", recording.program("lib_cxx_plugin.so")], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "WAIT": "1"})
        self.addCleanup(recording.kill_group, host)
        self.assertEqual(host.stdout.readline().strip(), "ready")
        collector = self.attach(host.pid)
        host.stdin.write("\n")
        host.stdin.flush()
        self.assertEqual(host.stdout.readline().strip(), "done")
        self.detach(host.pid, collector)
        host.communicate("\n")
        self.assertEqual(host.returncode, 0)
        self.open()
        self.assertEqual(self.sql("SELECT count(*), count(free_ns) FROM allocations WHERE domain = 'heap' AND"
                                  " requested = 31013"),
                         [(300, 300)])


class PythonProgram(Attached):
    def command(self):
        return [sys.executable, PYTHON_TARGET, self.folder, str(COUNT), str(SIZE)]

    def test_totals(self):
        answer = self.answer_unattached(*self.command())
        process = self.begin(*self.command())
        collector = self.attach(process.pid)
        self.touch("count")
        self.assertEqual(process.stdout.readline().split(), ["kept", str(COUNT)])
        self.touch("fork")
        child = process.stdout.readline().split()
        self.assertEqual((child[0], child[2]), ("child", "0"))
        self.detach(process.pid, collector)
        self.assertEqual(self.quit(process), answer)
        self.assert_finished()
        self.assert_no_loss()
        self.assert_pairs(may_know_unknown=True)
        size = SIZE + 33  # of a bytes object
        kept = "SELECT count(*) FROM allocations WHERE domain = 'heap' AND requested = ? AND pid = ?"
        self.assertEqual(self.one(kept + " AND free_ns IS NULL", size, process.pid), COUNT)
        self.assertEqual(self.one(kept, size + 1, int(child[1])), COUNT, "of a fork child")
        self.assertEqual(self.one("SELECT parent_id FROM process WHERE pid = ?", int(child[1])), 1)
        self.assertGreaterEqual(self.one("SELECT value FROM stats WHERE name = 'frees_unknown'"), 100)
        self.assertEqual(self.one(
            "SELECT count(*) FROM allocations a JOIN callsite_total t ON t.callsite_id = a.callsite_id"
            " WHERE a.domain = 'heap' AND a.requested = ? AND t.domain = 'heap' AND t.user_function LIKE"
            " '%keep_counted%' OR"
            " a.requested = ? AND t.domain = 'heap' AND t.user_function LIKE '%listcomp%'", size, size), COUNT,
            "Python's own frames are seen")

    def test_again_and_again(self):
        answer = self.answer_unattached(*self.command())
        process = self.begin(*self.command())
        self.check_cycles(process, 20_000)
        self.assertEqual(self.quit(process), answer)


if __name__ == "__main__":
    recording.main()
