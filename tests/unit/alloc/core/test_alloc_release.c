/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes back to the device, in which order, and what stays: garbage collection with its ages, the release
 * of oversize blocks, and the release of everything. Several of these rules can't be learned from recorded
 * traces (a block of exactly the mean age, blocks that went in vain), so they are pinned here.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"

/* ---- garbage collection ---- */

/* The collector begins above 100 MiB of 200. */
#define GC                                                               \
    {                                                                    \
        .limit = 200 * MIB, .config = "garbage_collection_threshold:0.5" \
    }
/* Free blocks of 30, 32 and 34 MiB with ages 3, 2 and 1 at the next search; 180 MiB are reserved. */
#define THREE_AGES "limit=400M a=30M b=32M c=34M -a 40M -b 44M -c "

static const struct rig_case gc[] = {
    {"those of exactly the mean age go, by size, and not stopping when the target of 10 MiB is reached", GC,
     "a=60M b=50M -a -b | 70M <segment_free gc 50M; segment_free gc 60M; segment_alloc after_gc 70M; "
     "oom_retry gc 70M freed 110M served; alloc after_gc 70M>"},
    {"the mean is exactly the age of the middle one, which goes; the youngest stays; 1 MiB is the target", GC,
     THREE_AGES "limit=358M | 60M <segment_free gc 30M; segment_free gc 32M; segment_alloc after_gc 60M; "
                "oom_retry gc 60M freed 62M served; alloc after_gc 60M>"},
    {"62 MiB are the target, and have gone with the first pass: there is no second one", GC,
     THREE_AGES "limit=236M | 60M <segment_free gc 30M; segment_free gc 32M; segment_alloc after_gc 60M; "
                "oom_retry gc 60M freed 62M served; alloc after_gc 60M>"},
    {"80 MiB are the target: a second pass, of what is left, takes the third", GC,
     THREE_AGES "limit=200M | 100M <segment_free gc 30M; segment_free gc 32M; segment_free gc 34M; "
                "segment_alloc after_gc 100M; oom_retry gc 100M freed 96M served; alloc after_gc 100M>"},
    {"a piece is no whole segment: ages 2 and 1 are left; 36 MiB are the target", GC,
     "a=30M b=32M c=34M -a 10M -b 40M -c | 60M <segment_free gc 32M; segment_free gc 34M; "
     "segment_alloc after_gc 60M; oom_retry gc 60M freed 66M served; alloc after_gc 60M>"},
    {"a block that was used and freed again is young again", GC,
     "a=30M b=32M -a -b 40M 30M>a -a | 60M <segment_free gc 32M; segment_alloc after_gc 60M; "
     "oom_retry gc 60M freed 32M served; alloc after_gc 60M>"},
    {"of 100 MiB reserved none goes: that is not above the threshold", GC,
     "a=40M 60M -a | 50M <segment_alloc new_segment 50M; alloc new_segment 50M> "
     "44M <segment_free gc 40M; segment_alloc after_gc 44M; oom_retry gc 44M freed 40M served; alloc after_gc 44M>"},
    {"it found nothing, so the new segment is no merit of its; small blocks are never collected", GC,
     "110M a=512 -a | 20M <segment_alloc new_segment 20M; oom_retry gc 20M freed 0M served; alloc new_segment 20M>"},
    {"without a limit there is none",
     {.sim.capacity_bytes = 100 * MIB, .config = "garbage_collection_threshold:0.1"},
     "a=40M -a | 50M <segment_alloc new_segment 50M; alloc new_segment 50M>"},
    {"it begins with the first limit, and ages count from then on: a hit has made one of the three young",
     {.config = "garbage_collection_threshold:0.5"},
     "a=30M b=34M -a -b c=36M -c frees=0 limit=150M d=28M -d | "
     "40M <segment_free gc 34M; segment_free gc 36M; segment_alloc after_gc 40M; "
     "oom_retry gc 40M freed 70M served; alloc after_gc 40M>"},
};
TEST_PLAYS(test_gc, gc)

/* ---- release of oversize blocks ---- */

#define OVERSIZE(mib)                                        \
    {                                                        \
        .limit = (mib)*MIB, .config = "max_split_size_mb:20" \
    }

static const struct rig_case available[] = {
    {"the smallest that does goes", OVERSIZE(200),
     "a=70M b=24M c=60M -a -b -c 40M@5 | 30M <segment_free release_available 60M; segment_alloc after_release 30M; "
     "oom_retry release_available 30M freed 60M served; alloc after_release 30M>"},
    {"enough of the largest ones go, exactly enough here", OVERSIZE(100),
     "a=24M b=22M c=26M -a -b -c 22M@5 | 50M <segment_free release_available 26M; "
     "segment_free release_available 24M; segment_alloc after_release 50M; "
     "oom_retry release_available 50M freed 50M served; alloc after_release 50M>"},
    {"a request below max_split_size needs as much as an oversize one", OVERSIZE(60),
     "a=22M b=30M -a -b 4K@5 | 12M <segment_free release_available 22M; segment_alloc after_release 12M; "
     "oom_retry release_available 12M freed 22M served; alloc after_release 12M>"},
    {"smaller blocks, and those of other streams, stay for the last stage", OVERSIZE(100),
     "a=60M@5 -a b=12M -b | 30M <oom_retry release_available 30M freed 0M; segment_free retry 12M; "
     "segment_free retry 60M; segment_alloc after_retry 30M; oom_retry release_cached 30M freed 72M served; "
     "alloc after_retry 30M>"},
    {"what went before the stage gave up stays gone", OVERSIZE(100),
     "40M@5 a=22M b=24M -a -b oversize_segments=3 | x80M <segment_free release_available 24M; "
     "segment_free release_available 22M; oom_retry release_available 80M freed 46M; "
     "oom_retry release_cached 80M freed 0M; oom 80M> oversize_segments=1"},
};
TEST_PLAYS(test_release_of_available_blocks, available)

/* ---- release of everything ---- */

static const struct rig_case empty[] = {
    {"pieces stay",
     {.limit = 0},
     "a=8M b=8M -a | empty <empty_cache 0M segments 0> a{-8M a8M -4M} "
     "-b | empty <segment_free empty_cache 20M; empty_cache 20M segments 1>"},
    {"streams are waited for, and what becomes free by that goes as well",
     {.sim.events_are_scripted = true},
     "a=30M a~7 a~8 -a | empty <free_completed 30M; segment_free empty_cache 30M; empty_cache 30M segments 1>"},
    {"what the device does not take back stays in the cache, counted, and can be used and given back later",
     {.limit = 0},
     "a=30M b=40M c=50M -a -b -c | fail:free:2 empty! "
     "<segment_free empty_cache 30M; segment_free empty_cache 40M; segment_alloc new_segment 40M; "
     "segment_free empty_cache 50M; empty_cache 80M segments 2> reserved=40M used=40M 40M>b "
     "-b | empty <segment_free empty_cache 40M; empty_cache 40M segments 1> used=0"},
};
TEST_PLAYS(test_empty_cache, empty)

/* Large before small; by stream, then size, then address; what is in use stays. */
TEST_WITH(test_empty_cache_order, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    rig_open(rig, &(struct rig_options){.limit = 0});
    play(rig, "a=30M@9 -a a=34M@2 -a a=40M b=32M c=32M -a -b -c a=512@3 b=1M 512@4 33M -a -b | "
              "empty <segment_free empty_cache 32M; segment_free empty_cache 32M; segment_free empty_cache 34M; "
              "segment_free empty_cache 30M; segment_free empty_cache 2M; segment_free empty_cache 2M; "
              "empty_cache 132M segments 6> syncs=1 frees=6");
    assert_true(rig->records[rig->mark - 7].addr < rig->records[rig->mark - 6].addr);
    play(rig, "empty <empty_cache 0M segments 0>");
}
