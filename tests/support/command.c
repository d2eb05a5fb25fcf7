/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See command.h. Everything fails the running test if it can't do its work.
 */
#include <cmocka.h>

#include "support/command.h"

#include "analysis/analysis.h"
#include "trace/record.h"
#include "trace/store/schema.h"
#include "trace/writer.h"

#include <ftw.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define ARGUMENTS_MAX 32

size_t text_count(const char *text, const char *word)
{
    size_t count = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        count++;
    }
    return count;
}

char *file_read(const char *path, size_t *bytes_out)
{
    FILE *file = fopen(path, "rbe");
    char *text = NULL;
    size_t used = 0;
    if (file == NULL) {
        fail_msg("%s can't be read", path);
    }
    for (size_t got = 1; got > 0; used += got) {
        char *larger = realloc(text, used + 65537);
        assert_non_null(larger);
        text = larger;
        got = fread(text + used, 1, 65536, file);
    }
    text[used] = '\0';
    fclose(file);
    if (bytes_out != NULL) {
        *bytes_out = used;
    }
    return text;
}

void file_write(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wbe");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

char *test_folder_enter(void)
{
    const char *place = getenv("TMPDIR");
    char *folder = NULL;
    assert_true(asprintf(&folder, "%s/varve-test-XXXXXX", place != NULL && place[0] != '\0' ? place : "/tmp") > 0);
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    return folder;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

void test_folder_leave(char *folder)
{
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
    free(folder);
}

int test_folder_setup(void **state)
{
    *state = test_folder_enter();
    return 0;
}

int test_folder_small_setup(void **state)
{
    test_folder_setup(state);
    trace_database_make("small.db", (const char *const[]){"small.sql", NULL});
    return 0;
}

int test_folder_teardown(void **state)
{
    test_folder_leave(*state);
    return 0;
}

static void execute(sqlite3 *database, const char *sql, const char *where)
{
    char *error = NULL;
    if (sqlite3_exec(database, sql, NULL, NULL, &error) != SQLITE_OK) {
        fail_msg("%s: %s", where, error);
    }
}

void sql_run(const char *path, const char *sql)
{
    sqlite3 *database;
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    execute(database, "PRAGMA synchronous = OFF", path);
    execute(database, sql, path);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
}

static void run_script(sqlite3 *database, const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", VARVE_SOURCE_DIR, name);
    char *sql = file_read(path, NULL);
    execute(database, sql, name);
    free(sql);
}

/* Texts may hold quotes. */
static void add_words(sqlite3 *database, const char *format, int code, const char *const *texts)
{
    char *sql = sqlite3_mprintf(format, code, texts[0], texts[1], texts[2], texts[3], texts[4], texts[5], texts[6]);
    assert_non_null(sql);
    execute(database, sql, texts[0]);
    sqlite3_free(sql);
}

static void add_vocabulary(sqlite3 *database)
{
#define KIND(code, NAME, name, group, addr, size, requested, arg, meaning)                        \
    add_words(database, "INSERT INTO event_kind VALUES (%d, %Q, %Q, %Q, %Q, %Q, %Q, %Q)", (code), \
              (const char *const[]){#name, #group, addr, size, requested, arg, meaning});
    VARVE_EVENT_LIST(KIND) /* texts go on over lines. NOLINT(bugprone-suspicious-missing-comma) */
#undef KIND
#define CAUSE(code, NAME, text)                                            \
    add_words(database, "INSERT INTO event_cause VALUES (%d, %Q)", (code), \
              (const char *const[]){text, NULL, NULL, NULL, NULL, NULL, NULL});
    VARVE_CAUSE_LIST(CAUSE)
#undef CAUSE
}

void trace_database_make(const char *path, const char *const *scripts)
{
    sqlite3 *database;
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    execute(database, "PRAGMA synchronous = OFF; BEGIN", path);
    execute(database, store_schema_sql, path);
    execute(database, store_views_sql, path);
    execute(database, store_help_sql, path);
    add_vocabulary(database);
    for (; *scripts != NULL; scripts++) {
        char name[256];
        snprintf(name, sizeof(name), "tests/golden/%s", *scripts);
        run_script(database, name);
    }
    char identity[128];
    snprintf(identity, sizeof(identity), "COMMIT; PRAGMA application_id = %d; PRAGMA user_version = %d",
             VARVE_DATABASE_APPLICATION_ID, VARVE_DATABASE_SCHEMA_VERSION);
    execute(database, identity, path);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
}

struct command_outcome command_run_list(const char *const *arguments)
{
    struct command_outcome outcome = {0};
    char *argv[ARGUMENTS_MAX + 2] = {strdup("varve")};
    size_t out_bytes;
    size_t err_bytes;
    FILE *out = open_memstream(&outcome.out, &out_bytes);
    FILE *err = open_memstream(&outcome.err, &err_bytes);
    int argc = 1;
    assert_non_null(out);
    assert_non_null(err);
    for (; arguments[argc - 1] != NULL && argc <= ARGUMENTS_MAX; argc++) {
        argv[argc] = strdup(arguments[argc - 1]);
    }
    outcome.status = varve_command_run(argc, argv, out, err);
    fclose(out);
    fclose(err);
    for (int i = 0; i < argc; i++) {
        free(argv[i]);
    }
    return outcome;
}

struct command_outcome command_run(const char *first, ...)
{
    const char *arguments[ARGUMENTS_MAX + 1] = {first};
    va_list list;
    va_start(list, first);
    for (int i = 1; i < ARGUMENTS_MAX && arguments[i - 1] != NULL; i++) {
        arguments[i] = va_arg(list, const char *);
    }
    va_end(list);
    return command_run_list(arguments);
}

struct command_outcome command_run_line(const char *line)
{
    const char *arguments[ARGUMENTS_MAX + 1] = {NULL};
    char *words = strdup(line), *at = words;
    assert_non_null(words);
    for (int i = 0; *(at += strspn(at, " ")) != '\0'; i++) {
        char end = *at == '`' ? *at++ : ' ';
        assert_true(i < ARGUMENTS_MAX);
        arguments[i] = at;
        at = strchrnul(at, end);
        if (*at != '\0') {
            *at++ = '\0';
        }
    }
    struct command_outcome outcome = command_run_list(arguments);

    free(words);
    return outcome;
}

void command_outcome_free(struct command_outcome *outcome)
{
    free(outcome->out);
    free(outcome->err);
    *outcome = (struct command_outcome){0};
}

/* One line, or the line and that of the usage. */
static bool is_reason(const char *text)
{
    const char *end = strchr(text, '\n');
    if (end != NULL && strncmp(end + 1, "usage: varve ", strlen("usage: varve ")) == 0) {
        end = strchr(end + 1, '\n');
    }
    return end != NULL && end != text && end[1] == '\0';
}

void command_refused(struct command_outcome outcome, const char *what, const char *word)
{
    if (outcome.status != 2 || outcome.out[0] != '\0' || strstr(outcome.err, word) == NULL || !is_reason(outcome.err)) {
        fail_msg("%s: status %d, out '%s', err '%s'", what, outcome.status, outcome.out, outcome.err);
    }
    command_outcome_free(&outcome);
}

char *command_answer(const char *line)
{
    struct command_outcome outcome = command_run_line(line);
    if (outcome.status != 0 || outcome.err[0] != '\0') {
        fail_msg("%s: status %d, said: %s", line, outcome.status, outcome.err);
    }
    free(outcome.err);
    return outcome.out;
}

void command_expect(int status, struct command_outcome outcome, const char *what, const char *const *words)
{
    const char *at = outcome.out;
    if (outcome.status != status) {
        fail_msg("%s: status %d, not %d: %s%s", what, outcome.status, status, outcome.out, outcome.err);
    }
    for (; *words != NULL; words++) {
        bool is_wanted = **words != '!';
        const char *word = is_wanted ? *words : *words + 1, *found = strstr(is_wanted ? at : outcome.out, word);
        if (is_wanted && found != NULL) {
            at = found + strlen(word);
        } else if (is_wanted != (strstr(outcome.err, word) != NULL) || found != NULL) {
            fail_msg("%s: '%s' is %s: %s%s", what, word, is_wanted ? "not there" : "there", outcome.out, outcome.err);
        }
    }
    if (status == 2) {
        command_refused(outcome, what, "");
        return;
    }
    command_outcome_free(&outcome);
}
