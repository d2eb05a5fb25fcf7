#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The dynamic symbols which each built lib*.so exports, against .ci/exports/<lib>.txt: one name or shell pattern per
# line, # begins a comment. What is not listed must not reach a workload's symbol table; a plain name that is listed
# must be there. Where there is a .ci/imports/<lib>.txt, the undefined symbols must be listed in it: a guest in programs
# calls nothing that they, or an interceptor, may have put in the C library's place.
#
# usage: check_exports.sh [BUILD_DIR [ROOT]]

set -eu
root=$(cd "${2:-$(dirname "$0")/..}" && pwd)
build=${1:-$root/build}
failed=0
checked=0

allowed() { # symbol, list
    while read -r pattern; do
        case $1 in
        $pattern) return 0 ;;
        esac
    done <<LIST
$2
LIST
    return 1
}

complain() {
    echo "$1"
    failed=$((failed + 1))
}

check() { # library, list file
    patterns=$(sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$2")
    exported=$(nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u)
    for symbol in $exported; do
        allowed "$symbol" "$patterns" || complain "$1: exports '$symbol', which $2 does not list"
    done
    for name in $(printf '%s\n' "$patterns" | grep -v '[*?[]' || true); do
        printf '%s\n' "$exported" | grep -qxF "$name" || complain "$1: does not export '$name', which $2 lists"
    done
    checked=$((checked + 1))
}

check_imports() { # library, list file
    patterns=$(sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$2")
    for symbol in $(nm -D --undefined-only "$1" | sed -e 's/.* //' -e 's/@.*//' | sort -u); do
        allowed "$symbol" "$patterns" || complain "$1: imports '$symbol', which $2 does not list"
    done
}

set -f
for list in $(find "$root/.ci/exports" -name '*.txt' | sort); do
    library=$build/$(basename "$list" .txt).so
    if [ -e "$library" ]; then
        check "$library" "$list"
        imports=$root/.ci/imports/$(basename "$list")
        [ ! -e "$imports" ] || check_imports "$library" "$imports"
    else
        echo "$(basename "$library"): skipped: not built"
    fi
done
for library in $(find "$build" -maxdepth 1 -name 'lib*.so' 2>/dev/null | sort); do
    list=$root/.ci/exports/$(basename "$library" .so).txt
    [ -e "$list" ] || complain "$library: has no allow list $list"
done

if [ "$failed" -gt 0 ]; then
    echo "check_exports: FAILED, $failed finding(s); $checked libraries"
    exit 1
fi
echo "check_exports: ok; $checked libraries"
