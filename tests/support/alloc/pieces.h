/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * A plain model of a policy with structures of its own: all pieces of all segments in one array by address, scanned
 * from end to end for each decision. A test gives what its policy decides (struct pieces_rules); pieces_compare makes
 * random requests to the model and to an allocator, and each must be served at the same address from segments of the
 * same sizes. Only the addresses of new segments come from the allocator.
 */
#ifndef VARVE_TESTS_SUPPORT_ALLOC_PIECES_H
#define VARVE_TESTS_SUPPORT_ALLOC_PIECES_H

#include "support/alloc/rig.h"

#define PIECES_MAX 4096U
#define PIECES_NONE UINT32_MAX

struct piece {
    uint64_t addr, size, stream;
    uint64_t base;  /* of its segment */
    uint64_t nth;   /* the segment's number, in the order in which they came */
    uint64_t group; /* the rules' own, e.g. a superblock: pieces of several groups do not merge */
    uint64_t put;   /* when it last became free, 1, 2, … */
    bool is_free;
};

struct pieces {
    struct piece at[PIECES_MAX];
    uint32_t count;
    uint64_t clock, segments;
    uint64_t bytes; /* of all segments */
    void *state;    /* the rules' own */
};

struct pieces_rules {
    const char *policy;
    uint64_t unit; /* of sizes, where there is no rule for them */
    uint64_t (*rounded)(uint64_t bytes);
    /* The free piece that serves, still whole; PIECES_NONE. What is cut off keeps the piece's stream. NULL: the best
     * one of the stream. */
    uint32_t (*choose)(struct pieces *pieces, uint64_t rounded, uint64_t stream);
    /* Bytes of a new segment. NULL: those of the request. */
    uint64_t (*grow)(struct pieces *pieces, uint64_t rounded);
    /* How much of the chosen piece is handed out. NULL: what was asked for. */
    uint64_t (*cut)(const struct piece *piece, uint64_t rounded);
    /* A piece becomes free; what it merges with. NULL: free neighbours of its segment. */
    void (*put)(struct pieces *pieces, uint32_t at);
    /* empty_cache. NULL: all segments that are free go. */
    void (*release)(struct pieces *pieces);
    unsigned streams;
    void *state;
};

/// A free segment, where its address belongs.
uint32_t pieces_add(struct pieces *pieces, uint64_t addr, uint64_t bytes, uint64_t stream);
/// The piece becomes two, both as it is.
void pieces_cut(struct pieces *pieces, uint32_t at, uint64_t bytes);
/// The piece absorbs the one behind it.
void pieces_merge(struct pieces *pieces, uint32_t at);
/// Are it and the one behind it free, of one segment and of one group?
bool pieces_meet(const struct pieces *pieces, uint32_t at);
/// Is the piece a whole segment?
bool pieces_is_whole(const struct pieces *pieces, uint32_t at);
void pieces_remove(struct pieces *pieces, uint32_t at);
/// The smallest free piece that serves, the lowest among equals; of any stream with UINT64_MAX. PIECES_NONE.
uint32_t pieces_best(const struct pieces *pieces, uint64_t bytes, uint64_t stream);
/// The pieces_rules.put of NULL.
void pieces_put(struct pieces *pieces, uint32_t at);
/// The pieces_rules.release of NULL.
void pieces_release(struct pieces *pieces);

/// Open an allocator with the rules' policy, make `steps` random requests, frees and now and then an empty_cache.
void pieces_compare(struct rig *rig, const struct pieces_rules *rules, unsigned steps);

#endif
