#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The installed tree serves strangers: installs a build into a folder, moves it to one whose name has spaces, and builds
# a small program against it in C11 and C++17, found by pkg-config and by find_package. Each is run under the installed
# `varve record`, whose database must hold what the program did. Then a second installation is removed by the target
# `uninstall`, and leaves nothing.
#
# usage: check_install.sh [BUILD_DIR]

set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree="$work/an installed tree"

cmake --install "$build" --prefix "$work/first" >"$work/log" || {
    cat "$work/log"
    exit 1
}
mv "$work/first" "$tree" # nothing may have kept the place

cat >"$work/program.c" <<'C'
#include "storage/storage.h"

int main(void)
{
    static struct varve_sim_options sim;
    struct varve_alloc_options options;
    struct varve_alloc *alloc;
    struct varve_storage_options place;
    struct varve_storage *storage;
    int64_t shape[2];

    shape[0] = 10;
    shape[1] = 100;
    place.alignment = 0;
    place.stream = 0;
    place.name = "a matrix";
    varve_alloc_options_init(&options);
    options.recorder = &varve_alloc_recorder_ring;
    if (varve_sim_open(&sim, &options.device, NULL) != VARVE_OK ||
        varve_alloc_open(&options, &alloc, NULL) != VARVE_OK ||
        varve_memory_open(alloc, &place.memory, NULL) != VARVE_OK ||
        varve_storage_empty(&place, VARVE_DTYPE_U8, 2, shape, &storage, NULL) != VARVE_OK) {
        return 1;
    }
    return varve_storage_release(storage, NULL) != VARVE_OK || varve_memory_close(place.memory, NULL) != VARVE_OK;
}
C
cat >"$work/alone.c" <<'C'
#include "alloc/alloc.h"

int main(void)
{
    return varve_alloc_policies()[0] == NULL;
}
C
cp "$work/program.c" "$work/program.cc"
mkdir "$work/project"
cp "$work/program.c" "$work/program.cc" "$work/alone.c" "$work/project"
cat >"$work/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(stranger LANGUAGES C CXX)
find_package(varve 0.1 REQUIRED)
set(CMAKE_C_STANDARD 11)
set(CMAKE_CXX_STANDARD 17)
foreach(language c cc)
  add_executable(by_cmake_${language} program.${language})
  target_link_libraries(by_cmake_${language} PRIVATE varve::varve)
endforeach()
add_executable(alone alone.c)
target_link_libraries(alone PRIVATE varve::alloc)
CMAKE

library=$(dirname "$(find "$tree" -name libvarve_trace.so)")
PKG_CONFIG_PATH=$library/pkgconfig
export PKG_CONFIG_PATH
flags="-Wall -Wextra -Werror $(pkg-config --cflags varve)" # quoted by pkg-config for a shell
libraries="$(pkg-config --libs varve) '-Wl,-rpath,$library'"
eval "${CC:-cc} -std=c11 -pedantic $flags -o '$work/by_pkg_config_c' '$work/program.c' $libraries"
eval "${CXX:-c++} -std=c++17 $flags -o '$work/by_pkg_config_cc' '$work/program.cc' $libraries"
cmake -S "$work/project" -B "$work" -DCMAKE_PREFIX_PATH="$tree" >"$work/log" && cmake --build "$work" >"$work/log" || {
    cat "$work/log"
    exit 1
}

"$work/alone"
for program in by_pkg_config_c by_pkg_config_cc by_cmake_c by_cmake_cc; do
    "$work/$program"
    "$tree/bin/varve" record --force -o "$work/run.db" -- "$work/$program" 2>"$work/log" || {
        cat "$work/log"
        exit 1
    }
    found=$("$tree/bin/varve" query --csv "$work/run.db" \
        "SELECT kind FROM events WHERE kind IN ('segment_alloc', 'alloc', 'free_completed') ORDER BY seq" |
        tr -d '\r' | tr '\n' ' ')
    if [ "$found" != "kind segment_alloc alloc free_completed " ]; then
        echo "check_install: FAILED; recorded of $program: $found"
        exit 1
    fi
done
manual=$tree/share/man/man1/varve.1
if ! grep -q '^\.SS record$' "$manual"; then
    echo "check_install: FAILED; the manual is not installed"
    exit 1
fi
if command -v groff >/dev/null 2>&1; then
    warnings=$(groff -man -ww -k -Tutf8 "$manual" 2>&1 >/dev/null)
    if [ -n "$warnings" ]; then
        echo "check_install: FAILED; groff says of the manual: $warnings"
        exit 1
    fi
fi
for script in bash-completion/completions/varve zsh/site-functions/_varve fish/vendor_completions.d/varve.fish; do
    if ! grep -q "Completion of varve for ${script%%[-/]*}," "$tree/share/$script"; then
        echo "check_install: FAILED; share/$script is not installed"
        exit 1
    fi
done
cmake --install "$build" --prefix "$work/to remove" >"$work/log"
cmake --build "$build" --target uninstall >"$work/log" || {
    cat "$work/log"
    exit 1
}
if [ -e "$work/to remove/bin" ] || [ -n "$(find "$work/to remove" -type f 2>/dev/null)" ]; then
    echo "check_install: FAILED; uninstall leaves $(find "$work/to remove" | head -n 3)"
    exit 1
fi
echo "check_install: ok; $(find "$tree" -type f | wc -l) files, 5 programs"
