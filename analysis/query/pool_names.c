/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/query/segment_query.h"

#include "analysis/query/database.h"

#include "statements_generated.h"

#include <stdio.h>

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
