#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Single-line faults in the product, to see how many of them the tests find: for whoever takes tests away.

    mutate.py plant COUNT SEED TREE       puts COUNT faults into a copy of the tree, all of them asleep, and lists them
    mutate.py run BUILD [JOBS [NUMBER…]]  wakes each (or those named) in turn and runs the tests that reach its line,
                                          the quickest first, until one fails; prints the share found
    mutate.py wake NUMBER BUILD           wakes a fault in what was built there, 0 none

Faults are conditions inverted, comparisons off by one, a call left out that takes a lock or that writes, counts or
hands on a record. They are drawn by the seed, from all folders of the product alike. A fault is compiled in beside
the right line and chosen by a number in the file, which `wake` changes in place: so one build serves all of them.

`run` works in JOBS boxes (default: as many as processors): the file system as it is, but what is written is the box's
own and goes with it. That wants root. First all tests run once, and note which faults they reach; what fails then
finds nothing. A test that fails with a fault counts if it passes without it, and fails again with it. What the quick
tier does not find is tried on the same tests in full size. x86-64 only."""

import collections
import concurrent.futures
import functools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

LAYERS = ("trace", "alloc", "storage", "analysis")
ELSEWHERE = re.compile(r"(^docs/examples/|_(aarch64|generic|none)\.c$|/no_protobuf\.c$)")
MAGIC = b"varve fault no."
ASLEEP, NOTING = 0, -1
LIMIT = 600  # seconds of a test without a fault
REACHED = "/tmp/varve-reached"  # one empty file a fault; written by plain system calls, for any program at any moment
HEADER = """#ifndef VARVE_MUTANT_H
#define VARVE_MUTANT_H
static volatile struct { char magic[16]; int number; } varve_mutant __attribute__((used)) = {"varve fault no.", 0};
static inline int varve_mutant_is(int number, const char *path)
{
    static volatile char noted[1024];
    if (varve_mutant.number == -1 && !noted[number]) {
        long fd = 2;                          /* open */
        register long mode __asm__("rdx") = 0666;
        __asm__ volatile("syscall" : "+a"(fd) : "D"(path), "S"(0x80041L), "r"(mode) : "rcx", "r11", "memory");
        if (fd >= 0) {
            long close = 3;
            noted[number] = 1;
            __asm__ volatile("syscall" : "+a"(close) : "D"(fd) : "rcx", "r11", "memory");
        }
    }
    return varve_mutant.number == number;
}
#define MUTANT(n) varve_mutant_is(n, "REACHED/" #n)
#endif
""".replace("REACHED", REACHED)
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
        yield "condition", f"{found[1]}({found[2]}) ? !MUTANT(@) : MUTANT(@){found[3]}", "inverted"
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
    planted = draw(candidates(tree), int(count), int(seed))
    listed = []
    for number, (kind, path, line, new, does) in enumerate(planted, 1):
        with open(os.path.join(tree, path), encoding="utf-8") as stream:
            lines = stream.read().split("\n")
        was = lines[line - 1].strip()
        listed.append({"number": number, "kind": kind, "file": path, "line": line, "was": was, "does": does})
        print(f"{number:3} {kind:10} {path}:{line}: {was}  ->  {does}")
        lines[line - 1] = new.replace("MUTANT(@)", f"MUTANT({number})")
        with open(os.path.join(tree, path), "w", encoding="utf-8") as stream:
            stream.write("\n".join(lines))
    for path in sorted({one["file"] for one in listed}):
        with open(os.path.join(tree, path), encoding="utf-8") as stream:
            text = stream.read()
        with open(os.path.join(tree, path), "w", encoding="utf-8") as stream:
            stream.write(HEADER + text)
    with open(os.path.join(tree, "mutants.json"), "w", encoding="utf-8") as stream:
        json.dump(listed, stream, indent=1)


@functools.lru_cache
def places(build):
    """[(path, offsets)] of the numbers in what was built."""
    found = []
    for folder, _, names in os.walk(build):
        for name in names:
            path = os.path.join(folder, name)
            if "CMakeFiles" in path or os.path.islink(path) or name.endswith((".a", ".o", ".db")):
                continue
            with open(path, "rb") as stream:
                data = stream.read() if stream.read(4) == b"\x7fELF" else b""
            offsets = [match.end() + 4 for match in re.finditer(re.escape(MAGIC + b"\0"), data)]
            if offsets:
                found.append((path, offsets))
    return found


def wake(number, build):
    for path, offsets in places(build):
        with open(path, "rb") as stream:
            data = bytearray(stream.read())
        for offset in offsets:
            data[offset:offset + 4] = int(number).to_bytes(4, "little", signed=True)
        with open(path + ".woken", "wb") as stream:  # a program that is still ending can't be written to
            stream.write(data)
        shutil.copymode(path, path + ".woken")
        os.replace(path + ".woken", path)


def has_passed(build, test, limit=LIMIT):
    """In a box: nothing of the test outlives this call."""
    command = ["ctest", "-R", f"^{re.escape(test)}$"]
    try:
        ended = subprocess.run(command, cwd=build, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               text=True, timeout=limit)
        return "100% tests passed" in ended.stdout
    except subprocess.TimeoutExpired:
        return False
    finally:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            pass


def reach(build, test):
    """In a box: which faults the test reaches, all (None) if it does not bear to be asked."""
    wake(NOTING, build)
    os.makedirs(REACHED, exist_ok=True)
    os.chmod(REACHED, 0o1777)
    begun = time.monotonic()
    reached = [int(name) for name in os.listdir(REACHED)] if has_passed(build, test) else None
    seconds = time.monotonic() - begun
    wake(ASLEEP, build)
    passed = reached is not None or has_passed(build, test)
    return {"test": test, "seconds": seconds, "reached": reached, "passed": passed}


def attempt(build, number, tests, full=""):
    """In a box: the first of the tests that finds the fault."""
    os.environ["VARVE_FULL"] = full
    for test, seconds in json.loads(tests):
        limit = LIMIT if full else 30 + 5 * seconds
        wake(number, build)
        if not has_passed(build, test, limit):
            wake(ASLEEP, build)
            is_sound = has_passed(build, test, limit)
            wake(number, build)
            if is_sound and not has_passed(build, test, limit):
                return {"found": test}
    return {"found": None}


def boxed(verb, build, *operands):
    """The answer of a verb of this program, run in a box."""
    script = """set -e; mount -t tmpfs none /mnt; cd /mnt; mkdir up work root
        mount -t overlay -o lowerdir=/,upperdir=up,workdir=work overlay root
        mount -t proc proc root/proc; mount --rbind /dev root/dev; mount -t tmpfs -o mode=1777 none root/dev/shm
        mount --rbind /sys root/sys; VARVE_BOX=1 chroot root "$@"; exit """  # not exec: the shell waits for orphans
    command = ["unshare", "-mpf", "sh", "-c", script, "box", os.path.abspath(__file__), verb, build, *operands]
    ended = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    return json.loads(ended.stdout.splitlines()[-1]) if ended.returncode == 0 else None


def run(build, jobs=os.cpu_count(), *numbers):
    build = os.path.abspath(build)
    with open(os.path.join(os.path.dirname(build), "mutants.json"), encoding="utf-8") as stream:
        listed = [one for one in json.load(stream) if not numbers or str(one["number"]) in numbers]
    named = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, check=True, stdout=subprocess.PIPE)
    tests = [test["name"] for test in json.loads(named.stdout)["tests"] if not test["name"].startswith("gpu/")]
    with concurrent.futures.ThreadPoolExecutor(int(jobs)) as boxes:
        known = [one for one in boxes.map(lambda test: boxed("reach", build, test), tests) if one and one["passed"]]
        known.sort(key=lambda one: one["seconds"])
        print(f"mutate: {len(known)} of {len(tests)} tests pass without a fault", flush=True)

        def reaching(one):
            return [(test["test"], test["seconds"]) for test in known
                    if test["reached"] is None or one["number"] in test["reached"]]

        def is_found(one, tests, full=""):
            result = boxed("attempt", build, str(one["number"]), json.dumps(tests), full)
            if result is None or result["found"] or not full:
                by = "BROKEN" if result is None else f"found by {result['found']}" if result["found"] else "NOT FOUND"
                print(f"{one['number']:3} {by}{' in full size' if full else ''}, reached by {len(reaching(one))}  "
                      f"{one['kind']} {one['file']}:{one['line']}", flush=True)
            return bool(result and result["found"])

        in_quick = list(boxes.map(lambda one: is_found(one, reaching(one)), listed))
        left = [(one, [test]) for one, found in zip(listed, in_quick) if not found for test in reaching(one)]
        in_full = boxes.map(lambda pair: is_found(*pair, "1"), left)
        full = {one["number"] for (one, _), found in zip(left, in_full) if found}
    print(f"mutate: {sum(in_quick)} of {len(listed)} faults found, and {len(full)} in full size alone")


VERBS = {"plant": plant, "run": run, "wake": wake, "reach": reach, "attempt": attempt}

if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in VERBS:
        sys.exit(__doc__)
    if sys.argv[1] in ("reach", "attempt") and "VARVE_BOX" not in os.environ:
        sys.exit("mutate: only in a box: all processes are killed there")
    answered = VERBS[sys.argv[1]](*sys.argv[2:])
    if answered is not None:
        print(json.dumps(answered))
