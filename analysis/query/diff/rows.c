/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of the table event, in the order of seq, for both readings. Nearly all of the time goes into SQLite,
 * so B is read by a thread of its own, some thousand rows ahead; nobody else touches its database meanwhile.
 * rings.c and events.c take the rows.
 */
#include "analysis/query/diff/diff.h"

#include "analysis/output/memory.h"
#include "analysis/query/db.h"
#include "trace/trace.h"

#include <stdlib.h>
#include <string.h>

#define BUFFER_ROWS 256U

#define COLUMN_NAME(NAME, column) #column ", "

static const char numbers_sql[] =
    "SELECT thread_id, ring_seq FROM event WHERE ring_seq IS NOT NULL ORDER BY seq";
static const char events_sql[] =
    "SELECT " DIFF_COLUMN_LIST(COLUMN_NAME) "seq, thread_id, ring_seq FROM event ORDER BY seq";

enum column {
    COLUMN_SEQ = DIFF_COLUMNS,
    COLUMN_THREAD_ID,
    COLUMN_RING_SEQ,
};

/* Only place and number. */
static void read_number(struct diff_rows *rows, struct diff_event *event)
{
    event->thread_id = cursor_integer(&rows->cursor, 0);
    event->number = cursor_integer(&rows->cursor, 1);
}

/* A column costs a call, and two where it must be told whether a 0 is NULL; but what was NULL in the last
 * event of a kind mostly is again, and then one will do. */
static void read_event(struct diff_rows *rows, struct diff_event *event)
{
    struct cursor *cursor = &rows->cursor;
    uint32_t *likely;

    event->values[DIFF_FIELD_KIND] = cursor_integer(cursor, DIFF_FIELD_KIND);
    likely = &rows->nulls[diff_kind_of(event)];
    event->nulls = 0;
    for (int i = 0; i < (int)DIFF_COLUMNS; i++) {
        bool is_null = (*likely >> i & 1U) != 0 && cursor_is_null(cursor, i);

        event->values[i] = is_null ? 0 : cursor_integer(cursor, i);
        if (is_null || (event->values[i] == 0 && cursor_is_null(cursor, i))) {
            event->nulls |= 1U << i;
        }
    }
    *likely = event->nulls;
    event->seq = cursor_integer(cursor, COLUMN_SEQ);
    event->thread_id = cursor_integer(cursor, COLUMN_THREAD_ID);
    event->number = cursor_integer(cursor, COLUMN_RING_SEQ);
    event->has_number = event->number != 0 || !cursor_is_null(cursor, COLUMN_RING_SEQ);
}

/* prefetch_producer.make: whole rows. An error of the database ends them; it is asked for later. */
static int make(void *context, unsigned char *to, size_t room, struct prefetch_step *step,
                struct varve_message *message)
{
    struct diff_rows *rows = context;
    struct diff_event event = {.ring = DIFF_NO_RING};

    (void)message;
    while (!step->is_ended && room - step->made >= sizeof(event)) {
        if (!cursor_next(&rows->cursor)) {
            step->is_ended = true;
        } else {
            rows->read(rows, &event);
            memcpy(to + step->made, &event, sizeof(event)); /* `to` is not aligned */
            step->made += sizeof(event);
        }
    }
    return VARVE_OK;
}

void diff_rows_open(struct diff_rows *rows, struct database *database, enum diff_reading reading,
                    bool is_ahead)
{
    const struct prefetch_producer maker = {.context = rows, .make = make};

    *rows = (struct diff_rows){.read = reading == DIFF_READING_NUMBERS ? read_number : read_event};
    rows->buffer = memory_resize(NULL, BUFFER_ROWS * sizeof(rows->buffer[0]));
    cursor_open(&rows->cursor, database, reading == DIFF_READING_NUMBERS ? numbers_sql : events_sql);
    rows->ahead = is_ahead ? prefetch_start(&maker) : NULL; /* without a thread it only takes longer */
}

const struct diff_event *diff_rows_next(struct diff_rows *rows)
{
    if (rows->at == rows->count && !rows->is_ended) {
        unsigned char *bytes = (unsigned char *)rows->buffer;
        size_t room = BUFFER_ROWS * sizeof(rows->buffer[0]);
        struct prefetch_step step = {0};

        if (rows->ahead != NULL) {
            prefetch_read(rows->ahead, bytes, room, &step, NULL);
        } else {
            make(rows, bytes, room, &step, NULL);
        }
        rows->at = 0;
        rows->count = step.made / sizeof(rows->buffer[0]);
        rows->is_ended = step.is_ended;
    }
    return rows->at < rows->count ? &rows->buffer[rows->at++] : NULL;
}

void diff_rows_close(struct diff_rows *rows)
{
    prefetch_stop(rows->ahead);
    cursor_close(&rows->cursor);
    free(rows->buffer);
}
