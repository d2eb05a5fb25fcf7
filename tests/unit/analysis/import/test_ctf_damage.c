/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CTF traces that are cut, overwritten or half empty: all that is whole is kept and the rest is told, or
 * there is one line and no database; never a crash, never anything left behind, whatever the bytes are.
 * babeltrace2 itself aborts or does not return for some of these.
 */
#include "support/ctf_importing.h"
#include "support/random.h"

#include <sys/mman.h>

/* As after a full disk: all whole events of the stream and all of the others are kept. */
static void test_cut_streams(void **state)
{
    size_t packet = make_trace("t");
    size_t bytes_left[] = {1, 40, 83, 84, 90, 84 + RECORD_BYTES, 83 + 6 * RECORD_BYTES, packet - 1};

    (void)state;
    for (size_t i = 0; i < sizeof(bytes_left) / sizeof(bytes_left[0]); i++) {
        size_t left = bytes_left[i];
        size_t events = left < 84 ? 0 : (left - 84) / RECORD_BYTES;

        make_trace("t");
        assert_int_equal(truncate("t/c_2", (off_t)(packet * 7 + left)), 0);
        import("t", "1 of 2 streams are damaged; what can be read of them is in o.db (t/c_2: ");
        assert_int_equal(records(), EVENTS + 7 * PACKET_EVENTS + events);
        assert_int_equal(loss("ctf_streams_damaged"), 1);
        assert_int_equal(loss("ctf_bytes_damaged"), left);
    }
    assert_int_equal(truncate("t/c_1", 10), 0);
    assert_int_equal(truncate("t/c_2", (off_t)packet * 7), 0);
    import("t", "1 of 2 streams are damaged");
    assert_int_equal(records(), 7 * PACKET_EVENTS);
    assert_int_equal(truncate("t/c_2", 10), 0);
    unlink("o.db");
    refuse("t", "nothing of the trace can be read: t/c_");
}

/* A stream that is one packet, and that one is cut. */
static void test_cut_packet_alone(void **state)
{
    (void)state;
    make_trace("t");
    assert_int_equal(truncate("t/c_1", 84 + 3 * RECORD_BYTES + 5), 0);
    unlink("t/c_2");
    import("t", "1 of 1 streams are damaged");
    assert_int_equal(records(), 3);
}

/* The head of one packet: the packets around it are kept. */
static void test_packet_heads(void **state)
{
    static const struct {
        size_t offset;
        const char *bytes;
        size_t count;
    } cases[] = {
        {0, "\xff", 1},                              /* magic */
        {4, "\xff", 1},                              /* trace */
        {48, "\xff\xff\xff\xff\xff\xff\xff\xff", 8}, /* content */
        {48, "\0\0\0\0\0\0\0\0", 8},
        {56, "\xff\xff\xff\xff\xff\xff\xff\xff", 8}, /* packet */
        {56, "\0\0\0\0\0\0\0\0", 8},
        {56, "\x0f", 1},
        {0, "", 1},
    };
    size_t packet = make_trace("t");

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (unsigned number_of = 0; number_of < PACKETS; number_of += 3) {
            make_trace("t");
            damage_bytes("t/c_1", number_of * packet + cases[i].offset, cases[i].bytes, cases[i].count);
            import("t", "1 of 2 streams are damaged");
            assert_int_equal(records(), 2 * EVENTS - PACKET_EVENTS);
            assert_int_equal(number("o.db", "SELECT sum(arg) FROM events WHERE kind = 'lost'"),
                             number_of < PACKETS - 1 ? PACKET_EVENTS : 0);
        }
    }
}

/* Within a packet: what comes before in it, and all other packets, are kept. */
static void test_packet_contents(void **state)
{
    size_t packet = make_trace("t");
    size_t event = (packet - 84) / PACKET_EVENTS;
    int64_t missing;

    (void)state;
    damage_bytes("t/c_2", 4 * packet + 84 + 10 * event, "\x99\x99", 2); /* no such event */
    import("t", "1 of 2 streams are damaged; what can be read of them is in o.db (t/c_2: packet 5 of 10: ");
    missing = 2 * EVENTS - records();
    assert_true(missing >= PACKET_EVENTS - 11 && missing <= PACKET_EVENTS);
    assert_int_equal(loss("ctf_streams_damaged"), 1);
    assert_int_equal(number("o.db", "SELECT sum(arg) FROM events WHERE kind = 'lost'"), missing);
    for (unsigned i = 0; i < PACKETS; i++) { /* every packet of one, another one of the other */
        damage_bytes("t/c_1", i * packet + 84, "\x99\x99", 2);
    }
    import("t", "2 of 2 streams are damaged");
    assert_int_equal(records(), EVENTS - missing);
}

static void test_metadata(void **state)
{
    char *text;
    size_t bytes;

    (void)state;
    make_trace("t");
    text = file_read("t/metadata", &bytes);
    file_write("t/metadata", text, bytes / 2);
    refuse("t", "nothing of the trace can be read: t/metadata: babeltrace2 does not understand it");
    file_write("t/metadata", "", 0);
    refuse("t", "nothing of the trace can be read: t/metadata: ");
    file_write("t/metadata", "hello\n", 6);
    refuse("t", "nothing of the trace can be read: t/metadata: ");
    file_write("t/metadata", "\x57\x1d\xd1\x75 cut", 8); /* packets */
    refuse("t", "t/metadata: is cut or damaged");
    make_trace("u"); /* another trace beside it is read */
    assert_int_equal(mkdir("both", 0700), 0);
    assert_int_equal(rename("t", "both/t"), 0);
    assert_int_equal(rename("u", "both/u"), 0);
    import("both", "2 of 4 streams are damaged");
    assert_int_equal(records(), 2 * EVENTS);
    free(text);
}

/* Of a tracer whose packets are laid out in a way that is not known here. */
static void test_other_tracer(void **state)
{
    size_t packet = make_trace("t");
    char *text;
    size_t bytes;
    char *at;

    (void)state;
    text = file_read("t/metadata", &bytes);
    at = strstr(text, "lttng-ust");
    assert_non_null(at);
    *at = 'L';
    file_write("t/metadata", text, bytes);
    free(text);
    import("t", NULL);
    assert_int_equal(records(), 2 * EVENTS);
    assert_int_equal(truncate("t/c_2", (off_t)packet + 50), 0);
    import("t", "1 of 2 streams are damaged");
    assert_int_equal(records(), EVENTS);
}

static void test_empty_streams(void **state)
{
    (void)state;
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

/* Whatever comes of damage, it must be whole in memory: the sanitizer looks on. */
static int look(void *context, const struct ctf_item *item)
{
    uint64_t *sum = context;

    for (unsigned i = 0; i < ctf_item_shape(item->kind)->parts; i++) {
        for (uint32_t k = 0; k < item->parts[i].bytes; k++) {
            *sum += ((const unsigned char *)item->parts[i].data)[k];
        }
    }
    *sum += item->kind;
    return VARVE_OK;
}

static bool assert_read(unsigned round)
{
    uint64_t sum = 0;
    struct ctf_source source = {.folder = "t", .near = "o.db", .take = look, .context = &sum};
    struct varve_message message = {""};
    struct ctf_reading reading;
    int error = ctf_read(&source, &reading, &message);

    if (error != VARVE_OK && (error != VARVE_ERROR_FORMAT || message.text[0] == '\0' ||
                              strchr(message.text, '\n') != NULL || sum != 0)) {
        fail_msg("round %u: error %d, '%s', %ju read", round, error, message.text, (uintmax_t)sum);
    }
    assert_alone(false);
    return error == VARVE_OK;
}

static void assert_imported(unsigned round)
{
    struct command_outcome outcome = command_run("import", "t", "-o", "o.db", NULL);
    bool is_good = outcome.status == 0;

    if (outcome.status != 0 &&
        (outcome.status != 2 || strchr(outcome.err, '\n') != outcome.err + strlen(outcome.err) - 1)) {
        fail_msg("round %u: status %d, '%s'", round, outcome.status, outcome.err);
    }
    assert_alone(is_good);
    unlink("o.db");
    command_outcome_free(&outcome);
}

/* The process that runs babeltrace2 keeps its standard error if a log is asked for, and a sanitizer would
 * write there; its end alone is no more than damage. */
static int stderr_before;
static int stderr_file;

static int enter_watched(void **state)
{
    setenv("LIBBABELTRACE2_INIT_LOG_LEVEL", "NONE", 1);
    stderr_before = dup(STDERR_FILENO);
    stderr_file = memfd_create("stderr", MFD_CLOEXEC);
    if (stderr_before < 0 || stderr_file < 0 || dup2(stderr_file, STDERR_FILENO) < 0) {
        return -1;
    }
    return enter(state);
}

static int leave_watched(void **state)
{
    static char text[65536];
    ssize_t bytes;

    dup2(stderr_before, STDERR_FILENO);
    bytes = pread(stderr_file, text, sizeof(text) - 1, 0);
    text[bytes > 0 ? bytes : 0] = '\0';
    fputs(text, stderr);
    close(stderr_before);
    close(stderr_file);
    unsetenv("LIBBABELTRACE2_INIT_LOG_LEVEL");
    return leave(state) != 0 || strstr(text, "Sanitizer") != NULL || strstr(text, "runtime error") != NULL
               ? -1
               : 0;
}

static void test_any_damage(void **state)
{
    const char *more = getenv("VARVE_TESTS_CTF_ROUNDS");
    const char *sanitizer = getenv("VARVE_SANITIZE");
    bool is_slow = sanitizer != NULL && strcmp(sanitizer, "none") != 0; /* a process is made for each */
    unsigned rounds = more != NULL ? (unsigned)strtoul(more, NULL, 10) : is_slow ? 100 : 500;
    uint64_t seed = 20260;
    unsigned count = 0;

    (void)state;
    for (unsigned i = 0; i < rounds; i++) {
        make_trace("t");
        do {
            damage_any(&seed);
        } while (random_next(&seed) % 4 == 0);
        count += assert_read(i);
        if (i % 10 == 0) {
            assert_imported(i);
        }
    }
    assert_true(count > rounds / 2); /* most of the damage leaves most of the trace */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cut_streams, enter, leave),
        cmocka_unit_test_setup_teardown(test_cut_packet_alone, enter, leave),
        cmocka_unit_test_setup_teardown(test_packet_heads, enter, leave),
        cmocka_unit_test_setup_teardown(test_packet_contents, enter, leave),
        cmocka_unit_test_setup_teardown(test_metadata, enter, leave),
        cmocka_unit_test_setup_teardown(test_other_tracer, enter, leave),
        cmocka_unit_test_setup_teardown(test_empty_streams, enter, leave),
        cmocka_unit_test_setup_teardown(test_any_damage, enter_watched, leave_watched),
    };

    if (ctf_version() == NULL) {
        puts("skipped: built without babeltrace2 (libbabeltrace2-dev)");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
