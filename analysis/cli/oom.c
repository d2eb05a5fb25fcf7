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
#include "analysis/query/cached/failure.h"
#include "analysis/query/cached/numbers.h"
#include "analysis/query/cached/owners.h"
#include "analysis/query/print.h"
#include "analysis/query/db.h"
#include "alloc/alloc.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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

/* Of each request that failed; the last columns are not part of the answer. */
static void ooms_open(struct cursor *cursor, struct database *database, int64_t device)
{
    cursor_open(
        cursor, database,
        "SELECT o.seq, o.ts_ns, o.device, e.pid, e.tid, o.requested, o.allocated, o.reserved, o.largest_free, "
        "nullif(e.callsite_id, 0) AS callsite_id, e.thread_id, o.process_id, e.stream, e.pool FROM oom o "
        "JOIN event e ON e.seq = o.seq WHERE ?1 < 0 OR o.device = ?1 ORDER BY o.seq");
    cursor_bind_integer(cursor, 1, device);
}

#define OOM_COLUMNS 10 /* of the answer */
#define DETAILS_MAX 50 /* requests whose memory is looked at: each is a state to rebuild */
#define OWNER_COLUMNS 60

/* The memory at each of the first requests that failed. */
struct details {
    struct failed_request requests[DETAILS_MAX];
    struct failure failures[DETAILS_MAX];
    uint64_t segment_bytes[DETAILS_MAX]; /* of the segment that the request needed */
    uint64_t room[DETAILS_MAX];          /* that the memory limit left; 0 also if none is known */
    size_t count;
    uint64_t max_split_size;
    struct owners *owners;
    struct database *database;
};

static void read_config(struct database *database, struct varve_alloc_config *config)
{
    struct varve_message ignored = {""};
    char *text = database_meta(database, "allocator.conf");

    varve_alloc_config_init(config);
    if (text != NULL && varve_alloc_config_parse(text, config, &ignored) != VARVE_OK) {
        varve_alloc_config_init(config); /* in the words of another version */
    }
    free(text);
}

/* Reserved bytes that were allowed, which only a replay's database says; 0: unknown. */
static uint64_t limit_of(struct database *database)
{
    static const char *const keys[] = {"replay.memory_limit", "replay.capacity"};
    uint64_t limit = 0;

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        char *text = database_meta(database, keys[i]);
        uint64_t bytes = text != NULL ? strtoull(text, NULL, 10) : 0;

        limit = bytes != 0 && (limit == 0 || bytes < limit) ? bytes : limit;
        free(text);
    }
    return limit;
}

static void want_blocks(struct owners *owners, const struct failed_request *request,
                        const struct failure_freeing *freeing)
{
    for (size_t i = 0; i < freeing->blocks && i < FAILURE_BLOCKS_MAX; i++) {
        owners_want(owners, freeing->first[i].addr, request->seq);
    }
}

static int load_details(struct details *details, struct database *database, int64_t device,
                        struct varve_message *message)
{
    struct varve_alloc_config config;
    struct cursor cursor;
    uint64_t limit = limit_of(database);
    int error = VARVE_OK;

    *details = (struct details){.owners = owners_new(), .database = database};
    read_config(database, &config);
    details->max_split_size = config.max_split_size;
    ooms_open(&cursor, database, device);
    while (error == VARVE_OK && details->count < DETAILS_MAX && cursor_next(&cursor)) {
        struct failed_request *request = &details->requests[details->count];

        *request = (struct failed_request){
            .seq = cursor_integer(&cursor, 0),
            .device = cursor_integer(&cursor, 2),
            .rounded = varve_alloc_block_size(NULL, &config, (uint64_t)cursor_integer(&cursor, 5)),
            .process_id = cursor_integer(&cursor, 11),
            .stream = (uint16_t)cursor_integer(&cursor, 12),
            .pool = (uint16_t)cursor_integer(&cursor, 13),
        };
        details->segment_bytes[details->count] = varve_alloc_segment_size(NULL, &config, request->rounded);
        error = failure_load(&details->failures[details->count], database, request, message);
        details->room[details->count] = limit > details->failures[details->count].reserved
                                            ? limit - details->failures[details->count].reserved
                                            : 0;
        want_blocks(details->owners, request, &details->failures[details->count].freeing);
        details->count++;
    }
    cursor_close(&cursor);
    owners_load(details->owners, database);
    return error;
}

static void details_free(struct details *details)
{
    owners_free(details->owners);
}

/* ---- text ---- */

static uint64_t all_free(const struct failure *failure)
{
    return failure->own.bytes + failure->others.bytes;
}

static struct format_text blocks_text(uint64_t count)
{
    struct format_text text;

    snprintf(text.text, sizeof(text.text), "%.30s %s", format_count((int64_t)count).text,
             count == 1 ? "block" : "blocks");
    return text;
}

static void print_reason(FILE *out, const struct details *details, size_t index)
{
    const struct failure *failure = &details->failures[index];
    uint64_t rounded = details->requests[index].rounded;
    uint64_t room = details->room[index];
    uint64_t unused = all_free(failure);

    if (failure->own.largest >= rounded) {
        fputs("  a free block is large enough, but was not when the pool was searched, or max_split_size_mb "
              "keeps it\n",
              out);
    } else if (unused >= rounded) {
        fprintf(out, "  fragmentation: what is free is enough, but its largest block is %s too small\n",
                format_bytes((int64_t)(rounded - failure->own.largest)).text);
    } else if (unused + room >= rounded) {
        fprintf(out, "  fragmentation: %s free and %s not reserved yet are enough, but not in one piece\n",
                format_bytes((int64_t)unused).text, format_bytes((int64_t)room).text);
    } else if (room > 0) {
        fprintf(out,
                "  not enough memory: all that is free or not reserved yet is %s less than the request\n",
                format_bytes((int64_t)(rounded - unused - room)).text);
    } else {
        fprintf(out,
                "  not enough memory in what is reserved: all that is free is %s less than the request\n",
                format_bytes((int64_t)(rounded - unused)).text);
    }
    fprintf(out, "  and no segment of %s could be had from the device (or under the memory limit)\n",
            format_bytes((int64_t)details->segment_bytes[index]).text);
}

static bool is_usable(const struct details *details, const struct failed_request *request, uint64_t block)
{
    return request->rounded >= details->max_split_size || block < details->max_split_size;
}

static void print_freeing(FILE *out, const struct details *details, const struct failed_request *request,
                          const struct failure_freeing *freeing)
{
    const struct segments_part part = {.process_id = request->process_id, .device = request->device};

    fprintf(out, "    freeing %s, %s together, which leaves one free block of %s:\n",
            blocks_text(freeing->blocks).text, format_bytes((int64_t)freeing->bytes).text,
            format_bytes((int64_t)freeing->result).text);
    for (size_t i = 0; i < freeing->blocks && i < FAILURE_BLOCKS_MAX; i++) {
        const struct varve_layout_block *block = &freeing->first[i];
        struct owner owner = owners_of(details->owners, &part, block->addr, request->seq);
        char text[OWNER_TEXT_BYTES];

        owner_text(&owner, OWNER_COLUMNS, text);
        fprintf(out, "      %#-14" PRIx64 " %10s%s%s\n", block->addr,
                format_bytes((int64_t)block->extent).text, text[0] != '\0' ? "  " : "", text);
    }
    if (freeing->blocks > FAILURE_BLOCKS_MAX) {
        fprintf(out, "      and %s more\n", format_count((int64_t)freeing->blocks - FAILURE_BLOCKS_MAX).text);
    }
}

/* Each line is true of the state by the allocator's rules. */
static void print_remedies(FILE *out, const struct details *details, size_t index)
{
    const struct failed_request *request = &details->requests[index];
    const struct failure *failure = &details->failures[index];
    const struct segments_part part = {.process_id = request->process_id, .device = request->device};
    uint64_t needed = failure->reserved + details->segment_bytes[index];

    fprintf(out, "  would have served it:\n    %s to reserve (a memory limit, or a device, of that size)\n",
            format_bytes_exact((int64_t)needed).text);
    if (failure->own.largest >= request->rounded) {
        return;
    }
    if (failure->others.largest >= request->rounded) {
        char pool[POOL_NAME_BYTES];

        pool_name(details->database, &part, failure->others.largest_pool, pool);
        fprintf(out, "    the free block of %s in pool %s of stream %u: for a request made there\n",
                format_bytes((int64_t)failure->others.largest).text, pool,
                (unsigned)failure->others.largest_stream);
    }
    if (failure->with_pending >= request->rounded && is_usable(details, request, failure->with_pending)) {
        fprintf(out, "    waiting for other streams first: pending blocks, once free, leave one of %s\n",
                format_bytes((int64_t)failure->with_pending).text);
    } else if (failure->freeing.blocks > 0 && is_usable(details, request, failure->freeing.result)) {
        print_freeing(out, details, request, &failure->freeing);
    }
    if (all_free(failure) + details->room[index] >= request->rounded) {
        fprintf(out, "    %s free%s in one piece: try varve replay --conf expandable_segments:True\n",
                format_bytes((int64_t)(all_free(failure) + details->room[index])).text,
                details->room[index] > 0 ? " or not reserved yet" : "");
    }
}

static void print_memory(FILE *out, const struct details *details, size_t index)
{
    const struct failed_request *request = &details->requests[index];
    const struct failure *failure = &details->failures[index];
    const struct segments_part part = {.process_id = request->process_id, .device = request->device};
    char pool[POOL_NAME_BYTES];

    pool_name(details->database, &part, request->pool, pool);
    fprintf(out, "  reserved %s, allocated %s, pending %s, free %s in %s\n",
            format_bytes((int64_t)failure->reserved).text, format_bytes((int64_t)failure->used).text,
            format_bytes((int64_t)failure->pending).text, format_bytes((int64_t)all_free(failure)).text,
            blocks_text(failure->own.blocks + failure->others.blocks).text);
    fprintf(out, "  free in its pool (%s, stream %u): %s in %s, the largest %s\n", pool,
            (unsigned)request->stream, format_bytes((int64_t)failure->own.bytes).text,
            blocks_text(failure->own.blocks).text, format_bytes_exact((int64_t)failure->own.largest).text);
    print_reason(out, details, index);
}

/* Of a request whose memory is not looked at: what its event says. */
static void print_accounting(FILE *out, struct cursor *oom)
{
    int64_t allocated = cursor_integer(oom, 6);
    int64_t reserved = cursor_integer(oom, 7);

    if (reserved > 0) {
        fprintf(out, "  reserved %s, allocated %s, not allocated %s\n", format_bytes(reserved).text,
                format_bytes(allocated).text,
                format_bytes(reserved > allocated ? reserved - allocated : 0).text);
    }
    if (!cursor_is_null(oom, 8)) {
        fprintf(out, "  largest free block %s\n", format_bytes_exact(cursor_integer(oom, 8)).text);
    }
}

static void print_oom(FILE *out, struct database *database, struct cursor *oom, const struct details *details,
                      size_t index)
{
    int64_t seq = cursor_integer(oom, 0);
    int64_t device = cursor_integer(oom, 2);
    bool is_known = index < details->count && details->failures[index].is_known;
    struct owner owner = owner_of_callsite(details->owners, database, cursor_integer(oom, 9));
    char text[OWNER_TEXT_BYTES];
    struct cursor stages;
    bool is_tried = false;

    fprintf(out,
            "event %s at %s, device %" PRId64 " (process %" PRId64 ", thread %" PRId64 "): %s asked for\n",
            format_count(seq).text, format_duration(cursor_integer(oom, 1)).text, device,
            cursor_integer(oom, 3), cursor_integer(oom, 4), format_bytes_exact(cursor_integer(oom, 5)).text);
    owner_text(&owner, OWNER_COLUMNS, text);
    if (text[0] != '\0') {
        fprintf(out, "  by %s\n", text);
    }
    if (is_known) {
        print_memory(out, details, index);
    } else {
        print_accounting(out, oom);
    }
    stages_open(&stages, database, seq, cursor_integer(oom, OOM_COLUMNS), device);
    for (; cursor_next(&stages); is_tried = true) {
        fprintf(out, "%s    %-18s freed %s\n", is_tried ? "" : "  tried before:\n", cursor_name(&stages, 0),
                format_bytes_exact(cursor_integer(&stages, 2)).text);
    }
    cursor_close(&stages);
    if (is_known) {
        print_remedies(out, details, index);
    }
    fprintf(out, "  varve segments --at %" PRId64 " shows the memory of that moment\n", seq);
}

static void print_text(FILE *out, struct database *database, int64_t device, const struct details *details)
{
    struct cursor cursor;
    size_t count = 0;

    ooms_open(&cursor, database, device);
    for (; cursor_next(&cursor); count++) {
        fputs(count > 0 ? "\n" : "", out);
        print_oom(out, database, &cursor, details, count);
    }
    cursor_close(&cursor);
    if (count == 0) {
        fputs("no request of a caching allocator failed\n", out);
    }
}

/* ---- JSON ---- */

static void add_owner(struct cJSON *object, const struct owner *owner)
{
    json_text(object, "user_function", owner->function);
    json_text(object, "user_file", owner->file);
    json_integer_or_null(object, "user_line", owner->line > 0 ? owner->line : -1);
}

static struct cJSON *freeing_json(const struct details *details, const struct failed_request *request,
                                  const struct failure_freeing *freeing)
{
    const struct segments_part part = {.process_id = request->process_id, .device = request->device};
    struct cJSON *object = json_object();
    struct cJSON *blocks = json_array();

    json_integer(object, "blocks", (int64_t)freeing->blocks);
    json_integer(object, "bytes", (int64_t)freeing->bytes);
    json_integer(object, "result", (int64_t)freeing->result);
    for (size_t i = 0; i < freeing->blocks && i < FAILURE_BLOCKS_MAX; i++) {
        struct owner owner = owners_of(details->owners, &part, freeing->first[i].addr, request->seq);
        struct cJSON *block = json_object();

        json_integer(block, "address", (int64_t)freeing->first[i].addr);
        json_integer(block, "size", (int64_t)freeing->first[i].extent);
        json_integer_or_null(block, "callsite_id", owner.callsite_id != 0 ? owner.callsite_id : -1);
        add_owner(block, &owner);
        json_append(blocks, block);
    }
    json_add(object, "first", blocks);
    return object;
}

static struct cJSON *memory_json(const struct details *details, size_t index)
{
    const struct failed_request *request = &details->requests[index];
    const struct failure *failure = &details->failures[index];
    struct cJSON *object = json_object();

    json_integer(object, "reserved", (int64_t)failure->reserved);
    json_integer(object, "allocated", (int64_t)failure->used);
    json_integer(object, "pending", (int64_t)failure->pending);
    json_integer(object, "free", (int64_t)all_free(failure));
    json_integer(object, "free_blocks", (int64_t)(failure->own.blocks + failure->others.blocks));
    json_integer(object, "own_free", (int64_t)failure->own.bytes);
    json_integer(object, "own_free_blocks", (int64_t)failure->own.blocks);
    json_integer(object, "own_largest_free", (int64_t)failure->own.largest);
    json_integer(object, "other_largest_free", (int64_t)failure->others.largest);
    json_integer(object, "largest_with_pending", (int64_t)failure->with_pending);
    json_integer(object, "block_needed", (int64_t)request->rounded);
    json_integer(object, "segment_needed", (int64_t)details->segment_bytes[index]);
    json_integer_or_null(object, "may_be_reserved",
                         details->room[index] > 0 ? (int64_t)details->room[index] : -1);
    json_add(object, "freeing",
             failure->freeing.blocks > 0 && is_usable(details, request, failure->freeing.result)
                 ? freeing_json(details, request, &failure->freeing)
                 : json_null_value());
    return object;
}

static void print_json(FILE *out, struct database *database, int64_t device, const struct details *details)
{
    struct cJSON *object = json_object();
    struct cJSON *rows = json_array();
    struct cursor cursor;
    size_t count = 0;

    json_text(object, "database", database_path(database));
    ooms_open(&cursor, database, device);
    for (; cursor_next(&cursor); count++) {
        struct cJSON *row = cursor_json(&cursor, OOM_COLUMNS);
        struct owner owner = owner_of_callsite(details->owners, database, cursor_integer(&cursor, 9));
        struct cursor stages;

        add_owner(row, &owner);
        json_add(row, "memory",
                 count < details->count && details->failures[count].is_known ? memory_json(details, count)
                                                                             : json_null_value());
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
    struct details *details = memory_resize(NULL, sizeof(*details));
    int error = load_details(details, database, values->device, message);

    if (error == VARVE_OK && values->json) {
        print_json(context->out, database, values->device, details);
    } else if (error == VARVE_OK) {
        print_text(context->out, database, values->device, details);
    }
    details_free(details);
    free(details);
    return error;
}

const struct command command_oom = {
    .name = "oom",
    .arguments = "DB",
    .summary = "requests that a caching allocator could not serve",
    .purpose =
        "Lists every request that failed for want of memory: who made it, what was reserved, allocated and free at that "
        "moment, whether that was fragmentation or too little memory, the stages that were tried before, with the "
        "bytes that each gave back, and what would have served it: how much more memory, which blocks, freed, would "
        "have left a free block that is large enough, and free memory that the request could not use.",
    .examples = "  varve oom trace.db\n"
                "  varve oom --json trace.db\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .answer = answer,
};
