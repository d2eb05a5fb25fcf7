/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments and blocks at any event of a trace: the state then, grouped into segments. Called by segment_listing.c,
 * the commands and the report.
 */
#ifndef VARVE_ANALYSIS_QUERY_SEGMENT_QUERY_H
#define VARVE_ANALYSIS_QUERY_SEGMENT_QUERY_H

#include "base/error.h"
#include "trace/layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct cJSON;
struct database;

/* The allocator of one device in one process. */
struct segments_part {
    int64_t process_id, pid, device;
    struct varve_layout *layout;
};

struct segments_state {
    struct segments_part *parts; /* by process and device */
    size_t count;
    int64_t seq, ts_ns; /* of the last event that is in; ts_ns 0 before the first */
    int64_t last_seq;   /* of the trace */
};

/// Since the trace began; 0 if there is no such event.
int64_t event_time_ns(struct database *database, int64_t seq);
/// A time since the trace began, with ns, us, ms or s. VARVE_ERROR_INVALID: it is none.
int event_time_parse(const char *text, int64_t *ts_ns_out);
/// The event that `text` names: its number, or a time with ns, us, ms or s (the last event not later than
/// that); NULL: the last. Errors: VARVE_ERROR_INVALID, NOT_FOUND (beyond the last event).
int segments_moment(struct database *database, const char *text, int64_t *seq_out, struct varve_message *message);
/// The same as a time, which needs no events unless their number is given. `option`: whose value it is; `others`: what
/// else it takes, for the message, with a comma and a space behind each, or "".
int moment_parse(struct database *database, const char *option, const char *others, const char *text, int64_t *ns_out,
                 struct varve_message *message);
/// State after event `seq`; device < 0: all, pid 0: all processes. Errors: VARVE_ERROR_CORRUPT, NO_MEMORY,
/// those of the database.
int segments_state_load(struct segments_state *state, struct database *database, int64_t seq, int64_t device,
                        int64_t pid, struct varve_message *message);
void segments_state_free(struct segments_state *state);
/// True if blocks are as large as their requests, for want of better.
bool segments_state_is_approximate(const struct segments_state *state, struct database *database);

/* A segment; of an expandable one, a range that is mapped without a gap, or all of it. */
struct segment_item {
    struct varve_layout_block first; /* has segment, stream, pool, flags */
    uint64_t addr, end;              /* with gaps, if it is all of an expandable one */
    uint64_t mapped, allocated, active, requested, largest_free;
    size_t block_count;
};

/// The next item at or behind *from, which moves to its end; false if there is none. With `whole` the ranges
/// of an expandable segment are one item.
bool segment_next(const struct varve_layout *layout, uint64_t *from, bool whole, struct segment_item *item_out);
/// The blocks of an item as a line of at most `columns` characters: '#' used, 'p' pending, '.' free, ' ' not
/// mapped, each for what most of its bytes are.
void segment_map(const struct varve_layout *layout, const struct segment_item *item, char *line, size_t columns);

/* The answer of `varve segments`: totals first, then what is cached and unused, then segments and their blocks. */

struct listing {
    int64_t top; /* empty segments, holes, and segments in use that are listed of each allocator */
    bool with_map, with_blocks;
};

/// Errors as of cursors: database_error gives them.
void listing_text(FILE *out, struct database *database, const struct segments_state *state,
                  const struct listing *listing);
void listing_json(FILE *out, struct database *database, const struct segments_state *state);

/*
 * Why reserved memory serves no request: the fragmentation ladder of an allocator after an event, as view `ladder` has
 * it. Called by segment_listing.c and the report.
 */

#define LADDER_FIGURES 9

/* In bytes: reserved, live, and the seven rungs between them, in the order of the columns of the view. */
struct ladder_figures {
    int64_t bytes[LADDER_FIGURES];
};

/// The row of `ladder` of that event, or of the allocator's last one before it; all 0 before its first, and where
/// events were not kept. Errors as of cursors: database_error gives them.
void ladder_load(struct ladder_figures *figures, struct database *database, int64_t process_id, int64_t device,
                 int64_t seq);
/// A line for each rung that is not 0, behind one with their sum; nothing if nothing is reserved.
void ladder_print(FILE *out, const struct ladder_figures *figures);
struct cJSON *ladder_json(const struct ladder_figures *figures);

/* What the numbers of streams and pools in a trace stand for. */

struct pool_meaning {
    bool is_small, has_ids;
    int64_t capture_id, user_id;
};

#define POOL_NAME_BYTES 16

/// The handle of a stream; its number if the trace does not say.
int64_t stream_handle(struct database *database, const struct segments_part *part, int64_t number);
struct pool_meaning pool_of(struct database *database, const struct segments_part *part, unsigned number);
/// "large", "small", or with the number of a private pool: "large 2".
void pool_name(struct database *database, const struct segments_part *part, unsigned number,
               char name[POOL_NAME_BYTES]);
/// The same of a pool that is small or not.
void pool_name_of(bool is_small, unsigned number, char name[POOL_NAME_BYTES]);
/// The two numbers of a pool as PyTorch has them; null: unknown.
struct cJSON *pool_ids_json(const struct pool_meaning *pool);
/// Lines of the private pools that have memory, of `top` at most: whose they are, and who first asked the device for
/// some there. Errors as of cursors: database_error gives them.
void private_pools_print(FILE *out, struct database *database, const struct segments_part *part, int64_t top);
struct cJSON *private_pools_json(struct database *database, const struct segments_part *part);

/*
 * Who allocated the blocks of a layout: a layout knows addresses, the rows of `allocation` know call sites. All blocks
 * that are wanted are looked up in one pass over those rows.
 */

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
/// callsite_id, user_function, user_file, user_line: members of an object.
void owner_json(struct cJSON *object, const struct owner *owner);

/*
 * What a caching allocator has reserved and does not use: segments without a block in use, which it could give back, or
 * which a private pool keeps while its CUDA graph or MemPool lives, and holes, free ranges in segments that have a
 * block in use. Called by segment_listing.c and by the command `oom`.
 */

/* Free blocks without a gap between them, in a segment with a block in use. */
struct hole {
    uint64_t addr, size;
    struct segment_item segment;              /* all of it, if it is expandable */
    struct varve_layout_block before, behind; /* in use, right beside it; extent 0: none */
};

struct cached_sums {
    uint64_t reserved, used,
        pending; /* bytes; reserved: of segments that events name, the others also of implied ones */
    uint64_t in_holes, in_empty, in_kept; /* free bytes */
    uint64_t largest_hole, largest_empty;
    uint64_t segments, used_blocks, pending_blocks, holes, empty_segments, kept_segments;
    uint64_t implied_bytes, implied_blocks; /* in use, of segments that no event names */
};

/* Of one allocator. */
struct cached {
    struct cached_sums sums;
    struct hole *holes; /* the largest first, then by address */
    size_t hole_count, hole_capacity;
    struct segment_item *empty; /* segments without a block in use that could be given back; the same order */
    size_t empty_count, empty_capacity;
    struct segment_item *kept; /* those of private pools; the same order */
    size_t kept_count, kept_capacity;
    struct segment_item *used; /* the others, those with most free bytes first */
    size_t used_count, used_capacity;
};

void cached_load(struct cached *cached, const struct varve_layout *layout);
void cached_free(struct cached *cached);

/*
 * A request that a caching allocator could not serve, and the memory of that moment: what was free, why it did not fit,
 * and what of it would have. Called by the command `oom`.
 */

#define FAILURE_BLOCKS_MAX 3

struct failed_request {
    int64_t seq, process_id, device;
    uint64_t rounded; /* bytes of the block that it needed */
    uint16_t stream, pool;
};

/* Free memory of one pool on one stream, or of several. */
struct failure_free {
    uint64_t bytes, blocks, largest;
    uint16_t largest_stream, largest_pool;
};

/* Blocks in use which, freed, leave one free block that is large enough: those with the fewest bytes. */
struct failure_freeing {
    uint64_t bytes, blocks; /* 0: no segment of the pool and stream is that large */
    uint64_t result;        /* size of the block that they would leave */
    struct varve_layout_block first[FAILURE_BLOCKS_MAX];
};

/* The segment of its pool and stream with the most free bytes, and the blocks that keep them apart,
 * the smallest first. */
struct failure_segment {
    uint64_t addr, bytes, unused, largest;
    uint64_t blocks, block_bytes; /* in use or pending */
    struct varve_layout_block first[FAILURE_BLOCKS_MAX];
};

struct failure {
    bool is_known;                    /* the trace has the state of that allocator */
    uint64_t reserved, used, pending; /* bytes */
    uint64_t live;                    /* requested bytes of the blocks in use */
    struct failure_free own, others;  /* of the request's pool and stream, of all the rest */
    uint64_t with_pending;            /* the largest block of its own, if all pending blocks had been free */
    uint64_t largest_addr;            /* of own.largest */
    struct failure_freeing freeing;
    struct failure_segment best; /* bytes 0: none */
};

/// In the layout of its allocator after it failed.
void failure_of_layout(struct failure *failure, const struct varve_layout *layout,
                       const struct failed_request *request);
/// The same from a database. Errors: those of segments_state_load.
int failure_load(struct failure *failure, struct database *database, const struct failed_request *request,
                 struct varve_message *message);

#endif
