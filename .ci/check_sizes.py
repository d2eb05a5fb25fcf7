#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sizes: a C function of more than 70 lines fails, and a README.md of more than 40 in a folder of the product. A file
may be as long as its subject; the longest are printed. Names: no two files of the product have one name, nor two
functions, but for those of which the build chooses one (by processor, or for what is not installed)."""

import os
import re

import tree

FUNCTION_MAX, README_MAX, SHOWN = 70, 40, 10
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
CHOSEN = re.compile(r"(_(x86_64|aarch64|generic|none|curses))?\.c$")
STANDS_IN = {"no_protobuf.c", "native_stack_generic.c"}
MACRO_LINE = re.compile(r"\s*[A-Z_][A-Z0-9_]*\s*(\([^(){};]*\))?\s*$")
HEAD = re.compile(r"([A-Za-z_]\w*)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\s*(?:__attribute__.*|[A-Z_]\w*.*)?$",
                  re.S)


def functions(source):
    """(name, first line, last line) of each function definition, found by its braces."""
    source = tree.without_comments(source, strings=True)
    source = DIRECTIVE.sub(lambda m: tree.blank(m.group(0)), source)
    source = re.sub(r'extern\s+"[ C]*"\s*\{', lambda m: tree.blank(m.group(0)), source)
    depth, parens, start, line, head = 0, 0, 0, 1, None
    for offset, char in enumerate(source):
        if char == "\n":
            line += 1
            if depth == 0 and parens == 0 and MACRO_LINE.match(source[start:offset]):
                start = offset + 1
        elif char in "()":
            parens += 1 if char == "(" else -1
        elif char == "{":
            if depth == 0:
                text = source[start:offset]
                match = None if "=" in text.split("(")[0] else HEAD.search(text.strip())
                first = line - text.lstrip().count("\n")
                head = (match.group(1), first) if match else None
            depth += 1
        elif char == "}":
            depth = max(0, depth - 1)
            if depth == 0:
                if head:
                    yield head[0], head[1], line
                start, head = offset + 1, None
        elif char == ";" and depth == 0 and parens == 0:
            start = offset + 1


def readmes(root):
    """Of the product's folders: tests, notebooks and documents may have more to say."""
    for path in tree.files(root, ("README.md",)):
        lines = tree.read(root, path).count("\n")
        if path.split("/")[0] in tree.LAYER_FOLDERS and not path.startswith("tests/") and lines > README_MAX:
            yield f"{path}: {lines} lines; at most {README_MAX}"


def shared_names(files):
    """What `files`, (path, its functions), call by one name in two places."""
    places = {}
    for path, functions_here in files:
        name = os.path.basename(path)
        places.setdefault(name, set()).add(path)
        for function in functions_here if path.endswith(".c") and name not in STANDS_IN else ():
            places.setdefault(function + "()", set()).add(CHOSEN.sub("", path))
    for name, found in sorted(places.items()):
        if len(found) > 1 and name != "main()":
            yield f"{name} is in {' and in '.join(sorted(found))}; a name of the product is there once"


def main():
    root = tree.root_from_arguments()
    errors, file_sizes, function_sizes, named = [], [], [], []
    for path in tree.files(root, (".c", ".h", ".cc", ".py", ".sh", ".sql")):
        source = tree.read(root, path)
        file_sizes.append((source.count("\n"), path))
        if not path.endswith((".c", ".h")):
            continue
        found = list(functions(source))
        if path.split("/")[0] in tree.LAYER_FOLDERS and not path.startswith("tests/"):
            named.append((path, [name for name, _, _ in found]))
        for name, first, last in found:
            function_sizes.append((last - first + 1, f"{path}:{first}: {name}"))
            if last - first + 1 > FUNCTION_MAX:
                errors.append(f"{path}:{first}: {name}() has {last - first + 1} lines; at most {FUNCTION_MAX}")
    errors += readmes(root)
    errors += shared_names(named)
    for title, sizes in (("files", file_sizes), ("functions", function_sizes)):
        print(f"largest {title}:")
        for size, where in sorted(sizes, reverse=True)[:SHOWN]:
            print(f"  {size:5} {where}")
    tree.finish("check_sizes", errors, f"{len(file_sizes)} files, {len(function_sizes)} functions")


if __name__ == "__main__":
    main()
