/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every device of the ops table must do alike, run on the sim and on the host device: life cycles of
 * segments and virtual memory, the capacity, events, and each misuse, which must be refused with the promised
 * error and leave no trace. The books are walked after each test and after each random step.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "alloc/alloc.h"

#include <stdlib.h>
#include <string.h>

#define UNIT ((uint64_t)2 << 20)
#define CAPACITY (16 * UNIT)

struct kind {
    const char *name;
    int (*open)(struct varve_device **device_out);
    int (*check)(const struct varve_device *device, struct varve_message *message);
};

struct fixture {
    const struct kind *kind;
    struct varve_device *device;
};

static int sim_open(struct varve_device **device_out)
{
    const struct varve_sim_options options = {.index = 3, .capacity_bytes = CAPACITY};

    return varve_sim_open(&options, device_out, NULL);
}

static int sim_reusing_open(struct varve_device **device_out)
{
    const struct varve_sim_options options = {
        .index = 3, .capacity_bytes = CAPACITY, .reuses_addresses = true};

    return varve_sim_open(&options, device_out, NULL);
}

static int host_open(struct varve_device **device_out)
{
    const struct varve_host_options options = {.index = 3, .limit_bytes = CAPACITY};

    return varve_host_open(&options, device_out, NULL);
}

static struct kind kinds[] = {
    {"sim", sim_open, varve_sim_check},
    {"sim", sim_reusing_open, varve_sim_check},
    {"host", host_open, varve_host_check},
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    if (!fixture) {
        return -1;
    }
    fixture->kind = *state;
    *state = fixture;
    return fixture->kind->open(&fixture->device);
}

static uint64_t used(struct fixture *fixture)
{
    uint64_t free_bytes = 0, total = 0;

    assert_int_equal(fixture->device->ops->memory_info(fixture->device, &free_bytes, &total), 0);
    assert_int_equal(total, CAPACITY);
    return total - free_bytes;
}

static void check(struct fixture *fixture)
{
    struct varve_message message = {""};

    if (fixture->kind->check(fixture->device, &message) != 0) {
        fail_msg("%s: %s", fixture->kind->name, message.text);
    }
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    int error = fixture->kind->check(fixture->device, NULL);

    fixture->device->ops->close(fixture->device);
    free(fixture);
    return error;
}

static void test_head(void **state)
{
    struct fixture *fixture = *state;

    assert_string_equal(fixture->device->ops->name, fixture->kind->name);
    assert_int_equal(fixture->device->index, 3);
    assert_int_equal(used(fixture), 0);
}

static void test_segments(void **state)
{
    struct fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t addrs[4], addr = 0;

    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ops->segment_alloc(device, 4 * UNIT, i, &addrs[i]), 0);
        assert_true(addrs[i] != 0);
        assert_int_equal(used(fixture), (i + 1) * 4 * UNIT);
    }
    assert_int_equal(ops->segment_alloc(device, 1, 0, &addr), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(ops->vmm_create(device, UNIT, &addr), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(used(fixture), CAPACITY);
    assert_int_equal(ops->segment_free(device, addrs[1], 4 * UNIT), 0);
    assert_int_equal(ops->segment_alloc(device, 5 * UNIT, 0, &addr), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(ops->segment_alloc(device, 4 * UNIT, 0, &addrs[1]), 0);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ops->segment_free(device, addrs[i], 4 * UNIT), 0);
    }
    assert_int_equal(used(fixture), 0);
}

static void test_segment_misuse(void **state)
{
    struct fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = 0, reserved = 0, unused = 0;

    assert_int_equal(ops->segment_alloc(device, 0, 0, &unused), VARVE_ERROR_INVALID);
    assert_int_equal(ops->segment_alloc(device, UINT64_MAX, 0, &unused), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(ops->segment_free(device, 0x1000, UNIT), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->segment_alloc(device, UNIT, 0, &addr), 0);
    assert_int_equal(ops->segment_free(device, addr, UNIT / 2), VARVE_ERROR_INVALID);
    assert_int_equal(ops->segment_free(device, addr, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->segment_free(device, addr + 4096, UNIT - 4096), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->segment_free(device, 0, UNIT), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_address_free(device, addr, UNIT), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(used(fixture), UNIT);
    assert_int_equal(ops->segment_free(device, addr, UNIT), 0);
    assert_int_equal(ops->segment_free(device, addr, UNIT), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_reserve(device, UNIT, NULL, &reserved), 0);
    assert_int_equal(ops->segment_free(device, reserved, UNIT), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_address_free(device, reserved, UNIT), 0);
    assert_int_equal(used(fixture), 0);
}

/* As an expandable segment grows and shrinks: a handle per unit, one access call over all. */
static void test_vmm_life(void **state)
{
    struct fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    const struct varve_device_place place = {.stream = 7};
    uint64_t base = 0, handles[4];

    assert_int_equal(ops->vmm_reserve(device, 2 * CAPACITY, &place, &base), 0);
    assert_int_equal(base % UNIT, 0);
    assert_int_equal(used(fixture), 0);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ops->vmm_create(device, UNIT, &handles[i]), 0);
        assert_int_equal(ops->vmm_map(device, base + i * UNIT, UNIT, handles[i]), 0);
    }
    assert_int_equal(ops->vmm_set_access(device, base, 4 * UNIT, device->index), 0);
    assert_int_equal(ops->vmm_set_access(device, base, 4 * UNIT, 0), 0);
    assert_int_equal(used(fixture), 4 * UNIT);
    check(fixture);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ops->vmm_unmap(device, base + i * UNIT, UNIT), 0);
        assert_int_equal(ops->vmm_release(device, handles[i], UNIT), 0);
    }
    assert_int_equal(used(fixture), 2 * UNIT);
    assert_int_equal(ops->vmm_unmap(device, base + 2 * UNIT, 2 * UNIT), 0);
    for (size_t i = 2; i < 4; i++) {
        assert_int_equal(ops->vmm_release(device, handles[i], UNIT), 0);
    }
    assert_int_equal(used(fixture), 0);
    assert_int_equal(ops->vmm_address_free(device, base, 2 * CAPACITY), 0);
}

static void test_vmm_release_before_unmap(void **state)
{
    struct fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t base = 0, handle = 0;

    assert_int_equal(ops->vmm_reserve(device, 4 * UNIT, NULL, &base), 0);
    assert_int_equal(ops->vmm_create(device, UNIT, &handle), 0);
    assert_int_equal(ops->vmm_map(device, base, UNIT, handle), 0);
    assert_int_equal(ops->vmm_map(device, base + 2 * UNIT, UNIT, handle), 0);
    assert_int_equal(ops->vmm_release(device, handle, UNIT), 0);
    assert_int_equal(ops->vmm_release(device, handle, UNIT), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_map(device, base + UNIT, UNIT, handle), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(used(fixture), UNIT);
    assert_int_equal(ops->vmm_unmap(device, base, UNIT), 0);
    assert_int_equal(used(fixture), UNIT);
    assert_int_equal(ops->vmm_unmap(device, base + 2 * UNIT, UNIT), 0);
    assert_int_equal(used(fixture), 0);
    assert_int_equal(ops->vmm_address_free(device, base, 4 * UNIT), 0);
}

static void test_map_misuse(void **state)
{
    struct fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t base = 0, handle = 0, large = 0, addr = 0;

    assert_int_equal(ops->vmm_reserve(device, 0, NULL, &base), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_create(device, 0, &handle), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_reserve(device, 4 * UNIT, NULL, &base), 0);
    assert_int_equal(ops->vmm_create(device, UNIT, &handle), 0);
    assert_int_equal(ops->vmm_create(device, 2 * UNIT, &large), 0);
    assert_int_equal(ops->segment_alloc(device, UNIT, 0, &addr), 0);
    assert_int_equal(ops->vmm_map(device, base, UNIT, handle + 1000), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_map(device, base, UNIT, 0), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_map(device, base, 2 * UNIT, handle), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_map(device, base, 0, handle), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_map(device, addr, UNIT, handle), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_map(device, 0x1000, UNIT, handle), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_map(device, base + 3 * UNIT, 2 * UNIT, large), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_map(device, base + UNIT, UNIT, handle), 0);
    assert_int_equal(ops->vmm_map(device, base + UNIT, UNIT, handle), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_map(device, base, 2 * UNIT, large), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_address_free(device, base, 4 * UNIT), VARVE_ERROR_INVALID);
    assert_int_equal(used(fixture), 4 * UNIT);
    check(fixture);
    assert_int_equal(ops->vmm_map(device, base + 2 * UNIT, 2 * UNIT, large), 0);
    assert_int_equal(ops->vmm_unmap(device, base + UNIT, 3 * UNIT), 0);
    assert_int_equal(ops->vmm_address_free(device, base, 3 * UNIT), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_address_free(device, base + UNIT, 3 * UNIT), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_address_free(device, base, 4 * UNIT), 0);
    assert_int_equal(ops->vmm_address_free(device, base, 4 * UNIT), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_release(device, handle, 2 * UNIT), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_release(device, handle, UNIT), 0);
    assert_int_equal(ops->vmm_release(device, handle, UNIT), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->vmm_release(device, large, 2 * UNIT), 0);
    assert_int_equal(ops->segment_free(device, addr, UNIT), 0);
    assert_int_equal(used(fixture), 0);
}

static void test_unmap_misuse(void **state)
{
    struct fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t base = 0, handle = 0;

    assert_int_equal(ops->vmm_reserve(device, 8 * UNIT, NULL, &base), 0);
    assert_int_equal(ops->vmm_create(device, 2 * UNIT, &handle), 0);
    assert_int_equal(ops->vmm_map(device, base, 2 * UNIT, handle), 0);
    assert_int_equal(ops->vmm_map(device, base + 4 * UNIT, 2 * UNIT, handle), 0);
    for (size_t i = 0; i < 2; i++) {
        static const uint64_t ranges[][2] = {{2, 2}, {0, 1}, {1, 1}, {0, 3}, {0, 6}, {1, 3}, {4, 4}, {0, 0}};

        for (size_t j = 0; j < sizeof(ranges) / sizeof(ranges[0]); j++) {
            uint64_t addr = base + ranges[j][0] * UNIT, bytes = ranges[j][1] * UNIT;

            if (i == 0) {
                assert_int_equal(ops->vmm_unmap(device, addr, bytes), VARVE_ERROR_INVALID);
            } else {
                assert_int_equal(ops->vmm_set_access(device, addr, bytes, 3), VARVE_ERROR_INVALID);
            }
        }
    }
    assert_int_equal(ops->vmm_unmap(device, base, UINT64_MAX), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_set_access(device, base, 2 * UNIT, -1), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_set_access(device, base, 2 * UNIT, 256), VARVE_ERROR_INVALID);
    check(fixture);
    assert_int_equal(ops->vmm_unmap(device, base, 2 * UNIT), 0);
    assert_int_equal(ops->vmm_unmap(device, base, 2 * UNIT), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_unmap(device, base + 4 * UNIT, 2 * UNIT), 0);
    assert_int_equal(ops->vmm_release(device, handle, 2 * UNIT), 0);
    assert_int_equal(ops->vmm_address_free(device, base, 8 * UNIT), 0);
}

static void test_events(void **state)
{
    struct varve_device *device = ((struct fixture *)*state)->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t first = 0, second = 0;

    assert_int_equal(ops->event_query(device, 1), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->event_create(device, &first), 0);
    assert_int_equal(ops->event_create(device, &second), 0);
    assert_true(first != 0 && second != 0 && first != second);
    assert_int_equal(ops->event_query(device, first), 1); /* never recorded */
    assert_int_equal(ops->event_record(device, first, 5), 0);
    assert_int_equal(ops->event_query(device, first), 1);
    assert_int_equal(ops->event_synchronize(device, first), 0);
    assert_int_equal(ops->stream_synchronize(device, 5), 0);
    assert_int_equal(ops->event_destroy(device, first), 0);
    assert_int_equal(ops->event_destroy(device, first), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->event_record(device, first, 5), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->event_query(device, first), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->event_synchronize(device, first), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->event_query(device, second), 1);
    assert_int_equal(ops->event_destroy(device, second), 0);
}

static void test_peers(void **state)
{
    struct varve_device *device = ((struct fixture *)*state)->device;

    assert_int_equal(device->ops->peer_enable(device, 0), 0);
    assert_int_equal(device->ops->peer_enable(device, 255), 0);
    assert_int_equal(device->ops->peer_enable(device, 3), VARVE_ERROR_INVALID);
    assert_int_equal(device->ops->peer_enable(device, -1), VARVE_ERROR_INVALID);
    assert_int_equal(device->ops->peer_enable(device, 256), VARVE_ERROR_INVALID);
}

struct piece {
    uint64_t addr, bytes, handle; /* handle 0: a segment */
};

static void give(struct varve_device *device, const struct piece *piece)
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

static int take(struct varve_device *device, bool is_mapped, struct piece *piece)
{
    const struct varve_device_ops *ops = device->ops;
    int error;

    piece->handle = 0;
    if (!is_mapped) {
        return ops->segment_alloc(device, piece->bytes, 0, &piece->addr);
    }
    error = ops->vmm_create(device, piece->bytes, &piece->handle);
    if (error != 0) {
        return error;
    }
    assert_int_equal(ops->vmm_reserve(device, 2 * piece->bytes, NULL, &piece->addr), 0);
    assert_int_equal(ops->vmm_map(device, piece->addr, piece->bytes, piece->handle), 0);
    return 0;
}

/* Whatever comes and goes: no two pieces overlap, the sum is right, and memory is refused exactly when it
 * must. */
static void test_random(void **state)
{
    struct fixture *fixture = *state;
    struct piece pieces[16];
    size_t count = 0;
    uint64_t sum = 0;
    uint64_t random = 99;

    for (size_t step = 0; step < 3000; step++) {
        random = random * 6364136223846793005U + 1442695040888963407U;
        if (count < 16 && random >> 63) {
            struct piece piece = {.bytes = ((random >> 40) % 6 + 1) * UNIT / 2};
            int error = take(fixture->device, (random >> 50) % 2, &piece);

            assert_int_equal(error, sum + piece.bytes > CAPACITY ? VARVE_ERROR_NO_MEMORY : 0);
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

            give(fixture->device, &pieces[at]);
            sum -= pieces[at].bytes;
            pieces[at] = pieces[--count];
        }
        assert_int_equal(used(fixture), sum);
        check(fixture);
    }
}

static void test_open_refuses(void **state)
{
    const struct varve_sim_options sims[] = {
        {.index = -1}, {.index = 256}, {.alignment = 3}, {.first_addr = UINT64_MAX}};
    const struct varve_host_options hosts[] = {{.index = -1}, {.index = 256}};
    struct varve_device *device = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(sims) / sizeof(sims[0]); i++) {
        struct varve_message message = {""};

        assert_int_equal(varve_sim_open(&sims[i], &device, &message), VARVE_ERROR_INVALID);
        assert_true(strlen(message.text) > 10);
    }
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        struct varve_message message = {""};

        assert_int_equal(varve_host_open(&hosts[i], &device, &message), VARVE_ERROR_INVALID);
        assert_true(strlen(message.text) > 10);
    }
    assert_null(device);
}

#define ON(name, kind)                                                 \
    {                                                                  \
#name "/" #kind, name, setup, teardown, (void *)(&kinds[kind]) \
    }
#define ON_ALL(name) ON(name, 0), ON(name, 1), ON(name, 2)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_ALL(test_head),
        ON_ALL(test_segments),
        ON_ALL(test_segment_misuse),
        ON_ALL(test_vmm_life),
        ON_ALL(test_vmm_release_before_unmap),
        ON_ALL(test_map_misuse),
        ON_ALL(test_unmap_misuse),
        ON_ALL(test_events),
        ON_ALL(test_peers),
        ON_ALL(test_random),
        cmocka_unit_test(test_open_refuses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
