#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Include direction between folders, external dependencies and cycles, by the rules of .ci/layers.txt; and what
docs/architecture.md says of them: the picture of the folders, and the functions on the paths that it walks."""

import fnmatch
import os
import re
import textwrap

import tree

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.M)
SOURCES = (".c", ".h", ".cc", ".hpp", ".inc")
ARCHITECTURE = "docs/architecture.md"
WALKED = re.compile(r"`(\w+)`\s+\(`([\w./-]+)`\)")


class Rules:
    """.ci/layers.txt, read."""

    def __init__(self, text):
        self.folders, self.public, self.open, self.only, self.generated = {}, {}, set(), [], []
        self.errors = []
        joined = re.sub(r"\n[ \t]+(?=\S)", " ", text)  # what a line goes on with is indented
        for line in joined.splitlines():
            words = line.split("#")[0].split()
            if words:
                self.take(".ci/layers.txt: ", words, line)

    def take(self, where, words, line):
        if words[0] == "folder" and len(words) >= 2:
            for name in words[2:]:
                if name not in self.folders and name not in sum(self.public.values(), []):
                    self.errors.append(where + f"{words[1]} may include {name}, which is not above it")
            self.folders[words[1]] = set(words[2:])
        elif words[0] == "public" and len(words) >= 3:
            self.public[words[1]] = words[2:]
        elif words[0] == "open" and len(words) == 2:
            self.open.add(words[1])
        elif words[0] == "only" and len(words) >= 3:
            self.only.append((words[1], words[2:]))
        elif words[0] == "generated" and len(words) == 2:
            self.generated.append(words[1])
        else:
            raise SystemExit(f"{where}not understood: {line}")


def top(path):
    return path.split("/")[0]


def resolve(paths, includer, name):
    """The file of the tree that an include names, or None for one of the system's."""
    folders = [os.path.dirname(includer), ""] + (["tests"] if includer.startswith("tests/") else [])
    for folder in folders:
        path = os.path.normpath(os.path.join(folder, name))
        if path in paths:
            return path
    return None


def check_direction(rules, includer, included):
    source, target = os.path.dirname(includer), os.path.dirname(included)
    if source == target or top(source) in rules.open:
        return None
    if top(target) in rules.open:
        return f"includes {included}; nobody includes {top(target)}/"
    if source not in rules.folders:
        return f"lies in {source}/, which .ci/layers.txt does not know"
    allowed = rules.folders[source]
    if target in allowed or included in allowed:
        return None
    doors = rules.public.get(top(target), [])
    if top(source) != top(target) and included not in doors:
        return f"includes {included}; outsiders include only {' '.join(doors) or 'nothing of it'}"
    return f"includes {included}; {source}/ may include only: {' '.join(sorted(allowed)) or '-'}"


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


def reaches(rules, above, below):
    return any(below == name or reaches(rules, name, below) for name in rules.folders.get(above, ()))


def picture(rules):
    """The arrows between folders, but for those that follow from others, as docs/architecture.md shows them."""
    lines = []
    for folder, allowed in rules.folders.items():
        needed = sorted(name for name in allowed
                        if not any(other != name and reaches(rules, other, name) for other in allowed))
        line = f"{folder:<28} ─► {', '.join(needed)}" if needed else folder
        lines += textwrap.wrap(line, 110, subsequent_indent=" " * 32, drop_whitespace=True, break_on_hyphens=False)
    return "\n".join(lines)


def check_architecture(rules, root):
    text = tree.read(root, ARCHITECTURE)
    block = "```\n" + picture(rules) + "\n```"
    if block not in text:
        yield f"{ARCHITECTURE}: the picture of the folders is not that of .ci/layers.txt; it is:\n" + block
    walked = WALKED.findall(text)
    for function, path in walked:
        if not os.path.isfile(os.path.join(root, path)):
            yield f"{ARCHITECTURE}: there is no {path}"
        elif not re.search(rf"\b{function}\b", tree.read(root, path)):
            yield f"{ARCHITECTURE}: {path} knows no {function}"
    if not walked:
        yield f"{ARCHITECTURE}: no path is walked: a step names a function and its file as `name` (`file`)"


def main():
    root = tree.root_from_arguments()
    rules = Rules(tree.read(root, ".ci/layers.txt"))
    tops = {top(folder) for folder in rules.folders} | rules.open
    paths = [p for p in tree.files(root, SOURCES) if top(p) in tops]
    errors, graph = list(rules.errors), {}
    for path in paths:
        errors += check_file(rules, root, set(paths), path, graph)
    errors += check_architecture(rules, root)
    cycle = find_cycle(graph)
    if cycle:
        errors.append("include cycle: " + " -> ".join(cycle))
    tree.finish("check_includes", errors, f"{len(paths)} source files, {len(rules.folders)} folders")


if __name__ == "__main__":
    main()
