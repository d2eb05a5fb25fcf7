/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bad input of every kind, to every command that reads a database: exit status 2, nothing on standard output,
 * one line that says what is wrong, and no file made or changed.
 * Costs: 2 s, full 3 s
 */
#include <cmocka.h>

#include "support/command.h"
#include "support/random.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static void copy_file(const char *from, const char *to, size_t bytes_max)
{
    size_t bytes;
    char *data = file_read(from, &bytes);
    file_write(to, data, bytes < bytes_max ? bytes : bytes_max);
    free(data);
}

/* Names and contents of all files here. Owner: the caller, by free. */
static char *folder_contents(void)
{
    FILE *pipe =
        popen("for file in *; do echo \"$file\"; test -f \"$file\" -a -r \"$file\" && cksum <\"$file\"; done", "r");
    char *text = calloc(1, 1 << 16);
    assert_true(pipe != NULL && text != NULL);
    assert_true(fread(text, 1, (1 << 16) - 1, pipe) > 0);
    assert_int_not_equal(pclose(pipe), -1);
    return text;
}

static void assert_refused(const char *path, const char *word, const char *other_word)
{
    const char *const commands[][5] = {
        {"report", path, NULL},   {"report", "--json", path, NULL},  {"info", path, NULL},
        {"leaks", path, NULL},    {"peak", "--csv", path, NULL},     {"peak", "--pid", "4000", path, NULL},
        {"timeline", path, NULL}, {"query", path, "SELECT 1", NULL},
    };
    char *before = folder_contents();
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        struct command_outcome outcome = command_run_list(commands[i]);
        assert_non_null(strstr(outcome.err, other_word));
        command_refused(outcome, path, word);
    }
    char *after = folder_contents();
    assert_string_equal(before, after);
    free(before);
    free(after);
}

TEST(test_missing_and_special_files)
{
    assert_refused("missing.db", "missing.db", "no such file");
    assert_refused("missing/trace.db", "missing/trace.db", "no such file");
    assert_int_equal(mkdir("folder", 0700), 0);
    assert_refused("folder", "folder", "is a directory");
    assert_int_equal(symlink("/dev/null", "device"), 0);
    assert_refused("device", "device", "not a regular file");
    assert_int_equal(mkfifo("fifo", 0600), 0);
    assert_refused("fifo", "fifo", "not a regular file");
    unlink("fifo");
    unlink("device");
}

/* root may read everything, so root becomes nobody for a moment */
TEST(test_not_readable)
{
    bool is_root = geteuid() == 0;
    copy_file("small.db", "secret.db", SIZE_MAX);
    assert_int_equal(chmod("secret.db", 0), 0);
    assert_int_equal(chmod(".", 0711), 0);
    if (is_root) {
        assert_int_equal(seteuid(65534), 0);
    }
    struct command_outcome outcome = command_run("report", "secret.db", NULL);
    if (is_root) {
        assert_int_equal(seteuid(0), 0);
    }
    command_refused(outcome, "secret.db", "ermission denied");
}

TEST(test_no_database)
{
    file_write("text.db", "hello, world\n", 13);
    assert_refused("text.db", "text.db", "not a trace database");
    file_write("empty.db", "", 0);
    assert_refused("empty.db", "empty.db", "empty");
}

TEST(test_other_tool)
{
    sql_run("other.db", "CREATE TABLE event(seq INTEGER PRIMARY KEY); PRAGMA application_id = 7");
    assert_refused("other.db", "another tool", "0x00000007");
}

TEST(test_other_schema)
{
    copy_file("small.db", "older.db", SIZE_MAX);
    sql_run("older.db", "PRAGMA user_version = 2");
    assert_refused("older.db", "older.db was written by an older varve (schema 2, this one reads ",
                   "use that version, or record again");
    copy_file("small.db", "newer.db", SIZE_MAX);
    sql_run("newer.db", "PRAGMA user_version = 1000");
    assert_refused("newer.db", "newer varve", "1000");
}

TEST(test_truncated)
{
    static const size_t keep[] = {16, 99, 100, 4096, 20000, 65536};
    for (size_t i = 0; i < sizeof(keep) / sizeof(keep[0]); i++) {
        copy_file("small.db", "truncated.db", keep[i]);
        assert_refused("truncated.db", "truncated.db", "truncated");
    }
}

/* Noise in the middle: reported, or not met by what was asked; never half an answer. */
TEST(test_damaged)
{
    size_t bytes;
    char *data = file_read("small.db", &bytes);
    uint64_t seed = 7;
    unsigned reported = 0;
    for (int round = 0; round < test_rounds(15, 40); round++) {
        const char *const commands[] = {"report", "info", "leaks", "peak", "timeline"};
        char *damaged = malloc(bytes);
        assert_non_null(damaged);
        memcpy(damaged, data, bytes);
        size_t begin = 100 + (round > 0 ? random_below(&seed, bytes - 2100) : 0); /* first the tables' names */
        for (size_t at = begin; at < begin + 2000; at++) {
            damaged[at] = (char)random_next(&seed);
        }
        file_write("damaged.db", damaged, bytes);
        free(damaged);
        for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
            struct command_outcome outcome = command_run(commands[i], "damaged.db", NULL);
            if (outcome.status != 0) {
                command_refused(outcome, "damaged.db", "damaged.db");
                reported++;
            } else {
                command_outcome_free(&outcome);
            }
        }
    }
    free(data);
    assert_true(reported >= 5);
}

/* A database whose writer was killed: the newest pages are in a write-ahead log. */
TEST(test_write_ahead_log)
{
    copy_file("small.db", "writing.db", SIZE_MAX);
    sqlite3 *writer;
    assert_int_equal(sqlite3_open("writing.db", &writer), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(writer, "PRAGMA journal_mode = WAL; INSERT INTO meta VALUES ('x', 1)", NULL, NULL, NULL),
        SQLITE_OK);
    copy_file("writing.db", "killed.db", SIZE_MAX);
    copy_file("writing.db-wal", "killed.db-wal", SIZE_MAX);
    assert_int_equal(sqlite3_close(writer), SQLITE_OK);
    assert_refused("killed.db", "incomplete", "varve recover killed.db.d");
    unlink("killed.db-wal");
    unlink("killed.db");

    /* Folded in, it is whole, though still in WAL mode: readable, without a file beside it. */
    char *before = folder_contents(), *after;

    EXPECT(0, "report writing.db", "Totals");
    after = folder_contents();
    assert_string_equal(before, after);
    free(before);
    free(after);
}

TEST(test_recording_directory)
{
    assert_int_equal(mkdir("run.db.d", 0700), 0);
    file_write("run.db.d/owner", "", 0);
    assert_refused("run.db", "incomplete", "varve recover run.db.d");
    assert_refused("run.db.d", "incomplete", "varve recover run.db.d");
    copy_file("small.db", "run.db", SIZE_MAX);
    assert_refused("run.db", "incomplete", "varve recover run.db.d");

    int owner = open("run.db.d/owner", O_RDWR | O_CLOEXEC);
    assert_true(owner >= 0);
    assert_int_equal(flock(owner, LOCK_EX), 0);
    assert_refused("run.db", "still running", "run.db");
    assert_refused("run.db.d", "still running", "run.db.d");
    close(owner);
    unlink("run.db.d/owner");
    rmdir("run.db.d");
    unlink("run.db");
}

/* Cut off, and its directory is gone: what needs the totals says so, the rest reads what is there. */
TEST(test_cut_off)
{
    copy_file("small.db", "cut.db", SIZE_MAX);
    sql_run("cut.db", "UPDATE meta SET value = 0 WHERE key = 'complete'");
    EXPECT(2, "report cut.db", "cut off");
    EXPECT(2, "leaks cut.db", "cut off");
    EXPECT(2, "peak cut.db", "cut off");
    EXPECT(2, "timeline cut.db", "cut off");
    EXPECT(0, "info cut.db", "INCOMPLETE");
    EXPECT(0, "query cut.db `SELECT count(*) FROM event`", "266", "warning");
}

TEST(test_names_that_need_care)
{
    static const char *const names[] = {"sp ace.db", "per%41cent?a=b#c.db", "-dash.db", "ü'\"`$.db"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        copy_file("small.db", names[i], SIZE_MAX);
        struct command_outcome outcome =
            command_run("query", "--no-header", "--", names[i], "SELECT count(*) FROM event", NULL);
        assert_int_equal(outcome.status, 0);
        assert_string_equal(outcome.out, "266\n");
        command_outcome_free(&outcome);
        unlink(names[i]);
    }
    struct command_outcome outcome = command_run("report", "no\033[31m\nsuch.db", NULL);

    assert_null(strchr(outcome.err, '\033'));
    command_refused(outcome, "control characters", "");
}

TEST_FILE(test_folder_small_setup, test_folder_teardown)
