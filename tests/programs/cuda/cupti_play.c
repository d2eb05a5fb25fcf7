/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program under the CUPTI recorder without a GPU: it opens the library that CUDA_INJECTION64_PATH names and
 * calls InitializeInjection, as the driver does in cuInit, and then plays the driver through the fake CUPTI
 * that VARVE_CUPTI_LIBRARY names. The argument is what to play; unit/test_cupti_recorder.c and
 * conformance/test_cupti_fake.py know what must be recorded. Exit status 1: the recorder did something wrong.
 */
#include "programs/cuda/cupti_fake.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTEXT_0 0x1000U /* of device 0 */
#define CONTEXT_1 0x1001U
#define ROUNDS 2000U
#define THREADS 4U

static const struct fake_cupti *fake;
static int (*release_subscription)(void);

#define REQUIRE(condition)                                                          \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __func__, __LINE__, #condition); \
            _exit(1);                                                               \
        }                                                                           \
    } while (0)

/* ---- calls ---- */

static uint32_t play(uint32_t id, const void *parameters, uint32_t result)
{
    return fake->call(id, parameters, result, NULL, NULL);
}

/* A call that ends well, with the fields of its parameters. */
#define PLAY(name, layout, ...) play(CUPTI_CALL_##name, &(struct cuda_arguments_##layout){__VA_ARGS__}, 0)

static void alloc(uint32_t id, uint64_t addr, size_t bytes, uint32_t result)
{
    struct cuda_arguments_alloc parameters = {.out = result == 0 ? &addr : (uint64_t *)8, .bytes = bytes};
    play(id, &parameters, result); /* an address that must not be read, if it fails */
}

static void alloc_at(uint64_t addr)
{
    alloc(CUPTI_CALL_cuMemAlloc_v2, addr, 4096, 0);
}

/* ---- scenes ---- */

static void play_linear(void)
{
    uint64_t out = 0x7000001000, opened = 0x7000050000;
    size_t pitch = 512;
    alloc_at(0x7000000000);
    PLAY(cuMemAllocPitch_v2, alloc_pitch, &out, &pitch, 500, 10, 4);
    alloc(CUPTI_CALL_cuMemAllocManaged, 0x7000010000, 8192, 0);
    alloc(CUPTI_CALL_cuMemAllocHost_v2, 0x7000020000, 100, 0);
    alloc(CUPTI_CALL_cuMemHostAlloc, 0x7000030000, 200, 0);
    PLAY(cuMemHostRegister_v2, range, 0x7000040000, 300);
    PLAY(cuIpcOpenMemHandle_v2, out, &opened);
    PLAY(cuMemFree_v2, free, 0x7000000000);
    PLAY(cuMemFreeHost, free, 0x7000020000);
    PLAY(cuMemHostUnregister, free, 0x7000040000);
    PLAY(cuIpcCloseMemHandle, free, 0x7000050000);
    PLAY(cuMemFree_v2, free, 0); /* nothing */
}

static void play_arrays(void)
{
    uint64_t out[] = {0xa000, 0xb000, 0xc000, 0xd000};
    struct cuda_array_2d flat = {.width = 64, .height = 32, .format = 0x20, .channels = 4};
    struct cuda_array_3d deep = {.width = 8, .height = 4, .depth = 2, .format = 0x10, .channels = 1};
    struct cuda_array_3d sparse = {.width = 8, .format = 0x01, .channels = 1, .flags = 0x40};
    play(CUPTI_CALL_cuArrayCreate_v2, &(struct cuda_arguments_array){.out = out}, 1);
    PLAY(cuArrayCreate_v2, array, .out = &out[0], .array = &flat);
    PLAY(cuArray3DCreate_v2, array, .out = &out[1], .array = &deep);
    PLAY(cuMipmappedArrayCreate, array, .out = &out[2], .array = &deep, .levels = 3);
    PLAY(cuArray3DCreate_v2, array, .out = &out[3], .array = &sparse, .levels = 3);
    PLAY(cuArrayDestroy, free, 0xa000);
    PLAY(cuMipmappedArrayDestroy, free, 0xc000);
}

static void play_ordered(void)
{
    uint64_t out[] = {0x7100000000, 0x7100001000, 0x7100002000}, pool = 0x9000, threshold = 1 << 20;
    struct cuda_placement properties = {.location = {CUDA_LOCATION_DEVICE, 1}};
    PLAY(cuMemPoolCreate, pool_create, &pool, &properties);
    PLAY(cuMemPoolSetAttribute, pool_set, pool, CUDA_POOL_RELEASE_THRESHOLD, &threshold);
    PLAY(cuMemPoolSetAttribute, pool_set, pool, 1, &threshold); /* of no interest */
    PLAY(cuMemAllocAsync, alloc_async, &out[0], 1000, 0x55);
    PLAY(cuMemAllocAsync_ptsz, alloc_async, &out[1], 1000, 0);
    PLAY(cuMemAllocFromPoolAsync, alloc_pool, &out[2], 2000, pool, 0);
    PLAY(cuMemFreeAsync, free_async, 0x7100000000, 0x55);
    PLAY(cuMemPoolTrimTo, pool_trim, pool, 4096);
    PLAY(cuMemPoolDestroy, free, pool);
    properties.type = CUDA_ALLOCATION_MANAGED;
    PLAY(cuMemPoolCreate, pool_create, &pool, &properties);
    PLAY(cuMemAllocFromPoolAsync, alloc_pool, &out[2], 2000, pool, 1); /* the stream that is 0, too */
}

static void play_virtual(void)
{
    uint64_t out[] = {0x77, 0x78, 0x79};
    struct cuda_placement device = {.location = {CUDA_LOCATION_DEVICE, 1}}, host = {.location = {3, 1}};
    struct cuda_access access[2] = {{{CUDA_LOCATION_DEVICE, 0}, 3}, {{CUDA_LOCATION_DEVICE, 1}, 3}};
    alloc(CUPTI_CALL_cuMemAddressReserve, 0x7200000000, 20 << 20, 0);
    PLAY(cuMemCreate, create, &out[0], 2 << 20, &device, 0);
    PLAY(cuMemMap, map, 0x7200000000, 2 << 20, 0, 0x77, 0);
    PLAY(cuMemSetAccess, access, 0x7200000000, 2 << 20, access, 2);
    PLAY(cuMemRetainAllocationHandle, out, &out[0]);
    PLAY(cuMemImportFromShareableHandle, out, &out[1]);
    PLAY(cuMemCreate, create, &out[2], 2 << 20, &host, 0);
    PLAY(cuMemUnmap, range, 0x7200000000, 2 << 20);
    PLAY(cuMemRelease, free, 0x77);
    PLAY(cuMemAddressFree, range, 0x7200000000, 20 << 20);
}

static void end_context(void *context)
{
    struct cupti_resource_data data = {.context = context};
    fake->callback(CUPTI_DOMAIN_RESOURCE, CUPTI_RESOURCE_CONTEXT_DESTROYED, &data);
}

static void play_waits(void)
{
    size_t free_bytes = 111, total_bytes = 222;
    struct cuda_arguments_sync event = {0xe0};
    struct cuda_arguments_device device = {1};
    PLAY(cuCtxSynchronize, context, (cupti_context)CONTEXT_1);
    PLAY(cuStreamSynchronize, sync, 0x55);
    play(CUPTI_CALL_cuEventSynchronize, &event, 719);
    PLAY(cuMemGetInfo_v2, info, &free_bytes, &total_bytes);
    PLAY(cuDevicePrimaryCtxRelease_v2, device, 1); /* not the last one */
    fake->call(CUPTI_CALL_cuDevicePrimaryCtxRelease_v2, &device, 0, end_context, NULL);
    fake->call(CUPTI_CALL_cuDevicePrimaryCtxReset_v2, &device, 0, end_context, NULL);
    PLAY(cuCtxDestroy_v2, context, (cupti_context)CONTEXT_1);
}

static void play_failures(void)
{
    size_t nothing = 0;
    alloc(CUPTI_CALL_cuMemAlloc_v2, 0, 1 << 30, 2);
    alloc(CUPTI_CALL_cuMemAlloc_v2, 0, 0, 1);
    alloc(CUPTI_CALL_cuMemAddressReserve, 0, 4096, 2);
    play(CUPTI_CALL_cuMemMap, &(struct cuda_arguments_map){0x7200000000, 4096, 0, 0x77, 0}, 1);
    play(CUPTI_CALL_cuMemFree_v2, &(struct cuda_arguments_free){0x123000}, 1);
    play(CUPTI_CALL_cuMemUnmap, &(struct cuda_arguments_range){0x7200000000, 4096}, 1);
    play(CUPTI_CALL_cuMemGetInfo_v2, &(struct cuda_arguments_info){&nothing, &nothing}, 3);
}

static void inner_alloc(void *context)
{
    (void)context;
    alloc(CUPTI_CALL_cuMemAlloc_v2, 0x7300000000, 64, 0);
    PLAY(cuMemFree_v2, free, 0x7300000000);
}

static void set_capture(void *is_on)
{
    fake->capture(is_on != NULL);
}

/* What counts is the state in which a call begins. */
static void play_graph(void)
{
    uint64_t out = 0x7300001000;
    struct cuda_arguments_alloc_async async = {&out, 1000, FAKE_CAPTURED};
    struct cuda_arguments_free_async freed = {0x7300001000, FAKE_CAPTURED};
    fake->capture(true);
    play(CUPTI_CALL_cuMemAllocAsync, &async, 0);
    play(CUPTI_CALL_cuMemFreeAsync, &freed, 0);
    REQUIRE(fake->count(FAKE_COUNT_ASKED_IN_CAPTURE) == 0);
    fake->call(CUPTI_CALL_cuMemAllocAsync_ptsz, &async, 901, set_capture, NULL); /* it has spoilt it */
    play(CUPTI_CALL_cuMemAllocAsync, &async, 0);
    fake->call(CUPTI_CALL_cuMemFreeAsync, &freed, 0, set_capture, &out);
    PLAY(cuMemAllocAsync, alloc_async, &out, 1000, 0);
    REQUIRE(fake->count(FAKE_COUNT_ASKED_IN_CAPTURE) == 0);
}

static void play_nested(void)
{
    uint64_t out = 0x7300001000;
    size_t pitch = 64;
    struct cuda_arguments_alloc_pitch pitched = {&out, &pitch, 60, 2, 4};
    struct cupti_callback_data lone = {.callsite = CUPTI_SITE_EXIT, .parameters = &pitched};
    uint32_t result = 0;
    lone.result = &result;
    fake->callback(CUPTI_DOMAIN_DRIVER, CUPTI_CALL_cuMemAllocPitch_v2, &lone); /* it began before us */
    fake->call(CUPTI_CALL_cuMemAllocPitch_v2, &pitched, 0, inner_alloc, NULL);
}

static struct cupti_activity_memory memory_record(uint32_t operation, uint64_t addr)
{
    return (struct cupti_activity_memory){.kind = CUPTI_ACTIVITY_MEMORY,
                                          .operation = operation,
                                          .memory_kind = 3,
                                          .correlation_id = 17,
                                          .addr = addr,
                                          .bytes = 4096,
                                          .timestamp_ns = FAKE_CUPTI_TIME + 1,
                                          .process_id = (uint32_t)getpid(),
                                          .device = 1,
                                          .context_id = 5};
}

static void play_activity(void)
{
    struct cupti_activity_memory memory = memory_record(CUPTI_MEMORY_ALLOCATED, 0x7000);
    struct cupti_activity_pool pool = {.kind = CUPTI_ACTIVITY_POOL,
                                       .operation = CUPTI_POOL_CREATED,
                                       .process_id = (uint32_t)getpid(),
                                       .addr = 0x9000,
                                       .bytes = 100,
                                       .threshold = 200,
                                       .used_bytes = 50};
    REQUIRE(fake->count(FAKE_COUNT_KINDS) == 2);
    REQUIRE(fake->record(&memory, sizeof(memory)));
    REQUIRE(fake->record(&pool, sizeof(pool)));
    memory = memory_record(CUPTI_MEMORY_RELEASED, 0x7000);
    memory.is_async = 1;
    memory.pool_type = CUPTI_POOL_LOCAL;
    memory.pool_addr = 0x9000;
    memory.pool_bytes = 300;
    memory.pool_threshold = 200;
    memory.pool_used_bytes = 60;
    REQUIRE(fake->record(&memory, sizeof(memory)));
    REQUIRE(fake->record(&memory, sizeof(memory))); /* the pool is as it was */
    pool.operation = CUPTI_POOL_DESTROYED;
    REQUIRE(fake->record(&pool, sizeof(pool)));
}

/* More than all buffers hold, while none is given back. */
static void play_flood(void)
{
    struct cupti_activity_memory memory = memory_record(CUPTI_MEMORY_ALLOCATED, 0x7000);
    unsigned taken = 0;
    for (unsigned i = 0; i < 8 * 65536 / 128 + 10; i++) {
        taken += fake->record(&memory, sizeof(memory));
    }
    REQUIRE(taken == 8 * 65536 / 128);
    REQUIRE(fake->count(FAKE_COUNT_BUFFERS_REFUSED) == 10);
}

/* Fields that have moved. */
static void play_garbled(void)
{
    struct cupti_activity_memory memory = memory_record(CUPTI_MEMORY_ALLOCATED, 0x7000);
    REQUIRE(fake->record(&memory, sizeof(memory)));
    memory.process_id++;
    REQUIRE(fake->record(&memory, sizeof(memory)));
    memory.process_id--;
    REQUIRE(fake->record(&memory, sizeof(memory))); /* too late */
}

static void play_release(void)
{
    alloc_at(0x7000000000);
    REQUIRE(release_subscription() == 0);
    REQUIRE(fake->count(FAKE_COUNT_SUBSCRIBERS) == 0);
    REQUIRE(fake->count(FAKE_COUNT_KINDS) == 0);
    alloc_at(0x7000001000);
    REQUIRE(release_subscription() == 1);
}

static void play_fork(void)
{
    int status = 0;
    alloc_at(0x7000000000);
    pid_t child = fork();
    if (child == 0) {
        alloc_at(0x7000001000);
        REQUIRE(release_subscription() == 1);
        exit(0); /* with the exit handlers that the parent registered */
    }
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    alloc_at(0x7000002000);
}

static void play_fatal(void)
{
    struct cupti_state_data state = {.result = 9, .message = "the GPU is gone"};
    alloc_at(0x7000000000);
    fake->callback(CUPTI_DOMAIN_STATE, CUPTI_STATE_FATAL, &state);
    alloc_at(0x7000001000);
}

static void *run_thread(void *argument)
{
    uint64_t base = 0x7000000000 + ((uint64_t)(uintptr_t)argument << 32);
    fake->set_context(CONTEXT_0, 3);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        alloc_at(base + i * 4096);
        PLAY(cuMemFree_v2, free, base + i * 4096);
    }
    return NULL;
}

static void play_threads(void)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, run_thread, (void *)i) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* Without the recorder's help there must be nobody to call back. */
static void play_alone(void)
{
    REQUIRE(fake == NULL || fake->count(FAKE_COUNT_SUBSCRIBERS) == 0);
    REQUIRE(release_subscription() == 1);
    if (fake != NULL) {
        alloc_at(0x7000000000);
    }
}

/* An exit handler that was there before us, and frees. */
static void free_late(void)
{
    PLAY(cuMemFree_v2, free, 0x7000000000);
}

static void play_late(void)
{
    struct cupti_activity_memory memory = memory_record(CUPTI_MEMORY_ALLOCATED, 0x7000000000);
    alloc_at(0x7000000000);
    REQUIRE(fake->record(&memory, sizeof(memory)));
}

#define SCENE(name)        \
    {                      \
#name, play_##name \
    }

static const struct {
    const char *name;
    void (*play)(void);
} scenes[] = {SCENE(linear), SCENE(arrays),   SCENE(ordered), SCENE(virtual), SCENE(waits),   SCENE(failures),
              SCENE(nested), SCENE(activity), SCENE(flood),   SCENE(garbled), SCENE(release), SCENE(fork),
              SCENE(fatal),  SCENE(threads),  SCENE(alone),   SCENE(late),    SCENE(graph)};

static void find(const char *fake_path, const char *injection_path, int (**initialize_out)(void))
{
    void *library = dlopen(fake_path, RTLD_NOW | RTLD_GLOBAL); /* as libcuda's functions are to be found */
    void *injection = dlopen(injection_path, RTLD_NOW);
    if (injection == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    fake = library != NULL ? dlsym(library, FAKE_CUPTI_SYMBOL) : NULL;
    void *symbols[2];
    symbols[0] = dlsym(injection, "InitializeInjection");
    symbols[1] = dlsym(injection, "varve_cupti_release");
    memcpy(initialize_out, &symbols[0], sizeof(symbols[0])); /* no cast in ISO C */
    memcpy(&release_subscription, &symbols[1], sizeof(symbols[1]));
}

int main(int argc, char **argv)
{
    const char *fake_path = getenv("VARVE_FAKE_LIBRARY");
    const char *injection_path = getenv("CUDA_INJECTION64_PATH");
    int (*initialize)(void) = NULL;
    if (argc != 2 || fake_path == NULL || injection_path == NULL) {
        fprintf(stderr, "usage: VARVE_FAKE_LIBRARY=… CUDA_INJECTION64_PATH=… cupti_play SCENE\n");
        return 2;
    }
    if (strcmp(argv[1], "late") == 0) {
        atexit(free_late);
    }
    find(fake_path, injection_path, &initialize);
    REQUIRE(initialize() == 1);
    if (fake != NULL) {
        fake->set_context(CONTEXT_0, 3);
    }
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
        if (strcmp(argv[1], scenes[i].name) == 0) {
            scenes[i].play();
            return 0;
        }
    }
    fprintf(stderr, "no such scene: %s\n", argv[1]);
    return 2;
}
