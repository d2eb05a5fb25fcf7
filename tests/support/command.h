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
    char *out;
    char *err;
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
void command_outcome_free(struct command_outcome *outcome);
/// Status 2, nothing printed, and one line of reason (a usage line may follow), with `word` in it. Frees the outcome.
void command_refused(struct command_outcome outcome, const char *what, const char *word);

/// Contents of a file with a NUL at the end; fails the test if there is none. Owner: the caller, by free.
char *file_read(const char *path, size_t *bytes_out);
void file_write(const char *path, const void *data, size_t bytes);

#endif
