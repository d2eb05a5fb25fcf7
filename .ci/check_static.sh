#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# clang-tidy over every C file of the compilation database, with clang's own warnings. --deep: with its path analyzer,
# which takes fifteen times as long, and cppcheck over the folders. What they are configured to ignore stands with its
# reason in .clang-tidy and .ci/suppressions/cppcheck.txt. Both see the assertions, which the release build leaves out:
# they are what the code says of its invariants. The path analyzer looks at the product only: for the tests it takes as
# long again, most of it in cmocka's macros.
#
# usage: check_static.sh [--deep] [BUILD_DIR [ROOT]]

set -eu
is_deep=no
if [ "${1:-}" = --deep ]; then
    is_deep=yes
    shift
fi
ci=$(cd "$(dirname "$0")" && pwd)
root=$(cd "${2:-$ci/..}" && pwd)
cd "$root"
build=${1:-$root/build}
failed=0

if [ ! -e "$build/compile_commands.json" ]; then
    echo "check_static: $build has no compile_commands.json; run ./dev build first" >&2
    exit 2
fi
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A file that several libraries compile is in the database several times, and clang-tidy would look at it as often. What
# it sees of a command are the language and the macros: once for each set of them is enough.
sources=$(python3 - "$build" "$root" "$work" <<'PYTHON'
import json, os, re, shlex, sys
build, root, work = sys.argv[1:]
with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as stream:
    commands = json.load(stream)
different = {}
for command in commands:
    file = os.path.relpath(os.path.join(command["directory"], command["file"]), root)
    seen = [o for o in shlex.split(command["command"]) if re.match(r"-([DU]|std=|m)", o) and not o.endswith("_EXPORTS")]
    if file.endswith(".c") and not file.startswith(("..", "build", "tests/programs")):
        different.setdefault((file, *sorted(seen)), command)
with open(os.path.join(work, "compile_commands.json"), "w", encoding="utf-8") as stream:
    json.dump(list(different.values()), stream)
print("\n".join(sorted({file for file, *_ in different})))
PYTHON
)
count=$(printf '%s' "$sources" | grep -c . || true)

# Files of many loops over elements, made by macros from branches on one element: the analyzer goes through the body of
# a loop twice, as from one element to the next nothing is kept. Four times, as elsewhere, are so many paths
# that it gives up.
element_loops='^storage/elements/cast\.c$'
twice='--extra-arg=-Xclang --extra-arg=-analyzer-max-loop --extra-arg=-Xclang --extra-arg=2'

tidy() { # files at a time, more options; files on standard input
    at_a_time=$1
    shift
    xargs -r -P "$jobs" -n "$at_a_time" clang-tidy -p "$work" --quiet --extra-arg=-UNDEBUG \
        --extra-arg=-Wno-ignored-optimization-argument "$@" 2>>"$work/notes"
}

folders=$(for f in trace alloc storage analysis tests; do
    if [ -n "$(find "$f" -name '*.c' 2>/dev/null | head -n 1)" ]; then echo "$f"; fi
done)
# C++ is a handful of lines at PyTorch's border; CUDA's and CUPTI's headers know the great compilers only.
ignored=$(find $folders -name '*.cc' -o -name test_cuda_hooks.c -o -name test_cupti_headers.c | sed 's/^/-i /')
# One job, beside clang-tidy: several do not look across files.
cppcheck_pid=
if [ "$is_deep" = yes ] && [ -n "$folders" ]; then
    cppcheck --quiet --std=c11 --language=c --enable=warning,performance,portability --inline-suppr \
        --suppressions-list="$ci/suppressions/cppcheck.txt" --error-exitcode=1 --max-configs=4 \
        -D_GNU_SOURCE -DVARVE_ASSERT=2 -D__x86_64__ -D__linux__ '-DElfW(type)=Elf64_##type' -I . -I tests \
        -i tests/programs $ignored $folders >"$work/cppcheck" 2>&1 &
    cppcheck_pid=$!
fi

echo "+ clang-tidy -p $build, $count files"
if [ "$count" -gt 0 ]; then
    # shellcheck disable=SC2086
    if [ "$is_deep" = yes ]; then
        printf '%s\n' "$sources" | grep "$element_loops" | tidy 1 $twice || failed=1
        printf '%s\n' "$sources" | grep -v -e '^tests/' -e "$element_loops" | tidy 1 || failed=1
        printf '%s\n' "$sources" | grep '^tests/' | tidy 8 '--checks=-clang-analyzer-*' || failed=1
    else
        printf '%s\n' "$sources" | tidy 8 '--checks=-clang-analyzer-*' || failed=1
    fi
    grep -v 'warnings\{0,1\} generated' "$work/notes" || true
fi
if [ -n "$cppcheck_pid" ]; then
    echo "+ cppcheck" $folders
    wait "$cppcheck_pid" || failed=1
    cat "$work/cppcheck"
fi

if [ "$failed" -ne 0 ]; then
    echo "check_static: FAILED; $count files"
    exit 1
fi
echo "check_static: ok; $count files"
