#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 8 s
# Only with an unsanitized command: it starts the program hundreds of times.
"""All commands where something is in the way: an output that is full, closed, misplaced or narrow, and names of
functions that are long, missing or hostile. Which commands there are is taken from `varve help`."""

import fcntl
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

LOG = os.path.join(recording.ROOT, "tests", "golden", "training.log")
COMPILER = os.environ.get("CC") or shutil.which("cc")
MARK = "evil_name_of_a_function"
# they want events of a caching allocator, which a heap's recording has not
OF_AN_ALLOCATOR = ("replay", "advise", "bound")
WITH = {"flamegraph": ["-o", "-"], "check": ["--peak", "1", "--github"]}
STATUS = {"check": 1}  # the limit is broken; 0 of all others
EVIL = b"\x1b[31m\x07\nname\x9b\xff\\'\"<&>"


LONG_NAMES = """
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


def usages():
    """(command, its operands as the help names them) of all commands."""
    names = re.findall(r"^  ([a-z]+) +\S", recording.varve("help").out, re.MULTILINE)
    for name in names:
        if name != "varve":
            usage = recording.varve("help", name).out.splitlines()[0]
            yield name, usage.split("[OPTIONS]", 1)[1].split()


def about(database):
    """A command line for each command that reads a database and answers on standard output."""
    values = {"DB": database, "TRACE": database, "A": database, "[B]": database, "SQL": "SELECT * FROM events",
              "[SQL]": "SELECT * FROM events"}
    for name, operands in usages():
        if operands and all(one in values for one in operands) and name != "export":
            yield [name, *(values[one] for one in operands), *WITH.get(name, [])]


class Outputs(recording.Case):
    def assert_reason(self, outcome, command):
        self.assertEqual(outcome.returncode, 2, (command, outcome))
        self.assertEqual(len(outcome.err.splitlines()), 1, (command, outcome))

    def play(self):
        self.record(recording.VARVE, "dtr", "--mode", "allocator", "--ratio", "1", "-o", self.path + ".play", LOG,
                    options=recording.PLAIN)

    def test_standard_output(self):
        """Full or closed: status 2 and a line, never 0 where nothing was written."""
        self.record(recording.program("churn"), "--ops", "100", options=["--stacks", "none"])
        commands = [one for one in about(self.path) if one[0] not in OF_AN_ALLOCATOR]
        self.assertGreater(len(commands), 8)
        commands += [["help"], ["help", "report"], ["report", "--help"], ["report", "--html", "-", self.path],
                     ["--version"], ["doctor"], ["completion", "bash"], ["dtr", LOG]]
        for command in commands:
            with self.subTest(command), open("/dev/full", "wb", buffering=0) as full:
                process = subprocess.run([recording.VARVE, *command], stdout=full, stderr=subprocess.PIPE, text=True,
                                         check=False)
                self.assert_reason(recording.Outcome(process.returncode, "", process.stderr), command)
                closed = recording.run(["sh", "-c", 'exec "$@" >&-', "sh", recording.VARVE, *command])
                self.assert_reason(closed, command)

    def test_files_while_descriptors_are_closed(self):
        """What is opened does not become the standard output: a file holds its content only."""
        self.play()
        made = [os.path.join(self.folder, name) for name in ("open.pickle", "closed.pickle")]
        for path, redirection in zip(made, ("", "<&- >&- 2>&-")):
            outcome = recording.run(["sh", "-c", f'exec "$@" {redirection}', "sh", recording.VARVE, "export",
                                     self.path + ".play", "-o", path])
            self.assertEqual(outcome.returncode, 0, outcome)
        with open(made[0], "rb") as one, open(made[1], "rb") as other:
            self.assertEqual(one.read(), other.read())

    def test_places_that_cannot_be_written(self):
        self.play()
        before = sorted(os.listdir(self.folder))
        for command in (["export", self.path + ".play"], ["replay", self.path + ".play"], ["dtr", "--ratio", "1", LOG],
                        ["record", "--", "true"]):
            for place in (os.path.join(self.folder, "missing", "x"), self.path + "/x", self.folder, "/dev/full", ""):
                with self.subTest((command, place)):
                    outcome = recording.varve(command[0], "-o", place, *command[1:])
                    self.assert_refused(outcome, os.path.dirname(place) or "--output")
            self.assertEqual(sorted(os.listdir(self.folder)), before)


class FileSizes(recording.Case):
    """A limit of the size of files is an error as any other, and no end by a signal. The program keeps its own."""

    def limited(self, limit, *arguments):
        return recording.run(["prlimit", f"--fsize={limit}", recording.VARVE, *map(str, arguments)], cwd=self.folder)

    def test_record(self):
        for limit in (0, 8192, 200_000):
            outcome = self.limited(limit, "record", "-q", "-o", self.path, "--", "echo", "ran")
            self.assert_refused(outcome)
        outcome = self.limited(2_000_000, "record", "-q", "-o", self.path, "--", recording.program("churn"), "--ops",
                               "20000")
        self.assertEqual(outcome.returncode, 2)
        self.assertRegex(outcome.err, r"^varve record: .* to finish it run `varve recover [^`]*`\n$")

    def test_other_commands(self):
        self.record(recording.program("churn"), "--ops", "2000")
        for arguments in (["report", "--html", "page.html"], ["export", "--to", "csv", "-o", "csv"],
                          ["export", "--to", "folded", "-o", "folded"]):
            self.assert_refused(self.limited(100, *arguments, self.path))
        self.assertEqual(os.listdir(self.folder), [os.path.basename(self.path)])

    def test_program_is_ended_by_it(self):
        outcome = self.record("sh", "-c", "kill -XFSZ $$; echo alive", status=-signal.SIGXFSZ)
        self.assertEqual(outcome.out, "")


class Names(recording.Case):
    """Names of functions as a compiler never makes them."""

    def setUp(self):
        super().setUp()
        if not COMPILER:
            self.skipTest("no C compiler")

    def record_function(self, name, *flags, change=None):
        target = os.path.join(self.folder, "program")
        source = self.write("program.c", "#include <stdlib.h>\nvoid *kept[10];\n"
                            f"__attribute__((noinline)) void {name}(int i) {{ kept[i % 10] = malloc(1000 + i); }}\n"
                            f"int main(void) {{ for (int i = 0; i < 100; i++) {{ {name}(i); }}"
                            " return kept[0] == 0; }\n")
        subprocess.run([COMPILER, "-O1", "-fno-builtin", *flags, "-o", target, source], check=True)
        if change:
            with open(target, "rb") as stream:
                image = stream.read()
            self.assertIn(MARK.encode(), image)
            self.write(target, image.replace(MARK.encode(), change))
        self.record(target, options=["--stacks", "native"])
        self.open()

    def answers(self):
        """Each command answers, in text that a terminal can show, of a size that a person can read: those texts by
        command."""
        texts = {}
        for command in about(self.path):
            if command[0] in (*OF_AN_ALLOCATOR, "query"):
                continue
            process = subprocess.run([recording.VARVE, *command], capture_output=True, check=False)
            with self.subTest(command):
                self.assertEqual((process.returncode, process.stderr), (STATUS.get(command[0], 0), b""))
                text = process.stdout.decode("utf-8")
                bad = [one for one in text if one != "\n" and (ord(one) < 32 or 127 <= ord(one) < 160)]
                self.assertEqual(bad, [])
                self.assertLess(len(text), 100_000)
                texts[command[0]] = text
        return texts

    def test_a_megabyte(self):
        name = "f" + "x" * (1 << 20)
        self.record_function(name, "-g")
        self.assertEqual(self.one("SELECT max(length(function)) FROM frame"), len(name))
        self.assertIn("fxxxxxxxx", self.answers()["leaks"])

    def test_control_characters(self):
        self.record_function(MARK, change=EVIL[:len(MARK)].ljust(len(MARK), b"z"))
        self.assertEqual(self.one("SELECT count(*) > 0 FROM frame WHERE function LIKE '%name%' AND module LIKE"
                                  " '%program'"), 1)
        self.assertIn("name", self.answers()["leaks"])

    def test_no_symbols(self):
        """Unresolved code is called that, with its module."""
        self.record_function(MARK, "-s")
        self.assertEqual(self.one("SELECT count(*) FROM frame WHERE module LIKE '%/program' AND function IS NOT NULL"),
                         0)
        texts = self.answers()
        self.assertIn("program", texts["report"])
        self.assertIn("program", texts["leaks"])


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
    """On a terminal no line of a list is wider, styles end before their line does, and nothing but styles drives it.
    Long function names and deep calls are in the program, as the narrow terminal needs them."""

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
        self.record(sys.executable, "-c", LONG_NAMES)
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
