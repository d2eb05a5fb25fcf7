/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve bound`: what no allocator can do without, and the best placement that is found with all lifetimes known; of a
 * trace's blocks, device by device, or of the buffers in a CSV file. The work is done in analysis/whatif.
 */
#include "analysis/base/memory_or_exit.h"
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/history/history_lifetimes.h"
#include "analysis/history/history_read.h"
#include "analysis/base/output_file.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/progress.h"
#include "analysis/base/table.h"
#include "analysis/whatif/buffer_file.h"
#include "analysis/replay/replay_before.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdlib.h>

#define BLOCK_BYTES ((uint64_t)512)         /* PyTorch's blocks are multiples of it */
#define PAGE_BYTES ((uint64_t)2 << 20)      /* what a device maps at a time */
#define SMALL_BYTES_MAX ((uint64_t)1 << 20) /* larger requests come from PyTorch's other pool */

struct values {
    int64_t capacity, alignment, seconds_ns, device, jobs;
    const char *output;
    bool force, quiet, json;
};

static const struct values defaults = {.device = -1};

static const struct option_spec options[] = {
    {"capacity", 0, OPTION_BYTES, "BYTES", "only find out whether all of it fits into so much",
     offsetof(struct values, capacity), 1, INT64_MAX, NULL},
    {"alignment", 0, OPTION_BYTES, "BYTES",
     "a power of two that sizes are rounded up to (default: 512 of a trace, 1 of a CSV file)",
     offsetof(struct values, alignment), 1, INT64_C(1) << 40, NULL},
    {"seconds", 0, OPTION_SECONDS, "SECONDS",
     "look for a better placement for so long, for each device (default: 10, and less where no more than 1 % could "
     "be gained)",
     offsetof(struct values, seconds_ns), 0, 0, NULL},
    {"device", 0, OPTION_INTEGER, "N", "of this device only (default: all)", offsetof(struct values, device), 0, 255,
     NULL},
    {"jobs", 'j', OPTION_INTEGER, "N", "threads that look for it at the same time (default: the processors)",
     offsetof(struct values, jobs), 1, 256, NULL},
    {"output", 'o', OPTION_TEXT, "FILE", "write the placement, as CSV: id,lower,upper,size,offset",
     offsetof(struct values, output), 0, 0, NULL},
    {"force", 'f', OPTION_FLAG, NULL, "replace FILE if it exists", offsetof(struct values, force), 0, 0, NULL},
    {"quiet", 'q', OPTION_FLAG, NULL, "show no progress", offsetof(struct values, quiet), 0, 0, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object, or an array of one for each device", offsetof(struct values, json),
     0, 0, NULL},
    {.kind = OPTION_END},
};

/* X(key of JSON, title): bounds of a trace that differ by what an allocator may do, all in bytes */
#define BOUND_LIST(X)                                               \
    X(load, "load: most bytes requested at a time")                 \
    X(block_load, "the same in blocks of 512 B")                    \
    X(page_load, "that in whole pages of 2 MiB")                    \
    X(pool_load, "blocks of 512 B, each pool and stream by itself") \
    X(block_pages, "pages of 2 MiB for each block alone")

struct bounds {
#define BOUND_FIELD(name, title) uint64_t name;
    BOUND_LIST(BOUND_FIELD)
#undef BOUND_FIELD
};

/* A device of a trace, or a file. */
struct subject {
    const char *path;
    struct placement_buffer *buffers;
    size_t count;
    const struct buffer_file *file; /* NULL: a device */
    unsigned device;
    size_t events;
    struct bounds bounds;  /* of a device */
    int64_t peak_reserved; /* as recorded; REPLAY_UNKNOWN of a file */
    uint64_t alignment;
    struct placement_result result;
};

/* ---- the bounds of a device ---- */

static uint64_t command_bound_round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Small and large blocks, streams and private pools are kept apart. */
static int compare_pools(const void *a_untyped, const void *b_untyped)
{
    const struct history_lifetime *a = *(const struct history_lifetime *const *)a_untyped;
    const struct history_lifetime *b = *(const struct history_lifetime *const *)b_untyped;
    if (a->pool != b->pool) {
        return a->pool < b->pool ? -1 : 1;
    }
    if (a->stream != b->stream) {
        return a->stream < b->stream ? -1 : 1;
    }
    return (int)(a->size > SMALL_BYTES_MAX) - (int)(b->size > SMALL_BYTES_MAX);
}

/* Loads of the blocks of each pool and stream, added up. `scratch` has room for all blocks. */
static uint64_t pool_load(const struct history_lifetimes *lifetimes, struct placement_buffer *scratch)
{
    const struct history_lifetime **sorted = memory_resize(NULL, (lifetimes->count + 1) * sizeof(*sorted));
    for (size_t i = 0; i < lifetimes->count; i++) {
        sorted[i] = &lifetimes->items[i];
    }
    qsort(sorted, lifetimes->count, sizeof(*sorted), compare_pools);
    uint64_t sum = 0;
    size_t count = 0; /* of the pool, so far */
    for (size_t i = 0; i < lifetimes->count; i++) {
        scratch[count++] = (struct placement_buffer){.lower = sorted[i]->lower,
                                                     .upper = sorted[i]->upper,
                                                     .size = command_bound_round_up(sorted[i]->size, BLOCK_BYTES)};
        if (i + 1 == lifetimes->count || compare_pools(&sorted[i], &sorted[i + 1]) != 0) {
            sum += placement_load(scratch, count);
            count = 0;
        }
    }
    free(sorted);
    return sum;
}

static uint64_t load_in(const struct subject *subject, struct placement_buffer *scratch, uint64_t unit)
{
    for (size_t i = 0; i < subject->count; i++) {
        scratch[i] = subject->buffers[i];
        scratch[i].size = command_bound_round_up(scratch[i].size, unit);
    }
    return placement_load(scratch, subject->count);
}

static void find_bounds(struct subject *subject, const struct history_lifetimes *lifetimes)
{
    struct placement_buffer *scratch = memory_resize(NULL, (subject->count + 1) * sizeof(*scratch));
    subject->bounds.load = load_in(subject, scratch, 1);
    subject->bounds.block_load = load_in(subject, scratch, BLOCK_BYTES);
    subject->bounds.page_load = command_bound_round_up(subject->bounds.block_load, PAGE_BYTES);
    subject->bounds.block_pages = load_in(subject, scratch, PAGE_BYTES);
    subject->bounds.pool_load = pool_load(lifetimes, scratch);
    free(scratch);
}

/* ---- a subject's placement ---- */

static int too_small(const struct subject *subject, uint64_t capacity, struct varve_message *message)
{
    size_t largest = 0;
    for (size_t i = 0; i < subject->count; i++) {
        largest = subject->buffers[i].size > subject->buffers[largest].size ? i : largest;
    }
    if (subject->count == 0 || capacity >= subject->buffers[largest].size) {
        return VARVE_OK;
    }
    if (subject->file != NULL) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "%s: buffer %.60s alone has %" PRIu64 " bytes, more than the capacity of %" PRIu64,
                                 subject->path, buffer_file_id(subject->file, largest), subject->buffers[largest].size,
                                 capacity);
    }
    return varve_message_set(
        message, VARVE_ERROR_INVALID,
        "%s: event %" PRId64 " of device %u alone asks for %" PRIu64 " bytes, more than the capacity of %" PRIu64,
        subject->path, subject->buffers[largest].lower, subject->device, subject->buffers[largest].size, capacity);
}

static int command_bound_place(struct subject *subject, const struct values *values, struct progress *progress,
                               struct varve_message *message)
{
    uint64_t usual = subject->file != NULL ? 1 : BLOCK_BYTES;
    struct placement_options how = {
        .alignment = values->alignment > 0 ? (uint64_t)values->alignment : usual,
        .capacity = (uint64_t)values->capacity,
        .seconds = (double)values->seconds_ns / 1e9,
        .threads = (unsigned)values->jobs,
        .progress = progress,
    };
    struct varve_message reason = {""};
    int error = how.capacity > 0 ? too_small(subject, how.capacity, message) : VARVE_OK;
    if (error != VARVE_OK) {
        return error;
    }
    subject->alignment = how.alignment;
    error = placement_solve(subject->buffers, subject->count, &how, &subject->result, &reason);
    if (error == VARVE_OK && !placement_check(subject->buffers, subject->count, subject->result.height, &reason)) {
        error = VARVE_ERROR_CORRUPT;
    }
    return error == VARVE_OK ? VARVE_OK : varve_message_set(message, error, "%s: %s", subject->path, reason.text);
}

/* ---- what is printed ---- */

static void command_bound_add_row(struct table *table, const char *title, uint64_t bytes, uint64_t load,
                                  const char *remark)
{
    char above[32] = "";
    if (load > 0 && bytes != load) {
        snprintf(above, sizeof(above), "%+.2f %%", 100 * ((double)bytes / (double)load - 1));
    }
    table_add(table, title);
    table_add(table, EXACT(bytes));
    table_add(table, above);
    table_add(table, remark);
}

static void print_fit(FILE *out, const struct subject *subject, uint64_t capacity)
{
    const struct placement_result *result = &subject->result;
    if (result->height <= capacity) {
        fprintf(out, "fits into %s\n", EXACT(capacity));
    } else if (result->bound > capacity) {
        fprintf(out, "does not fit into %s: %s are needed at least\n", EXACT(capacity), EXACT(result->bound));
    } else {
        fprintf(out,
                "whether it fits into %s was not found out: no placement was found in %s, and it is not ruled out\n",
                EXACT(capacity), DURATION(result->seconds * 1e9));
    }
}

static void command_bound_print_text(FILE *out, const struct subject *subject, uint64_t capacity)
{
    static const struct table_column columns[] = {{"", false}, {"bytes", true}, {"above load", true}, {"", false}};
    const struct placement_result *result = &subject->result;
    char remark[128];
    struct table table;
    if (subject->file != NULL) {
        fprintf(out, "%s buffers\n", COUNT(subject->count));
    } else {
        fprintf(out, "device %u: %s blocks in %s events\n", subject->device, COUNT(subject->count),
                COUNT(subject->events));
    }
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    table.indent = "  ";
    if (subject->file != NULL) {
        command_bound_add_row(&table, "load: most bytes that live at a time", result->load, result->load, "");
    } else {
#define BOUND_ROW(name, title) command_bound_add_row(&table, title, subject->bounds.name, result->load, "");
        BOUND_LIST(BOUND_ROW)
#undef BOUND_ROW
    }
    snprintf(remark, sizeof(remark), "%s%s, %s", result->optimal ? "optimal: " : "", result->method,
             DURATION(result->seconds * 1e9));
    command_bound_add_row(&table, "best placement found", result->height, result->load, remark);
    if (!result->optimal) {
        command_bound_add_row(&table, "no placement is below", result->bound, result->load, "");
    }
    if (subject->peak_reserved > 0) {
        command_bound_add_row(&table, "peak reserved, as recorded", (uint64_t)subject->peak_reserved, result->load, "");
    }
    table_print(&table, out, true);
    table_free(&table);
    if (capacity > 0) {
        print_fit(out, subject, capacity);
    }
}

static struct cJSON *subject_json(const struct subject *subject, uint64_t capacity)
{
    const struct placement_result *result = &subject->result;
    struct cJSON *object = json_object();
    if (subject->file == NULL) {
        json_integer(object, "device", subject->device);
        json_integer(object, "events", (int64_t)subject->events);
    }
    json_integer(object, "buffers", (int64_t)subject->count);
    json_integer(object, "alignment", (int64_t)subject->alignment);
    if (subject->file != NULL) {
        json_integer(object, "load_bytes", (int64_t)result->load);
    } else {
#define BOUND_JSON(name, title) json_integer(object, #name "_bytes", (int64_t)subject->bounds.name);
        BOUND_LIST(BOUND_JSON)
#undef BOUND_JSON
        json_integer_or_null(object, "peak_reserved", subject->peak_reserved);
    }
    json_integer(object, "bound_bytes", (int64_t)result->bound);
    json_integer(object, "placement_bytes", (int64_t)result->height);
    json_bool(object, "optimal", result->optimal);
    json_text(object, "method", result->method);
    if (capacity > 0) {
        json_integer(object, "capacity", (int64_t)capacity);
        if (result->height <= capacity || result->bound > capacity) {
            json_bool(object, "fits", result->height <= capacity);
        } else {
            json_add(object, "fits", json_null_value());
        }
    }
    json_real(object, "seconds", result->seconds);
    return object;
}

static void print_subjects(struct command_context *context, const struct values *values, const struct subject *subjects,
                           size_t count)
{
    struct cJSON *array = values->json && count > 1 ? json_array() : NULL;
    for (size_t i = 0; i < count; i++) {
        if (values->json && count > 1) {
            json_append(array, subject_json(&subjects[i], (uint64_t)values->capacity));
        } else if (values->json) {
            json_print(subject_json(&subjects[i], (uint64_t)values->capacity), context->out);
        } else {
            command_bound_print_text(context->out, &subjects[i], (uint64_t)values->capacity);
        }
    }
    if (array != NULL) {
        json_print(array, context->out);
    }
}

static int write_placement(const void *subject_untyped, FILE *out, struct varve_message *message)
{
    const struct subject *subject = subject_untyped;
    (void)message;
    buffer_file_write(out, subject->file, subject->buffers, subject->count);
    return VARVE_OK;
}

/* ---- the two kinds of files ---- */

static int bound_file(struct command_context *context, const struct values *values, const char *path,
                      struct progress *progress, struct varve_message *message)
{
    struct buffer_file file;
    struct subject subject = {.path = path, .file = &file, .peak_reserved = REPLAY_UNKNOWN};
    int error = buffer_file_read(path, &file, message);
    if (error != VARVE_OK) {
        return error;
    }
    subject.buffers = file.buffers;
    subject.count = file.count;
    error = command_bound_place(&subject, values, progress, message);
    progress_end(progress);
    if (error == VARVE_OK && values->output != NULL) {
        error = output_file(values->output, values->force, write_placement, &subject, message);
    }
    if (error == VARVE_OK) {
        print_subjects(context, values, &subject, 1);
    }
    buffer_file_free(&file);
    return error;
}

static int bound_device(const struct history *history, struct subject *subject, const struct values *values,
                        struct progress *progress, struct varve_message *message)
{
    const struct history_device *device = &history->devices[subject->device];
    struct history_lifetimes lifetimes;
    history_lifetimes_make(history, device, &lifetimes);
    subject->count = lifetimes.count;
    subject->events = device->event_count;
    subject->buffers = memory_resize(NULL, (lifetimes.count + 1) * sizeof(*subject->buffers));
    for (size_t i = 0; i < lifetimes.count; i++) {
        const struct history_lifetime *lifetime = &lifetimes.items[i];
        subject->buffers[i] =
            (struct placement_buffer){.lower = lifetime->lower, .upper = lifetime->upper, .size = lifetime->size};
    }
    int error = command_bound_place(subject, values, progress, message); /* refuses sizes whose sums are too large */
    if (error == VARVE_OK) {
        find_bounds(subject, &lifetimes);
        error = replay_recorded_peak(device, &subject->peak_reserved);
    }
    history_lifetimes_free(&lifetimes);
    return error;
}

/* Devices with events or blocks, and that are asked for. */
static size_t command_bound_find_devices(const struct history *history, const struct values *values, const char *path,
                                         struct subject *subjects)
{
    size_t count = 0;
    for (size_t i = 0; i < history->device_count; i++) {
        const struct history_device *device = &history->devices[i];
        if ((device->event_count > 0 || device->block_count > 0) &&
            (values->device < 0 || values->device == (int64_t)i)) {
            subjects[count++] = (struct subject){.path = path, .device = (unsigned)i};
        }
    }
    return count;
}

static int bound_history(struct command_context *context, const struct values *values, const char *path,
                         const struct history *history, struct progress *progress, struct varve_message *message)
{
    struct subject *subjects = memory_resize(NULL, (history->device_count + 1) * sizeof(*subjects));
    size_t count = command_bound_find_devices(history, values, path, subjects);
    int error = VARVE_OK;
    if (count == 0 && values->device >= 0) {
        error = varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                                  "%s: no events of a caching allocator on device %" PRId64, path, values->device);
    } else if (count == 0) {
        error = varve_message_set(message, VARVE_ERROR_NOT_FOUND, "%s has no events of a caching allocator", path);
    } else if (count > 1 && values->output != NULL) {
        error = varve_message_set(message, VARVE_ERROR_INVALID,
                                  "%s has events of %zu devices: --device says whose placement %s is for", path, count,
                                  values->output);
    }
    for (size_t i = 0; error == VARVE_OK && i < count; i++) {
        error = bound_device(history, &subjects[i], values, progress, message);
    }
    progress_end(progress);
    if (error == VARVE_OK && values->output != NULL) {
        error = output_file(values->output, values->force, write_placement, &subjects[0], message);
    }
    if (error == VARVE_OK) {
        print_subjects(context, values, subjects, count);
    }
    for (size_t i = 0; i < count; i++) {
        free(subjects[i].buffers);
    }
    free(subjects);
    return error;
}

static int command_bound_run(struct command_context *context, const void *values_untyped,
                             const struct operands *operands)
{
    const struct values *values = values_untyped;
    const char *path = operands->items[0];
    struct varve_message message = {""};
    int error = values->output != NULL
                    ? output_check(values->output, values->force, operands->items, operands->count, &message)
                    : VARVE_OK;
    if (error == VARVE_OK && (values->alignment & (values->alignment - 1)) != 0) {
        error = varve_message_set(&message, VARVE_ERROR_INVALID, "--alignment takes a power of two");
    }
    if (error != VARVE_OK) {
        return command_fail(context, "%s", message.text);
    }
    struct progress progress;
    command_progress(context, &progress, values->quiet);
    struct history *history;
    if (buffer_file_recognise(path)) {
        error = bound_file(context, values, path, &progress, &message);
    } else {
        error = history_read(path, &history, &progress, &message);
        if (error == VARVE_OK) {
            command_say_inferred(context, path, history);
            error = bound_history(context, values, path, history, &progress, &message);
            history_free(history);
        }
    }
    progress_end(&progress);
    return error == VARVE_OK ? 0 : command_fail(context, "%s", message.text);
}

const struct command command_bound = {
    .name = "bound",
    .arguments = "TRACE|FILE.csv",
    .summary = "the least memory that any allocator needs, and the best placement that is found",
    .purpose =
        "TRACE is a snapshot of PyTorch or a trace database: prints, for each device, the most bytes that were "
        "requested and in use at a time, which every allocator needs, the same for allocators of blocks, pages and "
        "separate pools, and what was reserved. Between them is the best placement of all blocks that is found, each "
        "at one address from its allocation until its free is completed, as if all of it were known before: what an "
        "allocator needs above that, it loses by not knowing the future. `optimal` is said where it is proved. A CSV "
        "file has a buffer a line, with columns id, lower, upper and size, as MiniMalloc has them: it lives from "
        "`lower` up to, but without, `upper`.",
    .examples = "  varve bound snapshot.pickle.xz\n"
                "  varve bound --json --capacity 24G trace.db\n"
                "  varve bound -o placement.csv buffers.csv\n",
    .options = options,
    .reads_database = true,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .operands_min = 1,
    .operands_max = 1,
    .run = command_bound_run,
};
