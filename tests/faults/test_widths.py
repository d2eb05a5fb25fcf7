#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 2 s
"""What people read on a terminal of 60, 100 and 200 columns: no line of a list is wider, styles end before their line
does, and nothing but styles drives the terminal. Long function names and deep calls are in the program, as the narrow
terminal needs them."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

PROGRAM = """
kept = []
def a_function_with_a_name_that_is_longer_than_half_of_a_narrow_terminal(n):
    kept.append("x" * (1000 + n))
def deep(n, depth):
    if depth > 0:
        deep(n, depth - 1)
    else:
        a_function_with_a_name_that_is_longer_than_half_of_a_narrow_terminal(n)
    return [bytes(600) for _ in range(5)]
for n in range(500):
    deep(n, n % 8)
"""

COLUMNS = (60, 100, 200)
BY = ("line", "function", "stack", "module", "process", "thread", "size")
LISTS = [["report", "--by", by] for by in BY] + [
    ["leaks"], ["leaks", "--at", "end"], ["peak"], ["peak", "--by", "stack"], ["tree"], ["tree", "--inverted"],
    ["timeline"], ["timeline", "--points", "1000"]]
STYLE = re.compile("\033\\[[0-9;]*m")
ERASE = "\033[K"  # in front of a line of progress, which appears where the machine is slow
PLAIN = "\033[0m"


def on_terminal(columns, *arguments):
    """The exit status, and what a terminal of so many columns gets."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = dict(os.environ, TERM="xterm-256color", LC_ALL="C.UTF-8")
    environment.pop("NO_COLOR", None)
    with subprocess.Popen([recording.VARVE, *arguments], stdin=slave, stdout=slave, stderr=slave,
                          env=environment) as process:
        os.close(slave)
        got = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:  # EIO: nobody has the other end any more
                break
            if not piece:
                break
            got += piece
        os.close(master)
        return process.wait(), got.decode().replace("\r\n", "\n")


class Widths(recording.Case):
    def assert_fits(self, columns, *arguments):
        status, text = on_terminal(columns, *arguments)
        self.assertEqual(status, 0, text)
        self.assertNotEqual(text, "")
        for line in text.splitlines():
            plain = STYLE.sub("", line).removeprefix(ERASE)
            self.assertLessEqual(len(plain), columns, line)
            self.assertNotIn("\033", plain)
            styles = STYLE.findall(line)
            # a title that goes on in the next line has its style there, too
            self.assertFalse(line.startswith(PLAIN), f"the style of the line before ends here: {line!r}")
            self.assertLessEqual(len(styles), 4, line)
        return text

    def test_widths(self):
        self.record(sys.executable, "-c", PROGRAM)
        for columns in COLUMNS:
            for arguments in [*LISTS, ["diff", "--from", "1ms", self.path]]:
                with self.subTest(columns=columns, arguments=arguments):
                    whole = arguments if arguments[-1] == self.path else [*arguments, self.path]
                    text = self.assert_fits(columns, *whole)
                    if arguments == ["report", "--by", "line"]:
                        self.assertRegex(text, "<string>:4 .*MiB|<string>:4 .*KiB")
                        self.assertIn(PLAIN, text)
                        self.assertLessEqual(len(text.splitlines()), 80)


if __name__ == "__main__":
    recording.main()
