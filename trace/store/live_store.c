/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A database in memory, filled anew for each moment and serialized: who reads it gets a file that nobody changes any
 * more, so that neither reader nor writer ever waits for a lock of the other. collector/live_figures.c calls it while
 * somebody watches.
 */
#include "trace/store/live_store.h"

#include "trace/model/domain.h"
#include "trace/model/group_leaders.h"
#include "trace/model/model_state.h"
#include "trace/store/store.h"
#include "trace/store/schema.h"
#include "base/error.h"
#include "trace/writer.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

enum statement {
    LIVE_CLEAR_MOMENT, /* what a new moment replaces */
    LIVE_CLEAR_TOTAL_BEFORE,
    LIVE_MOVE_TOTAL,
    LIVE_CLEAR_TOTAL,
    LIVE_CLEAR_CALLSITE,
    LIVE_CLEAR_ALLOCATOR,
    LIVE_CLEAR_PROCESS,
    LIVE_CLEARS,
    LIVE_MOMENT = LIVE_CLEARS,
    LIVE_TOTAL,
    LIVE_CALLSITE,
    LIVE_ALLOCATOR,
    LIVE_PROCESS,
    LIVE_NAME,
    LIVE_HAS_NAME,
    LIVE_CLEAR_NAMES, /* of call sites that do not lead any more */
    LIVE_STATEMENTS,
};

static const char *const sql[LIVE_STATEMENTS] = {
    [LIVE_CLEAR_MOMENT] = "DELETE FROM moment",
    [LIVE_CLEAR_TOTAL_BEFORE] = "DELETE FROM total_before",
    [LIVE_MOVE_TOTAL] = "INSERT INTO total_before SELECT process_id, domain, device, allocations, bytes FROM"
                        " total_stat",
    [LIVE_CLEAR_TOTAL] = "DELETE FROM total_stat",
    [LIVE_CLEAR_CALLSITE] = "DELETE FROM callsite_stat",
    [LIVE_CLEAR_ALLOCATOR] = "DELETE FROM allocator_stat",
    [LIVE_CLEAR_PROCESS] = "DELETE FROM process",
    [LIVE_MOMENT] = "INSERT INTO moment VALUES"
                    " (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, nullif(?11, 0), ?12, ?13, ?14)",
    [LIVE_TOTAL] =
        "INSERT INTO total_stat SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, iif(?11, ?12, NULL), ?13, ?14,"
        " coalesce((SELECT allocations FROM total_before WHERE process_id = ?1 AND domain = ?2 AND device = ?3), 0),"
        " coalesce((SELECT bytes FROM total_before WHERE process_id = ?1 AND domain = ?2 AND device = ?3), 0)",
    [LIVE_CALLSITE] = "INSERT INTO callsite_stat VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    [LIVE_ALLOCATOR] = "INSERT INTO allocator_stat VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [LIVE_PROCESS] = "INSERT INTO process VALUES (?1, ?2, iif(?3 < 0, NULL, ?3), ?6, nullif(?4, 0), ?5)",
    [LIVE_NAME] = "INSERT OR REPLACE INTO callsite_name VALUES (?1, ?4, ?5, nullif(?2, 0), ?6, ?7, ?8,"
                  " nullif(?3, 0), ?9)",
    [LIVE_HAS_NAME] = "SELECT 1 FROM callsite_name WHERE callsite_id = ?1",
    [LIVE_CLEAR_NAMES] = "DELETE FROM callsite_name WHERE callsite_id NOT IN (SELECT callsite_id FROM callsite_stat)",
};

struct live {
    sqlite3 *db;
    sqlite3_stmt *statements[LIVE_STATEMENTS];
    int64_t number; /* of the moment; 0: none yet */
    int64_t ts_ns, events;
};

int live_open(struct live **live_out)
{
    struct live *live = calloc(1, sizeof(*live));
    *live_out = NULL;
    if (live == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    schema_configure();
    char identity[128];
    snprintf(identity, sizeof(identity), "PRAGMA application_id = %d; PRAGMA user_version = %d",
             VARVE_LIVE_APPLICATION_ID, VARVE_LIVE_SCHEMA_VERSION);
    bool is_made =
        sqlite3_open(":memory:", &live->db) == SQLITE_OK &&
        sqlite3_exec(live->db, "PRAGMA page_size = 1024; PRAGMA journal_mode = OFF", NULL, NULL, NULL) == SQLITE_OK &&
        sqlite3_exec(live->db, store_live_sql, NULL, NULL, NULL) == SQLITE_OK &&
        sqlite3_exec(live->db,
                     "CREATE TEMP TABLE total_before(process_id INTEGER, domain INTEGER, device INTEGER,"
                     " allocations INTEGER, bytes INTEGER, PRIMARY KEY(process_id, domain, device)) WITHOUT ROWID",
                     NULL, NULL, NULL) == SQLITE_OK &&
        sqlite3_exec(live->db, identity, NULL, NULL, NULL) == SQLITE_OK && schema_domains(live->db) == VARVE_OK;
    for (unsigned i = 0; i < LIVE_STATEMENTS && is_made; i++) {
        is_made = sqlite3_prepare_v3(live->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &live->statements[i], NULL) ==
                  SQLITE_OK;
    }
    if (!is_made) {
        live_close(live);
        return VARVE_ERROR_DATABASE;
    }
    *live_out = live;
    return VARVE_OK;
}

void live_close(struct live *live)
{
    if (live == NULL) {
        return;
    }
    for (unsigned i = 0; i < LIVE_STATEMENTS; i++) {
        sqlite3_finalize(live->statements[i]);
    }
    sqlite3_close(live->db);
    free(live);
}

static int live_store_step(struct live *live, enum statement number)
{
    sqlite3_stmt *statement = live->statements[number];
    const int result = sqlite3_step(statement);
    sqlite3_reset(statement);
    return result == SQLITE_DONE ? VARVE_OK : VARVE_ERROR_DATABASE;
}

/* Sums of damaged records may be larger than a column. */
static int64_t live_store_clamp(uint64_t value)
{
    return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

static void bind_integers(struct live *live, enum statement number, const int64_t *values, int count)
{
    for (int i = 0; i < count; i++) {
        sqlite3_bind_int64(live->statements[number], i + 1, values[i]);
    }
}

static void bind_text(struct live *live, enum statement number, int index, const char *text)
{
    sqlite3_bind_text(live->statements[number], index, text, -1, SQLITE_TRANSIENT); /* NULL is NULL */
}

#define BIND(live, number, ...)                                 \
    bind_integers(live, number, (const int64_t[]){__VA_ARGS__}, \
                  (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

int live_begin(struct live *live, const struct live_moment *moment)
{
    sqlite3_stmt *statement = live->statements[LIVE_MOMENT];
    const bool has_before = live->number > 0 && moment->ts_ns > live->ts_ns;
    int error = VARVE_OK;
    for (unsigned i = 0; i < LIVE_CLEARS && error == VARVE_OK; i++) {
        error = live_store_step(live, (enum statement)i);
    }
    if (error != VARVE_OK) {
        return error;
    }
    BIND(live, LIVE_MOMENT, live->number + 1, moment->ts_ns, live->ts_ns, 0, moment->pid, moment->is_over,
         live_store_clamp(moment->events), live->events, live_store_clamp(moment->waiting),
         live_store_clamp(moment->lost), live_store_clamp(moment->rss_bytes), moment->processes,
         moment->processes_running, moment->threads);
    bind_text(live, LIVE_MOMENT, 4, moment->command);
    if (!has_before) {
        sqlite3_bind_null(statement, 3);
        sqlite3_bind_null(statement, 8);
    }
    live->number++;
    live->ts_ns = moment->ts_ns;
    live->events = live_store_clamp(moment->events);
    return live_store_step(live, LIVE_MOMENT);
}

int live_total(struct live *live, uint32_t process_id, unsigned slot, const struct total *total)
{
    BIND(live, LIVE_TOTAL, process_id, slot_domain(slot), slot_device(slot), live_store_clamp(total->allocations),
         live_store_clamp(total->frees), live_store_clamp(total->bytes), live_store_clamp(total->live_allocations),
         live_store_clamp(total->live_bytes), live_store_clamp(total->peak_bytes),
         live_store_clamp(total->peak_allocations), total->peak_seq != 0, total->peak_ns,
         live_store_clamp(total->temporary), live_store_clamp(total->failed));
    return live_store_step(live, LIVE_TOTAL);
}

int live_callsite(struct live *live, const struct leader *leader)
{
    const struct callsite_total *total = &leader->total;
    BIND(live, LIVE_CALLSITE, leader->callsite, leader->domain, live_store_clamp(total->allocations),
         live_store_clamp(total->frees), live_store_clamp(total->bytes), live_store_clamp(total->live_allocations),
         live_store_clamp(total->live_bytes), live_store_clamp(total->peak_allocations),
         live_store_clamp(total->peak_bytes), live_store_clamp(total->temporary),
         live_store_clamp(leader->allocations_before), live_store_clamp(leader->bytes_before));
    return live_store_step(live, LIVE_CALLSITE);
}

int live_allocator(struct live *live, const struct live_allocator *row)
{
    BIND(live, LIVE_ALLOCATOR, row->process_id, row->device, row->segments, live_store_clamp(row->reserved),
         live_store_clamp(row->active), live_store_clamp(row->allocated), live_store_clamp(row->requested),
         live_store_clamp(row->cached));
    return live_store_step(live, LIVE_ALLOCATOR);
}

int live_process(struct live *live, const struct live_process *row)
{
    BIND(live, LIVE_PROCESS, row->id, row->pid, row->rank, live_store_clamp(row->rss_bytes), row->threads);
    bind_text(live, LIVE_PROCESS, 6, row->command_line);
    return live_store_step(live, LIVE_PROCESS);
}

bool live_has_name(struct live *live, uint32_t callsite)
{
    sqlite3_stmt *statement = live->statements[LIVE_HAS_NAME];
    BIND(live, LIVE_HAS_NAME, callsite);
    bool has = sqlite3_step(statement) == SQLITE_ROW;
    sqlite3_reset(statement);
    return has;
}

int live_name(struct live *live, uint32_t callsite, const struct store_symbol *user, const struct store_symbol *symbol)
{
    const struct store_symbol *both[] = {user, symbol};
    BIND(live, LIVE_NAME, callsite, user->line, symbol->line);
    for (int i = 0; i < 2; i++) {
        bind_text(live, LIVE_NAME, 4 + 3 * i, both[i]->function);
        bind_text(live, LIVE_NAME, 5 + 3 * i, both[i]->file);
        bind_text(live, LIVE_NAME, 6 + 3 * i, both[i]->module);
    }
    return live_store_step(live, LIVE_NAME);
}

void *live_bytes(struct live *live, size_t *bytes_out)
{
    sqlite3_int64 bytes = 0;
    void *file =
        live_store_step(live, LIVE_CLEAR_NAMES) == VARVE_OK ? sqlite3_serialize(live->db, "main", &bytes, 0) : NULL;
    *bytes_out = file != NULL ? (size_t)bytes : 0;
    return file;
}

void live_bytes_free(void *bytes)
{
    sqlite3_free(bytes);
}
