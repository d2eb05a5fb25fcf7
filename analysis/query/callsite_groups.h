/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites put together by what --by names (the user's line by default), added up, and ranked. Figures come from the
 * totals of the call sites or from the allocations (groups_load), or from whoever has others: groups_open, groups_add
 * for each call site, then groups_rank as often as there are rankings, whose lists callsite_query.h prints. Everything
 * is read once, however many rankings follow. Loading ends early on a database error: see database_error.
 */
#ifndef VARVE_ANALYSIS_QUERY_CALLSITE_GROUPS_H
#define VARVE_ANALYSIS_QUERY_CALLSITE_GROUPS_H

#include "analysis/query/line_together.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
