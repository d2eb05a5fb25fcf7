/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What leaks, peak and timeline are asked about: a domain, one process or all together, one GPU where a
 * domain has several. Checked against the database, so that a misspelt domain or a pid that recorded nothing
 * is reported instead of answered by an empty list.
 */
#include "analysis/query/query_selection.h"

#include "analysis/query/database.h"
#include "analysis/query/total_query.h"
#include "base/error.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int query_selection_check_domain(const char *domain, struct database *database, struct varve_message *message)
{
    struct cursor cursor;
    cursor_open(&cursor, database, "SELECT name FROM domain WHERE name <> 'cupti' ORDER BY code");
    size_t used = 0;
    bool is_known = false;
    char list[256] = "";
    while (cursor_next(&cursor)) {
        const char *name = cursor_name(&cursor, 0);
        is_known = is_known || strcmp(name, domain) == 0;
        if (used < sizeof(list)) {
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", used > 0 ? ", " : "", name);
        }
    }
    cursor_close(&cursor);
    if (used == 0 && database_error(database, NULL) == VARVE_OK) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "%s lacks a part of a trace database (no rows in domain)",
                                 database_path(database));
    }
    if (!is_known && database_error(database, NULL) == VARVE_OK) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "%s: --domain must be one of %s, not '%s'",
                                 database_path(database), list, domain);
    }
    return VARVE_OK;
}

/* Memory of a GPU is counted per GPU: the one that needed most is the one people mean. */
static void query_selection_find_devices(struct selection *selection, struct database *database)
{
    struct report_totals totals;
    report_totals_load(&totals, database, selection->process_id);
    int64_t most = -1;
    for (size_t i = 0; i < totals.count; i++) {
        if (strcmp(totals.rows[i].domain, selection->domain) == 0) {
            selection->devices++;
            if (totals.rows[i].peak_bytes > most) {
                most = totals.rows[i].peak_bytes;
                selection->device = totals.rows[i].device;
            }
        }
    }
    report_totals_free(&totals);
}

int selection_check_pid(struct database *database, int64_t pid, struct varve_message *message)
{
    if (database_integer_of(database, "SELECT count(*) FROM process WHERE pid = ?1", pid) > 0 ||
        database_error(database, NULL) != VARVE_OK) {
        return VARVE_OK;
    }
    return varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                             "%s: no process %" PRId64 " was recorded; varve info lists those that were",
                             database_path(database), pid);
}

const char *selection_default_domain(struct database *database)
{
    static const char *const domains[] = {"heap", "block", "device", "managed", "pinned"};
    struct cursor cursor;
    const char *found = domains[0];
    cursor_open(&cursor, database, sql_usual_domain);
    if (cursor_next(&cursor) && cursor_integer(&cursor, 0) >= 0 &&
        cursor_integer(&cursor, 0) < (int64_t)(sizeof(domains) / sizeof(domains[0]))) {
        found = domains[cursor_integer(&cursor, 0)];
    }
    cursor_close(&cursor);
    return found;
}

int selection_make(struct selection *selection, struct database *database, const char *domain, int64_t pid,
                   struct varve_message *message)
{
    int result = query_selection_check_domain(domain, database, message);
    *selection = (struct selection){.domain = domain, .pid = pid};
    if (result != VARVE_OK) {
        return result;
    }
    if (pid == 0) {
        query_selection_find_devices(selection, database);
        return VARVE_OK;
    }
    struct cursor cursor;
    /* exec gives one pid several images: the one that needed most is the one people mean */
    cursor_open(&cursor, database, sql_process_of_pid);
    cursor_bind_integer(&cursor, 1, pid);
    cursor_bind_text(&cursor, 2, domain);
    if (cursor_next(&cursor)) {
        selection->process_id = cursor_integer(&cursor, 0);
    }
    cursor_close(&cursor);
    result = selection_check_pid(database, pid, message);
    if (result != VARVE_OK) {
        return result;
    }
    query_selection_find_devices(selection, database);
    return VARVE_OK;
}

int selection_device(struct selection *selection, struct database *database, int64_t device,
                     struct varve_message *message)
{
    selection->device = device;
    struct report_total total;
    if (selection_total(selection, database, &total) || database_error(database, NULL) != VARVE_OK) {
        return VARVE_OK;
    }
    return varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                             "%s: nothing of domain %s is on GPU %" PRId64 "; varve report lists what is",
                             database_path(database), selection->domain, device);
}

bool selection_total(const struct selection *selection, struct database *database, struct report_total *total)
{
    struct report_totals totals;
    report_totals_load(&totals, database, selection->process_id);
    bool is_found = false;
    for (size_t i = 0; i < totals.count && !is_found; i++) {
        if (strcmp(totals.rows[i].domain, selection->domain) == 0 && totals.rows[i].device == selection->device) {
            *total = totals.rows[i];
            total->domain = NULL; /* the list's */
            is_found = true;
        }
    }
    report_totals_free(&totals);
    return is_found;
}

bool selection_sum(const struct selection *selection, struct database *database, struct report_total *total)
{
    if (!selection_total(selection, database, total)) {
        return false;
    }
    struct report_totals totals;
    report_totals_load(&totals, database, selection->process_id);
    for (size_t i = 0; i < totals.count; i++) {
        const struct report_total *row = &totals.rows[i];
        if (strcmp(row->domain, selection->domain) == 0 && row->device != selection->device) {
            total->live_allocations += row->live_allocations;
            total->live_bytes += row->live_bytes;
            total->peak_allocations += row->peak_allocations;
            total->peak_bytes += row->peak_bytes;
        }
    }
    report_totals_free(&totals);
    return true;
}
