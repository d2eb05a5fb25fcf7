#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The checks checked: each one must accept a small good tree, and refuse the same tree with one fault put into it
# and name that fault. clang-format, clang-tidy and cppcheck are tried only where they are installed.

set -eu
ci=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
cases=0
licence="SPDX-License-Identifier: Apache-2.0"

# A fresh good tree in $work/t: two layers, a test, all rules kept.
plant() {
    rm -rf "$work/t"
    mkdir -p "$work/t/.ci" "$work/t/trace/format" "$work/t/trace/store" \
        "$work/t/analysis/cli" "$work/t/tests/unit" "$work/t/docs"
    cp "$ci/layers.txt" "$work/t/.ci/"
    cd "$work/t"
    cat >trace/collect.h <<EOF
/* $licence
 * Counts are in bytes: emitted = stored + lost.
 */
#ifndef COLLECT_H
#define COLLECT_H
int varve_trace_one(int size);
#endif
EOF
    cat >trace/format/ring_format.h <<EOF
/* $licence */
#ifndef RING_H
#define RING_H
int ring_one(int size);
#endif
EOF
    cat >trace/format/ring.c <<EOF
/* $licence */
/* Calls varve_trace_one() twice; a caller's lock is held, see collect.h for why. */
#include "trace/format/ring_format.h"
#include "trace/collect.h"

int ring_one(int size)
{
    return size + 1;
}
EOF
    cat >analysis/cli/command_leaks.c <<EOF
/* $licence */
#include "trace/collect.h"
EOF
    echo "# [cli](../../trace/collect.h), \`trace/format/ring\`" >analysis/cli/README.md
    {
        echo '```'
        sed -n '/^base$/,/^```$/p' "$ci/../docs/architecture.md"
        echo "A path: \`ring_one\` (\`trace/format/ring.c\`)."
    } >docs/architecture.md
    cat >tests/unit/test_ring.c <<EOF
/* $licence */
#include <sqlite3.h>
#include "trace/format/ring_format.h"
EOF
}

# expect good|bad NAME PATTERN CHECK [ARGUMENTS]: the check's verdict, and for bad a text that it must print.
expect() {
    verdict=$1 name=$2 pattern=$3
    shift 3
    cases=$((cases + 1))
    result=good
    output=$("$@" 2>&1) || result=bad
    if [ "$result" != "$verdict" ]; then
        echo "selftest: $name: the tree is $verdict, the check says $result:"
        echo "$output"
        failed=$((failed + 1))
    elif [ "$verdict" = bad ] && ! printf '%s\n' "$output" | grep -q -- "$pattern"; then
        echo "selftest: $name: refused for another reason than '$pattern':"
        echo "$output"
        failed=$((failed + 1))
    fi
}

includes() { expect "$1" "includes: $2" "$3" "$ci/check_includes.py" "$work/t"; }
sizes() { expect "$1" "sizes: $2" "$3" "$ci/check_sizes.py" "$work/t"; }
text() { expect "$1" "text: $2" "$3" "$ci/check_text.py" "$work/t"; }
headers() { expect "$1" "headers: $2" "$3" "$ci/check_headers.sh" "$work/t"; }
repeat() { i=0; while [ "$i" -lt "$1" ]; do echo "$2"; i=$((i + 1)); done; }

test_includes() {
    plant; includes good "clean tree" ""
    plant; echo '#include "analysis/analysis.h"' >>trace/format/ring.c
    echo "/* $licence */" >analysis/analysis.h; includes bad "another layer, upwards" "may include only"
    plant; echo "/* $licence */" >trace/store/up.h; echo '#include "trace/store/up.h"' >trace/format/low.c
    includes bad "another folder, upwards" "trace/format/ may include only"
    plant; mkdir trace/new; echo '#include "trace/collect.h"' >trace/new/one.c
    includes bad "a folder without rules" "does not know"
    plant; sed -i '/^base$/d' docs/architecture.md; includes bad "another picture" "the picture of the folders"
    plant; sed -i 's/ring_one/ring_two/' docs/architecture.md; includes bad "a step that is gone" "knows no ring_two"
    plant; sed -i 's/ring\.c/rang.c/' docs/architecture.md
    includes bad "a step's file that is gone" "there is no trace/format/rang.c"
    plant; sed -i '/ring_one/d' docs/architecture.md; includes bad "no path" "no path is walked"
    plant; echo "folder trace/above trace/below" >>.ci/layers.txt; includes bad "a rule that runs up" "not above it"
    plant; echo '#include "trace/format/ring_format.h"' >>analysis/cli/command_leaks.c
    includes bad "internals" "outsiders include only"
    plant; echo '#include "tests/unit/test_help.h"' >>trace/format/ring.c
    echo "/* $licence */" >tests/unit/test_help.h; includes bad "of tests" "nobody includes tests"
    plant; echo '#include <sqlite3.h>' >>analysis/cli/command_leaks.c; includes bad "sqlite3.h" "includes <sqlite3.h>"
    plant; echo '#include <lttng/tracepoint.h>' >>trace/format/ring.c; includes bad "lttng" "includes <lttng/"
    plant; echo '#include <elfutils/libdwfl.h>' >>trace/format/ring.c; includes bad "elfutils" "includes <elfutils/"
    plant; echo '#include <libunwind.h>' >>trace/format/ring.c; includes bad "libunwind" "includes <libunwind.h>"
    plant; echo '#include <sqlite3.h>' >trace/store/writer.c; includes good "sqlite3.h where it may be" ""
    plant; echo '#include "no_such.h"' >>trace/format/ring.c; includes bad "unknown file" "not in the tree"
    plant; echo '#include "trace/format/other.h"' >>trace/format/ring_format.h
    echo '#include "trace/format/ring_format.h"' >>trace/format/other.h; includes bad "cycle" "include cycle"
    plant; echo '/* #include "analysis/cli/command_leaks.c" */' >>trace/format/ring.c; includes good "in a comment" ""
}

test_sizes() {
    plant; sizes good "clean tree" ""
    plant; cp trace/format/ring.c trace/store/other.c; sizes bad "a name twice" "ring_one() is in"
    plant; repeat 40 "line" >>analysis/cli/README.md; sizes bad "a long README" "analysis/cli/README.md: 41 lines"
    plant; repeat 2000 "int x;" >>trace/format/ring.c; sizes good "a long file" ""
    plant; { echo "static int f(int a)"; echo "{"; repeat 68 "    a++;"; echo "}"; } >>trace/format/ring.c
    sizes bad "function of 71 lines" "f() has 71 lines"
    plant; { echo "static int f(int a)"; echo "{"; repeat 67 "    a++;"; echo "}"; } >>trace/format/ring.c
    sizes good "function of 70 lines" ""
    plant; { printf 'static int f(int a,\n             char b)\n{\n'; repeat 67 '    g("}{", 1);'; echo "}"; } \
        >>trace/format/ring.c; sizes bad "signature of two lines" "f() has 71 lines"
    plant; { echo "static const int table[] = {"; repeat 90 "    1,"; echo "};"; } >>trace/format/ring.c
    sizes good "a table is no function" ""
    plant; { echo 'extern "C" {'; repeat 90 "int g(void);"; echo "}"; } >>trace/collect.h; sizes good "extern C" ""
}

test_text() {
    plant; text good "clean tree" ""
    plant; echo '[a page](../nowhere.md)' >>docs/architecture.md
    text bad "a link that leads nowhere" "a link to ../nowhere.md"
    plant; echo 'See `trace/nowhere/`.' >>docs/architecture.md; text bad "a path that is gone" "names trace/nowhere/"
    plant; printf '```\n[a page](nowhere.md) `trace/nowhere`\n```\n' >>docs/architecture.md
    text good "an example in a document" ""
    plant; echo '[net](https://example.org/x), [here](#part), `trace/format/NAME.c`' >>docs/architecture.md
    text good "links elsewhere, and a NAME" ""
    plant; echo '    /* count = ring_one(count); */' >>trace/format/ring.c; text bad "C code" "commented-out code"
    plant; printf '// if (size > 0) {\n//     return size;\n// }\n' >>trace/format/ring.c
    text bad "C code //" "commented-out"
    plant; printf '/* Example:\n *     ring_one(1);\n */\n' >>trace/collect.h; text good "an example in a comment" ""
    plant; printf '#if 0\n#endif\n' >>trace/format/ring.c; text bad "#if 0" "switched off"
    plant; echo "/* $(printf 'TO%s' DO): more */" >>trace/format/ring.c; text bad "marker" "open-work marker"
    plant; printf '</%s>\n' content >>trace/format/ring.c; text bad "tag" "stray tag"
    plant; printf '/* see /%s/me/notes */\n' home >>trace/format/ring.c; text bad "path" "somebody's machine"
    plant; echo 'int x;' >trace/bare.c; text bad "no licence" "must hold"
    plant; printf '# %s\nprint(1)\n# print(2)\n' "$licence" >tests/a.py; text bad "Python code" "commented-out code"
    plant; printf '# %s\n# equation: a = b + c\nprint(1)\n' "$licence" >tests/a.py; text good "Python prose" ""
    plant; echo "/* $(repeat 120 "…" | tr -d '\n') */" >>trace/format/ring.c; text bad "a long line" "126 characters"
    plant; echo "/* $(repeat 114 "…" | tr -d '\n') */" >>trace/format/ring.c; text good "a full line" ""
    plant; printf 'int x; \n' >>trace/format/ring.c; text bad "white space" "white space at the end"
    plant; printf '#!/bin/sh\n# %s\n' "$licence" >tests/a.sh; text bad "mode" "not executable"
}

test_headers() {
    plant; headers good "clean tree" ""
    plant; echo 'size_t late;' >trace/alone.h; headers bad "needs another header" "does not compile alone as c11"
    plant; echo 'struct twice { int a; };' >trace/twice.h; headers bad "no guard" "does not compile alone"
    plant; printf '#pragma once\nstatic inline int *p(void *q)\n{\n    return q;\n}\n' >trace/only_c.h
    headers good "not C++, and not installed" ""
    sed -i '/define COLLECT_H/a #include "trace/only_c.h"' trace/collect.h
    headers bad "installed, not C++" "alone as c++17"
}

test_exports() {
    plant
    mkdir -p .ci/exports build
    printf 'varve_*\nmalloc\n' >.ci/exports/libx.txt
    expect good "exports: nothing built" "" "$ci/check_exports.sh" "$work/t/build" "$work/t"
    echo 'int varve_a(void); int varve_a(void) { return 1; } void *malloc(unsigned long n) { return (void *)n; }' >x.c
    ${CC:-cc} -w -shared -fPIC -o build/libx.so x.c
    expect good "exports: as listed" "" "$ci/check_exports.sh" "$work/t/build" "$work/t"
    echo 'int ring_leaked; void *malloc(unsigned long n) { return (void *)n; }' >x.c
    ${CC:-cc} -w -shared -fPIC -o build/libx.so x.c
    expect bad "exports: one too many" "'ring_leaked'" "$ci/check_exports.sh" "$work/t/build" "$work/t"
    echo 'int varve_a;' >x.c
    ${CC:-cc} -w -shared -fPIC -o build/libx.so x.c
    expect bad "exports: one too few" "does not export 'malloc'" "$ci/check_exports.sh" "$work/t/build" "$work/t"
    mkdir -p .ci/imports
    printf 'varve_*\n' >.ci/exports/libx.txt
    printf '_*\nclose\n' >.ci/imports/libx.txt
    echo 'int close(int); int varve_a(void); int varve_a(void) { return close(0); }' >x.c
    ${CC:-cc} -w -shared -fPIC -o build/libx.so x.c
    expect good "imports: as listed" "" "$ci/check_exports.sh" "$work/t/build" "$work/t"
    echo 'int open(char *, int); int varve_a(void); int varve_a(void) { return open("", 0); }' >x.c
    ${CC:-cc} -w -shared -fPIC -o build/libx.so x.c
    expect bad "imports: one too many" "imports 'open'" "$ci/check_exports.sh" "$work/t/build" "$work/t"
    cp build/libx.so build/liby.so
    expect bad "exports: no list" "no allow list" "$ci/check_exports.sh" "$work/t/build" "$work/t"
}

test_skips() {
    plant
    printf '# of CI\nunit/test_a | - | release tsan | no GPU *\nunit/test_b | test_* | release | nosuid\n' >list
    log() { # TEST LINES…
        printf '3/9 Testing: %s\n' "$1"
        shift
        printf '%s\n' Output: "$@" '<end of output>' 'Test time =   0.01 sec'
    }
    skips() { expect "$1" "skips: $2" "$3" "$ci/check_skips.py" --list list --log log "$4"; }
    { log unit/test_a 'skipped: no GPU here' 'Test Skipped.'; log unit/test_b 'skipped case test_one: nosuid'; } >log
    skips good "listed" "" release
    skips bad "of another preset" "unit/test_b | test_one | tsan | nosuid" tsan
    log unit/test_b 'skipped case test_one: another' >log
    skips bad "another reason" "test_one | release | another" release
    log unit/test_b 'skipped part of test_x: 1 of 2' >log; skips bad "a part" "test_x | release | 1 of 2" release
    log unit/test_c 'Test Skipped.' >log
    skips bad "without a word" "unit/test_c | - | release | no reason reported" release
    log unit/test_a 'skipped case test_one: no GPU here' >log; skips bad "a case more" "unit/test_a | test_one" release
    rm log; skips bad "no log" "no log of release" release
    log unit/test_a >log; echo 'unit/test_a | no GPU' >>list; skips bad "a line of the list" "list:4: not" release
}

test_format() {
    command -v clang-format >/dev/null 2>&1 || return 0
    plant; expect good "format: clean" "" "$ci/check_format.sh" "$work/t/trace/format/ring.c"
    echo 'int  f( int a ){return a;}' >>trace/format/ring.c
    expect bad "format: ugly" "FAILED" "$ci/check_format.sh" "$work/t/trace/format/ring.c"
}

# Three libraries have the C file, one of them with a macro of its own.
test_static() {
    command -v clang-tidy >/dev/null 2>&1 && command -v cppcheck >/dev/null 2>&1 || return 0
    deep=
    static() { # good|bad NAME PATTERN FILE CODE
        plant
        cp "$ci/../.clang-tidy" .
        mkdir -p build "$(dirname "$4")"
        printf '%s\n' "$5" >"$4"
        for flags in -O2 "-O1 -fno-builtin" -DOTHER=1; do
            printf '{"directory": "%s", "file": "%s", "command": "cc %s -c %s"},' "$work/t" "$4" "$flags" "$4"
        done | sed 's/^/[/; s/,$/]/' >build/compile_commands.json
        # shellcheck disable=SC2086
        expect "$1" "static: $2" "$3" "$ci/check_static.sh" $deep "$work/t/build" "$work/t"
    }
    fault='int f(int *p); int f(int *p) { return p ? 0 : *p; }'
    static bad "a test" "braces-around" tests/unit/test_one.c \
        'int f(int a); int f(int a) { if (a) return 1; return 2; }'
    static bad "a warning of clang" "string-plus-int" trace/one.c \
        'const char *f(int n); const char *f(int n) { return "a" + n; }'
    static good "a path, not looked for" "" trace/one.c "$fault"
    deep=--deep
    static good "clean tree" "" trace/one.c 'int f(void); int f(void) { return 1; }'
    static bad "a path" "NullDereference" trace/one.c "$fault"
    static bad "a path under another macro" "NullDereference" trace/one.c \
        "$(printf '#ifdef OTHER\n%s\n#endif' "$fault")"
    static bad "cppcheck" "arrayIndexOutOfBounds" trace/one.c \
        'int f(void); int f(void) { int a[2] = {0}; return a[2]; }'
    static bad "a loop over elements, the second time" "DivideZero" storage/tensors/element_cast.c \
        'int f(int n); int f(int n) { int b = 1, s = 0; for (int i = 0; i < n; i++) { s += 8 / b; b--; } return s; }'
}

test_skips
test_includes
test_sizes
test_text
test_headers
test_exports
test_format
test_static

if [ "$failed" -gt 0 ]; then
    echo "selftest: FAILED, $failed of $cases cases"
    exit 1
fi
echo "selftest: ok; $cases cases"
