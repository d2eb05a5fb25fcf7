/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * What every device of the ops table must do alike, for any device that can be opened with a limit: life
 * cycles of segments and virtual memory, the limit, events, and each misuse, which must be refused with the
 * promised error and leave no trace. The resource table is walked after each test and after each random step.
 */
#ifndef VARVE_TESTS_SUPPORT_CUDA_DEVICE_RULES_H
#define VARVE_TESTS_SUPPORT_CUDA_DEVICE_RULES_H

#include "support/cuda/rules_kind.h"
#include "support/cuda/transfer_rules.h"
#include "support/random.h"

#include <stdlib.h>

static inline void rules_test_head(void **state)
{
    struct rules_fixture *fixture = *state;
    assert_string_equal(fixture->device->ops->name, fixture->kind->name);
    assert_int_equal(fixture->device->index, RULES_INDEX);
    assert_int_equal(rules_used(fixture), 0);
}

static inline void rules_test_segments(void **state)
{
    struct rules_fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t addrs[4], addr = 0;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ops->segment_alloc(device, 4 * RULES_UNIT, i, &addrs[i]), 0);
        assert_true(addrs[i] != 0);
        assert_int_equal(rules_used(fixture), (i + 1) * 4 * RULES_UNIT);
    }
    assert_int_equal(ops->segment_alloc(device, 1, 0, &addr), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(ops->vmm_create(device, RULES_UNIT, &addr), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(rules_used(fixture), RULES_CAPACITY);
    assert_int_equal(ops->segment_free(device, addrs[1], 4 * RULES_UNIT), 0);
    assert_int_equal(ops->segment_alloc(device, 5 * RULES_UNIT, 0, &addr), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(ops->segment_alloc(device, 4 * RULES_UNIT, 0, &addrs[1]), 0);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ops->segment_free(device, addrs[i], 4 * RULES_UNIT), 0);
    }
    assert_int_equal(rules_used(fixture), 0);
}

static inline void rules_test_segment_misuse(void **state)
{
    struct rules_fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t unit = RULES_UNIT, addr = 0, reserved = 0, unused = 0;
    assert_int_equal(ops->segment_alloc(device, 0, 0, &unused), VARVE_ERROR_INVALID);
    assert_int_equal(ops->segment_alloc(device, UINT64_MAX, 0, &unused), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(ops->segment_free(device, 0x1000, unit), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->segment_alloc(device, unit, 0, &addr), 0);
    assert_int_equal(ops->segment_free(device, addr, unit / 2), VARVE_ERROR_INVALID);
    assert_int_equal(ops->segment_free(device, addr, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->segment_free(device, addr + 4096, unit - 4096), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->segment_free(device, 0, unit), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_address_free(device, addr, unit), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(rules_used(fixture), unit);
    assert_int_equal(ops->segment_free(device, addr, unit), 0);
    assert_int_equal(ops->segment_free(device, addr, unit), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_reserve(device, unit, NULL, &reserved), 0);
    assert_int_equal(ops->segment_free(device, reserved, unit), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_address_free(device, reserved, unit), 0);
    assert_int_equal(rules_used(fixture), 0);
}

/* As an expandable segment grows and shrinks: a handle per unit, one access call over all. */
static inline void rules_test_vmm_life(void **state)
{
    struct rules_fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    const struct varve_device_reservation place = {.stream = 7};
    uint64_t unit = RULES_UNIT, base = 0, handles[4];
    assert_int_equal(ops->vmm_reserve(device, 2 * RULES_CAPACITY, &place, &base), 0);
    assert_int_equal(base % unit, 0);
    assert_int_equal(rules_used(fixture), 0);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ops->vmm_create(device, unit, &handles[i]), 0);
        assert_int_equal(ops->vmm_map(device, base + i * unit, unit, handles[i]), 0);
    }
    assert_int_equal(ops->vmm_set_access(device, base, 4 * unit, device->index), 0);
    assert_int_equal(rules_used(fixture), 4 * unit);
    rules_check(fixture);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ops->vmm_unmap(device, base + i * unit, unit), 0);
        assert_int_equal(ops->vmm_release(device, handles[i], unit), 0);
    }
    assert_int_equal(rules_used(fixture), 2 * unit);
    assert_int_equal(ops->vmm_unmap(device, base + 2 * unit, 2 * unit), 0);
    for (size_t i = 2; i < 4; i++) {
        assert_int_equal(ops->vmm_release(device, handles[i], unit), 0);
    }
    assert_int_equal(rules_used(fixture), 0);
    assert_int_equal(ops->vmm_address_free(device, base, 2 * RULES_CAPACITY), 0);
}

static inline void rules_test_release_before_unmap(void **state)
{
    struct rules_fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t unit = RULES_UNIT, base = 0, handle = 0;
    assert_int_equal(ops->vmm_reserve(device, 4 * unit, NULL, &base), 0);
    assert_int_equal(ops->vmm_create(device, unit, &handle), 0);
    assert_int_equal(ops->vmm_map(device, base, unit, handle), 0);
    assert_int_equal(ops->vmm_map(device, base + 2 * unit, unit, handle), 0);
    assert_int_equal(ops->vmm_release(device, handle, unit), 0);
    assert_int_equal(ops->vmm_release(device, handle, unit), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_map(device, base + unit, unit, handle), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(rules_used(fixture), unit);
    assert_int_equal(ops->vmm_unmap(device, base, unit), 0);
    assert_int_equal(rules_used(fixture), unit);
    assert_int_equal(ops->vmm_unmap(device, base + 2 * unit, unit), 0);
    assert_int_equal(rules_used(fixture), 0);
    assert_int_equal(ops->vmm_address_free(device, base, 4 * unit), 0);
}

static inline void rules_test_map_misuse(void **state)
{
    struct rules_fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t unit = RULES_UNIT, base = 0, handle = 0, large = 0, addr = 0;
    assert_int_equal(ops->vmm_reserve(device, 0, NULL, &base), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_create(device, 0, &handle), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_reserve(device, 4 * unit, NULL, &base), 0);
    assert_int_equal(ops->vmm_create(device, unit, &handle), 0);
    assert_int_equal(ops->vmm_create(device, 2 * unit, &large), 0);
    assert_int_equal(ops->segment_alloc(device, unit, 0, &addr), 0);
    assert_int_equal(ops->vmm_map(device, base, unit, handle + 1000), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_map(device, base, unit, 0), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_map(device, base, 2 * unit, handle), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_map(device, base, 0, handle), VARVE_ERROR_INVALID);
    if (!fixture->kind->maps_anywhere) {
        assert_int_equal(ops->vmm_map(device, base + 100, unit, handle), VARVE_ERROR_INVALID);
    }
    assert_int_equal(ops->vmm_map(device, addr, unit, handle), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_map(device, 0x1000, unit, handle), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_map(device, base + 3 * unit, 2 * unit, large), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_map(device, base + unit, unit, handle), 0);
    assert_int_equal(ops->vmm_map(device, base + unit, unit, handle), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_map(device, base, 2 * unit, large), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_address_free(device, base, 4 * unit), VARVE_ERROR_INVALID);
    assert_int_equal(rules_used(fixture), 4 * unit);
    rules_check(fixture);
    assert_int_equal(ops->vmm_map(device, base + 2 * unit, 2 * unit, large), 0);
    assert_int_equal(ops->vmm_unmap(device, base + unit, 3 * unit), 0);
    assert_int_equal(ops->vmm_address_free(device, base, 3 * unit), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_address_free(device, base + unit, 3 * unit), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_address_free(device, base, 4 * unit), 0);
    assert_int_equal(ops->vmm_address_free(device, base, 4 * unit), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_release(device, handle, 2 * unit), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_release(device, handle, unit), 0);
    assert_int_equal(ops->vmm_release(device, handle, unit), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_release(device, large, 2 * unit), 0);
    assert_int_equal(ops->segment_free(device, addr, unit), 0);
    assert_int_equal(rules_used(fixture), 0);
}

static inline void rules_test_unmap_misuse(void **state)
{
    static const uint64_t ranges[][2] = {{2, 2}, {0, 1}, {1, 1}, {0, 3}, {0, 6}, {1, 3}, {4, 4}, {0, 0}};
    struct rules_fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t unit = RULES_UNIT, base = 0, handle = 0;
    assert_int_equal(ops->vmm_reserve(device, 8 * unit, NULL, &base), 0);
    assert_int_equal(ops->vmm_create(device, 2 * unit, &handle), 0);
    assert_int_equal(ops->vmm_map(device, base, 2 * unit, handle), 0);
    assert_int_equal(ops->vmm_map(device, base + 4 * unit, 2 * unit, handle), 0);
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        uint64_t addr = base + ranges[i][0] * unit, bytes = ranges[i][1] * unit;
        assert_int_equal(ops->vmm_unmap(device, addr, bytes), VARVE_ERROR_INVALID);
        assert_int_equal(ops->vmm_set_access(device, addr, bytes, RULES_INDEX), VARVE_ERROR_INVALID);
    }
    assert_int_equal(ops->vmm_unmap(device, base, UINT64_MAX), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_set_access(device, base, 2 * unit, -1), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_set_access(device, base, 2 * unit, 256), VARVE_ERROR_INVALID);
    rules_check(fixture);
    assert_int_equal(ops->vmm_unmap(device, base, 2 * unit), 0);
    assert_int_equal(ops->vmm_unmap(device, base, 2 * unit), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_unmap(device, base + 4 * unit, 2 * unit), 0);
    assert_int_equal(ops->vmm_release(device, handle, 2 * unit), 0);
    assert_int_equal(ops->vmm_address_free(device, base, 8 * unit), 0);
}

static inline void rules_test_events(void **state)
{
    struct rules_fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t stream = fixture->kind->stream, first = 0, second = 0;
    assert_int_equal(ops->event_query(device, 1), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->event_create(device, &first), 0);
    assert_int_equal(ops->event_create(device, &second), 0);
    assert_true(first != 0 && second != 0 && first != second);
    assert_int_equal(ops->event_query(device, first), 1); /* never recorded */
    assert_int_equal(ops->event_synchronize(device, first), 0);
    assert_int_equal(ops->event_record(device, first, stream), 0);
    assert_int_equal(ops->event_synchronize(device, first), 0);
    assert_int_equal(ops->event_query(device, first), 1);
    assert_int_equal(ops->event_record(device, first, 0), 0);
    assert_int_equal(ops->stream_synchronize(device, 0), 0);
    assert_int_equal(ops->stream_synchronize(device, stream), 0);
    assert_int_equal(ops->event_query(device, first), 1);
    assert_int_equal(ops->event_destroy(device, first), 0);
    assert_int_equal(ops->event_destroy(device, first), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->event_record(device, first, stream), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->event_query(device, first), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->event_synchronize(device, first), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->event_query(device, second), 1);
    assert_int_equal(ops->event_destroy(device, second), 0);
}

/* Where there is a pool: what it keeps unused goes when it is trimmed, and only then has to. */
static inline void rules_test_pool(void **state)
{
    struct rules_fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t stream = fixture->kind->stream, quarter = RULES_CAPACITY / 4, addrs[4], addr = 0, event = 0;
    uint64_t joined = 0, again = 1;
    if (!ops->alloc_async) {
        return;
    }
    assert_int_equal(ops->pool_trim(device, 0), 0);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ops->alloc_async(device, quarter, i % 2 ? stream : 0, &addrs[i]), 0);
        assert_int_equal(rules_used(fixture), (i + 1) * quarter);
        for (size_t k = 0; k < i; k++) {
            assert_true(addrs[k] + quarter <= addrs[i] || addrs[i] + quarter <= addrs[k]);
        }
    }
    assert_int_equal(ops->alloc_async(device, 1, 0, &addr), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(ops->segment_alloc(device, 1, 0, &addr), VARVE_ERROR_NO_MEMORY);
    rules_check(fixture);
    assert_int_equal(ops->event_create(device, &event), 0);
    assert_int_equal(ops->event_record(device, event, 0), 0);
    assert_int_equal(ops->stream_wait_event(device, stream, event), 0);
    assert_int_equal(ops->join_stream(device, &joined), 0);
    assert_int_equal(ops->join_stream(device, &again), 0);
    assert_int_equal(joined, again);
    assert_true(joined != 0 && joined != stream);
    assert_int_equal(ops->stream_wait_event(device, joined, event), 0);
    assert_int_equal(ops->event_destroy(device, event), 0);
    for (size_t i = 0; i < 4; i++) {
        uint64_t on = i % 2 ? stream : 0;
        assert_int_equal(ops->free_async(device, addrs[i], quarter, i == 3 ? joined : on), 0);
        rules_check(fixture);
    }
    assert_int_equal(ops->stream_synchronize(device, joined), 0);
    assert_int_equal(ops->stream_synchronize(device, stream), 0);
    assert_int_equal(ops->stream_synchronize(device, 0), 0);
    assert_int_equal(ops->pool_trim(device, 0), 0);
    assert_int_equal(rules_used(fixture), 0);
    assert_int_equal(ops->segment_alloc(device, RULES_CAPACITY, 0, &addr), 0);
    assert_int_equal(ops->segment_free(device, addr, RULES_CAPACITY), 0);
}

static inline void rules_test_pool_misuse(void **state)
{
    struct rules_fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t unit = RULES_UNIT, addr = 0, segment = 0, unused = 0;
    if (!ops->alloc_async) {
        return;
    }
    assert_int_equal(ops->alloc_async(device, 0, 0, &unused), VARVE_ERROR_INVALID);
    assert_int_equal(ops->alloc_async(device, UINT64_MAX, 0, &unused), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(ops->free_async(device, 0x1000, unit, 0), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->free_async(device, 0, unit, 0), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->stream_wait_event(device, 0, 1), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->alloc_async(device, unit, 0, &addr), 0);
    assert_int_equal(ops->segment_alloc(device, unit, 0, &segment), 0);
    assert_int_equal(ops->free_async(device, addr, unit / 2, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->free_async(device, addr, 0, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->free_async(device, addr + 512, unit - 512, 0), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->free_async(device, segment, unit, 0), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->segment_free(device, addr, unit), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(rules_used(fixture), 2 * unit);
    rules_check(fixture);
    assert_int_equal(ops->free_async(device, addr, unit, 0), 0);
    assert_int_equal(ops->free_async(device, addr, unit, 0), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->segment_free(device, segment, unit), 0);
    assert_int_equal(ops->stream_synchronize(device, 0), 0);
    assert_int_equal(ops->pool_trim(device, 0), 0);
    assert_int_equal(ops->alloc_async(device, unit, 0, &addr), 0); /* left to the close */
}

struct rules_piece {
    uint64_t addr, bytes, handle; /* handle 0: a segment */
};

static inline void rules_give(struct varve_device *device, const struct rules_piece *piece)
{
    const struct varve_device_ops *ops = device->ops;
    if (piece->handle == 0) {
        assert_int_equal(ops->segment_free(device, piece->addr, piece->bytes), 0);
        return;
    }
    assert_int_equal(ops->vmm_unmap(device, piece->addr, piece->bytes), 0);
    assert_int_equal(ops->vmm_release(device, piece->handle, piece->bytes), 0);
    assert_int_equal(ops->vmm_address_free(device, piece->addr, 2 * piece->bytes), 0);
}

static inline int rules_take(struct varve_device *device, bool is_mapped, struct rules_piece *piece)
{
    const struct varve_device_ops *ops = device->ops;
    piece->handle = 0;
    if (!is_mapped) {
        return ops->segment_alloc(device, piece->bytes, 0, &piece->addr);
    }
    int error = ops->vmm_create(device, piece->bytes, &piece->handle);
    if (error != 0) {
        return error;
    }
    assert_int_equal(ops->vmm_reserve(device, 2 * piece->bytes, NULL, &piece->addr), 0);
    assert_int_equal(ops->vmm_map(device, piece->addr, piece->bytes, piece->handle), 0);
    return 0;
}

/* Whatever comes and goes: no two pieces overlap, the sum is right, and memory is refused exactly when it
 * must. */
static inline void rules_test_random(void **state)
{
    struct rules_fixture *fixture = *state;
    struct rules_piece pieces[16];
    size_t count = 0;
    uint64_t sum = 0;
    uint64_t seed = 99, random;
    const struct rules_kind *kind = fixture->kind;
    uint64_t piece_bytes = kind->piece_bytes != 0 ? kind->piece_bytes : RULES_UNIT;
    uint64_t piece_max = kind->piece_max != 0 ? kind->piece_max : 4;
    size_t steps = kind->steps != 0 ? kind->steps : 1500;
    for (size_t step = 0; step < steps; step++) {
        random = random_next(&seed);
        if (count < 16 && random >> 63) {
            struct rules_piece piece = {.bytes = ((random >> 40) % piece_max + 1) * piece_bytes};
            int error = rules_take(fixture->device, (random >> 50) % 2, &piece);
            assert_int_equal(error, sum + piece.bytes > RULES_CAPACITY ? VARVE_ERROR_NO_MEMORY : 0);
            for (size_t i = 0; i < count && error == 0; i++) {
                assert_true(piece.addr + piece.bytes <= pieces[i].addr ||
                            pieces[i].addr + pieces[i].bytes <= piece.addr);
            }
            if (error == 0) {
                pieces[count++] = piece;
                sum += piece.bytes;
            }
        } else if (count > 0) {
            size_t at = (random >> 40) % count;
            rules_give(fixture->device, &pieces[at]);
            sum -= pieces[at].bytes;
            pieces[at] = pieces[--count];
        }
        assert_int_equal(rules_used(fixture), sum);
        rules_check(fixture);
    }
}

#define RULES_TEST(name, kind, teardown)                                                           \
    {                                                                                              \
        "rules_test_" #name, rules_test_##name, rules_setup, (teardown), (void *)(uintptr_t)(kind) \
    }
/* All of them, of one kind, as elements of an array of struct CMUnitTest; `teardown` calls rules_teardown. */
#define RULES_TESTS(kind, teardown)                                                                                    \
    RULES_TEST(head, kind, teardown), RULES_TEST(segments, kind, teardown),                                            \
        RULES_TEST(segment_misuse, kind, teardown), RULES_TEST(vmm_life, kind, teardown),                              \
        RULES_TEST(release_before_unmap, kind, teardown), RULES_TEST(map_misuse, kind, teardown),                      \
        RULES_TEST(unmap_misuse, kind, teardown), RULES_TEST(events, kind, teardown),                                  \
        RULES_TEST(pool, kind, teardown), RULES_TEST(pool_misuse, kind, teardown), RULES_TEST(random, kind, teardown), \
        RULES_TEST(streams_created, kind, teardown), RULES_TEST(host_memory, kind, teardown),                          \
        RULES_TEST(copy_misuse, kind, teardown), RULES_TEST(rows_misuse, kind, teardown),                              \
        RULES_TEST(copy_mapped, kind, teardown), RULES_TEST(transfers, kind, teardown)

#endif
