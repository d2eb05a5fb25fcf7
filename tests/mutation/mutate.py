#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Single-line faults in the product, to see how many of them the tests find: for whoever takes tests away.

    mutate.py plant COUNT SEED TREE     puts COUNT faults into a copy of the tree, all of them asleep, and lists them
    mutate.py wake N BUILD              wakes fault N in what was built there, 0 none
    mutate.py run BUILD [TEST_REGEX]    wakes each in turn and runs the tests until one fails; prints the share found

Faults are conditions inverted, comparisons off by one, a call left out that takes a lock or that writes, counts or
hands on a record. They are drawn by the seed, from all folders of the product alike. A fault is compiled in beside
the right line and chosen by a number in the file, which `wake` changes in place: so one build serves all of them. """

import collections
import json
import os
import random
import re
import subprocess
import sys

LAYERS = ("trace", "alloc", "storage", "analysis")
ELSEWHERE = re.compile(r"(^storage/examples/|_(aarch64|generic|none)\.c$|/no_protobuf\.c$)")
MAGIC = b"varve fault no."
HEADER = """#ifndef VARVE_MUTANT_H
#define VARVE_MUTANT_H
static volatile struct { char magic[16]; int number; } varve_mutant __attribute__((used)) = {"varve fault no.", 0};
#define MUTANT(n) (varve_mutant.number == (n))
#endif
"""
CONDITION = re.compile(r"^(\s*(?:\} else )?(?:if|while) \()(.+)(\) \{)$")
LOOP = re.compile(r"^(\s*for \([^;]*; )([^;]+)(; [^;]*\) \{)$")
STATEMENT = re.compile(r"^(\s+)((\w+)\(.*\);)$")
COMPARISON = re.compile(r" (<=?|>=?) (?!0\b)")  # "> 0" of what is unsigned is found by the compiler
OFF_BY_ONE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
LOCKS = re.compile(r"(^|_)(un)?lock(_|$)|mutex_lock")
RECORDS = re.compile(r"(^|_)(emit|append|store|note|count|add|push|insert|record|write|publish|commit)(_|$)")


def is_balanced(text):
    depth = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return False
    return depth == 0


def faults_of_line(line):
    """(kind, line with MUTANT(@), what it does) for each way to break the line."""
    found = CONDITION.match(line)
    if found and is_balanced(found[2]) and '"' not in line:
        yield "condition", f"{found[1]}!!({found[2]}) != MUTANT(@){found[3]}", "inverted"
    loop = LOOP.match(line) or found
    if loop and is_balanced(loop[2]) and len(COMPARISON.findall(loop[2])) == 1:
        wrong = COMPARISON.sub(lambda one: f" {OFF_BY_ONE[one[1]]} ", loop[2])
        yield "off by one", f"{loop[1]}MUTANT(@) ? ({wrong}) : ({loop[2]}){loop[3]}", wrong
    found = STATEMENT.match(line)
    if found and is_balanced(found[2]) and found[2].count(";") == 1:
        if LOCKS.search(found[3]) and "unlock" not in found[3]:
            yield "lock", f"{found[1]}if (!MUTANT(@)) {{ {found[2]} }}", "left out"
        elif RECORDS.search(found[3]):
            yield "record", f"{found[1]}if (!MUTANT(@)) {{ {found[2]} }}", "left out"


def candidates(tree):
    """folder -> kind -> [(file, line number, new line, what it does)]"""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for layer in LAYERS:
        for folder, _, names in sorted(os.walk(os.path.join(tree, layer))):
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), tree)
                if not name.endswith(".c") or ELSEWHERE.search(path):
                    continue
                with open(os.path.join(tree, path), encoding="utf-8") as lines:
                    lines = lines.read().split("\n")
                for number, line in enumerate(lines, 1):
                    if number > 1 and lines[number - 2].endswith("\\") or line.endswith("\\"):
                        continue  # inside a macro
                    for kind, new, does in faults_of_line(line):
                        found["/".join(path.split("/")[:2])][kind].append((path, number, new, does))
    return found


def draw(found, count, seed):
    """One fault a folder in turn, of the kinds in turn; none twice in a line."""
    chance = random.Random(seed)
    folders, kinds, drawn, lines = sorted(found), ["condition", "off by one", "lock", "record"], [], set()
    chance.shuffle(folders)
    turn = 0
    while len(drawn) < count:
        folder = folders[turn % len(folders)]
        wanted = [kinds[(turn + turn // len(folders)) % 4], "condition", "off by one"]
        turn += 1
        for kind in wanted:
            left = [one for one in found[folder][kind] if one[:2] not in lines]
            if left:
                one = chance.choice(left)
                lines.add(one[:2])
                drawn.append((kind, *one))
                break
    return drawn


def plant(count, seed, tree):
    planted = draw(candidates(tree), count, seed)
    listed = []
    for number, (kind, path, line, new, does) in enumerate(planted, 1):
        with open(os.path.join(tree, path), encoding="utf-8") as stream:
            lines = stream.read().split("\n")
        listed.append({"number": number, "kind": kind, "file": path, "line": line, "was": lines[line - 1].strip(), "does": does})
        print(f"{number:3} {kind:10} {path}:{line}: {lines[line - 1].strip()}  ->  {does}")
        lines[line - 1] = new.replace("@", str(number), 1) if kind != "off by one" else new.replace("MUTANT(@)", f"MUTANT({number})")
        with open(os.path.join(tree, path), "w", encoding="utf-8") as stream:
            stream.write("\n".join(lines))
    for path in sorted({one["file"] for one in listed}):
        with open(os.path.join(tree, path), encoding="utf-8") as stream:
            text = stream.read()
        with open(os.path.join(tree, path), "w", encoding="utf-8") as stream:
            stream.write(HEADER + text)
    with open(os.path.join(tree, "mutants.json"), "w", encoding="utf-8") as stream:
        json.dump(listed, stream, indent=1)


def wake(number, build):
    for folder, _, names in os.walk(build):
        if "CMakeFiles" in folder:
            continue
        for name in names:
            path = os.path.join(folder, name)
            if os.path.islink(path) or not os.path.isfile(path) or name.endswith((".a", ".o", ".db")):
                continue
            with open(path, "rb") as stream:
                if stream.read(4) != b"\x7fELF":
                    continue
                data = MAGIC[:0] + b"\x7fELF" + stream.read()
            at, places = data.find(MAGIC + b"\0"), []
            while at >= 0:
                places.append(at + 16)
                at = data.find(MAGIC + b"\0", at + 16)
            if places:
                with open(path, "r+b") as stream:
                    for place in places:
                        stream.seek(place)
                        stream.write(number.to_bytes(4, "little"))


def run(build, tests):
    with open(os.path.join(os.path.dirname(os.path.abspath(build)), "mutants.json"), encoding="utf-8") as stream:
        listed = json.load(stream)
    found = 0
    for one in listed:
        wake(one["number"], build)
        ended = subprocess.run(["ctest", "--stop-on-failure", "-j2", "-R", tests], cwd=build, check=False,
                               stdout=subprocess.PIPE, text=True)
        found += ended.returncode != 0
        failed = re.search(r"- (\S+) \(", ended.stdout)
        print(f"{one['number']:3} {'found by ' + failed[1] if failed else 'NOT FOUND'}  "
              f"{one['kind']} {one['file']}:{one['line']}", flush=True)
    wake(0, build)
    print(f"mutate: {found} of {len(listed)} faults found")


if __name__ == "__main__":
    if sys.argv[1:2] == ["plant"] and len(sys.argv) == 5:
        plant(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    elif sys.argv[1:2] == ["wake"] and len(sys.argv) == 4:
        wake(int(sys.argv[2]), sys.argv[3])
    elif sys.argv[1:2] == ["run"] and len(sys.argv) in (3, 4):
        run(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else ".")
    else:
        sys.exit(__doc__)
