/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * What the transfers of every device must do alike; part of device_rules.h. Misuse is refused with the promised
 * error. Random copies and fills are compared with arrays of bytes: which error each call must give is worked out
 * address by address, and where the device has memory (rules_kind.has_bytes), so is what all of it must hold
 * afterwards.
 */
#ifndef VARVE_TESTS_SUPPORT_CUDA_TRANSFER_RULES_H
#define VARVE_TESTS_SUPPORT_CUDA_TRANSFER_RULES_H

#include "support/cuda/rules_kind.h"
#include "support/random.h"

#include <stdlib.h>
#include <string.h>

#define TRANSFER_PIECES 6U
#define TRANSFER_EDGE 2048U /* of what is larger, only so much at each end is used, and the middle of a mapped piece */

/* Memory that a test copies between, with what it must hold. */
struct transfer_piece {
    uint64_t addr, bytes;
    bool is_host;
    unsigned char *expected;
};

/* Three pieces of the device and three of the host; the third of the device is two mappings side by side. */
struct transfer_scene {
    struct rules_fixture *fixture;
    struct transfer_piece pieces[TRANSFER_PIECES];
    uint64_t base, handles[2], streams[2];
    uint64_t random;
    unsigned char *seen; /* room for a piece */
};

static inline void rules_test_streams_created(void **state)
{
    struct rules_fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t streams[20], event = 0;
    assert_int_equal(ops->stream_destroy(device, 0), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->stream_destroy(device, fixture->kind->stream), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->event_create(device, &event), 0);
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(ops->stream_create(device, &streams[i]), 0);
        assert_true(streams[i] != 0 && streams[i] != fixture->kind->stream);
        for (size_t k = 0; k < i; k++) {
            assert_true(streams[i] != streams[k]);
        }
        assert_int_equal(ops->event_record(device, event, streams[i]), 0);
        assert_int_equal(ops->stream_wait_event(device, streams[0], event), 0);
        assert_int_equal(ops->stream_synchronize(device, streams[i]), 0);
        assert_int_equal(ops->event_query(device, event), 1);
    }
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal(ops->stream_destroy(device, streams[i]), 0);
        assert_int_equal(ops->stream_destroy(device, streams[i]), VARVE_ERROR_NOT_FOUND);
    }
    assert_int_equal(ops->stream_synchronize(device, streams[19]), 0);
    assert_int_equal(ops->event_destroy(device, event), 0);
    rules_check(fixture); /* the others go with the device */
}

static inline void rules_test_host_memory(void **state)
{
    struct rules_fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t addrs[8], none = 0;
    assert_int_equal(ops->host_alloc(device, 0, &none), VARVE_ERROR_INVALID);
    assert_int_equal(ops->host_alloc(device, UINT64_MAX - 4095, &none), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(ops->host_free(device, 0), VARVE_ERROR_NOT_FOUND);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(ops->host_alloc(device, 1000 * i + 1, &addrs[i]), 0);
        assert_int_equal(addrs[i] % 256, 0);
        memset((void *)(uintptr_t)addrs[i], (int)i, 1000 * i + 1);
    }
    assert_int_equal(rules_used(fixture), 0);
    rules_check(fixture);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(*((unsigned char *)(uintptr_t)addrs[i] + 1000 * i), i);
    }
    assert_int_equal(ops->host_free(device, addrs[3] + 1), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->segment_free(device, addrs[3], 3001), VARVE_ERROR_NOT_FOUND);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(ops->host_free(device, addrs[i]), 0);
        assert_int_equal(ops->host_free(device, addrs[i]), VARVE_ERROR_NOT_FOUND);
    }
    rules_check(fixture);
}

static inline void rules_test_copy_misuse(void **state)
{
    struct rules_fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t unit = RULES_UNIT, host = 0, addr = 0, other = 0;
    const enum varve_copy_direction in = VARVE_COPY_HOST_TO_DEVICE, out = VARVE_COPY_DEVICE_TO_HOST;
    assert_int_equal(ops->host_alloc(device, unit, &host), 0);
    memset((void *)(uintptr_t)host, 0, unit);
    assert_int_equal(ops->segment_alloc(device, unit, 0, &addr), 0);
    assert_int_equal(ops->segment_alloc(device, unit, 0, &other), 0);
    assert_int_equal(ops->copy(device, addr, host, unit, in, 0), 0);
    assert_int_equal(ops->copy(device, host, addr + unit - 1, 1, out, 0), 0);
    assert_int_equal(ops->copy(device, 0, 0, 0, VARVE_COPY_WITHIN, 0), 0);
    assert_int_equal(ops->copy(device, addr, host, unit + 1, in, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->copy(device, addr + 5, host, unit, in, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->copy(device, addr, host, UINT64_MAX, in, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->copy(device, addr, 0, 1, in, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->copy(device, 0, addr, 1, out, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->copy(device, host, addr, 1, in, 0), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->copy(device, addr, host, 1, out, 0), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->copy(device, addr, host, 1, VARVE_COPY_WITHIN, 0), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->copy(device, addr, addr, 16, VARVE_COPY_WITHIN, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->copy(device, addr, addr + 15, 16, VARVE_COPY_WITHIN, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->copy(device, addr + 16, addr, 16, VARVE_COPY_WITHIN, 0), 0);
    assert_int_equal(ops->copy(device, addr, host, 16, VARVE_COPY_DIRECTION_LIMIT, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->fill(device, addr, 0, 3, 1, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->fill(device, addr, 0, 16, 1, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->fill(device, addr + 4, 0, 8, 1, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->fill(device, addr, 0, 8, UINT64_MAX / 4, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->fill(device, addr, 0, 4, unit / 4 + 1, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->fill(device, addr, 0, 4, unit / 4, 0), 0);
    assert_int_equal(ops->fill(device, host, 0, 1, 1, 0), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->stream_synchronize(device, 0), 0);
    assert_int_equal(ops->segment_free(device, addr, unit), 0);
    assert_int_equal(ops->copy(device, addr, host, 16, in, 0), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->fill(device, addr, 0, 1, 1, 0), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->copy(device, other, host, 16, in, 0), 0);
    assert_int_equal(ops->stream_synchronize(device, 0), 0);
}

static inline int rules_copy_rows(struct varve_device *device, uint64_t target, uint64_t target_pitch, uint64_t source,
                                  uint64_t source_pitch, uint64_t row_bytes, uint64_t rows)
{
    return device->ops->copy_2d(device,
                                &(struct varve_copy_2d){.direction = VARVE_COPY_WITHIN,
                                                        .target_addr = target,
                                                        .target_pitch = target_pitch,
                                                        .source_addr = source,
                                                        .source_pitch = source_pitch,
                                                        .row_bytes = row_bytes,
                                                        .rows = rows},
                                0);
}

static inline void rules_test_rows_misuse(void **state)
{
    struct rules_fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    uint64_t unit = RULES_UNIT, addr = 0, far = unit / 2, huge = UINT64_MAX / 2;
    assert_int_equal(device->ops->segment_alloc(device, unit, 0, &addr), 0);
    assert_int_equal(rules_copy_rows(device, addr, 64, addr + far, 64, 32, 100), 0);
    assert_int_equal(rules_copy_rows(device, addr, 0, addr + far, 0, 32, 1), 0); /* one row needs no pitch */
    assert_int_equal(rules_copy_rows(device, addr, 0, addr, 0, 0, 7), 0);
    assert_int_equal(rules_copy_rows(device, addr, 0, addr, 0, 7, 0), 0);
    assert_int_equal(rules_copy_rows(device, addr, 31, addr + far, 64, 32, 2), VARVE_ERROR_INVALID);
    assert_int_equal(rules_copy_rows(device, addr, 64, addr + far, 31, 32, 2), VARVE_ERROR_INVALID);
    assert_int_equal(rules_copy_rows(device, addr, huge, addr + far, 32, 32, 4), VARVE_ERROR_INVALID);
    assert_int_equal(rules_copy_rows(device, addr, 64, addr + far, 64, 64, far / 64), 0);
    assert_int_equal(rules_copy_rows(device, addr, 64, addr + far, 64, 64, far / 64 + 1), VARVE_ERROR_INVALID);
    assert_int_equal(rules_copy_rows(device, addr, huge, addr + far, huge, huge, huge), VARVE_ERROR_INVALID);
    /* columns of one matrix: side by side, then with one byte of the next row's beginning in common */
    assert_int_equal(rules_copy_rows(device, addr, 64, addr + 32, 64, 32, 100), 0);
    assert_int_equal(rules_copy_rows(device, addr + 32, 64, addr, 64, 32, 100), 0);
    assert_int_equal(rules_copy_rows(device, addr, 64, addr + 31, 64, 32, 100), VARVE_ERROR_INVALID);
    assert_int_equal(rules_copy_rows(device, addr, 64, addr + 33, 64, 32, 100), VARVE_ERROR_INVALID);
    /* the second row of one, the first of the other */
    assert_int_equal(rules_copy_rows(device, addr, 64, addr + 40, 64, 33, 1), 0);
    assert_int_equal(rules_copy_rows(device, addr, 64, addr + 40, 64, 24, 2), 0);
    assert_int_equal(rules_copy_rows(device, addr, 64, addr + 40, 64, 25, 2), VARVE_ERROR_INVALID);
    assert_int_equal(rules_copy_rows(device, addr + 40, 64, addr, 64, 25, 2), VARVE_ERROR_INVALID);
    assert_int_equal(rules_copy_rows(device, addr, 64, addr + 104, 64, 25, 2), 0);
    assert_int_equal(rules_copy_rows(device, addr, 64, addr + 104, 64, 25, 3), VARVE_ERROR_INVALID);
    assert_int_equal(rules_copy_rows(device, addr, 64, addr + 64 * 100, 64, 64, 100), 0);
    assert_int_equal(rules_copy_rows(device, addr, 64, addr + 64 * 99, 64, 1, 100), VARVE_ERROR_INVALID);
    assert_int_equal(rules_copy_rows(device, addr, 64, addr + 32, 65, 32, 100), VARVE_ERROR_INVALID);
    assert_int_equal(device->ops->stream_synchronize(device, 0), 0);
}

/* What is mapped but has no access, or access of a peer only, is out of reach; so are holes. */
static inline void rules_test_copy_mapped(void **state)
{
    struct rules_fixture *fixture = *state;
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t unit = RULES_UNIT, base = 0, handles[3];
    assert_int_equal(ops->vmm_reserve(device, 4 * unit, NULL, &base), 0);
    assert_int_equal(ops->fill(device, base, 0, 1, 1, 0), VARVE_ERROR_INVALID);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ops->vmm_create(device, unit, &handles[i]), 0);
        assert_int_equal(ops->vmm_map(device, base + i * unit, unit, handles[i]), 0);
    }
    assert_int_equal(ops->fill(device, base, 0, 1, 1, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_set_access(device, base, 2 * unit, RULES_INDEX), 0);
    assert_int_equal(ops->fill(device, base, 0, 1, 2 * unit, 0), 0);
    assert_int_equal(ops->fill(device, base + unit - 1, 0, 1, 2, 0), 0);
    assert_int_equal(ops->fill(device, base + unit, 0, 1, unit + 1, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->fill(device, base + 3 * unit, 0, 1, 1, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->copy(device, base + unit + 5, base + 5, unit - 5, VARVE_COPY_WITHIN, 0), 0);
    assert_int_equal(ops->stream_synchronize(device, 0), 0);
    assert_int_equal(ops->vmm_unmap(device, base, unit), 0);
    assert_int_equal(ops->copy(device, base + unit + 5, base + 5, 10, VARVE_COPY_WITHIN, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->fill(device, base + unit, 0, 1, unit, 0), 0);
    assert_int_equal(ops->vmm_map(device, base, unit, handles[0]), 0);
    assert_int_equal(ops->fill(device, base, 0, 1, 1, 0), VARVE_ERROR_INVALID); /* a new mapping */
    assert_int_equal(ops->stream_synchronize(device, 0), 0);
}

/* ---- random transfers ---- */

static inline void transfer_piece_set(struct transfer_piece *piece, uint64_t addr, uint64_t bytes, bool is_host)
{
    *piece = (struct transfer_piece){.addr = addr, .bytes = bytes, .is_host = is_host, .expected = calloc(1, bytes)};
    assert_non_null(piece->expected);
}

static inline void transfer_scene_open(struct transfer_scene *scene, struct rules_fixture *fixture)
{
    struct varve_device *device = fixture->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = 0;
    *scene = (struct transfer_scene){.fixture = fixture, .seen = malloc(2 * RULES_UNIT)};
    assert_non_null(scene->seen);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ops->segment_alloc(device, 3000 + 1000 * i, 0, &addr), 0);
        transfer_piece_set(&scene->pieces[i], addr, 3000 + 1000 * i, false);
    }
    assert_int_equal(ops->vmm_reserve(device, 4 * RULES_UNIT, NULL, &scene->base), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ops->vmm_create(device, RULES_UNIT, &scene->handles[i]), 0);
        assert_int_equal(ops->vmm_map(device, scene->base + i * RULES_UNIT, RULES_UNIT, scene->handles[i]), 0);
    }
    assert_int_equal(ops->vmm_set_access(device, scene->base, 2 * RULES_UNIT, RULES_INDEX), 0);
    transfer_piece_set(&scene->pieces[2], scene->base, 2 * RULES_UNIT, false);
    for (size_t i = 3; i < TRANSFER_PIECES; i++) {
        assert_int_equal(ops->host_alloc(device, 4000, &addr), 0);
        transfer_piece_set(&scene->pieces[i], addr, 4000, true);
        memset((void *)(uintptr_t)addr, 0, 4000);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ops->fill(device, scene->pieces[i].addr, 0, 1, scene->pieces[i].bytes, 0), 0);
    }
    assert_int_equal(ops->stream_synchronize(device, 0), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ops->stream_create(device, &scene->streams[i]), 0);
    }
}

static inline void transfer_scene_close(struct transfer_scene *scene)
{
    struct varve_device *device = scene->fixture->device;
    const struct varve_device_ops *ops = device->ops;
    for (size_t i = 0; i < TRANSFER_PIECES; i++) {
        struct transfer_piece *piece = &scene->pieces[i];
        free(piece->expected);
        if (piece->is_host) {
            assert_int_equal(ops->host_free(device, piece->addr), 0);
        } else if (i < 2) {
            assert_int_equal(ops->segment_free(device, piece->addr, piece->bytes), 0);
        }
    }
    free(scene->seen);
    assert_int_equal(ops->vmm_unmap(device, scene->base, 2 * RULES_UNIT), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ops->vmm_release(device, scene->handles[i], RULES_UNIT), 0);
        assert_int_equal(ops->stream_destroy(device, scene->streams[i]), 0);
    }
    assert_int_equal(ops->vmm_address_free(device, scene->base, 4 * RULES_UNIT), 0);
    assert_int_equal(rules_used(scene->fixture), 0);
}

static inline uint64_t transfer_below(struct transfer_scene *scene, uint64_t limit)
{
    return random_below(&scene->random, limit);
}

/* Somewhere in the piece: near one of its ends, or near its middle, where two mappings meet. */
static inline uint64_t transfer_offset(struct transfer_scene *scene, const struct transfer_piece *piece)
{
    if (piece->bytes > 4 * TRANSFER_EDGE) {
        const uint64_t starts[3] = {0, piece->bytes / 2 - TRANSFER_EDGE / 2, piece->bytes - TRANSFER_EDGE};
        return starts[transfer_below(scene, 3)] + transfer_below(scene, TRANSFER_EDGE);
    }
    return transfer_below(scene, piece->bytes);
}

/* What the rows of one end must be refused with, going by addresses alone. */
static inline int transfer_end_expected(const struct transfer_piece *piece, uint64_t offset, uint64_t pitch,
                                        const struct varve_copy_2d *copy)
{
    if (copy->rows > 1 && pitch < copy->row_bytes) {
        return VARVE_ERROR_INVALID;
    }
    for (uint64_t row = 0; row < copy->rows && !piece->is_host; row++) {
        if (offset + row * pitch + copy->row_bytes > piece->bytes) {
            return VARVE_ERROR_INVALID;
        }
    }
    return 0;
}

/* Do two rows have a byte in common; with different pitches, the ranges that all rows lie in? */
static inline bool transfer_overlaps(const struct varve_copy_2d *copy)
{
    uint64_t rows = copy->rows, bytes = copy->row_bytes;
    for (uint64_t i = 0; i < rows; i++) {
        for (uint64_t k = 0; k < rows; k++) {
            uint64_t to = copy->target_addr + i * copy->target_pitch;
            uint64_t from = copy->source_addr + k * copy->source_pitch;
            if (to < from + bytes && from < to + bytes) {
                return true;
            }
        }
    }
    return rows > 1 && copy->target_pitch != copy->source_pitch &&
           copy->target_addr < copy->source_addr + (rows - 1) * copy->source_pitch + bytes &&
           copy->source_addr < copy->target_addr + (rows - 1) * copy->target_pitch + bytes;
}

static inline enum varve_copy_direction transfer_direction(struct transfer_scene *scene, bool to_host, bool from_host)
{
    if (!to_host && !from_host) {
        return VARVE_COPY_WITHIN;
    }
    if (transfer_below(scene, 4) == 0) {
        return to_host ? VARVE_COPY_DEVICE_TO_PEER : VARVE_COPY_PEER_TO_DEVICE; /* all memory has one kind of address */
    }
    return to_host ? VARVE_COPY_DEVICE_TO_HOST : VARVE_COPY_HOST_TO_DEVICE;
}

static inline void transfer_copy(struct transfer_scene *scene)
{
    struct varve_device *device = scene->fixture->device;
    struct transfer_piece *target = &scene->pieces[transfer_below(scene, TRANSFER_PIECES)];
    struct transfer_piece *source = &scene->pieces[transfer_below(scene, target->is_host ? 3 : TRANSFER_PIECES)];
    uint64_t to = transfer_offset(scene, target), from = transfer_offset(scene, source);
    uint64_t stream = scene->streams[transfer_below(scene, 2)];
    struct varve_copy_2d copy = {.target_addr = target->addr + to,
                                 .source_addr = source->addr + from,
                                 .row_bytes = 1 + transfer_below(scene, 40),
                                 .rows = 1 + transfer_below(scene, 12)};
    if (transfer_below(scene, 3) == 0) {
        copy.rows = 1;
        copy.row_bytes = 1 + transfer_below(scene, 1500);
    }
    copy.target_pitch = copy.row_bytes + transfer_below(scene, 30);
    copy.source_pitch = transfer_below(scene, 2) ? copy.target_pitch : copy.row_bytes + transfer_below(scene, 30);
    if (transfer_below(scene, 30) == 0) {
        copy.source_pitch = copy.row_bytes - 1;
    }
    copy.direction = transfer_direction(scene, target->is_host, source->is_host);
    if ((target->is_host && to + copy.rows * copy.target_pitch + copy.row_bytes > target->bytes) ||
        (source->is_host && from + copy.rows * copy.source_pitch + copy.row_bytes > source->bytes)) {
        return; /* nobody checks host memory */
    }
    int wanted = transfer_end_expected(target, to, copy.target_pitch, &copy);
    wanted = wanted == 0 ? transfer_end_expected(source, from, copy.source_pitch, &copy) : wanted;
    wanted = wanted == 0 && transfer_overlaps(&copy) ? VARVE_ERROR_INVALID : wanted;
    int error = copy.rows == 1 ? device->ops->copy(device, copy.target_addr, copy.source_addr, copy.row_bytes,
                                                   copy.direction, stream)
                               : device->ops->copy_2d(device, &copy, stream);
    assert_int_equal(error, wanted);
    assert_int_equal(device->ops->stream_synchronize(device, stream), 0);
    for (uint64_t row = 0; error == 0 && row < copy.rows; row++) {
        memcpy(target->expected + to + row * copy.target_pitch, source->expected + from + row * copy.source_pitch,
               copy.row_bytes);
    }
}

static inline void transfer_fill(struct transfer_scene *scene)
{
    struct varve_device *device = scene->fixture->device;
    struct transfer_piece *piece = &scene->pieces[transfer_below(scene, 3)];
    unsigned bytes = 1U << transfer_below(scene, 4);
    uint64_t at = transfer_offset(scene, piece), count = 1 + transfer_below(scene, 300);
    uint64_t stream = scene->streams[transfer_below(scene, 2)];
    uint64_t pattern = random_next(&scene->random);
    at = transfer_below(scene, 10) != 0 ? at / bytes * bytes : at;
    pattern = transfer_below(scene, 4) == 0 ? (uint32_t)pattern * UINT64_C(0x100000001) : pattern;
    int wanted = (piece->addr + at) % bytes != 0 || at + count * bytes > piece->bytes ? VARVE_ERROR_INVALID : 0;
    int error = device->ops->fill(device, piece->addr + at, pattern, bytes, count, stream);
    assert_int_equal(error, wanted);
    assert_int_equal(device->ops->stream_synchronize(device, stream), 0);
    for (uint64_t i = 0; error == 0 && i < count * bytes; i++) {
        piece->expected[at + i] = (unsigned char)(pattern >> (i % bytes * 8));
    }
}

/* The program writes as well, while nothing is under way. */
static inline void transfer_write(struct transfer_scene *scene)
{
    struct transfer_piece *piece = &scene->pieces[3 + transfer_below(scene, 3)];
    unsigned char *memory = (unsigned char *)(uintptr_t)piece->addr;
    for (uint64_t i = 0; i < 400; i++) {
        uint64_t at = transfer_below(scene, piece->bytes);
        memory[at] = piece->expected[at] = (unsigned char)random_next(&scene->random);
    }
}

static inline void transfer_compare(struct transfer_scene *scene, size_t step)
{
    struct varve_device *device = scene->fixture->device;
    unsigned char *seen = scene->seen;
    for (size_t i = 0; i < TRANSFER_PIECES && scene->fixture->kind->has_bytes; i++) {
        struct transfer_piece *piece = &scene->pieces[i];
        if (piece->is_host) {
            memcpy(seen, (void *)(uintptr_t)piece->addr, piece->bytes);
        } else {
            assert_int_equal(device->ops->copy(device, (uint64_t)(uintptr_t)seen, piece->addr, piece->bytes,
                                               VARVE_COPY_DEVICE_TO_HOST, scene->streams[0]),
                             0);
            assert_int_equal(device->ops->stream_synchronize(device, scene->streams[0]), 0);
        }
        for (uint64_t at = 0; at < piece->bytes; at++) {
            if (seen[at] != piece->expected[at]) {
                fail_msg("%s: step %zu: piece %zu has %#x at %llu, not %#x", scene->fixture->kind->name, step, i,
                         seen[at], (unsigned long long)at, piece->expected[at]);
            }
        }
    }
}

static inline void rules_test_transfers(void **state)
{
    struct transfer_scene scene;
    size_t steps = 4000;
    transfer_scene_open(&scene, *state);
    scene.random = test_first_seed(4711);
    for (size_t step = 0; step < steps; step++) {
        uint64_t choice = transfer_below(&scene, 10);
        if (choice == 0) {
            transfer_write(&scene);
        } else if (choice < 7) {
            transfer_copy(&scene);
        } else {
            transfer_fill(&scene);
        }
        if (step % 200 == 199) {
            transfer_compare(&scene, step);
            rules_check(scene.fixture);
        }
    }
    transfer_scene_close(&scene);
}

#endif
