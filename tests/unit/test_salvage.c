/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of records: what is kept comes out again, ring by ring and in order, unless it was marked; against a
 * naive model with random rings, jumps and marks, with more rings than buffers, on a full disk, and from a
 * file that was damaged. A record follows from its ring and number, so the model holds numbers alone.
 */
#include "trace/salvage_parts_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define RINGS_PER_PROCESS 7U
#define FAR (UINT64_C(1) << 40)

static uint64_t random_state;

static uint64_t random_word(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state * UINT64_C(0x2545f4914f6cdd1d);
}

/* ---- the model ---- */

struct model_ring {
    uint64_t *numbers; /* kept */
    bool *is_marked;
    size_t count, room;
    bool is_done;  /* the current reading has left it */
    size_t handed; /* by the current reading: the model's records before this index are dealt with */
};

struct model {
    struct salvage *salvage;
    struct model_ring *rings;
    uint32_t ring_count;
    uint32_t current; /* ring of the current reading; ring_count: none yet */
    char problem[256];
    char folder[32];
};

/* Ring 0 of a process is shared: its thread changes now and then. */
static struct varve_mirror_origin origin_of(uint32_t ring, uint64_t number)
{
    uint32_t index = ring % RINGS_PER_PROCESS;
    return (struct varve_mirror_origin){.process = 1 + ring / RINGS_PER_PROCESS,
                                        .ring = index,
                                        .pid = (int32_t)(70000 - ring / RINGS_PER_PROCESS),
                                        .tid = (int32_t)(index != 0 ? ring : 5 + number / 100 % 3)};
}

static struct varve_record record_of(uint32_t ring, uint64_t number)
{
    uint64_t noise = (number + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ ring * UINT64_C(0xd6e8feb86659fd93);
    bool is_rich = noise % 5 == 0;
    return (struct varve_record){
        .ticks = UINT64_C(0x0003a1b2c3d4e5f6) + number * 300 + noise % 256,
        .addr = UINT64_C(0x55d0c0a00000) + (noise >> 40) * 16,
        .size = (noise >> 8) % 5000,
        .requested = is_rich ? noise : 0,
        .arg = is_rich ? ~noise : 0,
        .id_stream = is_rich ? noise << 7 : 0,
        .dev_seq_kind_flags = varve_record_tag(number % 3, VARVE_KIND_HEAP_ALLOC, ring % 2),
        .callsite = (uint32_t)(noise % 300),
        .pool = (uint16_t)(ring % 3),
        .cause = VARVE_CAUSE_MALLOC,
    };
}

static void model_open(struct model *model, uint32_t ring_count)
{
    char path[sizeof(model->folder) + 16];
    struct varve_message message = {""};

    *model = (struct model){.ring_count = ring_count, .folder = "/tmp/varve-salvage-XXXXXX"};
    model->rings = calloc(ring_count, sizeof(*model->rings));
    assert_non_null(model->rings);
    assert_non_null(mkdtemp(model->folder));
    snprintf(path, sizeof(path), "%s/copies", model->folder);
    if (salvage_open(path, &model->salvage, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    assert_int_equal(access(path, F_OK), -1); /* nothing is left behind, whoever is killed */
}

static void model_close(struct model *model)
{
    salvage_close(model->salvage);
    for (uint32_t i = 0; i < model->ring_count; i++) {
        free(model->rings[i].numbers);
        free(model->rings[i].is_marked);
    }
    free(model->rings);
    assert_int_equal(rmdir(model->folder), 0);
}

static void model_note(struct model *model, uint32_t index, uint64_t number)
{
    struct model_ring *ring = &model->rings[index];

    if (ring->count == ring->room) {
        ring->room = ring->room * 2 + 16;
        ring->numbers = realloc(ring->numbers, ring->room * sizeof(*ring->numbers));
        ring->is_marked = realloc(ring->is_marked, ring->room * sizeof(*ring->is_marked));
        assert_non_null(ring->numbers);
        assert_non_null(ring->is_marked);
    }
    ring->numbers[ring->count] = number;
    ring->is_marked[ring->count++] = false;
}

static int keep_only(struct model *model, uint32_t ring, uint64_t number)
{
    const struct varve_mirror_origin origin = origin_of(ring, number);
    const struct varve_record record = record_of(ring, number);

    return salvage_keep(model->salvage, &origin, number, &record);
}

static void keep(struct model *model, uint32_t ring, uint64_t number)
{
    int error = keep_only(model, ring, number);

    if (error != VARVE_OK) {
        fail_msg("number %llu of ring %u: %s", (unsigned long long)number, ring, varve_strerror(error));
    }
    model_note(model, ring, number);
}

static void mark_only(struct model *model, uint32_t ring, uint64_t number)
{
    const struct varve_mirror_origin origin = origin_of(ring, number);

    assert_int_equal(salvage_mark(model->salvage, origin.process, origin.pid, origin.ring, number), VARVE_OK);
}

static void mark(struct model *model, uint32_t ring, size_t index)
{
    mark_only(model, ring, model->rings[ring].numbers[index]);
    model->rings[ring].is_marked[index] = true;
}

/* The first of a ring's records, from `from` on, that is not marked; `count` of them if there is none. */
static size_t model_next(const struct model_ring *ring, size_t from)
{
    while (from < ring->count && ring->is_marked[from]) {
        from++;
    }
    return from;
}

/* A callback that asserts would leave salvage_each by longjmp: problems are told afterwards. */
static int problem(struct model *model, const char *what, uint32_t ring, uint64_t number)
{
    snprintf(model->problem, sizeof(model->problem), "number %llu of ring %u: %s", (unsigned long long)number,
             ring, what);
    return VARVE_ERROR_CORRUPT;
}

static int check_taken(void *context, const struct varve_mirror_origin *origin, uint64_t number,
                       const struct varve_record *record)
{
    struct model *model = context;
    uint32_t index = (origin->process - 1) * RINGS_PER_PROCESS + origin->ring;
    struct model_ring *ring = &model->rings[index];
    struct varve_mirror_origin expected_origin;
    struct varve_record expected;
    size_t next;

    if (index >= model->ring_count) {
        return problem(model, "there is no such ring", index, number);
    }
    if (index != model->current) {
        if (ring->is_done) {
            return problem(model, "another ring came in between", index, number);
        }
        if (model->current < model->ring_count) {
            model->rings[model->current].is_done = true;
        }
        model->current = index;
    }
    next = model_next(ring, ring->handed);
    if (next == ring->count || ring->numbers[next] != number) {
        return problem(model, "was not the next one", index, number);
    }
    ring->handed = next + 1;
    expected = record_of(index, number);
    expected_origin = origin_of(index, number);
    if (memcmp(&expected, record, sizeof(expected)) != 0) {
        return problem(model, "the record is another one", index, number);
    }
    if (memcmp(&expected_origin, origin, sizeof(expected_origin)) != 0) {
        return problem(model, "the origin is another one", index, number);
    }
    return VARVE_OK;
}

/* Read everything; salvage_each must return `expected`, the records must be the model's. */
static void compare(struct model *model, int expected, struct varve_message *message)
{
    uint64_t missing = 0;
    uint64_t count = 0;
    int error;

    model->current = model->ring_count;
    for (uint32_t i = 0; i < model->ring_count; i++) {
        struct model_ring *ring = &model->rings[i];
        ring->handed = 0;
        ring->is_done = false;
        for (size_t k = 0; k < ring->count; k++) {
            missing += !ring->is_marked[k];
        }
    }
    error = salvage_each(model->salvage, check_taken, model, &count, message);
    if (model->problem[0] != '\0') {
        fail_msg("%s", model->problem);
    }
    if (error != expected) {
        fail_msg("%s: %s", varve_strerror(error), message->text);
    }
    assert_int_equal(count, missing);
}

static void compare_all(struct model *model)
{
    struct varve_message message = {""};

    compare(model, VARVE_OK, &message);
}

/* ---- tests ---- */

static uint64_t next_number(const struct model_ring *ring)
{
    uint64_t number = ring->count > 0 ? ring->numbers[ring->count - 1] + 1 : 1;

    switch (random_word() % 200) {
    case 0:
        return number + random_word() % 10;
    case 1:
        return number + random_word() % 10000;
    case 2:
        return number + (random_word() % 8 == 0 ? random_word() % FAR : 1);
    default:
        return number;
    }
}

static void mark_some(struct model *model, unsigned one_in)
{
    for (uint32_t ring = 0; ring < model->ring_count; ring++) {
        for (size_t i = 0; i < model->rings[ring].count; i++) {
            if (random_word() % one_in == 0) {
                mark(model, ring, i);
            }
        }
    }
}

/* Everything in turns: bursts of a few rings, marks of what is there already, readings. */
static void test_random_rings(void **state)
{
    (void)state;
    random_state = 3;
    for (unsigned round = 0; round < 12; round++) {
        uint32_t rings = 1 + (uint32_t)(random_word() % 40);
        struct model model;

        model_open(&model, rings);
        compare_all(&model);
        for (unsigned step = 0; step < 200; step++) {
            uint32_t ring = (uint32_t)(random_word() % rings);
            for (uint64_t left = random_word() % 600; left > 0; left--) {
                keep(&model, ring, next_number(&model.rings[ring]));
                ring = random_word() % 4 == 0 ? (uint32_t)(random_word() % rings) : ring;
            }
            if (step % 50 == 49) {
                compare_all(&model);
                mark_some(&model, 1 + (unsigned)(random_word() % 4));
                compare_all(&model);
            }
        }
        mark_some(&model, 1);
        compare_all(&model);
        model_close(&model);
    }
}

/* A long run of one ring: the file has most of it, and blocks of every size are cut and skipped right. */
static void test_holes_at_any_place(void **state)
{
    struct model model;
    const size_t count = 40000;

    (void)state;
    random_state = 5;
    model_open(&model, 2);
    for (size_t i = 0; i < count; i++) {
        keep(&model, 1, 1 + i);
    }
    assert_true(model.salvage->written > 0);
    for (size_t from = 0; from < count;) {
        size_t marked = from + random_word() % 3000;
        for (; from < marked && from < count; from++) {
            mark(&model, 1, from);
        }
        from += 1 + random_word() % 3 * (random_word() % 200);
    }
    compare_all(&model);
    mark_some(&model, 1);
    compare_all(&model);
    model_close(&model);
}

/* Records of more rings than there are buffers: memory stays bounded, nothing is mixed up. */
static void test_many_rings(void **state)
{
    const uint32_t rings = 10000;
    struct model model;
    uint64_t staged = 0;

    (void)state;
    random_state = 7;
    model_open(&model, rings);
    for (unsigned round = 0; round < 60; round++) {
        for (uint32_t i = 0; i < rings; i++) {
            uint32_t ring = i * 7919 % rings;
            if (ring % 10 > round % 17) {
                continue; /* some are idle for a while */
            }
            keep(&model, ring, next_number(&model.rings[ring]));
            if (ring % 1000 == 3) {
                for (unsigned more = 0; more < 40; more++) {
                    keep(&model, ring, next_number(&model.rings[ring]));
                }
            }
            assert_true(model.salvage->staged <= SALVAGE_STAGED_MAX);
        }
    }
    for (uint32_t i = 0; i < model.salvage->ring_count; i++) {
        const struct salvage_ring *ring = &model.salvage->rings[i];
        assert_true(ring->count <= ring->capacity);
        assert_int_equal(ring->capacity == 0, ring->records == NULL);
        staged += ring->capacity;
    }
    assert_int_equal(staged, model.salvage->staged);
    compare_all(&model);
    mark_some(&model, 2);
    compare_all(&model);
    model_close(&model);
}

/* Rings that come and go, and a few that go on: buffers of those that are gone are used again. */
static void test_rings_come_and_go(void **state)
{
    const uint32_t rings = 4000;
    struct model model;
    uint32_t without = 0;

    (void)state;
    random_state = 9;
    model_open(&model, rings);
    for (uint32_t ring = 2; ring < rings; ring++) {
        for (unsigned i = 0; i < 150; i++) {
            keep(&model, ring, 1 + i);
            keep(&model, i % 2, 1 + model.rings[i % 2].count);
        }
    }
    for (uint32_t i = 0; i < model.salvage->ring_count; i++) {
        without += model.salvage->rings[i].capacity == 0;
    }
    assert_true(without > 0); /* else the rings have been too few for this test */
    assert_true(model.salvage->staged <= SALVAGE_STAGED_MAX);
    assert_int_equal(model.salvage->rings[0].capacity, SALVAGE_BLOCK_RECORDS);
    compare_all(&model);
    mark_some(&model, 3);
    compare_all(&model);
    model_close(&model);
}

static void test_numbers_jump(void **state)
{
    struct model model;

    (void)state;
    random_state = 11;
    model_open(&model, 3);
    for (unsigned i = 0; i < 5000; i++) {
        keep(&model, 1, 1 + 2 * (uint64_t)i); /* each one is a block */
    }
    keep(&model, 2, 1);
    keep(&model, 2, FAR);
    keep(&model, 2, FAR + 1);
    keep(&model, 2, FAR << 20);
    compare_all(&model);
    mark(&model, 2, 1);
    mark(&model, 2, 3);
    for (uint64_t number = 2; number < 10000; number += 2) {
        mark_only(&model, 1, number); /* those in between were lost before they could be kept */
    }
    compare_all(&model);
    mark_some(&model, 2);
    compare_all(&model);
    assert_true(model.salvage->page_count < 10);
    model_close(&model);
}

/* What a damaged trace may claim changes nothing and costs no memory. */
static void test_unknown_marks(void **state)
{
    struct model model;
    struct varve_mirror_origin origin = origin_of(1, 0);

    (void)state;
    model_open(&model, 2);
    mark_only(&model, 1, 1);
    for (uint64_t number = 1; number <= 3000; number++) {
        keep(&model, 1, number);
    }
    for (uint64_t i = 0; i < 20000; i++) {
        mark_only(&model, 1, 3001 + i * SALVAGE_PAGE_NUMBERS);
        mark_only(&model, 1, FAR + 3000 + i * SALVAGE_PAGE_NUMBERS);
        mark_only(&model, 1, UINT64_MAX - i * SALVAGE_PAGE_NUMBERS);
    }
    assert_int_equal(salvage_mark(model.salvage, origin.process + 1, origin.pid, origin.ring, 1), VARVE_OK);
    assert_int_equal(salvage_mark(model.salvage, origin.process, origin.pid + 1, origin.ring, 1), VARVE_OK);
    assert_int_equal(salvage_mark(model.salvage, origin.process, origin.pid, origin.ring + 1, 1), VARVE_OK);
    assert_int_equal(model.salvage->page_count, 0);
    compare_all(&model);
    for (unsigned i = 0; i < 3; i++) {
        mark(&model, 1, 2999); /* again and again: it is the same */
        mark(&model, 1, 0);
    }
    mark_only(&model, 1, 0);
    compare_all(&model);
    keep(&model, 1, 3001); /* marked before it was known: not remembered */
    compare_all(&model);
    model_close(&model);
}

static void test_numbers_must_grow(void **state)
{
    struct model model;

    (void)state;
    model_open(&model, 2);
    keep(&model, 1, 10);
    keep(&model, 1, 11);
    assert_int_equal(keep_only(&model, 1, 11), VARVE_ERROR_INVALID);
    assert_int_equal(keep_only(&model, 1, 0), VARVE_ERROR_INVALID);
    assert_int_equal(keep_only(&model, 1, UINT64_MAX), VARVE_ERROR_INVALID);
    keep(&model, 1, 12);
    compare_all(&model);
    model_close(&model);
}

struct stop {
    uint64_t after, taken;
};

static int stop_after(void *context, const struct varve_mirror_origin *origin, uint64_t number,
                      const struct varve_record *record)
{
    struct stop *stop = context;

    (void)origin;
    (void)number;
    (void)record;
    return stop->taken == stop->after ? VARVE_ERROR_DATABASE : (int)(stop->taken++, VARVE_OK);
}

static void test_taker_stops(void **state)
{
    const uint64_t kept = 30000;
    struct model model;

    (void)state;
    random_state = 13;
    model_open(&model, 2);
    for (uint64_t i = 0; i < kept; i++) {
        keep(&model, i % 2, 1 + i / 2);
    }
    for (uint64_t after = 0; after < kept; after = after * 3 + 1) {
        struct stop stop = {.after = after};
        uint64_t count = kept;
        assert_int_equal(salvage_each(model.salvage, stop_after, &stop, &count, NULL), VARVE_ERROR_DATABASE);
        assert_int_equal(stop.taken, after);
        assert_int_equal(count, after);
    }
    compare_all(&model);
    model_close(&model);
}

/* A limit on file sizes instead of a full disk. What was kept before stays to be had. */
static void test_full_disk(void **state)
{
    const uint64_t tried = 200000;
    struct varve_message message = {""};
    unsigned full = 0;
    unsigned wrong = 0;
    struct model model;
    struct rlimit before;

    (void)state;
    random_state = 15;
    model_open(&model, 3);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit limit = {.rlim_cur = (1 << 20) + 1234, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (uint64_t i = 0; i < tried; i++) {
        int error = keep_only(&model, i % 3, 1 + i / 3);
        if (error == VARVE_OK && full == 0) {
            model_note(&model, i % 3, 1 + i / 3);
        }
        full += error == VARVE_ERROR_FULL;
        wrong += error != VARVE_OK && error != VARVE_ERROR_FULL;
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(full, 1); /* said once: the collector goes on without copies */
    assert_int_equal(wrong, 0);
    assert_int_equal(model.salvage->written, limit.rlim_cur);
    assert_int_equal(model.salvage->refused,
                     tried - model.rings[0].count - model.rings[1].count - model.rings[2].count);
    compare(&model, VARVE_ERROR_FULL, &message);
    assert_non_null(strstr(message.text, model.folder));
    assert_non_null(strstr(message.text, "File too large"));
    mark_some(&model, 3);
    compare(&model, VARVE_ERROR_FULL, &message);
    mark_some(&model, 1);
    compare(&model, VARVE_ERROR_FULL, &message);
    model_close(&model);
}

/* The error of a taker is told rather than that of the disk. */
static void test_first_record_on_full_disk(void **state)
{
    struct varve_message message = {""};
    struct stop stop = {.after = 5};
    struct model model;
    struct rlimit before;
    uint64_t count;
    int error = VARVE_OK;

    (void)state;
    model_open(&model, 2);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit limit = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (uint64_t i = 1; i < 100000 && error == VARVE_OK; i++) {
        error = keep_only(&model, 1, i);
        if (error == VARVE_OK) {
            model_note(&model, 1, i);
        }
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(error, VARVE_ERROR_FULL);
    assert_int_equal(model.salvage->written, 0);
    assert_true(model.rings[1].count >= SALVAGE_BLOCK_RECORDS); /* memory keeps what the file cannot */
    assert_int_equal(salvage_each(model.salvage, stop_after, &stop, &count, &message), VARVE_ERROR_DATABASE);
    compare(&model, VARVE_ERROR_FULL, &message);
    model_close(&model);
}

static int take_any(void *context, const struct varve_mirror_origin *origin, uint64_t number,
                    const struct varve_record *record)
{
    (void)context;
    (void)origin;
    (void)number;
    (void)record;
    return VARVE_OK;
}

/* Whatever happened to the file: an answer, no crash; a header that cannot be right is an error. */
static void test_damaged_file(void **state)
{
    struct varve_message message = {""};
    struct salvage_block block;
    struct salvage_block damaged;
    struct model model;
    uint64_t count;

    (void)state;
    random_state = 17;
    model_open(&model, 2);
    for (uint64_t i = 0; i < 60000; i++) {
        keep(&model, 1, 1 + i);
    }
    const int fd = model.salvage->fd;
    assert_true(model.salvage->written > sizeof(block));
    assert_int_equal(pread(fd, &block, sizeof(block), 0), sizeof(block));
    for (unsigned byte = 0; byte < sizeof(block); byte++) {
        if (byte >= offsetof(struct salvage_block, previous) &&
            byte < offsetof(struct salvage_block, previous) + sizeof(block.previous)) {
            continue; /* of the first block, so nobody follows it */
        }
        if (byte >= offsetof(struct varve_mirror_origin, tid) && byte < sizeof(block.origin)) {
            continue;
        }
        damaged = block;
        ((uint8_t *)&damaged)[byte] ^= 0x81;
        assert_int_equal(pwrite(fd, &damaged, sizeof(damaged), 0), sizeof(damaged));
        int error = salvage_each(model.salvage, take_any, NULL, &count, &message);
        if (error != VARVE_ERROR_CORRUPT && byte >= sizeof(block.origin) + sizeof(block.first)) {
            fail_msg("byte %u: %s", byte, varve_strerror(error));
        }
    }
    assert_int_equal(pwrite(fd, &block, sizeof(block), 0), sizeof(block));
    compare_all(&model);
    for (unsigned round = 0; round < 300; round++) {
        uint64_t noise = random_word();
        off_t at = (off_t)(random_word() % (model.salvage->written - sizeof(noise)));
        assert_int_equal(pwrite(fd, &noise, sizeof(noise), at), sizeof(noise));
        salvage_each(model.salvage, take_any, NULL, &count, &message);
    }
    assert_int_equal(ftruncate(fd, 100), 0);
    assert_int_equal(salvage_each(model.salvage, take_any, NULL, &count, &message), VARVE_ERROR_IO);
    assert_non_null(strstr(message.text, "cut"));
    model_close(&model);
}

static void test_open(void **state)
{
    char folder[] = "/tmp/varve-salvage-XXXXXX";
    char path[sizeof(folder) + 32];
    struct varve_message message = {""};
    struct salvage *salvage = NULL;
    struct stat status;

    (void)state;
    salvage_close(NULL);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/none/copies", folder);
    assert_int_equal(salvage_open(path, &salvage, &message), VARVE_ERROR_NOT_FOUND);
    assert_null(salvage);
    assert_non_null(strstr(message.text, path));
    snprintf(path, sizeof(path), "%s/copies", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "other", 5), 5);
    close(fd);
    assert_int_not_equal(salvage_open(path, &salvage, &message), VARVE_OK); /* of somebody else */
    assert_null(salvage);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_size, 5);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(salvage_open(path, &salvage, &message), VARVE_OK);
    assert_int_equal(rmdir(folder), 0);
    salvage_close(salvage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_random_rings),
        cmocka_unit_test(test_holes_at_any_place),
        cmocka_unit_test(test_many_rings),
        cmocka_unit_test(test_rings_come_and_go),
        cmocka_unit_test(test_numbers_jump),
        cmocka_unit_test(test_unknown_marks),
        cmocka_unit_test(test_numbers_must_grow),
        cmocka_unit_test(test_taker_stops),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_first_record_on_full_disk),
        cmocka_unit_test(test_damaged_file),
    };
    return cmocka_run_group_tests_name("salvage", tests, NULL, NULL);
}
