/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order: lines of a log are in the order in which the allocator was asked, and their times may go back a little, as
 * threads take the time before they take the log's lock. Where lines were shuffled it is the other way round. Both
 * orders are tried, and the one with fewer contradictions (frees of what is not there, allocations of what is) is
 * taken. At equal times, which clocks of a microsecond give in plenty, an entry that does not fit waits for
 * those behind it.
 */
#include "analysis/import/import_requests.h"

#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/progress.h"
#include "base/error.h"
#include "trace/record.h"
#include "trace/writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRESS_EVENTS 65536
#define THREADS_MAX 65535U
#define STREAMS_MAX 65535U
#define SPACES_MAX 65535U
#define ADDR_LIMIT (UINT64_C(1) << 57)
#define SIZE_LIMIT (UINT64_C(1) << 47)
#define TIE_ROUNDS 8 /* hostile sources have as many equal times as they like */
#define DEVICES 256

struct import_process {
    char *name;
    int32_t pid;
};

struct import_thread {
    uint64_t tid;
    uint32_t process; /* number in processes */
    uint32_t written; /* the writer's number; 0: not yet */
};

struct import_device {
    char *name;
    uint64_t total_bytes;
    bool is_used;
};

struct import_symbol {
    char *function, *file, *module;
    uint32_t line;
};

struct import_stack {
    size_t first, depth; /* in frames */
};

/* The addresses of one allocator: of a device, or of a process's heap or driver. */
struct import_space {
    uint64_t key;
    struct map live; /* address → size */
    uint64_t live_bytes;
    uint64_t dev_seq;
};

struct import_requests {
    struct import_request *items;
    size_t count, capacity;
    struct import_process *processes;
    size_t process_count, process_capacity;
    struct import_thread *threads;
    size_t thread_count, thread_capacity;
    struct map thread_numbers, process_numbers; /* by hash */
    uint64_t *streams;
    size_t stream_count, stream_capacity;
    struct map stream_numbers;
    struct import_space *spaces;
    size_t space_count, space_capacity;
    struct map space_numbers;
    struct import_symbol *symbols;
    size_t symbol_count, symbol_capacity;
    struct map symbol_numbers;
    struct import_stack *stacks; /* number n is n + 1 outside */
    size_t stack_count, stack_capacity;
    uint32_t *frames;
    size_t frame_count, frame_capacity;
    struct map stack_numbers;
    struct import_device devices[DEVICES];
    struct import_log_result result;
};

/* ---- the list ---- */

struct import_requests *import_requests_new(const char *format, const char *entry)
{
    struct import_requests *requests = memory_resize(NULL, sizeof(*requests));
    *requests = (struct import_requests){.result = {.format = format, .entry = entry}};
    import_requests_stream(requests, 0, 0);
    return requests;
}

void import_requests_free(struct import_requests *requests)
{
    if (requests == NULL) {
        return;
    }
    for (size_t i = 0; i < requests->process_count; i++) {
        free(requests->processes[i].name);
    }
    for (size_t i = 0; i < requests->space_count; i++) {
        map_free(&requests->spaces[i].live);
    }
    for (size_t i = 0; i < requests->symbol_count; i++) {
        free(requests->symbols[i].function);
        free(requests->symbols[i].file);
        free(requests->symbols[i].module);
    }
    for (size_t i = 0; i < DEVICES; i++) {
        free(requests->devices[i].name);
    }
    map_free(&requests->thread_numbers);
    map_free(&requests->process_numbers);
    map_free(&requests->stream_numbers);
    map_free(&requests->space_numbers);
    map_free(&requests->symbol_numbers);
    map_free(&requests->stack_numbers);
    free(requests->processes);
    free(requests->threads);
    free(requests->streams);
    free(requests->spaces);
    free(requests->symbols);
    free(requests->stacks);
    free(requests->frames);
    free(requests->items);
    free(requests);
}

struct import_request *import_requests_add(struct import_requests *requests, uint64_t number)
{
    requests->items = memory_grow(requests->items, &requests->capacity, requests->count, sizeof(*requests->items));
    requests->items[requests->count] = (struct import_request){.number = number};
    return &requests->items[requests->count++];
}

void import_requests_fault(struct import_requests *requests, enum import_fault fault, uint64_t number)
{
    struct import_fault_count *count = &requests->result.faults[fault];
    count->first = count->count == 0 ? number : count->first;
    count->count++;
}

bool import_requests_first_time(const struct import_requests *requests, int64_t *time_ns_out)
{
    if (requests->count > 0) {
        *time_ns_out = requests->items[0].time_ns;
    }
    return requests->count > 0;
}

bool import_is_memory(uint64_t addr, uint64_t size)
{
    return addr < ADDR_LIMIT && size < SIZE_LIMIT;
}

void import_requests_inherited(struct import_requests *requests, uint64_t bytes)
{
    requests->result.inherited_bytes += bytes;
}

void import_requests_entry(struct import_requests *requests)
{
    requests->result.entries++;
}

size_t import_requests_count(const struct import_requests *requests)
{
    return requests->count;
}

void import_requests_reserved(struct import_requests *requests, uint64_t bytes)
{
    if (bytes > requests->result.peak_reserved) {
        requests->result.peak_reserved = bytes;
    }
}

void import_requests_device(struct import_requests *requests, unsigned index, const char *name, uint64_t total_bytes)
{
    struct import_device *device = &requests->devices[index % DEVICES];
    free(device->name);
    *device =
        (struct import_device){.name = memory_copy_text(name), .total_bytes = total_bytes, .is_used = device->is_used};
}

/* ---- what is interned: threads, streams, spaces, symbols, stacks ---- */

static size_t process_number(struct import_requests *requests, int32_t pid)
{
    uint64_t found = map_find(&requests->process_numbers, (uint32_t)pid);
    if (found != MAP_NONE) {
        return found;
    }
    map_put(&requests->process_numbers, (uint32_t)pid, requests->process_count);
    *MEMORY_ADD(requests->processes, requests->process_count, requests->process_capacity) =
        (struct import_process){.pid = pid};
    return requests->process_count - 1;
}

uint32_t import_requests_thread(struct import_requests *requests, int32_t pid, uint64_t tid, uint64_t number)
{
    const uint64_t named[2] = {(uint64_t)(uint32_t)pid, tid};
    uint64_t key = map_hash(named, sizeof(named));
    for (uint64_t found; (found = map_find(&requests->thread_numbers, key)) != MAP_NONE; key++) {
        const struct import_thread *thread = &requests->threads[found];
        if (thread->tid == tid && requests->processes[thread->process].pid == pid) {
            return (uint32_t)found;
        }
    }
    if (requests->thread_count == THREADS_MAX) {
        import_requests_fault(requests, IMPORT_FAULT_NAMELESS, number);
        return THREADS_MAX - 1;
    }
    map_put(&requests->thread_numbers, key, requests->thread_count);
    *MEMORY_ADD(requests->threads, requests->thread_count, requests->thread_capacity) =
        (struct import_thread){.tid = tid, .process = (uint32_t)process_number(requests, pid)};
    return (uint32_t)requests->thread_count - 1;
}

void import_requests_process(struct import_requests *requests, int32_t pid, const char *name)
{
    uint64_t found = map_find(&requests->process_numbers, (uint32_t)pid);
    if (found != MAP_NONE) {
        free(requests->processes[found].name);
        requests->processes[found].name = memory_copy_text(name);
    }
}

uint16_t import_requests_stream(struct import_requests *requests, uint64_t handle, uint64_t number)
{
    uint64_t found = map_find(&requests->stream_numbers, handle);
    if (found != MAP_NONE) {
        return (uint16_t)found;
    }
    if (requests->stream_count == STREAMS_MAX) {
        import_requests_fault(requests, IMPORT_FAULT_NAMELESS, number);
        return STREAMS_MAX - 1;
    }
    map_put(&requests->stream_numbers, handle, requests->stream_count);
    *MEMORY_ADD(requests->streams, requests->stream_count, requests->stream_capacity) = handle;
    return (uint16_t)(requests->stream_count - 1);
}

uint32_t import_requests_symbol(struct import_requests *requests, const char *function, const char *file, uint32_t line,
                                const char *module)
{
    uint64_t key = map_hash(function, strlen(function)) ^ ((uint64_t)line << 32);
    key ^= file != NULL ? map_hash(file, strlen(file)) << 1 : 0;
    key ^= module != NULL ? map_hash(module, strlen(module)) << 2 : 0;
    for (uint64_t found; (found = map_find(&requests->symbol_numbers, key)) != MAP_NONE; key++) {
        const struct import_symbol *symbol = &requests->symbols[found];
        if (symbol->line == line && strcmp(symbol->function, function) == 0 && memory_same_text(symbol->file, file) &&
            memory_same_text(symbol->module, module)) {
            return (uint32_t)found;
        }
    }
    map_put(&requests->symbol_numbers, key, requests->symbol_count);
    *MEMORY_ADD(requests->symbols, requests->symbol_count, requests->symbol_capacity) =
        (struct import_symbol){memory_copy_text(function), memory_copy_text(file), memory_copy_text(module), line};
    return (uint32_t)requests->symbol_count - 1;
}

uint32_t import_requests_callsite(struct import_requests *requests, const uint32_t *symbols, size_t depth)
{
    uint64_t key = map_hash(symbols, depth * sizeof(*symbols));
    if (depth == 0) {
        return 0;
    }
    for (uint64_t found; (found = map_find(&requests->stack_numbers, key)) != MAP_NONE; key++) {
        const struct import_stack *stack = &requests->stacks[found];
        if (stack->depth == depth && memcmp(requests->frames + stack->first, symbols, depth * sizeof(*symbols)) == 0) {
            return (uint32_t)found + 1;
        }
    }
    map_put(&requests->stack_numbers, key, requests->stack_count);
    *MEMORY_ADD(requests->stacks, requests->stack_count, requests->stack_capacity) =
        (struct import_stack){.first = requests->frame_count, .depth = depth};
    for (size_t i = 0; i < depth; i++) {
        *MEMORY_ADD(requests->frames, requests->frame_count, requests->frame_capacity) = symbols[i];
    }
    return (uint32_t)requests->stack_count;
}

/* Which addresses an entry's is one of. */
static uint16_t space_of(struct import_requests *requests, const struct import_request *request)
{
    uint64_t process = requests->threads[request->thread].process;
    uint64_t key =
        process << 16 | (uint64_t)request->target << 8 | (request->target == IMPORT_BLOCK ? request->device : 0U);
    uint64_t found = map_find(&requests->space_numbers, key);
    if (found != MAP_NONE) {
        return (uint16_t)found;
    }
    if (requests->space_count == SPACES_MAX) {
        return SPACES_MAX - 1;
    }
    map_put(&requests->space_numbers, key, requests->space_count);
    *MEMORY_ADD(requests->spaces, requests->space_count, requests->space_capacity) = (struct import_space){.key = key};
    return (uint16_t)(requests->space_count - 1);
}

/* ---- the order ---- */

static int import_requests_compare_times(const void *a, const void *b)
{
    const struct import_request *one = a;
    const struct import_request *two = b;
    if (one->time_ns != two->time_ns) {
        return one->time_ns < two->time_ns ? -1 : 1;
    }
    return (one->number > two->number) - (one->number < two->number);
}

static int import_requests_compare_numbers(const void *a, const void *b)
{
    const struct import_request *one = a;
    const struct import_request *two = b;
    return (one->number > two->number) - (one->number < two->number);
}

static void import_requests_sort(struct import_requests *requests, int (*compare)(const void *, const void *))
{
    if (requests->count > 0) { /* qsort takes no NULL */
        qsort(requests->items, requests->count, sizeof(*requests->items), compare);
    }
}

static void spaces_clear(struct import_requests *requests)
{
    for (size_t i = 0; i < requests->space_count; i++) {
        map_free(&requests->spaces[i].live);
    }
}

static bool import_requests_fits(struct import_requests *requests, const struct import_request *request)
{
    const struct map *live = &requests->spaces[request->space].live;
    return request->action == IMPORT_FAILURE ||
           (map_find(live, request->addr) != MAP_NONE) == (request->action == IMPORT_FREE);
}

static void import_requests_apply(struct import_requests *requests, const struct import_request *request)
{
    struct map *live = &requests->spaces[request->space].live;
    if (request->action == IMPORT_ALLOC) {
        map_put(live, request->addr, request->size);
    } else if (request->action == IMPORT_FREE) {
        map_remove(live, request->addr);
    }
}

static uint64_t count_contradictions(struct import_requests *requests)
{
    uint64_t count = 0;
    for (size_t i = 0; i < requests->count; i++) {
        count += !import_requests_fits(requests, &requests->items[i]);
        import_requests_apply(requests, &requests->items[i]);
    }
    spaces_clear(requests);
    return count;
}

/* Of entries at one time those first that fit, each as often as others make it fit. */
static void settle_tie(struct import_requests *requests, struct import_request *items, size_t count,
                       struct import_request *room)
{
    size_t placed = 0;
    size_t waiting = count;
    for (int round = 0; waiting > 0 && round <= TIE_ROUNDS; round++) {
        size_t before = waiting;
        waiting = 0;
        for (size_t i = 0; i < before; i++) {
            if (round == TIE_ROUNDS || import_requests_fits(requests, &items[i])) {
                import_requests_apply(requests, &items[i]);
                room[placed++] = items[i];
            } else {
                items[waiting++] = items[i];
            }
        }
        round = waiting == before && round < TIE_ROUNDS ? TIE_ROUNDS - 1 : round; /* nothing fits: as they are */
    }
    memcpy(items, room, count * sizeof(*items));
}

static void settle_ties(struct import_requests *requests)
{
    struct import_request *room = NULL;
    size_t capacity = 0;
    for (size_t i = 0; i < requests->count;) {
        size_t end = i + 1;
        while (end < requests->count && requests->items[end].time_ns == requests->items[i].time_ns) {
            end++;
        }
        if (end - i > capacity) {
            capacity = 2 * (end - i);
            room = memory_resize(room, capacity * sizeof(*room));
        }
        settle_tie(requests, requests->items + i, end - i, room);
        i = end;
    }
    free(room);
    spaces_clear(requests);
}

static bool same_file(const struct import_request *one, const struct import_request *two)
{
    return one->number / IMPORT_NUMBERS_PER_FILE == two->number / IMPORT_NUMBERS_PER_FILE;
}

/* Times that go back are those of the one in front; then several files can be put into one order by time. */
static void straighten_times(struct import_requests *requests)
{
    struct import_request *items = requests->items;
    for (size_t i = 1; i < requests->count; i++) {
        if (items[i].time_ns < items[i - 1].time_ns && same_file(&items[i], &items[i - 1])) {
            items[i].time_ns = items[i - 1].time_ns;
        }
    }
    if (!same_file(&items[0], &items[requests->count - 1])) {
        import_requests_sort(requests, import_requests_compare_times);
    }
}

static void put_in_order(struct import_requests *requests, enum import_order order)
{
    const struct import_fault_count *backwards = &requests->result.faults[IMPORT_FAULT_BACKWARDS];
    for (size_t i = 0; i < requests->count; i++) {
        requests->items[i].space = space_of(requests, &requests->items[i]);
        if (order == IMPORT_BY_NUMBER && i > 0 && same_file(&requests->items[i], &requests->items[i - 1]) &&
            requests->items[i].time_ns < requests->items[i - 1].time_ns) {
            import_requests_fault(requests, IMPORT_FAULT_BACKWARDS, requests->items[i].number);
        }
    }
    if (order == IMPORT_BY_TIME) {
        import_requests_sort(requests, import_requests_compare_times);
        settle_ties(requests);
        return;
    }
    uint64_t by_number = backwards->count > 0 ? count_contradictions(requests) : 0;
    if (by_number > 0) {
        import_requests_sort(requests, import_requests_compare_times);
        settle_ties(requests);
        uint64_t by_time = count_contradictions(requests);
        requests->result.by_time = by_time < by_number;
        if (!requests->result.by_time) {
            import_requests_sort(requests, import_requests_compare_numbers);
        }
    }
    if (!requests->result.by_time) {
        straighten_times(requests);
    }
}

/* ---- the database ---- */

struct import_output {
    struct import_requests *requests;
    struct varve_writer *writer;
    struct import_log_result *result;
    uint32_t *callsites; /* by stack */
    struct map streams;  /* space << 16 | stream: said */
    int64_t begin_ns;
    uint32_t thread; /* that events are of; UINT32_MAX: none */
};

/* The writer's number of a symbol, made when a stack has it. */
static uint32_t write_symbol(struct import_output *output, uint32_t *written, uint32_t number)
{
    const struct import_symbol *symbol = &output->requests->symbols[number];
    if (written[number] == 0) {
        written[number] =
            varve_writer_symbol(output->writer, &(struct varve_writer_symbol){.function = symbol->function,
                                                                              .file = symbol->file,
                                                                              .module = symbol->module,
                                                                              .line = symbol->line,
                                                                              .is_python = symbol->file != NULL});
    }
    return written[number];
}

static void import_requests_write_callsites(struct import_output *output)
{
    struct import_requests *requests = output->requests;
    uint32_t *symbols = memory_resize(NULL, (requests->symbol_count + 1) * sizeof(*symbols));
    memset(symbols, 0, (requests->symbol_count + 1) * sizeof(*symbols));
    output->callsites = memory_resize(NULL, (requests->stack_count + 1) * sizeof(*output->callsites));
    output->callsites[0] = 0;
    uint32_t *frames = NULL;
    size_t capacity = 0;
    for (size_t i = 0; i < requests->stack_count; i++) {
        const struct import_stack *stack = &requests->stacks[i];
        if (stack->depth > capacity) {
            capacity = 2 * stack->depth;
            frames = memory_resize(frames, capacity * sizeof(*frames));
        }
        for (size_t j = 0; j < stack->depth; j++) {
            frames[j] = write_symbol(output, symbols, requests->frames[stack->first + j]);
        }
        output->callsites[i + 1] = varve_writer_callsite(output->writer, frames, (uint32_t)stack->depth);
    }
    free(frames);
    free(symbols);
}

/* A tid as Linux has them, or the thread's number with the log's word for its name. */
static void enter_thread(struct import_output *output, uint32_t number)
{
    struct import_thread *thread = &output->requests->threads[number];
    const struct import_process *process = &output->requests->processes[thread->process];
    int32_t pid = process->pid > 0 ? process->pid : (int32_t)thread->process + 1;
    bool is_tid = thread->tid > 0 && thread->tid <= INT32_MAX;
    int32_t tid = is_tid ? (int32_t)thread->tid : (int32_t)number + 1;
    if (output->thread == number) {
        return;
    }
    output->thread = number;
    if (thread->written != 0) {
        varve_writer_use_thread(output->writer, thread->written);
        return;
    }
    char name[24];
    snprintf(name, sizeof(name), "%" PRIu64, thread->tid);
    thread->written = varve_writer_process(
        output->writer, &(struct varve_writer_process){.pid = pid, .rank = -1, .executable = process->name});
    thread->written = varve_writer_thread(output->writer, tid, is_tid ? NULL : name);
    varve_writer_use_thread(output->writer, thread->written);
}

static void say_stream(struct import_output *output, const struct import_request *request)
{
    uint64_t key = (uint64_t)request->space << 24 | (uint64_t)request->device << 16 | request->stream;
    if (request->target != IMPORT_HEAP && map_find(&output->streams, key) == MAP_NONE) {
        map_put(&output->streams, key, 1);
        varve_writer_stream(output->writer, request->device, request->stream,
                            output->requests->streams[request->stream]);
    }
}

static enum varve_kind kind_of(const struct import_request *request)
{
    static const enum varve_kind kinds[][3] = {
        [IMPORT_BLOCK] = {VARVE_KIND_ALLOC, VARVE_KIND_FREE_REQUESTED, VARVE_KIND_OOM},
        [IMPORT_DEVICE] = {VARVE_KIND_DEV_ALLOC, VARVE_KIND_DEV_FREE, VARVE_KIND_DEV_OOM},
        [IMPORT_HEAP] = {VARVE_KIND_HEAP_ALLOC, VARVE_KIND_HEAP_FREE, VARVE_KIND_HEAP_ALLOC},
    };
    enum varve_kind kind = kinds[request->target][request->action];
    if (request->is_async && request->action != IMPORT_FAILURE) {
        kind = request->action == IMPORT_ALLOC ? VARVE_KIND_DEV_ALLOC_ASYNC : VARVE_KIND_DEV_FREE_ASYNC;
    }
    return kind;
}

static void import_requests_write_record(struct import_output *output, const struct import_request *request,
                                         enum varve_kind kind)
{
    struct import_space *space = &output->requests->spaces[request->space];
    bool has_failed = request->action == IMPORT_FAILURE;
    struct varve_record record = {
        .addr = has_failed ? 0 : request->addr,
        .size = request->size,
        .requested = request->target == IMPORT_DEVICE ? request->took_ns : request->size,
        .id_stream = (uint64_t)request->stream << 48,
        .dev_seq_kind_flags = varve_record_tag(request->target == IMPORT_BLOCK ? ++space->dev_seq : 0, kind,
                                               has_failed && request->target == IMPORT_HEAP ? VARVE_FLAG_FAILED : 0),
        .callsite = output->callsites[request->callsite],
        .pool = request->pool,
        .device = request->device,
        .cause = request->cause,
    };
    if (kind == VARVE_KIND_OOM) {
        record.requested = space->live_bytes;
    }
    varve_writer_event(output->writer, &record, request->time_ns - output->begin_ns);
}

/* Count what contradicts itself, and know the size of what is freed. */
static void import_requests_follow(struct import_output *output, struct import_request *request)
{
    struct import_requests *requests = output->requests;
    struct import_log_result *result = output->result;
    struct import_space *space = &requests->spaces[request->space];
    struct map *live = &space->live;
    uint64_t size = request->action != IMPORT_FAILURE ? map_remove(live, request->addr) : MAP_NONE;
    bool was_live = size != MAP_NONE;
    result->live_bytes -= was_live ? size : 0;
    space->live_bytes -= was_live ? size : 0;
    switch (request->action) {
    case IMPORT_ALLOC:
        result->allocations++;
        if (was_live) {
            import_requests_fault(requests, IMPORT_FAULT_UNFREED, request->number);
        }
        map_put(live, request->addr, request->size);
        result->live_bytes += request->size;
        space->live_bytes += request->size;
        break;
    case IMPORT_FREE:
        result->frees++;
        if (!was_live) {
            import_requests_fault(requests, IMPORT_FAULT_UNKNOWN_FREE, request->number);
        } else if (request->size != 0 && request->size != size) {
            import_requests_fault(requests, IMPORT_FAULT_OTHER_SIZE, request->number);
        }
        request->size = was_live ? size : request->size;
        request->cause = was_live ? request->cause : (uint8_t)VARVE_CAUSE_UNKNOWN_ADDRESS;
        break;
    default:
        result->failures++;
        break;
    }
    result->peak_bytes = result->live_bytes > result->peak_bytes ? result->live_bytes : result->peak_bytes;
}

static void write_requests(struct import_output *output, struct progress *progress)
{
    struct import_requests *requests = output->requests;
    output->begin_ns = requests->items[0].time_ns;
    for (size_t i = 0; i < requests->count; i++) {
        struct import_request *request = &requests->items[i];
        enter_thread(output, request->thread);
        say_stream(output, request);
        import_requests_follow(output, request);
        import_requests_write_record(output, request, kind_of(request));
        if (request->target == IMPORT_BLOCK && request->action == IMPORT_FREE &&
            request->cause != VARVE_CAUSE_UNKNOWN_ADDRESS) {
            import_requests_write_record(output, request, VARVE_KIND_FREE_COMPLETED);
        }
        requests->devices[request->device].is_used |= request->target != IMPORT_HEAP;
        if (progress != NULL && i % PROGRESS_EVENTS == 0) {
            progress_step(progress, "importing", i, requests->count);
        }
    }
    output->result->duration_ns = requests->items[requests->count - 1].time_ns - output->begin_ns;
}

static bool has_target(const struct import_requests *requests, enum import_target target)
{
    for (size_t i = 0; i < requests->space_count; i++) {
        if ((requests->spaces[i].key >> 8 & 0xff) == target) {
            return true;
        }
    }
    return false;
}

static void import_requests_write_end(struct import_output *output, const char *source)
{
    struct import_requests *requests = output->requests;
    struct import_log_result *result = output->result;
    struct varve_writer *writer = output->writer;
    for (unsigned i = 0; i < DEVICES; i++) {
        if (requests->devices[i].is_used) {
            varve_writer_device(writer, i, requests->devices[i].name, requests->devices[i].total_bytes);
        }
    }
    varve_writer_meta_text(writer, "import.source", source);
    varve_writer_meta_text(writer, "import.format", result->format);
    if (has_target(requests, IMPORT_BLOCK)) {
        varve_writer_meta_text(writer, "block_sizes", "requested");
        varve_writer_meta_text(writer, "history.requests", "block");
    }
    if (result->peak_reserved > 0) {
        varve_writer_meta_integer(writer, "import.peak_reserved", (int64_t)result->peak_reserved);
    }
    if (result->by_time) {
        varve_writer_meta_text(writer, "import.order", "time");
    }
    varve_writer_stat(writer, "import_entries", false, result->entries);
    for (unsigned i = 0; i < IMPORT_FAULT_LIMIT; i++) {
        bool is_loss;
        const char *stat = import_fault_stat((enum import_fault)i, &is_loss);
        if (requests->result.faults[i].count > 0) {
            varve_writer_stat(writer, stat, is_loss, requests->result.faults[i].count);
        }
    }
}

int import_requests_write(struct import_requests *requests, enum import_order order, const char *source,
                          const char *output_path, bool may_replace, struct progress *progress,
                          struct import_log_result *result, struct varve_message *message)
{
    struct import_output output = {.requests = requests, .result = &requests->result, .thread = UINT32_MAX};
    if (requests->count == 0) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "%s: the %s has no allocations", source,
                                 requests->result.format);
    }
    int error = varve_writer_open(output_path, may_replace, &output.writer, message);
    if (error != VARVE_OK) {
        return error;
    }
    put_in_order(requests, order);
    import_requests_write_callsites(&output);
    write_requests(&output, progress);
    import_requests_write_end(&output, source);
    requests->result.events = varve_writer_events(output.writer);
    requests->result.threads = requests->thread_count;
    requests->result.processes = requests->process_count;
    requests->result.streams = output.streams.index.count;
    requests->result.callsites = requests->stack_count;
    *result = requests->result;
    map_free(&output.streams);
    free(output.callsites);
    return varve_writer_finish(output.writer, progress != NULL ? progress_step : NULL, progress, message);
}

bool import_requests_check(struct import_requests *requests)
{
    uint64_t numbers = 0;
    for (size_t i = 0; i < requests->count; i++) {
        const struct import_request *request = &requests->items[i];
        if (request->thread >= requests->thread_count || request->stream >= requests->stream_count ||
            request->callsite > requests->stack_count || !import_is_memory(request->addr, request->size)) {
            return false;
        }
        numbers += request->number;
    }
    put_in_order(requests, IMPORT_BY_TIME);
    for (size_t i = 0; i < requests->count; i++) {
        numbers -= requests->items[i].number;
        if (i > 0 && requests->items[i].time_ns < requests->items[i - 1].time_ns) {
            return false;
        }
    }
    return numbers == 0;
}

/* ---- words ---- */

const char *import_fault_stat(enum import_fault fault, bool *is_loss_out)
{
    static const struct {
        const char *stat;
        bool is_loss;
    } stats[] = {
#define IMPORT_FAULT_STAT(name, stat, is_loss, one, many) {stat, is_loss},
        IMPORT_FAULT_LIST(IMPORT_FAULT_STAT)
#undef IMPORT_FAULT_STAT
    };
    *is_loss_out = stats[fault].is_loss;
    return stats[fault].stat;
}

const char *import_fault_words(enum import_fault fault, uint64_t count)
{
    static const char *const words[][2] = {
#define IMPORT_FAULT_WORDS(name, stat, is_loss, one, many) {one, many},
        IMPORT_FAULT_LIST(IMPORT_FAULT_WORDS)
#undef IMPORT_FAULT_WORDS
    };
    return words[fault][count != 1];
}
