/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups are found by a number: the symbol of the user's line, the call site, the process, the thread or the size
 * class. By function and by module, symbols of equal texts share a group. One pass over the totals of the call sites
 * adds everything up here rather than in SQL, which would sort a million rows once per list; names are read for the few
 * groups that a ranking shows.
 */
#include "analysis/query/callsite_query.h"

#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "base/error.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const group_by_names[] = {"line", "function", "stack", "module", "process", "thread", "size", NULL};

/* Figures of which a group remembers the call site that has most. */
enum best {
    BEST_BYTES,
    BEST_PEAK,
    BEST_TEMPORARY,
    BEST_LIVE,
    BEST_COUNT,
};

struct group {
    int64_t key; /* symbol, call site, process, thread or size */
    int64_t callsites;
    struct group_figures figures;
    struct {
        int64_t figure, callsite_id;
    } best[BEST_COUNT];
};

struct groups {
    struct database *database;
    enum group_by by;
    struct group *items;
    size_t count, capacity;
    struct map found;                       /* number to index */
    struct map interned;                    /* by function, by module: hash of the texts to index */
    struct group_location *locations;       /* by function, by module: of each group */
    int64_t callsites[CALLSITE_RANK_COUNT]; /* with a figure of the ranking */
    uint32_t *user_symbol;                  /* of each call site, once they were read */
    int64_t user_symbol_limit;
    struct together_lines *together; /* by line of the heap or of Python, if there are any */
};

static bool is_of_lines(enum group_by by)
{
    return by == GROUP_BY_LINE || by == GROUP_BY_FUNCTION || by == GROUP_BY_MODULE;
}

struct groups *groups_open(struct database *database, enum group_by by)
{
    struct groups *groups = memory_resize(NULL, sizeof(*groups));
    *groups = (struct groups){.database = database, .by = by};
    return groups;
}

static void free_location(struct group_location *location)
{
    free(location->function);
    free(location->file);
    free(location->module);
    *location = (struct group_location){0};
}

void groups_close(struct groups *groups)
{
    if (groups->locations != NULL) {
        for (size_t i = 0; i < groups->count; i++) {
            free_location(&groups->locations[i]);
        }
    }
    together_free(groups->together);
    free(groups->locations);
    free(groups->items);
    free(groups->user_symbol);
    map_free(&groups->found);
    map_free(&groups->interned);
    free(groups);
}

/* ---- where a call site is ---- */

static void read_location(struct group_location *location, struct cursor *cursor, int column)
{
    *location = (struct group_location){
        .function = memory_copy_text(cursor_text(cursor, column)),
        .file = memory_copy_text(cursor_text(cursor, column + 1)),
        .line = cursor_integer(cursor, column + 2),
        .module = memory_copy_text(cursor_text(cursor, column + 3)),
        .is_python = cursor_integer(cursor, column + 4) != 0,
    };
}

void callsite_location_load(struct callsite_row *row, struct database *database)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql_symbols_of_callsite);
    cursor_bind_integer(&cursor, 1, row->id);
    if (cursor_next(&cursor)) {
        free_location(&row->user);
        free_location(&row->innermost);
        read_location(&row->user, &cursor, 0);
        read_location(&row->innermost, &cursor, 5);
    }
    cursor_close(&cursor);
}

void callsite_location_free(struct callsite_row *row)
{
    free_location(&row->user);
    free_location(&row->innermost);
    free(row->name);
}

static void load_symbol(struct group_location *location, struct database *database, int64_t symbol_id)
{
    *location = (struct group_location){0};
    struct cursor cursor;
    cursor_open(&cursor, database, sql_symbol);
    cursor_bind_integer(&cursor, 1, symbol_id);
    if (cursor_next(&cursor)) {
        read_location(location, &cursor, 0);
    }
    cursor_close(&cursor);
}

static void load_user_symbols(struct groups *groups)
{
    int64_t limit = database_number_limit(groups->database, "callsite");
    groups->user_symbol_limit = limit;
    groups->user_symbol = memory_resize(NULL, (size_t)limit * sizeof(groups->user_symbol[0]));
    memset(groups->user_symbol, 0, (size_t)limit * sizeof(groups->user_symbol[0]));
    struct cursor cursor;
    cursor_open(&cursor, groups->database, "SELECT id, coalesce(user_symbol_id, symbol_id) FROM callsite");
    while (cursor_next(&cursor)) {
        int64_t id = cursor_integer(&cursor, 0);
        int64_t symbol = cursor_integer(&cursor, 1);
        if (id > 0 && id < limit && symbol > 0 && symbol <= UINT32_MAX) {
            groups->user_symbol[id] = (uint32_t)symbol;
        }
    }
    cursor_close(&cursor);
}

/* ---- adding up ---- */

static size_t new_group(struct groups *groups, int64_t key)
{
    size_t capacity = groups->capacity;
    groups->items = memory_grow(groups->items, &groups->capacity, groups->count, sizeof(groups->items[0]));
    if ((groups->by == GROUP_BY_FUNCTION || groups->by == GROUP_BY_MODULE) && capacity != groups->capacity) {
        groups->locations = memory_resize(groups->locations, groups->capacity * sizeof(groups->locations[0]));
    }
    groups->items[groups->count] = (struct group){.key = key};
    return groups->count++;
}

static bool callsite_groups_same_location(const struct group_location *a, const struct group_location *b)
{
    return a->is_python == b->is_python && memory_same_text(a->function, b->function) &&
           memory_same_text(a->file, b->file) && memory_same_text(a->module, b->module);
}

static uint64_t hash_text(const char *text, uint64_t seed)
{
    return map_hash(text != NULL ? text : "", text != NULL ? strlen(text) + 1 : 0) ^
           (seed * UINT64_C(0x9e3779b97f4a7c15));
}

/* What of a symbol makes its group; the rest is dropped. */
static void reduce_location(struct group_location *location, enum group_by by)
{
    location->line = 0;
    if (by == GROUP_BY_MODULE) {
        free(location->function);
        location->function = NULL;
        if (location->is_python) { /* the module of Python code is its file */
            free(location->module);
            location->module = location->file;
        } else {
            free(location->file);
        }
        location->file = NULL;
    }
}

/* The group of a symbol by its texts. */
static size_t callsite_groups_intern(struct groups *groups, int64_t symbol_id)
{
    struct group_location location;
    load_symbol(&location, groups->database, symbol_id);
    reduce_location(&location, groups->by);
    uint64_t key =
        hash_text(location.function, hash_text(location.file, hash_text(location.module, location.is_python ? 2 : 1)));
    for (;; key++) {
        uint64_t index = map_find(&groups->interned, key);
        if (index == MAP_NONE) {
            size_t made = new_group(groups, symbol_id);
            groups->locations[made] = location;
            map_put(&groups->interned, key, made);
            return made;
        }
        if (callsite_groups_same_location(&groups->locations[index], &location)) {
            free_location(&location);
            return index;
        }
    }
}

static struct group *find_group(struct groups *groups, int64_t number)
{
    uint64_t found = map_find(&groups->found, (uint64_t)number);
    if (found != MAP_NONE) {
        return &groups->items[found];
    }
    size_t index = groups->by == GROUP_BY_FUNCTION || groups->by == GROUP_BY_MODULE
                       ? callsite_groups_intern(groups, number)
                       : new_group(groups, number);
    map_put(&groups->found, (uint64_t)number, index);
    return &groups->items[index];
}

static void callsite_groups_add_figures(struct group_figures *to, const struct group_figures *from)
{
    /* unsigned, as a damaged file may hold any numbers */
    const int64_t *const source = &from->allocations;
    int64_t *const target = &to->allocations;
    for (size_t i = 0; i < sizeof(*to) / sizeof(int64_t); i++) {
        target[i] = (int64_t)((uint64_t)target[i] + (uint64_t)source[i]);
    }
}

_Static_assert(sizeof(struct group_figures) == 9 * sizeof(int64_t), "add_figures takes them as an array");

static void remember_best(struct group *group, enum best best, int64_t figure, int64_t callsite_id)
{
    if (callsite_id > 0 && (group->best[best].callsite_id == 0 || figure > group->best[best].figure)) {
        group->best[best].figure = figure;
        group->best[best].callsite_id = callsite_id;
    }
}

int64_t groups_size_key(int64_t bytes)
{
    if (bytes <= 0) {
        return 0;
    }
    int64_t largest = 1;
    while (largest < bytes && largest <= INT64_MAX / 2) {
        largest *= 2;
    }
    return largest;
}

void groups_add(struct groups *groups, int64_t callsite_id, int64_t key, const struct group_figures *figures)
{
    if (is_of_lines(groups->by)) {
        if (groups->user_symbol == NULL) {
            load_user_symbols(groups);
        }
        key = callsite_id > 0 && callsite_id < groups->user_symbol_limit ? groups->user_symbol[callsite_id] : 0;
    } else if (groups->by == GROUP_BY_STACK) {
        key = callsite_id;
    }
    struct group *group = find_group(groups, key > 0 ? key : 0); /* a damaged file may have any */
    callsite_groups_add_figures(&group->figures, figures);
    remember_best(group, BEST_BYTES, figures->bytes, callsite_id);
    remember_best(group, BEST_PEAK, figures->peak_bytes, callsite_id);
    remember_best(group, BEST_TEMPORARY, figures->temporary, callsite_id);
    remember_best(group, BEST_LIVE, figures->live_bytes, callsite_id);
    if (callsite_id >= 0) {
        group->callsites++;
        groups->callsites[CALLSITE_BY_BYTES] += figures->allocations > 0 ? 1 : 0;
        groups->callsites[CALLSITE_BY_COUNT] += figures->allocations > 0 ? 1 : 0;
        groups->callsites[CALLSITE_BY_PEAK] += figures->peak_allocations > 0 ? 1 : 0;
        groups->callsites[CALLSITE_BY_TEMPORARY] += figures->temporary > 0 ? 1 : 0;
        groups->callsites[CALLSITE_BY_LIVE] += figures->live_allocations > 0 ? 1 : 0;
    }
}

/* ---- figures of a database ---- */

#define FIGURE_COUNT ((int)(sizeof(struct group_figures) / sizeof(int64_t)))

/* Columns 1 and on, in the order of the struct. */
static void callsite_groups_read_figures(struct group_figures *figures, struct cursor *cursor)
{
    int64_t *const to = &figures->allocations;
    for (int i = 0; i < FIGURE_COUNT; i++) {
        to[i] = cursor_integer(cursor, i + 1);
    }
}

static void load_totals(struct groups *groups, const char *domain)
{
    struct cursor cursor;
    cursor_open(&cursor, groups->database, sql_groups_of_all);
    cursor_bind_text(&cursor, 1, domain);
    while (cursor_next(&cursor)) {
        struct group_figures figures;
        callsite_groups_read_figures(&figures, &cursor);
        groups_add(groups, cursor_integer(&cursor, 0), 0, &figures);
    }
    cursor_close(&cursor);
}

#define DEVICES_MAX 1024

/* When most was live on each device, of all processes together. */
static void load_peaks(int64_t *peak_seq, struct database *database, const char *domain)
{
    for (int i = 0; i < DEVICES_MAX; i++) {
        peak_seq[i] = -1;
    }
    struct cursor cursor;
    cursor_open(&cursor, database, sql_groups_peaks);
    cursor_bind_text(&cursor, 1, domain);
    while (cursor_next(&cursor)) {
        int64_t device = cursor_integer(&cursor, 0);
        if (device >= 0 && device < DEVICES_MAX) {
            peak_seq[device] = cursor_integer(&cursor, 1);
        }
    }
    cursor_close(&cursor);
}

/* A call site that several processes used has a row for each of them. */
static void callsite_groups_load_processes(struct groups *groups, const char *domain)
{
    struct cursor cursor;
    cursor_open(&cursor, groups->database, sql_groups_by_process);
    cursor_bind_text(&cursor, 1, domain);
    while (cursor_next(&cursor)) {
        struct group_figures figures;
        callsite_groups_read_figures(&figures, &cursor);
        groups_add(groups, cursor_integer(&cursor, 0), cursor_integer(&cursor, FIGURE_COUNT + 1), &figures);
    }
    cursor_close(&cursor);
}

/* Each allocation by itself, which has no call site then: a group has too many of them to say which one it is about. */
static void load_allocations(struct groups *groups, const char *domain)
{
    int64_t *peaks = memory_resize(NULL, DEVICES_MAX * sizeof(*peaks));
    load_peaks(peaks, groups->database, domain);
    struct cursor cursor;
    cursor_open(&cursor, groups->database, sql_groups_allocations);
    cursor_bind_text(&cursor, 1, domain);
    while (cursor_next(&cursor)) {
        int64_t size = cursor_integer(&cursor, 1);
        bool is_freed = !cursor_is_null(&cursor, 3);
        bool is_left = cursor_integer(&cursor, 7) != 0;
        int64_t alloc_seq = cursor_integer(&cursor, 5);
        int64_t device = cursor_integer(&cursor, 6);
        int64_t peak_seq = device >= 0 && device < DEVICES_MAX ? peaks[device] : -1;
        bool is_at_peak = alloc_seq <= peak_seq && (!is_freed || (uint64_t)peak_seq - (uint64_t)alloc_seq <
                                                                     (uint64_t)cursor_integer(&cursor, 3));
        int64_t key = groups->by == GROUP_BY_SIZE ? groups_size_key(size) : cursor_integer(&cursor, 0);
        const struct group_figures figures = {
            .allocations = 1,
            .frees = is_freed ? 1 : 0,
            .bytes = size,
            .live_allocations = is_left ? 1 : 0,
            .live_bytes = is_left ? size : 0,
            .peak_allocations = is_at_peak ? 1 : 0,
            .peak_bytes = is_at_peak ? size : 0,
            .temporary = cursor_integer(&cursor, 2),
            .lifetime_ns = cursor_integer(&cursor, 4),
        };
        groups_add(groups, -1, key, &figures);
    }
    cursor_close(&cursor);
    free(peaks);
}

void groups_load(struct groups *groups, const char *domain)
{
    if (groups->by == GROUP_BY_LINE && (strcmp(domain, "heap") == 0 || strcmp(domain, "python") == 0)) {
        groups->together = together_load(groups->database);
    }
    if (is_of_lines(groups->by) || groups->by == GROUP_BY_STACK) {
        load_totals(groups, domain);
    } else if (groups->by == GROUP_BY_PROCESS) {
        callsite_groups_load_processes(groups, domain);
    } else {
        load_allocations(groups, domain);
    }
}

void groups_load_process(struct groups *groups, const char *domain, int64_t process_id)
{
    static const char *const peak_sql = sql_groups_at_peak;
    struct cursor cursor;

    _Static_assert(GROUP_BY_PROCESS == 4 && GROUP_BY_THREAD == 5 && GROUP_BY_SIZE == 6,
                   "the statement has their numbers");
    cursor_open(&cursor, groups->database, peak_sql);
    cursor_bind_text(&cursor, 1, domain);
    cursor_bind_integer(&cursor, 2, process_id);
    cursor_bind_integer(&cursor, 3, (int64_t)groups->by);
    while (cursor_next(&cursor)) {
        int64_t key = cursor_integer(&cursor, 1);
        const struct group_figures figures = {.peak_allocations = cursor_integer(&cursor, 2),
                                              .peak_bytes = cursor_integer(&cursor, 3)};
        groups_add(groups, cursor_integer(&cursor, 0), groups->by == GROUP_BY_SIZE ? groups_size_key(key) : key,
                   &figures);
    }
    cursor_close(&cursor);
}

int groups_check_allocations(struct database *database, const char *what, struct varve_message *message)
{
    return !report_keeps_only_live(database)
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                   "%s: %s needs the allocations, which were not kept (recorded with --keep totals)",
                                   database_path(database), what);
}

int groups_check(struct database *database, enum group_by by, struct varve_message *message)
{
    char what[64];
    snprintf(what, sizeof(what), "--by %s", group_by_names[by]);
    return by == GROUP_BY_THREAD || by == GROUP_BY_SIZE ? groups_check_allocations(database, what, message) : VARVE_OK;
}

/* ---- ranking ---- */

int64_t callsite_rank_bytes(const struct group_figures *figures, enum callsite_rank rank)
{
    return rank == CALLSITE_BY_PEAK   ? figures->peak_bytes
           : rank == CALLSITE_BY_LIVE ? figures->live_bytes
                                      : figures->bytes;
}

int64_t callsite_rank_allocations(const struct group_figures *figures, enum callsite_rank rank)
{
    return rank == CALLSITE_BY_PEAK        ? figures->peak_allocations
           : rank == CALLSITE_BY_LIVE      ? figures->live_allocations
           : rank == CALLSITE_BY_TEMPORARY ? figures->temporary
                                           : figures->allocations;
}

int64_t group_mean_lifetime_ns(const struct group_figures *figures)
{
    return figures->frees > 0 ? figures->lifetime_ns / figures->frees : -1;
}

static int64_t longer_than_none(int64_t ns)
{
    return ns > 0 ? ns : 1;
}

/* What a ranking goes by; 0 or less: it is none of it. Of the long-lived, people want those that matter: a hundredth of
 * all bytes at least. */
static int64_t rank_figure(const struct group_figures *figures, enum callsite_rank rank, int64_t bytes_all)
{
    switch (rank) {
    case CALLSITE_BY_LIFETIME:
        return figures->frees > 0 && figures->bytes >= bytes_all / 100
                   ? longer_than_none(group_mean_lifetime_ns(figures))
                   : 0;
    case CALLSITE_BY_COUNT:
        return figures->allocations;
    case CALLSITE_BY_TEMPORARY:
        return figures->temporary;
    default: /* blocks of 0 bytes are some, too */
        return callsite_rank_allocations(figures, rank) > 0 && callsite_rank_bytes(figures, rank) <= 0
                   ? 1
                   : callsite_rank_bytes(figures, rank);
    }
}

struct ranked {
    int64_t figure;
    size_t index;
};

static int callsite_groups_compare_ranked(const void *a_untyped, const void *b_untyped)
{
    const struct ranked *a = a_untyped;
    const struct ranked *b = b_untyped;
    if (a->figure != b->figure) {
        return a->figure > b->figure ? -1 : 1;
    }
    return a->index < b->index ? -1 : a->index > b->index;
}

static enum best callsite_groups_best_of(enum callsite_rank rank)
{
    return rank == CALLSITE_BY_PEAK        ? BEST_PEAK
           : rank == CALLSITE_BY_TEMPORARY ? BEST_TEMPORARY
           : rank == CALLSITE_BY_LIVE      ? BEST_LIVE
                                           : BEST_BYTES;
}

static char *process_name(struct database *database, int64_t process_id)
{
    char text[512];
    snprintf(text, sizeof(text), "process %" PRId64, process_id);
    struct cursor cursor;
    cursor_open(&cursor, database, "SELECT pid, coalesce(executable, '') FROM process WHERE id = ?1");
    cursor_bind_integer(&cursor, 1, process_id);
    if (cursor_next(&cursor)) {
        snprintf(text, sizeof(text), "pid %" PRId64 "  %.400s", cursor_integer(&cursor, 0),
                 format_base_name(cursor_name(&cursor, 1)));
    }
    cursor_close(&cursor);
    return memory_copy_text(text);
}

static char *thread_name(struct database *database, int64_t thread_id)
{
    struct cursor cursor;
    char text[512] = "thread that is not known";
    cursor_open(&cursor, database, "SELECT tid, pid, coalesce(name, '') FROM thread WHERE id = ?1");
    cursor_bind_integer(&cursor, 1, thread_id);
    if (cursor_next(&cursor)) {
        snprintf(text, sizeof(text), "tid %" PRId64 " of pid %" PRId64 "  %.400s", cursor_integer(&cursor, 0),
                 cursor_integer(&cursor, 1), cursor_name(&cursor, 2));
    }
    cursor_close(&cursor);
    return memory_copy_text(text);
}

static char *size_name(int64_t largest)
{
    char text[64];
    snprintf(text, sizeof(text), largest > 1 ? "up to %s" : "%s", format_bytes(largest).text);
    return memory_copy_text(text);
}

static void fill_row(struct callsite_row *row, const struct groups *groups, size_t index, enum callsite_rank rank)
{
    const struct group *group = &groups->items[index];
    *row = (struct callsite_row){
        .id = groups->by == GROUP_BY_STACK ? group->key : group->best[callsite_groups_best_of(rank)].callsite_id,
        .callsites = group->callsites,
        .figures = group->figures,
        .together = rank == CALLSITE_BY_TEMPORARY ? TOGETHER_NONE
                                                  : together_of_line(groups->together, group->key,
                                                                     rank == CALLSITE_BY_PEAK   ? TOGETHER_PEAK
                                                                     : rank == CALLSITE_BY_LIVE ? TOGETHER_LIVE
                                                                                                : TOGETHER_ALLOCATED),
    };
    callsite_location_load(row, groups->database);
    if (groups->by == GROUP_BY_PROCESS) {
        row->name = process_name(groups->database, group->key);
    } else if (groups->by == GROUP_BY_THREAD) {
        row->name = thread_name(groups->database, group->key);
    } else if (groups->by == GROUP_BY_SIZE) {
        row->name = size_name(group->key);
    }
    row->key = row->name != NULL ? group->key : 0;
}

void groups_rank(struct groups *groups, enum callsite_rank rank, int64_t top, struct callsite_list *list)
{
    struct ranked *ranked = memory_resize(NULL, (groups->count + 1) * sizeof(*ranked));
    *list = (struct callsite_list){.by = groups->by, .has_together = groups->together != NULL};
    uint64_t bytes_all = 0;
    for (size_t i = 0; i < groups->count; i++) {
        bytes_all += (uint64_t)groups->items[i].figures.bytes;
    }
    uint64_t bytes = 0, allocations = 0;
    size_t count = 0;
    for (size_t i = 0; i < groups->count; i++) {
        const struct group_figures *figures = &groups->items[i].figures;
        int64_t figure = rank_figure(figures, rank, (int64_t)bytes_all);
        if (figure > 0) {
            ranked[count++] = (struct ranked){.figure = figure, .index = i};
            bytes += (uint64_t)callsite_rank_bytes(figures, rank);
            allocations += (uint64_t)callsite_rank_allocations(figures, rank);
            list->callsites_all += rank == CALLSITE_BY_LIFETIME ? groups->items[i].callsites : 0;
        }
    }
    qsort(ranked, count, sizeof(*ranked), callsite_groups_compare_ranked);
    list->count_all = (int64_t)count;
    list->callsites_all += rank == CALLSITE_BY_LIFETIME ? 0 : groups->callsites[rank];
    list->sum_bytes = (int64_t)bytes;
    list->sum_allocations = (int64_t)allocations;
    list->count = top < (int64_t)count ? (size_t)top : count;
    list->rows = memory_resize(NULL, (list->count + 1) * sizeof(list->rows[0]));
    for (size_t i = 0; i < list->count; i++) {
        fill_row(&list->rows[i], groups, ranked[i].index, rank);
    }
    free(ranked);
}

void callsite_list_free(struct callsite_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        callsite_location_free(&list->rows[i]);
    }
    free(list->rows);
    *list = (struct callsite_list){0};
}

const char *group_by_noun(enum group_by by, int64_t count)
{
    static const char *const nouns[GROUP_BY_COUNT][2] = {
        {"line", "lines"},     {"function", "functions"},           {"stack", "stacks"},
        {"module", "modules"}, {"program image", "program images"}, {"thread", "threads"},
        {"size", "sizes"},
    };
    return nouns[by][count == 1 ? 0 : 1];
}
