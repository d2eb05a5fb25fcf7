/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of a replay: a scene is a program's life with a real allocator on a simulated device, recorded as PyTorch
 * would have recorded it, that is without splits, merges, causes and real streams. What the program called is known
 * then, and a replay has to find it out again: the same decisions and the same statistics.
 */
#ifndef VARVE_TESTS_SUPPORT_REPLAY_H
#define VARVE_TESTS_SUPPORT_REPLAY_H

#include <cmocka.h>

#include "analysis/history/history_read.h"
#include "analysis/replay/replay.h"

#include <stdlib.h>
#include <string.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define SCENE_STREAMS 64
#define SCENE_POOLS 4096

struct scene {
    struct history *history;
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_alloc_recorder recorder;
    struct varve_alloc_stats stats; /* at the end */
    const char *conf;
    uint64_t limit;
    uint64_t stream;                 /* of the running call */
    uint64_t handles[SCENE_STREAMS]; /* by the allocator's number */
    uint64_t pool;                   /* capture id of the running call, 0: the default pool */
    uint64_t pools[SCENE_POOLS];     /* by half the allocator's number */
    bool names_pools;                /* events name their pools, as newer versions do */
    int64_t time_us;
    uint64_t blocks[26]; /* of scene_play, by letter */
    size_t mark;         /* events before its '|' */
};

static inline struct history_device *scene_device(const struct scene *scene)
{
    return &scene->history->devices[0];
}

/// `conf` "": defaults. `capacity` 0: without limit.
struct scene *scene_open(const char *conf, uint64_t limit, uint64_t capacity);
/// Address of a block, 0 when there was no memory.
uint64_t scene_alloc(struct scene *scene, uint64_t bytes, uint64_t stream);
uint64_t scene_pool_alloc(struct scene *scene, uint64_t pool, uint64_t bytes, uint64_t stream);
void scene_free(struct scene *scene, uint64_t addr);
/// A free that waits for `user`; 0: for nobody.
void scene_free_used(struct scene *scene, uint64_t addr, uint64_t user);
void scene_finish_stream(struct scene *scene, uint64_t stream);
void scene_empty_cache(struct scene *scene);
/// Drop one reference; each request to the pool has taken one.
void scene_release_pool(struct scene *scene, uint64_t pool);
/// Drop all references and empty the pool alone, as the end of a torch.cuda.MemPool does.
void scene_end_pool(struct scene *scene, uint64_t pool);
/// A pool without references comes behind the others that have none: PyTorch's order is that of a hash map.
void scene_move_pool(struct scene *scene, uint64_t pool);
/// Another thread begins, or ends, to allocate to the pool; it takes one reference.
void scene_capture_elsewhere(struct scene *scene, uint64_t pool, bool begins);

/// Calls in words, in the order of the program:
///   a=30M  +30M  a request, kept under a letter or not; 11M+700K is a sum   @7  on stream 7   #2  in private pool 2
///   !70M   a request that must fail                 -a  -a~900  a free, one that waits for stream 900
///   /900   the stream is done      E  empty_cache   R2*3   three references of pool 2 go     |   see `mark`
///   P2   pool 2 ends, as a MemPool does    O2   pool 2 is released after the others
///   [2   ]2   another thread begins and ends to allocate to pool 2
void scene_play(struct scene *scene, const char *calls);
/// A scene of these calls, ended.
struct scene *scene_of(const char *conf, uint64_t limit, const char *calls);

struct scene_life {
    const char *conf;
    uint64_t limit;
    unsigned steps, blocks; /* blocks at most at a time */
    unsigned streams;       /* that requests come from */
    unsigned users;         /* streams, from 900 on, that frees wait for, now and then; 0: none does */
    bool empties_cache;
};
/// A random program; ended.
struct scene *scene_random(const struct scene_life *life, uint64_t *seed);

/// The history begins with its event number `count`.
void scene_cut(struct scene *scene, size_t count);
/// The program ends: what it leaves is in the history, and the allocator is gone.
void scene_end(struct scene *scene);
void scene_close(struct scene *scene);

int scene_try(const struct scene *scene, struct replay_result *result, struct varve_message *message);
/// Replay, and require the same decisions and segments at the end. `seed`: named by a failure.
struct replay_result scene_expect_decisions(const struct scene *scene, uint64_t seed);
/// The same, and equal statistics. Closes the scene.
void scene_expect_equal(struct scene *scene);
/// How many events of an action the scene has.
size_t scene_count(const struct scene *scene, enum history_action action);

#endif
