/* SPDX-License-Identifier: Apache-2.0 */
/* C only: helpers of cmocka programs */
/*
 * A recording made by hand whose collector emits everything to a tape (rebuild.h): two processes with
 * threads that free each other's blocks at nearly the same time, call sites, losses, a caching allocator.
 */
#ifndef VARVE_TESTS_SUPPORT_REBUILD_SCENE_H
#define VARVE_TESTS_SUPPORT_REBUILD_SCENE_H

#include "support/rebuild.h"
#include "trace/collector/clock.h"
#include "trace/format/callsite_file.h"
#include "trace/record.h"

#define RING_RECORDS 8192U
#define BLOCKS 64U

/* ---- a recording ---- */

struct scene {
    struct lab *lab;
    struct tape tape;
    uint64_t seed;
    uint64_t now; /* ticks */
    bool is_live[2][BLOCKS];
    uint64_t dev_seq;
};

static inline void scene_begin(struct scene *scene)
{
    memset(scene, 0, sizeof(*scene));
    scene->lab = lab_begin();
    scene->seed = 0x1234567;
    tape_current = &scene->tape;
    scene->lab->collector->sink.provider = tape_provider();
    collect_sink_listen(scene->lab->collector);
    usleep(2500);
    LAB_OK(scene->lab, collect_clock_anchor(&scene->lab->collector->clock));
    scene->now = scene->lab->begin + 5000000;
    LAB_OK(scene->lab, collect_meta_text(scene->lab->collector, "command", "a command"));
    LAB_OK(scene->lab, collect_meta_integer(scene->lab->collector, "trace_id",
                                            (int64_t)scene->lab->collector->directory.control->trace_id));
}

/* All is stored and emitted. */
static inline void scene_finish(struct scene *scene)
{
    lab_drain(scene->lab);
    collect_sink_round(scene->lab->collector);
    LAB_OK(scene->lab, collector_finish(scene->lab->collector, NULL, NULL, &scene->lab->message));
    lab_expect(scene->lab, STUDIO_CONSERVED, 0);
}

static inline void scene_end(struct scene *scene)
{
    lab_end(scene->lab);
    tape_free(&scene->tape);
}

static inline uint64_t chance(struct scene *scene, uint64_t below)
{
    return random_next(&scene->seed) % below;
}

static inline void put_file(FILE *file, const void *bytes, size_t count)
{
    assert_int_equal(fwrite(bytes, 1, count, file), count);
}

/* A module that comes and goes, a code object, and call sites 1 to 8. */
static inline void scene_callsites(struct scene *scene, uint32_t process)
{
    static const char path[16] = "/lib/libnone.so";  /* 15 bytes and padding */
    static const char names[16] = "functionfile.py"; /* 8 and 7 */
    const struct callsite_file_module module = {.base = 0x10000, .end = 0x20000, .bias = 0x10000, .path_bytes = 15};
    const struct callsite_file_code code = {.code = 1, .first_line = 1, .name_bytes = 8, .file_bytes = 7};
    char file_path[DIRECTORY_PATH_BYTES + 32];
    snprintf(file_path, sizeof(file_path), "%s/p%u.sites", scene->lab->collector->directory.path, process);
    FILE *file = fopen(file_path, "w");
    assert_non_null(file);
    put_file(file, &(struct callsite_file_entry){CALLSITE_FILE_TAG_MODULE, sizeof(module) + 16},
             sizeof(struct callsite_file_entry));
    put_file(file, &module, sizeof(module));
    put_file(file, path, 16);
    put_file(file, &(struct callsite_file_entry){CALLSITE_FILE_TAG_CODE, sizeof(code) + 16},
             sizeof(struct callsite_file_entry));
    put_file(file, &code, sizeof(code));
    put_file(file, names, 16);
    for (uint32_t number = 1; number <= 8; number++) {
        const struct callsite_file_stack callsite = {.callsite = number, .native_count = 2, .python_count = 1};
        const uint64_t native[] = {0x10000 + process * 64 + number * 16, 0x90000 + number};
        const struct callsite_file_python python = {1, number | CALLSITE_FILE_PYTHON_ENTRY};
        const size_t bytes = sizeof(callsite) + sizeof(native) + sizeof(python);
        if (number == 5) {
            put_file(file,
                     &(struct callsite_file_entry){CALLSITE_FILE_TAG_MODULE_GONE, sizeof(struct callsite_file_gone)},
                     8);
            put_file(file, &(struct callsite_file_gone){.number = 0}, sizeof(struct callsite_file_gone));
        }
        put_file(file, &(struct callsite_file_entry){CALLSITE_FILE_TAG_STACK, (uint32_t)bytes},
                 sizeof(struct callsite_file_entry));
        put_file(file, &callsite, sizeof(callsite));
        put_file(file, native, sizeof(native));
        put_file(file, &python, sizeof(python));
    }
    assert_int_equal(fclose(file), 0);
}

static inline void emit(struct ring_header *ring, struct varve_record *record)
{
    const struct varve_record *last = &ring_records(ring)[(ring->head - 1) & (ring->capacity - 1)];
    if (ring->head > 0 && record->ticks < last->ticks) {
        record->ticks = last->ticks;
    }
    hand_begin(ring);
    hand_commit(ring, record);
}

/* Three events were dropped before this one, 16 bytes each. */
static inline void emit_lost(struct ring_header *ring, uint64_t ticks)
{
    struct varve_record record = hand_record(VARVE_KIND_LOST, ticks, 0, 3);
    record.size = 48;
    ring->lost_by_kind[VARVE_KIND_HEAP_ALLOC] += 3;
    ring->lost += 3;
    ring->lost_bytes += 48;
    ring->emitted += 3;
    emit(ring, &record);
}

/* One random event: blocks of the process go from thread to thread, and clocks of threads differ a little. */
static inline void scene_event(struct scene *scene, uint32_t process, struct ring_header *ring)
{
    unsigned block = (unsigned)chance(scene, BLOCKS);
    bool *is_live = &scene->is_live[process - 1][block];
    uint64_t ticks = scene->now - chance(scene, 3000);
    struct varve_record record =
        hand_record(*is_live ? VARVE_KIND_HEAP_FREE : VARVE_KIND_HEAP_ALLOC, ticks, 0x100000 + block * 64, 0);
    scene->now += chance(scene, 4) == 0 ? 0 : chance(scene, 2000);
    switch (chance(scene, 40)) {
    case 0:
        emit_lost(ring, scene->now);
        return;
    case 1:
        record = hand_record(VARVE_KIND_MARK_BEGIN, ticks, 0, chance(scene, 1000));
        record.dev_seq_kind_flags |= VARVE_FLAG_NESTED;
        break;
    case 2: /* of a caching allocator */
        record = hand_record(VARVE_KIND_SEGMENT_ALLOC, scene->now, 0x700000000 + (scene->dev_seq << 21), 0);
        record.size = 1 << 21;
        record.dev_seq_kind_flags = varve_record_tag(++scene->dev_seq, VARVE_KIND_SEGMENT_ALLOC, 0);
        break;
    default:
        record.callsite = *is_live ? 0 : (uint32_t)chance(scene, 9);
        *is_live = !*is_live;
        break;
    }
    emit(ring, &record);
}

/* Two processes with three rings each, a fork and a late ring among them. */
static inline void scene_play(struct scene *scene, unsigned events)
{
    struct ring_header *rings[2][4];
    struct lab *lab = scene->lab;
    for (uint32_t process = 1; process <= 2; process++) {
        struct process_control *control = hand_process(lab, lab_dead());
        control->state = process == 1 ? PROCESS_STATE_EXITED : PROCESS_STATE_RUNNING;
        control->parent_id = process - 1;
        control->rank = (int32_t)process;
        snprintf(control->exec_path, sizeof(control->exec_path), "%s", process == 1 ? "/bin/next" : "");
        scene_callsites(scene, process);
        for (uint32_t ring = 0; ring < 3; ring++) {
            rings[process - 1][ring] = hand_ring(lab, process, RING_RECORDS);
        }
        rings[process - 1][3] = hand_ring_file(lab, process, 0, RING_RECORDS);
        control->late_created = 1;
    }
    for (unsigned i = 0; i < events; i++) {
        uint32_t process = 1 + (uint32_t)chance(scene, 2);
        scene_event(scene, process, rings[process - 1][chance(scene, 40) == 0 ? 3 : chance(scene, 3)]);
    }
}

#endif
