#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Every file of C and CUDA is formatted as .clang-format says. `--fix` formats them instead of complaining;
# files may be named.
#
# usage: check_format.sh [--fix] [FILE…]

set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
mode="--dry-run -Werror"
if [ "${1:-}" = --fix ]; then
    mode=-i
    shift
fi
if [ "$#" -eq 0 ]; then
    cd "$root"
    set -- $(find trace alloc storage analysis tests -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort)
fi
if [ "$#" -eq 0 ]; then
    echo "check_format: ok; 0 files"
    exit 0
fi
clang-format $mode --style=file:"$root/.clang-format" "$@" || {
    echo "check_format: FAILED; .ci/check_format.sh --fix formats the files"
    exit 1
}
echo "check_format: ok; $# files"
