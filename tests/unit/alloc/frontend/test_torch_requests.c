/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's requests, on devices without a GPU: what is served, what is ignored, what is refused and in which
 * words; two devices and many threads; private pools; and a fork child, which must neither allocate nor free
 * what its parent has.
 * Costs: 1 s
 */
#include "support/alloc/torch_words.h"
#include "support/random.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static int prepare(void **state)
{
    (void)state;
    return torch_prepare(NULL);
}

static const struct device_case first_use[] = {
    PLAY("the first use opens a device, and a question does not",
         "give:0x1000:0 take:0:0?0 is_open:0?0 a=take:1000:0 differ:a:0?1 is_open:0?1 is_open:1?0 allocated:0?1024 "
         "allocated:1?0 is_open:1?0 give:a:0 allocated:0?0"),
};
TEST_DEVICE_PLAYS(test_first_use, &torch_kind, first_use)

static const struct device_case requests[] = {
    PLAY("frees of strangers: nothing happens, to nobody",
         "a=take:3M:0 give:0:0 give:a+512:0 give:a:5 give:a:-1 give:a:64 give:0xdead0000:0 allocated:0?3M give:a:0 "
         "give:a:0 allocated:0?0"),
    PLAY("no such device",
         "take:512:-1!invalid reason{varve serves 0 to 63} take:512:64!invalid reason{varve serves 0 to 63} "
         "take:512:1G!invalid reason{varve serves 0 to 63}"),
    PLAY("only an address is known: the device that it belongs to is found",
         "a=take:30M:0 b=take:40M:1 c=take:2M:1 base:b?b base_bytes:b?40M base:c?c base_bytes:c?20M base:0x77?0x77 "
         "base_bytes:0x77?0 base:0?0 use:0@7 use:0x77@7 use:b@7 use:a@7 give:a:0 give:b:1 give:c:1"),
    PLAY("a reset gives back what is not in use",
         "a=take:1M:1 reset reserved:0?0 reserved:1?2M give:a:1 reset reserved:1?0"),
    PLAY("references to pools, also while one is allocated to",
         "uses:0:0:4?0 drop_pool:0:0:4!missing take_pool:0:0:4 use_on_oom:0:0:4 begin:0:0:4 take_pool:0:0:4 "
         "uses:0:0:4?3 end:0:0:4 take_pool:0:0:0!invalid drop_pool:0:0:4 drop_pool:0:0:4 drop_pool:0:0:4 "
         "drop_pool:0:0:4!invalid"),
    /* the walker finds a list that runs in a circle, which emptying would not end in */
    PLAY("while it is allocated to, a pool loses its last reference and gets one again: it may not go, and is not "
         "listed twice when that one is dropped",
         "reset r=reserved:0 begin:0:0:6 serve:30M:0 let_go:0:0:6 uses:0:0:6?0 take_pool:0:0:6 uses:0:0:6?1 reset "
         "reserved:0?r+30M drop_pool:0:0:6 end:0:0:6 reset reserved:0?r no_split:0:0:6!missing"),
};
TEST_DEVICE_PLAYS(test_requests, &torch_kind, requests)

/* In PyTorch's words; 2^60 bytes are not a matter of memory. */
TEST_DEVICE(test_failures, &torch_kind)
{
    char text[1024];
    device_words(play, "a=take:600M:0 take:700M:0!memory");
    torch_failure_text(VARVE_ERROR_NO_MEMORY, 700 * MIB, 0, &torch_said, text, sizeof(text));
    assert_non_null(strstr(text, "CUDA out of memory. Tried to allocate 700.00 MiB on GPU 0."));
    assert_non_null(strstr(text, "allocated 629145600"));
    torch_failure_text(VARVE_ERROR_NO_MEMORY, 100, 3, &torch_said, text, sizeof(text));
    assert_non_null(strstr(text, "allocate 100 bytes on GPU 3."));
    device_words(play, "give:a:0 serve:700M:0 take:0x1000000000000000:0!invalid");
    torch_failure_text(VARVE_ERROR_INVALID, UINT64_C(1) << 60, 0, &torch_said, text, sizeof(text));
    assert_null(strstr(text, "out of memory"));
    assert_non_null(strstr(text, "2^60"));
}

/* ---- pools ---- */

static bool takes_stream_9(void *context, uint64_t stream)
{
    unsigned *calls = context;
    (*calls)++;
    return stream == 9;
}

TEST_DEVICE(test_pools, &torch_kind)
{
    const struct varve_pool_id pool = {3, 0};
    unsigned calls = 0;
    device_words(play, "end:0:3:0!missing");
    assert_int_equal(torch_pool_begin(0, pool, takes_stream_9, &calls, &torch_said), VARVE_OK);
    device_words(play, "begin:0:3:0!busy reason{pool (3, 0)} a=take:1M:0@9 b=take:1M:0@8");
    assert_int_equal(calls, 2);
    device_words(play, "end:0:3:0 give:a:0 give:b:0");
    assert_int_equal(calls, 2);
    device_words(play, "uses:0:3:0?1 reset c=take:1M:0@9 differ:c:a?1 let_go:0:3:0 let_go:0:3:0 uses:0:3:0?0 reset "
                       "no_split:0:3:0!missing give:c:0"); /* the reset came while it had a reference */
}

/* ---- threads ---- */

#define THREADS 4
#define STEPS 4000U
#define HELD 32U

static void *run_thread(void *number)
{
    uint64_t held[HELD] = {0}, bytes[HELD] = {0};
    uint64_t seed = 1 + (uintptr_t)number, random;
    int device = 10 + (int)((uintptr_t)number % 2);
    struct varve_message message;
    for (unsigned i = 0; i < STEPS; i++) {
        random = random_next(&seed);
        unsigned at = (unsigned)(random >> 40) % HELD;

        if (held[at] != 0) {
            give(held[at], device);
        }
        bytes[at] = 1 + (random >> 33) % (4 * MIB);
        if (torch_allocate(bytes[at], device, random >> 62, &held[at], &message) != VARVE_OK) {
            held[at] = 0;
        }
        if (held[at] != 0 && i % 16 == 0) {
            torch_record_stream(held[at], 4 + random % 3, &message);
        }
        if (i % 500 == 0) {
            varve_torch_reset();
        }
    }
    for (unsigned i = 0; i < HELD; i++) {
        give(held[i], device);
    }
    return NULL;
}

TEST_DEVICE(test_threads, &torch_kind)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_thread, (void *)i), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    device_words(play, "allocated:10?0 allocated:11?0");
}

/* ---- forks ---- */

static int child_of_fork(uint64_t addr)
{
    struct varve_message message = {""};
    uint64_t got = 1;
    if (torch_allocate(512, 0, 0, &got, &message) != VARVE_ERROR_UNSUPPORTED || got != 0 ||
        strstr(message.text, "fork child") == NULL) {
        return 1;
    }
    if (torch_allocate(512, 20, 0, &got, &message) != VARVE_ERROR_UNSUPPORTED) {
        return 2;
    }
    give(addr, 0);
    varve_torch_reset();
    if (torch_record_stream(addr, 3, &message) != VARVE_OK || varve_torch_is_open(0)) {
        return 3;
    }
    struct varve_torch_snapshot snapshot;
    if (varve_torch_take_snapshot(-1, &snapshot) != VARVE_OK || snapshot.segment_count != 0) {
        return 4;
    }
    varve_torch_snapshot_free(&snapshot);
    return torch_pool_end(0, (struct varve_pool_id){1, 0}, &message) == VARVE_OK ? 0 : 5;
}

/* The lock is held when the process forks, as it may be by any thread. */
TEST_DEVICE(test_fork, &torch_kind)
{
    struct frontend_device *device = registry_find(0);
    uint64_t addr = take(MIB, 0, 0);
    int status = -1;
    varve_alloc_free_mutex_lock(device->alloc);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(child_of_fork(addr));
    }
    varve_alloc_free_mutex_unlock(device->alloc);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    give(addr, 0);
    device_check(play);
}

TEST_FILE(prepare, NULL)
