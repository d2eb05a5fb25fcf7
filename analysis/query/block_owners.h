/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who allocated the blocks of a layout: a layout knows addresses, the rows of `allocation` know call sites. All blocks
 * that are wanted are looked up in one pass over those rows.
 */
#ifndef VARVE_ANALYSIS_QUERY_BLOCK_OWNERS_H
#define VARVE_ANALYSIS_QUERY_BLOCK_OWNERS_H

#include <stddef.h>
#include <stdint.h>

struct database;
struct segments_part;

/* A place in the program, and when it allocated. */
struct owner {
    int64_t callsite_id;         /* 0: none was recorded */
    int64_t alloc_seq, alloc_ns; /* of owners_of; 0: unknown */
    const char *function, *file; /* of the user's line; NULL: unknown; the owners' */
    int64_t line;
};

#define OWNER_TEXT_BYTES 640

struct owners;

/// Owner: the caller, by owners_free.
struct owners *owners_new(void);
void owners_free(struct owners *owners);
/// A block at `addr` that was in use after event `seq`.
void owners_want(struct owners *owners, uint64_t addr, int64_t seq);
/// Look up all that were wanted. Errors as of cursors: database_error gives them.
void owners_load(struct owners *owners, struct database *database);
/// After owners_load: of a block that was wanted.
struct owner owners_of(const struct owners *owners, const struct segments_part *part, uint64_t addr, int64_t seq);
/// Of a call site by its id.
struct owner owner_of_callsite(struct owners *owners, struct database *database, int64_t callsite_id);
/// "function (file:line)" in at most `columns`, which are 40 to 100; "" if nothing is known.
void owner_text(const struct owner *owner, size_t columns, char text[OWNER_TEXT_BYTES]);

#endif
