/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings of an allocator in a database's `meta`, written by import and replay, and read back for a replay
 * of that database. A fraction is kept as text, since `meta` has integers and texts.
 */
#include "analysis/history/database.h"

#include "analysis/query/db.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIVISIONS 16

void history_write_settings(struct varve_writer *writer, const struct history_settings *settings,
                            int64_t begin_us)
{
    char text[DIVISIONS * 24];
    size_t used = 0;

    varve_writer_meta_integer(writer, "history.begin_us", begin_us);
    if (!settings->is_known) {
        return;
    }
    varve_writer_meta_text(writer, "allocator.conf", settings->text);
    varve_writer_meta_integer(writer, "allocator.max_split_size", settings->max_split_size);
    varve_writer_meta_integer(writer, "allocator.expandable_segments", settings->expandable_segments);
    snprintf(text, sizeof(text), "%.17g", settings->garbage_collection_threshold);
    varve_writer_meta_text(writer, "allocator.garbage_collection_threshold", text);
    for (size_t i = 0; i < DIVISIONS; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%" PRIu64, i > 0 ? " " : "",
                                 settings->divisions[i]);
    }
    varve_writer_meta_text(writer, "allocator.roundup_power2_divisions", text);
}

static int64_t meta_integer(struct database *database, const char *key, int64_t otherwise)
{
    char *text = database_meta(database, key);
    int64_t value = text == NULL ? otherwise : strtoll(text, NULL, 10);

    free(text);
    return value;
}

void history_read_settings(struct database *database, struct history_settings *settings, int64_t *begin_us)
{
    char *text = database_meta(database, "allocator.conf");

    *begin_us = meta_integer(database, "history.begin_us", 0);
    *settings = (struct history_settings){.max_split_size = -1};
    if (text == NULL) {
        return;
    }
    settings->is_known = true;
    snprintf(settings->text, sizeof(settings->text), "%s", text);
    free(text);
    settings->max_split_size = meta_integer(database, "allocator.max_split_size", -1);
    settings->expandable_segments = meta_integer(database, "allocator.expandable_segments", 0) != 0;
    text = database_meta(database, "allocator.garbage_collection_threshold");
    settings->garbage_collection_threshold = text == NULL ? 0 : strtod(text, NULL);
    free(text);
    text = database_meta(database, "allocator.roundup_power2_divisions");
    if (text != NULL) {
        char *rest = text;

        for (size_t i = 0; i < DIVISIONS; i++) {
            settings->divisions[i] = strtoull(rest, &rest, 10);
        }
        free(text);
    }
}
