/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The call sites that lead while events still come: those with the most live bytes, the most bytes so far, and the most
 * bytes since the look before, of each domain.
 */
#ifndef VARVE_TRACE_MODEL_GROUP_LEADERS_H
#define VARVE_TRACE_MODEL_GROUP_LEADERS_H

#include "trace/model/domain.h"
#include "trace/model/model_state.h"

#include <stddef.h>
#include <stdint.h>

struct derive;

/* A call site of a domain, all devices of it together. */
struct leader {
    struct callsite_total total;
    uint64_t allocations_before, bytes_before; /* at the look before; 0 if that did not see it */
    uint32_t callsite;
    uint32_t domain;
};

struct leaders_seen {
    uint64_t allocations, bytes;
};

/* All zero: nobody has looked yet. */
struct leaders {
    struct leader *rows; /* of the last look: by domain, each call site once */
    size_t count, capacity;
    struct leader *best; /* of one domain while it is looked at: `most` rows for each order */
    size_t best_capacity;
    struct {
        struct leaders_seen *seen; /* by call site, at the last look */
        size_t capacity;
    } domains[DOMAIN_LIMIT];
};

/// Look at all call sites now: up to `most` of each domain in each of the three orders go to leaders->rows. Costs some
/// ns for each call site and domain. Errors: VARVE_ERROR_NO_MEMORY; the next look may succeed.
int leaders_look(struct leaders *leaders, const struct derive *derive, size_t most);
void leaders_free(struct leaders *leaders);

#endif
