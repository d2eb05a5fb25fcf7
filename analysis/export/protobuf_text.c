/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/export/track_writer.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"

#include <stdlib.h>
#include <string.h>

void text_clean(char clean[FRAME_NAME_BYTES], const char *text)
{
    format_head(clean, FRAME_NAME_BYTES, text != NULL ? text : "", FRAME_NAME_COLUMNS);
}

uint64_t text_number(struct text_table *table, const char *text, bool *is_new_out)
{
    uint64_t key = map_hash(text, strlen(text));
    uint64_t found = map_find(&table->numbers, key);
    while (found != MAP_NONE && strcmp(table->texts[found], text) != 0) {
        found = map_find(&table->numbers, ++key);
    }
    *is_new_out = found == MAP_NONE;
    if (found != MAP_NONE) {
        return table->first + found;
    }
    table->texts = memory_grow(table->texts, &table->capacity, table->count, sizeof(*table->texts));
    table->texts[table->count] = memory_copy_text(text);
    map_put(&table->numbers, key, table->count);
    return table->first + table->count++;
}

void text_table_free(struct text_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        free(table->texts[i]);
    }
    free(table->texts);
    map_free(&table->numbers);
    *table = (struct text_table){0};
}
