/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a CTF trace tells, item by item: every kind of record and every definition with all its fields; fields
 * that another version of the provider has renamed, left out, reordered, or given another width or sign;
 * events that are not ours or not known; what LTTng says that it discarded.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "analysis/ctf_internal.h"
#include "unit/ctf_writing.h"

#include <unistd.h>

#define ITEMS 256U

/* The items of a trace, with copies of their parts. */
struct got {
    struct ctf_item items[ITEMS];
    char parts[ITEMS][CTF_PARTS][256];
    size_t count;
    struct ctf_reading reading;
};

static struct got got;

static int keep(void *context, const struct ctf_item *item)
{
    struct ctf_item *copy = &got.items[got.count];

    assert_null(context);
    assert_true(got.count < ITEMS);
    *copy = *item;
    for (unsigned i = 0; i < ctf_item_shape(item->kind)->parts; i++) {
        assert_true(item->parts[i].bytes <= sizeof(got.parts[0][0]));
        if (item->parts[i].bytes > 0) {
            memcpy(got.parts[got.count][i], item->parts[i].data, item->parts[i].bytes);
        }
        copy->parts[i].data = got.parts[got.count][i];
    }
    ctf_item_bind(copy);
    got.count++;
    return VARVE_OK;
}

static void read_trace(const char *folder)
{
    struct ctf_source source = {.folder = folder, .take = keep};
    struct varve_message message = {""};
    int error;

    memset(&got, 0, sizeof(got));
    error = ctf_read(&source, &got.reading, &message);
    if (error != VARVE_OK) {
        fail_msg("%s: %s", folder, message.text);
    }
    assert_string_equal(got.reading.damage.text, "");
}

static int enter(void **state)
{
    *state = test_folder_enter();
    return 0;
}

static int leave(void **state)
{
    test_folder_leave(*state);
    return 0;
}

/* ---- what the provider writes ---- */

static void put_record(struct ctf_writing *out, unsigned id)
{
    ctf_writing_event(out, id);
    ctf_writing_put(out, 4, 0x80000001 + id);
    ctf_writing_put(out, 4, 0x80000002);
    ctf_writing_put(out, 8, UINT64_C(0xfffffffffff00000) + id);
    ctf_writing_put(out, 8, UINT64_MAX - 1);
    ctf_writing_put(out, 4, (uint32_t)-7);
    ctf_writing_put(out, 4, INT32_MAX);
    ctf_writing_put(out, 1, 255);
    ctf_writing_put(out, 8, UINT64_C(0xabcdef012345));
    ctf_writing_put(out, 2, 65535);
    ctf_writing_put(out, 2, 65534);
    ctf_writing_put(out, 8, UINT64_C(0xfedcba987654));
    ctf_writing_put(out, 8, UINT64_C(0xffff800000000010));
    ctf_writing_put(out, 8, UINT64_MAX);
    ctf_writing_put(out, 8, UINT64_MAX - 3);
    ctf_writing_put(out, 8, UINT64_C(1) << 63);
    ctf_writing_put(out, 1, 200); /* no label */
    ctf_writing_put(out, 4, UINT32_MAX);
    ctf_writing_put(out, 1, 255); /* also flags that are not stored */
}

/* Every kind by its name, from the list that the provider is made of too. */
static void test_records(void **state)
{
    static const struct ctf_writing_class classes[] = {
#define CLASS(code, NAME, name, group, addr, size, requested, arg, meaning) \
    {"varve:" #name, CTF_RECORD_FIELDS},
        VARVE_EVENT_LIST(CLASS)
#undef CLASS
    };
    static const unsigned kinds[] = {
#define KIND(code, NAME, name, group, addr, size, requested, arg, meaning) VARVE_KIND_##NAME,
        VARVE_EVENT_LIST(KIND)
#undef KIND
    };
    size_t count = sizeof(kinds) / sizeof(kinds[0]);
    struct ctf_writing out = {0};

    (void)state;
    ctf_writing_metadata("t", classes, count);
    ctf_writing_packet(&out, 0, 0);
    for (unsigned i = 0; i < count; i++) {
        put_record(&out, i);
    }
    ctf_writing_packet_end(&out);
    ctf_writing_save(&out, "t", "c_0");
    read_trace("t");
    assert_int_equal(got.count, count);
    assert_int_equal(got.reading.counts.records, count);
    assert_int_equal(got.reading.counts.clipped, 0);
    for (unsigned i = 0; i < count; i++) {
        const struct ctf_item *item = &got.items[i];
        const struct varve_record *record = &item->of.record.record;

        assert_int_equal(item->kind, CTF_ITEM_RECORD);
        assert_int_equal(item->of.record.origin.process, 0x80000001 + i);
        assert_int_equal(item->of.record.origin.ring, 0x80000002);
        assert_int_equal(item->of.record.origin.pid, -7);
        assert_int_equal(item->of.record.origin.tid, INT32_MAX);
        assert_true(item->of.record.ring_seq == UINT64_C(0xfffffffffff00000) + i);
        assert_int_equal(varve_record_kind(record), kinds[i]);
        assert_int_equal(varve_record_flags(record), VARVE_FLAGS_STORED);
        assert_true(varve_record_dev_seq(record) == UINT64_C(0xabcdef012345));
        assert_true(varve_record_id(record) == UINT64_C(0xfedcba987654));
        assert_int_equal(varve_record_stream(record), 65535);
        assert_true(record->ticks == UINT64_MAX - 1);
        assert_true(record->addr == UINT64_C(0xffff800000000010));
        assert_true(record->size == UINT64_MAX);
        assert_true(record->requested == UINT64_MAX - 3);
        assert_true(record->arg == UINT64_C(1) << 63);
        assert_int_equal(record->callsite, UINT32_MAX);
        assert_int_equal(record->pool, 65534);
        assert_int_equal(record->device, 255);
        assert_int_equal(record->cause, 200);
    }
}

static const struct ctf_writing_class definitions[] = {
    {"varve:meta_process",
     {"u64 trace_id", "u32 process", "u32 parent", "s32 pid", "s32 parent_pid", "s32 rank", "u32 clock_kind",
      "u64 start_ticks", "u64 start_ticks_proc", "text executable", "text command_line"}},
    {"varve:meta_process_end", {"u32 process", "s32 pid", "enum32 end", "text exec_path"}},
    {"varve:meta_thread",
     {"u32 process", "u32 ring", "s32 pid", "s32 tid", "u64 created_ticks", "text name"}},
    {"varve:meta_thread_end",
     {"u32 process", "u32 ring", "s32 pid", "s32 tid", "u64 emitted", "u64 lost", "u64 lost_bytes"}},
    {"varve:meta_clock", {"u64 trace_id", "u64 ticks", "s64 mono_ns", "s64 real_ns"}},
    {"varve:meta_module",
     {"u32 process", "s32 pid", "u64 base", "u64 end", "u64 bias", "u32 number", "u32 build_id_bytes",
      "list8 build_id", "text path"}},
    {"varve:meta_module_gone", {"u32 process", "s32 pid", "u32 number"}},
    {"varve:meta_code",
     {"u32 process", "s32 pid", "u32 code", "u32 first_line", "text function", "text file"}},
    {"varve:meta_callsite",
     {"u32 process", "s32 pid", "u32 callsite", "u32 native_count", "u32 python_count", "list64 native",
      "list32 codes", "list32 lines"}},
    {"varve:meta_text", {"u64 trace_id", "text key", "text value"}},
    {"varve:meta_integer", {"u64 trace_id", "text key", "s64 value"}},
};

static void put_numbers(struct ctf_writing *out, const unsigned *widths, uint64_t first)
{
    for (; *widths != 0; widths++) {
        ctf_writing_put(out, *widths, first++);
    }
}

static void put_definitions(struct ctf_writing *out)
{
    ctf_writing_event(out, 0);
    put_numbers(out, (const unsigned[]){8, 4, 4, 4, 4, 4, 4, 8, 8, 0}, 10);
    ctf_writing_text(out, "/bin/ä");
    ctf_writing_text(out, "ä b");
    ctf_writing_event(out, 1);
    put_numbers(out, (const unsigned[]){4, 4, 4, 0}, 20);
    ctf_writing_text(out, "/bin/next");
    ctf_writing_event(out, 2);
    put_numbers(out, (const unsigned[]){4, 4, 4, 4, 8, 0}, 30);
    ctf_writing_text(out, "worker");
    ctf_writing_event(out, 3);
    put_numbers(out, (const unsigned[]){4, 4, 4, 4, 8, 8, 8, 0}, 40);
    ctf_writing_event(out, 4);
    put_numbers(out, (const unsigned[]){8, 8, 8, 8, 0}, (uint64_t)-2);
    ctf_writing_event(out, 5);
    put_numbers(out, (const unsigned[]){4, 4, 8, 8, 8, 4, 4, 0}, 60);
    put_numbers(out, (const unsigned[]){4, 1, 1, 1, 0}, 3);
    ctf_writing_text(out, "/lib/a.so");
    ctf_writing_event(out, 6);
    put_numbers(out, (const unsigned[]){4, 4, 4, 0}, 70);
    ctf_writing_event(out, 7);
    put_numbers(out, (const unsigned[]){4, 4, 4, 4, 0}, 80);
    ctf_writing_text(out, "forward");
    ctf_writing_text(out, "net.py");
    ctf_writing_event(out, 8);
    put_numbers(out, (const unsigned[]){4, 4, 4, 0}, 90);
    put_numbers(out, (const unsigned[]){4, 4, 0}, 1000); /* counts that are wrong: the lists count */
    put_numbers(out, (const unsigned[]){4, 8, 8, 0}, 2);
    put_numbers(out, (const unsigned[]){4, 4, 4, 4, 0}, 3);
    put_numbers(out, (const unsigned[]){4, 4, 4, 0}, 2); /* shorter than the codes */
    ctf_writing_event(out, 9);
    put_numbers(out, (const unsigned[]){8, 0}, 100);
    ctf_writing_text(out, "host");
    ctf_writing_text(out, "");
    ctf_writing_event(out, 10);
    put_numbers(out, (const unsigned[]){8, 0}, 110);
    ctf_writing_text(out, "least");
    ctf_writing_put(out, 8, UINT64_C(1) << 63);
}

static void check_processes(const struct ctf_item *items)
{
    const struct varve_mirror_process *process = &items[0].of.process;
    const struct varve_mirror_thread *thread = &items[2].of.thread;
    const struct varve_mirror_thread_end *thread_end = &items[3].of.thread_end;
    const struct varve_mirror_clock *clock = &items[4].of.clock;

    assert_true(process->trace_id == 10 && process->process == 11 && process->parent == 12);
    assert_true(process->pid == 13 && process->parent_pid == 14 && process->rank == 15);
    assert_true(process->clock_kind == 16 && process->start_ticks == 17 && process->start_ticks_proc == 18);
    assert_string_equal(process->executable, "/bin/ä");
    assert_string_equal(process->command_line, "ä b");
    assert_true(items[1].of.process_end.process == 20 && items[1].of.process_end.pid == 21);
    assert_int_equal(items[1].of.process_end.end, 22);
    assert_string_equal(items[1].of.process_end.exec_path, "/bin/next");
    assert_true(thread->origin.process == 30 && thread->origin.ring == 31 && thread->origin.pid == 32);
    assert_true(thread->origin.tid == 33 && thread->created_ticks == 34);
    assert_string_equal(thread->name, "worker");
    assert_true(thread_end->origin.process == 40 && thread_end->origin.ring == 41);
    assert_true(thread_end->origin.pid == 42 && thread_end->origin.tid == 43);
    assert_true(thread_end->emitted == 44 && thread_end->lost == 45 && thread_end->lost_bytes == 46);
    assert_true(clock->trace_id == (uint64_t)-2 && clock->ticks == UINT64_MAX);
    assert_true(clock->mono_ns == 0 && clock->real_ns == 1);
}

static void check_code(const struct ctf_item *items)
{
    const struct varve_mirror_module *module = &items[5].of.module;
    const struct varve_mirror_code *code = &items[7].of.code;
    const struct varve_mirror_callsite *callsite = &items[8].of.callsite;

    assert_true(module->process == 60 && module->pid == 61 && module->base == 62 && module->end == 63);
    assert_true(module->bias == 64 && module->number == 65);
    assert_int_equal(module->build_id_bytes, 3);
    assert_memory_equal(module->build_id, "\4\5\6", 3);
    assert_string_equal(module->path, "/lib/a.so");
    assert_int_equal(items[6].of.module_gone.process, 70);
    assert_int_equal(items[6].of.module_gone.pid, 71);
    assert_int_equal(items[6].of.module_gone.number, 72);
    assert_true(code->process == 80 && code->pid == 81 && code->code == 82 && code->first_line == 83);
    assert_string_equal(code->function, "forward");
    assert_string_equal(code->file, "net.py");
    assert_true(callsite->process == 90 && callsite->pid == 91 && callsite->callsite == 92);
    assert_int_equal(callsite->native_count, 2);
    assert_true(callsite->native[0] == 3 && callsite->native[1] == 4);
    assert_int_equal(callsite->python_count, 2);
    assert_true(callsite->codes[0] == 4 && callsite->codes[1] == 5);
    assert_true(callsite->lines[0] == 3 && callsite->lines[1] == 4);
}

static void test_definitions(void **state)
{
    static const enum ctf_item_kind kinds[] = {
        CTF_ITEM_PROCESS,  CTF_ITEM_PROCESS_END, CTF_ITEM_THREAD,       CTF_ITEM_THREAD_END,
        CTF_ITEM_CLOCK,    CTF_ITEM_MODULE,      CTF_ITEM_MODULE_GONE,  CTF_ITEM_CODE,
        CTF_ITEM_CALLSITE, CTF_ITEM_META_TEXT,   CTF_ITEM_META_INTEGER,
    };
    size_t count = sizeof(kinds) / sizeof(kinds[0]);
    struct ctf_writing out = {0};

    (void)state;
    ctf_writing_metadata("t", definitions, count);
    ctf_writing_packet(&out, 0, 0);
    put_definitions(&out);
    ctf_writing_packet_end(&out);
    ctf_writing_save(&out, "t", "c_0");
    read_trace("t");
    assert_int_equal(got.count, count);
    assert_int_equal(got.reading.counts.definitions, count);
    assert_int_equal(got.reading.counts.records, 0);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(got.items[i].kind, kinds[i]);
    }
    check_processes(got.items);
    check_code(got.items);
    assert_int_equal(got.items[9].of.meta.trace_id, 100);
    assert_string_equal(got.items[9].parts[0].data, "host");
    assert_string_equal(got.items[9].parts[1].data, "");
    assert_string_equal(got.items[10].parts[0].data, "least");
    assert_true(got.items[10].of.meta.value == INT64_MIN);
}

/* ---- another version of the provider ---- */

static void test_other_fields(void **state)
{
    static const struct ctf_writing_class classes[] = {
        /* other order, widths and signs; two that are new; those that are missing are 0 */
        {"varve:alloc",
         {"s64 pid", "text comment", "u32 pool", "u16 cause", "s16 stream", "u8 size", "s8 ring",
          "u64 callsite", "list8 more", "u64 ring_seq"}},
        {"varve:split", {NULL}},
        /* fields of another type than ours are no fields of ours */
        {"varve:meta_code", {"text code", "u32 function", "text file"}},
        {"varve:meta_process", {"u32 process"}},
        {"varve:meta_module", {"text build_id", "list8 path", "u32 number"}},
    };
    struct ctf_writing out = {0};

    (void)state;
    ctf_writing_metadata("t", classes, 5);
    ctf_writing_packet(&out, 0, 0);
    ctf_writing_event(&out, 0);
    ctf_writing_put(&out, 8, (uint64_t)-5);
    ctf_writing_text(&out, "new");
    put_numbers(&out, (const unsigned[]){4, 2, 2, 1, 1, 8, 0}, 200);
    put_numbers(&out, (const unsigned[]){4, 1, 0}, 1);
    ctf_writing_put(&out, 8, 77);
    ctf_writing_event(&out, 1);
    ctf_writing_event(&out, 2);
    ctf_writing_text(&out, "7");
    ctf_writing_put(&out, 4, 8);
    ctf_writing_text(&out, "here.py");
    ctf_writing_event(&out, 3);
    ctf_writing_put(&out, 4, 9);
    ctf_writing_event(&out, 4);
    ctf_writing_text(&out, "abc");
    put_numbers(&out, (const unsigned[]){4, 1, 0}, 1);
    ctf_writing_put(&out, 4, 10);
    ctf_writing_packet_end(&out);
    ctf_writing_save(&out, "t", "c_0");
    read_trace("t");
    assert_int_equal(got.count, 5);
    assert_int_equal(got.items[0].of.record.origin.pid, -5);
    assert_int_equal(got.items[0].of.record.origin.process, 0);
    assert_int_equal(got.items[0].of.record.origin.ring, (uint32_t)(int8_t)204);
    assert_int_equal(got.items[0].of.record.ring_seq, 77);
    assert_int_equal(got.items[0].of.record.record.pool, 200);
    assert_int_equal(got.items[0].of.record.record.cause, 201);
    assert_int_equal(varve_record_stream(&got.items[0].of.record.record), 202);
    assert_int_equal(got.items[0].of.record.record.size, 203);
    assert_int_equal(got.items[0].of.record.record.callsite, 205);
    assert_int_equal(varve_record_kind(&got.items[0].of.record.record), VARVE_KIND_ALLOC);
    assert_int_equal(varve_record_kind(&got.items[1].of.record.record), VARVE_KIND_SPLIT);
    assert_int_equal(got.items[1].of.record.record.size, 0);
    assert_int_equal(got.items[2].of.code.code, 0);
    assert_string_equal(got.items[2].of.code.function, "");
    assert_string_equal(got.items[2].of.code.file, "here.py");
    assert_int_equal(got.items[3].of.process.process, 9);
    assert_int_equal(got.items[3].of.process.rank, -1);
    assert_string_equal(got.items[3].of.process.command_line, "");
    assert_int_equal(got.items[4].of.module.number, 10);
    assert_int_equal(got.items[4].of.module.build_id_bytes, 0);
    assert_string_equal(got.items[4].of.module.path, "");
    assert_int_equal(got.reading.counts.clipped, 0);
}

/* Figures that do not fit are cut, and counted. */
static void test_clipped(void **state)
{
    static const struct ctf_writing_class classes[] = {{"varve:alloc", {"u32 pool", "u64 pid", "s64 tid"}}};
    static const struct {
        uint64_t pool, pid, tid;
        unsigned clipped;
    } cases[] = {
        {65535, INT32_MAX, (uint64_t)INT64_C(-2147483648), 0},
        {65536, 1, 1, 1},
        {1, UINT64_C(0x7fffffff00000001), 1, 1},
        {1, 1, (uint64_t)INT64_C(-2147483649), 1},
        {100000, UINT64_MAX - 5, UINT64_C(1) << 40, 2}, /* the pid is -6, told without its sign */
    };
    struct ctf_writing out = {0};
    unsigned clipped = 0;

    (void)state;
    ctf_writing_metadata("t", classes, 1);
    ctf_writing_packet(&out, 0, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ctf_writing_event(&out, 0);
        ctf_writing_put(&out, 4, cases[i].pool);
        ctf_writing_put(&out, 8, cases[i].pid);
        ctf_writing_put(&out, 8, cases[i].tid);
        clipped += cases[i].clipped;
    }
    ctf_writing_packet_end(&out);
    ctf_writing_save(&out, "t", "c_0");
    read_trace("t");
    assert_int_equal(got.reading.counts.clipped, clipped);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(got.items[i].of.record.record.pool, (uint16_t)cases[i].pool);
        assert_int_equal(got.items[i].of.record.origin.pid, (int32_t)cases[i].pid);
        assert_int_equal(got.items[i].of.record.origin.tid, (int32_t)cases[i].tid);
    }
}

/* ---- what is not ours, and what is not there ---- */

static void test_other_events(void **state)
{
    static const struct ctf_writing_class classes[] = {
        {"varve:alloc", {"u32 ring"}},          {"varve:alloc_v2", {"u32 ring"}},
        {"varve:meta_nothing", {"u32 ring"}},   {"varve:statedump_block", {"u32 ring"}},
        {"other:alloc", {"u32 ring"}},          {"varvel:alloc", {"u32 ring"}},
        {"sched_switch", {"u32 ring"}},         {"varve", {"u32 ring"}},
        {"varve:statedump_begin", {"u32 pid"}}, {"other:free", {"u32 ring"}},
    };
    struct ctf_writing out = {0};
    const struct ctf_counts *counts = &got.reading.counts;

    (void)state;
    ctf_writing_metadata("t", classes, 10);
    for (unsigned round = 0; round < 3; round++) {
        ctf_writing_packet(&out, 0, 0);
        for (unsigned i = 0; i < 10; i++) {
            ctf_writing_event(&out, i);
            ctf_writing_put(&out, 4, 5);
        }
        ctf_writing_packet_end(&out);
    }
    ctf_writing_save(&out, "t", "c_0");
    read_trace("t");
    assert_int_equal(got.count, 3);
    assert_int_equal(counts->records, 3);
    assert_int_equal(counts->unknown, 6);
    assert_int_equal(counts->statedump, 6);
    assert_int_equal(counts->foreign, 15);
    for (size_t i = 0; i < 4; i++) {
        bool is_other = strcmp(counts->providers[i].name, "other") == 0;

        assert_int_equal(counts->providers[i].events, is_other ? 6 : 3);
    }
    assert_string_equal(counts->providers[4].name, "");
}

/* More providers than there are places for: all are counted, the first ones by name. */
static void test_many_providers(void **state)
{
    struct ctf_counts counts = {0};
    struct ctf_counts sum = {0};
    uint64_t named = 0;

    (void)state;
    for (unsigned i = 0; i < 100; i++) {
        char name[100];

        snprintf(name, sizeof(name), "%0*u:event", (int)(i % 90), i);
        ctf_counts_foreign(&counts, name, 2);
    }
    ctf_counts_add(&sum, &counts);
    ctf_counts_add(&sum, &counts);
    assert_int_equal(counts.foreign, 200);
    for (size_t i = 0; i < CTF_PROVIDERS; i++) {
        named += counts.providers[i].events;
        assert_int_equal(sum.providers[i].events, 2 * counts.providers[i].events);
        assert_string_equal(sum.providers[i].name, counts.providers[i].name);
    }
    assert_true(named >= 2 * CTF_PROVIDERS && named <= 200);
    assert_int_equal(sum.foreign, 400);
}

static void test_discarded(void **state)
{
    static const struct ctf_writing_class classes[] = {{"varve:alloc", {"u32 ring"}}};
    struct ctf_writing out = {0};

    (void)state;
    ctf_writing_metadata("t", classes, 1);
    for (unsigned i = 0; i < 4; i++) {
        ctf_writing_packet(&out, 0, i == 2 ? 5 : 0);
        ctf_writing_event(&out, 0);
        ctf_writing_put(&out, 4, 1);
        out.discarded += i * 10;
        ctf_writing_packet_end(&out);
    }
    ctf_writing_save(&out, "t", "c_0");
    read_trace("t");
    assert_int_equal(got.reading.counts.records, 4);
    assert_int_equal(got.reading.counts.discarded_events, 60);
    assert_int_equal(got.reading.counts.discarded_packets, 5);
    assert_int_equal(got.reading.counts.uncounted, 0);
}

/* Lost before the first packet that is there: babeltrace2 cannot know how many. */
static void test_discarded_uncounted(void **state)
{
    static const struct ctf_writing_class classes[] = {{"varve:alloc", {"u32 ring"}}};
    struct ctf_writing out = {.discarded = 7};

    (void)state;
    ctf_writing_metadata("t", classes, 1);
    ctf_writing_packet(&out, 0, 0);
    ctf_writing_event(&out, 0);
    ctf_writing_put(&out, 4, 1);
    ctf_writing_packet_end(&out);
    ctf_writing_save(&out, "t", "c_0");
    read_trace("t");
    assert_int_equal(got.reading.counts.records, 1);
    assert_true(got.reading.counts.discarded_events >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_records, enter, leave),
        cmocka_unit_test_setup_teardown(test_definitions, enter, leave),
        cmocka_unit_test_setup_teardown(test_other_fields, enter, leave),
        cmocka_unit_test_setup_teardown(test_clipped, enter, leave),
        cmocka_unit_test_setup_teardown(test_other_events, enter, leave),
        cmocka_unit_test(test_many_providers),
        cmocka_unit_test_setup_teardown(test_discarded, enter, leave),
        cmocka_unit_test_setup_teardown(test_discarded_uncounted, enter, leave),
    };

    if (ctf_version() == NULL) {
        puts("skipped: built without babeltrace2 (libbabeltrace2-dev)");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
