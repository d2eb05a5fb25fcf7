/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks of `varve doctor`, grouped by file: each adds lines, none changes anything on the machine.
 */
#ifndef VARVE_DOCTOR_INTERNAL_H
#define VARVE_DOCTOR_INTERNAL_H

#include "analysis/analysis_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- doctor_*.c: what this machine offers ---- */

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
    struct doctor_line items[48];
    size_t count;
};

void doctor_add(struct doctor_lines *lines, const char *key, enum doctor_state state, const char *effect,
                const char *remedy, const char *found_format, ...) __attribute__((format(printf, 6, 7)));
void doctor_check_machine(struct doctor_lines *lines);   /* doctor_machine.c */
void doctor_check_libraries(struct doctor_lines *lines); /* doctor_libraries.c */
void doctor_check_lttng(struct doctor_lines *lines);     /* doctor_lttng.c */
void doctor_check_leftovers(struct doctor_lines *lines); /* doctor_leftovers.c */
/// Where the usual folders have the library `name`, which may be a pattern.
bool library_find(const char *name, char *buffer, size_t buffer_bytes);
/// Where PATH has `name`.
bool program_find(const char *name, char *buffer, size_t buffer_bytes);

#ifdef __cplusplus
}
#endif

#endif
