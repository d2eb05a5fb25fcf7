/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of the `varve` command: a folder of their own, databases made by hand from trace/store/schema.sql and
 * trace/store/views.sql, and command lines run within the test's process, with what they wrote.
 */
#ifndef VARVE_TESTS_SUPPORT_COMMAND_H
#define VARVE_TESTS_SUPPORT_COMMAND_H

#include <stddef.h>

struct command_outcome {
    int status;
    char *out, *err;
};

/// Make a folder below TMPDIR and go there; test_folder_leave removes it with all that is in it.
/// Owner of the path: the caller, until test_folder_leave.
char *test_folder_enter(void);
void test_folder_leave(char *folder);
/// The same for a group of tests; with small.db there.
int test_folder_setup(void **state);
int test_folder_small_setup(void **state);
int test_folder_teardown(void **state);

/// An empty trace database: schema, views, event kinds and causes, identity. Then run `scripts` (files below
/// tests/golden/, NULL at the end).
void trace_database_make(const char *path, const char *const *scripts);
/// Run SQL on any database, which must succeed.
void sql_run(const char *path, const char *sql);

/// Run `varve ARGUMENTS…` (NULL at the end). Owner of the texts: the outcome, until command_outcome_free.
struct command_outcome command_run(const char *first, ...) __attribute__((sentinel));
struct command_outcome command_run_list(const char *const *arguments);
/// `varve LINE`: words separated by blanks; one that has some stands in backquotes.
struct command_outcome command_run_line(const char *line);
void command_outcome_free(struct command_outcome *outcome);
/// What such a line prints, with status 0 and nothing on standard error. Owner: the caller, by free.
char *command_answer(const char *line);
/// Status 2, nothing printed, and one line of reason (a usage line may follow), with `word` in it. Frees the outcome.
void command_refused(struct command_outcome outcome, const char *what, const char *word);

/// Such a line ends with that status and says the words, one behind the other; "!word" is not said at all. 2 is a
/// refusal: see command_refused.
#define EXPECT(status, line, ...) \
    command_expect(status, command_run_line(line), line, (const char *const[]){__VA_ARGS__, NULL})
/// Frees the outcome.
void command_expect(int status, struct command_outcome outcome, const char *what, const char *const *words);

/// How often the text has the word in it.
size_t text_count(const char *text, const char *word);

/// Contents of a file with a NUL at the end; fails the test if there is none. Owner: the caller, by free.
char *file_read(const char *path, size_t *bytes_out);
void file_write(const char *path, const void *data, size_t bytes);

#endif
