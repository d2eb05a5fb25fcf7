/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve bound` as a command: its figures for small files that were worked out by hand, the placement that it writes,
 * which it reads again. Figures of recorded histories are compared by tests/conformance/test_bound.py.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"
#include "base/error.h"
#include "trace/record.h"
#include "trace/record_fold.h"
#include "trace/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* At 3, a and b live; from 4 on c has a's place. */
#define HEAD "id,lower,upper,size\n"
static const char three[] = HEAD "a,0,4,5\nb,3,9,5\nc,4,8,4\n";

static int setup(void **state)
{
    int error = test_folder_setup(state);
    file_write("three.csv", three, strlen(three));
    return error;
}

TEST(test_file)
{
    EXPECT(0, "bound --json three.csv",
           "{\"buffers\":3,\"alignment\":1,\"load_bytes\":10,\"bound_bytes\":10,\"placement_bytes\":10,"
           "\"optimal\":true,");
    EXPECT(0, "bound --json --alignment 4 three.csv",
           "\"alignment\":4,\"load_bytes\":10,\"bound_bytes\":16,\"placement_bytes\":16,\"optimal\":true,");
    EXPECT(0, "bound three.csv", "3 buffers\n");
    EXPECT(0, "bound -q -j 1 three.csv", "optimal: ");
    EXPECT(0, "bound --json --capacity 10 three.csv", "\"capacity\":10,\"fits\":true,");
    EXPECT(0, "bound --json --capacity 9 three.csv", "\"capacity\":9,\"fits\":false,");
    EXPECT(0, "bound --capacity 1K three.csv", "\nfits into 1.00 KiB (1,024)");
    EXPECT(0, "bound --capacity 9 three.csv", "\ndoes not fit into 9 B: 10 B are needed at least");
}

/* What is written is the file with offsets, and has the same load and height when it is read again. */
TEST(test_output)
{
    file_write("two.csv", "size,id,upper,lower\n7,x,2,1\n3,y,9,2\n", 36);
    EXPECT(0, "bound -o placed.csv two.csv", "");
    char *text = file_read("placed.csv", NULL);

    assert_string_equal(text, "id,lower,upper,size,offset\nx,1,2,7,0\ny,2,9,3,0\n");
    free(text);
    EXPECT(0, "bound --json placed.csv", "\"placement_bytes\":7,\"optimal\":true");
    EXPECT(0, "bound -f -o placed.csv two.csv", "");
}

static void write_event(struct varve_writer *writer, uint8_t device, enum varve_kind kind, uint64_t addr, uint64_t size)
{
    struct varve_record record = {
        .addr = addr,
        .size = (size + 511) / 512 * 512,
        .requested = size,
        .id_stream = addr,
        .dev_seq_kind_flags = varve_record_tag(varve_writer_events(writer) + 1, kind, 0),
        .device = device,
    };
    assert_int_equal(varve_writer_event(writer, &record, (int64_t)varve_writer_events(writer) * 1000), 0);
}

/* On each device 1,000 bytes and 3 MiB live together, then 600 bytes are alone. */
static void trace_make(const char *path)
{
    struct varve_message message;
    struct varve_writer *writer;
    assert_int_equal(varve_writer_open(path, true, &writer, &message), 0);
    for (uint8_t device = 0; device < 3; device += 2) {
        uint64_t base = (uint64_t)(device + 1) << 32;
        write_event(writer, device, VARVE_KIND_SEGMENT_ALLOC, base, 20 << 20);
        write_event(writer, device, VARVE_KIND_ALLOC, base, 1000);
        write_event(writer, device, VARVE_KIND_ALLOC, base + 1024, 3 << 20);
        for (enum varve_kind kind = VARVE_KIND_FREE_REQUESTED; kind <= VARVE_KIND_FREE_COMPLETED; kind++) {
            write_event(writer, device, kind, base + 1024, 3 << 20);
            write_event(writer, device, kind, base, 1000);
        }
        write_event(writer, device, VARVE_KIND_ALLOC, base, 600);
    }
    assert_int_equal(varve_writer_finish(writer, NULL, NULL, &message), 0);
}

TEST(test_trace)
{
#define FIGURES                                                                                         \
    "\"events\":8,\"buffers\":3,\"alignment\":512,\"load_bytes\":3146728,\"block_load_bytes\":3146752," \
    "\"page_load_bytes\":4194304,\"pool_load_bytes\":3146752,\"block_pages_bytes\":6291456,"            \
    "\"peak_reserved\":20971520,\"bound_bytes\":3146752,\"placement_bytes\":3146752,\"optimal\":true,"
    trace_make("trace.db");
    EXPECT(0, "bound --json --device 2 trace.db", "{\"device\":2,", FIGURES);
    EXPECT(0, "bound --json trace.db", "[{\"device\":0,", FIGURES, "\"device\":2,", FIGURES);
    EXPECT(0, "bound trace.db", "device 2: 3 blocks in 8 events\n");
    EXPECT(0, "bound --device 0 -o placed.csv -f trace.db", "");
    EXPECT(0, "bound --alignment 512 --json placed.csv",
           "\"load_bytes\":3146728,\"bound_bytes\":3146752,\"placement_bytes\":3146752,\"optimal\":true,");
    EXPECT(2, "bound --device 7 trace.db", "on device 7");
    EXPECT(2, "bound -o p.csv trace.db", "--device");
    EXPECT(2, "bound --capacity 1M trace.db",
           "event 2 of device 0 alone asks for 3145728 bytes, more than the capacity of 1048576");
}

TEST_FILE(setup, test_folder_teardown)
