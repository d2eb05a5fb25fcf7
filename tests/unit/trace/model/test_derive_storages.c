/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages and phases against a naive model: random streams of their events, possible and impossible ones, of three
 * processes, with blocks that come and go under them, through derive and the store. The model keeps plain lists,
 * searched from end to end. Every column of `storage` and `mark` must agree; where what is gone is forgotten, every
 * column of what is alive.
 * Costs: 2 s
 */
#include "support/derive/rows_expected.h"
#include "support/derive/rows_model.h"
#include "support/random.h"
#include "trace/error.h"
#include "trace/model/derive/derive.h"
#include "trace/model/event.h"
#include "trace/model/state.h"
#include "trace/record.h"
#include "trace/store/derived.h"
#include "trace/store/storages.h"
#include "trace/store/store.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEPS 3000
#define OWNERS 3U
#define NUMBERS 24U /* of storages in each process */
#define ADDRESSES 12U
#define BLOCK_BYTES 0x1000U
#define PHASES 3U

#define NONE SIZE_MAX

struct expected {
    struct event created;
    bool is_alive; /* in the list of its process: an impossible stream may create a number again */
    unsigned kind;
    size_t base;
    int64_t dtype, elements, device; /* INT64_MIN: NULL */
    uint64_t alloc_seq;              /* of its allocation; 0: none */
    uint64_t destroy_seq, leak_seq, leak_cause, leak_references;
    int64_t destroy_ns, last_use_ns;
    uint64_t writes, reads;
};

struct phase {
    uint64_t begin_seq, end_seq;
    uint32_t process;
    unsigned name;
    bool is_open;
};

struct block {
    bool is_used;
    uint64_t seq;
};

struct scene {
    struct expected storages[STEPS];
    struct phase phases[STEPS];
    size_t count, phase_count;
    bool is_freed[STEPS + 1]; /* by the event that allocated it */
    struct block blocks[OWNERS + 1][2][ADDRESSES];
    uint64_t dev_seq[OWNERS + 1][2];
    bool has_ended[OWNERS + 1];
    uint64_t random;
};

static const char *const phase_names[PHASES] = {"step", "a name that is too long!", ""};
static const int64_t element_bytes[] = {8, 4, 2, 2, 8, 4, 2, 1, 1, 1};

static uint64_t below(struct scene *scene, uint64_t limit)
{
    return random_below(&scene->random, limit);
}

/* ---- the model ---- */

static size_t model_find(const struct scene *scene, uint32_t process, uint64_t number)
{
    for (size_t i = 0; i < scene->count; i++) {
        const struct expected *row = &scene->storages[i];
        if (row->is_alive && row->created.process_id == process && row->created.id == number) {
            return i;
        }
    }
    return NONE;
}

static struct expected *model_open(struct scene *scene, const struct event *event, unsigned kind)
{
    struct expected *row = &scene->storages[scene->count++];
    *row = (struct expected){.created = *event,
                             .is_alive = true,
                             .kind = kind,
                             .base = NONE,
                             .dtype = INT64_MIN,
                             .elements = INT64_MIN,
                             .device = INT64_MIN,
                             .last_use_ns = INT64_MIN};
    return row;
}

static void model_create(struct scene *scene, const struct event *event)
{
    struct expected *row = model_open(scene, event, 1);
    row->dtype = (int64_t)event->arg & 255;
    row->elements = (int64_t)event->requested;
    if (event->arg >> 8 != 0) {
        uint64_t at = event->addr / BLOCK_BYTES - 1;
        const struct block *block = at < ADDRESSES ? &scene->blocks[event->process_id][event->device][at] : NULL;
        row->device = event->device;
        row->alloc_seq = block != NULL && block->is_used ? block->seq : 0;
    }
}

static void model_view(struct scene *scene, const struct event *event)
{
    size_t base = model_find(scene, event->process_id, event->arg);
    struct expected *row = model_open(scene, event, 2);
    if (base == NONE) {
        return;
    }
    base = scene->storages[base].kind == 2 ? scene->storages[base].base : base;
    if (base == NONE) {
        return;
    }
    row->base = base;
    row->dtype = scene->storages[base].dtype;
    row->device = scene->storages[base].device;
    row->alloc_seq = scene->storages[base].alloc_seq;
    row->elements = row->dtype >= 0 && row->dtype < 10 ? (int64_t)event->size / element_bytes[row->dtype] : 0;
}

static void model_use(struct scene *scene, const struct event *event, uint64_t number, bool is_write)
{
    size_t at = model_find(scene, event->process_id, number);
    while (at != NONE) {
        struct expected *row = &scene->storages[at];
        *(is_write ? &row->writes : &row->reads) += 1;
        row->last_use_ns = event->ts_ns;
        row->leak_seq = 0;
        at = row->base != NONE && scene->storages[row->base].destroy_seq == 0 ? row->base : NONE;
    }
}

static void model_mark(struct scene *scene, const struct event *event, unsigned name)
{
    if (event->kind == VARVE_KIND_MARK_BEGIN) {
        scene->phases[scene->phase_count++] =
            (struct phase){.begin_seq = event->seq, .process = event->process_id, .name = name, .is_open = true};
        return;
    }
    for (size_t i = scene->phase_count; i-- > 0;) {
        struct phase *phase = &scene->phases[i];
        if (phase->is_open && phase->process == event->process_id && phase->name == name) {
            phase->is_open = false;
            phase->end_seq = event->seq;
            return;
        }
    }
}

static void model_storage(struct scene *scene, const struct event *event)
{
    size_t at = model_find(scene, event->process_id, event->id);
    struct expected *row = at != NONE ? &scene->storages[at] : NULL;
    if (event->kind == VARVE_KIND_STORAGE_CREATE && row == NULL && event->id != 0) {
        model_create(scene, event);
    } else if (event->kind == VARVE_KIND_VIEW && row == NULL && event->id != 0) {
        model_view(scene, event);
    } else if (event->kind >= VARVE_KIND_COPY && event->kind <= VARVE_KIND_TRANSFER) {
        model_use(scene, event, event->id, true);
        model_use(scene, event, event->requested, false);
    } else if (row != NULL && event->kind == VARVE_KIND_STORAGE_DESTROY) {
        row->is_alive = false;
        row->destroy_seq = event->seq;
        row->destroy_ns = event->ts_ns;
    } else if (row != NULL && row->kind != 2 && (event->kind == VARVE_KIND_SHARE || event->kind == VARVE_KIND_MAP)) {
        row->kind = event->kind == VARVE_KIND_SHARE ? 3 : 4;
    } else if (row != NULL && event->kind == VARVE_KIND_LEAK) {
        row->leak_seq = event->seq;
        row->leak_cause = event->cause;
        row->leak_references = event->requested;
    }
}

/* ---- random events ---- */

static struct event random_block(struct scene *scene, struct event event)
{
    size_t at = (size_t)below(scene, ADDRESSES);
    struct block *block;
    event.device = (uint8_t)below(scene, 2);
    block = &scene->blocks[event.process_id][event.device][at];
    event.kind = block->is_used ? VARVE_KIND_FREE_COMPLETED : VARVE_KIND_ALLOC;
    event.addr = BLOCK_BYTES * (at + 1);
    event.size = event.requested = BLOCK_BYTES;
    event.dev_seq = ++scene->dev_seq[event.process_id][event.device];
    scene->is_freed[block->seq] = block->is_used;
    *block = (struct block){.is_used = !block->is_used, .seq = event.seq};
    return event;
}

static struct event random_mark(struct scene *scene, struct event event)
{
    unsigned name = (unsigned)below(scene, PHASES);
    uint64_t words[3] = {0};
    memcpy(words, phase_names[name], strlen(phase_names[name]));
    event.kind = below(scene, 2) ? VARVE_KIND_MARK_BEGIN : VARVE_KIND_MARK_END;
    event.addr = words[0];
    event.size = words[1];
    event.requested = words[2];
    model_mark(scene, &event, name);
    return event;
}

static struct event random_storage(struct scene *scene, struct event event)
{
    static const uint8_t kinds[] = {VARVE_KIND_STORAGE_CREATE,
                                    VARVE_KIND_STORAGE_CREATE,
                                    VARVE_KIND_STORAGE_CREATE,
                                    VARVE_KIND_VIEW,
                                    VARVE_KIND_VIEW,
                                    VARVE_KIND_STORAGE_DESTROY,
                                    VARVE_KIND_STORAGE_DESTROY,
                                    VARVE_KIND_STORAGE_DESTROY,
                                    VARVE_KIND_COPY,
                                    VARVE_KIND_CAST,
                                    VARVE_KIND_TRANSFER,
                                    VARVE_KIND_SHARE,
                                    VARVE_KIND_MAP,
                                    VARVE_KIND_LEAK};
    event.kind = kinds[below(scene, sizeof(kinds))];
    event.device = (uint8_t)below(scene, 2);
    event.id = below(scene, NUMBERS);
    event.addr = BLOCK_BYTES + below(scene, (uint64_t)BLOCK_BYTES * (ADDRESSES + 1));
    event.size = below(scene, 5000);
    event.requested = below(scene, NUMBERS);
    event.arg =
        event.kind == VARVE_KIND_STORAGE_CREATE ? below(scene, 12) | below(scene, 3) << 8 : below(scene, NUMBERS);
    event.cause = event.kind == VARVE_KIND_LEAK ? (uint8_t)(VARVE_CAUSE_LEAK_CYCLE + below(scene, 3)) : 0;
    model_storage(scene, &event);
    return event;
}

static struct event random_event(struct scene *scene, uint64_t seq)
{
    uint64_t choice = below(scene, 10);
    struct event event = {.seq = seq, .ts_ns = (int64_t)seq * 31};
    do {
        event.process_id = 1 + (uint32_t)below(scene, OWNERS);
    } while (scene->has_ended[event.process_id]);
    event.thread_id = 10 * event.process_id + (uint32_t)below(scene, 2);
    event.pid = 1000 + (int32_t)event.process_id;
    event.tid = 2000 + (int32_t)event.thread_id;
    event.callsite = (uint32_t)below(scene, 7);
    return choice == 0   ? random_mark(scene, event)
           : choice <= 2 ? random_block(scene, event)
                         : random_storage(scene, event);
}

static void process_end(struct scene *scene, struct derive *derive, uint32_t process)
{
    derive_process_end(derive, process);
    scene->has_ended[process] = true;
    for (size_t i = 0; i < scene->count; i++) {
        scene->storages[i].is_alive &= scene->storages[i].created.process_id != process;
    }
    for (size_t i = 0; i < scene->phase_count; i++) {
        scene->phases[i].is_open &= scene->phases[i].process != process;
    }
}

/* ---- what the database must have ---- */

static int64_t or_null(uint64_t value)
{
    return value != 0 ? (int64_t)value : INT64_MIN;
}

static void compare_storages(sqlite3 *db, const struct scene *scene, bool is_alive_only)
{
    sqlite3_stmt *query = query_begin(
        db,
        "SELECT s.create_seq, s.number, s.kind, s.dtype, s.addr, s.size, s.elements, s.callsite_id, s.thread_id, "
        "s.process_id, s.pid, s.tid, s.create_ns, s.destroy_seq, s.destroy_ns, s.device, a.alloc_seq, b.create_seq, "
        "s.last_use_ns, s.writes, s.reads, s.leak_seq, s.leak_cause, s.leak_references FROM storage s LEFT JOIN "
        "storage b ON b.id = s.base_id LEFT JOIN allocation a ON a.id = s.allocation_id ORDER BY s.create_seq");
    for (size_t i = 0; i < scene->count; i++) {
        const struct expected *row = &scene->storages[i];
        const struct event *event = &row->created;
        const bool is_told = row->leak_seq != 0;
        /* A base that went before its view, and a block that did, are not there any more. */
        bool has_base = row->base != NONE && (!is_alive_only || scene->storages[row->base].destroy_seq == 0);
        bool has_allocation = row->alloc_seq != 0 && (!is_alive_only || !scene->is_freed[row->alloc_seq]);
        const int64_t values[] = {(int64_t)event->seq,
                                  (int64_t)event->id,
                                  row->kind,
                                  row->dtype,
                                  (int64_t)event->addr,
                                  (int64_t)event->size,
                                  row->elements,
                                  event->callsite,
                                  event->thread_id,
                                  event->process_id,
                                  event->pid,
                                  event->tid,
                                  event->ts_ns,
                                  or_null(row->destroy_seq),
                                  row->destroy_seq != 0 ? row->destroy_ns : INT64_MIN,
                                  row->device,
                                  has_allocation ? (int64_t)row->alloc_seq : INT64_MIN,
                                  has_base ? (int64_t)scene->storages[row->base].created.seq : INT64_MIN,
                                  row->last_use_ns,
                                  (int64_t)row->writes,
                                  (int64_t)row->reads,
                                  or_null(row->leak_seq),
                                  is_told ? (int64_t)row->leak_cause : INT64_MIN,
                                  is_told ? (int64_t)row->leak_references : INT64_MIN};
        if (!is_alive_only || row->destroy_seq == 0) {
            EXPECT_ROW(query, values);
        }
    }
    expect_end(query);
}

static void compare_marks(sqlite3 *db, const struct scene *scene)
{
    sqlite3_stmt *query =
        query_begin(db, "SELECT id, process_id, begin_seq, begin_ns, end_seq, end_ns, name FROM mark ORDER BY id");
    for (size_t i = 0; i < scene->phase_count; i++) {
        const struct phase *phase = &scene->phases[i];
        const int64_t values[] = {(int64_t)i + 1,
                                  phase->process,
                                  (int64_t)phase->begin_seq,
                                  (int64_t)phase->begin_seq * 31,
                                  or_null(phase->end_seq),
                                  phase->end_seq != 0 ? (int64_t)phase->end_seq * 31 : INT64_MIN};
        assert_int_equal(sqlite3_step(query), SQLITE_ROW);
        for (int column = 0; column < 6; column++) {
            assert_int_equal(sqlite3_column_type(query, column) == SQLITE_NULL, values[column] == INT64_MIN);
            assert_true(values[column] == INT64_MIN || sqlite3_column_int64(query, column) == values[column]);
        }
        assert_string_equal((const char *)sqlite3_column_text(query, 6), phase_names[phase->name]);
    }
    expect_end(query);
}

/* ---- the tests ---- */

static void run_steps(struct run *run, struct scene *scene)
{
    struct varve_message message;
    for (uint64_t seq = 1; seq <= STEPS; seq++) {
        struct event event = random_event(scene, seq);
        assert_int_equal(derive_event(run->derive, &event, &message), VARVE_OK);
        assert_int_equal(store_append(run->store, &event, &message), VARVE_OK);
        if (derive_check(run->derive, &message) != VARVE_OK) {
            fail_msg("event %llu, kind %u: %s", (unsigned long long)seq, event.kind, message.text);
        }
        if (below(scene, 60) == 0) {
            storages_gather(run->store, run->derive, below(scene, 9));
        }
        if (below(scene, 200) == 0) {
            assert_int_equal(store_commit(run->store, NULL, 0, &message), VARVE_OK);
        }
        if (seq == STEPS / 2 && below(scene, 2)) {
            process_end(scene, run->derive, 2);
        }
    }
}

enum way { WAY_USUAL, WAY_ALIVE_ONLY, WAY_PRIVATE };

static void run_scene(uint64_t seed, enum way way)
{
    bool is_alive_only = way == WAY_ALIVE_ONLY;
    struct run run = {0};
    struct scene *scene = calloc(1, sizeof(*scene));
    struct varve_message message;
    sqlite3 *db;
    assert_non_null(scene);
    scene->random = seed;
    run_begin(&run, 1);
    if (is_alive_only) {
        store_keep(run.store, false, false);
        derive_forget(run.derive);
    } else if (way == WAY_PRIVATE) {
        store_close(run.store);
        assert_int_equal(unlink(run.path), 0);
        assert_int_equal(store_open(run.path, STORE_CREATE_PRIVATE, &run.store, &message), VARVE_OK);
    }
    run_steps(&run, scene);
    for (int i = 0; i < 2; i++) { /* the second time as after a full disk */
        assert_int_equal(derive_finish(run.derive, run.store, NULL, NULL, &message), VARVE_OK);
    }
    if (is_alive_only) { /* as many as can be alive at a time, and as many bases that went before a view */
        assert_true(scene->count > 2 * OWNERS * NUMBERS);
        assert_true(run.derive->storages.count <= 2 * OWNERS * NUMBERS);
    }
    assert_int_equal(store_finish(run.store, NULL, NULL, &message), VARVE_OK);
    derive_close(run.derive);
    store_close(run.store);
    assert_int_equal(sqlite3_open_v2(run.path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    compare_storages(db, scene, is_alive_only);
    compare_marks(db, scene);
    run_end(&run, db);
    free(scene);
}

TEST(test_random_streams)
{
    for (uint64_t first = test_first_seed(1), seed = first; seed < first + (uint64_t)test_rounds(4, 16); seed++) {
        run_scene(seed * 7919, WAY_USUAL);
    }
}

TEST(test_forgetting)
{
    for (uint64_t first = test_first_seed(1), seed = first; seed < first + (uint64_t)test_rounds(2, 8); seed++) {
        run_scene(seed * 104729, WAY_ALIVE_ONLY);
    }
}

/* As importers write it: events and allocations past SQLite. */
TEST(test_private)
{
    for (uint64_t first = test_first_seed(1), seed = first; seed < first + 4; seed++) {
        run_scene(seed * 1299709, WAY_PRIVATE);
    }
}
