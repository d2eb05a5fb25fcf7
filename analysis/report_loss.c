/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Was anything lost? Every report begins with the answer, since figures over an incomplete trace are lower
 * bounds. The rings' own books (table thread: emitted = stored + lost + uncommitted) and the view data_loss
 * are both asked.
 */
#include "analysis/report_internal.h"

#include <inttypes.h>

void report_loss_load(struct report_loss *loss, struct database *database)
{
    struct cursor cursor;

    *loss = (struct report_loss){0};
    cursor_open(&cursor, database,
                "SELECT count(*), sum(emitted), sum(stored), sum(spilled), sum(lost), sum(lost_bytes), "
                "sum(uncommitted), count(*) FILTER (WHERE lost > 0) FROM thread");
    if (cursor_next(&cursor)) {
        int64_t *const figures[] = {
            &loss->threads, &loss->emitted,    &loss->stored,      &loss->spilled,
            &loss->lost,    &loss->lost_bytes, &loss->uncommitted, &loss->threads_with_loss,
        };

        for (int column = 0; column < (int)(sizeof(figures) / sizeof(figures[0])); column++) {
            *figures[column] = cursor_integer(&cursor, column);
        }
    }
    cursor_close(&cursor);
    loss->stat_rows = database_integer(database, "SELECT count(*) FROM data_loss", 0);
}

bool report_is_lossless(const struct report_loss *loss)
{
    return loss->lost == 0 && loss->stat_rows == 0 &&
           (uint64_t)loss->emitted == (uint64_t)loss->stored + (uint64_t)loss->uncommitted;
}

void report_loss_print(FILE *out, struct database *database, const struct report_loss *loss)
{
    /* unsigned, as a damaged file may hold any numbers */
    int64_t missing = (int64_t)((uint64_t)loss->emitted - (uint64_t)loss->stored - (uint64_t)loss->lost -
                                (uint64_t)loss->uncommitted);
    struct cursor cursor;

    if (report_is_lossless(loss)) {
        fprintf(out, "nothing lost: %s events emitted, all stored", format_count(loss->emitted).text);
        if (loss->uncommitted > 0) {
            fprintf(out, " but %s that a kill interrupted", format_count(loss->uncommitted).text);
        }
        fputc('\n', out);
        return;
    }
    fprintf(out,
            "DATA LOSS: %s of %s events (%s) of %s thread%s were dropped\n"
            "            their allocations had %s: all figures are lower bounds\n",
            format_count(loss->lost).text, format_count(loss->emitted).text,
            format_share(loss->lost, loss->emitted).text, format_count(loss->threads_with_loss).text,
            loss->threads_with_loss == 1 ? "" : "s", format_bytes_exact(loss->lost_bytes).text);
    if (missing != 0) {
        fprintf(out, "            the rings' books do not add up: %s events are unaccounted for\n",
                format_count(missing).text);
    }
    cursor_open(&cursor, database,
                "SELECT name, source, sum(value), count(*) FROM data_loss GROUP BY name, source ORDER BY "
                "name, source");
    while (cursor_next(&cursor)) {
        fputs("            ", out);
        format_print_safe(out, cursor_name(&cursor, 0));
        fprintf(out, " %s (", format_count(cursor_integer(&cursor, 2)).text);
        format_print_safe(out, cursor_name(&cursor, 1));
        fprintf(out, ", %s entr%s of data_loss)\n", format_count(cursor_integer(&cursor, 3)).text,
                cursor_integer(&cursor, 3) == 1 ? "y" : "ies");
    }
    cursor_close(&cursor);
}

struct cJSON *report_loss_json(struct database *database, const struct report_loss *loss)
{
    struct cJSON *object = json_object();
    struct cJSON *rows = json_array();
    struct cursor cursor;

    json_bool(object, "nothing_lost", report_is_lossless(loss));
    json_integer(object, "emitted", loss->emitted);
    json_integer(object, "stored", loss->stored);
    json_integer(object, "spilled", loss->spilled);
    json_integer(object, "lost", loss->lost);
    json_integer(object, "lost_bytes", loss->lost_bytes);
    json_integer(object, "uncommitted", loss->uncommitted);
    json_integer(object, "threads_with_loss", loss->threads_with_loss);
    cursor_open(&cursor, database, "SELECT name, idx, source, value FROM data_loss ORDER BY name, idx");
    while (cursor_next(&cursor)) {
        struct cJSON *row = json_object();

        json_text(row, "name", cursor_text(&cursor, 0));
        json_integer_or_null(row, "idx", cursor_is_null(&cursor, 1) ? -1 : cursor_integer(&cursor, 1));
        json_text(row, "source", cursor_text(&cursor, 2));
        json_integer(row, "value", cursor_integer(&cursor, 3));
        json_append(rows, row);
    }
    cursor_close(&cursor);
    json_add(object, "data_loss", rows);
    return object;
}
