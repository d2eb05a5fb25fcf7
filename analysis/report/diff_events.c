/* SPDX-License-Identifier: Apache-2.0 */
/* The comparison is SQL: diff_keys.sql, the stacks of diff_stacks.h, diff_events.sql, and diff_words.sql. */
#include "analysis/report/diff_events.h"

#include "analysis/base/progress.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "analysis/report/diff_stacks.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>

extern const char report_diff_keys_sql[], report_diff_events_sql[], report_diff_words_sql[]; /* embedded by the build */

int diff_events_compare(struct diff *diff, struct progress *progress, struct varve_message *message)
{
    int result = VARVE_OK;
    for (int side = 0; side < DIFF_SIDES && result == VARVE_OK; side++) {
        result = report_require_events(diff->traces[side], true, message);
        result = result == VARVE_OK ? database_error(diff->traces[side], message) : result;
    }
    VARVE_THEN(result, database_open_two(database_path(diff->traces[DIFF_A]), database_path(diff->traces[DIFF_B]),
                                         &diff->two, message));
    if (result != VARVE_OK) {
        return result;
    }
    char wanted_sql[128];
    snprintf(wanted_sql, sizeof(wanted_sql),
             "CREATE TABLE wanted AS SELECT %" PRId64 " AS differences, %d AS with_tables", diff->limit,
             diff->with_tables);
    database_watch(diff->two, progress, "looking for gaps");
    database_execute(diff->two, report_diff_keys_sql);
    database_watch(diff->two, progress, "comparing stacks");
    diff_stacks_make(diff->two, DIFF_FRAMES_WHOLE);
    database_watch(diff->two, progress, "comparing events");
    database_execute(diff->two, wanted_sql);
    database_execute(diff->two, report_diff_events_sql);
    database_execute(diff->two, report_diff_words_sql);
    diff->is_equal = database_integer(diff->two, "SELECT is_equal FROM verdict", 0) != 0;
    diff->is_other_run = database_integer(diff->two, "SELECT run = 'other' FROM verdict", 0) != 0;
    database_on_progress(diff->two, NULL, NULL); /* which ends before this does */
    return database_error(diff->two, message);
}

int diff_error(const struct diff *diff, struct varve_message *message)
{
    int result = database_error(diff->two, message);
    for (int side = 0; side < DIFF_SIDES; side++) {
        VARVE_THEN(result, database_error(diff->traces[side], message));
    }
    return result;
}

void diff_free(struct diff *diff)
{
    database_close(diff->two);
    diff->two = NULL;
}
