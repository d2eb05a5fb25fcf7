#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 8 s
"""varve top beside recordings: its figures are those that the finished database has, the screen follows keys and
sizes of a real terminal (tmux), and leaves it as it was.

Only with an unsanitized command: programs are recorded.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

SITES = ("allocations", "frees", "bytes", "live_allocations", "live_bytes", "peak_bytes", "peak_allocations",
         "temporary")
TOTALS = (*SITES, "failed")
NAMES = ("user_function", "user_file", "user_line", "user_module", "function", "file", "line", "module")


class Still:
    """A recording of a program that does what it is told, and nothing in between."""

    def __init__(self, case, *options):
        self.case, self.asked = case, [0, 0]  # allocations and bytes that it was told to make
        self.process = recording.start(case.record_command(recording.program("stands_still"), options=options),
                                       stdin=subprocess.PIPE)
        case.addCleanup(recording.kill_group, self.process)
        self.await_ready()

    def await_ready(self):
        line = self.process.stdout.readline()
        self.case.assertEqual(line, "ready\n", "" if line else self.process.communicate()[1])

    def tell(self, *lines):
        for line in lines:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            count, size = map(int, line.split()[1:])
            self.asked = [self.asked[0] + count, self.asked[1] + count * size]
            self.await_ready()

    def end(self):
        self.process.stdin.close()
        self.case.assertEqual(self.process.wait(), 0, self.process.stderr.read())


class Watched(recording.Case):
    def figures(self, *arguments):
        return json.loads(self.varve("top", "--json", *(arguments or (self.path,))).out)

    def still(self, program):
        """The figures once all that the program was told to do is in them, the names of all call sites have been
        looked up, and nothing more has come."""
        def look():
            figures = self.figures("-n", "1000", self.path)["figures"]
            found = [sum(row[key] for row in figures["totals"]) for key in ("allocations", "bytes")]
            is_whole = all(one >= asked for one, asked in zip(found, program.asked))
            is_named = all(site["is_named"] for site in figures["callsites"] if site["callsite_id"])
            return figures if is_whole and is_named and figures["recording"]["events_per_s"] == 0 else None
        return recording.wait_until(look, what="all figures, all names, and no event for a second")


class Top(Watched):
    def check_rows(self, rows, recorded, *keys, names=()):
        """The same keys, and of each key the same figures."""
        def of(row):
            return tuple(row[key] for key in keys)

        recorded = {of(row): row for row in recorded}
        self.assertEqual({of(row) for row in rows}, set(recorded))
        for row in rows:
            wanted = (*(TOTALS if names is None else SITES), *(names if names and row["callsite_id"] else ()))
            self.assertEqual({key: row[key] for key in wanted}, {key: recorded[of(row)][key] for key in wanted})

    def check_equal(self, figures, keep="events"):
        """The database that came of the recording has the same."""
        def ask(*arguments):
            return json.loads(self.varve(*arguments).out)

        report = ask("report", "--json", self.path)
        for rows in (ask("query", "--json", self.path, "SELECT * FROM total"), report["totals"]):
            self.check_rows(rows, figures["totals"], "domain", "device", names=None)
        self.assertEqual(report["events"], figures["recording"]["events"])
        if keep != "totals":  # else small call sites are put together at the end
            self.check_rows(ask("query", "--json", self.path, "SELECT * FROM callsite_total"), figures["callsites"],
                            "domain", "callsite_id", names=NAMES)

    def check_still(self, *options, keep="events"):
        program = Still(self, *options)
        before = self.figures()["figures"]
        program.tell("keep 100 1000", "drop 40 5000", "thread 7 333", "map 3 65536", "keep 1 2000000")
        after = self.still(program)
        self.assertEqual(before["totals"], [])
        heap = {row["domain"]: row for row in after["totals"]}["heap"]
        # the thread's own memory comes on top
        self.assertGreaterEqual(heap["live_bytes"], 100 * 1000 + 7 * 333 + 2000000)
        self.assertLess(heap["live_bytes"], 100 * 1000 + 7 * 333 + 2000000 + 5000)
        kept = [site for site in after["callsites"] if site["user_function"] == "keep"]
        self.assertEqual(sum(site["live_bytes"] for site in kept), 100 * 1000 + 7 * 333 + 2000000)
        lines = [line for line in after["lines"] if line["user_function"] == "keep"]
        self.assertEqual([(line["live_bytes"], line["callsites"]) for line in lines],
                         [(sum(site["live_bytes"] for site in kept), len(kept))])
        dropped = [site for site in after["callsites"] if site["user_function"] == "drop"]
        self.assertEqual([(site["allocations"], site["live_bytes"], site["bytes"]) for site in dropped],
                         [(40, 0, 200000)])
        mapped = [site for site in after["callsites"] if site["user_function"] == "map"]
        self.assertEqual([(site["domain"], site["live_bytes"]) for site in mapped], [("mmap", 3 * 65536)])
        self.assertEqual({row["bytes_per_s"] for row in after["totals"] + after["callsites"]}, {0})
        self.assertEqual(after["recording"]["processes_running"], 1)
        self.assertEqual([process["heap_bytes"] for process in after["processes"]], [heap["live_bytes"]])
        self.assertGreater(after["processes"][0]["rss_bytes"], 100000)
        program.end()
        self.check_equal(after, keep)

    def test_figures_are_those_of_the_report(self):
        self.check_still()

    def test_with_totals_alone(self):
        self.check_still("--keep", "totals")

    def test_orders_and_domains(self):
        program = Still(self)
        program.tell("keep 10 1000", "drop 100 9000", "map 2 1000000")
        self.still(program)
        by = {order: self.figures("--sort", order, "-n", "1", "-d", "heap", self.path)["figures"]["callsites"]
              for order in ("live", "allocated", "rate")}
        self.assertEqual([len(rows) for rows in by.values()], [1, 1, 1])
        self.assertEqual(by["allocated"][0]["bytes"], 900000)
        self.assertEqual({site["domain"] for site in self.figures("-d", "mmap", self.path)["figures"]["callsites"]},
                         {"mmap"})
        program.end()

    def test_how_a_recording_is_named(self):
        program = Still(self)
        pid = recording.wait_until(lambda: recording.program_of(program.process, "stands_still"))
        for name in (self.path, self.path + ".d", str(program.process.pid), str(pid)):
            self.assertEqual(self.figures(name)["directory"], self.path + ".d")
        self.assertIn("stands_still", self.varve("top", "--once", self.path).out)
        program.end()

    def test_without_anybody_nothing_is_written(self):
        program = Still(self)
        rings = os.path.join(self.path + ".d", "ring")
        self.assertEqual([name for name in os.listdir(rings) if name.startswith("live")], [])
        self.figures()
        recording.wait_until(lambda: not [name for name in os.listdir(rings) if name.startswith("live")],
                             what="no figures")
        program.end()


class Attached(recording.AttachCase, Watched):
    def test_process_that_was_attached_to(self):
        process = self.begin(recording.program("attach_target"), self.folder, "1", "steady")
        self.assert_refused(recording.varve("top", "--once", str(process.pid)), "nor is it recorded")
        collector = self.attach(process.pid)
        for pid in (process.pid, collector.pid):
            self.assertEqual(self.figures(str(pid))["directory"], self.path + ".d")
        self.varve("detach", str(process.pid))
        self.assertEqual(recording.finish(collector).returncode, 0)
        self.assert_refused(recording.varve("top", "--once", str(process.pid)), "nor is it recorded")


@unittest.skipUnless(shutil.which("tmux"), "no tmux here")
class Screen(Watched):
    def setUp(self):
        super().setUp()
        self.terminals = 0

    def tmux(self, *arguments, check=True):
        environment = {name: value for name, value in os.environ.items() if name not in ("TMUX", "LC_ALL")}
        environment.update(LANG="C.UTF-8", TERM="xterm-256color")
        return subprocess.run(["tmux", "-f", "/dev/null", "-S", self.socket, *arguments], env=environment, text=True,
                              check=check, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout

    def begin(self, columns=100, lines=24):
        """A shell that says how varve top ended, and what the terminal's settings are before and after. Each has a
        server of its own: one that was told to end may still answer."""
        self.terminals += 1
        self.socket = os.path.join(self.folder, f"tmux{self.terminals}")
        self.addCleanup(self.tmux, "-S", self.socket, "kill-server", check=False)
        for name in ("before", "after"):
            if os.path.exists(os.path.join(self.folder, name)):
                os.unlink(os.path.join(self.folder, name))
        command = f"stty -a > {self.folder}/before; {recording.VARVE} top {self.path}; echo status=$?;" \
                  f" stty -a > {self.folder}/after; sleep 600"
        self.tmux("new-session", "-d", "-x", str(columns), "-y", str(lines), command)

    def screen(self):
        return self.tmux("capture-pane", "-p").splitlines()

    def await_screen(self, pattern, what=None):
        def look():
            lines = self.screen()
            return lines if re.search(pattern, "\n".join(lines)) else None
        return recording.wait_until(look, what=what or pattern)

    def scene(self, *lines, size=(100, 24)):
        """A program that was told so, on a screen."""
        program = Still(self)
        program.tell(*lines)
        self.still(program)
        self.begin(*size)
        return program

    def key(self, *keys):
        self.tmux("send-keys", *keys)

    def settings(self, name):
        def look():  # the shell makes the file before stty writes to it
            try:
                with open(os.path.join(self.folder, name), encoding="ascii") as file:
                    return re.sub(r"rows \d+; columns \d+;", "", file.read())
            except FileNotFoundError:
                return ""
        return recording.wait_until(look, what=f"the settings {name}")

    def test_keys(self):
        program = self.scene("keep 50 1000", "drop 100 9000", "map 2 1000000")
        self.await_screen(r"lines by live bytes\n.*\n.* map .*stands_still\.c")
        first = r"\n.*\n.* {} .*stands_still\.c"  # of the list, below its head
        for key, shown in (("s", "lines by bytes allocated\n"), (">", "lines by bytes allocated per second"),
                           ("<", "lines by bytes allocated" + first.format("map")),
                           ("d", "lines of heap by bytes allocated" + first.format("drop")), ("d", "lines of mmap"),
                           ("d", "lines by"), ("Tab", r"processes that run, by RSS\n.*\n *\d+ .*/"),
                           ("h", "PgUp PgDn"), ("h", "processes that run"), ("Tab", "lines by")):
            self.key(key)
            self.await_screen(shown)
        self.key("q")
        self.await_screen("status=0")
        self.assertEqual(self.settings("before"), self.settings("after"))
        program.end()

    def test_pause_and_go_on(self):
        program = Still(self)
        self.begin()
        self.await_screen("lines by live bytes")
        self.key("p")
        self.await_screen("paused")
        program.tell("keep 10 100000000")
        self.still(program)  # another one has them, and moments after that this one still has not
        self.assertNotIn("953 MiB", "\n".join(self.screen()))
        self.key("p")
        self.await_screen("953 MiB|954 MiB")
        program.end()
        self.await_screen(f"ended: varve report {re.escape(self.path)[:30]}")
        self.await_screen("953 MiB|954 MiB")
        self.key("q")
        self.await_screen("status=0")

    def test_sizes(self):
        program = self.scene("keep 50 1000", "map 2 1000000", size=(80, 24))
        for columns, lines in ((80, 24), (200, 50), (60, 15), (140, 40), (60, 5), (100, 24)):
            self.tmux("resize-window", "-x", str(columns), "-y", str(lines))
            wide = columns >= 80
            self.await_screen("allocations" if wide else "(?s)recording(?!.*allocations)",
                              f"a screen of {columns} columns")
            if lines >= 15:
                recording.wait_until(lambda: "q end" in "".join(self.screen()[lines - 1:]),  # pylint: disable=W0640
                                     what="the last line")
                self.await_screen(r"B/s .*\bmap\b", "a call site")
            self.assertLessEqual(max(len(line) for line in self.screen()), columns)
        self.key("q")
        program.end()

    def test_scrolling(self):
        # one line less than there is
        program = self.scene("keep 3 1000", "drop 3 900", "thread 3 800", "map 1 700", size=(80, 12))
        self.await_screen("(?s) keep (?!.* drop )")
        self.key("End")
        self.await_screen("(?s)^(?!.* keep ).* drop ")
        self.key("Home")
        self.await_screen("(?s) keep (?!.* drop )")
        self.key("q")
        program.end()

    def test_signals_leave_the_terminal_as_it_was(self):
        program = Still(self)
        for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)):
            self.begin()
            self.await_screen("lines")
            pane = int(self.tmux("display-message", "-p", "#{pane_pid}"))
            if number == signal.SIGINT:
                self.key("C-c")
            else:
                os.kill(recording.wait_until(lambda: recording.children_of(pane))[0], number)
            if number != signal.SIGINT:  # which ends the shell as well
                self.await_screen(f"status={status}")
                self.assertEqual(self.settings("before"), self.settings("after"))
            self.tmux("kill-server", check=False)
        program.end()


class Gone(Watched):
    def top(self, end, lines=24, columns=80):
        """With a terminal of its own, that is not its controlling one: no signal comes from it. How it ended after
        `end`, of the terminal's other side, and the most memory that it had, in KiB."""
        program = Still(self, "--force")
        master, terminal = os.openpty()
        left = {master}
        self.addCleanup(lambda: [os.close(one) for one in left])
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        top = subprocess.Popen([recording.VARVE, "top", self.path], stdin=terminal, stdout=terminal,
                               stderr=subprocess.DEVNULL, env=dict(os.environ, TERM="xterm"), start_new_session=True)
        self.addCleanup(recording.kill_group, top)
        os.close(terminal)
        shown = b""
        while b"lines by" not in shown:
            shown += os.read(master, 4096)
        end(master, left)
        _, status, usage = os.wait4(top.pid, 0)
        top.returncode = os.waitstatus_to_exitcode(status)
        program.end()
        return top.returncode, usage.ru_maxrss

    def test_terminal_that_is_gone_and_one_that_stays(self):
        def hang_up(master, left):
            left.clear()
            os.close(master)

        def quit_it(master, _):
            os.write(master, b"q")

        self.assertEqual(self.top(hang_up)[0], -signal.SIGHUP)
        status, usual = self.top(quit_it)
        self.assertEqual(status, 0)
        status, most = self.top(quit_it, 65535, 65535)
        self.assertEqual(status, 0)
        self.assertLess(most, usual + 200_000, "KiB, for a terminal of an absurd size")


if __name__ == "__main__":
    recording.main()
