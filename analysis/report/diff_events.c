/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event has a key if it has a thread and a number, and the numbers of its ring grow with the rows. The keys of both
 * sides go into two temporary tables; one statement puts the events with equal keys beside each other. Row numbers (id,
 * callsite_id) need not be equal but must belong together one to one; of call sites the frames must be equal.
 */
#include "analysis/report/diff_events.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/progress.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "analysis/report/diff_stacks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS_PER_EVENT 4 /* of rows numbered from 1: larger ones are no row numbers */
#define NUMBERS_SLACK 1048576

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
    return kind >= 0 && kind < VARVE_KIND_LIMIT && kinds[kind].name != NULL ? (uint32_t)kind : VARVE_KIND_LIMIT;
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
    const struct kind_words *words = &kinds[diff_kind_index(event->values[DIFF_FIELD_KIND]) % VARVE_KIND_LIMIT];
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
    if (event->nulls >> field & 1U) {
        return (struct diff_value){"NULL"};
    }
    if (field == DIFF_FIELD_FLAGS) {
        return flags_text(value);
    }
    struct diff_value result;
    if (name != NULL) {
        snprintf(result.text, sizeof(result.text), "%s", name);
    } else if (is_address(event, field)) {
        snprintf(result.text, sizeof(result.text), "0x%" PRIx64, (uint64_t)value);
    } else {
        snprintf(result.text, sizeof(result.text), "%" PRId64, value);
    }
    return result;
}

/* ---- events with a key ---- */

/* A key is ring << NUMBER_BITS | number. `alone`: the events of one side only; those whose numbers follow one another
 * are one run. */
#define NUMBER_BITS 40
#define NUMBER_MASK "1099511627775"

#define SIDE_TABLES(side)                                                                  \
    "CREATE TABLE thread_" side "(id INTEGER PRIMARY KEY, ring INTEGER);"                  \
    "INSERT INTO thread_" side " SELECT t.id, r.id FROM " side ".thread t JOIN ring r ON " \
    "r.process_id IS t.process_id AND r.ring IS t.ring;"                                   \
    "CREATE TABLE key_" side "(key INTEGER PRIMARY KEY, seq INTEGER, kind INTEGER);"
static const char tables_sql[] =
    "CREATE TABLE ring(id INTEGER PRIMARY KEY, process_id INTEGER, ring INTEGER, UNIQUE(process_id, ring));"
    "INSERT INTO ring(process_id, ring) SELECT process_id, ring FROM a.thread UNION SELECT process_id, ring "
    "FROM b.thread;"
    "CREATE TABLE alone(side INTEGER, run INTEGER, key INTEGER, seq INTEGER, kind INTEGER, "
    "PRIMARY KEY(side, run, key)) WITHOUT ROWID;" SIDE_TABLES("a") SIDE_TABLES("b");

#define ALONE(index, side, other)                                                                               \
    "INSERT INTO alone SELECT " index ", key - row_number() OVER (ORDER BY key), key, seq, kind FROM key_" side \
    " WHERE key NOT IN (SELECT key FROM key_" other ");"
static const char alone_sql[] = ALONE("0", "a", "b") ALONE("1", "b", "a");

#define EVENTS(side)                                                                                            \
    "SELECT e.seq, coalesce(t.ring, 0), e.ring_seq, e.kind, e.arg FROM " side ".event e LEFT JOIN thread_" side \
    " t ON t.id = e.thread_id ORDER BY e.seq"

/* A damaged file may hold any number. */
static void diff_events_add(int64_t *sum, int64_t number)
{
    if (__builtin_add_overflow(*sum, number, sum)) {
        *sum = number < 0 ? INT64_MIN : INT64_MAX;
    }
}

/* Counts the events of a trace, and gives a key to those whose numbers grow with the rows of their ring.
 * `last`: by ring. */
static void load_keys(struct diff_trace *trace, struct database *two, enum diff_side side, int64_t *last)
{
    static const char *const events_sql[DIFF_SIDES] = {EVENTS("a"), EVENTS("b")};
    static const char *const insert_sql[DIFF_SIDES] = {"INSERT INTO key_a VALUES (?1, ?2, ?3)",
                                                       "INSERT INTO key_b VALUES (?1, ?2, ?3)"};
    struct cursor event;
    cursor_open(&event, two, events_sql[side]);
    struct cursor insert;
    cursor_open(&insert, two, insert_sql[side]);
    while (cursor_next(&event)) {
        int64_t ring = cursor_integer(&event, 1);
        int64_t number = cursor_integer(&event, 2);
        bool has_number = !cursor_is_null(&event, 2);
        if (cursor_integer(&event, 3) == VARVE_KIND_LOST) {
            *(has_number ? &trace->lost_rows : &trace->gap_rows) += 1;
            diff_events_add(has_number ? &trace->lost_events : &trace->gap_events, cursor_integer(&event, 4));
            trace->events -= has_number ? 0 : 1;
        }
        trace->events++;
        if (!has_number) {
            trace->without_number += cursor_integer(&event, 3) == VARVE_KIND_LOST ? 0 : 1;
        } else if (ring == 0) {
            trace->without_thread++;
        } else if (number <= last[ring] || number >> NUMBER_BITS != 0) {
            trace->out_of_order++;
        } else {
            last[ring] = number;
            cursor_bind_integer(&insert, 1, ring << NUMBER_BITS | number);
            cursor_bind_integer(&insert, 2, cursor_integer(&event, 0));
            cursor_bind_integer(&insert, 3, cursor_integer(&event, 3));
            cursor_next(&insert);
            cursor_reset(&insert);
        }
    }
    cursor_close(&insert);
    cursor_close(&event);
}

static void load_traces(struct diff *diff, struct database *two)
{
    int64_t rings = database_integer(two, "SELECT max(id) FROM ring", 0) + 1;
    int64_t *last[DIFF_SIDES];
    for (int side = 0; side < DIFF_SIDES; side++) {
        last[side] = memory_resize(NULL, (size_t)rings * sizeof(*last[side]));
        memset(last[side], 0, (size_t)rings * sizeof(*last[side]));
        load_keys(&diff->traces[side], two, (enum diff_side)side, last[side]);
    }
    for (int64_t ring = 0; ring < rings; ring++) {
        diff->rings += last[DIFF_A][ring] > 0 || last[DIFF_B][ring] > 0 ? 1 : 0;
    }
    free(last[DIFF_A]);
    free(last[DIFF_B]);
}

/* ---- row numbers that belong together ---- */

enum family {
    FAMILY_NONE, /* the program's own: must be equal */
    FAMILY_ALLOCATION,
    FAMILY_SEGMENT,
    FAMILY_CALLSITE,     /* with equal frames */
    FAMILY_CALLSITE_ODD, /* met together although their frames differ */
    FAMILIES,
};

/* Of each side, by its number: the other side's number; 0: none yet. */
struct pairs {
    uint32_t *partners[DIFF_SIDES];
    size_t counts[DIFF_SIDES];
    int64_t pairs;
};

struct matching {
    struct pairs families[FAMILIES];
    int64_t number_limit;
};

/* Whose rows the ids of a kind are. */
static enum family family_of(int64_t kind)
{
    switch (kind) {
    case VARVE_KIND_ALLOC:
    case VARVE_KIND_FREE_REQUESTED:
    case VARVE_KIND_FREE_COMPLETED:
    case VARVE_KIND_RECORD_STREAM:
    case VARVE_KIND_HEAP_ALLOC:
    case VARVE_KIND_HEAP_FREE:
    case VARVE_KIND_HEAP_REALLOC:
    case VARVE_KIND_MMAP:
    case VARVE_KIND_MUNMAP:
        return FAMILY_ALLOCATION;
    case VARVE_KIND_SPLIT:
    case VARVE_KIND_MERGE:
    case VARVE_KIND_SEGMENT_ALLOC:
    case VARVE_KIND_SEGMENT_FREE:
    case VARVE_KIND_SEGMENT_MAP:
    case VARVE_KIND_SEGMENT_UNMAP:
        return FAMILY_SEGMENT;
    default:
        return FAMILY_NONE;
    }
}

static bool are_row_numbers(const struct matching *matching, int64_t a, int64_t b)
{
    return a >= 1 && a < matching->number_limit && b >= 1 && b < matching->number_limit;
}

static int64_t partner(const struct pairs *pairs, enum diff_side side, int64_t number)
{
    return number >= 1 && (uint64_t)number < pairs->counts[side] ? pairs->partners[side][number] : 0;
}

static void set_partner(struct pairs *pairs, enum diff_side side, int64_t number, int64_t other)
{
    size_t count = pairs->counts[side];
    if ((uint64_t)number >= count) {
        pairs->counts[side] = 2 * (size_t)number + 1024;
        pairs->partners[side] =
            memory_resize(pairs->partners[side], pairs->counts[side] * sizeof(pairs->partners[side][0]));
        memset(pairs->partners[side] + count, 0, (pairs->counts[side] - count) * sizeof(pairs->partners[side][0]));
    }
    pairs->partners[side][number] = (uint32_t)other;
}

/* Pairs two row numbers if neither belongs to another one; whether they belong together. */
static bool pair(struct pairs *pairs, int64_t a, int64_t b)
{
    int64_t of_a = partner(pairs, DIFF_A, a);
    if (of_a == 0 && partner(pairs, DIFF_B, b) == 0) {
        set_partner(pairs, DIFF_A, a, b);
        set_partner(pairs, DIFF_B, b, a);
        pairs->pairs++;
        return true;
    }
    return of_a == b;
}

static void matching_free(struct matching *matching)
{
    for (int family = 0; family < FAMILIES; family++) {
        free(matching->families[family].partners[DIFF_A]);
        free(matching->families[family].partners[DIFF_B]);
    }
}

/* ---- events of both, beside each other ---- */

struct match {
    int64_t seq[DIFF_SIDES], kind[DIFF_SIDES], id[DIFF_SIDES], callsite[DIFF_SIDES];
    int64_t ring, number;
    bool same_stack;
    uint32_t fields; /* bit i: enum diff_field */
};

static uint32_t bit(enum diff_field field)
{
    return UINT32_C(1) << field;
}

/* The fields that differ, when row numbers may differ as long as they belong together. */
static uint32_t match_fields(struct matching *matching, const struct match *match)
{
    const int64_t *id = match->id;
    const int64_t *callsite = match->callsite;
    enum family family = family_of(match->kind[DIFF_A]);
    uint32_t fields = match->fields;
    if (family != FAMILY_NONE && family == family_of(match->kind[DIFF_B]) &&
        are_row_numbers(matching, id[DIFF_A], id[DIFF_B])) {
        bool is_pair = pair(&matching->families[family], id[DIFF_A], id[DIFF_B]);
        fields = (fields & ~bit(DIFF_FIELD_ID)) | (is_pair ? 0 : bit(DIFF_FIELD_ID));
    }
    if (callsite[DIFF_A] == 0 || callsite[DIFF_B] == 0) {
        return fields;
    }
    if (!match->same_stack) {
        const struct pairs *same = &matching->families[FAMILY_CALLSITE];
        bool had_partner = partner(same, DIFF_A, callsite[DIFF_A]) != 0 || partner(same, DIFF_B, callsite[DIFF_B]) != 0;
        if (are_row_numbers(matching, callsite[DIFF_A], callsite[DIFF_B])) {
            pair(&matching->families[FAMILY_CALLSITE_ODD], callsite[DIFF_A], callsite[DIFF_B]);
        }
        return (fields & ~bit(DIFF_FIELD_CALLSITE_ID)) | (had_partner ? bit(DIFF_FIELD_CALLSITE_ID) : 0) |
               bit(DIFF_FIELD_FRAMES);
    }
    if (are_row_numbers(matching, callsite[DIFF_A], callsite[DIFF_B])) {
        bool is_pair = pair(&matching->families[FAMILY_CALLSITE], callsite[DIFF_A], callsite[DIFF_B]);
        fields = (fields & ~bit(DIFF_FIELD_CALLSITE_ID)) | (is_pair ? 0 : bit(DIFF_FIELD_CALLSITE_ID));
    }
    return fields;
}

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

static struct diff_entry *entry_add(struct diff *diff)
{
    diff->entries = memory_resize(diff->entries, (diff->entry_count + 1) * sizeof(diff->entries[0]));
    return &diff->entries[diff->entry_count++];
}

static void add_differing(struct diff *diff, const struct matching *matching, const struct match *match)
{
    struct diff_detail *detail = memory_resize(NULL, sizeof(*detail));
    enum family family = family_of(match->kind[DIFF_A]);
    *detail = (struct diff_detail){.fields = match->fields};
    for (int i = 0; i < DIFF_SIDES; i++) {
        enum diff_side side = (enum diff_side)i;
        load_event(&detail->events[side], diff->traces[side].database, match->seq[side]);
        if (family == family_of(match->kind[DIFF_B])) {
            detail->id_partners[side] = partner(&matching->families[family], side, match->id[side]);
        }
        detail->callsite_partners[side] = partner(&matching->families[FAMILY_CALLSITE], side, match->callsite[side]);
    }
    *entry_add(diff) = (struct diff_entry){
        .what = DIFF_DIFFERS,
        .ring = match->ring,
        .first = match->number,
        .last = match->number,
        .seq = match->seq[DIFF_A],
        .detail = detail,
    };
}

#define FIELD_BIT(NAME, column) " | ((x." #column " IS NOT y." #column ") << %d)"
#define FIELD_NUMBER(NAME, column) , (int)DIFF_FIELD_##NAME

/* In the order of A: of two pairs of row numbers that contradict each other the later one is the wrong one. */
static void match_open(struct cursor *cursor, struct database *two)
{
    char sql[2048];
    snprintf(sql, sizeof(sql),
             "SELECT x.seq, y.seq, x.kind, y.kind, x.id, y.id, x.callsite_id, y.callsite_id, k.key >> %d, "
             "x.ring_seq, s.stack IS t.stack, 0" DIFF_COLUMN_LIST(
                 FIELD_BIT) " FROM a.event x CROSS JOIN thread_a r ON r.id = x.thread_id "
                            "CROSS JOIN key_a k ON k.key = (r.ring << %d) + x.ring_seq AND k.seq = x.seq "
                            "CROSS JOIN key_b l ON l.key = k.key CROSS JOIN b.event y ON y.seq = l.seq "
                            "LEFT JOIN stack_a s ON s.callsite_id = x.callsite_id "
                            "LEFT JOIN stack_b t ON t.callsite_id = y.callsite_id ORDER BY x.seq",
             NUMBER_BITS DIFF_COLUMN_LIST(FIELD_NUMBER), NUMBER_BITS);
    cursor_open(cursor, two, sql);
}

#undef FIELD_BIT
#undef FIELD_NUMBER

static bool match_next(struct cursor *cursor, struct match *match)
{
    if (!cursor_next(cursor)) {
        return false;
    }
    for (int side = 0; side < DIFF_SIDES; side++) {
        match->seq[side] = cursor_integer(cursor, side);
        match->kind[side] = cursor_integer(cursor, 2 + side);
        match->id[side] = cursor_integer(cursor, 4 + side);
        match->callsite[side] = cursor_integer(cursor, 6 + side);
    }
    match->ring = cursor_integer(cursor, 8);
    match->number = cursor_integer(cursor, 9);
    match->same_stack = cursor_integer(cursor, 10) != 0;
    match->fields = (uint32_t)cursor_integer(cursor, 11);
    return true;
}

static void load_matches(struct diff *diff, struct database *two)
{
    struct matching matching = {.number_limit =
                                    NUMBERS_PER_EVENT * (diff->traces[DIFF_A].events + diff->traces[DIFF_B].events) +
                                    NUMBERS_SLACK};
    struct cursor cursor;
    match_open(&cursor, two);
    struct match match;
    while (match_next(&cursor, &match)) {
        struct diff_totals *kind = &diff->kinds[diff_kind_index(match.kind[DIFF_A])];
        kind->both++;
        match.fields = match_fields(&matching, &match);
        if (match.fields == 0) {
            continue;
        }
        kind->differing++;
        diff->entries_all++;
        for (unsigned field = 0; field < DIFF_FIELD_LIMIT; field++) {
            diff->fields[field] += match.fields >> field & 1U;
        }
        if (diff->entry_count < diff->entry_limit) {
            add_differing(diff, &matching, &match);
        }
    }
    cursor_close(&cursor);
    diff->callsite_pairs = matching.families[FAMILY_CALLSITE].pairs;
    diff->callsite_pairs_odd = matching.families[FAMILY_CALLSITE_ODD].pairs;
    matching_free(&matching);
}

/* ---- events of one side only, and the list ---- */

/* In the order in which they come. */
static void load_run(struct diff_entry *entry, struct database *two, int64_t run)
{
    struct cursor cursor;
    cursor_open(&cursor, two,
                "SELECT kind, count(*) FROM alone WHERE side = ?1 AND run = ?2 GROUP BY kind ORDER BY min(key)");
    cursor_bind_integer(&cursor, 1, entry->what);
    cursor_bind_integer(&cursor, 2, run);
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

static void load_alone(struct diff *diff, struct database *two)
{
    database_execute(two, alone_sql);
    struct cursor cursor;
    cursor_open(&cursor, two, "SELECT side, kind, count(*) FROM alone GROUP BY side, kind");
    while (cursor_next(&cursor)) {
        diff->kinds[diff_kind_index(cursor_integer(&cursor, 1))].alone[cursor_integer(&cursor, 0)] +=
            cursor_integer(&cursor, 2);
    }
    cursor_close(&cursor);
    diff->entries_all += database_integer(two, "SELECT count(*) FROM (SELECT DISTINCT side, run FROM alone)", 0);
    cursor_open(&cursor, two,
                "SELECT side, min(key) >> 40, min(key) & " NUMBER_MASK ", max(key) & " NUMBER_MASK
                ", min(seq), run FROM alone GROUP BY side, run ORDER BY 5, 1, 3 LIMIT ?1");
    cursor_bind_integer(&cursor, 1, (int64_t)diff->entry_limit);
    while (cursor_next(&cursor)) {
        struct diff_entry *entry = entry_add(diff);
        *entry = (struct diff_entry){
            .what = (enum diff_what)cursor_integer(&cursor, 0),
            .ring = cursor_integer(&cursor, 1),
            .first = cursor_integer(&cursor, 2),
            .last = cursor_integer(&cursor, 3),
            .seq = cursor_integer(&cursor, 4),
        };
        load_run(entry, two, cursor_integer(&cursor, 5));
    }
    cursor_close(&cursor);
}

static int diff_events_compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_entries(const void *a_untyped, const void *b_untyped)
{
    const struct diff_entry *a = a_untyped;
    const struct diff_entry *b = b_untyped;
    int order = diff_events_compare_numbers(a->seq, b->seq);
    order = order != 0 ? order : diff_events_compare_numbers(a->what, b->what);
    return order != 0 ? order : diff_events_compare_numbers(a->first, b->first);
}

/* The first entry_limit of all, with the names of their rings. */
static void finish_list(struct diff *diff, struct database *two)
{
    if (diff->entry_count > 1) {
        qsort(diff->entries, diff->entry_count, sizeof(diff->entries[0]), compare_entries);
    }
    for (; diff->entry_count > diff->entry_limit; diff->entry_count--) {
        free(diff->entries[diff->entry_count - 1].kinds);
        free(diff->entries[diff->entry_count - 1].detail);
    }
    struct cursor cursor;
    cursor_open(&cursor, two, "SELECT process_id, ring FROM ring WHERE id = ?1");
    for (size_t i = 0; i < diff->entry_count; i++) {
        cursor_bind_integer(&cursor, 1, diff->entries[i].ring);
        if (cursor_next(&cursor)) {
            diff->entries[i].process_id = cursor_integer(&cursor, 0);
            diff->entries[i].ring = cursor_integer(&cursor, 1);
        }
        cursor_reset(&cursor);
    }
    cursor_close(&cursor);
}

/* ---- processes and threads ---- */

/* A trace may know less of its processes than another and yet hold every event. Values are compared as text. */
#define ALONE_ROWS(position, table, key, ring, match)                                          \
    "SELECT " position " AS position, 0 AS number, '" table "' AS name, x." key                \
    " AS process_id, " ring(x) " AS ring, "                                                    \
                               "NULL AS field, x.pid AS a, NULL AS b FROM a." table            \
                               " x WHERE NOT EXISTS (SELECT 1 FROM b." table " y WHERE " match \
                               ") UNION ALL SELECT " position ", 0, '" table "', y." key       \
                               ", " ring(y) ", NULL, NULL, y.pid FROM b." table                \
                                            " y WHERE NOT EXISTS (SELECT 1 FROM a." table " x WHERE " match ")"
#define FIELD_ROWS(position, number, table, key, ring, match, column)                                         \
    " UNION ALL SELECT " position ", " number ", '" table "', x." key                                         \
    ", " ring(x) ", '" column "', x." column ", y." column " FROM a." table " x JOIN b." table " y ON " match \
                 " WHERE CAST(x." column " AS TEXT) IS NOT CAST(y." column " AS TEXT)"
#define NO_RING(row) "-1"
#define RING(row) #row ".ring"
#define SAME_PROCESS "x.id = y.id"
#define SAME_RING "x.process_id = y.process_id AND x.ring = y.ring"
#define PROCESS_FIELD(number, column) FIELD_ROWS("0", #number, "process", "id", NO_RING, SAME_PROCESS, column)
#define THREAD_FIELD(number, column) FIELD_ROWS("1", #number, "thread", "process_id", RING, SAME_RING, column)

static const char remarks_sql[] =
    "SELECT name, process_id, ring, field, CAST(a AS TEXT), CAST(b AS TEXT) FROM (" ALONE_ROWS(
        "0", "process", "id", NO_RING, SAME_PROCESS) PROCESS_FIELD(1, "pid") PROCESS_FIELD(2, "parent_pid")
        PROCESS_FIELD(3, "parent_id") PROCESS_FIELD(4, "rank") PROCESS_FIELD(5, "executable")
            PROCESS_FIELD(6, "command_line") " UNION ALL " ALONE_ROWS("1", "thread", "process_id", RING, SAME_RING)
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
    int result = VARVE_OK;
    for (int side = 0; side < DIFF_SIDES && result == VARVE_OK; side++) {
        result = report_require_events(diff->traces[side].database, message);
        result = result == VARVE_OK ? database_error(diff->traces[side].database, message) : result;
    }
    struct database *two = NULL;
    VARVE_THEN(result, database_open_two(database_path(diff->traces[DIFF_A].database),
                                         database_path(diff->traces[DIFF_B].database), &two, message));
    if (result != VARVE_OK) {
        return result;
    }
    compare_runs(diff);
    database_watch(two, progress, "looking for gaps");
    database_execute(two, tables_sql);
    load_traces(diff, two);
    database_watch(two, progress, "comparing stacks");
    diff_stacks_make(two, DIFF_FRAMES_WHOLE);
    database_watch(two, progress, "comparing events");
    load_matches(diff, two);
    load_alone(diff, two);
    finish_list(diff, two);
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
