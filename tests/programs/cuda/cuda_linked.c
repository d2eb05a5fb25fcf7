/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links the CUDA driver (the fake one, in tests) and uses everything of it that is recorded. `fork`: a child
 * tries after the fork, in vain; `late`: frees in an exit handler that comes after the driver's own;
 * `threads`: four at a time.
 */
#include "programs/cuda/driver/scenario.h"

#include <pthread.h>
#include <sys/wait.h>

static struct api api;
static uint64_t left;

static void fill(void)
{
#define X(exported, symbol, version, flags, ...) api.exported = exported;
    CUDA_HOOK_LIST(X)
#undef X
#define X(name, parameters) api.name = name;
    CUDA_PLAIN_LIST(X)
#undef X
}

static void begin(void)
{
    void *primary = NULL;
    EXPECT(0, cuInit(0));
    EXPECT(0, cuDevicePrimaryCtxRetain(&primary, 0));
    EXPECT(0, cuCtxSetCurrent(primary));
}

static void run_fork(void)
{
    int status = 0;
    begin();
    left = take(&api, 1000);
    pid_t child = fork();
    uint64_t addr;
    if (child == 0) {
        EXPECT(CUDA_RESULT_NOT_INITIALIZED, cuMemAlloc_v2(&addr, 2000));
        EXPECT(CUDA_RESULT_NOT_INITIALIZED, cuMemFree_v2(left));
        EXPECT(CUDA_RESULT_NOT_INITIALIZED, cuCtxSynchronize());
        exit(0);
    }
    if (waitpid(child, &status, 0) != child || status != 0) {
        exit(4);
    }
    EXPECT(0, cuMemFree_v2(left));
}

static void free_late(void)
{
    EXPECT(CUDA_RESULT_DEINITIALIZED, cuMemFree_v2(left));
    EXPECT(CUDA_RESULT_DEINITIALIZED, cuMemAlloc_v2(&left, 3000));
}

static void *thread_run(void *context)
{
    void *primary = NULL;
    uint64_t kept[8] = {0};
    EXPECT(0, cuDevicePrimaryCtxRetain(&primary, (int)(uintptr_t)context % FAKE_DEVICES));
    EXPECT(0, cuCtxSetCurrent(primary));
    for (unsigned i = 0; i < 2000; i++) {
        if (kept[i % 8] != 0) {
            EXPECT(0, cuMemFree_v2(kept[i % 8]));
        }
        kept[i % 8] = take(&api, 512 + i);
    }
    return NULL;
}

static void run_threads(void)
{
    EXPECT(0, cuInit(0));
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, thread_run, (void *)i);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "all";
    fill();
    if (strcmp(what, "fork") == 0) {
        run_fork();
    } else if (strcmp(what, "late") == 0) {
        atexit(free_late); /* before the driver's: it runs after that */
        begin();
        left = take(&api, 1000);
    } else if (strcmp(what, "threads") == 0) {
        run_threads();
    } else {
        scenario(&api, strcmp(what, "own") == 0);
    }
    return 0;
}
