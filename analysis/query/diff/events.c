/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The comparison is SQL over both databases: the events that have a key on each side, those with the same key beside each
 * other, and what differs between them. Rows without a thread or a number, and numbers that do not grow with the rows,
 * have no key.
 *
 * Row numbers (id, callsite_id) need not be equal but must belong together one to one. Which of two contradicting pairs is
 * the wrong one is a matter of order: the one that comes later in A (INSERT OR IGNORE into a table in which neither number
 * may come twice). Of call sites it is the one with other frames.
 */
#include "analysis/query/diff/events.h"

#include "analysis/base/memory.h"
#include "analysis/output/progress.h"
#include "analysis/query/db.h"
#include "analysis/query/diff/stacks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- events as text ---- */

struct kind_words {
    const char *name, *addr, *arg;
};

static const struct kind_words kinds[VARVE_KIND_LIMIT] = {
#define KIND_WORDS(code, NAME, name, group, addr, size, requested, arg, meaning) [code] = {#name, addr, arg},
    VARVE_EVENT_LIST(KIND_WORDS)
#undef KIND_WORDS
};

static const char *const causes[] = {
#define CAUSE_TEXT(code, NAME, text) [code] = (text),
    VARVE_CAUSE_LIST(CAUSE_TEXT)
#undef CAUSE_TEXT
};

#define CAUSES ((int64_t)(sizeof(causes) / sizeof(causes[0])))

const char *diff_field_name(enum diff_field field)
{
    static const char *const names[DIFF_FIELD_LIMIT] = {
#define FIELD_NAME(NAME, column) #column,
        DIFF_COLUMN_LIST(FIELD_NAME)
#undef FIELD_NAME
            [DIFF_FIELD_FRAMES] = "frames",
    };

    return names[field];
}

uint32_t diff_kind_index(int64_t kind)
{
    return kind >= 0 && kind < VARVE_KIND_LIMIT && kinds[kind].name != NULL ? (uint32_t)kind
                                                                            : VARVE_KIND_LIMIT;
}

const char *diff_kind_name(uint32_t kind)
{
    return kind < VARVE_KIND_LIMIT ? kinds[kind].name : "unknown";
}

const char *diff_value_name(const struct diff_event *event, enum diff_field field)
{
    int64_t value = event->values[field];

    if (event->nulls >> field & 1U || value < 0) {
        return NULL;
    }
    if (field == DIFF_FIELD_KIND) {
        return value < VARVE_KIND_LIMIT ? kinds[value].name : NULL;
    }
    if (field == DIFF_FIELD_CAUSE && value < CAUSES) {
        return value == VARVE_CAUSE_NONE ? "none" : causes[value];
    }
    return NULL;
}

/* addr of `oom` is the one that holds bytes; arg is a number unless it is an address or a handle. */
static bool is_address(const struct diff_event *event, enum diff_field field)
{
    const struct kind_words *words =
        &kinds[diff_kind_index(event->values[DIFF_FIELD_KIND]) % VARVE_KIND_LIMIT];

    if (field == DIFF_FIELD_ADDR) {
        return words->addr == NULL || strncmp(words->addr, "bytes", 5) != 0;
    }
    return field == DIFF_FIELD_ARG && words->arg != NULL &&
           (strstr(words->arg, "address") != NULL || strstr(words->arg, "handle") != NULL);
}

static struct diff_value flags_text(int64_t flags)
{
    static const struct {
        int64_t flag;
        const char *name;
    } names[] = {{VARVE_FLAG_FAILED, "failed"}, {VARVE_FLAG_NESTED, "nested"}, {VARVE_FLAG_LATE, "late"}};
    struct diff_value result;
    int used = snprintf(result.text, sizeof(result.text), "%" PRId64, flags);

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if ((flags & names[i].flag) != 0) {
            used += snprintf(result.text + used, sizeof(result.text) - (size_t)used, " %s", names[i].name);
        }
    }
    return result;
}

struct diff_value diff_value_text(const struct diff_event *event, enum diff_field field)
{
    const char *name = diff_value_name(event, field);
    int64_t value = event->values[field];
    struct diff_value result;

    if (event->nulls >> field & 1U) {
        return (struct diff_value){"NULL"};
    }
    if (field == DIFF_FIELD_FLAGS) {
        return flags_text(value);
    }
    if (name != NULL) {
        snprintf(result.text, sizeof(result.text), "%s", name);
    } else if (is_address(event, field)) {
        snprintf(result.text, sizeof(result.text), "0x%" PRIx64, (uint64_t)value);
    } else {
        snprintf(result.text, sizeof(result.text), "%" PRId64, value);
    }
    return result;
}

/* ---- statements ---- */

/* Whose rows the ids of a kind are (1: allocations, 2: segments); without one they are the program's own,
 * and must be equal. */
static void make_kinds(struct database *two)
{
    static const struct {
        int kind, family;
    } families[] = {
        {VARVE_KIND_ALLOC, 1},         {VARVE_KIND_FREE_REQUESTED, 1}, {VARVE_KIND_FREE_COMPLETED, 1},
        {VARVE_KIND_RECORD_STREAM, 1}, {VARVE_KIND_HEAP_ALLOC, 1},     {VARVE_KIND_HEAP_FREE, 1},
        {VARVE_KIND_HEAP_REALLOC, 1},  {VARVE_KIND_MMAP, 1},           {VARVE_KIND_MUNMAP, 1},
        {VARVE_KIND_SPLIT, 2},         {VARVE_KIND_MERGE, 2},          {VARVE_KIND_SEGMENT_ALLOC, 2},
        {VARVE_KIND_SEGMENT_FREE, 2},  {VARVE_KIND_SEGMENT_MAP, 2},    {VARVE_KIND_SEGMENT_UNMAP, 2},
    };
    struct cursor cursor;

    database_execute(two, "CREATE TABLE kind(code INTEGER PRIMARY KEY, family INTEGER)");
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        cursor_open(&cursor, two, "INSERT INTO kind VALUES (?1, ?2)");
        cursor_bind_integer(&cursor, 1, families[i].kind);
        cursor_bind_integer(&cursor, 2, families[i].family);
        cursor_next(&cursor);
        cursor_close(&cursor);
    }
}

static const char rings_sql[] =
    "CREATE TABLE ring(id INTEGER PRIMARY KEY, process_id INTEGER, ring INTEGER, UNIQUE(process_id, ring));"
    "INSERT INTO ring(process_id, ring) SELECT process_id, ring FROM a.thread UNION SELECT process_id, ring FROM b.thread;"
#define THREADS(side)                                                                      \
    "CREATE TABLE thread_" side "(id INTEGER PRIMARY KEY, ring INTEGER);"                  \
    "INSERT INTO thread_" side " SELECT t.id, r.id FROM " side ".thread t JOIN ring r ON " \
    "r.process_id IS t.process_id AND r.ring IS t.ring;"
    THREADS("a") THREADS("b");

/* The events that have a key: their numbers grow with the rows of their ring. */
static const char keys_sql[] =
#define KEYS(side)                                                                                           \
    "CREATE TABLE key_" side                                                                                 \
    "(ring INTEGER, number INTEGER, seq INTEGER, kind INTEGER, PRIMARY KEY(ring, number)) "                  \
    "WITHOUT ROWID;"                                                                                         \
    "INSERT INTO key_" side " SELECT ring, ring_seq, seq, kind FROM (SELECT t.ring, e.ring_seq, e.seq, "     \
    "e.kind, max(e.ring_seq) OVER (PARTITION BY t.ring ORDER BY e.seq ROWS BETWEEN UNBOUNDED PRECEDING AND " \
    "1 PRECEDING) AS before FROM " side ".event e JOIN thread_" side " t ON t.id = e.thread_id WHERE "       \
    "e.ring_seq IS NOT NULL) WHERE ring_seq > max(0, coalesce(before, 0));"
    KEYS("a") KEYS("b");

/* Those of one side only; events whose numbers follow one another are one run. */
static const char alone_sql[] =
    "CREATE TABLE alone(side INTEGER, ring INTEGER, run INTEGER, number INTEGER, seq INTEGER, kind INTEGER, "
    "PRIMARY KEY(side, ring, run, number)) WITHOUT ROWID;"
#define ALONE(index, side, other)                                                      \
    "INSERT INTO alone SELECT " index                                                  \
    ", ring, number - row_number() OVER (PARTITION BY ring ORDER BY number), "         \
    "number, seq, kind FROM key_" side " k WHERE NOT EXISTS (SELECT 1 FROM key_" other \
    " o WHERE o.ring = k.ring "                                                        \
    "AND o.number = k.number);"
    ALONE("0", "a", "b") ALONE("1", "b", "a");

#define ROW_NUMBERS(a, b) "(" a " BETWEEN 1 AND 4294967295 AND " b " BETWEEN 1 AND 4294967295)"

/* The events of both, beside each other: bits of the columns that differ, but not of row numbers that are to be paired
 * (family, frames 0: equal, 1: others). */
static const char matched_table[] =
    "CREATE TABLE matched(a INTEGER PRIMARY KEY, b INTEGER, ring INTEGER, number INTEGER, family INTEGER, id_a INTEGER, "
    "id_b INTEGER, frames INTEGER, callsite_a INTEGER, callsite_b INTEGER, fields INTEGER)";
static const char matched_begin[] =
    "INSERT INTO matched SELECT a, b, ring, number, family, id_a, id_b, frames, callsite_a, callsite_b, "
    "fields & ~(CASE WHEN family IS NULL THEN 0 ELSE ?1 END) & ~(CASE WHEN frames IS NULL THEN 0 ELSE ?2 END) FROM ("
    "SELECT k.seq AS a, l.seq AS b, k.ring AS ring, k.number AS number, CASE WHEN f.family = g.family AND " ROW_NUMBERS(
        "x.id",
        "y.id") " THEN f.family END AS family, x.id AS id_a, y.id AS id_b, "
                "CASE WHEN x.callsite_id <> 0 AND y.callsite_id <> 0 THEN CASE WHEN s.stack IS NOT t.stack THEN 1 WHEN " ROW_NUMBERS(
                    "x.callsite_id",
                    "y.callsite_id") " THEN 0 END END AS frames, x.callsite_id AS callsite_a, "
                                     "y.callsite_id AS callsite_b, "
                                     "0";
static const char matched_end[] =
    " AS fields FROM key_a k CROSS JOIN key_b l ON l.ring = k.ring AND l.number = k.number "
    "CROSS JOIN a.event x ON x.seq = k.seq CROSS JOIN b.event y ON y.seq = l.seq "
    "LEFT JOIN kind f ON f.code = x.kind LEFT JOIN kind g ON g.code = y.kind "
    "LEFT JOIN stack_a s ON s.callsite_id = x.callsite_id LEFT JOIN stack_b t ON t.callsite_id = y.callsite_id)";

/* Families: those of the kinds; 3: call sites with equal frames, 4: met together although their frames differ. The rows of
 * matched come in the order of A. */
static const char pairs_table[] =
    "CREATE TABLE pair(family INTEGER, a INTEGER, b INTEGER, since INTEGER, PRIMARY KEY(family, a), UNIQUE(family, b)) "
    "WITHOUT ROWID;";
static const char callsite_pairs_sql[] =
    "INSERT OR IGNORE INTO pair SELECT 3 + frames, callsite_a, callsite_b, a FROM matched WHERE frames IS NOT NULL "
    "AND " ROW_NUMBERS("callsite_a", "callsite_b") " ORDER BY a";
static const char id_pairs_sql[] =
    "INSERT OR IGNORE INTO pair SELECT family, id_a, id_b, a FROM matched WHERE family IS NOT NULL ORDER BY a";

/* Without any such row all row numbers are the same on both sides. */
static const char is_renumbered_sql[] =
    "SELECT EXISTS (SELECT 1 FROM matched WHERE fields <> 0 OR frames = 1 OR (family IS NOT NULL AND id_a <> id_b) OR "
    "(frames = 0 AND callsite_a <> callsite_b))";

static const char differing_table[] =
    "CREATE TABLE differing(a INTEGER PRIMARY KEY, b INTEGER, ring INTEGER, number INTEGER, fields INTEGER)";
static const char differing_sql[] =
    "INSERT INTO differing SELECT * FROM (SELECT m.a AS a, m.b, m.ring, m.number, m.fields "
    "| (CASE WHEN m.family IS NOT NULL AND i.b IS NOT m.id_b THEN ?1 ELSE 0 END) "
    "| (CASE WHEN m.frames = 0 AND s.b IS NOT m.callsite_b THEN ?2 "
    "WHEN m.frames = 1 AND (s.since < m.a OR t.since < m.a) THEN ?2 | ?3 WHEN m.frames = 1 THEN ?3 ELSE 0 END) AS fields "
    "FROM matched m LEFT JOIN pair i ON i.family = m.family AND i.a = m.id_a "
    "LEFT JOIN pair s ON s.family = 3 AND s.a = m.callsite_a LEFT JOIN pair t ON t.family = 3 AND t.b = m.callsite_b) "
    "WHERE fields <> 0";

static int64_t bit(enum diff_field field)
{
    return INT64_C(1) << field;
}

static void execute_bound(struct database *two, const char *sql, int64_t first, int64_t second, int64_t third)
{
    struct cursor cursor;

    cursor_open(&cursor, two, sql);
    cursor_bind_integer(&cursor, 1, first);
    cursor_bind_integer(&cursor, 2, second);
    cursor_bind_integer(&cursor, 3, third);
    cursor_next(&cursor);
    cursor_close(&cursor);
}

static void make_matched(struct database *two)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *sql = open_memstream(&text, &bytes);

    if (sql == NULL) {
        memory_exhausted();
    }
    fputs(matched_begin, sql);
    for (unsigned field = 0; field < DIFF_COLUMNS; field++) {
        const char *column = diff_field_name((enum diff_field)field);

        fprintf(sql, " | ((x.%s IS NOT y.%s) << %u)", column, column, field);
    }
    fputs(matched_end, sql);
    if (fclose(sql) != 0) {
        memory_exhausted();
    }
    database_execute(two, matched_table);
    execute_bound(two, text, bit(DIFF_FIELD_ID), bit(DIFF_FIELD_CALLSITE_ID), 0);
    free(text);
}

static void make_tables(struct database *two, struct progress *progress)
{
    database_watch(two, progress, "looking for gaps");
    make_kinds(two);
    database_execute(two, rings_sql);
    database_execute(two, keys_sql);
    database_execute(two, alone_sql);
    database_watch(two, progress, "comparing stacks");
    diff_stacks_make(two, DIFF_FRAMES_WHOLE);
    database_watch(two, progress, "comparing events");
    make_matched(two);
    database_execute(two, pairs_table);
    database_execute(two, callsite_pairs_sql);
    database_execute(two, differing_table);
    if (database_integer(two, is_renumbered_sql, 1) == 0) {
        return;
    }
    database_execute(two, id_pairs_sql);
    execute_bound(two, differing_sql, bit(DIFF_FIELD_ID), bit(DIFF_FIELD_CALLSITE_ID),
                  bit(DIFF_FIELD_FRAMES));
}

/* ---- figures ---- */

static void load_trace(struct diff_trace *trace, struct database *two, const char *sql)
{
    struct cursor cursor;

    cursor_open(&cursor, two, sql);
    cursor_bind_integer(&cursor, 1, VARVE_KIND_LOST);
    if (cursor_next(&cursor)) {
        int64_t *const figures[] = {
            &trace->events,     &trace->lost_rows,      &trace->lost_events,    &trace->gap_rows,
            &trace->gap_events, &trace->without_number, &trace->without_thread, &trace->out_of_order,
        };

        for (int i = 0; i < (int)(sizeof(figures) / sizeof(figures[0])); i++) {
            *figures[i] = cursor_integer(&cursor, i);
        }
    }
    cursor_close(&cursor);
}

/* total() is no sum that overflows: a damaged file may hold any number. */
#define TRACE_SQL(side)                                                                                                 \
    "SELECT count(*) FILTER (WHERE NOT gap), count(*) FILTER (WHERE lost AND NOT gap), "                                \
    "CAST(total(arg) FILTER (WHERE lost AND NOT gap) AS INTEGER), count(*) FILTER (WHERE gap), "                        \
    "CAST(total(arg) FILTER (WHERE gap) AS INTEGER), count(*) FILTER (WHERE ring_seq IS NULL AND NOT gap), "            \
    "count(*) FILTER (WHERE ring_seq IS NOT NULL AND ring IS NULL), "                                                   \
    "count(*) FILTER (WHERE ring_seq IS NOT NULL AND ring IS NOT NULL) - (SELECT count(*) FROM key_" side               \
    ") "                                                                                                                \
    "FROM (SELECT e.arg, e.ring_seq, t.ring, e.kind = ?1 AS lost, e.kind = ?1 AND e.ring_seq IS NULL AS gap FROM " side \
    ".event e LEFT JOIN thread_" side " t ON t.id = e.thread_id)"

/* Rows of: a kind, a number of events. */
static void load_kinds(struct diff *diff, struct database *two, const char *sql, size_t offset, int64_t sign)
{
    struct cursor cursor;

    cursor_open(&cursor, two, sql);
    while (cursor_next(&cursor)) {
        struct diff_totals *totals = &diff->kinds[diff_kind_index(cursor_integer(&cursor, 0))];

        *(int64_t *)((char *)totals + offset) += sign * cursor_integer(&cursor, 1);
    }
    cursor_close(&cursor);
}

static void load_fields(struct diff *diff, struct database *two)
{
    struct cursor cursor;

    cursor_open(&cursor, two, "SELECT fields, count(*) FROM differing GROUP BY fields");
    while (cursor_next(&cursor)) {
        for (unsigned field = 0; field < DIFF_FIELD_LIMIT; field++) {
            diff->fields[field] += (cursor_integer(&cursor, 0) >> field & 1) * cursor_integer(&cursor, 1);
        }
    }
    cursor_close(&cursor);
}

static void load_figures(struct diff *diff, struct database *two)
{
    load_trace(&diff->traces[DIFF_A], two, TRACE_SQL("a"));
    load_trace(&diff->traces[DIFF_B], two, TRACE_SQL("b"));
    load_kinds(diff, two, "SELECT kind, count(*) FROM alone WHERE side = 0 GROUP BY kind",
               offsetof(struct diff_totals, alone[DIFF_A]), 1);
    load_kinds(diff, two, "SELECT kind, count(*) FROM alone WHERE side = 1 GROUP BY kind",
               offsetof(struct diff_totals, alone[DIFF_B]), 1);
    load_kinds(diff, two, "SELECT kind, count(*) FROM key_a GROUP BY kind",
               offsetof(struct diff_totals, both), 1);
    load_kinds(diff, two, "SELECT kind, count(*) FROM alone WHERE side = 0 GROUP BY kind",
               offsetof(struct diff_totals, both), -1);
    load_kinds(diff, two,
               "SELECT e.kind, count(*) FROM differing d JOIN a.event e ON e.seq = d.a GROUP BY e.kind",
               offsetof(struct diff_totals, differing), 1);
    load_fields(diff, two);
    diff->rings = database_integer(
        two, "SELECT count(*) FROM (SELECT ring FROM key_a UNION SELECT ring FROM key_b)", 0);
    diff->callsite_pairs = database_integer(two, "SELECT count(*) FROM pair WHERE family = 3", 0);
    diff->callsite_pairs_odd = database_integer(two, "SELECT count(*) FROM pair WHERE family = 4", 0);
    diff->entries_all = database_integer(two,
                                         "SELECT (SELECT count(*) FROM differing) + (SELECT count(*) FROM "
                                         "(SELECT DISTINCT side, ring, run FROM alone))",
                                         0);
}

/* ---- the list ---- */

static void load_event(struct diff_event *event, struct database *database, int64_t seq)
{
#define COLUMN_NAME(NAME, column) #column ", "
    static const char sql[] = "SELECT " DIFF_COLUMN_LIST(COLUMN_NAME) "seq FROM event WHERE seq = ?1";
#undef COLUMN_NAME
    struct cursor cursor;

    *event = (struct diff_event){.seq = seq};
    cursor_open(&cursor, database, sql);
    cursor_bind_integer(&cursor, 1, seq);
    if (cursor_next(&cursor)) {
        for (int i = 0; i < (int)DIFF_COLUMNS; i++) {
            event->values[i] = cursor_integer(&cursor, i);
            event->nulls |= (uint32_t)cursor_is_null(&cursor, i) << i;
        }
    }
    cursor_close(&cursor);
}

/* What a row number of one side belongs to when event `seq` of A is compared; 0: nothing yet. */
static int64_t partner(struct database *two, enum diff_side side, int64_t family, int64_t number, int64_t seq)
{
    static const char *const sql[DIFF_SIDES] = {
        "SELECT b FROM pair WHERE family = ?1 AND a = ?2 AND since <= ?3",
        "SELECT a FROM pair WHERE family = ?1 AND b = ?2 AND since <= ?3",
    };
    struct cursor cursor;
    int64_t found = 0;

    cursor_open(&cursor, two, sql[side]);
    cursor_bind_integer(&cursor, 1, family);
    cursor_bind_integer(&cursor, 2, number);
    cursor_bind_integer(&cursor, 3, seq);
    if (cursor_next(&cursor)) {
        found = cursor_integer(&cursor, 0);
    }
    cursor_close(&cursor);
    return found;
}

/* The family of an event's ids, 0: none. */
static int64_t family_of(struct database *two, const struct diff_event *event)
{
    struct cursor cursor;
    int64_t family = 0;

    cursor_open(&cursor, two, "SELECT family FROM kind WHERE code = ?1");
    cursor_bind_integer(&cursor, 1, event->values[DIFF_FIELD_KIND]);
    if (cursor_next(&cursor)) {
        family = cursor_integer(&cursor, 0);
    }
    cursor_close(&cursor);
    return family;
}

static void load_detail(struct diff *diff, struct database *two, struct diff_entry *entry, int64_t seq_b,
                        int64_t fields)
{
    struct diff_detail *detail = memory_resize(NULL, sizeof(*detail));
    int64_t families[DIFF_SIDES];

    *detail = (struct diff_detail){.fields = (uint32_t)fields};
    for (int side = 0; side < DIFF_SIDES; side++) {
        load_event(&detail->events[side], diff->traces[side].database, side == DIFF_A ? entry->seq : seq_b);
        families[side] = family_of(two, &detail->events[side]);
    }
    for (int side = 0; side < DIFF_SIDES; side++) {
        const int64_t *values = detail->events[side].values;

        if (families[DIFF_A] == families[DIFF_B]) {
            detail->id_partners[side] =
                partner(two, (enum diff_side)side, families[DIFF_A], values[DIFF_FIELD_ID], entry->seq);
        }
        detail->callsite_partners[side] =
            partner(two, (enum diff_side)side, 3, values[DIFF_FIELD_CALLSITE_ID], entry->seq);
    }
    entry->detail = detail;
}

/* In the order in which they come. */
static void load_run(struct diff_entry *entry, struct database *two, int64_t ring, int64_t run)
{
    struct cursor cursor;

    cursor_open(&cursor, two,
                "SELECT kind, count(*) FROM alone WHERE side = ?1 AND ring = ?2 AND run = ?3 GROUP BY kind "
                "ORDER BY min(number)");
    cursor_bind_integer(&cursor, 1, entry->what);
    cursor_bind_integer(&cursor, 2, ring);
    cursor_bind_integer(&cursor, 3, run);
    while (cursor_next(&cursor)) {
        uint32_t kind = diff_kind_index(cursor_integer(&cursor, 0));
        size_t i = 0;

        while (i < entry->kind_count && entry->kinds[i].kind != kind) {
            i++;
        }
        if (i == entry->kind_count) {
            entry->kinds = memory_resize(entry->kinds, (i + 1) * sizeof(entry->kinds[0]));
            entry->kinds[entry->kind_count++] = (struct diff_kind_count){kind, 0};
        }
        entry->kinds[i].events += cursor_integer(&cursor, 1);
    }
    cursor_close(&cursor);
}

static void load_entries(struct diff *diff, struct database *two)
{
    size_t capacity = 0;
    struct cursor cursor;

    cursor_open(
        &cursor, two,
        "SELECT what, r.process_id, r.ring, first, last, seq, seq_b, fields, e.ring, run FROM ("
        "SELECT side AS what, ring, run, min(number) AS first, max(number) AS last, min(seq) AS seq, 0 AS seq_b, "
        "0 AS fields FROM alone GROUP BY side, ring, run UNION ALL "
        "SELECT 2, ring, 0, number, number, a, b, fields FROM differing) e JOIN ring r ON r.id = e.ring "
        "ORDER BY seq, what, first LIMIT ?1");
    cursor_bind_integer(&cursor, 1, (int64_t)diff->entry_limit);
    while (cursor_next(&cursor)) {
        struct diff_entry *entry;

        if (diff->entry_count == capacity) {
            capacity = capacity * 2 + 16;
            diff->entries = memory_resize(diff->entries, capacity * sizeof(diff->entries[0]));
        }
        entry = &diff->entries[diff->entry_count++];
        *entry = (struct diff_entry){
            .what = (enum diff_what)cursor_integer(&cursor, 0),
            .process_id = cursor_integer(&cursor, 1),
            .ring = cursor_integer(&cursor, 2),
            .first = cursor_integer(&cursor, 3),
            .last = cursor_integer(&cursor, 4),
            .seq = cursor_integer(&cursor, 5),
        };
        if (entry->what == DIFF_DIFFERS) {
            load_detail(diff, two, entry, cursor_integer(&cursor, 6), cursor_integer(&cursor, 7));
        } else {
            load_run(entry, two, cursor_integer(&cursor, 8), cursor_integer(&cursor, 9));
        }
    }
    cursor_close(&cursor);
}

/* ---- processes and threads ---- */

/* A trace may know less of its processes than another and yet hold every event. Values are compared as text. */
#define ALONE_ROWS(position, table, key, ring, match)                                                       \
    "SELECT " position " AS position, 0 AS number, '" table "' AS name, x." key                             \
    " AS process_id, " ring(x) " AS ring, "                                                                 \
                               "NULL AS field, x.pid AS a, NULL AS b FROM a." table                         \
                               " x WHERE NOT EXISTS (SELECT 1 FROM b." table " y WHERE " match              \
                               ") UNION ALL SELECT " position ", 0, '" table "', y." key                    \
                               ", " ring(y) ", NULL, NULL, y.pid FROM b." table                             \
                                            " y WHERE NOT EXISTS (SELECT 1 FROM a." table " x WHERE " match \
                                            ")"
#define FIELD_ROWS(position, number, table, key, ring, match, column)                          \
    " UNION ALL SELECT " position ", " number ", '" table "', x." key                          \
    ", " ring(x) ", '" column "', x." column ", y." column " FROM a." table " x JOIN b." table \
                 " y ON " match " WHERE CAST(x." column " AS TEXT) IS NOT CAST(y." column " AS TEXT)"
#define NO_RING(row) "-1"
#define RING(row) #row ".ring"
#define SAME_PROCESS "x.id = y.id"
#define SAME_RING "x.process_id = y.process_id AND x.ring = y.ring"
#define PROCESS_FIELD(number, column) FIELD_ROWS("0", #number, "process", "id", NO_RING, SAME_PROCESS, column)
#define THREAD_FIELD(number, column) FIELD_ROWS("1", #number, "thread", "process_id", RING, SAME_RING, column)

static const char remarks_sql[] =
    "SELECT name, process_id, ring, field, CAST(a AS TEXT), CAST(b AS TEXT) FROM (" ALONE_ROWS(
        "0", "process", "id", NO_RING, SAME_PROCESS) PROCESS_FIELD(1, "pid") PROCESS_FIELD(2, "parent_pid")
        PROCESS_FIELD(3, "parent_id") PROCESS_FIELD(4, "rank") PROCESS_FIELD(5, "executable") PROCESS_FIELD(
            6, "command_line") " UNION ALL " ALONE_ROWS("1", "thread", "process_id", RING, SAME_RING)
            THREAD_FIELD(1, "pid") THREAD_FIELD(2, "tid") THREAD_FIELD(3, "name") THREAD_FIELD(4, "emitted")
                THREAD_FIELD(5, "lost") ") ORDER BY position, process_id, ring, number";

static void load_remarks(struct diff_remarks *remarks, struct database *two)
{
    struct cursor cursor;

    cursor_open(&cursor, two, remarks_sql);
    while (cursor_next(&cursor)) {
        remarks->items = memory_resize(remarks->items, (remarks->count + 1) * sizeof(remarks->items[0]));
        remarks->items[remarks->count++] = (struct diff_remark){
            .table = memory_copy_text(cursor_name(&cursor, 0)),
            .process_id = cursor_integer(&cursor, 1),
            .ring = cursor_integer(&cursor, 2),
            .column = memory_copy_text(cursor_text(&cursor, 3)),
            .values = {memory_copy_text(cursor_text(&cursor, 4)), memory_copy_text(cursor_text(&cursor, 5))},
        };
    }
    cursor_close(&cursor);
}

/* ---- the comparison ---- */

static int check_numbers(struct database *database, struct varve_message *message)
{
    int64_t count = database_integer(
        database, "SELECT count(*) FROM pragma_table_info('event') WHERE name = 'ring_seq'", 0);

    if (count == 0 && database_error(database, message) == VARVE_OK) {
        return varve_message_set(
            message, VARVE_ERROR_VERSION,
            "%s was made by an older varve: its events have no ring_seq to compare them by; "
            "record or import it anew",
            database_path(database));
    }
    return database_error(database, message);
}

static void compare_runs(struct diff *diff)
{
    char *a = database_meta(diff->traces[DIFF_A].database, "trace_id");
    char *b = database_meta(diff->traces[DIFF_B].database, "trace_id");

    if (a != NULL && b != NULL) {
        diff->runs = strcmp(a, b) == 0 ? DIFF_RUNS_SAME : DIFF_RUNS_OTHER;
    }
    free(a);
    free(b);
}

int diff_events_compare(struct diff *diff, struct progress *progress, struct varve_message *message)
{
    struct database *two = NULL;
    int result = VARVE_OK;

    for (int side = 0; side < DIFF_SIDES && result == VARVE_OK; side++) {
        result = check_numbers(diff->traces[side].database, message);
    }
    if (result == VARVE_OK) {
        result = database_open_two(database_path(diff->traces[DIFF_A].database),
                                   database_path(diff->traces[DIFF_B].database), &two, message);
    }
    if (result != VARVE_OK) {
        return result;
    }
    compare_runs(diff);
    make_tables(two, progress);
    load_figures(diff, two);
    load_entries(diff, two);
    load_remarks(&diff->remarks, two);
    result = database_error(two, message);
    database_close(two);
    return result;
}

struct diff_totals diff_totals_all(const struct diff *diff)
{
    struct diff_totals all = {0};

    for (uint32_t kind = 0; kind < DIFF_KINDS; kind++) {
        all.both += diff->kinds[kind].both;
        all.alone[DIFF_A] += diff->kinds[kind].alone[DIFF_A];
        all.alone[DIFF_B] += diff->kinds[kind].alone[DIFF_B];
        all.differing += diff->kinds[kind].differing;
    }
    return all;
}

int64_t diff_unkeyed(const struct diff_trace *trace)
{
    return trace->without_number + trace->without_thread + trace->out_of_order;
}

bool diff_is_equal(const struct diff *diff)
{
    return diff->entries_all == 0 && diff_unkeyed(&diff->traces[DIFF_A]) == 0 &&
           diff_unkeyed(&diff->traces[DIFF_B]) == 0 && (!diff->with_tables || diff->remarks.count == 0);
}

void diff_free(struct diff *diff)
{
    for (size_t i = 0; i < diff->entry_count; i++) {
        free(diff->entries[i].kinds);
        free(diff->entries[i].detail);
    }
    free(diff->entries);
    for (size_t i = 0; i < diff->remarks.count; i++) {
        free(diff->remarks.items[i].table);
        free(diff->remarks.items[i].column);
        free(diff->remarks.items[i].values[DIFF_A]);
        free(diff->remarks.items[i].values[DIFF_B]);
    }
    free(diff->remarks.items);
}
