/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of call sites as text, JSON and CSV: what report, leaks and peak show. callsite_query.h makes them. As text an
 * entry is a line, which begins with the user's line, and its stack in a line more; with frames asked for it has these
 * instead.
 */
#ifndef VARVE_ANALYSIS_QUERY_CALLSITE_QUERY_H
#define VARVE_ANALYSIS_QUERY_CALLSITE_QUERY_H

#include "analysis/query/line_together.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * Call sites put together by what --by names (the user's line by default), added up, and ranked. Figures come from the
 * totals of the call sites or from the allocations (groups_load), or from whoever has others: groups_open, groups_add
 * for each call site, then groups_rank as often as there are rankings, whose lists callsite_query.h prints. Everything
 * is read once, however many rankings follow. Loading ends early on a database error: see database_error.
 */

struct database;
struct groups;
struct varve_message;

/* What an entry of a list is. */
enum group_by {
    GROUP_BY_LINE,     /* the user's line: callsite.user_symbol_id */
    GROUP_BY_FUNCTION, /* the function of that line, in its file and module */
    GROUP_BY_STACK,    /* each call site by itself */
    GROUP_BY_MODULE,   /* the shared object or the Python file of that line */
    GROUP_BY_PROCESS,
    GROUP_BY_THREAD,
    GROUP_BY_SIZE, /* up to a power of two */
    GROUP_BY_COUNT,
};

extern const char *const group_by_names[]; /* of an OPTION_CHOICE: ends with NULL */
#define GROUP_BY_HELP "entries are lines (default), functions, whole stacks, modules, processes, threads or sizes"

enum callsite_rank {
    CALLSITE_BY_PEAK,      /* bytes live at the peak of the domain */
    CALLSITE_BY_BYTES,     /* bytes allocated in all */
    CALLSITE_BY_COUNT,     /* allocations */
    CALLSITE_BY_LIFETIME,  /* mean lifetime, of those with at least 1 % of the bytes */
    CALLSITE_BY_TEMPORARY, /* temporary allocations */
    CALLSITE_BY_LIVE,      /* bytes live at the end */
    CALLSITE_RANK_COUNT,
};

struct group_figures {
    int64_t allocations, frees, bytes, live_allocations, live_bytes, peak_allocations, peak_bytes, temporary;
    int64_t lifetime_ns; /* of the freed ones, added up */
};

/* A function in a line; texts are the owner's, NULL if unknown. */
struct group_location {
    char *function, *file, *module;
    int64_t line;
    bool is_python;
};

/* An entry of a list. */
struct callsite_row {
    int64_t id;        /* of the call site that has most of the ranking's figure: its stack stands for all; 0: none */
    int64_t callsites; /* that were put together */
    int64_t key;       /* by process and thread: the row of that table; by size: bytes of the largest; else 0 */
    struct group_figures figures;
    struct group_location user;      /* the user's line; by function without line, by module with the module only */
    struct group_location innermost; /* of call site `id`: its innermost frame that is no allocation function */
    char *name;                      /* by process, thread and size: in words; else NULL */
    struct together together;        /* of the ranking, by line of the heap or of Python; else TOGETHER_NONE */
};

struct callsite_list {
    struct callsite_row *rows;
    size_t count;
    enum group_by by;
    bool has_together;                  /* there are lines in the heap and in Python's memory */
    int64_t count_all;                  /* entries that a list without limit would have */
    int64_t callsites_all;              /* call sites in these */
    int64_t sum_bytes, sum_allocations; /* over all of them, of the figures that the ranking is about */
};

struct groups *groups_open(struct database *database, enum group_by by);
void groups_close(struct groups *groups);
/// Add figures of a call site (0: no stack was recorded) to its group. `key` is that of struct callsite_row, and is not
/// looked at where entries are made of call sites.
void groups_add(struct groups *groups, int64_t callsite_id, int64_t key, const struct group_figures *figures);
/// The class of a size in bytes: `key` by size.
int64_t groups_size_key(int64_t bytes);
/// All of a domain, of all processes together. Reads the totals of the call sites where they suffice, else
/// the allocations.
void groups_load(struct groups *groups, const char *domain);
/// What one process had live in a domain at its own peak, of several devices at that of each: figures of the peak only.
/// Reads the allocations themselves: takes its time.
void groups_load_process(struct groups *groups, const char *domain, int64_t process_id);
/// VARVE_ERROR_UNSUPPORTED, with what is missing: `by` needs rows of allocations that the recording did not keep.
int groups_check(struct database *database, enum group_by by, struct varve_message *message);
/// The same for anything else that needs them: `what`, as it begins the reason.
int groups_check_allocations(struct database *database, const char *what, struct varve_message *message);
/// The first `top` groups by a figure. Owner: the caller, by callsite_list_free.
void groups_rank(struct groups *groups, enum callsite_rank rank, int64_t top, struct callsite_list *list);
void callsite_list_free(struct callsite_list *list);

/// The two figures that a ranking is about.
int64_t callsite_rank_bytes(const struct group_figures *figures, enum callsite_rank rank);
int64_t callsite_rank_allocations(const struct group_figures *figures, enum callsite_rank rank);
/// What the entries of a list are called: "line", "lines".
const char *group_by_noun(enum group_by by, int64_t count);
int64_t group_mean_lifetime_ns(const struct group_figures *figures); /* -1: none was freed */

/// Where the call site row->id is; nothing if it is not known.
void callsite_location_load(struct callsite_row *row, struct database *database);
void callsite_location_free(struct callsite_row *row);

struct cJSON;

struct callsite_rank_info {
    const char *key;   /* in JSON */
    const char *title; /* in the report with --all */
};

const struct callsite_rank_info *callsite_rank_info(enum callsite_rank rank);

struct callsite_options {
    int64_t frames; /* per stack; < 0: as text the stack in a line, as JSON all; 0: none */
    int64_t stacks; /* how many entries of a list get their stack as text; < 0: all */
    bool is_all;    /* exact figures, numbers of the call sites, whole stacks */
};

/* Call sites whose stack was printed: later lists do not repeat it. */
struct callsite_shown {
    int64_t *ids;
    size_t count, capacity;
};

void callsite_shown_free(struct callsite_shown *shown);
/// The first `frames` frames of its stack; of 0 the call site itself.
void callsite_stack_print(FILE *out, struct database *database, const struct callsite_row *row, int64_t frames);
/// Shares are of the sums of the list. shown: NULL where no other list follows.
void callsite_list_print(FILE *out, struct database *database, const struct callsite_list *list,
                         enum callsite_rank rank, const struct callsite_options *options, struct callsite_shown *shown);
/// "5 of 12 lines", or "12 lines"; and how many call sites are in these where they are not the same.
void callsite_list_extent(FILE *out, const struct callsite_list *list);
/// An array; each entry has bytes and allocations of the ranking, or, with_totals, every figure of the call
/// site.
struct cJSON *callsite_list_json(struct database *database, const struct callsite_list *list, enum callsite_rank rank,
                                 const struct callsite_options *options, bool with_totals);
/// Members of an entry: where the user's line is, and the innermost frame.
void callsite_location_json(struct cJSON *object, const struct callsite_row *row);
/// One of the two: its members, with a prefix of at most 8 letters.
void group_location_json(struct cJSON *object, const char *prefix, const struct group_location *location);
/// function,file,line,module: fields of a line of CSV.
void callsite_location_csv(FILE *out, const struct group_location *location);
void callsite_list_csv(FILE *out, const struct callsite_list *list, enum callsite_rank rank, const char *domain);
/// What an entry of a list by `by` is about, at most `columns` wide: the user's line, a module, a process. Owner: the
/// caller, by free.
char *callsite_entry_name(const struct callsite_row *row, enum group_by by, size_t columns);

/* The frames of a call site, and their printing as text and JSON. Loading ends early on a database error. */

struct stack_frame {
    int64_t depth, line, pc; /* pc -1: Python */
    char *function, *file, *module;
    bool is_python, is_inlined;
    int64_t rank; /* enum varve_frame_rank: how near to what a user wrote */
};

struct stack {
    struct stack_frame *frames; /* innermost first */
    size_t count;
};

void stack_load(struct stack *stack, struct database *database, int64_t callsite_id);
void stack_free(struct stack *stack);
/// At most `limit` frames that say something: from the call site's own frame outwards, without the start-up
/// code. Unresolved frames of one module are one line, with the address of the first.
void stack_print(FILE *out, const struct stack *stack, const struct callsite_row *row, int64_t limit);
/// Each frame in a line of its own, with its address where it is unresolved.
void stack_print_all(FILE *out, const struct stack *stack);
/// A line: two callers of the user's line, that line's function, and the innermost frame; fewer callers where these
/// would have to be cut to a few letters. Nothing where there is no more than the user's line.
void stack_print_chain(FILE *out, const struct stack *stack, const struct callsite_row *row);
/// The frames of a call site, the innermost first. limit < 0: all.
struct cJSON *stack_json(struct database *database, int64_t callsite_id, int64_t limit);

#endif
