/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector's side of the reserve (format/session_format.h): slots with memory for programs that can't make files
 * any more. What programs write into its table is not trusted: a slot is a place in the file and nothing else.
 */
#ifndef VARVE_TRACE_COLLECTOR_SESSION_RESERVE_SLOTS_H
#define VARVE_TRACE_COLLECTOR_SESSION_RESERVE_SLOTS_H

#include "trace/format/session_format.h"

#include <stdbool.h>
#include <stdint.h>

struct session_reserve {
    struct session_counts *counts; /* borrowed; NULL: there is no reserve */
    int fd;                        /* of the file that `counts` is the beginning of; -1 */
    uint32_t ready;                /* slots to keep ready; grows where producers find none */
    uint32_t used;                 /* slots from this one on were never made ready */
};

/// Make slots ready: as many as are wanted, or as there is memory for. Cheap where nothing was taken.
void session_reserve_fill(struct session_reserve *reserve);
/// Where in the file the slot begins that holds ring `ring` of `process`, or its page (`kind`). False: none does.
bool session_reserve_find(const struct session_reserve *reserve, enum reserve_state kind, uint32_t process,
                          uint32_t ring, uint64_t *offset);
/// Memory behind `bytes` of a slot from `from` on, both counted from `offset`, its beginning. False: there is none.
bool session_reserve_grow(const struct session_reserve *reserve, uint64_t offset, uint64_t from, uint64_t bytes);
/// What the slot holds is stored: its memory goes back, and it can be made ready again.
void session_reserve_release(const struct session_reserve *reserve, enum reserve_state kind, uint32_t process,
                             uint32_t ring);

#endif
