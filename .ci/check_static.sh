#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# clang-tidy over every C file of the compilation database, and cppcheck over the product's folders. What they are
# configured to ignore stands with its reason in .clang-tidy and .ci/suppressions/cppcheck.txt. Both see the assertions, which
# the release build leaves out: they are what the code says of its invariants. clang-tidy's path analyzer looks at the product
# only: for the tests it takes as long again, most of it in cmocka's macros.
#
# usage: check_static.sh [BUILD_DIR]

set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
build=${1:-$root/build}
failed=0

if [ ! -e "$build/compile_commands.json" ]; then
    echo "check_static: $build has no compile_commands.json; run ./dev build first" >&2
    exit 2
fi
sources=$(python3 - "$build" "$root" <<'PYTHON'
import json, os, sys
build, root = sys.argv[1:]
with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as stream:
    files = {os.path.relpath(os.path.join(e["directory"], e["file"]), root) for e in json.load(stream)}
print("\n".join(sorted(f for f in files if f.endswith(".c") and not f.startswith(("..", "build", "tests/programs")))))
PYTHON
)
tidy() { # files at a time, more options; files on standard input
    at_a_time=$1
    shift
    xargs -r -P "$jobs" -n "$at_a_time" clang-tidy -p "$build" --quiet --extra-arg=-UNDEBUG \
        --extra-arg=-Wno-ignored-optimization-argument "$@" 2>>"$notes"
}

jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
count=$(printf '%s' "$sources" | grep -c . || true)

echo "+ clang-tidy -p $build, $count files"
if [ "$count" -gt 0 ]; then
    notes=$(mktemp)
    trap 'rm -f "$notes"' EXIT
    printf '%s\n' "$sources" | grep -v '^tests/' | tidy 1 || failed=1
    printf '%s\n' "$sources" | grep '^tests/' | tidy 8 '--checks=-clang-analyzer-*' || failed=1
    grep -v 'warnings\{0,1\} generated' "$notes" || true
fi

folders=$(for f in trace alloc storage analysis tests; do
    if [ -n "$(find "$f" -name '*.c' 2>/dev/null | head -n 1)" ]; then echo "$f"; fi
done)
# C++ is a handful of lines at PyTorch's border; CUDA's and CUPTI's headers know the great compilers only.
ignored=$(find $folders -name '*.cc' -o -name test_cuda_hooks.c -o -name test_cupti_headers.c | sed 's/^/-i /')
echo "+ cppcheck" $folders
if [ -n "$folders" ]; then
    # One job: several do not look across files, and it takes seconds.
    cppcheck --quiet --std=c11 --language=c --enable=warning,performance,portability --inline-suppr \
        --suppressions-list=.ci/suppressions/cppcheck.txt --error-exitcode=1 --max-configs=4 \
        -D_GNU_SOURCE -DVARVE_ASSERT=2 -D__x86_64__ -D__linux__ '-DElfW(type)=Elf64_##type' -I . \
        -i tests/programs $ignored $folders || failed=1
fi

if [ "$failed" -ne 0 ]; then
    echo "check_static: FAILED; $count files"
    exit 1
fi
echo "check_static: ok; $count files"
