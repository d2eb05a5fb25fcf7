/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CTF traces: every kind of record with all its fields (definitions: tests/conformance/test_lttng_equal.py, whose
 * recordings by way of LTTng equal those without it); of another version of the provider, fields that it has renamed,
 * left out, reordered, or given another width or sign; events that are not ours or not known; and what LTTng says that
 * it discarded.
 * Costs: 1 s
 */
#include "support/lttng/ctf_reading.h"

/* The fields of a record in their order: bytes and value. The first and the third one have the number added. */
static const struct {
    unsigned bytes;
    uint64_t value;
} fields[] = {{4, 0x80000001},
              {4, 0x80000002},
              {8, UINT64_C(0xfffffffffff00000)},
              {8, UINT64_MAX - 1},
              {4, (uint32_t)-7},
              {4, INT32_MAX},
              {1, 255},
              {8, UINT64_C(0xabcdef012345)},
              {2, 65535},
              {2, 65534},
              {8, UINT64_C(0xfedcba987654)},
              {8, UINT64_C(0xffff800000000010)},
              {8, UINT64_MAX},
              {8, UINT64_MAX - 3},
              {8, UINT64_C(1) << 63},
              {1, 200} /* no label */,
              {4, UINT32_MAX},
              {1, 255} /* also flags that are not stored */};

/* Every kind by its name, from the list that the provider is made of too. */
TEST_WITH(test_records, enter, leave)
{
    static const struct ctf_writing_class classes[] = {
#define CLASS(code, NAME, name, group, addr, size, requested, arg, meaning) {"varve:" #name, CTF_RECORD_FIELDS},
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
        ctf_writing_event(&out, i);
        for (size_t k = 0; k < sizeof(fields) / sizeof(fields[0]); k++) {
            ctf_writing_put(&out, fields[k].bytes, fields[k].value + (k == 0 || k == 2 ? i : 0));
        }
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

/* ---- other versions ---- */

TEST_WITH(test_other_fields, enter, leave)
{
    static const struct ctf_writing_class classes[] = {
        /* other order, widths and signs; two that are new; those that are missing are 0 */
        {"varve:alloc",
         {"s64 pid", "text comment", "u32 pool", "u16 cause", "s16 stream", "u8 size", "s8 ring", "u64 callsite",
          "list8 more", "u64 ring_seq"}},
        {"varve:split", {NULL}},
        /* fields of another type than ours are no fields of ours */
        {"varve:meta_code", {"text code", "u32 function", "text file"}},
        {"varve:meta_process", {"u32 process"}},
        {"varve:meta_module", {"text build_id", "list8 path", "u32 number"}},
    };
    struct ctf_writing out = {0};
    ctf_writing_metadata("t", classes, 5);
    ctf_writing_packet(&out, 0, 0);
    ctf_writing_event(&out, 0);
    ctf_writing_put(&out, 8, (uint64_t)-5);
    ctf_writing_text(&out, "new");
    ctf_writing_numbers(&out, (const unsigned[]){4, 2, 2, 1, 1, 8, 0}, 200);
    ctf_writing_numbers(&out, (const unsigned[]){4, 1, 0}, 1);
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
    ctf_writing_numbers(&out, (const unsigned[]){4, 1, 0}, 1);
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
    assert_int_equal(got.counts.clipped, 0);
}

/* Figures that do not fit are cut, and counted. */
TEST_WITH(test_clipped, enter, leave)
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
        {100000, UINT64_MAX - 5, UINT64_C(1) << 40, 2}, /* the pid is -6, written without its sign */
    };
    struct ctf_writing out = {0};
    unsigned clipped = 0;
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
    assert_int_equal(got.counts.clipped, clipped);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(got.items[i].of.record.record.pool, (uint16_t)cases[i].pool);
        assert_int_equal(got.items[i].of.record.origin.pid, (int32_t)cases[i].pid);
        assert_int_equal(got.items[i].of.record.origin.tid, (int32_t)cases[i].tid);
    }
}

/* ---- what is not ours, and what is not there ---- */

TEST_WITH(test_other_events, enter, leave)
{
    static const struct ctf_writing_class classes[] = {
        {"varve:alloc", {"u32 ring"}},          {"varve:alloc_v2", {"u32 ring"}},
        {"varve:meta_nothing", {"u32 ring"}},   {"varve:statedump_block", {"u32 ring"}},
        {"other:alloc", {"u32 ring"}},          {"varvel:alloc", {"u32 ring"}},
        {"sched_switch", {"u32 ring"}},         {"varve", {"u32 ring"}},
        {"varve:statedump_begin", {"u32 pid"}}, {"other:free", {"u32 ring"}},
    };
    struct ctf_writing out = {0};
    const struct ctf_counts *counts = &got.counts;
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
    assert_int_equal(counts->other, 15);
    for (size_t i = 0; i < 4; i++) {
        bool is_other = strcmp(counts->providers[i].name, "other") == 0;
        assert_int_equal(counts->providers[i].events, is_other ? 6 : 3);
    }
    assert_string_equal(counts->providers[4].name, "");
}

/* More providers than there are places for: all are counted, the first ones by name. */
TEST_WITH(test_many_providers, enter, leave)
{
    struct ctf_counts counts = {0};
    uint64_t named = 0;
    for (unsigned i = 0; i < 100; i++) {
        char name[100];
        snprintf(name, sizeof(name), "%0*u:event", (int)(i % 90), i);
        ctf_counts_other(&counts, name, 2);
    }
    assert_int_equal(counts.other, 200);
    for (size_t i = 0; i < CTF_PROVIDERS; i++) {
        named += counts.providers[i].events;
    }
    assert_true(named >= 2 * CTF_PROVIDERS && named <= 200);
}

TEST_WITH(test_discarded, enter, leave)
{
    static const struct ctf_writing_class classes[] = {{"varve:alloc", {"u32 ring"}}};
    struct ctf_writing out = {0};
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
    assert_int_equal(got.counts.records, 4);
    assert_int_equal(got.counts.discarded_events, 60);
    assert_int_equal(got.counts.discarded_packets, 5);
    assert_int_equal(got.counts.uncounted, 0);
}

/* Lost before the first packet that is there: babeltrace2 cannot know how many. */
TEST_WITH(test_discarded_uncounted, enter, leave)
{
    static const struct ctf_writing_class classes[] = {{"varve:alloc", {"u32 ring"}}};
    struct ctf_writing out = {.discarded = 7};
    ctf_writing_metadata("t", classes, 1);
    ctf_writing_packet(&out, 0, 0);
    ctf_writing_event(&out, 0);
    ctf_writing_put(&out, 4, 1);
    ctf_writing_packet_end(&out);
    ctf_writing_save(&out, "t", "c_0");
    read_trace("t");
    assert_int_equal(got.counts.records, 1);
    assert_true(got.counts.discarded_events >= 1);
}
