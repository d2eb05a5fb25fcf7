/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve diff --events` on random traces with random changes: every figure against a plain comparison, which looks for
 * each event of A in all of B.
 */
#include <cmocka.h>

#include "support/command.h"
#include "support/random.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 100
#define ROWS_MAX 400
#define RINGS 4
#define CALLSITES 6
#define UNKNOWN_THREAD 77

static const char *const columns[] = {
    "ts_ns", "pid",  "tid",  "device",    "dev_seq", "kind",  "stream",      "pool",
    "id",    "addr", "size", "requested", "arg",     "cause", "callsite_id", "flags",
};

#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

enum {
    KIND = 5,
    ID = 8,
    CALLSITE = 14,
    FRAMES = COLUMNS,
};

struct row {
    int64_t values[COLUMNS];
    uint32_t nulls;
    int ring;       /* index; -1: of an unknown thread */
    int64_t number; /* 0: NULL */
    bool is_keyed;
};

struct side {
    struct row rows[ROWS_MAX];
    int count;
    int64_t first_thread;        /* row of ring 0 */
    int contents[CALLSITES + 1]; /* of each call site: equal ones have equal frames */
    int64_t without_number, without_thread, out_of_order;
};

struct answer {
    int both, alone[2], differing, fields[COLUMNS + 1], runs, pairs;
};

static uint64_t random_state;

static int below(int limit)
{
    return (int)random_below(&random_state, (uint64_t)limit);
}

/* ---- traces ---- */

static struct row *row_insert(struct side *side, int at)
{
    assert_true(side->count < ROWS_MAX);
    memmove(&side->rows[at + 1], &side->rows[at], (size_t)(side->count++ - at) * sizeof(struct row));
    side->rows[at] = (struct row){0};
    return &side->rows[at];
}

static void row_remove(struct side *side, int at)
{
    memmove(&side->rows[at], &side->rows[at + 1], (size_t)(--side->count - at) * sizeof(struct row));
}

static void trace_make(struct side *side)
{
    static const int kinds[] = {1, 2, 3, 4, 5, 6, 7, 10, 17, 26, 32, 32, 33, 33, 34, 35, 36, 50, 53, 60};
    int64_t last[RINGS] = {0};
    int count = below(200);

    *side = (struct side){.first_thread = 1};
    for (int i = 1; i <= CALLSITES; i++) {
        side->contents[i] = below(3) == 0 ? 1 : i; /* some are equal */
    }
    for (int i = 0; i < count; i++) {
        struct row *row = row_insert(side, i);

        row->ring = below(RINGS);
        row->number = last[row->ring] += below(10) == 0 ? 3 : 1;
        for (size_t column = 0; column < COLUMNS; column++) {
            row->values[column] = below(3);
            if (column >= 3 && column != KIND && below(5) == 0) {
                row->values[column] = 0;
                row->nulls |= 1U << column;
            }
        }
        row->values[KIND] = kinds[below((int)(sizeof(kinds) / sizeof(kinds[0])))];
        if ((row->nulls >> ID & 1U) == 0) {
            row->values[ID] = below(30);
        }
        if ((row->nulls >> CALLSITE & 1U) == 0) {
            row->values[CALLSITE] = below(CALLSITES + 1);
        }
    }
}

/* Rings change places wherever two of them are neighbours. */
static void rows_mix(struct side *side)
{
    for (int i = 0; i + 1 < side->count; i++) {
        if (side->rows[i].ring != side->rows[i + 1].ring && below(2) == 0) {
            struct row row = side->rows[i];

            side->rows[i] = side->rows[i + 1];
            side->rows[i + 1] = row;
        }
    }
}

/* Numbers that stand for something get others, one to one. */
static void numbers_change(struct side *side)
{
    int contents[CALLSITES + 1];

    memcpy(contents, side->contents, sizeof(contents));
    for (int i = 1; i <= CALLSITES; i++) {
        side->contents[CALLSITES + 1 - i] = contents[i];
    }
    for (int i = 0; i < side->count; i++) {
        int64_t *id = &side->rows[i].values[ID];
        int64_t *callsite = &side->rows[i].values[CALLSITE];
        int64_t kind = side->rows[i].values[KIND];
        bool is_own = kind == 17 || kind == 26 || kind == 50 || kind == 53 || kind == 60;

        *id = *id > 0 && !is_own ? 100 - *id : *id;
        *callsite = *callsite > 0 ? CALLSITES + 1 - *callsite : *callsite;
    }
}

static void change_one(struct side *side)
{
    int at = below(side->count);
    struct row *row = &side->rows[at];
    static const int difficult[] = {KIND, ID, CALLSITE};
    int column = below(2) == 0 ? difficult[below(3)] : below((int)COLUMNS);

    switch (below(9)) {
    case 0:
    case 1:
        for (int n = below(5); n >= 0 && at < side->count; n--) {
            row_remove(side, at);
        }
        break;
    case 2:
    case 3:
    case 4:
        row->values[column] += below(3);
        row->values[CALLSITE] %= CALLSITES + 1;
        row->nulls &= ~(1U << column);
        if (column == 3 || column == 4 || column > KIND) {
            row->nulls |= (uint32_t)(below(4) == 0) << column;
            row->values[column] = (row->nulls >> column & 1U) != 0 ? 0 : row->values[column];
        }
        break;
    case 5:
        row->number = below(2) == 0 ? 0 : row->number - below(3);
        row->number = row->number < 0 ? 0 : row->number;
        break;
    case 6:
        row->ring = below(3) == 0 ? -1 : row->ring;
        break;
    case 7:
        row = row_insert(side, at);
        row->values[KIND] = 53; /* a row that stands for missing ones */
        row->ring = below(RINGS);
        break;
    default:
        side->contents[1 + below(CALLSITES)] = 1 + below(9);
        break;
    }
}

/* ---- databases ---- */

static char *empty;
static size_t empty_bytes;

static void database_make(const char *path, const struct side *side)
{
    sqlite3 *database;
    sqlite3_stmt *statement;
    char sql[400] = "INSERT INTO event(";

    file_write(path, empty, empty_bytes);
    for (size_t i = 0; i < COLUMNS; i++) {
        snprintf(sql + strlen(sql), sizeof(sql) - strlen(sql), "%s, ", columns[i]);
    }
    snprintf(sql + strlen(sql), sizeof(sql) - strlen(sql),
             "thread_id, ring_seq) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    sqlite3_exec(database, "PRAGMA synchronous = OFF; BEGIN", NULL, NULL, NULL);
    assert_int_equal(sqlite3_prepare_v2(database, sql, -1, &statement, NULL), SQLITE_OK);
    for (int i = 0; i < side->count; i++) {
        const struct row *row = &side->rows[i];

        for (int column = 0; column < (int)COLUMNS; column++) {
            sqlite3_bind_int64(statement, column + 1, row->values[column]);
            if ((row->nulls >> column & 1U) != 0) {
                sqlite3_bind_null(statement, column + 1);
            }
        }
        sqlite3_bind_int64(statement, COLUMNS + 1,
                           row->ring < 0 ? UNKNOWN_THREAD : side->first_thread + row->ring);
        sqlite3_bind_null(statement, COLUMNS + 2);
        if (row->number != 0) {
            sqlite3_bind_int64(statement, COLUMNS + 2, row->number);
        }
        assert_int_equal(sqlite3_step(statement), SQLITE_DONE);
        sqlite3_reset(statement);
    }
    sqlite3_finalize(statement);
    for (int i = 0; i < RINGS; i++) {
        snprintf(sql, sizeof(sql),
                 "INSERT INTO thread(id, process_id, ring, pid, tid) VALUES (%d, %d, %d, 1, 1)",
                 (int)side->first_thread + i, 1 + i / 2, i);
        assert_int_equal(sqlite3_exec(database, sql, NULL, NULL, NULL), SQLITE_OK);
    }
    for (int i = 1; i <= CALLSITES; i++) {
        snprintf(sql, sizeof(sql),
                 "INSERT INTO symbol(id, function, line, is_python, is_inlined) VALUES (%d, 'f', %d, 0, 0);"
                 "INSERT INTO stack_node(id, symbol_id) VALUES (%d, %d);"
                 "INSERT INTO callsite(id, node_id, depth) VALUES (%d, %d, 1)",
                 i, side->contents[i], i, i, i, i);
        assert_int_equal(sqlite3_exec(database, sql, NULL, NULL, NULL), SQLITE_OK);
    }
    assert_int_equal(sqlite3_exec(database, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
}

/* ---- the plain comparison ---- */

static void find_keys(struct side *side)
{
    for (int i = 0; i < side->count; i++) {
        struct row *row = &side->rows[i];
        int64_t last = 0;

        for (int before = 0; before < i; before++) {
            const struct row *other = &side->rows[before];

            last = other->ring == row->ring && other->is_keyed ? other->number : last;
        }
        row->is_keyed = row->number > last && row->ring >= 0;
        if (row->is_keyed || (row->values[KIND] == 53 && row->number == 0)) {
            continue;
        }
        side->without_number += row->number == 0 ? 1 : 0;
        side->without_thread += row->number != 0 && row->ring < 0 ? 1 : 0;
        side->out_of_order += row->number != 0 && row->ring >= 0 ? 1 : 0;
    }
}

static const struct row *find_partner(const struct side *side, const struct row *row)
{
    for (int i = 0; i < side->count; i++) {
        const struct row *other = &side->rows[i];

        if (other->is_keyed && other->ring == row->ring && other->number == row->number) {
            return other;
        }
    }
    return NULL;
}

/* Events that `side` alone has, in runs. */
static int count_alone(const struct side *side, const struct side *other, int *runs)
{
    int64_t last[RINGS] = {0};
    int count = 0;

    for (int i = 0; i < side->count; i++) {
        const struct row *row = &side->rows[i];

        if (row->is_keyed && find_partner(other, row) == NULL) {
            *runs += last[row->ring] == 0 || row->number != last[row->ring] + 1 ? 1 : 0;
            last[row->ring] = row->number;
            count++;
        }
    }
    return count;
}

/* 0: no table; 1: allocation; 2: segment. */
static int id_table(int64_t kind)
{
    return (kind >= 1 && kind <= 3) || kind == 10 || (kind >= 32 && kind <= 36) ? 1
           : kind >= 4 && kind <= 9                                             ? 2
                                                                                : 0;
}

struct pair {
    int table; /* 3: call sites */
    int64_t a, b;
};

/* 1: a new pair; 0: they belong together; -1: they do not. */
static int pair_judge(struct pair *pairs, int *count, int table, int64_t a, int64_t b, bool is_kept)
{
    for (int i = 0; i < *count; i++) {
        if (pairs[i].table == table && (pairs[i].a == a || pairs[i].b == b)) {
            return pairs[i].a == a && pairs[i].b == b ? 0 : -1;
        }
    }
    if (is_kept) {
        pairs[(*count)++] = (struct pair){table, a, b};
    }
    return 1;
}

static struct answer compare(const struct side *a_side, const struct side *b_side)
{
    static struct pair pairs[2 * ROWS_MAX];
    struct answer answer = {0};
    int count = 0;

    answer.alone[0] = count_alone(a_side, b_side, &answer.runs);
    answer.alone[1] = count_alone(b_side, a_side, &answer.runs);
    for (int i = 0; i < a_side->count; i++) {
        const struct row *a = &a_side->rows[i];
        const struct row *b = a->is_keyed ? find_partner(b_side, a) : NULL;
        bool differs[COLUMNS + 1] = {false};
        bool any = false;

        if (b == NULL) {
            continue;
        }
        for (size_t column = 0; column < COLUMNS; column++) {
            differs[column] =
                a->values[column] != b->values[column] || ((a->nulls ^ b->nulls) >> column & 1U) != 0;
        }
        int table = id_table(a->values[KIND]);

        if (table != 0 && table == id_table(b->values[KIND]) && a->values[ID] != 0 && b->values[ID] != 0) {
            differs[ID] = pair_judge(pairs, &count, table, a->values[ID], b->values[ID], true) < 0;
        }
        if (a->values[CALLSITE] != 0 && b->values[CALLSITE] != 0) {
            int judgement;

            differs[FRAMES] = a_side->contents[a->values[CALLSITE]] != b_side->contents[b->values[CALLSITE]];
            judgement =
                pair_judge(pairs, &count, 3, a->values[CALLSITE], b->values[CALLSITE], !differs[FRAMES]);
            differs[CALLSITE] = judgement < 0;
            answer.pairs += judgement > 0 && !differs[FRAMES] ? 1 : 0;
        }
        answer.both++;
        for (size_t column = 0; column <= COLUMNS; column++) {
            answer.fields[column] += differs[column] ? 1 : 0;
            any = any || differs[column];
        }
        answer.differing += any ? 1 : 0;
    }
    answer.runs += answer.differing;
    return answer;
}

/* ---- the test ---- */

static void expect(const char *out, const char *words, int round)
{
    if (strstr(out, words) == NULL) {
        fail_msg("round %d: no %s in %s", round, words, out);
    }
}

static void expect_side(const char *out, const struct side *side, int round)
{
    char words[200];

    snprintf(words, sizeof(words), "\"without_number\":%d,\"without_thread\":%d,\"out_of_order\":%d",
             (int)side->without_number, (int)side->without_thread, (int)side->out_of_order);
    expect(out, words, round);
}

static void expect_answer(const char *out, const struct answer *answer, bool is_equal, int round)
{
    char words[800];
    int used;
    const char *comma = "";

    expect(out, is_equal ? "{\"equal\":true" : "{\"equal\":false", round);
    snprintf(words, sizeof(words),
             "\"in_both\":%d,\"only_in_a\":%d,\"only_in_b\":%d,\"differing\":%d,\"kinds\"", answer->both,
             answer->alone[0], answer->alone[1], answer->differing);
    expect(out, words, round);
    used = snprintf(words, sizeof(words), "\"fields\":{");
    for (size_t i = 0; i <= COLUMNS; i++) {
        if (answer->fields[i] > 0) {
            used += snprintf(words + used, sizeof(words) - (size_t)used, "%s\"%s\":%d", comma,
                             i < COLUMNS ? columns[i] : "frames", answer->fields[i]);
            comma = ",";
        }
    }
    snprintf(words + used, sizeof(words) - (size_t)used, "},\"callsites\":%d,", answer->pairs);
    expect(out, words, round);
    snprintf(words, sizeof(words), "\"differences_all\":%d,", answer->runs);
    expect(out, words, round);
}

static bool is_keyed(const struct side *side)
{
    return side->without_number + side->without_thread + side->out_of_order == 0;
}

TEST(test_random)
{
    static struct side a;
    static struct side b;
    int rounds = test_rounds(ROUNDS / 4, ROUNDS);
    int equal = 0;

    for (int round = 0; round < rounds; round++) {
        struct command_outcome outcome;
        struct answer answer;
        bool is_equal;

        random_state = (uint64_t)round;
        trace_make(&a);
        b = a;
        for (int n = below(8); n > 0; n--) {
            rows_mix(&b);
        }
        if (below(2) == 0) {
            numbers_change(&b);
            b.first_thread = 20;
        }
        for (int n = below(3) * below(round % 10 == 0 ? 40 : 4); n > 0 && a.count > 0 && b.count > 0; n--) {
            change_one(below(2) == 0 ? &a : &b);
        }
        find_keys(&a);
        find_keys(&b);
        database_make("a.db", &a);
        database_make("b.db", &b);
        answer = compare(&a, &b);
        is_equal = answer.runs == 0 && is_keyed(&a) && is_keyed(&b);
        equal += is_equal ? 1 : 0;
        outcome = command_run("diff", "--events", "--json", "--limit=1000", "a.db", "b.db", NULL);
        assert_int_equal(outcome.status, is_equal ? 0 : 1);
        expect_answer(outcome.out, &answer, is_equal, round);
        expect_side(outcome.out, &a, round);
        expect_side(strstr(outcome.out, "\"b\":{"), &b, round);
        command_outcome_free(&outcome);
        outcome = command_run("diff", "--events", "--quiet", "b.db", "a.db", NULL);
        assert_int_equal(outcome.status, is_equal ? 0 : 1);
        command_outcome_free(&outcome);
    }
    assert_true(equal > rounds / 10 && equal < rounds / 10 * 9);
}

static int enter(void **state)
{
    *state = test_folder_enter();
    trace_database_make("empty.db", (const char *const[]){NULL});
    sql_run("empty.db", "INSERT INTO meta VALUES ('complete', 1)");
    empty = file_read("empty.db", &empty_bytes);
    return 0;
}

static int leave(void **state)
{
    free(empty);
    test_folder_leave(*state);
    return 0;
}

TEST_FILE(enter, leave)
