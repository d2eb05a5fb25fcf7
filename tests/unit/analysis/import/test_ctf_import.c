/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve import` of folders with CTF traces: what is in the database, what is reported, what is refused with one line.
 * Of traces that are cut, overwritten or half empty the line names what is damaged, and nothing is left behind,
 * whatever the bytes are: babeltrace2 itself aborts or does not return for some of these.
 * Costs: 5 s, full 12 s
 */
#include "support/lttng/ctf_importing.h"
#include "support/random.h"

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

/* ---- damage ---- */

/* As after a full disk. */
TEST_WITH(test_cut_streams, enter, leave)
{
    size_t packet = make_trace("t");
    size_t bytes_left[] = {1, 40, 83, 84, 90, 84 + RECORD_BYTES, 83 + 6 * RECORD_BYTES, packet - 1};
    for (size_t i = 0; i < sizeof(bytes_left) / sizeof(bytes_left[0]); i++) {
        make_trace("t");
        assert_int_equal(truncate("t/c_2", (off_t)(packet * 7 + bytes_left[i])), 0);
        refuse("t", "t: babeltrace2 cannot read it: ");
    }
    /* between two packets: what is missing is counted, as far as the trace says how much there was */
    make_trace("t");
    assert_int_equal(truncate("t/c_2", (off_t)packet * 7), 0);
    import("t", NULL);
    assert_int_equal(records(), EVENTS + 7 * PACKET_EVENTS);
}

/* The line names the file. */
TEST_WITH(test_packet_heads, enter, leave)
{
    static const struct {
        size_t offset;
        const char *bytes;
        size_t count;
    } cases[] = {
        {0, "\xff", 1},                              /* magic */
        {48, "\xff\xff\xff\xff\xff\xff\xff\xff", 8}, /* content */
        {56, "\0\0\0\0\0\0\0\0", 8},                 /* packet */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        make_trace("t");
        damage_bytes("t/c_1", cases[i].offset, cases[i].bytes, cases[i].count);
        refuse("t", "t: babeltrace2 cannot read it: ");
    }
    make_trace("t");
    damage_bytes("t/c_1", 0, "\xff", 1);
    refuse("t", "/t/c_1");
}

TEST_WITH(test_packet_contents, enter, leave)
{
    size_t packet = make_trace("t");
    size_t event = (packet - 84) / PACKET_EVENTS;
    damage_bytes("t/c_2", 4 * packet + 84 + 10 * event, "\x99\x99", 2); /* no such event */
    refuse("t", "t: babeltrace2 cannot read it: ");
}

TEST_WITH(test_metadata, enter, leave)
{
    make_trace("t");
    size_t bytes;
    char *text = file_read("t/metadata", &bytes);
    file_write("t/metadata", text, bytes / 2);
    refuse("t", "t: babeltrace2 cannot read it: ");
    file_write("t/metadata", "", 0);
    refuse("t", "t: babeltrace2 cannot read it: ");
    file_write("t/metadata", "hello\n", 6);
    refuse("t", "t: babeltrace2 cannot read it: ");
    file_write("t/metadata", "\x57\x1d\xd1\x75 cut", 8); /* packets */
    refuse("t", "t/metadata: is cut or damaged");
    assert_int_equal(unlink("t/metadata"), 0);
    refuse("t", "t: no CTF trace in it (a folder with a file named metadata)");
    make_trace("u"); /* another trace beside it is no use: a database is there whole or not at all */
    file_write("t/metadata", text, bytes / 2);
    assert_int_equal(mkdir("both", 0700), 0);
    assert_int_equal(rename("t", "both/t"), 0);
    assert_int_equal(rename("u", "both/u"), 0);
    refuse("both", "both: babeltrace2 cannot read it: ");
    free(text);
}

/* A pipe would be waited for for ever. */
TEST_WITH(test_no_files, enter, leave)
{
    make_trace("t");
    assert_int_equal(mkfifo("t/c_3", 0600), 0);
    refuse("t", "t/c_3: is not a regular file, as all of a CTF trace are");
    assert_int_equal(unlink("t/c_3"), 0);
    assert_int_equal(truncate("t/c_2", (off_t)1 << 40), 0);
    refuse("t", "are on the disk: no CTF trace");
}

TEST_WITH(test_empty_streams, enter, leave)
{
    make_trace("t");
    file_write("t/c_3", "", 0);
    file_write("t/.hidden", "x", 1);
    import("t", NULL);
    assert_int_equal(records(), 2 * EVENTS);
    assert_int_equal(truncate("t/c_1", 0), 0);
    assert_int_equal(truncate("t/c_2", 0), 0);
    unlink("o.db");
    refuse("t", "t: no varve events in it, nor any others");
}

/* ---- what is needed ---- */

TEST_WITH(test_nothing_to_read_with, enter, leave)
{
    const char *variable = getenv("PATH");
    char *paths = strdup(variable != NULL ? variable : "");
    make_trace("t");
    setenv("PATH", "/nowhere", 1);
    refuse("t", "read by babeltrace2, which is not in PATH (apt install babeltrace2)");
    setenv("PATH", paths, 1);
    setenv("VARVE_BABELTRACE_PLUGIN", "/nowhere/plugin.so", 1);
    refuse("t", "/nowhere/plugin.so, which is missing");
    free(paths);
}

/* ---- any bytes ---- */

static void damage_any(uint64_t *seed)
{
    static const char *const files[] = {"t/c_1", "t/c_2", "t/c_1", "t/c_2", "t/c_1", "t/metadata"};
    const char *path = files[random_next(seed) % 6];
    size_t bytes;
    char *data = file_read(path, &bytes);
    unsigned flips = random_next(seed) % 3 == 0 ? 1 : (unsigned)(random_next(seed) % 40);
    for (unsigned i = 0; i < flips; i++) {
        size_t at = random_next(seed) % (random_next(seed) % 2 == 0 ? bytes : 100);
        data[at] = (char)(data[at] ^ 1 << random_next(seed) % 8);
    }
    if (random_next(seed) % 3 == 0) {
        bytes = random_next(seed) % bytes;
    }
    file_write(path, data, bytes);
    free(data);
}

static bool imports(int round)
{
    struct command_outcome outcome = command_run("import", "t", "-o", "o.db", NULL);
    bool is_good = outcome.status == 0;
    if (!is_good && (outcome.status != 2 || outcome.err[0] == '\0' ||
                     strchr(outcome.err, '\n') != outcome.err + strlen(outcome.err) - 1)) {
        fail_msg("round %d: status %d, '%s'", round, outcome.status, outcome.err);
    }
    assert_alone(is_good);
    unlink("o.db");
    command_outcome_free(&outcome);
    return is_good;
}

TEST_WITH(test_any_damage, enter, leave)
{
    int rounds = test_rounds(25, 100); /* a process is made for each */
    uint64_t seed = 20260;
    int count = 0;
    for (int i = 0; i < rounds; i++) {
        make_trace("t");
        do {
            damage_any(&seed);
        } while (random_next(&seed) % 4 == 0);
        count += imports(i);
    }
    assert_true(count < rounds / 2); /* most of the damage is noticed */
}

TEST_FILE(can_import, NULL)
