/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment variables by which parts of the recorder get into a program that LD_PRELOAD alone would
 * miss: the CUDA driver loads what CUDA_INJECTION64_PATH names, a Python finds our sitecustomize.py in front
 * of PYTHONPATH. Children inherit them.
 */
#include "trace/collector/programs/launch.h"

#include "base/error.h"
#include "trace/collect.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int launch_variables_add(struct record_variables *variables, struct varve_message *message, const char *name,
                                const char *value, const char *rest)
{
    size_t at = 0;
    while (variables->items[at] != NULL) {
        at++;
    }
    if (at == RECORD_VARIABLES ||
        asprintf(&variables->items[at], "%s=%s%s%s", name, value, rest[0] != '\0' ? ":" : "", rest) < 0) {
        variables->items[at] = NULL;
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for the program's environment");
    }
    return VARVE_OK;
}

static int require(const char *path, const char *what, struct varve_message *message)
{
    if (path == NULL || access(path, R_OK) != 0) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                                 "%s is missing%s%s: build it, or install varve as a whole", what,
                                 path != NULL ? ": " : "", path != NULL ? path : "");
    }
    return VARVE_OK;
}

/* The program may change its folder: an absolute path, without the database's .db. */
int record_history_name(const char *database_path, char *history, struct varve_message *message)
{
    const char *slash = strrchr(database_path, '/');
    const char *name = slash != NULL ? slash + 1 : database_path;
    size_t length = strlen(name);
    char folder[PATH_MAX];
    snprintf(folder, sizeof(folder), "%.*s", slash != NULL ? (int)(slash - database_path) + 1 : 1,
             slash != NULL ? database_path : ".");
    char resolved[PATH_MAX];
    if (realpath(folder, resolved) == NULL) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "'%s': %s", folder, strerror(errno));
    }
    if (length > 3 && strcmp(name + length - 3, ".db") == 0) {
        length -= 3;
    }
    if (snprintf(history, 4096, "%s/%.*s.torch", resolved, (int)length, name) >= 4096) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the path of '%s' is too long", database_path);
    }
    return VARVE_OK;
}

int record_history_check(const struct varve_collect_options *options, struct varve_message *message)
{
    int error = require(options->python_path, "the Python part of varve", message);
    VARVE_THEN(error, require(options->torch_path, "libvarve-torch.so", message));
    return error;
}

/* In front of what is there. */
static int launch_variables_add_python(struct record_variables *variables, const char *path, const char *how,
                                       struct varve_message *message)
{
    const char *others = getenv("PYTHONPATH");
    int error = launch_variables_add(variables, message, "PYTHONPATH", path, others != NULL ? others : "");
    return error == VARVE_OK ? launch_variables_add(variables, message, "VARVE_TORCH", how, "") : error;
}

/* The folder, which is made, and this command, which explains what is left there. */
static int add_on_oom(struct record_variables *variables, const char *path, struct varve_message *message)
{
    char folder[PATH_MAX], command[PATH_MAX];
    if ((mkdir(path, 0777) != 0 && errno != EEXIST) || realpath(path, folder) == NULL ||
        access(folder, W_OK | X_OK) != 0) {
        return varve_message_set(message, VARVE_ERROR_IO, "'%s': %s", path, strerror(errno));
    }
    if (realpath("/proc/self/exe", command) == NULL) {
        return varve_message_set(message, VARVE_ERROR_IO, "/proc/self/exe: %s", strerror(errno));
    }
    int error = launch_variables_add(variables, message, "VARVE_TORCH_ON_OOM", folder, "");
    VARVE_THEN(error, launch_variables_add(variables, message, "VARVE_TORCH_COMMAND", command, ""));
    return error;
}

static int add_torch(struct record_variables *variables, const struct varve_collect_options *options, char *history,
                     struct varve_message *message)
{
    bool observes = options->torch == VARVE_TORCH_OBSERVE;
    int error = require(options->python_path, "the Python part of varve", message);
    if (error == VARVE_OK && observes) {
        error = record_history_name(options->database_path, history, message);
    } else if (error == VARVE_OK) {
        error = require(options->torch_path, "libvarve-torch.so", message);
    }
    VARVE_THEN(error, launch_variables_add_python(variables, options->python_path, observes ? "observe" : "allocate",
                                                  message));
    VARVE_THEN(error, launch_variables_add(variables, message, observes ? "VARVE_TORCH_HISTORY" : "VARVE_TORCH_LIBRARY",
                                           observes ? history : options->torch_path, ""));
    if (error == VARVE_OK && options->on_oom_path != NULL) {
        error = add_on_oom(variables, options->on_oom_path, message);
    }
    return error;
}

int record_variables_make(struct record_variables *variables, const struct varve_collect_options *options,
                          char *torch_history, struct varve_message *message)
{
    memset(variables, 0, sizeof(*variables));
    torch_history[0] = '\0';
    int error = VARVE_OK;
    if (options->cuda && options->replace_path != NULL) {
        error = require(options->replace_path, "libvarve-replace.so", message);
    }
    if (error == VARVE_OK && options->cupti) {
        error = require(options->cupti_path, "libvarve-cupti.so", message);
        VARVE_THEN(error, launch_variables_add(variables, message, "CUDA_INJECTION64_PATH", options->cupti_path, ""));
        /* PyTorch's own profiler wants CUPTI too: our Python part gives it up for that, where there is one */
        if (error == VARVE_OK && options->torch == VARVE_TORCH_OFF && options->python_path != NULL &&
            access(options->python_path, R_OK) == 0) {
            error = launch_variables_add_python(variables, options->python_path, "profiler", message);
        }
    }
    if (error == VARVE_OK && options->torch != VARVE_TORCH_OFF) {
        error = add_torch(variables, options, torch_history, message);
    }
    if (error != VARVE_OK) {
        record_variables_free(variables);
    }
    return error;
}

void record_variables_free(struct record_variables *variables)
{
    for (size_t i = 0; variables->items[i] != NULL; i++) {
        free(variables->items[i]);
        variables->items[i] = NULL;
    }
}
