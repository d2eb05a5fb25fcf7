/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The texts lie one after the other; a map finds their numbers by hash, and of two with one hash the later has the next
 * key that is free.
 */
#include "analysis/dtr/dtr_log.h"

#include "analysis/base/memory_or_exit.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The name's number, or NONE and the key to enter it by. */
static uint32_t dtr_names_find(const struct name_table *table, const char *bytes, size_t count, uint64_t *key_out)
{
    *key_out = map_hash(bytes, count);
    uint64_t number;
    while ((number = map_find(&table->numbers, *key_out)) != MAP_NONE) {
        const size_t *offset = &table->offsets[number];
        if (offset[1] - offset[0] - 1 == count && memcmp(table->bytes + offset[0], bytes, count) == 0) {
            return (uint32_t)number;
        }
        ++*key_out;
    }
    return NAME_TABLE_NONE;
}

uint32_t name_table_find(const struct name_table *table, const char *bytes, size_t count)
{
    uint64_t key;
    return dtr_names_find(table, bytes, count, &key);
}

uint32_t name_table_add(struct name_table *table, const char *bytes, size_t count)
{
    uint64_t key;
    uint32_t number = dtr_names_find(table, bytes, count, &key);
    size_t end = table->count > 0 ? table->offsets[table->count] : 0;
    if (number != NAME_TABLE_NONE) {
        return number;
    }
    assert(table->count < NAME_TABLE_NONE - 1);
    if (table->byte_capacity - end < count + 1) {
        table->byte_capacity = 2 * table->byte_capacity + count + 64;
        table->bytes = memory_resize(table->bytes, table->byte_capacity);
    }
    table->offsets =
        memory_grow(table->offsets, &table->offset_capacity, (size_t)table->count + 1, sizeof(*table->offsets));
    memcpy(table->bytes + end, bytes, count);
    table->bytes[end + count] = '\0';
    number = table->count++;
    table->offsets[number] = end;
    table->offsets[table->count] = end + count + 1;
    map_put(&table->numbers, key, number);
    return number;
}

const char *name_table_text(const struct name_table *table, uint32_t number)
{
    return table->bytes + table->offsets[number];
}

void name_table_free(struct name_table *table)
{
    map_free(&table->numbers);
    free(table->bytes);
    free(table->offsets);
    *table = (struct name_table){0};
}
