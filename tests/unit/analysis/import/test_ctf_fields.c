/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every kind of record of a CTF trace, with all its fields. Definitions: tests/conformance/test_lttng_equal.py, whose
 * recordings by way of LTTng equal those without it.
 * Costs: 1 s
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
