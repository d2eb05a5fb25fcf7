/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a CTF trace holds, item by item: every kind of record and every definition, with all fields.
 */
#include "support/lttng/ctf_reading.h"

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
TEST_WITH(test_records, enter, leave)
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

    ctf_writing_metadata("t", classes, count);
    ctf_writing_packet(&out, 0, 0);
    for (unsigned i = 0; i < count; i++) {
        put_record(&out, i);
    }
    ctf_writing_packet_end(&out);
    ctf_writing_save(&out, "t", "c_0");
    read_trace("t");
    assert_int_equal(got.count, count);
    assert_int_equal(got.counts.records, count);
    assert_int_equal(got.counts.clipped, 0);
    for (unsigned i = 0; i < count; i++) {
        const struct varve_sink_item *item = &got.items[i];
        const struct varve_record *record = &item->of.record.record;

        assert_int_equal(item->kind, VARVE_SINK_ITEM_RECORD);
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

static void put_definitions(struct ctf_writing *out)
{
    ctf_writing_event(out, 0);
    ctf_writing_numbers(out, (const unsigned[]){8, 4, 4, 4, 4, 4, 4, 8, 8, 0}, 10);
    ctf_writing_text(out, "/bin/ä");
    ctf_writing_text(out, "ä b");
    ctf_writing_event(out, 1);
    ctf_writing_numbers(out, (const unsigned[]){4, 4, 4, 0}, 20);
    ctf_writing_text(out, "/bin/next");
    ctf_writing_event(out, 2);
    ctf_writing_numbers(out, (const unsigned[]){4, 4, 4, 4, 8, 0}, 30);
    ctf_writing_text(out, "worker");
    ctf_writing_event(out, 3);
    ctf_writing_numbers(out, (const unsigned[]){4, 4, 4, 4, 8, 8, 8, 0}, 40);
    ctf_writing_event(out, 4);
    ctf_writing_numbers(out, (const unsigned[]){8, 8, 8, 8, 0}, (uint64_t)-2);
    ctf_writing_event(out, 5);
    ctf_writing_numbers(out, (const unsigned[]){4, 4, 8, 8, 8, 4, 4, 0}, 60);
    ctf_writing_numbers(out, (const unsigned[]){4, 1, 1, 1, 0}, 3);
    ctf_writing_text(out, "/lib/a.so");
    ctf_writing_event(out, 6);
    ctf_writing_numbers(out, (const unsigned[]){4, 4, 4, 0}, 70);
    ctf_writing_event(out, 7);
    ctf_writing_numbers(out, (const unsigned[]){4, 4, 4, 4, 0}, 80);
    ctf_writing_text(out, "forward");
    ctf_writing_text(out, "net.py");
    ctf_writing_event(out, 8);
    ctf_writing_numbers(out, (const unsigned[]){4, 4, 4, 0}, 90);
    ctf_writing_numbers(out, (const unsigned[]){4, 4, 0}, 1000); /* counts that are wrong: the lists count */
    ctf_writing_numbers(out, (const unsigned[]){4, 8, 8, 0}, 2);
    ctf_writing_numbers(out, (const unsigned[]){4, 4, 4, 4, 0}, 3);
    ctf_writing_numbers(out, (const unsigned[]){4, 4, 4, 0}, 2); /* shorter than the codes */
    ctf_writing_event(out, 9);
    ctf_writing_numbers(out, (const unsigned[]){8, 0}, 100);
    ctf_writing_text(out, "host");
    ctf_writing_text(out, "");
    ctf_writing_event(out, 10);
    ctf_writing_numbers(out, (const unsigned[]){8, 0}, 110);
    ctf_writing_text(out, "least");
    ctf_writing_put(out, 8, UINT64_C(1) << 63);
}

static void check_processes(const struct varve_sink_item *items)
{
    const struct varve_sink_process *process = &items[0].of.process;
    const struct varve_sink_thread *thread = &items[2].of.thread;
    const struct varve_sink_thread_end *thread_end = &items[3].of.thread_end;
    const struct varve_sink_clock *clock = &items[4].of.clock;

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

static void check_code(const struct varve_sink_item *items)
{
    const struct varve_sink_module *module = &items[5].of.module;
    const struct varve_sink_code *code = &items[7].of.code;
    const struct varve_sink_callsite *callsite = &items[8].of.callsite;

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

TEST_WITH(test_definitions, enter, leave)
{
    static const enum varve_sink_item_kind kinds[] = {
        VARVE_SINK_ITEM_PROCESS,     VARVE_SINK_ITEM_PROCESS_END,  VARVE_SINK_ITEM_THREAD,
        VARVE_SINK_ITEM_THREAD_END,  VARVE_SINK_ITEM_CLOCK,        VARVE_SINK_ITEM_MODULE,
        VARVE_SINK_ITEM_MODULE_GONE, VARVE_SINK_ITEM_CODE,         VARVE_SINK_ITEM_CALLSITE,
        VARVE_SINK_ITEM_META_TEXT,   VARVE_SINK_ITEM_META_INTEGER,
    };
    size_t count = sizeof(kinds) / sizeof(kinds[0]);
    struct ctf_writing out = {0};

    ctf_writing_metadata("t", definitions, count);
    ctf_writing_packet(&out, 0, 0);
    put_definitions(&out);
    ctf_writing_packet_end(&out);
    ctf_writing_save(&out, "t", "c_0");
    read_trace("t");
    assert_int_equal(got.count, count);
    assert_int_equal(got.counts.definitions, count);
    assert_int_equal(got.counts.records, 0);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(got.items[i].kind, kinds[i]);
    }
    check_processes(got.items);
    check_code(got.items);
    assert_int_equal(got.items[9].of.meta.trace_id, 100);
    assert_string_equal(got.items[9].of.meta.key, "host");
    assert_string_equal(got.items[9].of.meta.text, "");
    assert_string_equal(got.items[10].of.meta.key, "least");
    assert_true(got.items[10].of.meta.value == INT64_MIN);
}
