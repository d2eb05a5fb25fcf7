/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace may have gigabytes, of which a few per cent are about memory: it is cut into its events as it passes, and
 * only those that are needed become JSON. Brackets are counted outside of strings, which is all that cutting needs.
 */
#include "trace/record.h"
#include "analysis/import/import_log.h"

#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/input_stream.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/progress.h"
#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRESS_EVENTS 65536
#define EVENT_BYTES_MAX (1U << 20) /* of one that is looked at: stacks of inputs may be long, those of memory are not */
#define KEY_BYTES 16
#define DEPTH_MAX 512
#define TIME_US_MAX 4e15 /* of which sums and differences of two fit into 64 bits, in ns */
#define DEVICES 256

/* Code that ran on a thread. */
struct span {
    uint64_t thread;
    int64_t begin_ns, end_ns;
    uint32_t symbol;
};

struct memory_event {
    uint64_t thread, tid; /* process and thread; the thread alone */
    int64_t time_ns;
    uint64_t addr, size, number;
    int64_t allocated; /* of its memory when it had happened, as the trace says; -1: it does not */
    uint32_t callsite;
    int32_t pid;
    uint8_t action, target, device;
};

struct reader {
    struct import_requests *requests;
    struct memory_event *events;
    size_t event_count, event_capacity;
    struct span *spans;
    size_t span_count, span_capacity;
    uint64_t reserved[DEVICES];
    uint64_t number;      /* of the event in the file, from 1 */
    uint64_t unaddressed; /* events of memory that have no address */
};

/* ---- an event ---- */

static bool whole_number(const struct cJSON *object, const char *key, int64_t *value_out)
{
    double number;
    if (!json_find_number(object, key, &number) || !(fabs(number) < 9e18)) {
        return false;
    }
    *value_out = (int64_t)number;
    return true;
}

static bool import_profiler_read_time(const struct cJSON *event, const char *key, int64_t *ns_out)
{
    double us;
    if (!json_find_number(event, key, &us) || !(fabs(us) < TIME_US_MAX)) {
        return false;
    }
    *ns_out = llround(us * 1000);
    return true;
}

/* Process and thread: numbers, of some versions as text. */
static uint64_t read_id(const struct cJSON *event, const char *key)
{
    const char *text = json_find_text(event, key);
    if (text != NULL) {
        return strtoull(text, NULL, 10);
    }
    int64_t number = 0;
    return whole_number(event, key, &number) ? (uint64_t)number : 0;
}

static void read_thread(const struct cJSON *event, uint64_t *thread_out, uint64_t *tid_out, int32_t *pid_out)
{
    uint64_t pid = read_id(event, "pid");
    *tid_out = read_id(event, "tid");
    *pid_out = pid <= INT32_MAX ? (int32_t)pid : 0;
    *thread_out = pid << 32 ^ *tid_out;
}

static bool read_memory(struct reader *reader, const struct cJSON *event, bool is_failure, struct memory_event *out)
{
    const struct cJSON *args = json_find_object(event, "args");
    int64_t bytes;
    int64_t addr = 0;
    if (args == NULL || !import_profiler_read_time(event, "ts", &out->time_ns) ||
        !whole_number(args, "Bytes", &bytes) || (!is_failure && !whole_number(args, "Addr", &addr)) ||
        bytes == INT64_MIN) {
        return false;
    }
    int64_t type = 1;
    whole_number(args, "Device Type", &type);
    int64_t device = 0;
    whole_number(args, "Device Id", &device);
    device = device < 0 ? 0 : device; /* "the current one" */
    out->addr = (uint64_t)addr;
    out->size = (uint64_t)(bytes < 0 ? -bytes : bytes);
    out->action = is_failure ? IMPORT_FAILURE : bytes < 0 ? IMPORT_FREE : IMPORT_ALLOC;
    out->target = type == 0 ? IMPORT_HEAP : IMPORT_BLOCK;
    out->device = (uint8_t)device;
    out->number = reader->number;
    read_thread(event, &out->thread, &out->tid, &out->pid);
    if (device >= DEVICES || !import_is_memory(out->addr, out->size)) {
        return false;
    }
    out->allocated = -1;
    whole_number(args, "Total Allocated", &out->allocated);
    int64_t reserved;
    if (type != 0 && whole_number(args, "Total Reserved", &reserved) && reserved > (int64_t)reader->reserved[device]) {
        reader->reserved[device] = (uint64_t)reserved;
    }
    return true;
}

static void import_profiler_take_memory(struct reader *reader, const struct cJSON *event, bool is_failure)
{
    import_requests_entry(reader->requests);
    struct memory_event memory = {0};
    if (!read_memory(reader, event, is_failure, &memory)) {
        const struct cJSON *args = json_find_object(event, "args");
        int64_t ignored;
        reader->unaddressed += args != NULL && !is_failure && whole_number(args, "Bytes", &ignored) &&
                               !whole_number(args, "Addr", &ignored);
        import_requests_fault(reader->requests, IMPORT_FAULT_UNREADABLE, reader->number);
    } else if (!is_failure && (memory.addr == 0 || memory.size == 0)) {
        import_requests_fault(reader->requests, IMPORT_FAULT_EMPTY, reader->number);
    } else {
        *MEMORY_ADD(reader->events, reader->event_count, reader->event_capacity) = memory;
    }
}

/* A function of Python is named "file.py(12): function", all else by its name alone. */
static uint32_t import_profiler_symbol_of(struct reader *reader, const char *name)
{
    const char *end = strstr(name, "): ");
    const char *open = end;
    while (open != NULL && open > name && open[-1] >= '0' && open[-1] <= '9') {
        open--;
    }
    if (open == NULL || open == end || open - name < 2 || open[-1] != '(') {
        return import_requests_symbol(reader->requests, name, NULL, 0, NULL);
    }
    char *file = memory_copy_text(name);
    file[open - name - 1] = '\0';
    uint32_t symbol = import_requests_symbol(reader->requests, end + 3, file, (uint32_t)strtoul(open, NULL, 10), NULL);
    free(file);
    return symbol;
}

static void take_span(struct reader *reader, const struct cJSON *event)
{
    const char *name = json_find_text(event, "name");
    int64_t begin_ns, duration_ns;
    if (name == NULL || !import_profiler_read_time(event, "ts", &begin_ns) ||
        !import_profiler_read_time(event, "dur", &duration_ns)) {
        return;
    }
    struct span *span = MEMORY_ADD(reader->spans, reader->span_count, reader->span_capacity);
    *span = (struct span){
        .begin_ns = begin_ns, .end_ns = begin_ns + duration_ns, .symbol = import_profiler_symbol_of(reader, name)};
    uint64_t tid;
    int32_t pid;
    read_thread(event, &span->thread, &tid, &pid);
}

static bool import_profiler_contains(const char *text, size_t bytes, const char *word)
{
    return memmem(text, bytes, word, strlen(word)) != NULL;
}

static void import_profiler_take_event(struct reader *reader, const char *text, size_t bytes)
{
    bool may_be_memory =
        import_profiler_contains(text, bytes, "[memory]") || import_profiler_contains(text, bytes, "[OutOfMemory]");
    bool may_be_code = import_profiler_contains(text, bytes, "\"cpu_op\"") ||
                       import_profiler_contains(text, bytes, "\"python_function\"") ||
                       import_profiler_contains(text, bytes, "\"user_annotation\"");
    reader->number++;
    if (!may_be_memory && !may_be_code) {
        return;
    }
    struct cJSON *event = json_parse(text, bytes);
    const char *name = json_find_text(event, "name");
    if (event == NULL) {
        import_requests_entry(reader->requests);
        import_requests_fault(reader->requests, IMPORT_FAULT_UNREADABLE, reader->number);
    } else if (name != NULL && strcmp(name, "[memory]") == 0) {
        import_profiler_take_memory(reader, event, false);
    } else if (name != NULL && strcmp(name, "[OutOfMemory]") == 0) {
        import_profiler_take_memory(reader, event, true);
    } else if (may_be_code) {
        take_span(reader, event);
    }
    json_free(event);
}

/* ---- cutting ---- */

struct cutter {
    struct reader *reader;
    size_t depth;
    size_t event_depth; /* of the list of events: an object in it is one; 0: not in it */
    bool has_events;    /* there is such a list */
    bool is_in_string, is_escaped;
    bool is_in_event, is_too_long;
    char key[KEY_BYTES]; /* the last string of the outermost object, as far as it fits */
    size_t key_bytes;
    char *kept; /* of an event that began in an earlier window */
    size_t kept_bytes, kept_capacity;
};

static void import_profiler_keep(struct cutter *cutter, const unsigned char *from, const unsigned char *to)
{
    size_t bytes = (size_t)(to - from);
    if (cutter->is_too_long || bytes > EVENT_BYTES_MAX - cutter->kept_bytes) {
        cutter->is_too_long = true;
        return;
    }
    if (bytes == 0) {
        return; /* memcpy takes no NULL */
    }
    if (cutter->kept_bytes + bytes > cutter->kept_capacity) {
        cutter->kept_capacity = 2 * (cutter->kept_bytes + bytes);
        cutter->kept = memory_resize(cutter->kept, cutter->kept_capacity);
    }
    memcpy(cutter->kept + cutter->kept_bytes, from, bytes);
    cutter->kept_bytes += bytes;
}

static void end_event(struct cutter *cutter, const unsigned char *from, const unsigned char *to)
{
    if (cutter->kept_bytes == 0 && !cutter->is_too_long) {
        import_profiler_take_event(cutter->reader, (const char *)from, (size_t)(to - from));
    } else {
        import_profiler_keep(cutter, from, to);
        if (cutter->is_too_long) {
            cutter->reader->number++;
        } else {
            import_profiler_take_event(cutter->reader, cutter->kept, cutter->kept_bytes);
        }
    }
    cutter->kept_bytes = 0;
    cutter->is_in_event = false;
    cutter->is_too_long = false;
}

static void in_string(struct cutter *cutter, unsigned char byte)
{
    if (cutter->is_escaped) {
        cutter->is_escaped = false;
    } else if (byte == '\\') {
        cutter->is_escaped = true;
    } else if (byte == '"') {
        cutter->is_in_string = false;
    } else if (cutter->depth == 1 && cutter->key_bytes < KEY_BYTES) {
        cutter->key[cutter->key_bytes++] = (char)byte;
    }
}

static void open_bracket(struct cutter *cutter, unsigned char byte)
{
    static const char events[] = "traceEvents";
    bool is_events = cutter->key_bytes == sizeof(events) - 1 && memcmp(cutter->key, events, cutter->key_bytes) == 0;
    if (byte == '[' && cutter->event_depth == 0 && (cutter->depth == 0 || (cutter->depth == 1 && is_events))) {
        cutter->event_depth = cutter->depth + 1;
        cutter->has_events = true;
    }
    cutter->depth++;
}

static void close_bracket(struct cutter *cutter)
{
    cutter->depth -= cutter->depth > 0;
    if (cutter->depth < cutter->event_depth) {
        cutter->event_depth = 0;
    }
}

static void cut_window(struct cutter *cutter, const unsigned char *at, const unsigned char *end)
{
    const unsigned char *begin = at; /* of the event in this window */
    for (; at < end; at++) {
        if (cutter->is_in_string) {
            in_string(cutter, *at);
        } else if (*at == '"') {
            cutter->is_in_string = true;
            cutter->key_bytes = cutter->depth == 1 ? 0 : cutter->key_bytes;
        } else if (*at == '{' || *at == '[') {
            if (*at == '{' && cutter->event_depth != 0 && cutter->depth == cutter->event_depth) {
                begin = at;
                cutter->is_in_event = true;
            }
            open_bracket(cutter, *at);
        } else if (*at == '}' || *at == ']') {
            close_bracket(cutter);
            if (cutter->is_in_event && cutter->depth <= cutter->event_depth) {
                end_event(cutter, begin, at + 1);
            }
        }
    }
    if (cutter->is_in_event) {
        import_profiler_keep(cutter, begin, end);
    }
}

/* ---- call sites ---- */

static int compare_spans(const void *a, const void *b)
{
    const struct span *one = a;
    const struct span *two = b;
    if (one->thread != two->thread) {
        return one->thread < two->thread ? -1 : 1;
    }
    if (one->begin_ns != two->begin_ns) {
        return one->begin_ns < two->begin_ns ? -1 : 1;
    }
    return (one->end_ns < two->end_ns) - (one->end_ns > two->end_ns); /* the outer one first */
}

static int import_profiler_compare_times(const void *a, const void *b)
{
    const struct memory_event *one = a;
    const struct memory_event *two = b;
    if (one->time_ns != two->time_ns) {
        return one->time_ns < two->time_ns ? -1 : 1;
    }
    return (one->number > two->number) - (one->number < two->number);
}

static int compare_events(const void *a, const void *b)
{
    const struct memory_event *one = a;
    const struct memory_event *two = b;
    return one->thread != two->thread ? (one->thread < two->thread ? -1 : 1) : import_profiler_compare_times(a, b);
}

struct open_spans {
    const struct span *items[DEPTH_MAX];
    size_t count;
};

static uint32_t callsite_at(struct reader *reader, const struct open_spans *open, int64_t time_ns)
{
    uint32_t symbols[DEPTH_MAX];
    size_t depth = 0;
    for (size_t i = open->count; i-- > 0;) {
        if (open->items[i]->end_ns >= time_ns) {
            symbols[depth++] = open->items[i]->symbol;
        }
    }
    return import_requests_callsite(reader->requests, symbols, depth);
}

static void close_spans(struct open_spans *open, int64_t time_ns)
{
    while (open->count > 0 && open->items[open->count - 1]->end_ns < time_ns) {
        open->count--;
    }
}

/* Both by thread and time. */
static void find_callsites(struct reader *reader)
{
    struct open_spans open = {.count = 0};
    if (reader->event_count == 0 || reader->span_count == 0) {
        return; /* qsort takes no NULL */
    }
    qsort(reader->spans, reader->span_count, sizeof(*reader->spans), compare_spans);
    qsort(reader->events, reader->event_count, sizeof(*reader->events), compare_events);
    size_t next = 0;
    for (size_t i = 0; i < reader->event_count; i++) {
        struct memory_event *event = &reader->events[i];
        if (open.count > 0 && open.items[0]->thread != event->thread) {
            open.count = 0;
        }
        while (next < reader->span_count && reader->spans[next].thread < event->thread) {
            next++;
        }
        while (next < reader->span_count && reader->spans[next].thread == event->thread &&
               reader->spans[next].begin_ns <= event->time_ns) {
            close_spans(&open, reader->spans[next].begin_ns);
            if (open.count < DEPTH_MAX) {
                open.items[open.count++] = &reader->spans[next];
            }
            next++;
        }
        close_spans(&open, event->time_ns);
        event->callsite = callsite_at(reader, &open, event->time_ns);
    }
}

/* ---- what was there before the trace ---- */

/* Of a process, the memory of one device. */
struct start {
    const struct memory_event *first;
    uint64_t unknown; /* bytes that were live before, and whose blocks no event names */
    struct map seen;  /* addresses of events so far */
};

struct starts {
    struct start *items;
    size_t count, capacity;
    struct map numbers;
    uint64_t addr_limit; /* no event is at this address or above it */
};

/* Each event says what was allocated after it: the first one, what was before. */
static struct start *start_of(struct starts *starts, const struct memory_event *event)
{
    uint64_t key = (uint64_t)(uint32_t)event->pid << 16 | (uint64_t)event->target << 8 | event->device;
    uint64_t found = map_find(&starts->numbers, key);
    if (found != MAP_NONE) {
        return &starts->items[found];
    }
    map_put(&starts->numbers, key, starts->count);
    struct start *start = MEMORY_ADD(starts->items, starts->count, starts->capacity);
    *start = (struct start){.first = event};
    uint64_t after = event->allocated > 0 ? (uint64_t)event->allocated : 0;
    if (event->action == IMPORT_FREE && event->allocated >= 0) {
        start->unknown = after + event->size;
    } else if (event->action == IMPORT_ALLOC && after >= event->size) {
        start->unknown = after - event->size;
    }
    return start;
}

static void give_start(struct reader *reader, const struct start *start, uint64_t addr, uint64_t size)
{
    const struct memory_event *first = start->first;
    struct import_request *request = import_requests_add(reader->requests, 0);
    request->time_ns = reader->events[0].time_ns;
    request->addr = addr;
    request->size = size;
    request->device = first->target == IMPORT_HEAP ? 0 : first->device;
    request->action = IMPORT_ALLOC;
    request->target = first->target;
    request->cause = VARVE_CAUSE_INHERITED;
    request->thread = import_requests_thread(reader->requests, first->pid, first->tid, first->number);
    import_requests_inherited(reader->requests, size);
}

/* What is freed and was never allocated was there before, and so was the rest of what the first event says, as one
 * block. */
static void give_starts(struct reader *reader)
{
    struct starts starts = {0};
    if (reader->event_count == 0) {
        return; /* qsort takes no NULL */
    }
    qsort(reader->events, reader->event_count, sizeof(*reader->events), import_profiler_compare_times);
    for (size_t i = 0; i < reader->event_count; i++) {
        const struct memory_event *event = &reader->events[i];
        if (event->action == IMPORT_FAILURE) {
            continue;
        }
        struct start *start = start_of(&starts, event);
        if (event->action == IMPORT_FREE && map_find(&start->seen, event->addr) == MAP_NONE &&
            event->size <= start->unknown) {
            give_start(reader, start, event->addr, event->size);
            start->unknown -= event->size;
        }
        map_put(&start->seen, event->addr, 1);
        starts.addr_limit =
            event->addr + event->size > starts.addr_limit ? event->addr + event->size : starts.addr_limit;
    }
    for (size_t i = 0; i < starts.count; i++) {
        if (import_is_memory(starts.addr_limit, starts.items[i].unknown) && starts.items[i].unknown > 0) {
            give_start(reader, &starts.items[i], starts.addr_limit, starts.items[i].unknown);
        }
        map_free(&starts.items[i].seen);
    }
    map_free(&starts.numbers);
    free(starts.items);
}

/* ---- the trace ---- */

static void give_requests(struct reader *reader)
{
    give_starts(reader);
    for (size_t i = 0; i < reader->event_count; i++) {
        const struct memory_event *event = &reader->events[i];
        struct import_request *request = import_requests_add(reader->requests, event->number);
        request->time_ns = event->time_ns;
        request->addr = event->addr;
        request->size = event->size;
        request->callsite = event->callsite;
        request->device = event->target == IMPORT_HEAP ? 0 : event->device;
        request->action = event->action;
        request->target = event->target;
        request->thread = import_requests_thread(reader->requests, event->pid, event->tid, event->number);
    }
    uint64_t reserved = 0;
    for (unsigned i = 0; i < DEVICES; i++) {
        reserved += reader->reserved[i];
    }
    import_requests_reserved(reader->requests, reserved);
}

static int import_profiler_read_events(struct reader *reader, struct input_stream *input, struct cutter *cutter,
                                       struct progress *progress, struct varve_message *message)
{
    uint64_t shown = 0;
    int error = VARVE_OK;
    while (error == VARVE_OK && (input->next < input->end || !input->is_at_end)) {
        error = input_stream_fill(input, 1, message);
        cut_window(cutter, input->next, input->end);
        input->next = input->end;
        if (progress != NULL && reader->number - shown >= PROGRESS_EVENTS) {
            shown = reader->number;
            progress_step(progress, "reading", input_stream_done(input), input_stream_total(input));
        }
    }
    return error;
}

/* An end in the middle is said, and no reason to lose what was in front of it. */
static int import_profiler_check_end(struct reader *reader, const struct cutter *cutter, int error, const char *path,
                                     const struct varve_message *reason, struct varve_message *message)
{
    bool is_cut = cutter->depth > 0 || cutter->is_in_string || error == VARVE_ERROR_FORMAT;
    if (error != VARVE_OK && (error != VARVE_ERROR_FORMAT || reader->event_count == 0)) {
        return varve_message_set(message, error, "%s", reason->text);
    }
    if (!cutter->has_events) {
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "%s is JSON, but no trace of PyTorch's profiler: it has no list of "
                                 "\"traceEvents\"",
                                 path);
    }
    if (reader->event_count == 0 && reader->unaddressed > 0) {
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "%.200s is a trace of PyTorch's profiler whose events of memory have no addresses, as "
                                 "old versions wrote it, so that no free finds its allocation: record it with a newer "
                                 "PyTorch, or torch.cuda.memory._dump_snapshot",
                                 path);
    }
    if (reader->event_count == 0) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "%.200s %s no events of memory: %s", path,
                                 reader->number > 0 ? "is a trace of PyTorch's profiler with" : "has",
                                 "record it with profile_memory=True");
    }
    if (is_cut) {
        import_requests_fault(reader->requests, IMPORT_FAULT_CUT, reader->number + 1);
    }
    return VARVE_OK;
}

int profiler_read(struct input_stream *input, struct import_requests *requests, struct progress *progress,
                  struct varve_message *message)
{
    struct reader reader = {.requests = requests};
    struct cutter cutter = {.reader = &reader};
    struct varve_message reason = {""};
    int error = import_profiler_read_events(&reader, input, &cutter, progress, &reason);
    error = import_profiler_check_end(&reader, &cutter, error, input_stream_path(input), &reason, message);
    input_stream_close(input);
    if (error == VARVE_OK) {
        find_callsites(&reader);
        give_requests(&reader);
    }
    free(cutter.kept);
    free(reader.events);
    free(reader.spans);
    return error;
}
