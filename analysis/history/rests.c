/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line each, numbers and bytes in hexadecimal; `event` is the number of the entry in the device's history:
 *   r event keys bytes      a history_rest
 *   x event bytes           an entry that says nothing of memory, before that event
 *   s event addr size stream time callsite   the mark of a snapshot, which no event of a database is
 *   t event time            of an event whose time went back, or was not known: times of a database do neither
 *   f event bytes           what the device had free, of a failed request
 *   n event                 an event without a stack: a database gives a free the stack of its allocation
 */
#include "analysis/history/rests.h"

#include "analysis/base/memory.h"
#include "analysis/history/stacks.h"
#include "analysis/output/format.h"
#include "analysis/query/db.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES 32
#define FIELDS_MAX 6

/* ---- writing ---- */

static void write_bytes(FILE *out, const struct history *history, uint32_t text)
{
    char *digits = hexadecimal(history->texts[text], history_text_bytes(history, text));

    fprintf(out, " %s\n", digits);
    free(digits);
}

static void write_event(FILE *out, const struct history *history, const struct history_event *event, size_t index,
                        int64_t *now_us, int64_t begin_us, const uint32_t *callsites)
{
    if (event->action == HISTORY_SNAPSHOT) {
        fprintf(out, "s %zx %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx32 "\n", index, event->addr,
                event->size, history->streams[event->stream], (uint64_t)event->time_us, callsites[event->stack]);
        return;
    }
    /* as history_writer_time: what cannot be earlier stays at the time before it */
    if (event->time_us != 0 && event->time_us - begin_us > *now_us) {
        *now_us = event->time_us - begin_us;
    }
    if (event->time_us != begin_us + *now_us) {
        fprintf(out, "t %zx %" PRIx64 "\n", index, (uint64_t)event->time_us);
    }
    if (event->action == HISTORY_OOM) {
        fprintf(out, "f %zx %" PRIx64 "\n", index, event->addr);
    }
    if (event->stack == 0 && history->stack_count > 1) {
        fprintf(out, "n %zx\n", index);
    }
}
