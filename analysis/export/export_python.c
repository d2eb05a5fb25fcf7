/* SPDX-License-Identifier: Apache-2.0 */
/* What Python prints on its error stream is read; its last line is the reason if it fails. */
#include "analysis/export/export.h"

#include "analysis/base/component_find.h"
#include "base/error.h"
#include "base/program.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define REASON_BYTES 4096
#define PREFIX "varve: "

/* Missing packages are said in one line, not as a traceback. */
static const char script[] =
    "import sys\n"
    "try:\n"
    "    import pyarrow\n"
    "except ImportError as error:\n"
    "    sys.exit(f\"needs pyarrow: {sys.executable} -m pip install pyarrow ({error})\")\n"
    "try:\n"
    "    import varve.__main__ as command\n"
    "except ImportError as error:\n"
    "    sys.exit(f\"needs varve's Python package: {sys.executable} -m pip install . in its source tree ({error})\")\n"
    "sys.exit(command.main(sys.argv[1:]))\n";

static bool export_python_is_there(const char *path)
{
    return access(path, R_OK) == 0;
}

/* Of the package beside this program: in a build, and in a wheel, where the program lies in it. What the user has set
 * stays first. */
static void add_package(const char *folder)
{
    static const char *const places[] = {"../notebooks", "../../.."};
    char path[PATH_MAX + 64], both[3 * PATH_MAX];
    const char *before = getenv("PYTHONPATH");
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s/varve/command.py", folder, places[i]);
        if (export_python_is_there(path)) {
            snprintf(both, sizeof(both), "%s%s%s/%s", before != NULL ? before : "", before != NULL ? ":" : "", folder,
                     places[i]);
            setenv("PYTHONPATH", both, 1);
            return;
        }
    }
}

static void set_paths(const char *folder)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/libvarve_query.so", folder);
    if (export_python_is_there(path)) {
        setenv("VARVE_BUILD_DIR", folder, 0);
    }
    add_package(folder);
}

static const char *find_python(const char *folder, char *buffer, size_t bytes)
{
    const char *chosen = getenv("VARVE_PYTHON3");
    snprintf(buffer, bytes, "%s/venv/bin/python3", folder);
    return chosen != NULL && chosen[0] != '\0' ? chosen : export_python_is_there(buffer) ? buffer : "python3";
}

/* All of it, of which the last bytes stay. */
static void read_reason(int descriptor, char *reason, size_t bytes)
{
    size_t used = 0;
    ssize_t got;
    while ((got = read(descriptor, reason + used, bytes - 1 - used)) > 0 || (got < 0 && errno == EINTR)) {
        used += got > 0 ? (size_t)got : 0;
        if (used > bytes / 2) {
            memmove(reason, reason + used - bytes / 2, bytes / 2);
            used = bytes / 2;
        }
    }
    while (used > 0 && strchr("\r\n ", reason[used - 1]) != NULL) {
        used--;
    }
    reason[used] = '\0';
}

static const char *last_line(const char *text)
{
    const char *newline = strrchr(text, '\n');
    const char *line = newline != NULL ? newline + 1 : text;
    return strncmp(line, PREFIX, strlen(PREFIX)) == 0 ? line + strlen(PREFIX) : line;
}

int export_by_python(const struct python_export *request, struct varve_message *message)
{
    char folder[PATH_MAX] = ".", python[PATH_MAX + 32], timeout[40], reason[REASON_BYTES] = "";
    const char *argv[] = {NULL,
                          "-c",
                          script,
                          "export",
                          "--quiet",
                          "--to",
                          request->format,
                          "--timeout",
                          timeout,
                          "-o",
                          request->directory,
                          request->force ? "--force" : "--no-force",
                          "--",
                          request->database,
                          NULL};
    if (component_folder(folder, sizeof(folder))) {
        set_paths(folder);
    }
    argv[0] = find_python(folder, python, sizeof(python));
    snprintf(timeout, sizeof(timeout), "%.3f", (double)request->timeout_ns / 1e9);
    int streams[2];
    if (pipe2(streams, O_CLOEXEC) != 0) {
        return varve_message_set(message, VARVE_ERROR_IO, "%s", strerror(errno));
    }
    pid_t pid;
    const int given[] = {STDIN_FILENO, STDOUT_FILENO, streams[1]};
    int error = program_spawn((char *const *)argv, environ, given, false, &pid);
    close(streams[1]);
    int status = 0;
    if (error == 0) {
        read_reason(streams[0], reason, sizeof(reason));
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    close(streams[0]);
    if (error != 0) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "%s can't be run (%s): --to %s needs Python 3 with pandas and pyarrow", argv[0],
                                 strerror(error), request->format);
    }
    if (status == 0) {
        return VARVE_OK;
    }
    return varve_message_set(message, VARVE_ERROR_FORMAT, "%.400s",
                             reason[0] != '\0' ? last_line(reason) : "Python was ended before it was done");
}

const struct export_format export_format_parquet = {
    .name = "parquet",
    .meaning = "Views below the folder FILE, as view=NAME/run=NAME/rank=N/device=N/part-N.parquet, for pandas, "
               "DuckDB, Polars and Dask; other runs may be there already. That needs Python 3 with pandas and "
               "pyarrow (see VARVE_PYTHON3).",
    .is_by_python = true,
};

const struct export_format export_format_arrow = {
    .name = "arrow",
    .meaning = "The same folder as of parquet, in the format of Arrow's files.",
    .is_by_python = true,
};
