#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Include direction, external dependencies, cycles and unique file names, by the rules of .ci/layers.txt."""

import fnmatch
import os
import re

import tree

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.M)
SOURCES = (".c", ".h", ".cc", ".hpp", ".inc")
NAMED_ALIKE = {"__init__.py", "conftest.py"}


class Rules:
    def __init__(self, text):
        self.layers, self.open, self.only, self.generated = {}, set(), [], []
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            if words[0] == "layer" and len(words) >= 3:
                self.layers[words[1]] = (words[2], set(words[3:]))
            elif words[0] == "open" and len(words) == 2:
                self.open.add(words[1])
            elif words[0] == "only" and len(words) >= 3:
                self.only.append((words[1], words[2:]))
            elif words[0] == "generated" and len(words) == 2:
                self.generated.append(words[1])
            else:
                raise SystemExit(f".ci/layers.txt:{number}: not understood: {line}")


def resolve(paths, includer, name):
    """The file of the tree that an include names, or None for one of the system's."""
    folders = [os.path.dirname(includer), ""] + (["tests"] if includer.startswith("tests/") else [])
    for folder in folders:
        path = os.path.normpath(os.path.join(folder, name))
        if path in paths:
            return path
    return None


def check_direction(rules, includer, included):
    source, target = includer.split("/")[0], included.split("/")[0]
    if source == target or source in rules.open:
        return None
    if target in rules.open:
        return f"includes {included}; nobody includes {target}/"
    if source not in rules.layers or target not in rules.layers:
        return f"includes {included}, which is in no layer that {source}/ may use"
    if target not in rules.layers[source][1]:
        return f"includes {included}; {source}/ may include only: {' '.join(sorted(rules.layers[source][1])) or '-'}"
    if included != rules.layers[target][0]:
        return f"includes {included}; outsiders include only {rules.layers[target][0]}"
    return None


def check_external(rules, includer, name):
    for pattern, allowed in rules.only:
        if fnmatch.fnmatch(name, pattern) and not any(fnmatch.fnmatch(includer, a) for a in allowed):
            return f"includes <{name}>; only {' '.join(allowed)} may"
    return None


def find_cycle(graph):
    """One cycle of the include graph as a list of files, or None."""
    state = {}

    def visit(node, path):
        state[node] = "open"
        for following in graph.get(node, ()):
            if state.get(following) == "open":
                return path[path.index(following):] + [following]
            if following not in state:
                cycle = visit(following, path + [following])
                if cycle:
                    return cycle
        state[node] = "done"
        return None

    for node in sorted(graph):
        if node not in state:
            cycle = visit(node, [node])
            if cycle:
                return cycle
    return None


def check_file(rules, root, paths, path, graph):
    source = tree.without_comments(tree.read(root, path))
    for match in INCLUDE.finditer(source):
        where = f"{path}:{source.count(chr(10), 0, match.start()) + 1}: "
        quote, name = match.groups()
        included = resolve(paths, path, name)
        if included:
            graph.setdefault(path, set()).add(included)
            error = check_direction(rules, path, included)
        elif quote == '"' and not any(fnmatch.fnmatch(name, g) for g in rules.generated):
            error = f'includes "{name}", which is not in the tree; use <> for headers of libraries'
        else:
            error = check_external(rules, path, name)
        if error:
            yield where + error
        if included and included.endswith(".c"):
            yield where + f"includes the source file {included}"


def check_names(paths):
    seen = {}
    for path in paths:
        name = os.path.basename(path)
        if name in NAMED_ALIKE or "golden/data/" in path or "conformance/data/" in path:
            continue
        if name in seen:
            yield f"{path}: file name used twice, also by {seen[name]}"
        seen.setdefault(name, path)


def main():
    root = tree.root_from_arguments()
    rules = Rules(tree.read(root, ".ci/layers.txt"))
    paths = [p for p in tree.files(root, SOURCES) if p.split("/")[0] in (*rules.layers, *rules.open)]
    errors, graph = [], {}
    for path in paths:
        errors += check_file(rules, root, set(paths), path, graph)
    cycle = find_cycle(graph)
    if cycle:
        errors.append("include cycle: " + " -> ".join(cycle))
    errors += check_names(tree.files(root, (*SOURCES, ".py", ".sh", ".sql")))
    tree.finish("check_includes", errors, f"{len(paths)} source files")


if __name__ == "__main__":
    main()
