/* SPDX-License-Identifier: Apache-2.0 */
/* The answers of the command `oom`, for people and for programs. */
#ifndef VARVE_ANALYSIS_CLI_OOM_PRINT_H
#define VARVE_ANALYSIS_CLI_OOM_PRINT_H

#include "alloc/alloc.h"
#include "analysis/history/history.h"
#include "analysis/query/segment_query.h"
#include "analysis/whatif/advise_explain.h"
#include "analysis/whatif/oom_cause.h"

#include <stdio.h>

/*
 * The requests of a trace that failed for want of memory, with all that is known of each: what the memory was then, and
 * the failure of the history that it is, for replays. A database with the allocator's decisions is asked
 * (oom_scene.c); of a snapshot, and a database that was imported from one, the history is followed (oom_follow.c),
 * since only its decisions say sizes of blocks and stages. Called by the command `oom`.
 */

struct database;
struct progress;
struct varve_plumbing;

#define OOM_NO_FAILURE SIZE_MAX
#define OOM_DETAILS_MAX 50 /* requests whose memory is looked at: in a database each is a state to rebuild */

/* A block in the way. */
struct oom_holder {
    struct owner owner;
    int64_t allocations; /* of its device since then */
};

/* Live memory of one line of the program. */
struct oom_site {
    struct owner owner; /* callsite_id 0: none was recorded */
    int64_t bytes, blocks;
};

#define OOM_SITES_MAX 3

/* One stage of the chain that was gone through before the request failed. */
struct oom_stage {
    char name[24];
    int64_t seq, bytes_freed;
};

#define OOM_STAGES_MAX 16

struct oom_request {
    struct failed_request request; /* seq: of the decisions */
    int64_t seq; /* that people know: of the database that was given, or that the snapshot is imported into */
    int64_t ts_ns, pid, tid, thread_id;
    int64_t requested, allocated, reserved, largest_free; /* of the event; largest_free < 0: unknown */
    struct owner owner;
    struct oom_stage stages[OOM_STAGES_MAX]; /* the last of its thread before it, in their order */
    size_t stage_count;
    struct failure failure; /* is_known: only then there is what follows */
    struct oom_memory memory;
    char pool[POOL_NAME_BYTES];
    struct oom_holder freeing[FAILURE_BLOCKS_MAX], best[FAILURE_BLOCKS_MAX]; /* of the failure's blocks */
    struct oom_site sites[OOM_SITES_MAX];                                    /* those with the most bytes in use then */
    size_t site_count;
    size_t number; /* of explain's failures, or OOM_NO_FAILURE */
};

struct oom_scene {
    struct database *database; /* NULL: a snapshot was given */
    struct oom_request *requests;
    size_t count, capacity;
    struct varve_alloc_config config;
    struct owners *owners;         /* of the database */
    const struct history *history; /* NULL: there is none */
    struct explain *explain;       /* NULL: nothing is replayed, for this reason: */
    char reason[512];
};

/// The requests of all devices (< 0) or one, from a database; of the first `detailed` also what has to be looked up.
/// Errors: those of the database.
int oom_scene_load(struct oom_scene *scene, int64_t device, size_t detailed, struct varve_message *message);
/// Requests of a history came from following it: people know them by their numbers in the database.
void oom_scene_number(struct oom_scene *scene, int64_t device);
/// In the words of the settings; those of another version say nothing. NULL: there are none.
void oom_scene_configure(struct oom_scene *scene, const char *text);
/// One more, with its place in the scene.
struct oom_request *oom_scene_add(struct oom_scene *scene, const struct oom_request *request);
/// What the accounting of each is, and which failure of the history, after all are there.
void oom_scene_describe(struct oom_scene *scene, int64_t device);
void oom_scene_free(struct oom_scene *scene); /* the requests, and owners */

/* How a history is followed. */
struct oom_following {
    const struct history *history;
    int64_t device;                        /* < 0: all */
    uint64_t limit;                        /* of reserved bytes; it is followed without one too; 0: none */
    const struct varve_plumbing *plumbing; /* which frames are the user's; NULL: by the built-in table */
    size_t all_hidden;                     /* out: call sites, if none of them has a frame that is not hidden, else 0 */
    struct progress *progress;
};

/// The requests with the decisions around them. VARVE_ERROR_FORMAT: they do not come out again; there are none then.
int oom_follow(struct oom_scene *scene, struct oom_following *following, struct varve_message *message);
/// The requests as a snapshot has them: blocks are as large as was asked for, and there are no stages. With
/// `numbers_only` those that are there get their numbers of this import. Errors: those of import_pytorch.
int oom_follow_import(struct oom_scene *scene, struct oom_following *following, bool numbers_only,
                      struct varve_message *message);

/// The first `explained` requests with what would have served them, which is played now; the others by their causes.
void oom_print_text(FILE *out, struct oom_scene *scene, size_t explained);
void oom_print_json(FILE *out, struct oom_scene *scene, const char *path, size_t explained);

#endif
