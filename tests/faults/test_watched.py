#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 3 s, full 65 s
"""Recordings that `varve top` watches, when top, the collector or the program is stopped or killed, and what lies in
a directory that is no recording, or no more: the database is the same as without, nothing stays behind, and top ends
with one line.

Slow: figures come once a second.
Only with an unsanitized command: programs are recorded.
"""

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

ORDERS = ("keep 100 1000", "drop 400 5000", "map 3 65536", "keep 50 1024")
# What does not depend on when and where a program ran.
SAME = (
    "SELECT domain, device, allocations, frees, bytes, live_allocations, live_bytes, peak_bytes, temporary FROM total",
    "SELECT user_function, user_file, user_line, function, file, line, domain, allocations, frees, bytes, live_bytes,"
    " peak_bytes FROM callsite_total",
    "SELECT kind, cause, size, requested, callsite_id, id, flags, ring_seq, seq FROM event ORDER BY seq",
    "SELECT id, domain, size, callsite_id, alloc_seq, free_requested_seq, temporary FROM allocation ORDER BY id",
    "SELECT callsite_id, depth, function, file, line, module FROM frame",
    "SELECT name, idx, severity, source, value FROM stats WHERE severity <> 'info'",
    "SELECT name, type, sql FROM sqlite_schema ORDER BY 1, 2",
    "SELECT key FROM meta ORDER BY 1",
)


def is_live(directory):
    return os.path.exists(os.path.join(directory, "ring", "live.json"))


class Watched(recording.Case):
    def setUp(self):
        super().setUp()
        self.directory = self.path + ".d"

    def record_still(self, *options, path=None):
        command = self.record_command(recording.program("stands_still"), options=options)
        command[command.index(self.path)] = path or self.path
        process = recording.start(command, stdin=subprocess.PIPE)
        self.addCleanup(recording.kill_group, process)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def tell(self, process, *orders):
        for order in orders:
            process.stdin.write(order + "\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), "ready\n")

    def end(self, process):
        process.stdin.close()
        self.assertEqual(process.wait(), 0, process.stderr.read())

    def watch(self):
        """varve top on a pseudoterminal, with figures to show."""
        terminal, end = os.openpty()
        top = subprocess.Popen([recording.VARVE, "top", self.path], stdin=end, stdout=end, stderr=end,
                               env=dict(os.environ, TERM="xterm"), start_new_session=True)
        os.close(end)
        os.set_blocking(terminal, False)
        self.addCleanup(os.close, terminal)
        self.addCleanup(recording.kill_group, top)
        recording.wait_until(lambda: is_live(self.directory), what="figures")
        return top

    def record_orders(self, watched):
        process = self.record_still()
        top = self.watch() if watched else None
        self.tell(process, *ORDERS)
        if watched:
            time.sleep(1.5) # figures of it
        return process, top

    def rows_of_it(self):
        self.assertFalse(os.path.exists(self.directory))
        self.open()
        return [sorted(self.sql(sql), key=repr) for sql in SAME]

    def assert_same(self, alone, watched):
        for sql, left, right in zip(SAME, alone, watched):
            self.assertEqual(left, right, sql)

    def kill(self, process):
        """The collector; the program has no more to do."""
        process.kill()
        process.stdin.close()
        recording.finish_orphan(process)

    def recover_after_kill(self, watched):
        """The rows of a recording whose collector was killed."""
        process, top = self.record_orders(watched)
        self.kill(process)
        if top:
            self.assertTrue(is_live(self.directory))
            self.assertIsNone(top.poll())
            self.assertIn("varve recover", self.varve("top", "--once", self.path).out)
            top.send_signal(signal.SIGKILL)
            top.wait()
        self.varve("recover", self.directory)
        return self.rows_of_it()

    def test_recovered_is_the_same_as_without(self):
        alone, watched = self.recover_after_kill(False), self.recover_after_kill(True)
        self.assert_same(alone, watched)
        self.assertGreater(len(alone[2]), 900)

    def test_finished_is_the_same_as_without(self):
        results = []
        for watched in (False, True):
            process, top = self.record_orders(watched)
            self.end(process)
            if top:
                top.kill()
            results.append(self.rows_of_it())
        self.assert_same(*results)

    def test_killed_top_leaves_nothing(self):
        process = self.record_still()
        top = self.watch()
        top.send_signal(signal.SIGKILL)
        top.wait()
        recording.wait_until(lambda: not is_live(self.directory), what="no figures")
        self.tell(process, *ORDERS)
        self.end(process)

    def test_stopped_top_holds_up_nobody(self):
        process = self.record_still()
        top = self.watch()
        top.send_signal(signal.SIGSTOP)
        for _ in range(20):
            self.tell(process, *ORDERS)
            time.sleep(0.05)
        self.assertTrue(is_live(self.directory))
        begin = time.monotonic()
        self.end(process)
        self.assertLess(time.monotonic() - begin, 10)
        self.assertFalse(os.path.exists(self.directory))
        self.open()
        self.assertEqual(self.one("SELECT value FROM meta WHERE key = 'complete'"), 1)
        top.send_signal(signal.SIGCONT)
        top.send_signal(signal.SIGTERM)
        self.assertEqual(top.wait(20), -signal.SIGTERM)

    def test_killed_program(self):
        process = self.record_still()
        top = self.watch()
        self.tell(process, *ORDERS)
        os.kill(recording.wait_until(lambda: recording.program_of(process, "stands_still")), signal.SIGKILL)
        process.wait()
        self.assertIsNone(top.poll())
        self.open()
        self.assertEqual(self.one("SELECT count(*) FROM events WHERE kind = 'mmap'"), 3)

    def test_many_at_once(self):
        process = self.record_still("--keep", "totals")
        tops = [recording.start([recording.VARVE, "top", "--json", self.path]) for _ in range(12)]
        outcomes = [recording.finish(top) for top in tops]
        self.assertEqual({outcome.returncode for outcome in outcomes}, {0}, outcomes)
        for outcome in outcomes:
            self.assertEqual(json.loads(outcome.out)["state"], "recording")
        self.end(process)

    # ---- what top refuses ----

    def refuse(self, what, *words):
        self.assert_refused(self.varve("top", what, status=2), *words)

    def refuse_once(self, *words):
        self.assert_refused(self.varve("top", "--once", self.path, status=2), *words)

    def test_names_that_are_no_recording(self):
        self.refuse(self.path, "no recording", "under way")
        self.refuse(self.folder, "not made by varve record")
        self.refuse(str(os.getpid()), "records nothing")
        self.record("true")
        self.refuse(self.path, "varve report")
        os.mkdir(self.directory, 0o700)
        self.refuse(self.path, "not made by varve record")

    def test_several_are_named_in_a_line(self):
        first, second = self.record_still(), self.record_still(path=self.path + "2")
        outcome = self.varve("top", "--once", status=2)
        self.assert_refused(outcome, "several recordings")
        self.end(first)
        self.end(second)

    def dead_directory(self):
        process = self.record_still()
        self.watch().kill()
        self.kill(process)
        rings = os.path.realpath(os.path.join(self.directory, "ring"))
        self.assertTrue(rings.startswith(("/dev/shm/varve-", os.path.realpath(self.folder))), rings)
        return os.path.join(rings, "live.json")

    def test_hostile_figures(self):
        live = self.dead_directory()
        secret = os.path.join(os.path.dirname(live), "secret")
        shutil.copy(live, secret)

        def make_database():
            sqlite3.connect(live).executescript("CREATE TABLE t(x)")

        def huge():
            with open(live, "wb") as file:
                file.truncate(1 << 40)

        def bind_socket():
            place = os.getcwd()
            os.chdir(os.path.dirname(live))
            try:
                with socket.socket(socket.AF_UNIX) as there:
                    there.bind("live.json")
            finally:
                os.chdir(place)

        for make in (lambda: self.write(live, os.urandom(100000)), lambda: self.write(live, b"[" * 1000000),
                     lambda: self.write(live, b'{"varve_live": 2, "recording": [1]}'),
                     lambda: self.write(live, b'{"varve_live": 2, "recording": ["one"], "total": 7}'),
                     lambda: self.write(live, b'{"varve_live": 1}'), make_database, huge, lambda: os.mkfifo(live),
                     lambda: os.symlink(secret, live), lambda: os.link(secret, live), lambda: os.mkdir(live),
                     bind_socket):
            if os.path.exists(live):
                os.unlink(live)
            make()
            self.refuse_once()
            (os.rmdir if os.path.isdir(live) and not os.path.islink(live) else os.unlink)(live)

    def test_hostile_directories(self):
        live = self.dead_directory()
        rings = os.path.dirname(live)
        with open(os.path.join(rings, "session"), "r+b") as file:
            file.truncate(100)
        self.refuse_once("not the directory of a recording")
        os.unlink(os.path.join(self.directory, "ring"))
        elsewhere = os.path.join(self.folder, "elsewhere")
        os.mkdir(elsewhere, 0o700)
        os.symlink(elsewhere, os.path.join(self.directory, "ring"))
        self.refuse_once("link to somewhere else")
        os.chmod(self.directory, 0o755)
        self.refuse_once("mode is not 0700")
        shutil.rmtree(rings) # the link to it is gone

    def test_another_users(self):
        self.need_root("only root can give files away")
        self.dead_directory()
        os.chown(self.directory, 65534, 65534)
        self.refuse_once("another user")
        os.chown(self.directory, 0, 0)


if __name__ == "__main__":
    recording.main()
