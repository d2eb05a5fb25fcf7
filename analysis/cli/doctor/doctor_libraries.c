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

static enum doctor_state there_or_missing(bool is_there)
{
    return is_there ? DOCTOR_OK : DOCTOR_MISSING;
}

void doctor_check_library(struct doctor_lines *lines, const char *key, const char *name, const char *effect,
                          const char *remedy)
{
    char path[PATH_MAX];
    const bool is_there = library_find(name, path, sizeof(path));
    doctor_add(lines, key, there_or_missing(is_there), effect, remedy, "%s%.150s", is_there ? "" : "no ",
               is_there ? path : name);
}

void doctor_check_component(struct doctor_lines *lines, const char *key, enum component component, const char *effect,
                            const char *remedy)
{
    char path[PATH_MAX];
    const bool is_there = component_find(component, path, sizeof(path));
    doctor_add(lines, key, there_or_missing(is_there), effect, remedy, "%.*s%s", is_there ? 150 : 140, path,
               is_there ? "" : " is not there");
}

static void check_debug_files(struct doctor_lines *lines)
{
    glob_t found;
    if (glob("/usr/lib/debug/.build-id/*/*.debug", 0, NULL, &found) == 0) {
        doctor_add(lines, "debug_files", DOCTOR_OK, "", "", "%zu in /usr/lib/debug", (size_t)found.gl_pathc);
    } else {
        doctor_add(lines, "debug_files", DOCTOR_MISSING, "frames in system libraries have few names and no lines",
                   "apt install libc6-dbg, and NAME-dbg or NAME-dbgsym of other libraries",
                   "none in /usr/lib/debug/.build-id");
    }
    globfree(&found);
}

/* What this varve was built with. */
static void check_build(struct doctor_lines *lines)
{
    const bool has_screen = screen_missing() == NULL, has_protobuf = export_format_pprof.refusal == NULL,
               has_page = page_check(NULL) == VARVE_OK;
    doctor_add(lines, "top_screen", there_or_missing(has_screen), "varve top prints single screens only (--once)",
               "apt install libncurses-dev, then build varve again", "built %s ncurses",
               has_screen ? "with" : "without");
    doctor_add(lines, "exports", there_or_missing(has_protobuf), "varve export does not write pprof and Perfetto",
               "apt install libprotobuf-c-dev protobuf-c-compiler, then build varve again", "%s protobuf-c",
               has_protobuf ? "pprof and Perfetto too: built with" : "built without");
    doctor_add(lines, "page", there_or_missing(has_page), "varve report --html makes no page",
               "apt install node-d3, and build varve again", "%s",
               has_page ? "d3 is built in" : "varve was built without d3");
}

void doctor_check_libraries(struct doctor_lines *lines)
{
    doctor_check_library(lines, "elfutils", "libdw.so.1", "call sites have addresses instead of names",
                         "apt install libdw1");
    check_debug_files(lines);
    check_build(lines);
}
