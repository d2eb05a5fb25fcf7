#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Each header compiles alone, included twice, as C11; those that are installed as C++17, too. Headers in a folder lttng/
# of the recorder need LTTng-UST and are left out where it is missing.
#
# usage: check_headers.sh [ROOT]

set -eu
root=$(cd "${1:-$(dirname "$0")/..}" && pwd)
cc=${CC:-cc}
cxx=${CXX:-c++}
flags="-fsyntax-only -D_GNU_SOURCE -DVARVE_ASSERT=2 -Wall -Wextra -Werror -Wundef"
flags="$flags $(pkg-config --cflags cmocka sqlite3 2>/dev/null || true)"
count=0
failed=0

command -v "$cxx" >/dev/null 2>&1 || {
    echo "check_headers: no C++ compiler ($cxx): C++17 is not checked"
    cxx=
}

# What cmake/VarveInstall.cmake installs: the public headers, and what they include.
installed() {
    pending="trace/emit.h trace/collect.h trace/writer.h storage/storage.h"
    found=
    while [ -n "$pending" ]; do
        next=
        for header in $pending; do
            case " $found " in
            *" $header "*) ;;
            *)
                found="$found $header"
                [ ! -f "$header" ] || next="$next $(sed -n 's/^#include "\([^"]*\)".*/\1/p' "$header")"
                ;;
            esac
        done
        pending=$(echo $next)
    done
    echo "$found "
}

# With the two macros that every test has.
compile() { # language, compiler, standard, header
    printf '#include "%s"\n#include "%s"\n' "$4" "$4" |
        "$2" -x "$1" "-std=$3" $flags -I"$root" -I"$root/tests" -DVARVE_BUILD_DIR='"build"' \
            -DVARVE_SOURCE_DIR='"."' - || {
        echo "$4: does not compile alone as $3"
        failed=$((failed + 1))
    }
}

cd "$root"
installed=$(installed)
for header in $(find trace alloc storage analysis tests -name '*.h' 2>/dev/null | sort); do
    case $header in
    trace/recorder/lttng/* | */lttng_ring_provider.h)
        if ! pkg-config --exists lttng-ust 2>/dev/null; then
            echo "$header: left out, LTTng-UST is missing"
            continue
        fi
        ;;
    esac
    count=$((count + 1))
    compile c "$cc" c11 "$header"
    case $installed in
    *" $header "*) [ -z "$cxx" ] || compile c++ "$cxx" c++17 "$header" ;;
    esac
done

if [ "$failed" -gt 0 ]; then
    echo "check_headers: FAILED, $failed finding(s); $count headers"
    exit 1
fi
echo "check_headers: ok; $count headers"
