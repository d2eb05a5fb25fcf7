#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""The scripts of `varve completion` in the shells that they are for: what TAB offers. A shell that is not installed
is left out."""

import os
import pty
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

SHELLS = ("bash", "zsh", "fish")
BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_varve; printf '%s\\n' "${COMPREPLY[@]}"
"""


def words_of_bash(line):
    """As readline cuts it: '=' is a word of its own."""
    words = []
    for word in line.split(" "):
        parts = word.split("=")
        for i, part in enumerate(parts):
            words += (["="] if i > 0 else []) + ([part] if part or i == 0 else [])
    return words


class Completion(recording.Case):
    def setUp(self):
        super().setUp()
        for name in ("trace one.db", "two.db"):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8"):
                pass
        self.environment = {**os.environ, "HOME": self.folder,
                            "PATH": f"{os.path.dirname(recording.VARVE)}:{os.environ['PATH']}"}
        self.scripts = {}
        for shell in SHELLS:
            outcome = recording.varve("completion", shell)
            self.assertEqual(outcome.returncode, 0, outcome)
            self.scripts[shell] = os.path.join(self.folder, "_varve" if shell == "zsh" else f".{shell}")
            with open(self.scripts[shell], "w", encoding="utf-8") as stream:
                stream.write(outcome.out)

    def offered(self, shell, line, described=False):
        """The words that `shell` offers for the end of `line`, with what they are if `described`."""
        if shell == "bash":
            outcome = recording.run(["bash", "--norc", "-c", BASH, "bash", self.scripts[shell], *words_of_bash(line)],
                                    cwd=self.folder, env=self.environment)
        else:
            outcome = recording.run(["fish", "--no-config", "-c", f"source {self.scripts[shell]}; complete -C"
                                                                  f" '{line}'"],
                                    cwd=self.folder, env=self.environment)
        self.assertEqual(outcome.err, "", outcome)
        return [one if described else one.split("\t")[0] for one in outcome.out.splitlines() if one]

    def typed(self, lines):
        """What zsh makes of each line when TAB is pressed at its end."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execvpe("zsh", ["zsh", "-f", "-i"], {**self.environment, "TERM": "dumb", "COLUMNS": "200"})

        def read_until(end):
            text = b""
            while end not in text:
                text += os.read(terminal, 4096)
            return text

        # the line editor gets a widget that prints what is in the line, apart from the echo
        for begun in (f"fpath=({self.folder} $fpath); autoload -U compinit; compinit -u -D; PROMPT=; unsetopt"
                      " list_ambiguous",
                      "show() { print -r -- \"<<$BUFFER>>\" }; zle -N show; bindkey '^X' show; echo rea''dy"):
            os.write(terminal, begun.encode() + b"\n")
        read_until(b"ready\r\n")
        made = []
        for line in lines:
            os.write(terminal, line.encode() + b"\t\x18")
            made.append(read_until(b">>").split(b"<<")[1].split(b">>")[0].decode())
            os.write(terminal, b"\x15")
        os.close(terminal)
        os.waitpid(pid, 0)
        return made

    def each(self, line, *words, absent=()):
        """bash and fish offer all of `words` and none of `absent`."""
        for shell in ("bash", "fish"):
            if shutil.which(shell):
                offered = self.offered(shell, line)
                for word in words:
                    self.assertIn(word, offered, (shell, line))
                for word in absent:
                    self.assertNotIn(word, offered, (shell, line))

    def test_commands(self):
        names = [line.split()[0] for line in recording.varve("help").out.splitlines() if line.startswith("  ")
                 and line[2].isalpha()]
        names = [name for name in names if name != "varve"]
        self.assertIn("report", names)
        self.each("varve ", *names)
        self.each("varve rep", "report", "replay", absent=["record", "leaks"])
        self.each("varve help ", *names)
        self.each("varve completion ", "bash", "zsh", "fish", absent=["two.db"])

    def test_options(self):
        self.each("varve report --", "--json", "--top", "--timeout", "--help", absent=["--cuda"])
        self.each("varve record --stacks ", "none", "native", absent=["two.db"])
        for shell in ("bash", "fish"):
            if shutil.which(shell):
                self.assertTrue(any(word.endswith("observe") for word in self.offered(shell, "varve record --torch=")),
                                shell)
        self.each("varve report --top ", absent=["two.db", "report"])
        self.each("varve report --json --", "--top", absent=["--json"])
        self.each("varve completion -", "-h", "--help", absent=["--words"])
        if shutil.which("fish"):
            self.assertIn("--json\tone JSON object with every figure", self.offered("fish", "varve report --js", True))
            self.assertIn("help\texplain a command", self.offered("fish", "varve hel", True))

    def test_words(self):
        """What the scripts are told, in which the shells differ."""
        for words, said in ((["report", "--top", ""], ":value\tN"), (["export", "a", "-otw"], ":files\t-o"),
                            (["record", "-q", "--", "ls", "--"], ":program\t4"), (["record", "--torch=o"],
                                                                                 "--torch=observe"),
                            (["record", "--torch", "=", "o"], "observe"), (["nothing", ""], ""), (["doctor", ""], "")):
            self.assertEqual(self.varve("completion", "--words", "--", *words).out.strip("\n"), said, words)

    def test_files(self):
        self.each("varve report tw", "two.db")
        self.each("varve export two.db -o tw", "two.db")
        self.each("varve diff two.db tw", "two.db")
        self.assertEqual(self.offered("bash", "varve report two.db tw"), [])
        self.each("varve doctor tw", absent=["two.db"])
        self.each("varve report -- tw", "two.db")
        self.each("varve compare two.db --json tw", "two.db")

    def test_programs(self):
        self.each("varve record -- tru", "true")
        self.each("varve record -q --stacks none tru", "true")
        self.each("varve record -- cat --number tw", "two.db")

    def test_zsh(self):
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed")
        made = {
            "varve repo": "varve report ",
            "varve report --jso": "varve report --json ",
            "varve record --overflow dr": "varve record --overflow drop ",
            "varve record --torch=ob": "varve record --torch=observe ",
            "varve record --stacks=nat": "varve record --stacks=native ",
            "varve completion --wor": "varve completion --wor",
            "varve report tw": "varve report two.db ",
            "varve report tra": "varve report trace\\ one.db ",
            "varve export x.pickle --output=tw": "varve export x.pickle --output=two.db ",
            "varve export x.pickle -otw": "varve export x.pickle -otwo.db ",
            "varve export x.pickle -o tw": "varve export x.pickle -o two.db ",
            "varve completion fi": "varve completion fish ",
            "varve record -q -- cat tw": "varve record -q -- cat two.db ",
        }
        self.assertEqual(self.typed(made), list(made.values()))

    def test_shells_take_the_scripts(self):
        for shell in SHELLS:
            if shutil.which(shell):
                checked = subprocess.run([shell, "-n", self.scripts[shell]], capture_output=True, text=True,
                                         check=False)
                self.assertEqual((checked.returncode, checked.stderr), (0, ""), shell)
        self.assert_refused(recording.varve("completion", "csh"), "csh")


if __name__ == "__main__":
    recording.main()
