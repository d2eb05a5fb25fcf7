/* SPDX-License-Identifier: Apache-2.0 */
/* Programs whose heap no hook sees, because an allocator is linked into them. */
#ifndef VARVE_TRACE_COLLECTOR_OWN_ALLOCATORS_H
#define VARVE_TRACE_COLLECTOR_OWN_ALLOCATORS_H

#include <stdbool.h>

struct collector;
struct traced_process;

/* What was found out about an executable. */
#define KNOWN_PROGRAMS 64U
struct known_program {
    char path[1024];
    const char *allocator; /* of collect_allocator_of */
    bool has_python;       /* an interpreter is linked into it */
};

/// What is linked into the program and serves its heap, so that no hook sees it: "jemalloc" and so on, a
/// literal; NULL: nothing known, or the file can't be read.
const char *collect_allocator_of(const char *path);
/// Report in `stats` if a process had such an allocator, libraries that are not recorded, or an interpreter of Python
/// whose frames are not read. Once per process, at its end.
int collect_allocator_row(struct collector *collector, const struct traced_process *process);
/// After all processes: the same of the program that was started, if it came to no event and so to no row.
int collect_allocator_launched(struct collector *collector, const char *path);

#endif
