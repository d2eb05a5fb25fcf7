/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The call-site files of a rebuild, one per process: modules, code objects and call sites in the order in which they
 * came, as the workload wrote them. One thread calls all of it.
 */
#ifndef VARVE_TRACE_IMPORT_REBUILD_CALLSITES_H
#define VARVE_TRACE_IMPORT_REBUILD_CALLSITES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct varve_rebuild;

/* Numbers that came already, one bit each. */
struct rebuild_bits {
    uint64_t *words;
    size_t word_count;
};

struct rebuild_callsites {
    struct rebuild_bits modules, gone, codes, callsites;
    bool has_file;
};

/* Entries of one process after the other are gathered here. */
struct rebuild_callsites_buffer {
    uint8_t *bytes;
    size_t count;
    uint64_t file; /* number of the process they belong to */
};

/// Write what is gathered; an error is kept by the rebuild.
int rebuild_callsites_flush(struct varve_rebuild *rebuild);
void rebuild_callsites_path(const struct varve_rebuild *rebuild, uint64_t file, char *path, size_t bytes);
void rebuild_callsites_drop(struct rebuild_callsites *callsites);

#endif
