/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * `varve import` of a small CTF trace made by hand: two streams, one with the records of each of two rings;
 * and questions to the database that comes of it, o.db, beside which nothing may be left.
 */
#ifndef VARVE_TESTS_SUPPORT_LTTNG_CTF_IMPORTING_H
#define VARVE_TESTS_SUPPORT_LTTNG_CTF_IMPORTING_H

#include <cmocka.h>

#include "analysis/import/ctf.h"
#include "support/lttng/ctf_writing.h"
#include "support/query.h"
#include "base/error.h"
#include "trace/sink.h"

#include <glob.h>
#include <sqlite3.h>
#include <unistd.h>

#define PACKETS 10U
#define PACKET_EVENTS 20U
#define RECORD_BYTES 101U                /* with the event's head */
#define EVENTS (PACKETS * PACKET_EVENTS) /* of one stream */

enum class_number {
    CLASS_ALLOC,
    CLASS_FREE,
    CLASS_THREAD_END,
    CLASS_OTHER,
    CLASS_PROCESS,
    CLASS_PROCESS_END,
    CLASS_CLOCK,
    CLASSES,
};

static const struct ctf_writing_class classes[] = {
    {"varve:heap_alloc", CTF_RECORD_FIELDS},
    {"varve:heap_free", CTF_RECORD_FIELDS},
    {"varve:meta_thread_end",
     {"u32 process", "u32 ring", "s32 pid", "s32 tid", "u64 emitted", "u64 lost", "u64 lost_bytes"}},
    {"other:event", {"u32 value"}},
    {"varve:meta_process",
     {"u64 trace_id", "u32 process", "u32 parent", "s32 pid", "s32 parent_pid", "s32 rank", "u32 clock_kind",
      "u64 start_ticks", "u64 start_ticks_proc", "text executable", "text command_line"}},
    {"varve:meta_process_end", {"u32 process", "s32 pid", "enum32 end", "text exec_path"}},
    {"varve:meta_clock", {"u64 trace_id", "u64 ticks", "s64 mono_ns", "s64 real_ns"}},
};

static inline int enter(void **state)
{
    setenv("VARVE_BABELTRACE_PLUGIN", VARVE_BUILD_DIR "/babeltrace-plugin-varve.so", 1);
    *state = test_folder_enter();
    return 0;
}

static inline int leave(void **state)
{
    test_folder_leave(*state);
    return 0;
}

/* ---- traces ---- */

static inline void put_records(struct ctf_writing *out, uint32_t ring, uint64_t first, unsigned count)
{
    for (uint64_t seq = first; seq < first + count; seq++) {
        uint64_t addr = UINT64_C(0x10000) * ring + (seq + 1) / 2 * 64;
        ctf_writing_record(out, seq % 2 == 1 ? CLASS_ALLOC : CLASS_FREE, ring, seq, addr, seq % 2 == 1 ? 48 : 0);
    }
}

static inline void put_thread_end(struct ctf_writing *out, uint32_t ring, uint64_t emitted)
{
    ctf_writing_event(out, CLASS_THREAD_END);
    ctf_writing_values(out, (const unsigned[]){4, 4, 4, 4, 8, 8, 8, 0},
                       (const uint64_t[]){1, ring, 4000, 4000 + ring, emitted, 0, 0});
}

/* Who the records are of, at the end: streams are not in one order anyway. */
static inline void put_process(struct ctf_writing *out)
{
    ctf_writing_event(out, CLASS_PROCESS);
    /* trace_id, process, parent; pid, its parent */
    ctf_writing_values(out, (const unsigned[]){8, 4, 4, 4, 4, 0}, (const uint64_t[]){1, 1, 0, 4000, 4001});
    ctf_writing_numbers(out, (const unsigned[]){4, 4, 8, 8, 0}, 0);
    ctf_writing_text(out, "/bin/program");
    ctf_writing_text(out, "program --all");
    for (unsigned i = 0; i < 2; i++) {
        ctf_writing_event(out, CLASS_CLOCK);
        const uint64_t ticks = out->ticks * i;
        ctf_writing_values(out, (const unsigned[]){8, 8, 8, 8, 0},
                           (const uint64_t[]){1, ticks, ticks, ticks + 1000000});
    }
    ctf_writing_event(out, CLASS_PROCESS_END);
    ctf_writing_values(out, (const unsigned[]){4, 4, 4, 0}, (const uint64_t[]){1, 4000, VARVE_SINK_END_EXITED});
    ctf_writing_text(out, "");
}

/* A stream with the records of one ring; all packets but the last one take the same bytes, which it returns.
 */
static inline size_t make_stream(const char *folder, uint32_t ring)
{
    struct ctf_writing out = {0};
    size_t bytes = 0;
    for (unsigned i = 0; i < PACKETS; i++) {
        ctf_writing_packet(&out, ring, 0);
        put_records(&out, ring, i * PACKET_EVENTS + 1, PACKET_EVENTS);
        if (i == PACKETS - 1) {
            put_thread_end(&out, ring, EVENTS);
            put_process(&out);
        }
        ctf_writing_packet_end(&out);
        bytes = bytes == 0 ? out.count : bytes;
    }
    char name[16];
    snprintf(name, sizeof(name), "c_%u", ring);
    ctf_writing_save(&out, folder, name);
    return bytes;
}

/* Two rings, two streams. Returns the bytes of a packet. */
static inline size_t make_trace(const char *folder)
{
    ctf_writing_metadata(folder, classes, CLASSES);
    (void)make_stream(folder, 1);
    return make_stream(folder, 2);
}

static inline void damage_bytes(const char *path, size_t offset, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "r+e");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

/* ---- asking ---- */

static inline int64_t number(const char *path, const char *sql)
{
    sqlite3 *database;
    assert_int_equal(sqlite3_open_v2(path, &database, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    int64_t result = query_integer(database, sql);
    sqlite3_close(database);
    return result;
}

static inline int64_t loss(const char *name)
{
    char sql[200];
    snprintf(sql, sizeof(sql), "SELECT coalesce(sum(value), 0) FROM data_loss WHERE name = '%s'", name);
    return number("o.db", sql);
}

/* Records that were emitted: LOST events stand for those that are missing. */
static inline int64_t records(void)
{
    return number("o.db", "SELECT count(*) FROM events WHERE kind IN ('heap_alloc', 'heap_free')");
}

/* The database is the only thing here that begins with its name. */
static inline void assert_alone(bool is_there)
{
    glob_t found;
    if (glob("o.db*", 0, NULL, &found) == 0) {
        assert_int_equal(found.gl_pathc, is_there);
        assert_string_equal(found.gl_pathv[0], "o.db");
        globfree(&found);
    } else {
        assert_false(is_there);
    }
}

static inline void import(const char *folder, const char *on_stderr)
{
    struct command_outcome outcome = command_run("import", "-f", folder, "-o", "o.db", NULL);
    if (outcome.status != 0 || (on_stderr == NULL ? outcome.err[0] != '\0' : strstr(outcome.err, on_stderr) == NULL)) {
        fail_msg("%s: status %d, '%s'", folder, outcome.status, outcome.err);
    }
    command_outcome_free(&outcome);
    assert_alone(true);
}

static inline void refuse(const char *folder, const char *word)
{
    struct command_outcome outcome = command_run("import", folder, "-o", "o.db", NULL);
    if (outcome.status != 2 || outcome.out[0] != '\0' || strstr(outcome.err, word) == NULL ||
        strchr(outcome.err, '\n') != outcome.err + strlen(outcome.err) - 1) {
        fail_msg("%s: status %d, out '%s', err '%s', wanted '%s'", folder, outcome.status, outcome.out, outcome.err,
                 word);
    }
    command_outcome_free(&outcome);
    assert_alone(false);
}

/* Before the first case of a file: skips it unless babeltrace2 and the plug-in are there. */
static inline int can_import(void **state)
{
    struct varve_message message = {""};
    (void)state;
    setenv("VARVE_BABELTRACE_PLUGIN", VARVE_BUILD_DIR "/babeltrace-plugin-varve.so", 1);
    if (!ctf_is_possible(&message)) {
        skip_file("%s", message.text);
    }
    return 0;
}

#endif
