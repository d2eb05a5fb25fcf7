# SPDX-License-Identifier: Apache-2.0
"""What the checks share: the files of the tree, C source without comments and strings, and the way to report."""

import os
import re
import sys

LAYER_FOLDERS = ("base", "trace", "alloc", "storage", "analysis", "tests")
SKIPPED_FOLDERS = {".git", "__pycache__", ".venv", "node_modules"}
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def root_from_arguments():
    """The tree to check: the first argument, else the one that this file lies in."""
    if len(sys.argv) > 1:
        return os.path.abspath(sys.argv[1])
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def files(root, suffixes=None):
    """Paths relative to root, sorted; build folders and version control left out."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS and not f.startswith("build"))
        for name in names:
            if name != ".git" and (suffixes is None or name.endswith(suffixes)):
                found.append(os.path.relpath(os.path.join(folder, name), root))
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as stream:
        return stream.read()


def blank(text):
    """Spaces in place of every character but newlines."""
    return re.sub(r"[^\n]", " ", text)


def without_comments(source, strings=False):
    """C source in which comments (and literals, if strings) are blanked; offsets and line numbers stay."""

    def replace(match):
        token = match.group(0)
        if token[0] == "/":
            return blank(token)
        return token[0] + blank(token[1:-1]) + token[-1] if strings else token

    return TOKEN.sub(replace, source)


def finish(check, errors, summary):
    """Print the findings and end with 1 if there are any."""
    for error in errors:
        print(error)
    print(f"{check}: {'FAILED, ' + str(len(errors)) + ' finding(s)' if errors else 'ok'}; {summary}")
    sys.exit(1 if errors else 0)
