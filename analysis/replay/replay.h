/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A history's requests, made again to an allocator on a simulated device: so that the recorded decisions come out
 * again, or under other rules. What the recording leaves open is inferred first (history/infer_device.h), once; the
 * result is then played (replay_session.h), as often as one likes.
 */
#ifndef VARVE_ANALYSIS_REPLAY_REPLAY_H
#define VARVE_ANALYSIS_REPLAY_REPLAY_H

#include "alloc/alloc.h"
#include "analysis/history/history.h"
#include "analysis/replay/replay_emit.h"
#include "analysis/history/infer_device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct replay;
struct varve_record;

/* Where the records of a play go, in their order. */
struct replay_output {
    void (*record)(void *context, struct replay *replay, const struct varve_record *record); /* NULL: nowhere */
    void (*end)(void *context, struct replay *replay); /* after the last one of a device; NULL: nothing */
    void *context;
};
struct progress;
struct replay_device;
struct replay_inference;

/* Called by a replay under other rules after each request, served or not: the allocator may be asked, not changed. */
typedef void (*replay_observe)(void *context, struct varve_alloc *alloc, bool has_failed);

/* Called by a replay under other rules before each request: is it left out? From any thread. */
typedef bool (*replay_skip)(void *context, const struct history_event *event);

/* What is to be replayed, and how. */
struct replay_options {
    const char *policy;        /* NULL: "pytorch" */
    const char *conf;          /* NULL: the history's own settings */
    uint64_t memory_limit;     /* 0: by the fraction in `conf`, or none */
    uint64_t capacity;         /* of the device; 0: large enough */
    bool finds_limit;          /* where none is given: that of the recording is looked for while it is followed */
    bool finds_most;           /* then also how large it can have been */
    bool follow;               /* the history's addresses and decisions are to come out again */
    bool stop_at_oom;          /* not follow: end with the first request that fails */
    bool served_only;          /* not follow: without the requests that failed in the history */
    bool counts_addresses;     /* not follow: segments lie upwards, not where a CUDA driver would put them */
    uint64_t events_max;       /* follow: no other answers are tried after so many events; 0: until none is left */
    size_t empty_cache_before; /* not follow: a call of empty_cache before this event; 0: none */
    replay_skip skip;          /* not follow: requests that it says are not made; NULL: all are */
    void *skip_context;
    replay_observe observe; /* not follow; NULL: nobody looks */
    void *observe_context;
    const struct varve_alloc_plan *plans; /* of each device, for policy plan; NULL: none */
    struct replay_output output;          /* of replay_play */
    replay_emit emit;                     /* of replay_play; NULL: this process is not being recorded */
    struct progress *progress;
};

/* The first event that came out otherwise. */
struct replay_mismatch {
    bool is_set;
    unsigned device;
    size_t event;   /* number of the event, from 0 */
    uint64_t limit; /* that it was found under; 0: none, or the caller's */
    char expected[160], got[320];
};

/* What a history that begins late begins with. Its calls of the device are of no setting: they were made before. */
struct replay_start {
    int64_t reserved, allocated, requested; /* bytes */
    int64_t device_calls;
    uint64_t clock_ns;
    bool is_inherited; /* segments and blocks are the history's; else the policy was asked for the blocks */
};

struct replay_result {
    uint64_t events, allocations; /* read; done */
    uint64_t mismatches;
    struct replay_mismatch first;
    bool segments_equal;
    char difference[320]; /* between the segments, "" if none */
    struct varve_alloc_stats stats;
    struct replay_start start; /* is_inherited: of all devices */
    uint64_t segments;         /* at the end */
    uint64_t ooms, skipped;    /* requests that failed; frees of what was never allocated */
    uint64_t limit;            /* of one device: of reserved bytes, 0: none */
    bool limit_is_small;       /* of one device: more was given back, or refused, than recorded */
    size_t reached;            /* the most events of each device that came out before another answer was tried */
    uint64_t device_ns;        /* what the device's calls would have taken, by the measured times of alloc/device */
    /* bytes: most that the device had given out, its own pool included: what is reserved, and more under cuda-async */
    int64_t device_peak;
    double seconds;
    bool starts_late;
    bool passes_over;      /* the mismatch: a free block that fits was not taken */
    bool derived_pools;    /* no segment at the end names a private pool, but it takes some */
    size_t inferred_pools; /* private pools that the events do not name and with which most came out */
    const char *advice;    /* what may be the reason of a mismatch; static text or NULL */
    size_t first_event;    /* replayed of device 0; those before end a request that began before the history */
};

/// What the history leaves open. With `options->follow` it is found by playing: `result` is that of the last play
/// then, and a mismatch is no error; without, the history is followed first, under its own settings, since its
/// decisions say what it does not: where empty_cache was called, which private pool served a request. `history` is
/// borrowed until replay_inference_free, which the caller owes if VARVE_OK is returned. Errors: VARVE_ERROR_INVALID
/// (options), FORMAT (events that contradict each other), UNSUPPORTED, and the allocator's.
int replay_infer(const struct history *history, const struct replay_options *options,
                 struct replay_inference **inference_out, struct replay_result *result, struct varve_message *message);
/// Play all devices with the options that it was inferred with. A mismatch is no error. Threads: any number at once,
/// each with its own options. Errors: VARVE_ERROR_INVALID, NO_MEMORY, and the allocator's.
int replay_play(const struct replay_inference *inference, const struct replay_options *options,
                struct replay_result *result, struct varve_message *message);
/// What was found of device `index`. Owner: `inference`.
const struct replay_device *replay_inference_device(const struct replay_inference *inference, size_t index);
/// The limit that it was recorded under; 0 throughout where none was found or looked for. Owner: `inference`.
const struct replay_limit *replay_inference_limit(const struct replay_inference *inference, size_t index);
void replay_inference_free(struct replay_inference *inference); /* NULL is allowed */
/// Infer, and play if following has not done that.
int replay_run(const struct history *history, const struct replay_options *options, struct replay_result *result,
               struct varve_message *message);

#endif
