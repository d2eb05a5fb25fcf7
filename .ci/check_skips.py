#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the tests left out, against the list of what they may: .ci/skips.txt. Reads the log of the last ctest run of
each preset and fails on a skipped test, case or part of a case that is not in the list.

usage: check_skips.py PRESET… [--list FILE] [--log FILE]"""

import argparse
import fnmatch
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WHOLE = "-"
TEST = re.compile(r"^\d+/\d+ Testing: (\S+)$")
# What a test prints by itself (tests/cmocka.h, tests/recording.py); ctest knows of whole tests only.
SKIPPED = re.compile(r"^skipped(?: (?:case|part of) (?P<case>[^:]+))?: (?P<reason>.*)$")
RESULT = re.compile(r"^Test Skipped\.$")


def allowed(path):
    """(test, case, presets, reason) of each line; all but the presets are patterns as of a shell."""
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            fields = [field.strip() for field in line.split("|")]
            if len(fields) != 4 or not all(fields):
                sys.exit(f"check_skips: {path}:{number}: not 'test | case | presets | reason'")
            yield fields[0], fields[1], fields[2].split(), fields[3]


def skips(path):
    """(test, case, reason) of each skip that a log of ctest reports; a skipped test without a word has no reason."""
    test, reported = None, False
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            line = line.rstrip("\n")
            if TEST.match(line):
                test, reported = TEST.match(line).group(1), False
            elif test and SKIPPED.match(line):
                found = SKIPPED.match(line)
                reported = True
                yield test, found["case"] or WHOLE, found["reason"]
            elif test and RESULT.match(line) and not reported:
                yield test, WHOLE, ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("presets", nargs="+")
    parser.add_argument("--list", default=os.path.join(ROOT, ".ci", "skips.txt"))
    parser.add_argument("--log", help="instead of the one in the preset's build folder")
    options = parser.parse_args()
    rules = list(allowed(options.list))
    known = unknown = 0
    for preset in options.presets:
        build = "build" if preset == "release" else f"build-{preset}"
        log = options.log or os.path.join(ROOT, build, "Testing", "Temporary", "LastTest.log")
        if not os.path.exists(log):
            sys.exit(f"check_skips: no log of {preset}, {log}: run ./dev test {preset}")
        for skip in skips(log):
            if any(preset in presets and all(map(fnmatch.fnmatchcase, skip, (test, case, reason)))
                   for test, case, presets, reason in rules):
                known += 1
                continue
            unknown += 1
            print(f"not in {os.path.basename(options.list)}: "
                  f"{' | '.join((*skip[:2], preset, skip[2] or 'no reason reported'))}")
    print(f"check_skips: {'FAILED, ' + str(unknown) + ' finding(s)' if unknown else 'ok'}; {known} listed skips")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
