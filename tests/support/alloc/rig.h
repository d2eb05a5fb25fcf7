/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * What the hand-made tests of the allocator share: a rig is a sim device, an allocator on it, and all records
 * of its decisions. Records are compared as text, one line each with what matters about its kind, so that a
 * test shows a chain of decisions as a reader would describe it. Every step is followed by the walkers.
 *
 * Sizes in texts are in MiB ("20M") where they are whole ones.
 */
#ifndef VARVE_TESTS_SUPPORT_ALLOC_RIG_H
#define VARVE_TESTS_SUPPORT_ALLOC_RIG_H

#include <cmocka.h>

#include "alloc/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define RIG_RECORDS 4096U
#define RIG_TEXT 8192U

struct rig_options {
    struct varve_sim_options sim;
    const char *config; /* PyTorch's syntax; NULL: defaults */
    const char *policy;
    uint64_t limit;
    bool has_research; /* search again after freed blocks came back */
    bool emits_names;  /* as varve_alloc_recorder has it */
};

struct rig {
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_alloc_recorder recorder;
    struct varve_record records[RIG_RECORDS];
    size_t count;
    size_t mark; /* records before it have been looked at */
    struct varve_message message;
    uint64_t named[26]; /* of a play: blocks by their letters */
    const char *now;    /* the case that is played, for messages; NULL */
    /* of its callbacks for a miss or as a last resort, and of its observer */
    uint64_t gives[2]; /* what the next calls free; 0: nothing */
    bool answer;
    unsigned called, observed;
    struct varve_alloc_miss miss; /* the last one */
    struct varve_alloc_oom oom;
    char inside[128]; /* words for the next of them; "" */
    /* of a hooked device: its operations with some replaced */
    struct varve_device_ops ops;
    const struct varve_device_ops *real;
    void (*on_segment_alloc)(void *context); /* before it is asked for one; NULL: nothing */
    void *on_context;
    int wait_error; /* of all waits for events, which the sim device has no script for; 0: they work */
};
void rig_record(void *context, const struct varve_record *record);

/* ---- life ---- */

void rig_check(struct rig *rig);
void rig_open(struct rig *rig, const struct rig_options *options);

/* The allocator goes; the device must have got back all that it gave. Of the last one by the teardown. */
void rig_close(struct rig *rig);

/* Setup and teardown of each test, which closes what is open, with all checks. */
int rig_setup(void **state);
int rig_teardown(void **state);

/* ---- steps ---- */

uint64_t take_on(struct rig *rig, uint64_t bytes, uint64_t stream);
uint64_t take(struct rig *rig, uint64_t bytes);

/* The request fails; the reason is in rig->message. */
void refused_on(struct rig *rig, uint64_t bytes, uint64_t stream, int error);
void refused(struct rig *rig, uint64_t bytes, int error);
void give(struct rig *rig, uint64_t addr);
void use_on(struct rig *rig, uint64_t addr, uint64_t stream);
void empty_cache(struct rig *rig);
struct varve_alloc_stats stats_of(struct rig *rig);
uint64_t calls_of(const struct rig *rig, enum varve_device_call call);
/* The device's calls, as plays name them. */
bool rig_find_call(const char *word, size_t length, enum varve_device_call *call_out);

/* A test wants to act while the device is asked for a segment, but not for those that it asks for itself. One rig at a
 * time has hooks. */
void rig_hook(struct rig *rig, void (*on_segment_alloc)(void *context), void *context);

/* Does another thread get a block now? With the lock held this would never end. */
bool rig_serves_another_thread(struct rig *rig);

/* ---- records as text ---- */

/* All records since the last look, one line each. */
void expect(struct rig *rig, const char *expected);
void forget(struct rig *rig);

/* The n-th record of a kind since the last look, counted from 0. */
const struct varve_record *nth_record(const struct rig *rig, enum varve_kind kind, size_t n);

/* ---- snapshots as text ---- */

/* Everything in a snapshot but the numbers of segments and allocations. Owner: the caller, by free. */
char *layout_of(struct rig *rig);

/* Blocks of the segment that begins at `addr`, as "a10M -10M": allocated, free (-), pending (p). */
void expect_segment(struct rig *rig, uint64_t addr, const char *expected);

/* ---- plays: steps in words ---- */

/*
 * Words, separated by blanks; after each the walkers look. A size is 512, 4K, 30M, 20M-512; a place is a block's
 * letter, or a+24M; a stream or a pool is a number.
 *
 *   30M  a=30M  a=30M@7    a request, of the default stream or another; the block gets a letter
 *   30M>a  30M>a+24M       a request that is served at that place
 *   30M!a                  … that is not
 *   x61M  x61M@7  X61M     a request that fails: for lack of memory, or with VARVE_ERROR_IO
 *   -a  -a!io              a free, one that fails with VARVE_ERROR_IO
 *   says{text}             text is a part of the last message
 *   a~7                    another stream uses the block
 *   [7  [7@3  ]7  ;7       requests (of stream 3) go to the private pool {0, 7}, no longer; it is released
 *   a#7                    the segment that begins there is of the pool {0, 7}; 0 is the default one
 *   empty                  the cache is emptied; empty! with VARVE_ERROR_IO
 *   done@7                 what stream 7 has to do is done
 *   nosplit=7  lend=7      the properties of pool {0, 7}
 *   miss=1                 a callback for each miss, with that answer; answer=0 changes it
 *   resort                 one as the last resort; unmiss: there are no callbacks any more
 *   gives=ab               the next calls of them free a, then b
 *   observe                an observer of failed requests; the figures of the last one are oom_…
 *   device                 the device has hooks; nowait=1: its waits for events fail
 *   in{words}              what the next callback, observer or hook does, in the middle of the request
 *   clear=7  busy=7        that pool alone is emptied, or can't be
 *   gone=7  there=7        there is no pool {0, 7}; there is one (varve_alloc_empty_pool)
 *   process                varve_alloc_process_events
 *   expand=1  peer=2       expandable segments from now on; the peer gets access
 *   percent=42             the fraction of the device's memory that is the limit
 *   limit=80M              the limit is set; most=80M that of allocated bytes
 *   fail:unmap:3           the third call from now on fails with VARVE_ERROR_IO, lack:… for lack of memory;
 *                          busy:free:3: the next three with VARVE_ERROR_BUSY
 *   a{p4M -16M}            the segment that begins at that place has these blocks (expect_segment)
 *   reserved=88M           a figure, or how often the device was asked: create=3; their names are in rig.c
 *   |                      the records so far are not looked at
 *   <alloc cache 30M; …>   the records since the last look
 */
void play(struct rig *rig, const char *words);

struct rig_case {
    const char *what;
    struct rig_options options;
    const char *words;
};
#define TEST_PLAYS(name, cases)                                          \
    TEST_WITH(name, rig_setup, rig_teardown)                             \
    {                                                                    \
        rig_play_cases(*state, cases, sizeof(cases) / sizeof(cases[0])); \
    }
/* Each with a rig of its own. */
void rig_play_cases(struct rig *rig, const struct rig_case *cases, size_t count);

#endif
