/* SPDX-License-Identifier: Apache-2.0 */
/* A section as text and as JSON. */
#include "analysis/report/report.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/terminal.h"
#include "analysis/query/database.h"
#include "analysis/report/report_title.h"

#include <stdlib.h>

void report_section_table(FILE *out, struct database *database, const struct report_section *section)
{
    char *rows;
    size_t bytes;
    FILE *table = memory_stream(&rows, &bytes);
    struct cursor cursor;
    cursor_open(&cursor, database, section->table->sql);
    cursor_bind_integer(&cursor, 1, -1);
    int64_t all = query_print_rows(table, &cursor, section->table, terminal_columns(), SECTION_ROWS_TEXT);
    memory_stream_end(table, &rows);
    if (all > 0) {
        report_rule_print(out, section->title);
        if (section->text == NULL) {
            fputs("  ", out);
            format_print_wrapped(out, section->explanation, 2);
        }
        fputs(rows, out);
    }
    if (all > SECTION_ROWS_TEXT) {
        fprintf(out, "  and %s more (--json has all)\n", format_count(all - SECTION_ROWS_TEXT).text);
    }
    free(rows);
}

void report_section_print(FILE *out, struct database *database, const struct report_section *section,
                          const struct report_options *options)
{
    if ((!options->stacks.is_all && !section->is_short) ||
        (section->is_there != NULL && !section->is_there(database))) {
        return;
    }
    if (section->text != NULL) {
        section->text(out, database, section, options);
    } else {
        report_section_table(out, database, section);
    }
}

static struct cJSON *rows_json(struct database *database, const struct report_section *section)
{
    return query_json(database, section->json_sql != NULL ? section->json_sql : section->table->sql, SECTION_ROWS_JSON);
}

void report_section_add(struct cJSON *answer, struct database *database, const struct report_section *section,
                        const struct report_options *options)
{
    if (section->is_in_other_json || (section->is_there != NULL && !section->is_there(database))) {
        return;
    }
    struct cJSON *value = section->json != NULL ? section->json(database, options) : rows_json(database, section);
    if (value != NULL && section->group != NULL) {
        json_add(json_member(answer, section->group), section->key, value);
    } else if (value != NULL) {
        json_add(answer, section->key, value);
    }
}
