/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve import` of folders with CTF traces: what is in the database, what is reported, what is refused with one
 * line. (Damaged traces: test_ctf_damage.c.)
 * Costs: 2 s
 */
#include "support/lttng/ctf_importing.h"

/* ---- what is whole ---- */

TEST_WITH(test_whole, enter, leave)
{
    make_trace("t");
    import("t", NULL);
    assert_int_equal(records(), 2 * EVENTS);
    assert_int_equal(number("o.db", "SELECT count(*) FROM event"), 2 * EVENTS);
    assert_int_equal(number("o.db", "SELECT count(*) FROM data_loss"), 0);
    assert_int_equal(number("o.db", "SELECT count(*) FROM thread"), 2);
    assert_int_equal(number("o.db", "SELECT count(*) FROM allocation WHERE free_requested_seq IS NOT NULL"), EVENTS);
}

TEST_WITH(test_summary, enter, leave)
{
    make_trace("t");
    EXPECT(0, "import t -o o.db", "o.db: 400 events of 1 process; nothing lost\n");
    EXPECT(0, "import t -f -q -o o.db", "!o");
    EXPECT(0, "import t -f --json -o o.db", "\"events\":400,", "\"unknown_events\":0,\"other_events\":0}");
}

/* A trace, one deeper in the same folder with the same records, and a third one.
 */
TEST_WITH(test_many_traces, enter, leave)
{
    struct ctf_writing out = {0};
    assert_int_equal(mkdir("t", 0700), 0);
    assert_int_equal(mkdir("t/a", 0700), 0);
    make_trace("t/a/b");
    assert_int_equal(mkdir("t/a/b/index", 0700), 0);
    make_trace("t/a/b/crash");
    ctf_writing_metadata("t/z", classes, CLASSES);
    ctf_writing_packet(&out, 0, 0);
    put_records(&out, 7, 1, 5);
    ctf_writing_packet_end(&out);
    ctf_writing_save(&out, "t/z", "c_0");
    import("t", NULL);
    assert_int_equal(records(), 2 * EVENTS + 5);
    assert_int_equal(number("o.db", "SELECT count(*) FROM thread"), 3);
}

static uint64_t numbers_seen[3];

static void take_numbers(void *context, uint32_t process, uint32_t ring, uint64_t first, uint64_t last)
{
    assert_ptr_equal(context, numbers_seen);
    assert_int_equal(process, 1);
    assert_true(ring == 1 || ring == 2);
    for (uint64_t number = first; number <= last; number++) {
        numbers_seen[ring] += number;
    }
}

TEST_WITH(test_each_number, enter, leave)
{
    struct varve_message message = {""};
    make_trace("t");
    numbers_seen[1] = numbers_seen[2] = 0;
    assert_int_equal(ctf_each_number("t", take_numbers, numbers_seen, &message), VARVE_OK);
    assert_int_equal(numbers_seen[1], EVENTS * (EVENTS + 1) / 2);
    assert_int_equal(numbers_seen[2], EVENTS * (EVENTS + 1) / 2);
    assert_int_equal(ctf_each_number("missing", take_numbers, numbers_seen, &message), VARVE_ERROR_NOT_FOUND);
    assert_non_null(strstr(message.text, "missing"));
}

/* ---- what LTTng lost, what is not known ---- */

TEST_WITH(test_losses_reported, enter, leave)
{
    struct ctf_writing out = {0};
    struct ctf_writing_class more[CLASSES + 1];
    memcpy(more, classes, sizeof(classes));
    more[CLASSES] = (struct ctf_writing_class){"varve:from_the_future", {"u32 value"}};
    ctf_writing_metadata("t", more, CLASSES + 1);
    ctf_writing_packet(&out, 1, 0);
    put_records(&out, 1, 1, 10);
    ctf_writing_event(&out, CLASSES);
    ctf_writing_put(&out, 4, 1);
    ctf_writing_packet_end(&out);
    ctf_writing_packet(&out, 1, 3);
    put_records(&out, 1, 31, 10);
    out.discarded = 1234;
    put_thread_end(&out, 1, 40);
    ctf_writing_packet_end(&out);
    ctf_writing_save(&out, "t", "c_1");
    import("t", "LTTng discarded 1,234 events and 3 packets of events\n");
    assert_int_equal(loss("lttng_events_discarded"), 1234);
    assert_int_equal(loss("lttng_packets_discarded"), 3);
    assert_int_equal(number("o.db", "SELECT value FROM stats WHERE name = 'ctf_unknown_events'"), 1);
    assert_int_equal(records(), 20);
    assert_int_equal(number("o.db", "SELECT sum(arg) FROM events WHERE kind = 'lost'"), 20);
    import("t", "1 events are of kinds that this version of varve does not know\n");
}

/* ---- what is refused ---- */

TEST_WITH(test_not_ours, enter, leave)
{
    struct ctf_writing out = {0};
    ctf_writing_metadata("t", classes, CLASSES);
    ctf_writing_packet(&out, 0, 0);
    for (unsigned i = 0; i < 1234; i++) {
        ctf_writing_event(&out, CLASS_OTHER);
        ctf_writing_put(&out, 4, i);
    }
    ctf_writing_packet_end(&out);
    ctf_writing_save(&out, "t", "c_0");
    refuse("t", "t: no varve events in it; it has 1,234 of other");
    assert_int_equal(mkdir("empty", 0700), 0);
    refuse("empty", "empty: no CTF trace in it");
    refuse("missing", "missing");
}

TEST_WITH(test_target, enter, leave)
{
    make_trace("t");
    file_write("o.db", "mine", 4);
    EXPECT(2, "import t -o o.db", "--force");
    assert_int_equal(truncate("t/c_1", 7), 0); /* a target that fails is left as it was */
    assert_int_equal(truncate("t/c_2", 7), 0);
    EXPECT(2, "import -f t -o o.db", "t: ");
    char *text = file_read("o.db", NULL);

    assert_string_equal(text, "mine");
    free(text);
    assert_alone(true);
    EXPECT(2, "import t -o nowhere/o.db", "nowhere/o.db");
    EXPECT(2, "import t", "-o FILE is required");
}

/* root may read everything, so root becomes nobody for a moment */
TEST_WITH(test_not_readable, enter, leave)
{
    static const char *const paths[] = {"t/c_1", "t/metadata", "t"};
    bool is_root = geteuid() == 0;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        make_trace("t");
        assert_int_equal(chmod("t", 0755), 0);
        assert_int_equal(chmod("t/c_1", 0644), 0);
        assert_int_equal(chmod("t/c_2", 0644), 0);
        assert_int_equal(chmod("t/metadata", 0644), 0);
        assert_int_equal(chmod(paths[i], 0), 0);
        assert_int_equal(chmod(".", 0777), 0);
        if (is_root) {
            assert_int_equal(seteuid(65534), 0);
        }
        refuse("t", "ermission denied");
        if (is_root) {
            assert_int_equal(seteuid(0), 0);
        }
        assert_int_equal(chmod("t", 0700), 0);
    }
}

TEST_FILE(can_import, NULL)
