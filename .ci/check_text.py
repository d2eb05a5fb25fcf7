#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Text that must not stay: commented-out code, open-work markers, stray tags, paths of somebody's machine, lines of
more than 120 characters, links and paths of documents that lead nowhere; and the licence line that each source
file begins with."""

import ast
import os
import re

import tree

LICENCE = "SPDX-License-Identifier: Apache-2.0"
LICENSED = (".c", ".h", ".cc", ".py", ".sh", ".cmake", "CMakeLists.txt", ".ci/run", "dev")
BINARY = (".db", ".gz", ".xz", ".zst", ".png", ".pickle", ".o", ".so", ".a", ".svg")
COLUMNS = 120
NOT_TEXT = ("/corpus/", "/data/", "tests/golden/expected/")  # recorded inputs and answers: whole as they are
SAMPLES = (".csv", ".json", ".log")
C_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
EXAMPLE = re.compile(r"\b(example|usage|for instance)\b", re.I)
C_CODE = re.compile(
    r"^(?:#\s*(?:if|ifdef|ifndef|endif|define|include)\b.*"
    r"|(?:if|for|while|switch)\s*\(.*\)\s*\{?"
    r"|\}?\s*else\s*\{|(?:return|break|continue|goto)\b[^.]*;"
    r"|[\w.>*&\[\]()-]+(?:\s+\**\w+)?\s*[-+|&*/]?=[^=].*;"
    r"|(?:[\w*]+\s+)*\*?\w+(?:(?:->|\.)\w+)*\(.*\)\s*[;{]"
    r"|(?:static|const|struct|int|char|size_t|uint\d+_t|void)\s[\w\s*]+;)$")
MARKERS = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
TAGS = re.compile(
    r"^(?:<{7}|>{7}|\|{7})(?: |$)"
    r"|</(?:file|content|parameter|invoke|function_calls|answer|result|document|artifact|thinking)>"
    r"|<(?:parameter|invoke|function_calls|artifact|thinking|content)(?:\s[^>]*)?>"
    r"|\[(?:spec|bot|ai|gen)[\w-]*\s[\w-]+\]")
PATHS = re.compile(r"(?<![\w.$}])/(?:home|work|root|Users)/\w")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)[^)]*\)")
NAMED = re.compile(r"`((?:base|trace|alloc|storage|analysis|tests|notebooks|docs|cmake|\.ci)/[\w./-]+)`")
PLACEHOLDER = re.compile(r"(?<![A-Za-z0-9])(?!README)[A-Z]{3,}(?![A-Za-z0-9])")


def c_comments(source):
    """(line number, lines) of each comment; neighbouring // comments count as one."""
    literals = re.sub(r'"(?:\\.|[^"\\\n])*"', lambda m: '"' + tree.blank(m.group(0)[1:-1]) + '"', source)
    last = None
    for match in C_COMMENT.finditer(literals):
        first = literals.count("\n", 0, match.start()) + 1
        lines = match.group(0).splitlines()
        if last and lines[0].startswith("//") and last[0] + len(last[1]) == first:
            last[1].extend(lines)
            continue
        if last:
            yield last
        last = (first, lines)
    if last:
        yield last


def commented_c(source):
    for first, lines in c_comments(source):
        if EXAMPLE.search("\n".join(lines)):
            continue
        for index, line in enumerate(lines):
            text = re.sub(r"^\s*(?:/\*+|//+!?|\*+/?)?<?\s*|\s*\*+/\s*$", "", line).strip()
            if C_CODE.match(text):
                yield first + index, text


def commented_python(source):
    for number, line in enumerate(source.splitlines(), 1):
        match = re.match(r"\s*#+\s?(.*)$", line)
        if not match or number == 1:
            continue
        text = match.group(1).strip()
        try:
            statements = ast.parse(text + (" pass" if text.endswith(":") else "")).body
        except (SyntaxError, ValueError):
            continue
        for statement in statements:
            value = getattr(statement, "value", None)
            code = isinstance(statement, (ast.Import, ast.ImportFrom, ast.If, ast.For, ast.While, ast.With))
            if code or (isinstance(statement, (ast.Expr, ast.Assign, ast.Return)) and isinstance(value, ast.Call)):
                yield number, text


def check_licence(path, source, root):
    lines = source.splitlines()
    first = lines[1] if len(lines) > 1 and lines[0].startswith("#!") else (lines[0] if lines else "")
    if lines and LICENCE not in first:
        yield f"{path}:1: the first line (after #!) must hold '{LICENCE}'"
    if lines and lines[0].startswith("#!") and not os.access(os.path.join(root, path), os.X_OK):
        yield f"{path}:1: begins with #! but is not executable"


def check_columns(path, source):
    if path.endswith(SAMPLES) or any(part in path for part in NOT_TEXT):
        return
    for number, line in enumerate(source.splitlines(), 1):
        if len(line) > COLUMNS:
            yield f"{path}:{number}: {len(line)} characters; a line has at most {COLUMNS}"


def check_links(path, source, root):
    """Markdown's links to files, and paths of the tree in backticks; a capital NAME stands for any."""
    lines = re.sub(r"^```.*?^```", lambda match: tree.blank(match.group(0)), source, flags=re.M | re.S).splitlines()
    for number, line in enumerate(lines, 1):
        for target in LINK.findall(line):
            if not os.path.exists(os.path.join(root, os.path.dirname(path), target)):
                yield f"{path}:{number}: a link to {target}, which does not exist"
        for named in NAMED.findall(line):
            exists = any(os.path.exists(os.path.join(root, named + end)) for end in ("", ".c", ".h", ".py"))
            if not exists and not PLACEHOLDER.search(named):
                yield f"{path}:{number}: names {named}, which does not exist"


def check_lines(path, source):
    for number, line in enumerate(source.splitlines(), 1):
        where = f"{path}:{number}: "
        if MARKERS.search(line):
            yield where + "open-work marker; do it or open an entry in the tracker"
        if TAGS.search(line):
            yield where + "stray tag or conflict marker"
        if PATHS.search(line):
            yield where + "path of somebody's machine"
        if line != line.rstrip():
            yield where + "white space at the end of the line"
        if path.endswith((".c", ".h")) and re.match(r"\s*#\s*if\s+0\b", line):
            yield where + "code switched off by #if 0"
        if "\t" in line and path.endswith((".c", ".h", ".py", ".sh", ".cmake", ".sql", "CMakeLists.txt")):
            yield where + "tab"
    if source and not source.endswith("\n"):
        yield f"{path}: no newline at the end"


def main():
    root = tree.root_from_arguments()
    errors, count = [], 0
    for path in tree.files(root):
        if path.endswith(BINARY) or path == "LICENSE" or "/data/" in path or "/corpus/" in path:
            continue
        source = tree.read(root, path)
        count += 1
        errors += check_lines(path, source)
        errors += check_columns(path, source)
        if path.endswith(".md"):
            errors += check_links(path, source, root)
        if path.endswith(LICENSED):
            errors += check_licence(path, source, root)
        found = ()
        if path.endswith((".c", ".h", ".cc")):
            found = commented_c(source)
        elif path.endswith(".py"):
            found = commented_python(source)
        errors += [f"{path}:{number}: commented-out code? {text}" for number, text in found]
    tree.finish("check_text", errors, f"{count} files")


if __name__ == "__main__":
    main()
