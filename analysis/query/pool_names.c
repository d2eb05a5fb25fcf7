/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/query/segment_query.h"

#include "analysis/base/json_writer.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/query/database.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOLS (1U << 15) /* a pool is a small one and a large one, whose numbers are 16 bits */
#define USER_COLUMNS 50

static bool pool_names_lookup(struct database *database, struct cursor *cursor, const char *sql,
                              const struct segments_part *part, int64_t number)
{
    cursor_open(cursor, database, sql);
    cursor_bind_integer(cursor, 1, part->process_id);
    cursor_bind_integer(cursor, 2, part->device);
    cursor_bind_integer(cursor, 3, number);
    if (cursor_next(cursor)) {
        return true;
    }
    cursor_close(cursor);
    return false;
}

int64_t stream_handle(struct database *database, const struct segments_part *part, int64_t number)
{
    struct cursor cursor;
    int64_t handle = number;
    if (pool_names_lookup(database, &cursor, sql_stream_of_number, part, number)) {
        handle = cursor_integer(&cursor, 0);
        cursor_close(&cursor);
    }
    return handle;
}

struct pool_meaning pool_of(struct database *database, const struct segments_part *part, unsigned number)
{
    struct pool_meaning pool = {.is_small = number & 1, .has_ids = number < 2};
    struct cursor cursor;
    if (pool_names_lookup(database, &cursor, sql_pool_of_number, part, number)) {
        pool = (struct pool_meaning){.is_small = cursor_integer(&cursor, 0) != 0,
                                     .has_ids = true,
                                     .capture_id = cursor_integer(&cursor, 1),
                                     .user_id = cursor_integer(&cursor, 2)};
        cursor_close(&cursor);
    }
    return pool;
}

void pool_name(struct database *database, const struct segments_part *part, unsigned number, char name[POOL_NAME_BYTES])
{
    pool_name_of(pool_of(database, part, number).is_small, number, name);
}

void pool_name_of(bool is_small, unsigned number, char name[POOL_NAME_BYTES])
{
    const char *kind = is_small ? "small" : "large";
    if (number < 2) {
        snprintf(name, POOL_NAME_BYTES, "%s", kind);
    } else {
        snprintf(name, POOL_NAME_BYTES, "%s %u", kind, number / 2U % 100000U);
    }
}

struct cJSON *pool_ids_json(const struct pool_meaning *pool)
{
    if (!pool->has_ids) {
        return json_null_value();
    }
    struct cJSON *ids = json_array();
    json_append(ids, json_integer_value(pool->capture_id));
    json_append(ids, json_integer_value(pool->user_id));
    return ids;
}

/* ---- private pools ---- */

/* Rows of private_pool, and what each pool has of the device's memory. */
struct private_pools {
    uint64_t *mapped; /* by number */
    struct cursor cursor;
    unsigned number;  /* the row at hand: */
    const char *kind; /* NULL: unknown */
    struct pool_meaning meaning;
    struct owner owner;
};

static void private_pools_open(struct private_pools *pools, struct database *database, const struct segments_part *part)
{
    *pools = (struct private_pools){.mapped = memory_resize(NULL, POOLS * sizeof(*pools->mapped))};
    memset(pools->mapped, 0, POOLS * sizeof(*pools->mapped));
    struct segment_item item;
    for (uint64_t from = 0; segment_next(part->layout, &from, true, &item);) {
        pools->mapped[item.first.pool / 2U] += item.mapped;
    }
    cursor_open(&pools->cursor, database, sql_private_pools);
    cursor_bind_integer(&pools->cursor, 1, part->process_id);
    cursor_bind_integer(&pools->cursor, 2, part->device);
}

/* The next one that has memory; false, and closed, behind the last. */
static bool private_pools_next(struct private_pools *pools)
{
    while (cursor_next(&pools->cursor)) {
        pools->number = (unsigned)cursor_integer(&pools->cursor, 0) % POOLS;
        if (pools->mapped[pools->number] > 0) {
            pools->kind = cursor_text(&pools->cursor, 1);
            pools->meaning = (struct pool_meaning){.has_ids = pools->kind != NULL,
                                                   .capture_id = cursor_integer(&pools->cursor, 2),
                                                   .user_id = cursor_integer(&pools->cursor, 3)};
            pools->owner = (struct owner){.callsite_id = cursor_integer(&pools->cursor, 4),
                                          .function = cursor_text(&pools->cursor, 5),
                                          .file = cursor_text(&pools->cursor, 6),
                                          .line = cursor_integer(&pools->cursor, 7)};
            return true;
        }
    }
    cursor_close(&pools->cursor);
    free(pools->mapped);
    return false;
}

static void private_pools_print_line(FILE *out, const struct private_pools *pools)
{
    char ids[48] = "", text[OWNER_TEXT_BYTES];
    if (pools->meaning.has_ids) {
        snprintf(ids, sizeof(ids), "(%" PRId64 ", %" PRId64 ")", pools->meaning.capture_id, pools->meaning.user_id);
    }
    owner_text(&pools->owner, USER_COLUMNS, text);
    fprintf(out, "  %4u  %10s %-11s %s%s%s\n", pools->number, format_bytes((int64_t)pools->mapped[pools->number]).text,
            ids, pools->kind != NULL ? pools->kind : "unknown", text[0] != '\0' ? ": " : "", text);
}

void private_pools_print(FILE *out, struct database *database, const struct segments_part *part, int64_t top)
{
    struct private_pools pools;
    int64_t count = 0;
    for (private_pools_open(&pools, database, part); private_pools_next(&pools); count++) {
        if (count == 0) {
            fputs("\n  private pools, and who first asked the device for memory there\n"
                  "  pool        size in PyTorch  kind\n",
                  out);
        }
        if (count < top) {
            private_pools_print_line(out, &pools);
        }
    }
    if (count > top) {
        fprintf(out, "  and %s more; --all shows all\n", format_count(count - top).text);
    }
}

struct cJSON *private_pools_json(struct database *database, const struct segments_part *part)
{
    struct cJSON *array = json_array();
    struct private_pools pools;
    for (private_pools_open(&pools, database, part); private_pools_next(&pools);) {
        struct cJSON *object = json_object();
        json_integer(object, "number", pools.number);
        json_add(object, "segment_pool_id", pool_ids_json(&pools.meaning));
        json_text(object, "kind", pools.kind);
        json_integer(object, "size", (int64_t)pools.mapped[pools.number]);
        owner_json(object, &pools.owner);
        json_append(array, object);
    }
    return array;
}
