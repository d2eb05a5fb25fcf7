/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks of `varve doctor`: each adds lines, none changes anything on the machine. doctor.c calls them and prints.
 */
#ifndef VARVE_ANALYSIS_CLI_DOCTOR_DOCTOR_H
#define VARVE_ANALYSIS_CLI_DOCTOR_DOCTOR_H

#include "analysis/base/component_find.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum doctor_state {
    DOCTOR_OK,
    DOCTOR_MISSING,
    DOCTOR_WARNING,
};

struct doctor_line {
    const char *key;
    enum doctor_state state;
    char found[160];  /* what is there */
    char effect[200]; /* what its absence costs; "" if nothing */
    char remedy[200]; /* package to install, or command; "" if none */
};

struct doctor_lines {
    struct doctor_line items[96];
    size_t count;
};

/// `effect` and `remedy` are of a lack: a line that is DOCTOR_OK has none.
void doctor_add(struct doctor_lines *lines, const char *key, enum doctor_state state, const char *effect,
                const char *remedy, const char *found_format, ...) __attribute__((format(printf, 6, 7)));
void doctor_check_machine(struct doctor_lines *lines);   /* doctor_machine.c */
void doctor_check_libraries(struct doctor_lines *lines); /* doctor_libraries.c */
void doctor_check_gpu(struct doctor_lines *lines);       /* doctor_gpu.c */
void doctor_check_lttng(struct doctor_lines *lines);     /* doctor_lttng.c */
void doctor_check_leftovers(struct doctor_lines *lines); /* doctor_leftovers.c */
/// A line on a library that the dynamic linker finds, or on a part of this installation.
void doctor_check_library(struct doctor_lines *lines, const char *key, const char *name, const char *effect,
                          const char *remedy);
void doctor_check_component(struct doctor_lines *lines, const char *key, enum component component, const char *effect,
                            const char *remedy);
/// The first file that a pattern of paths names.
bool pattern_find(const char *pattern, char *path, size_t path_bytes);
/// Where LD_LIBRARY_PATH and the usual folders have the library `name`, which may be a pattern.
bool library_find(const char *name, char *buffer, size_t buffer_bytes);

/* doctor_gpu.c, doctor_gpu_python.c: parts of doctor_check_gpu */

/// Device nodes of the driver in `folder` (/dev), and the file in which the kernel module says its version.
void doctor_check_gpu_nodes(struct doctor_lines *lines, const char *folder, const char *module);
/// PyTorch of the python3 in PATH, against the driver's version (0: unknown). Where its package lies goes to
/// `folder`, "" if nowhere.
void doctor_check_pytorch(struct doctor_lines *lines, int driver_version, char *folder, size_t folder_bytes);
/// `packages`: the folder of Python's packages that PyTorch is in, or "".
void doctor_check_cupti(struct doctor_lines *lines, const char *packages);

#endif
