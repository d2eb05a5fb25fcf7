#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Warnings of another compiler, or of another configuration, without making anything: each C file of a compilation
database once for each set of macros, with -fsyntax-only and its own warnings as errors.

usage: check_syntax.py COMPILER BUILD_DIR [OTHER_BUILD_DIR]

With OTHER_BUILD_DIR only what BUILD_DIR compiles in another way than that one."""

import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys

KEPT = re.compile(r"-(D|U|I|std=|W(?!l,)|f(no-)?(builtin|exceptions|sized))|-isystem$")
NOT_CLANGS = re.compile(r"-W(no-)?(tsan|nested-externs)$")


def commands(build):
    """(file, arguments) of each way in which a file is compiled; paths of the build folder are made alike."""
    build = os.path.abspath(build)
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as stream:
        for command in json.load(stream):
            words, kept = shlex.split(command["command"]), []
            for word, after in zip(words, words[1:] + [""]):
                if KEPT.match(word) and not word.endswith("_EXPORTS"):
                    kept.append(word)
                    if word == "-isystem":
                        kept.append(after)
            file = os.path.normpath(os.path.join(command["directory"], command["file"]))
            if file.endswith(".c"):
                yield file.replace(build, "@BUILD@"), tuple(word.replace(build, "@BUILD@") for word in kept)


def check(compiler, build, file, arguments):
    words = [word.replace("@BUILD@", build) for word in arguments]
    if "clang" in compiler:
        words = [word for word in words if not NOT_CLANGS.match(word)] + ["-Wno-unknown-warning-option"]
    done = subprocess.run([compiler, "-fsyntax-only", *words, file.replace("@BUILD@", build)],
                          check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def main():
    compiler, build = sys.argv[1], os.path.abspath(sys.argv[2])
    todo = set(commands(build))
    if len(sys.argv) > 3:
        todo -= set(commands(sys.argv[3]))
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for status, text in pool.map(lambda one: check(compiler, build, *one), sorted(todo)):
            print(text, end="")
            failed += status != 0
    print(f"check_syntax: {'FAILED' if failed else 'ok'}; {compiler}, {len(todo)} files")
    return 1 if failed or not todo else 0


if __name__ == "__main__":
    sys.exit(main())
