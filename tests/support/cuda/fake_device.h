/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * The cuda device on the fake driver, opened with the limit of device_rules.h, for plays; with words for what the fake
 * is to do and what it has seen. When it closes, nothing may be left at the driver, and the thread has what it had.
 */
#ifndef VARVE_TESTS_SUPPORT_CUDA_FAKE_DEVICE_H
#define VARVE_TESTS_SUPPORT_CUDA_FAKE_DEVICE_H

#include "support/cuda/device_rules.h"
#include "support/cuda/driver_fake.h"

#define STREAM 0x5000

static inline int fake_open(const struct device_case *one, struct varve_device **device_out)
{
    const struct varve_cuda_options options = {
        .index = RULES_INDEX, .ordinal = FAKE_ORDINAL, .limit_bytes = RULES_CAPACITY};
    (void)one;
    fake_reset();
    int error = cuda_device_open(&fake_driver, &options, device_out, NULL);
    fake.device = *device_out;
    return error;
}

static inline void nothing_is_wrong(void)
{
    if (fake.wrong[0] != '\0') {
        fail_msg("%s", fake.wrong);
    }
}

static inline void fake_closing(void)
{
    fake.device = NULL;
}

static inline void nothing_is_left(void)
{
    nothing_is_wrong();
    assert_int_equal(fake_count(FAKE_NONE), FAKE_OBJECTS);
    assert_int_equal(fake_thread.depth, 0);
    assert_int_equal(fake_thread.mode, CUDA_CAPTURE_MODE_GLOBAL);
}

/* ---- words ---- */

/* A member of the fake: set, with an argument; what it is. */
/* clang-format off */
#define FAKE_MEMBERS(X)                                                                                          \
    X(captured) X(has_no_memory) X(is_event_pending) X(has_ended) X(context_result) X(peer_result) X(peer_from)  \
    X(peer_to) X(pool_peer) X(pointer_device) X(event_creates) X(event_records) X(waits) X(orders) X(trims)      \
    X(free_stream) X(free_orders) X(fail_at)
/* How many of a kind are out. */
#define FAKE_KINDS(X)                                                                                            \
    X(pools, FAKE_POOL) X(pooled, FAKE_POOLED) X(streams, FAKE_STREAM) X(pinned, FAKE_PINNED)                    \
    X(modules, FAKE_MODULE) X(imports, FAKE_IMPORT) X(retains, FAKE_RETAIN)
/* clang-format on */

#define FAKE_MEMBER(member)                                     \
    static int fake_word_##member(struct device_step *step)     \
    {                                                           \
        if (step->count != 0) {                                 \
            fake.member = (__typeof__(fake.member))step->at[0]; \
        }                                                       \
        step->out = (uint64_t)fake.member;                      \
        return VARVE_OK;                                        \
    }
#define FAKE_KIND(name, kind)                             \
    static int fake_word_##name(struct device_step *step) \
    {                                                     \
        step->out = fake_count(kind);                     \
        return VARVE_OK;                                  \
    }
FAKE_MEMBERS(FAKE_MEMBER)
FAKE_KINDS(FAKE_KIND)

/* failing:N:RESULT */
static int fake_word_failing(struct device_step *step)
{
    fake.fail_at = step->at[0];
    fake.fail_with = (cuda_result)step->at[1];
    return VARVE_OK;
}

/* How often the context of a device is retained. */
static int fake_word_retained(struct device_step *step)
{
    const struct fake_object *object = fake_find(FAKE_RETAIN, step->at[0] + 1);
    step->out = object != NULL ? object->count : 0;
    return VARVE_OK;
}

static int fake_word_is_stream(struct device_step *step)
{
    step->out = fake_find(FAKE_STREAM, step->at[0]) != NULL;
    return VARVE_OK;
}

/* order:N:STREAM:OTHER: the Nth time, STREAM was made to wait for OTHER. */
static int fake_word_order(struct device_step *step)
{
    const struct fake_order *order = &fake.order[step->at[0]];
    return order->stream == step->at[1] && order->other == step->at[2] ? VARVE_OK : VARVE_ERROR_CORRUPT;
}

/* foreign:ADDR:N: handle N, as another process would have made it of a segment there; spoil:N: it is broken, or whole
 * again. */
static int fake_word_foreign(struct device_step *step)
{
    struct varve_ipc_handle *handle = &step->play->handles[step->at[1]];
    uint64_t addr = step->at[0] + ((uint64_t)1 << 48);
    memset(handle, 0x5a, sizeof(*handle));
    memcpy(handle->bytes, &addr, sizeof(addr));
    return VARVE_OK;
}

static int fake_word_spoil(struct device_step *step)
{
    step->play->handles[step->at[0]].bytes[63] ^= 1;
    return VARVE_OK;
}

/* load:0 has an empty image, load:1 one; find:P:1 a name that is there, find:P:0 one that is missing. */
static int fake_word_load(struct device_step *step)
{
    return step->device->ops->program_load(step->device, step->at[0] != 0 ? "image" : "", &step->out);
}

static int fake_word_unload(struct device_step *step)
{
    return step->device->ops->program_unload(step->device, step->at[0]);
}

static int fake_word_find(struct device_step *step)
{
    const char *name = step->at[1] != 0 ? "there" : "missing";
    return step->device->ops->program_find(step->device, step->at[0], name, &step->out);
}

/* Of 2 * 3 * 4 blocks of 32 * 2 threads, with the value that FUNCTION has as an argument. */
static int fake_word_launch(struct device_step *step)
{
    void *arguments[] = {(void *)(uintptr_t)step->at[0]};
    const struct varve_launch launch = {.blocks = {2, 3, 4}, .threads = {32, 2, 1}, .arguments = arguments};
    return step->device->ops->launch(step->device, step->at[0], &launch, step->stream);
}

/* The transfers that came to the driver and have not been looked at; the next one was such a call. */
static int fake_word_transfers(struct device_step *step)
{
    step->out = fake.transfers - fake.transfers_seen;
    return VARVE_OK;
}

static int fake_saw(const char *name, struct fake_transfer wanted)
{
    const struct fake_transfer *seen = &fake.transfer[fake.transfers_seen];
    if (fake.transfers_seen >= fake.transfers || strcmp(seen->name, name) != 0) {
        return VARVE_ERROR_NOT_FOUND;
    }
    wanted.name = seen->name;
    if (++fake.transfers_seen == fake.transfers) {
        fake.transfers = fake.transfers_seen = 0;
    }
    return memcmp(seen, &wanted, sizeof(wanted)) == 0 ? VARVE_OK : VARVE_ERROR_CORRUPT;
}

#define FAKE_WORD(name, ...)                                                                 \
    static int fake_word_##name(struct device_step *step)                                    \
    {                                                                                        \
        const uint64_t *at = step->at;                                                       \
        return fake_saw(#name, (struct fake_transfer){.stream = step->stream, __VA_ARGS__}); \
    }
FAKE_WORD(cuMemcpyAsync, .target = at[0], .source = at[1], .width = at[2])
FAKE_WORD(cuMemcpy2DAsync, .target = at[0], .target_pitch = at[1], .source = at[2], .source_pitch = at[3],
          .width = at[4], .rows = at[5])
FAKE_WORD(cuMemsetD8Async, .target = at[0], .value = at[1], .width = at[2])
FAKE_WORD(cuMemsetD16Async, .target = at[0], .value = at[1], .width = at[2])
FAKE_WORD(cuMemsetD32Async, .target = at[0], .value = at[1], .width = at[2])
FAKE_WORD(cuMemsetD2D32Async, .target = at[0], .target_pitch = at[1], .value = at[2], .width = at[3], .rows = at[4])
FAKE_WORD(cuLaunchKernel, .target = at[0], .source = at[0], .width = at[1], .rows = at[2])
#undef FAKE_WORD

/* clang-format off */
#define FAKE_WORD(name) {#name, fake_word_##name}
#define FAKE_ENTRY(name, ...) FAKE_WORD(name),
#define FAKE_WORDS                                                                                                   \
    FAKE_MEMBERS(FAKE_ENTRY) FAKE_KINDS(FAKE_ENTRY) FAKE_WORD(failing), FAKE_WORD(retained), FAKE_WORD(is_stream),   \
    FAKE_WORD(order), FAKE_WORD(foreign), FAKE_WORD(spoil), FAKE_WORD(load), FAKE_WORD(unload), FAKE_WORD(find),     \
    FAKE_WORD(launch), FAKE_WORD(transfers), FAKE_WORD(cuMemcpyAsync), FAKE_WORD(cuMemcpy2DAsync),                   \
    FAKE_WORD(cuMemsetD8Async), FAKE_WORD(cuMemsetD16Async), FAKE_WORD(cuMemsetD32Async),                            \
    FAKE_WORD(cuMemsetD2D32Async), FAKE_WORD(cuLaunchKernel)
/* clang-format on */

#endif
