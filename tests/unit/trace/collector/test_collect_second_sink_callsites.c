/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call-site files into the second sink: each entry once, when the collector has taken it, in the order of the
 * file; all of them again when a trace begins in mid-run, from files that are still there and as they were.
 * Costs: 1 s
 */
#include "support/lttng/second_sink.h"
#include "support/callsites.h"

static struct writer callsite_file_of(const struct lab *lab, uint32_t process)
{
    struct writer writer;
    snprintf(writer.path, sizeof(writer.path), "%.480s/p%u.sites", lab->collector->directory.path, process);
    writer.stream = fopen(writer.path, "w");
    assert_non_null(writer.stream);
    return writer;
}

static void hand_callsite(struct ring_header *ring, uint64_t ticks, uint32_t callsite)
{
    struct varve_record record = hand_record(VARVE_KIND_HEAP_ALLOC, ticks, 0x1000 * (uint64_t)callsite, 0);
    record.callsite = callsite;
    hand_begin(ring);
    hand_commit(ring, &record);
}

static void write_callsites(struct writer *writer)
{
    const struct callsite_file_python python[] = {{7, 3}, {7, CALLSITE_FILE_PYTHON_ENTRY | 4}};
    const uint64_t pcs[] = {0x10100, 0x20200, UINT64_MAX};
    put_module(writer, 0, 0x10000, 0x1000, 0x8000, "/bin/x y", "\x01\xfe");
    put_module(writer, 1, 0x20000, 0x1000, 0, "/lib/none", "");
    put_code(writer, 7, "f", "a dir/m.py");
    put_callsite(writer, 1, pcs, 3, python, 2);
    put_gone(writer, 1);
    put_callsite(writer, 2, NULL, 0, python, 1);
}

/* What write_callsites has written, and nothing else, so many times. */
static void expect_callsites(const struct sink_log *log, int32_t pid, unsigned times)
{
    static const char *const facts[][2] = {
        {"module 1", "number=0 base=10000 end=11000 bias=8000 path=/bin/x y build_id=01fe"},
        {"module 1", "number=1 base=20000 end=21000 bias=0 path=/lib/none build_id="},
        {"code 1", "code=7 line=1 function=f file=a dir/m.py"},
        {"callsite 1", "callsite=1 native=10100,20200,ffffffffffffffff, python=7:3,7:80000004,"},
        {"module_gone 1", "number=1"},
        {"callsite 1", "callsite=2 native= python=7:3,"}};
    size_t next = 0, count = sizeof(facts) / sizeof(facts[0]);
    char expected[256];
    for (uint32_t i = 0; i < log->fact_count; i++) {
        const char *fact = log->facts[i].text;
        if (strncmp(fact, "mod", 3) == 0 || strncmp(fact, "code", 4) == 0 || strncmp(fact, "call", 4) == 0) {
            snprintf(expected, sizeof(expected), "%.20s pid=%d %.200s", facts[next % count][0], pid,
                     facts[next % count][1]);
            assert_string_equal(fact, expected);
            next++;
        }
    }
    assert_int_equal(next, times * count);
}

TEST(test_call_sites)
{
    struct lab *lab = lab_begin();
    struct sink_log *log = lab_sink(lab, 1);
    int32_t pid = lab_living(lab);
    hand_process(lab, pid);
    struct ring_header *ring = hand_ring(lab, 1, 64);
    struct writer writer = callsite_file_of(lab, 1);
    write_callsites(&writer);
    put_head(&writer, CALLSITE_FILE_TAG_STACK, 64); /* the next one is being written */
    assert_int_equal(fflush(writer.stream), 0);
    hand_callsite(ring, lab->begin + 1, 1);
    lab_drain(lab);
    hand_callsite(ring, lab->begin + 2, 2);
    hand_callsite(ring, lab->begin + 3, 1);
    lab_drain(lab);
    expect_callsites(log, pid, 1);
    assert_true(sink_start(log));
    lab_round(lab);
    expect_callsites(log, pid, 2);
    assert_int_equal(ftruncate(fileno(writer.stream), 30), 0); /* what cannot be read is not reported */
    assert_true(sink_start(log));
    lab_round(lab);
    expect_callsites(log, pid, 2);
    fclose(writer.stream);
    lab_sink_end(lab, log);
}

/* Written over after it was taken, with counts that no entry can have: then it is not emitted again. */
TEST(test_damaged_afterwards)
{
    const struct callsite_file_module module = {.base = 1, .end = 2, .build_id_bytes = UINT16_MAX, .path_bytes = 1};
    const struct callsite_file_code code = {.code = 7, .name_bytes = UINT16_MAX, .file_bytes = UINT16_MAX};
    const struct callsite_file_stack callsite = {.callsite = 1, .native_count = UINT16_MAX, .python_count = UINT16_MAX};
    long at[3] = {sizeof(struct callsite_file_entry)};
    struct lab *lab = lab_begin();
    struct sink_log *log = lab_sink(lab, 1);
    uint64_t pc = 0x10100;
    hand_process(lab, lab_living(lab));
    struct writer writer = callsite_file_of(lab, 1);
    put_module(&writer, 0, 0x10000, 0x1000, 0, "/bin/x", "id");
    at[1] = ftell(writer.stream) + (long)sizeof(struct callsite_file_entry);
    put_code(&writer, 7, "f", "m.py");
    at[2] = ftell(writer.stream) + (long)sizeof(struct callsite_file_entry);
    put_callsite(&writer, 1, &pc, 1, NULL, 0);
    put_native(&writer, 2, pc);
    hand_callsite(hand_ring(lab, 1, 64), lab->begin + 1, 2);
    lab_drain(lab);
    assert_int_equal(sink_facts(log, "module ") + sink_facts(log, "code "), 2);
    assert_int_equal(sink_facts(log, "callsite "), 2);
    assert_int_equal(pwrite(fileno(writer.stream), &module, sizeof(module), at[0]), sizeof(module));
    assert_int_equal(pwrite(fileno(writer.stream), &code, sizeof(code), at[1]), sizeof(code));
    assert_int_equal(pwrite(fileno(writer.stream), &callsite, sizeof(callsite), at[2]), sizeof(callsite));
    assert_true(sink_start(log));
    lab_round(lab);
    assert_int_equal(sink_facts(log, "module ") + sink_facts(log, "code "), 2);
    assert_int_equal(sink_facts(log, "callsite "), 2 + 1);
    fclose(writer.stream);
    lab_sink_end(lab, log);
}
