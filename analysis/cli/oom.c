/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve oom`: every request that a caching allocator could not serve, with the accounting of that moment and
 * the stages that were tried before it. A request's stages come from its own thread, right before it.
 */
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/output/format.h"
#include "analysis/output/json.h"
#include "analysis/base/memory.h"
#include "analysis/query/db.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAGES_MAX 16

struct values {
    int64_t device;
    bool json;
};

static const struct values defaults = {.device = -1};

static const struct option_spec options[] = {
    {"device", 'd', OPTION_INTEGER, "N", "of this device only (default: all)",
     offsetof(struct values, device), 0, 255, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {.kind = OPTION_END},
};

struct stage {
    int64_t seq, bytes_freed;
    char name[32];
};

struct oom {
    int64_t seq, ts_ns, device, requested, allocated, reserved, largest_free; /* largest_free -1: unknown */
    int64_t pid, tid, thread_id, callsite_id;
    struct stage stages[STAGES_MAX]; /* in the order they were tried */
    size_t stage_count;
};

/* The stages of the request, from the event before it backwards. */
static void load_stages(struct oom *oom, struct database *database)
{
    struct cursor cursor;

    cursor_open(
        &cursor, database,
        "SELECT e.kind, e.seq, e.requested, c.text, e.arg FROM event e LEFT JOIN event_cause c ON c.code = "
        "e.cause WHERE e.seq < ?1 AND e.thread_id = ?2 AND e.device = ?3 AND e.kind IN (1, 11, 12) "
        "ORDER BY e.seq DESC LIMIT ?4");
    cursor_bind_integer(&cursor, 1, oom->seq);
    cursor_bind_integer(&cursor, 2, oom->thread_id);
    cursor_bind_integer(&cursor, 3, oom->device);
    cursor_bind_integer(&cursor, 4, STAGES_MAX);
    while (cursor_next(&cursor) && cursor_integer(&cursor, 0) == VARVE_KIND_OOM_RETRY &&
           cursor_integer(&cursor, 4) == 0) {
        struct stage *stage = &oom->stages[0];

        memmove(&oom->stages[1], stage, oom->stage_count * sizeof(*stage));
        oom->stage_count++;
        *stage = (struct stage){.seq = cursor_integer(&cursor, 1), .bytes_freed = cursor_integer(&cursor, 2)};
        snprintf(stage->name, sizeof(stage->name), "%.31s", cursor_name(&cursor, 3));
    }
    cursor_close(&cursor);
}

static struct oom *load(struct database *database, int64_t device, size_t *count_out)
{
    struct oom *ooms = NULL;
    size_t count = 0;
    struct cursor cursor;

    cursor_open(
        &cursor, database,
        "SELECT o.seq, o.ts_ns, o.device, o.requested, o.allocated, o.reserved, coalesce(o.largest_free, "
        "-1), e.pid, e.tid, e.thread_id, coalesce(e.callsite_id, 0) FROM oom o JOIN event e ON e.seq = o.seq "
        "WHERE ?1 < 0 OR o.device = ?1 ORDER BY o.seq");
    cursor_bind_integer(&cursor, 1, device);
    while (cursor_next(&cursor)) {
        struct oom *oom;

        ooms = memory_resize(ooms, (count + 1) * sizeof(*ooms));
        oom = &ooms[count++];
        *oom = (struct oom){
            .seq = cursor_integer(&cursor, 0),
            .ts_ns = cursor_integer(&cursor, 1),
            .device = cursor_integer(&cursor, 2),
            .requested = cursor_integer(&cursor, 3),
            .allocated = cursor_integer(&cursor, 4),
            .reserved = cursor_integer(&cursor, 5),
            .largest_free = cursor_integer(&cursor, 6),
            .pid = cursor_integer(&cursor, 7),
            .tid = cursor_integer(&cursor, 8),
            .thread_id = cursor_integer(&cursor, 9),
            .callsite_id = cursor_integer(&cursor, 10),
        };
    }
    cursor_close(&cursor);
    for (size_t i = 0; i < count; i++) {
        load_stages(&ooms[i], database);
    }
    *count_out = count;
    return ooms;
}

static void print_text(FILE *out, const struct oom *ooms, size_t count)
{
    if (count == 0) {
        fputs("no request of a caching allocator failed\n", out);
    }
    for (size_t i = 0; i < count; i++) {
        const struct oom *oom = &ooms[i];

        fprintf(out,
                "%sevent %s at %s, device %" PRId64 " (process %" PRId64 ", thread %" PRId64
                "): %s asked for\n",
                i > 0 ? "\n" : "", format_count(oom->seq).text, format_duration(oom->ts_ns).text, oom->device,
                oom->pid, oom->tid, format_bytes_exact(oom->requested).text);
        fprintf(out, "  reserved %s, allocated %s, not allocated %s\n", format_bytes(oom->reserved).text,
                format_bytes(oom->allocated).text,
                format_bytes(oom->reserved > oom->allocated ? oom->reserved - oom->allocated : 0).text);
        if (oom->largest_free >= 0) {
            fprintf(out, "  largest free block %s\n", format_bytes_exact(oom->largest_free).text);
        }
        fputs(oom->stage_count > 0 ? "  tried before:\n" : "  nothing was tried before\n", out);
        for (size_t k = 0; k < oom->stage_count; k++) {
            fprintf(out, "    %-18s freed %s\n", oom->stages[k].name,
                    format_bytes_exact(oom->stages[k].bytes_freed).text);
        }
        fprintf(out, "  varve segments --at %" PRId64 " shows the memory of that moment\n", oom->seq);
    }
}

static void print_json(FILE *out, const char *path, const struct oom *ooms, size_t count)
{
    struct cJSON *object = json_object();
    struct cJSON *rows = json_array();

    json_text(object, "database", path);
    for (size_t i = 0; i < count; i++) {
        const struct oom *oom = &ooms[i];
        struct cJSON *row = json_object();
        struct cJSON *stages = json_array();

        json_integer(row, "seq", oom->seq);
        json_integer(row, "ts_ns", oom->ts_ns);
        json_integer(row, "device", oom->device);
        json_integer(row, "pid", oom->pid);
        json_integer(row, "tid", oom->tid);
        json_integer(row, "requested", oom->requested);
        json_integer(row, "allocated", oom->allocated);
        json_integer(row, "reserved", oom->reserved);
        json_integer_or_null(row, "largest_free", oom->largest_free);
        json_integer_or_null(row, "callsite_id", oom->callsite_id > 0 ? oom->callsite_id : -1);
        for (size_t k = 0; k < oom->stage_count; k++) {
            struct cJSON *stage = json_object();

            json_text(stage, "stage", oom->stages[k].name);
            json_integer(stage, "seq", oom->stages[k].seq);
            json_integer(stage, "bytes_freed", oom->stages[k].bytes_freed);
            json_append(stages, stage);
        }
        json_add(row, "stages", stages);
        json_append(rows, row);
    }
    json_add(object, "ooms", rows);
    json_print(object, out);
}

static int run(struct command_context *context, const void *values_untyped, const struct operands *operands)
{
    const struct values *values = values_untyped;
    struct database *database;
    struct varve_message message = {""};
    struct oom *ooms;
    size_t count;
    int result;

    if (database_open(operands->items[0], DATABASE_DERIVED, &database, &message) != VARVE_OK) {
        return command_fail(context, "%s", message.text);
    }
    ooms = load(database, values->device, &count);
    if (values->json) {
        print_json(context->out, operands->items[0], ooms, count);
    } else {
        print_text(context->out, ooms, count);
    }
    free(ooms);
    result = database_error(database, &message);
    database_close(database);
    return result == VARVE_OK ? 0 : command_fail(context, "%s", message.text);
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
    .reads_database = true,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .operands_min = 1,
    .operands_max = 1,
    .run = run,
};
