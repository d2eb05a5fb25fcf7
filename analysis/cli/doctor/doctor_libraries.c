/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve doctor`, libraries and tools that varve makes use of. They are looked up as files, never loaded:
 * some start threads or talk to daemons as soon as they are.
 */
#include "analysis/cli/doctor/doctor.h"

#include "analysis/export/export.h"
#include "analysis/page/page.h"
#include "analysis/top/top_screen.h"
#include "base/error.h"

#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool pattern_find(const char *pattern, char *path, size_t path_bytes)
{
    glob_t found;
    bool is_found = glob(pattern, 0, NULL, &found) == 0;
    if (is_found) {
        snprintf(path, path_bytes, "%s", found.gl_pathv[0]);
    }
    globfree(&found);
    return is_found;
}

bool library_find(const char *name, char *buffer, size_t buffer_bytes)
{
    static const char *const folders[] = {
        "/usr/local/lib",
        "/lib/*-linux-gnu*",
        "/usr/lib/*-linux-gnu*",
        "/lib64",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/cuda/lib64",
        "/usr/local/cuda/extras/CUPTI/lib64",
        "/usr/local/cuda*/lib64",
        "/usr/local/cuda*/extras/CUPTI/lib64",
        "/usr/lib/wsl/lib",
    };
    const char *paths = getenv("LD_LIBRARY_PATH");
    char pattern[PATH_MAX];
    for (; paths != NULL && *paths != '\0'; paths += strcspn(paths, ":"), paths += *paths == ':' ? 1 : 0) {
        snprintf(pattern, sizeof(pattern), "%.*s/%s", (int)strcspn(paths, ":"), paths, name);
        if (pattern_find(pattern, buffer, buffer_bytes)) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(pattern, sizeof(pattern), "%s/%s", folders[i], name);
        if (pattern_find(pattern, buffer, buffer_bytes)) {
            return true;
        }
    }
    return false;
}

void doctor_check_library(struct doctor_lines *lines, const char *key, const char *name, const char *effect,
                          const char *remedy)
{
    char path[PATH_MAX];
    if (library_find(name, path, sizeof(path))) {
        doctor_add(lines, key, DOCTOR_OK, "", "", "%.150s", path);
    } else {
        doctor_add(lines, key, DOCTOR_MISSING, effect, remedy, "no %s", name);
    }
}

void doctor_check_component(struct doctor_lines *lines, const char *key, enum component component, const char *effect,
                            const char *remedy)
{
    char path[PATH_MAX];
    if (component_find(component, path, sizeof(path))) {
        doctor_add(lines, key, DOCTOR_OK, "", "", "%.150s", path);
    } else {
        doctor_add(lines, key, DOCTOR_MISSING, effect, remedy, "%.140s is not there", path);
    }
}

static void check_debug_files(struct doctor_lines *lines)
{
    glob_t found;
    bool is_there = glob("/usr/lib/debug/.build-id/*/*.debug", 0, NULL, &found) == 0;
    if (is_there) {
        doctor_add(lines, "debug_files", DOCTOR_OK, "", "", "%zu in /usr/lib/debug", (size_t)found.gl_pathc);
    } else {
        doctor_add(lines, "debug_files", DOCTOR_MISSING, "frames in system libraries have few names and no lines",
                   "apt install libc6-dbg, and NAME-dbg or NAME-dbgsym of other libraries",
                   "none in /usr/lib/debug/.build-id");
    }
    globfree(&found);
}

static void check_screen(struct doctor_lines *lines)
{
    if (screen_missing() == NULL) {
        doctor_add(lines, "top_screen", DOCTOR_OK, "", "", "built with ncurses");
    } else {
        doctor_add(lines, "top_screen", DOCTOR_MISSING, "varve top prints single screens only (--once)",
                   "apt install libncurses-dev, then build varve again", "built without ncurses");
    }
}

static void check_exports(struct doctor_lines *lines)
{
    if (export_has_protobuf()) {
        doctor_add(lines, "exports", DOCTOR_OK, "", "", "pprof and Perfetto too: built with protobuf-c");
    } else {
        doctor_add(lines, "exports", DOCTOR_MISSING, "varve export does not write pprof and Perfetto",
                   "apt install libprotobuf-c-dev protobuf-c-compiler, then build varve again",
                   "built without protobuf-c");
    }
}

static void check_page(struct doctor_lines *lines)
{
    struct varve_message message;
    if (page_check(&message) == VARVE_OK) {
        doctor_add(lines, "page", DOCTOR_OK, "", "", "d3 is built in");
    } else {
        doctor_add(lines, "page", DOCTOR_MISSING, "varve report --html makes no page",
                   "apt install node-d3, and build varve again", "varve was built without d3");
    }
}

void doctor_check_libraries(struct doctor_lines *lines)
{
    doctor_check_library(lines, "elfutils", "libdw.so.1", "call sites have addresses instead of names",
                         "apt install libdw1");
    check_debug_files(lines);
    check_screen(lines);
    check_exports(lines);
    check_page(lines);
}
