/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tracker: which storages are alive, since when and by whose call, and which of them look like leaks.
 * Part of storage.h.
 *
 * All storages of the process can always be counted and listed. While the tracker is enabled, each new one also notes
 * the time and the address that its creator will return to; without, that costs a load and a branch. Threads: any; what
 * other threads change meanwhile is seen or not. References are told apart by who holds them: views and attachments, or
 * the program. The latter is exact only while no other thread changes references.
 */
#ifndef VARVE_STORAGE_TRACKER_H
#define VARVE_STORAGE_TRACKER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct varve_storage;

void varve_tracker_enable(bool is_enabled);

struct varve_tracker_totals {
    uint64_t storages, views; /* alive */
    uint64_t bytes;           /* of memory that storages own */
    uint64_t foreign_bytes;   /* of foreign memory */
};

void varve_tracker_get_totals(struct varve_tracker_totals *totals_out);

/// A moment: storages created from now on are after it. Marks grow.
uint64_t varve_tracker_mark(void);

/* A storage or view that is alive. */
struct varve_tracked {
    struct varve_storage *storage; /* borrowed */
    uint64_t id, base_id;          /* base_id 0: no view */
    uint64_t bytes;                /* that it owns; of a view that it shows */
    uint64_t age_ns;               /* 0: created while the tracker was not enabled */
    const void *caller;            /* where its creator returned to; NULL: likewise */
    uint32_t callsite;             /* of the recorded trace; 0: none */
    uint32_t external;             /* references of the program */
    bool is_touched;               /* its elements were asked for, or written, since it was created */
};

/// Call `take` for each, the oldest first, while it returns true. `take` may release references that the program has.
/// Errors: VARVE_ERROR_NO_MEMORY.
int varve_tracker_each(bool (*take)(void *context, const struct varve_tracked *tracked), void *context,
                       struct varve_message *message);

enum varve_leak_kind {
    VARVE_LEAK_CYCLE,     /* kept alive by others that the program has no reference to either */
    VARVE_LEAK_HELD,      /* kept alive by views alone, which show less than half of it */
    VARVE_LEAK_UNTOUCHED, /* created, and never looked at */
    VARVE_LEAK_GROWTH,    /* many from one caller since the mark, and still alive */
    VARVE_LEAK_ALIVE,     /* alive at the end, when nothing should be */
};

struct varve_leak {
    enum varve_leak_kind kind;
    uint64_t id; /* of the storage; of GROWTH the newest one */
    uint64_t bytes, storages;
    uint64_t age_ns; /* of the oldest one */
    const void *caller;
    uint32_t callsite;
    double score;       /* 0 to 1: how sure that is */
    char evidence[200]; /* in a sentence */
};

struct varve_leak_options {
    uint64_t after;      /* a mark: only storages after it; 0: all */
    uint64_t min_age_ns; /* younger ones are left alone, but for GROWTH and ALIVE; 0: none */
    uint64_t min_growth; /* storages of one caller that are many; 0: 8 */
    bool is_end;         /* nothing should be alive any more */
};

/// What looks like a leak, each storage once, the worst first by bytes and score. `options` may be NULL. Each is
/// emitted as an event, too, if the process is being recorded. Owner of the array: the caller, by free. Errors:
/// VARVE_ERROR_NO_MEMORY.
int varve_tracker_check_leaks(const struct varve_leak_options *options, struct varve_leak **leaks_out,
                              size_t *count_out, struct varve_message *message);
/// "cycle" and so on, static.
const char *varve_leak_kind_name(enum varve_leak_kind kind);

#ifdef __cplusplus
}
#endif

#endif
