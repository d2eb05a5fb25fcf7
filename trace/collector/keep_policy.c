/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of what happens the database keeps: from the start, or from the moment on at which it has its largest size.
 * Events that are not kept cannot be derived again: where the collector died, what had followed from them is lost,
 * counted, and said. record_run.c, recover_run.c and collector.c call it.
 */
#include "trace/collector/collector.h"

#include "trace/model/derive.h"
#include "trace/store/store.h"
#include "trace/store/store_resume.h"
#include "trace/callsites/callsites.h"
#include "base/error.h"
#include "trace/collect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define META_KEEP "keep"
#define META_BYTES_MAX "max_size"
#define META_KEPT_EVENTS "kept_events"

static const char *const keep_names[] = {"events", "lasting", "allocations", "totals"};

/* Where there were allocations, their rows name call sites, and these are in the database. */
static bool joins_callsites(const struct collector *collector)
{
    return collector->keep == VARVE_KEEP_TOTALS && collector->kept_events == 0;
}

static int keep_apply(const struct collector *collector)
{
    store_keep(collector->store, collector->keep);
    if (collector->keep == VARVE_KEEP_TOTALS) {
        derive_forget(collector->derive);
    } else if (collector->keep == VARVE_KEEP_LASTING) {
        derive_forget_short(collector->derive);
    }
    return joins_callsites(collector) ? callsites_hold(collector->callsites, NULL) : VARVE_OK;
}

int collect_keep_begin(struct collector *collector)
{
    int error = collect_meta_text(collector, META_KEEP, keep_names[collector->keep % 4]);
    if (error == VARVE_OK && collector->bytes_max != 0) {
        error = collect_meta_integer(collector, META_BYTES_MAX, (int64_t)collector->bytes_max);
    }
    if (error == VARVE_OK && !collector->is_unstored) {
        error = keep_apply(collector);
    }
    return error;
}

/* Small call sites, which by now are rows, are put together. */
static int small_join(struct collector *collector, struct varve_message *message)
{
    const size_t limit = (size_t)callsites_row_count(collector->callsites) + 1;
    size_t row_limit;
    const uint32_t *rows = callsites_rows(collector->callsites, &row_limit);
    uint8_t *sizes = calloc(limit, sizeof(*sizes));
    uint32_t *joined = calloc(limit, sizeof(*joined));
    int error = VARVE_ERROR_NO_MEMORY;
    if (sizes != NULL && joined != NULL) {
        join_sizes(collector->derive, rows, row_limit, sizes, limit);
        error = callsites_join(collector->callsites, sizes, joined, message);
    }
    VARVE_THEN(error, join_callsites(collector->derive, joined, limit, false));
    free(sizes);
    free(joined);
    return error;
}

int collect_keep_join(struct collector *collector, struct varve_message *message)
{
    size_t limit;
    const uint32_t *rows = callsites_rows(collector->callsites, &limit);
    int error = VARVE_OK;
    if (!joins_callsites(collector)) {
        store_callsite_rows(collector->store, rows, limit);
        error = allocations_begin(collector->store, collector->derive, message);
    }
    if (error == VARVE_OK && !collector->has_joined) { /* an end that is repeated finds it done */
        collector->has_joined = true;
        error = join_callsites(collector->derive, rows, limit, true);
        if (error == VARVE_OK && joins_callsites(collector)) {
            error = small_join(collector, message);
        }
    }
    if (joins_callsites(collector)) { /* rows are others now */
        rows = callsites_rows(collector->callsites, &limit);
        store_callsite_rows(collector->store, rows, limit);
    }
    return error;
}

int collect_keep_check(struct collector *collector)
{
    if (collector->bytes_max == 0 || collector->keep == VARVE_KEEP_TOTALS ||
        store_bytes(collector->store, collector->derive) < collector->bytes_max) {
        return VARVE_OK;
    }
    collector->keep = VARVE_KEEP_TOTALS;
    collector->kept_events = collector->seq;
    int error = store_meta_integer(collector->store, META_KEPT_EVENTS, (int64_t)collector->seq);
    VARVE_THEN(error, keep_apply(collector));
    if (error == VARVE_OK && !collector->quiet) {
        fprintf(stderr,
                "varve: the database has its largest size (--max-size) after %llu events; from here on only totals are "
                "kept\n",
                (unsigned long long)collector->seq);
    }
    return error;
}

/* Events that were taken, are not kept, and had been added to totals that died with their collector. */
static int count_forgotten(struct collector *collector)
{
    int64_t taken = 0;
    int error = store_meta_get_integer(collector->store, STORE_META_TAKEN, &taken);
    if (error == VARVE_ERROR_NOT_FOUND || (uint64_t)taken <= collector->seq) {
        return error == VARVE_ERROR_NOT_FOUND ? VARVE_OK : error;
    }
    error =
        store_stat(collector->store, "events_not_derived", -1, "data_loss", "recover", taken - (int64_t)collector->seq);
    collector->has_forgotten = true;
    derive_past_is_lost(collector->derive);
    collector->seq = (uint64_t)taken;
    store_continue_at(collector->store, collector->seq);
    return error;
}

int collect_keep_read(struct collector *collector)
{
    char name[16];
    int error = store_meta_get_text(collector->store, META_KEEP, name, sizeof(name));
    for (unsigned i = 0; i < sizeof(keep_names) / sizeof(keep_names[0]); i++) {
        collector->keep = strcmp(name, keep_names[i]) == 0 ? i : collector->keep;
    }
    store_keep(collector->store, collector->keep); /* of the rows that came before its largest size */
    if (collector->keep == VARVE_KEEP_LASTING) {
        derive_forget_short(collector->derive);
    }
    return error;
}

int collect_keep_resume(struct collector *collector)
{
    int64_t value = 0;
    int error = VARVE_OK;
    if (store_meta_get_integer(collector->store, META_BYTES_MAX, &value) == VARVE_OK) {
        collector->bytes_max = (uint64_t)value;
    }
    if (error == VARVE_OK && store_meta_get_integer(collector->store, META_KEPT_EVENTS, &value) == VARVE_OK) {
        collector->keep = VARVE_KEEP_TOTALS;
        collector->kept_events = (uint64_t)value;
    }
    if (error == VARVE_OK && collector->keep == VARVE_KEEP_TOTALS) {
        error = count_forgotten(collector);
    }
    VARVE_THEN(error, keep_apply(collector));
    return error;
}
