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
 * The requests of a trace that failed for want of memory, with all that is known of each: what the memory was then,
 * from a database that has the decisions of that moment, and the failure of the history that it is, for replays. Made
 * by the command `oom`, read by what prints it.
 */

struct database;
struct progress;

#define OOM_NO_FAILURE SIZE_MAX

struct oom_request {
    struct failed_request request; /* in the database of the decisions */
    int64_t seq; /* that people know: of the database that was given, or that the snapshot is imported into */
    int64_t ts_ns, pid, tid, thread_id, callsite_id;
    int64_t requested, allocated, reserved, largest_free; /* of the event; largest_free < 0: unknown */
    struct failure failure;                               /* is_known */
    struct oom_memory memory;                             /* if so */
    size_t number;                                        /* of explain's failures, or OOM_NO_FAILURE */
};

struct oom_scene {
    struct database *given; /* or that of the snapshot; NULL: nothing failed in that */
    struct database *exact; /* the database of the decisions: that one, or one made by following the history */
    struct oom_request *requests;
    size_t count, capacity;
    struct varve_alloc_config config;
    struct owners *owners;
    const struct history *history; /* NULL: there is none */
    struct explain *explain;       /* NULL: nothing is replayed, for this reason: */
    char reason[512];
};

/// Requests of all devices (< 0) or one, into a scene whose databases, history and explain are set. Errors: those of
/// the database.
int oom_scene_load(struct oom_scene *scene, int64_t device, struct varve_message *message);
void oom_scene_free(struct oom_scene *scene); /* what oom_scene_load made */

/* Live memory of one line of the program. */
struct oom_site {
    struct owner owner; /* callsite_id 0: none was recorded */
    int64_t bytes, blocks;
};

#define OOM_SITES_MAX 3

/// Those with the most bytes in use when the request failed; their number.
size_t oom_scene_sites(struct oom_scene *scene, const struct oom_request *request,
                       struct oom_site sites[OOM_SITES_MAX]);
/// Allocations of its device between event `seq` and the request.
int64_t oom_scene_allocations(struct oom_scene *scene, const struct oom_request *request, int64_t seq);

/* One stage of the chain that was gone through before the request failed. */
struct oom_stage {
    char name[24];
    int64_t seq, bytes_freed;
};

#define OOM_STAGES_MAX 16

/// The last events of its thread before it, in their order; their number.
size_t oom_scene_stages(struct oom_scene *scene, const struct oom_request *request,
                        struct oom_stage stages[OOM_STAGES_MAX]);
/// Who allocated a block of the failure's lists.
struct owner oom_scene_owner(const struct oom_scene *scene, const struct oom_request *request,
                             const struct varve_layout_block *block);

/// A database of what the allocator decided, at `path`: the history is followed under `limit`, or without one.
/// VARVE_ERROR_FORMAT: it does not come out again.
int oom_scene_write(const struct history *history, uint64_t limit, const char *path, struct progress *progress,
                    struct varve_message *message);

/// The first `explained` requests with what would have served them, which is played now; the others by their causes.
void oom_print_text(FILE *out, struct oom_scene *scene, size_t explained);
void oom_print_json(FILE *out, struct oom_scene *scene, const char *path, size_t explained);

#endif
