#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 6 s
"""The program's start and end: what can't be recorded is said in one line, exit statuses and signals pass through, and
nothing half-written is left behind."""

import os
import pwd
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402


class Refused(recording.Case):
    """Bad input: one line on stderr, exit status 2, no file left."""

    def assert_refused(self, outcome, *words, folder=None):
        super().assert_refused(outcome, *words)
        left = [name for name in os.listdir(folder or self.folder) if name.startswith("trace")]
        self.assertEqual(left, [], "left behind")

    def refuse(self, *command, words=(), **more):
        self.assert_refused(recording.run(self.record_command(*command, **more)), *words)

    def test_no_such_program(self):
        self.refuse("/nonexistent/program", words=["/nonexistent/program"])
        self.refuse("varve-no-such-program", words=["varve-no-such-program", "PATH"])

    def test_not_executable(self):
        path = self.write("plain", "#!/bin/sh\n")
        self.refuse(path, words=[path, "not executable", "chmod"])
        self.refuse(self.folder, words=["directory"])

    def test_static_program(self):
        self.refuse(recording.program("static_hello"), words=["static"])

    def test_script_of_missing_interpreter(self):
        path = self.write("script", "#!/nonexistent/interpreter\n", 0o755)
        self.refuse(path, words=["script", "/nonexistent/interpreter"])

    def test_nothing_to_run(self):
        for arguments, words in (
                (["-o", self.path], []), (["--no-such-option", "--", "/bin/true"], ["--no-such-option"]),
                (["--overflow", "never", "--", "/bin/true"], ["spill", "block", "drop"]),
                *((["--ring-size", size, "--", "/bin/true"], ["ring-size"]) for size in ("4X", "-1", "", "1"))):
            self.assert_refused(recording.varve("record", *arguments), *words)

    def test_output_in_no_folder(self):
        for self.path, word in ((os.path.join(self.folder, "missing", "trace.db"), "missing"),
                                (os.path.join(self.write("plain"), "trace.db"), "plain"), ("/proc/trace.db", "/proc"),
                                (self.folder, self.folder)):
            self.refuse("/bin/true", words=[word])

    def test_output_without_write_permission(self):
        closed = os.path.join(self.folder, "closed")
        os.mkdir(closed)
        self.path = os.path.join(closed, "trace.db")
        command = self.record_command("/bin/true")
        os.chmod(closed, 0o555)
        if os.geteuid() != 0:
            self.assert_refused(recording.run(command), "closed", folder=closed)
            return
        try:
            nobody = pwd.getpwnam("nobody")
        except KeyError:
            self.skipTest("root, and there is no user nobody to become")
        os.chmod(self.folder, 0o755)
        became = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        try:
            reachable = recording.run([recording.VARVE, "--version"], **became).returncode == 0
        except PermissionError:
            reachable = False
        if not reachable:
            self.skipTest(f"the user nobody may not run {recording.VARVE}")
        outcome = recording.run(command, **became)
        self.assert_refused(outcome, "closed", folder=closed)
        self.assertIn("ermission", outcome.err)

    def test_setuid_program(self):
        self.need_root("only root can make a setuid program of another user")
        if os.statvfs(self.folder).f_flag & os.ST_NOSUID:
            self.skipTest("the temporary folder is mounted nosuid")
        path = shutil.copy("/bin/true", os.path.join(self.folder, "setuid"))
        os.chown(path, 65534, 65534)
        os.chmod(path, 0o4755)
        self.refuse(path, words=["setuid"])


class PassedThrough(recording.Case):
    """The program's own output and end, as if it had run by itself."""

    def test_exit_statuses(self):
        for status in (0, 1, 2, 77, 126, 127, 255):
            outcome = self.record("/bin/sh", "-c", f"echo out; echo err >&2; exit {status}", status=status)
            self.assertEqual(outcome.out, "out\n")
            self.assertIn("err\n", outcome.err)
            self.assert_finished()

    def test_signals(self):
        for number in (signal.SIGTERM, signal.SIGSEGV, signal.SIGKILL, signal.SIGPIPE, signal.SIGABRT, signal.SIGINT):
            # Python allocates a lot before it dies; no core file is wanted here.
            program = (f"import os, resource, signal; resource.setrlimit(resource.RLIMIT_CORE, (0, 0));"
                       f"signal.signal({int(number)}, signal.SIG_DFL); os.kill(os.getpid(), {int(number)})"
                       if number != signal.SIGKILL else "import os; os.kill(os.getpid(), 9)")
            self.record("/usr/bin/python3", "-S", "-c", program, options=["--stacks", "none"], status=-number)
            self.assert_recording()
            self.assertEqual(self.sql("SELECT end_cause, exit_status FROM process"), [("signal", int(number))])

    def test_arguments_and_streams(self):
        """Arguments with dashes and spaces are the program's; its standard input is its own."""
        arguments = ["-o", "--", "a b", "", "--json", "ü"]
        process = subprocess.run(
            self.record_command("/bin/sh", "-c", 'for a; do echo "<$a>"; done; cat', "sh", *arguments),
            input="from stdin\n", stdout=subprocess.PIPE, text=True, check=True)
        self.assertEqual(process.stdout, "".join(f"<{word}>\n" for word in arguments) + "from stdin\n")

    def test_file_descriptors(self):
        """Its own are numbered as ever; the one that the call sites need is far up, and closing it harms nobody."""
        program = "import os; print(sorted(f for f in map(int, os.listdir('/proc/self/fd')) if f < 60));" \
                  "os.closerange(3, 5000); print(os.open('/', os.O_RDONLY)); x = [bytes(500) for _ in range(9999)]"
        expected = recording.run(["/usr/bin/python3", "-S", "-c", program]).out
        self.assertEqual(self.record("/usr/bin/python3", "-S", "-c", program).out, expected)

    def test_signal_dispositions(self):
        program = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"]
        for preparation in ("", "trap '' PIPE HUP; "):
            line = preparation + 'exec "$@"'
            expected = recording.run(["/bin/sh", "-c", line, "sh", *program]).out
            outcome = recording.run(["/bin/sh", "-c", line, "sh", *self.record_command(*program)])
            self.assertEqual(outcome.out, expected, outcome)

    def test_default_output(self):
        """Without -o the database is named after the program and a pid."""
        outcome = recording.run([recording.VARVE, "record", "--", "/bin/sh", "-c", "exit 0"], cwd=self.folder)
        self.assertEqual(outcome.returncode, 0, outcome)
        self.assertRegex(" ".join(os.listdir(self.folder)), r"^sh\.[0-9]+\.db$")


# os.write: a signal may come while print has not returned yet
SLEEPER = "import os, signal, sys, time; x = [bytes(1000) for _ in range(100)]\n" \
          "def got(n, f):\n os.write(1, b'got %d\\n' % n)\n{end}\n" \
          "for n in (2, 15, 1, 3): signal.signal(n, got)\n" \
          "os.write(1, b'ready\\n')\ntime.sleep(20)\nos.write(1, b'late\\n')\n"


class Interrupted(recording.Case):
    """SIGINT and SIGTERM: the program's business; the recording is finished all the same."""

    def start(self, source, *options):
        return self.start_recording("/usr/bin/python3", "-S", "-c", source, options=options, said="ready")

    def test_forwarded_to_a_program_that_handles_it(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT):
            process = self.start(SLEEPER.format(end=" sys.exit(33)"))
            process.send_signal(number)
            outcome = recording.finish(process)
            self.assertEqual((outcome.returncode, outcome.out), (33, f"got {int(number)}\n"), outcome)
            self.assert_recording()

    def test_kills_a_program_that_does_not(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            process = self.start("import time; print('ready', flush=True); time.sleep(20)")
            process.send_signal(number)
            outcome = recording.finish(process)
            self.assertEqual(outcome.returncode, -number, outcome)
            self.assert_recording()

    def test_to_the_whole_group(self):
        """As Ctrl-C in a shell, or kill 0, does it."""
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start(SLEEPER.format(end=" time.sleep(0.5); sys.exit(34)"))
            os.killpg(process.pid, number)
            outcome = recording.finish(process)
            self.assertEqual(outcome.returncode, 34, outcome)
            self.assertIn(f"got {int(number)}\n", outcome.out)
            self.assert_recording()

    def test_program_that_survives(self):
        """It ignores the signal, so the recording goes on to its end."""
        source = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True);" \
                 "time.sleep(1); x = bytearray(70003); print('end', flush=True)"
        process = self.start(source)
        process.terminate()
        outcome = recording.finish(process)
        self.assertEqual((outcome.returncode, outcome.out), (0, "end\n"), outcome)
        self.assert_recording()
        self.assertGreaterEqual(self.count("heap_alloc", "size BETWEEN 70003 AND 70100"), 1)

    def test_terminal_interrupt(self):
        """Ctrl-C on a terminal reaches the program once."""
        controller, terminal = os.openpty()
        self.addCleanup(os.close, controller)
        source = SLEEPER.format(end=" time.sleep(0.3); sys.exit(35)")
        child = os.fork()
        if child == 0:
            os.setsid()
            os.close(controller)
            import fcntl
            import termios
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
            for descriptor in range(3):
                os.dup2(terminal, descriptor)
            command = self.record_command("/usr/bin/python3", "-S", "-c", source, options=["--stacks", "none"])
            os.execv(command[0], command)
        os.close(terminal)
        seen, sent = "", False
        while True:
            try:
                seen += os.read(controller, 4096).decode(errors="replace")
            except OSError:
                break
            if "ready" in seen and not sent:
                os.write(controller, b"\x03")
                sent = True
        _, status = os.waitpid(child, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 35, seen)
        self.assertEqual(seen.count("got 2"), 1, seen)
        self.assert_recording()


    def test_closed_stderr(self):
        """varve's own messages have no reader: neither the program nor the recording may suffer."""
        process = subprocess.Popen(self.record_command("/bin/sh", "-c", "ls / >/dev/null; exit 12"),
                                   stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        process.stderr.close()
        self.assertEqual(process.wait(), 12)
        self.assert_finished()


if __name__ == "__main__":
    recording.main()
