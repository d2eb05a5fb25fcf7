/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve bound` as a command: its figures for small files that were worked out by hand, the placement that it writes, which it reads
 * again, and what it refuses. Figures of recorded histories are compared by tests/conformance/test_bound.py.
 */
#include <cmocka.h>

#include "support/command.h"
#include "trace/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* At 3, a and b live; from 4 on c has a's place. */
#define HEAD "id,lower,upper,size\n"
static const char three[] = HEAD "a,0,4,5\nb,3,9,5\nc,4,8,4\n";

static void file_make(const char *path, const char *text)
{
    file_write(path, text, strlen(text));
}

static char *answer(struct command_outcome outcome)
{
    if (outcome.status != 0 || outcome.err[0] != '\0') {
        fail_msg("status %d, said: %s", outcome.status, outcome.err);
    }
    free(outcome.err);
    return outcome.out;
}

static void expect_in(char *text, const char *words)
{
    if (strstr(text, words) == NULL) {
        fail_msg("'%s' is not in: %s", words, text);
    }
    free(text);
}

TEST(test_file)
{
    file_make("three.csv", three);
    expect_in(answer(command_run("bound", "--json", "three.csv", NULL)),
              "{\"buffers\":3,\"alignment\":1,\"load_bytes\":10,\"bound_bytes\":10,\"placement_bytes\":10,"
              "\"optimal\":true,");
    expect_in(
        answer(command_run("bound", "--json", "--alignment", "4", "three.csv", NULL)),
        "\"alignment\":4,\"load_bytes\":10,\"bound_bytes\":16,\"placement_bytes\":16,\"optimal\":true,");
    expect_in(answer(command_run("bound", "three.csv", NULL)), "3 buffers\n");
    expect_in(answer(command_run("bound", "-q", "-j", "1", "three.csv", NULL)), "optimal: ");
}

TEST(test_capacity)
{
    file_make("three.csv", three);
    expect_in(answer(command_run("bound", "--json", "--capacity", "10", "three.csv", NULL)),
              "\"capacity\":10,\"fits\":true,");
    expect_in(answer(command_run("bound", "--json", "--capacity", "9", "three.csv", NULL)),
              "\"capacity\":9,\"fits\":false,");
    expect_in(answer(command_run("bound", "--capacity", "1K", "three.csv", NULL)),
              "\nfits into 1.00 KiB (1,024)");
    expect_in(answer(command_run("bound", "--capacity", "9", "three.csv", NULL)),
              "\ndoes not fit into 9 B: 10 B are needed at least");
    command_refused(command_run("bound", "--capacity", "4", "three.csv", NULL), "capacity",
                    "three.csv: buffer a alone has 5 bytes, more than the capacity of 4");
}

/* What is written is the file with offsets, and has the same load and height when it is read again. */
TEST(test_output)
{
    char *text;

    file_make("two.csv", "size,id,upper,lower\n7,x,2,1\n3,y,9,2\n");
    free(answer(command_run("bound", "-o", "placed.csv", "two.csv", NULL)));
    text = file_read("placed.csv", NULL);
    assert_string_equal(text, "id,lower,upper,size,offset\nx,1,2,7,0\ny,2,9,3,0\n");
    free(text);
    expect_in(answer(command_run("bound", "--json", "placed.csv", NULL)),
              "\"placement_bytes\":7,\"optimal\":true");
    command_refused(command_run("bound", "-o", "placed.csv", "two.csv", NULL), "a file that exists",
                    "placed.csv");
    free(answer(command_run("bound", "-f", "-o", "placed.csv", "two.csv", NULL)));
}

static void write_event(struct varve_writer *writer, uint8_t device, enum varve_kind kind, uint64_t addr,
                        uint64_t size)
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
    static const char *const nothing[] = {"nothing.sql", NULL};
    static const char figures[] =
        "\"events\":8,\"buffers\":3,\"alignment\":512,\"load_bytes\":3146728,\"block_load_bytes\":3146752,"
        "\"page_load_bytes\":4194304,\"pool_load_bytes\":3146752,\"block_pages_bytes\":6291456,"
        "\"peak_reserved\":20971520,\"bound_bytes\":3146752,\"placement_bytes\":3146752,\"optimal\":true,";
    char *text;

    trace_make("trace.db");
    text = answer(command_run("bound", "--json", "--device", "2", "trace.db", NULL));
    assert_int_equal(strncmp(text, "{\"device\":2,", 12), 0);
    expect_in(text, figures);
    text = answer(command_run("bound", "--json", "trace.db", NULL));
    assert_int_equal(strncmp(text, "[{\"device\":0,", 13), 0);
    assert_non_null(strstr(strstr(text, "\"device\":2,"), figures));
    expect_in(text, figures);
    expect_in(answer(command_run("bound", "trace.db", NULL)), "device 2: 3 blocks in 8 events\n");
    free(answer(command_run("bound", "--device", "0", "-o", "placed.csv", "-f", "trace.db", NULL)));
    expect_in(answer(command_run("bound", "--alignment", "512", "--json", "placed.csv", NULL)),
              "\"load_bytes\":3146728,\"bound_bytes\":3146752,\"placement_bytes\":3146752,\"optimal\":true,");
    command_refused(command_run("bound", "--device", "7", "trace.db", NULL), "device", "on device 7");
    command_refused(command_run("bound", "-o", "p.csv", "trace.db", NULL), "devices", "--device");
    command_refused(command_run("bound", "--capacity", "1M", "trace.db", NULL), "capacity",
                    "event 2 of device 0 alone asks for 3145728 bytes, more than the capacity of 1048576");
    trace_database_make("nothing.db", nothing);
    command_refused(command_run("bound", "nothing.db", NULL), "no GPU part",
                    "no events of a caching allocator");
}

TEST(test_refused)
{
    file_make("three.csv", three);
    file_make("bad.csv", HEAD "a,1,2,3\nb,4,4,1\n");
    file_make("text.txt", "nothing of the kind\n");
    command_refused(command_run("bound", "bad.csv", NULL), "lower >= upper", "bad.csv: line 3: ");
    command_refused(command_run("bound", "absent.csv", NULL), "no file", "absent.csv");
    command_refused(command_run("bound", "text.txt", NULL), "text", "text.txt");
    command_refused(command_run("bound", "--alignment", "12", "three.csv", NULL), "alignment",
                    "power of two");
    command_refused(command_run("bound", "-o", ".", "three.csv", NULL), "a folder", ".");
}

TEST_FILE(test_folder_setup, test_folder_teardown)
