/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the libraries of this installation are that a recorded program loads: beside the command (build
 * folder), in the library folder that belongs to the command's (installed), or where the variable of each
 * says. Asked by record and doctor.
 */
#include "analysis/base/component_find.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef VARVE_LIBRARY_DIRECTORY
#define VARVE_LIBRARY_DIRECTORY "lib/varve"
#endif

bool component_folder(char *buffer, size_t buffer_bytes)
{
    ssize_t length = readlink("/proc/self/exe", buffer, buffer_bytes - 1);
    if (length <= 0 || (size_t)length >= buffer_bytes - 1) {
        return false;
    }
    buffer[length] = '\0';
    char *slash = strrchr(buffer, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    return true;
}

static bool component_find_find(const char *name, const char *variable, char *buffer, size_t buffer_bytes)
{
    static const char *const folders[] = {".", ("../" VARVE_LIBRARY_DIRECTORY), "../lib/varve"};
    const char *given = getenv(variable);
    if (given != NULL && given[0] != '\0') {
        snprintf(buffer, buffer_bytes, "%s", given);
        return access(buffer, R_OK) == 0;
    }
    char directory[PATH_MAX];
    if (!component_folder(directory, sizeof(directory))) {
        directory[0] = '\0';
    }
    char path[PATH_MAX + 512];
    char resolved[PATH_MAX];
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s/%s", directory, folders[i], name);
        if (access(path, R_OK) == 0 && realpath(path, resolved) != NULL) {
            return (size_t)snprintf(buffer, buffer_bytes, "%s", resolved) < buffer_bytes;
        }
    }
    snprintf(buffer, buffer_bytes, "%s/%s", directory, name);
    return false;
}

/* By enum component. */
static const struct {
    const char *name, *variable;
} components[] = {
    {"libvarve_preload.so", "VARVE_PRELOAD"},
    {"libvarve_lttng.so", "VARVE_PROVIDER"},
    {"libvarve-cupti.so", "VARVE_CUPTI"},
    {"libvarve-torch.so", "VARVE_TORCH_LIBRARY"},
    {"libvarve-replace.so", "VARVE_REPLACE"},
    {"python/sitecustomize.py", "VARVE_PYTHON"},
    {"babeltrace-plugin-varve.so", "VARVE_BABELTRACE_PLUGIN"},
};

bool component_find(enum component component, char *buffer, size_t buffer_bytes)
{
    return component_find_find(components[component].name, components[component].variable, buffer, buffer_bytes);
}
