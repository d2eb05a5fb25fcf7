#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 25 s
# Only with an unsanitized command: programs are recorded.
"""docs/first-hour.md: each block is run, in one folder, and prints what the page says."""

import doctest
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

PAGE = os.path.join(recording.ROOT, "docs", "first-hour.md")
BLOCK = re.compile(r"^```(sh|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (.*\n(?:> .*\n)*)((?:(?!\$ ).*\n)*)", re.MULTILINE)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def steps():
    """(command, what it prints; None: what does not matter), in the order of the page."""
    with open(PAGE, encoding="utf-8") as stream:
        text = stream.read()
    for kind, block in BLOCK.findall(text):
        if kind == "sh":
            yield block, None
        else:
            yield from ((command.replace("\n> ", "\n"), wanted) for command, wanted in COMMAND.findall(block))


class FirstHour(recording.AttachCase):
    def setUp(self):
        super().setUp()
        if not os.access("/usr/bin/python3", os.X_OK):
            self.skipTest("there is no /usr/bin/python3")

    def test_page(self):
        checker = doctest.OutputChecker()
        path = os.pathsep.join([os.path.dirname(recording.VARVE), os.environ["PATH"]])
        count = 0
        for command, wanted in steps():
            outcome = recording.run(["bash", "-c", f"exec 2>&1\n{command}"], cwd=self.folder,
                                    env={**os.environ, "PATH": path, "TREE": recording.ROOT})
            self.assertEqual(outcome.returncode, 0, (command, outcome.out))
            count += 1
            if wanted is not None and not checker.check_output(wanted, outcome.out, FLAGS):
                example = doctest.Example(command, wanted)
                self.fail(f"$ {command}\n" + checker.output_difference(example, outcome.out, FLAGS))
        self.assertGreater(count, 20)


if __name__ == "__main__":
    recording.main()
