/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve oom`: every request that a caching allocator could not serve, with the accounting of that moment and
 * the stages that were tried before it. A request's stages come from its own thread, right before it.
 */
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/output/format.h"
#include "analysis/output/json.h"
#include "analysis/query/print.h"
#include "analysis/query/db.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>

#define STAGES_MAX "16"

struct values {
    int64_t device;
    bool json;
};

static const struct values defaults = {.device = -1};

static const struct option_spec options[] = {
    {"device", 0, OPTION_INTEGER, "N", "of this device only (default: all)", offsetof(struct values, device),
     0, 255, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {.kind = OPTION_END},
};

/* The stages of request ?1 of thread ?2 on device ?3: the last events of its thread before it, in their order. */
static void stages_open(struct cursor *cursor, struct database *database, int64_t seq, int64_t thread,
                        int64_t device)
{
    cursor_open(
        cursor, database,
        "SELECT c.text AS stage, e.seq, e.requested AS bytes_freed FROM event e LEFT JOIN event_cause c "
        "ON c.code = e.cause WHERE e.seq IN (SELECT seq FROM event WHERE seq < ?1 AND thread_id = ?2 AND "
        "device = ?3 AND kind = 11 AND coalesce(arg, 0) = 0 AND seq > (SELECT coalesce(max(seq), 0) FROM event WHERE "
        "seq < ?1 AND thread_id = ?2 AND device = ?3 AND (kind IN (1, 12) OR (kind = 11 AND coalesce(arg, 0) <> 0))) "
        "ORDER BY seq DESC LIMIT " STAGES_MAX ") ORDER BY e.seq");
    cursor_bind_integer(cursor, 1, seq);
    cursor_bind_integer(cursor, 2, thread);
    cursor_bind_integer(cursor, 3, device);
}

/* Of each request that failed; the last column is for stages_open. */
static void ooms_open(struct cursor *cursor, struct database *database, int64_t device)
{
    cursor_open(
        cursor, database,
        "SELECT o.seq, o.ts_ns, o.device, e.pid, e.tid, o.requested, o.allocated, o.reserved, o.largest_free, "
        "nullif(e.callsite_id, 0) AS callsite_id, e.thread_id FROM oom o JOIN event e ON e.seq = o.seq "
        "WHERE ?1 < 0 OR o.device = ?1 ORDER BY o.seq");
    cursor_bind_integer(cursor, 1, device);
}

#define OOM_COLUMNS 10 /* without the last one */

static void print_oom(FILE *out, struct database *database, struct cursor *oom)
{
    int64_t seq = cursor_integer(oom, 0);
    int64_t device = cursor_integer(oom, 2);
    int64_t allocated = cursor_integer(oom, 6);
    int64_t reserved = cursor_integer(oom, 7);
    struct cursor stages;
    bool is_tried = false;

    fprintf(out,
            "event %s at %s, device %" PRId64 " (process %" PRId64 ", thread %" PRId64 "): %s asked for\n",
            format_count(seq).text, format_duration(cursor_integer(oom, 1)).text, device,
            cursor_integer(oom, 3), cursor_integer(oom, 4), format_bytes_exact(cursor_integer(oom, 5)).text);
    fprintf(out, "  reserved %s, allocated %s, not allocated %s\n", format_bytes(reserved).text,
            format_bytes(allocated).text, format_bytes(reserved > allocated ? reserved - allocated : 0).text);
    if (!cursor_is_null(oom, 8)) {
        fprintf(out, "  largest free block %s\n", format_bytes_exact(cursor_integer(oom, 8)).text);
    }
    stages_open(&stages, database, seq, cursor_integer(oom, OOM_COLUMNS), device);
    for (; cursor_next(&stages); is_tried = true) {
        fprintf(out, "%s    %-18s freed %s\n", is_tried ? "" : "  tried before:\n", cursor_name(&stages, 0),
                format_bytes_exact(cursor_integer(&stages, 2)).text);
    }
    cursor_close(&stages);
    fprintf(out, "%s  varve segments --at %" PRId64 " shows the memory of that moment\n",
            is_tried ? "" : "  nothing was tried before\n", seq);
}

static void print_text(FILE *out, struct database *database, int64_t device)
{
    struct cursor cursor;
    int count = 0;

    ooms_open(&cursor, database, device);
    for (; cursor_next(&cursor); count++) {
        fputs(count > 0 ? "\n" : "", out);
        print_oom(out, database, &cursor);
    }
    cursor_close(&cursor);
    if (count == 0) {
        fputs("no request of a caching allocator failed\n", out);
    }
}

static void print_json(FILE *out, struct database *database, int64_t device)
{
    struct cJSON *object = json_object();
    struct cJSON *rows = json_array();
    struct cursor cursor;

    json_text(object, "database", database_path(database));
    ooms_open(&cursor, database, device);
    while (cursor_next(&cursor)) {
        struct cJSON *row = cursor_json(&cursor, OOM_COLUMNS);
        struct cursor stages;

        stages_open(&stages, database, cursor_integer(&cursor, 0), cursor_integer(&cursor, OOM_COLUMNS),
                    cursor_integer(&cursor, 2));
        json_add(row, "stages", cursor_rows_json(&stages));
        json_append(rows, row);
    }
    cursor_close(&cursor);
    json_add(object, "ooms", rows);
    json_print(object, out);
}

static int answer(struct command_context *context, struct database *database, const void *values_untyped,
                  struct varve_message *message)
{
    const struct values *values = values_untyped;

    (void)message;
    if (values->json) {
        print_json(context->out, database, values->device);
    } else {
        print_text(context->out, database, values->device);
    }
    return VARVE_OK;
}

const struct command command_oom = {
    .name = "oom",
    .arguments = "DB",
    .summary = "requests that a caching allocator could not serve",
    .purpose =
        "Lists every request that failed for want of memory: how much was asked for, what was allocated, "
        "reserved and the largest free block at that moment, and the stages that were tried before, with the "
        "bytes that each gave back.",
    .examples = "  varve oom trace.db\n"
                "  varve oom --json trace.db\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .answer = answer,
};
