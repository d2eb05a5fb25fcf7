#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Shows how the answers of the commands differ from tests/golden/expected; with --accept, after showing them, takes
# the new ones. Needs a build.
#
# usage: tests/golden/update.sh [--accept] [BUILD_DIR]

set -eu
here=$(cd "$(dirname "$0")" && pwd)
accept=no
if [ "${1:-}" = --accept ]; then
    accept=yes
    shift
fi
build=${1:-$here/../../build}
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

VARVE_GOLDEN_OUT=$fresh "$build/tests/golden" test_answers >/dev/null 2>"$fresh/.log" || {
    cat "$fresh/.log" >&2
    exit 1
}
rm "$fresh/.log"
if diff -ru "$here/expected" "$fresh"; then
    echo "update.sh: nothing changed"
elif [ "$accept" = yes ]; then
    rm -f "$here"/expected/*
    cp "$fresh"/* "$here/expected/"
    echo "update.sh: accepted; look at git diff once more"
else
    echo "update.sh: not accepted; --accept takes them" >&2
    exit 1
fi
