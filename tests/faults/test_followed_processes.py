#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 4 s
"""Processes are followed without being changed, and by what they are, not by a number of theirs: a daemon sees the
parent that it would see anyway, and a process in another PID namespace, whose pid means another one here or nobody,
is recorded whole and to its end."""

import os
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

BURST = recording.program("burst")
WAYS = recording.program("run_ways")
SIZE = 61616

ORPHAN = """
import os, sys, time
read, write = os.pipe()
if os.fork() == 0:
    between = os.getpid()
    if os.fork() == 0:
        while os.getppid() == between: time.sleep(0.001)
        os.write(write, b'%d' % os.getppid())
        x = bytearray(71717)
    os._exit(0)
os.wait()
print(os.read(read, 20).decode())
"""


def can_unshare(*options):
    return shutil.which("unshare") and subprocess.run(["unshare", *options, "true"], check=False,
                                                      stderr=subprocess.DEVNULL).returncode == 0


class Case(recording.Case):
    def assert_burst(self, count):
        self.assertEqual(self.count("heap_alloc", "size = ?", SIZE), count)


class Parents(Case):
    def test_orphan(self):
        """Adopted by whoever adopts orphans without varve."""
        expected = recording.run(["/usr/bin/python3", "-S", "-c", ORPHAN]).out
        outcome = self.record("/usr/bin/python3", "-S", "-c", ORPHAN, options=recording.PLAIN)
        self.assertEqual(outcome.out, expected)
        self.assert_recording()
        self.assertEqual(self.one("SELECT count(*) FROM process"), 3)

    def test_waited_for(self):
        """Daemons that allocate late, run other programs, or become one: recorded to their end all the same."""
        commands = {
            "late": f"(sleep 0.4; {BURST} 1000 {SIZE} >/dev/null) & exit 3",
            "exec": f"(sleep 0.4; exec {BURST} 1000 {SIZE}) >/dev/null & exit 3",
            "session": f"{WAYS} sleep 300 && (setsid sh -c 'sleep 0.2; {BURST} 1000 {SIZE}' >/dev/null &); exit 3",
        }
        for name, command in commands.items():
            with self.subTest(name):
                self.record("sh", "-c", command, options=recording.PLAIN, status=3)
                self.assert_recording()
                self.assert_burst(1000)

    def test_nothing_allocated_yet(self):
        """A daemon of which there is no page when the program ends."""
        self.record(WAYS, "system", f"{WAYS} sleep 500 && {BURST} 1000 {SIZE} &", options=recording.PLAIN)
        self.assert_recording()
        self.assert_burst(1000)


class Namespaces(Case):
    def setUp(self):
        super().setUp()
        if not can_unshare("-pf", "--mount-proc"):
            self.skipTest("no PID namespaces: unshare -pf is refused")

    def record_in(self, *command, proc=True, **more):
        return self.record("unshare", "-pf", *(["--mount-proc"] if proc else []), *command, options=recording.PLAIN,
                           **more)

    def test_pid_of_another(self):
        """Process 1 of the namespace is not process 1 of ours."""
        for proc in (True, False):
            with self.subTest(mount_proc=proc):
                self.record_in(BURST, "1000", str(SIZE), proc=proc)
                self.assert_recording()
                self.assert_burst(1000)
                self.assertEqual(self.sql("SELECT pid, end_cause FROM process ORDER BY id DESC LIMIT 1"), [(1, "exit")])

    def test_pid_of_nobody(self):
        """Numbers that nobody has here: not taken for gone."""
        free = next(pid for pid in range(20000, 30000) if not os.path.exists(f"/proc/{pid}"))
        for proc in (True, False):
            with self.subTest(mount_proc=proc):
                self.record_in(
                    "sh", "-c", f"echo {free - 1} > /proc/sys/kernel/ns_last_pid; {BURST} 2000 {SIZE}; exit 0",
                    proc=proc)
                self.assert_recording()
                self.assert_burst(2000)
                self.assertEqual(self.sql("SELECT pid FROM process WHERE executable LIKE '%/burst'"), [(free,)])

    def test_many(self):
        """The same pids in several namespaces at a time, and exec in them."""
        self.record("sh", "-c", "for i in 1 2 3 4 5 6; do unshare -pf --mount-proc sh -c "
                    f"'sleep 0.1; {BURST} 500 {SIZE}; exec {BURST} 500 {SIZE}' & done >/dev/null; wait; exit 0",
                    options=recording.PLAIN)
        self.assert_recording()
        rows = self.sql("SELECT pid, count(*) FROM process WHERE executable LIKE '%/burst' GROUP BY pid ORDER BY pid")
        self.assertEqual(sum(count for _, count in rows), 12)
        self.assertEqual(rows[0], (1, 6))
        self.assert_burst(6000)
        self.assertEqual(self.sql("SELECT DISTINCT end_cause FROM process WHERE executable LIKE '%/burst'"),
                         [("exit",)])

    def start_in(self, script):
        """A shell of a namespace, after its first burst; and `unshare`, its parent."""
        process = self.start_recording("unshare", "-pf", "--mount-proc", "sh", "-c",
                                       f"{BURST} 1000 {SIZE}; echo ready; {script}")
        while process.stdout.readline() != "ready\n":
            pass
        return process, recording.wait_until(lambda: recording.children_of(process.pid))[0]

    def test_killed(self):
        """SIGKILL of a namespace's first process takes all of it: what was committed is there, and nobody waits."""
        process, unshare = self.start_in("while :; do :; done")
        os.kill(recording.wait_until(lambda: recording.children_of(unshare))[0], signal.SIGKILL)
        outcome = recording.finish(process)
        self.assertNotEqual(outcome.returncode, 0)
        self.assert_recording()
        self.assert_burst(1000)
        self.assertIn("ended for an unknown reason (killed?)", outcome.err)

    def test_recover(self):
        """A process that still runs in one is not taken for dead by recover, and one that has died not for alive."""
        stay = self.write("stay")
        process, unshare = self.start_in(f"while [ -e {stay} ]; do sleep 0.1; done")
        process.send_signal(signal.SIGKILL)
        process.wait()
        os.kill(unshare, signal.SIGKILL)  # it is in our namespace: what it started lives on alone
        recording.wait_until(lambda: recording.process_state(unshare) in (None, "Z"))
        outcome = self.varve("recover", self.path + ".d", status=2)
        os.unlink(stay)
        self.assertIn("still run", outcome.err)
        recording.finish_orphan(process)
        self.varve("recover", self.path + ".d")
        self.assert_recording()
        self.assert_burst(1000)


SANDBOXES = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
os.chroot(sys.argv[1]); os.chdir("/")
for number in range(3):
    if os.fork() == 0:
        if libc.unshare(0x20000000) != 0: os._exit(3)
        worker = os.fork()
        if worker == 0:
            time.sleep(0.2 * number)
            for i in range(600):
                libc.malloc(61616)
                time.sleep(0.001)
            os._exit(0)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]))
for number in range(3):
    if os.wait()[1] != 0: sys.exit(3)
"""


class Sandboxes(Case):
    def test_without_proc(self):
        """They do not know their namespace, and each calls itself process 1: none is taken for another one, nor for
        gone because nobody has its number here."""
        if os.geteuid() != 0 or not can_unshare("-pf"):
            self.skipTest("no PID namespaces, or not root: unshare -pf is refused")
        root = os.path.join(self.folder, "root")
        os.mkdir(root)
        self.record("/usr/bin/python3", "-S", "-c", SANDBOXES, root, options=recording.PLAIN)
        self.assert_recording()
        self.assert_burst(1800)
        self.assertEqual(self.sql("SELECT DISTINCT end_cause FROM process WHERE pid = 1"), [("exit",)])


class WithoutLocks(Case):
    """Rings on overlayfs, where a mapping keeps no lock: /proc is searched instead."""

    def test_overlay(self):
        script = (f"mount -t tmpfs -o size=1M none /dev/shm && mount -t tmpfs none {self.folder} && cd {self.folder} &&"
                  " mkdir lower upper work all && mount -t overlay overlay -o"
                  " lowerdir=lower,upperdir=upper,workdir=work all")
        if not can_unshare("-m") or subprocess.run(["unshare", "-m", "sh", "-c", script], check=False,
                                                   stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no overlayfs may be mounted here")
        self.path = os.path.join(self.folder, "all", "trace.db")
        burst = f"{BURST} 1000 {SIZE}"
        command = f"(sleep 0.3; exec unshare -pf {burst}) > /dev/null & unshare -pf --mount-proc {burst}; exit 4"
        record = " ".join(f"'{word}'" for word in self.record_command("sh", "-c", command, options=recording.PLAIN))
        outcome = recording.run(["unshare", "-m", "sh", "-c", f"{script} && ({record}; echo status $?) && "
                                 f"cat all/trace.db > /tmp/{os.path.basename(self.folder)}.db"])
        copy = f"/tmp/{os.path.basename(self.folder)}.db"
        self.addCleanup(lambda: os.path.exists(copy) and os.unlink(copy))
        self.assertIn("status 4\n", outcome.out, outcome)
        self.open(copy)
        self.assert_burst(2000)
        self.assert_no_loss()


if __name__ == "__main__":
    recording.main()
