/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Four threads that allocate, reallocate and free at random, half of the frees on another thread than the
 * allocation, and count what they do.
 *
 *   churn [--ops N] [--seconds S] [--seed N] [--threads N] [--leak] [--counters FILE] [--pace MICROSECONDS]
 *
 * Ends when each thread has made N operations or after S seconds; one of the two must be given.
 * Prints one JSON object with exact counts per thread. --counters: each thread also stores, after every
 * hooked call has returned, how many events the recorder must have committed by then, into FILE: struct
 * counter[threads]. It survives SIGKILL and is what the kill tests compare with. --leak keeps the blocks that
 * are live at the end.
 */
#include "workload.h"

#include "tests/support/random.h"

#include <malloc.h>

#define SLOTS 256
#define QUEUE 512
#define THREADS_MAX 64

struct counter {
    uint64_t tid;
    uint64_t events;
    uint64_t padding[6];
};

struct counts {
    uint64_t allocs, frees, reallocs, bytes;
};

struct worker {
    pthread_t thread;
    struct counter *counter;
    struct counts counts;
    uint64_t random;
    int tid;
    void *slots[SLOTS];
};

static struct worker workers[THREADS_MAX];
static struct counter counters_private[THREADS_MAX];
static uint64_t operations_max;
static double seconds_max;
static useconds_t pace;
static int keeps_blocks;

/* Blocks on their way to whoever takes them: freed by another thread. */
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static void *queue[QUEUE];
static size_t queue_count;

static int queue_put(void *block)
{
    int done = 0;
    pthread_mutex_lock(&queue_lock);
    if (queue_count < QUEUE) {
        queue[queue_count++] = block;
        done = 1;
    }
    pthread_mutex_unlock(&queue_lock);
    return done;
}

static void *queue_take(uint64_t random)
{
    void *block = NULL;
    pthread_mutex_lock(&queue_lock);
    if (queue_count > 0) {
        size_t at = random % queue_count;
        block = queue[at];
        queue[at] = queue[--queue_count];
    }
    pthread_mutex_unlock(&queue_lock);
    return block;
}

static void committed(struct worker *worker, uint64_t events)
{
    __atomic_store_n(&worker->counter->events, worker->counter->events + events, __ATOMIC_RELEASE);
}

static void release(struct worker *worker, void *block)
{
    if (block) {
        free(block);
        worker->counts.frees++;
        committed(worker, 1);
    }
}

static size_t size_random(struct worker *worker)
{
    uint64_t random = random_next(&worker->random);
    return random % 64 == 0 ? 1 + random / 64 % 200000 : 1 + random / 64 % 2000;
}

static void *obtain(struct worker *worker, unsigned choice, size_t size)
{
    void *block = NULL;
    if (choice < 10) {
        block = malloc(size);
    } else if (choice < 13) {
        block = calloc(3, size);
        size *= 3;
    } else if (choice < 14) {
        block = memalign(128, size);
    } else if (posix_memalign(&block, 64, size) != 0) {
        block = NULL;
    }
    if (!block) {
        give_up("out of memory");
    }
    memset(block, 0x5a, size < 64 ? size : 64);
    worker->counts.allocs++;
    worker->counts.bytes += size;
    committed(worker, 1);
    return block;
}

static void step(struct worker *worker)
{
    uint64_t random = random_next(&worker->random);
    void **slot = &worker->slots[random % SLOTS];
    unsigned choice = (unsigned)(random >> 32) % 32;
    size_t size = size_random(worker);
    if (choice < 16) {
        release(worker, *slot);
        *slot = obtain(worker, choice, size);
    } else if (choice < 20 && *slot) {
        void *block = realloc(*slot, size);
        if (!block) {
            give_up("out of memory");
        }
        *slot = block;
        worker->counts.reallocs++;
        worker->counts.bytes += size;
        committed(worker, 2);
    } else if (choice < 26) {
        if (*slot && queue_put(*slot)) {
            *slot = NULL;
        }
        release(worker, queue_take(random >> 40));
    } else {
        release(worker, *slot);
        *slot = NULL;
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    worker->tid = thread_id();
    __atomic_store_n(&worker->counter->tid, (uint64_t)worker->tid, __ATOMIC_RELEASE);
    double end = seconds_max > 0 ? seconds_now() + seconds_max : 1e300;
    for (uint64_t i = 0; (!operations_max || i < operations_max) && (i % 64 != 0 || seconds_now() < end); i++) {
        step(worker);
        if (pace) {
            usleep(pace);
        }
    }
    if (!keeps_blocks) {
        for (size_t i = 0; i < SLOTS; i++) {
            release(worker, worker->slots[i]);
        }
    }
    return NULL;
}

static void print_counts(unsigned count)
{
    struct counts sum = {0, 0, 0, 0};
    say("{\"threads\":[");
    for (unsigned i = 0; i < count; i++) {
        const struct counts *one = &workers[i].counts;
        say("%s{\"tid\":%d,\"allocs\":%llu,\"frees\":%llu,\"reallocs\":%llu,\"bytes\":%llu}", i ? "," : "",
            workers[i].tid, (unsigned long long)one->allocs, (unsigned long long)one->frees,
            (unsigned long long)one->reallocs, (unsigned long long)one->bytes);
        sum.allocs += one->allocs;
        sum.frees += one->frees;
        sum.reallocs += one->reallocs;
        sum.bytes += one->bytes;
    }
    say("],\"allocs\":%llu,\"frees\":%llu,\"reallocs\":%llu,\"bytes\":%llu}\n", (unsigned long long)sum.allocs,
        (unsigned long long)sum.frees, (unsigned long long)sum.reallocs, (unsigned long long)sum.bytes);
}

int main(int argc, char **argv)
{
    unsigned count = 4;
    uint64_t seed = 1;
    struct counter *counters = counters_private;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--leak") == 0) {
            keeps_blocks = 1;
            continue;
        }
        if (strcmp(argv[i], "--ops") == 0) {
            operations_max = strtoull(value, NULL, 10);
        } else if (strcmp(argv[i], "--seconds") == 0) {
            seconds_max = strtod(value, NULL);
        } else if (strcmp(argv[i], "--seed") == 0) {
            seed = strtoull(value, NULL, 10);
        } else if (strcmp(argv[i], "--threads") == 0) {
            count = (unsigned)strtoul(value, NULL, 10);
        } else if (strcmp(argv[i], "--pace") == 0) {
            pace = (useconds_t)strtoul(value, NULL, 10);
        } else if (strcmp(argv[i], "--counters") == 0) {
            counters = map_unseen(value, sizeof(counters_private));
        } else {
            give_up("churn: unknown option");
        }
        i++;
    }
    if (count < 1 || count > THREADS_MAX || (operations_max == 0 && seconds_max <= 0)) {
        give_up("usage: churn [--ops N] [--seconds S] [--seed N] [--threads N] [--leak] [--counters FILE] "
                "[--pace US]");
    }
    for (unsigned i = 0; i < count; i++) {
        workers[i].counter = &counters[i];
        workers[i].random = (seed + i) * UINT64_C(0x9e3779b97f4a7c15) | 1;
        workers[i].thread = start_thread(work, &workers[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    print_counts(count);
    return 0;
}
