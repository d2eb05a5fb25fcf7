/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the `varve` command share, grouped by file. One thread calls all of it.
 *
 *   main.c ─► command.c (table, options, help) ─► command_*.c ─► report_*.c, callsite_*.c, …
 *                                                      └─► query/db.c (SQLite) ─► views of the database
 *
 * Errors: int, 0 or a negative enum varve_error, with the reason in a struct varve_message; a command turns
 * them into one line and exit status 2. Out of memory ends the process (memory_resize), since no command
 * could go on.
 */
#ifndef VARVE_ANALYSIS_CLI_CLI_H
#define VARVE_ANALYSIS_CLI_CLI_H

#include "trace/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EXIT_STATUS_FAILED 2

/* ---- command.c: the table of sub-commands ---- */

enum option_kind {
    OPTION_END = 0,
    OPTION_FLAG,    /* bool */
    OPTION_INTEGER, /* int64_t within min…max */
    OPTION_TEXT,    /* const char *, borrowed from argv */
    OPTION_BYTES,   /* int64_t; suffixes K, M, G */
    OPTION_SECONDS, /* int64_t in ns; decimals allowed */
    OPTION_CHOICE,  /* int: index into choices */
    OPTION_MODE,    /* int: 1 for --name, 2 + index into choices for --name=choice */
    OPTION_ABSENT,  /* known, but not in this build: help says what is missing */
};

struct option_spec {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    enum option_kind kind;
    const char *argument; /* name of its value in the help text; NULL for a flag */
    const char *help;
    size_t offset; /* of its field in the command's values */
    int64_t min, max;
    const char *const *choices; /* ends with NULL */
};

#define OPTION_HELP_RESULT 1 /* options_parse: --help was asked for */
#define OPERANDS_MAX 8

struct operands {
    int count;
    const char *items[OPERANDS_MAX];
    int64_t timeout_ns; /* --timeout: of a command that reads databases */
    char *const *rest;  /* of a command that takes another command line: that one, NULL at its end */
};

struct command_context {
    FILE *out; /* of commands that do not stream: without control characters in the end, unless is_exact */
    FILE *err;
    const char *name;     /* of the sub-command, for messages */
    bool err_is_terminal; /* progress may be drawn */
    bool is_exact;        /* the answer is for programs, byte by byte: CSV */
};

/* A sub-command: what it is called with, what its help says, and the function that does it. */
struct command {
    const char *name;
    const char *arguments; /* after the options, in the usage line */
    const char *summary;   /* one line of `varve help` */
    const char *purpose;   /* paragraphs of `varve help NAME` */
    const char *examples;
    const struct option_spec *options;
    const void *defaults; /* of the values, copied before the command line is read */
    size_t values_bytes;
    int operands_min, operands_max;
    bool takes_command;  /* operands are another command line: options end at the first */
    bool reads_database; /* takes --timeout */
    bool streams; /* writes as it goes, and filters itself; all others write at the end, or nothing on failure
                   */
    int (*run)(struct command_context *context, const void *values, const struct operands *operands);
};

extern const struct command *const command_table[]; /* ends with NULL */

const struct command *command_find(const char *name);
/// Print "varve NAME: message" to context->err and return EXIT_STATUS_FAILED.
int command_fail(struct command_context *context, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/// fprintf of what may have names from elsewhere in it, to a stream that nobody filters: not the context's
/// `out`.
void command_say(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

extern const struct command command_record;
extern const struct command command_recover;
extern const struct command command_import;
extern const struct command command_export;
extern const struct command command_replay;
extern const struct command command_info;
extern const struct command command_report;
extern const struct command command_query;
extern const struct command command_diff;
extern const struct command command_leaks;
extern const struct command command_peak;
extern const struct command command_timeline;
extern const struct command command_segments;
extern const struct command command_oom;
extern const struct command command_doctor;
extern const struct command command_help;

/* ---- options.c, help.c ---- */

/// Read a command line (without the command's name). Returns OPTION_HELP_RESULT, 0 or VARVE_ERROR_INVALID.
int options_parse(const struct command *command, int argc, char *const argv[], void *values,
                  struct operands *operands, struct varve_message *message);
/// The nearest of `names` (ends with NULL), or NULL if none is near.
const char *option_suggest(const char *word, const char *const *names);

/// Options that this command has in common with others, whose values are in `operands`; ends with OPTION_END.
const struct option_spec *options_common(const struct command *command);

void help_print(FILE *out);
void help_print_command(FILE *out, const struct command *command);

/* ---- output/format.c: figures and names for people; every result lives until the end of the full expression ----
 */

struct format_text {
    char text[48];
};

struct format_text format_count(int64_t number);              /* 1,234,567 */
struct format_text format_bytes(int64_t bytes);               /* 1.21 MiB */
struct format_text format_bytes_exact(int64_t bytes);         /* 1.21 MiB (1,268,000) */
struct format_text format_duration(int64_t ns);               /* 1.5 ms; "-" if negative */
struct format_text format_share(int64_t part, int64_t whole); /* 12.3 %; "-" of nothing */
struct format_text format_time_utc(int64_t seconds);          /* 2026-05-01 09:30:00 UTC */
/// Columns that UTF-8 text takes on a terminal (one for each code point).
size_t format_width(const char *text);
/// Copy without control characters and malformed UTF-8, at most `columns` wide; what is cut at the front
/// becomes "…".
void format_tail(char *buffer, size_t buffer_bytes, const char *text, size_t columns);
/// The same, cut at the end.
void format_head(char *buffer, size_t buffer_bytes, const char *text, size_t columns);
/// Print without control characters and malformed UTF-8, so that a file name can't drive the terminal.
void format_print_safe(FILE *out, const char *text);
/// The same for a whole answer: ends of lines stay.
void format_print_lines(FILE *out, const char *text);

/* ---- output/table.c: memory, tables and CSV; output/json.c ---- */

/// Ends the process with one line and status 2.
void memory_exhausted(void) __attribute__((noreturn));
/// The work is done, and only words about it may still fail: after the line `end` ends the process as the
/// work has.
void memory_exhausted_then(void (*end)(void));
/// realloc that does not fail: see memory_exhausted.
void *memory_resize(void *memory, size_t bytes);
char *memory_copy_text(const char *text); /* NULL gives NULL */

char *hexadecimal(const char *bytes, size_t count); /* owner: the caller, by free */

struct table_column {
    const char *title;
    bool is_right; /* aligned to the right: numbers */
};

struct table {
    const struct table_column *columns;
    size_t column_count;
    size_t *widths;
    char **cells; /* row after row */
    size_t cell_count, cell_capacity;
    const char *indent;
};

void table_init(struct table *table, const struct table_column *columns, size_t column_count);
void table_add(struct table *table, const char *text); /* copied; the next cell of the row */
/// Print what was added since the last call (with titles if asked) and empty the table; widths only grow.
void table_print(struct table *table, FILE *out, bool with_titles);
void table_free(struct table *table);

void csv_text(FILE *out, const char *text, size_t bytes); /* quoted where RFC 4180 wants it */

struct cJSON;
struct value;

/* JSON of all commands: one line. Text that is not UTF-8 gets U+FFFD; integers keep all 64 bits. */
struct cJSON *json_object(void);
struct cJSON *json_array(void);
struct cJSON *json_text_value(const char *text, size_t bytes);
struct cJSON *json_integer_value(int64_t number);
struct cJSON *json_real_value(double number);
struct cJSON *json_null_value(void);
struct cJSON *json_value(const struct value *value); /* of a blob: its bytes in hexadecimal */
void json_text(struct cJSON *object, const char *key, const char *text); /* NULL is null */
void json_integer(struct cJSON *object, const char *key, int64_t number);
void json_integer_or_null(struct cJSON *object, const char *key, int64_t number); /* < 0 is null */
void json_bool(struct cJSON *object, const char *key, bool value);
void json_real(struct cJSON *object, const char *key, double value);
void json_add(struct cJSON *object, const char *key, struct cJSON *value); /* takes `value` */
void json_append(struct cJSON *array, struct cJSON *value);                /* takes `value` */
void json_print(struct cJSON *value, FILE *out);                           /* frees `value` */

/* ---- output/progress.c: one line on a terminal ---- */

struct database;

struct progress {
    FILE *out;
    bool is_on;
    bool is_drawn;
    int64_t begin_ns;
    int64_t drawn_ns;
    const char *watched; /* what progress_watch says */
};

void progress_begin(struct progress *progress, const struct command_context *context, bool quiet);
/// varve_collect_progress; `context` is a struct progress.
void progress_step(void *context, const char *stage, uint64_t done, uint64_t total);
void progress_end(struct progress *progress);
/// Say `what` while SQLite works on `database`, which must not outlive `progress`.
void progress_watch(struct progress *progress, struct database *database, const char *what);

/* ---- query/database_file.c: what a file is, before SQLite touches it ---- */

struct database_file {
    bool is_wal; /* left in WAL mode, or with a log beside it that is of no use: must be read as immutable */
};

/// Errors, each with one line that says what to do: VARVE_ERROR_NOT_FOUND, PERMISSION, FORMAT (a directory,
/// no database, another tool's), VERSION (newer schema), CORRUPT (truncated), BUSY (incomplete or being
/// recorded).
int database_file_check(const char *path, struct database_file *file_out, struct varve_message *message);

/* ---- query/db.c: the only file with SQLite; reads, never writes ---- */

#define DATABASE_TIMEOUT_NS INT64_C(60000000000)

struct sqlite3_stmt;

enum database_use {
    DATABASE_ANY,     /* also a recording that was cut off before its totals were made */
    DATABASE_DERIVED, /* complete ones only: totals and call sites are there */
};

int database_open(const char *path, enum database_use use, struct database **database_out,
                  struct varve_message *message);
/// How long SQLite may compute for each database that is opened from now on, by the clock of the thread; 0:
/// as long as it wants. Cursors end with an error then. At first DATABASE_TIMEOUT_NS.
void database_set_timeout(int64_t ns);
void database_close(struct database *database);
bool database_is_complete(const struct database *database);
const char *database_path(const struct database *database);
int64_t database_schema_version(struct database *database);
/// The first error of any cursor since it was opened, or 0. Cursors just end on an error: ask before
/// printing.
int database_error(const struct database *database, struct varve_message *message);
/// Called now and then while SQLite works.
void database_on_progress(struct database *database, void (*step)(void *context), void *context);
/// Text of a row of `meta`, NULL if there is none. Owner: the caller, by free.
char *database_meta(struct database *database, const char *key);

struct cursor {
    struct database *database;
    struct sqlite3_stmt *statement; /* NULL after an error */
    bool is_user;                   /* errors are the user's, not the file's */
};

/// `sql`: one of our own statements, over the views. Binding begins at 1.
void cursor_open(struct cursor *cursor, struct database *database, const char *sql);
void cursor_bind_integer(struct cursor *cursor, int index, int64_t value);
void cursor_bind_text(struct cursor *cursor, int index, const char *value); /* NULL is NULL; not copied */
bool cursor_next(struct cursor *cursor);                    /* false at the end and on an error */
int64_t cursor_integer(struct cursor *cursor, int column);  /* of NULL: 0 */
const char *cursor_text(struct cursor *cursor, int column); /* NULL if NULL; until the next cursor_next */
const char *cursor_name(struct cursor *cursor, int column); /* "" if NULL: a damaged file has that anywhere */
bool cursor_is_null(struct cursor *cursor, int column);
void cursor_close(struct cursor *cursor);
/// One figure: column 0 of the first row, or `otherwise` if there is none or it is NULL.
int64_t database_integer(struct database *database, const char *sql, int64_t otherwise);

/// One more than the largest number of numbered rows, for an array by number; `sql` gives the largest and how
/// many there are. Of a file whose numbers have impossible gaps less: what is not below it must be left out.
int64_t database_number_limit(struct database *database, const char *sql);

enum value_type {
    VALUE_NULL,
    VALUE_INTEGER,
    VALUE_REAL,
    VALUE_TEXT,
    VALUE_BLOB,
};

struct value {
    enum value_type type;
    int64_t integer;
    double real;
    const char *text; /* text, or the bytes of a blob; also the text of a number; until the next row */
    size_t bytes;
};

/// Compile the next statement of a user's SQL at `*sql` and move `*sql` behind it. cursor->statement is NULL
/// when there is nothing but space and comments left. Errors: VARVE_ERROR_PERMISSION (it would write),
/// VARVE_ERROR_INVALID (SQL is wrong), with one line.
int cursor_open_user(struct cursor *cursor, struct database *database, const char **sql,
                     struct varve_message *message);
int cursor_column_count(struct cursor *cursor);
const char *cursor_column_name(struct cursor *cursor, int column);
struct value cursor_value(struct cursor *cursor, int column);
const char *database_library_version(void);

/* ---- component_find.c ---- */

/* What a recorded program loads of this installation. */
enum component {
    COMPONENT_PRELOAD,           /* libvarve_preload.so */
    COMPONENT_PROVIDER,          /* libvarve_lttng.so: absent if varve was built without LTTng */
    COMPONENT_CUPTI,             /* libvarve-cupti.so */
    COMPONENT_TORCH,             /* libvarve-torch.so */
    COMPONENT_REPLACE,           /* libvarve-replace.so */
    COMPONENT_PYTHON,            /* sitecustomize.py, in its folder */
    COMPONENT_BABELTRACE_PLUGIN, /* babeltrace-plugin-varve.so: absent if varve was built without babeltrace2 */
};

/// Path of a component; false if it is not there: then where it should be.
bool component_find(enum component component, char *buffer, size_t buffer_bytes);

#ifdef __cplusplus
}
#endif

#endif
