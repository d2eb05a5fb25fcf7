/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events in batches. The members that differ from event to event are packed as spilled records are
 * (format/record_pack.c); whose they are is said once for each run of events of a thread. store.c calls it.
 */
#include "trace/store/event_log.h"

#include "base/error.h"
#include "base/file_error.h"
#include "base/file_whole.h"
#include "base/grown_array.h"
#include "trace/format/ring_format.h"
#include "trace/model/domain.h"
#include "trace/model/model_event.h"
#include "trace/record.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH_EVENTS 4096U
#define BATCH_MAGIC 0x746e7665U
#define PLAIN_WORDS (BATCH_EVENTS / 64U)

/* What follows it, in this order: origins, runs, ladders, a bit for each event that is plain, packed records. */
struct batch_head {
    uint64_t first_seq;
    uint32_t magic;
    uint32_t events;
    uint32_t origins, runs, ladders; /* how many */
    uint32_t packed;                 /* bytes */
    uint32_t rest;                   /* events that are not plain */
    uint32_t zero;
};

struct batch_origin {
    uint32_t thread_id, process_id;
    int32_t pid, tid;
    int64_t lag; /* event.seq - event.ring_seq, before the first run */
};

/* Events of one thread that follow each other, without lost ones between them. */
struct batch_run {
    uint16_t origin, events;
    int32_t lag_change; /* since the run of this origin before */
};

struct batch_ladder {
    uint64_t event; /* of the batch */
    struct ladder change;
};

/* One batch as it is filled, or as it was read. */
struct batch {
    struct batch_head head;
    struct batch_origin origins[BATCH_EVENTS];
    struct batch_run runs[BATCH_EVENTS];
    struct batch_ladder ladders[BATCH_EVENTS];
    uint64_t plain[PLAIN_WORDS];
    struct varve_record records[BATCH_EVENTS];
};

/* The origin of a thread in the batch that is filled. */
struct thread_origin {
    uint64_t batch; /* number of the batch, from 1 */
    int64_t lag;    /* as of the thread's last event */
    uint16_t origin;
};

/* The next event of a batch that is read. */
struct batch_place {
    unsigned event, run, in_run, ladder;
};

/* Finished batches. */
struct batches {
    uint8_t *data;
    size_t bytes, capacity;
};

struct event_log {
    int fd;
    char *path;
    uint64_t bytes; /* of the file, with what is sealed */
    uint64_t seq;   /* of the last event appended */
    uint64_t batch_number;
    struct batch *filled;
    struct thread_origin *threads;
    size_t thread_capacity;
    struct batches pending; /* those that are full, not in the file yet */
    struct batches sealed;  /* those that go into it next: event_log_write's */
    uint64_t waiting;
    struct batch *read; /* what event_log_rest is at */
    struct batch_place place;
    uint64_t read_offset; /* of the batch after it */
    uint8_t *buffer;
    size_t buffer_capacity;
};

/* ---- open and close ---- */

static int event_log_open(const char *path, int flags, struct event_log **log_out, struct varve_message *message)
{
    struct event_log *log = calloc(1, sizeof(*log));
    if (log == NULL || (log->path = strdup(path)) == NULL || (log->filled = calloc(1, sizeof(*log->filled))) == NULL ||
        (log->read = calloc(1, sizeof(*log->read))) == NULL) {
        event_log_close(log);
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for events");
    }
    log->fd = open(path, flags | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
    log->batch_number = 1;
    if (log->fd < 0) {
        int error = file_error(errno);
        varve_message_set(message, error, "%s: %s", path, strerror(errno));
        event_log_close(log);
        return error;
    }
    *log_out = log;
    return VARVE_OK;
}

int event_log_create(const char *path, struct event_log **log_out, struct varve_message *message)
{
    return event_log_open(path, O_CREAT | O_TRUNC, log_out, message);
}

int event_log_resume(const char *path, uint64_t bytes, struct event_log **log_out, struct varve_message *message)
{
    int error = event_log_open(path, O_CREAT, log_out, message);
    if (error != VARVE_OK) {
        return error;
    }
    off_t size = lseek((*log_out)->fd, 0, SEEK_END);
    (*log_out)->bytes = size < 0 || (uint64_t)size >= bytes ? bytes : (uint64_t)size;
    return VARVE_OK;
}

void event_log_remove(struct event_log *log)
{
    unlink(log->path);
}

void event_log_close(struct event_log *log)
{
    if (log == NULL) {
        return;
    }
    if (log->fd > 0) { /* 0: never opened */
        close(log->fd);
    }
    free(log->path);
    free(log->filled);
    free(log->threads);
    free(log->pending.data);
    free(log->sealed.data);
    free(log->read);
    free(log->buffer);
    free(log);
}

/* ---- writing ---- */

static bool batch_put(struct batches *to, const void *data, size_t bytes)
{
    if (!ARRAY_GROW(to->data, to->capacity, to->bytes + bytes)) {
        return false;
    }
    memcpy(to->data + to->bytes, data, bytes);
    to->bytes += bytes;
    return true;
}

/* What was appended becomes a batch of bytes, and the next one begins. */
static int batch_end(struct event_log *log)
{
    struct batch *batch = log->filled;
    struct batch_head *head = &batch->head;
    struct batches *to = &log->pending;
    const size_t before = to->bytes;
    const size_t room = (size_t)head->events * RECORD_PACKED_MAX + 8;
    head->magic = BATCH_MAGIC;
    bool done = batch_put(to, head, sizeof(*head)) &&
                batch_put(to, batch->origins, head->origins * sizeof(batch->origins[0])) &&
                batch_put(to, batch->runs, head->runs * sizeof(batch->runs[0])) &&
                batch_put(to, batch->ladders, head->ladders * sizeof(batch->ladders[0])) &&
                batch_put(to, batch->plain, sizeof(batch->plain)) &&
                ARRAY_GROW(to->data, to->capacity, to->bytes + room);
    if (!done) {
        to->bytes = before;
        return VARVE_ERROR_NO_MEMORY;
    }
    head->packed = (uint32_t)record_pack(batch->records, head->events, to->data + to->bytes);
    memcpy(to->data + before, head, sizeof(*head));
    to->bytes += head->packed;
    *head = (struct batch_head){0};
    memset(batch->plain, 0, sizeof(batch->plain));
    log->batch_number++;
    return VARVE_OK;
}

/* The run that an event belongs to, a new one if need be; the caller has room for a thread. */
static void run_extend(struct event_log *log, const struct event *event)
{
    struct batch *batch = log->filled;
    struct batch_head *head = &batch->head;
    struct thread_origin *thread = &log->threads[event->thread_id];
    const int64_t lag = (int64_t)(event->seq - event->ring_seq);
    const struct batch_origin *origin = &batch->origins[thread->origin];
    int64_t change = 0;
    bool is_known = thread->batch == log->batch_number && origin->process_id == event->process_id &&
                    origin->pid == event->pid && origin->tid == event->tid &&
                    !__builtin_sub_overflow(lag, thread->lag, &change) && change == (int32_t)change;
    if (!is_known) {
        *thread = (struct thread_origin){log->batch_number, lag, (uint16_t)head->origins++};
        batch->origins[thread->origin] =
            (struct batch_origin){event->thread_id, event->process_id, event->pid, event->tid, lag};
        change = 0;
    }
    struct batch_run *run = &batch->runs[head->runs - (head->runs > 0)];
    if (head->runs == 0 || run->origin != thread->origin || change != 0) {
        run = &batch->runs[head->runs++];
        *run = (struct batch_run){.origin = thread->origin, .lag_change = (int32_t)change};
    }
    run->events++;
    thread->lag = lag;
}

static void logged_record(const struct event *event, bool is_plain, struct varve_record *record)
{
    *record = (struct varve_record){
        .ticks = (uint64_t)event->ts_ns,
        .addr = event->addr,
        .size = is_plain && kind_gives_back(event->kind) ? 0 : event->size,
        .requested = is_plain ? 0 : event->requested,
        .arg = event->arg,
        .id_stream = (uint64_t)event->stream << 48 | (is_plain ? 0 : event->id & UINT64_C(0xffffffffffff)),
        .dev_seq_kind_flags = varve_record_tag(event->dev_seq, event->kind, event->flags),
        .callsite = event->callsite,
        .pool = event->pool,
        .device = event->device,
        .cause = event->cause,
    };
}

int event_log_append(struct event_log *log, const struct event *event, bool is_plain)
{
    static const struct ladder unchanged;
    struct batch *batch = log->filled;
    struct batch_head *head = &batch->head;
    const bool is_full = head->events == BATCH_EVENTS || (head->events > 0 && event->seq != log->seq + 1);
    assert(event->seq > log->seq);
    if ((event->thread_id >= log->thread_capacity &&
         !ARRAY_COVER(log->threads, log->thread_capacity, event->thread_id)) ||
        (is_full && batch_end(log) != VARVE_OK)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    head->first_seq = head->events == 0 ? event->seq : head->first_seq;
    run_extend(log, event);
    logged_record(event, is_plain, &batch->records[head->events]);
    if (is_plain) {
        batch->plain[head->events / 64] |= UINT64_C(1) << head->events % 64;
    } else {
        head->rest++;
        log->waiting++;
        if (memcmp(&event->ladder_change, &unchanged, sizeof(unchanged)) != 0) {
            batch->ladders[head->ladders++] = (struct batch_ladder){head->events, event->ladder_change};
        }
    }
    head->events++;
    log->seq = event->seq;
    return VARVE_OK;
}

int event_log_seal(struct event_log *log)
{
    struct batches *pending = &log->pending, *sealed = &log->sealed;
    if (log->filled->head.events > 0 && batch_end(log) != VARVE_OK) {
        return VARVE_ERROR_NO_MEMORY;
    }
    const size_t bytes = pending->bytes;
    if (sealed->bytes == 0) {
        const struct batches written = *sealed;
        *sealed = *pending;
        *pending = written;
    } else if (!batch_put(sealed, pending->data, bytes)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    pending->bytes = 0;
    log->bytes += bytes;
    return VARVE_OK;
}

int event_log_write(struct event_log *log, struct varve_message *message)
{
    struct batches *sealed = &log->sealed;
    if (!file_write_whole(log->fd, sealed->data, sealed->bytes, log->bytes - sealed->bytes)) {
        return varve_message_set(message, file_error(errno), "%s: cannot write: %s", log->path, strerror(errno));
    }
    sealed->bytes = 0;
    return VARVE_OK;
}

int event_log_flush(struct event_log *log, struct varve_message *message)
{
    VARVE_TRY(event_log_write(log, message));
    int error = event_log_seal(log);
    return error == VARVE_OK ? event_log_write(log, message)
                             : varve_message_set(message, error, "no memory for events");
}

uint64_t event_log_bytes(const struct event_log *log)
{
    return log->bytes;
}

uint64_t event_log_waiting(const struct event_log *log)
{
    return log->waiting;
}

/* ---- reading ---- */

static size_t parts_bytes(const struct batch_head *head)
{
    return head->origins * sizeof(struct batch_origin) + head->runs * sizeof(struct batch_run) +
           head->ladders * sizeof(struct batch_ladder) + sizeof(uint64_t) * PLAIN_WORDS;
}

static bool head_is_sound(const struct batch_head *head)
{
    return head->magic == BATCH_MAGIC && head->events > 0 && head->events <= BATCH_EVENTS &&
           head->origins <= head->events && head->runs <= head->events && head->ladders <= head->events &&
           head->rest <= head->events && head->packed <= head->events * RECORD_PACKED_MAX;
}

/* Runs cover the events, and name origins that are there; as many are not plain as the head says. */
static bool batch_is_sound(const struct batch *batch)
{
    uint64_t events = 0;
    uint32_t plain = 0;
    bool is_sound = true;
    for (uint32_t i = 0; i < batch->head.runs; i++) {
        events += batch->runs[i].events;
        is_sound = is_sound && batch->runs[i].origin < batch->head.origins && batch->runs[i].events > 0;
    }
    for (unsigned i = 0; i < PLAIN_WORDS; i++) {
        plain += (uint32_t)__builtin_popcountll(batch->plain[i]);
    }
    return is_sound && events == batch->head.events && plain + batch->head.rest == batch->head.events;
}

static const uint8_t *part_take(void *to, const uint8_t *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return from + bytes;
}

static int log_is_damaged(const struct event_log *log, uint64_t offset, struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_CORRUPT, "%s: damaged at byte %llu", log->path,
                             (unsigned long long)offset);
}

/* The batch at `offset`; of one that need not be read only its head. */
static int batch_read(struct event_log *log, uint64_t offset, bool only_rest, struct batch *batch,
                      struct varve_message *message)
{
    struct batch_head *head = &batch->head;
    if (log->bytes - offset < sizeof(*head) || !file_read_whole(log->fd, head, sizeof(*head), offset) ||
        !head_is_sound(head)) {
        return log_is_damaged(log, offset, message);
    }
    const size_t bytes = parts_bytes(head) + head->packed;
    if (log->bytes - offset - sizeof(*head) < bytes) {
        return log_is_damaged(log, offset, message);
    }
    if (only_rest && head->rest == 0) {
        return VARVE_OK;
    }
    if (!ARRAY_GROW(log->buffer, log->buffer_capacity, bytes)) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for events");
    }
    if (!file_read_whole(log->fd, log->buffer, bytes, offset + sizeof(*head))) {
        return log_is_damaged(log, offset, message);
    }
    const uint8_t *at = part_take(batch->origins, log->buffer, head->origins * sizeof(batch->origins[0]));
    at = part_take(batch->runs, at, head->runs * sizeof(batch->runs[0]));
    at = part_take(batch->ladders, at, head->ladders * sizeof(batch->ladders[0]));
    at = part_take(batch->plain, at, sizeof(batch->plain));
    return batch_is_sound(batch) && record_unpack(at, head->packed, batch->records, head->events)
               ? VARVE_OK
               : log_is_damaged(log, offset, message);
}

static uint64_t batch_bytes(const struct batch_head *head)
{
    return sizeof(*head) + parts_bytes(head) + head->packed;
}

static bool place_is_plain(const struct batch *batch, const struct batch_place *place)
{
    return batch->plain[place->event / 64] >> place->event % 64 & 1;
}

/* The event at a place. Its run has been entered when its first event is asked for. */
static void logged_event(struct batch *batch, struct batch_place *place, struct event *event)
{
    const struct varve_record *record = &batch->records[place->event];
    const struct batch_run *run = &batch->runs[place->run];
    struct batch_origin *origin = &batch->origins[run->origin];
    *event = (struct event){
        .seq = batch->head.first_seq + place->event,
        .ts_ns = (int64_t)record->ticks,
        .process_id = origin->process_id,
        .thread_id = origin->thread_id,
        .pid = origin->pid,
        .tid = origin->tid,
        .kind = (uint8_t)varve_record_kind(record),
        .cause = record->cause,
        .device = record->device,
        .flags = (uint8_t)varve_record_flags(record),
        .is_stored = true,
        .pool = record->pool,
        .stream = (uint16_t)varve_record_stream(record),
        .callsite = record->callsite,
        .dev_seq = varve_record_dev_seq(record),
        .id = varve_record_id(record),
        .addr = record->addr,
        .size = record->size,
        .requested = record->requested,
        .arg = record->arg,
    };
    event->ring_seq = event->seq - (uint64_t)(origin->lag);
    if (place->ladder < batch->head.ladders && batch->ladders[place->ladder].event == place->event) {
        event->ladder_change = batch->ladders[place->ladder].change;
    }
}

/* The lag of an origin is that of its current run. */
static void run_enter(struct batch *batch, const struct batch_place *place)
{
    if (place->in_run == 0 && place->event < batch->head.events) {
        const struct batch_run *run = &batch->runs[place->run];
        struct batch_origin *origin = &batch->origins[run->origin];
        origin->lag = (int64_t)((uint64_t)origin->lag + (uint64_t)run->lag_change);
    }
}

static void place_advance(struct batch *batch, struct batch_place *place)
{
    place->ladder += place->ladder < batch->head.ladders && batch->ladders[place->ladder].event == place->event;
    place->event++;
    if (++place->in_run == batch->runs[place->run].events) {
        place->run++;
        place->in_run = 0;
    }
    run_enter(batch, place);
}

int event_log_each(struct event_log *log, int (*take)(void *context, struct event *event, bool is_plain), void *context,
                   struct varve_message *message)
{
    struct batch *batch = log->read;
    int error = VARVE_OK;
    log->waiting = 0;
    for (uint64_t offset = 0; error == VARVE_OK && offset < log->bytes; offset += batch_bytes(&batch->head)) {
        struct batch_place place = {0};
        error = batch_read(log, offset, false, batch, message);
        if (error != VARVE_OK) {
            log->bytes = error == VARVE_ERROR_CORRUPT ? offset : log->bytes;
            break;
        }
        log->waiting += batch->head.rest;
        log->seq = batch->head.first_seq + batch->head.events - 1;
        for (run_enter(batch, &place); error == VARVE_OK && place.event < batch->head.events;
             place_advance(batch, &place)) {
            struct event event;
            logged_event(batch, &place, &event);
            error = take(context, &event, place_is_plain(batch, &place));
        }
    }
    batch->head = (struct batch_head){0};
    return error;
}

/* The next batch that has events which are not plain; `*is_over`: there is none in the file. */
static int rest_next(struct event_log *log, bool *is_over, struct varve_message *message)
{
    struct batch *batch = log->read;
    do {
        *is_over = log->read_offset == log->bytes;
        if (*is_over) {
            batch->head = (struct batch_head){0};
            return VARVE_OK;
        }
        VARVE_TRY(batch_read(log, log->read_offset, true, batch, message));
        log->read_offset += batch_bytes(&batch->head);
    } while (batch->head.rest == 0);
    log->place = (struct batch_place){0};
    run_enter(batch, &log->place);
    return VARVE_OK;
}

int event_log_rest(struct event_log *log, bool (*take)(void *context, struct event *event), void *context,
                   struct varve_message *message)
{
    struct batch *batch = log->read;
    for (;;) {
        for (; log->place.event < batch->head.events; place_advance(batch, &log->place)) {
            struct event event;
            if (place_is_plain(batch, &log->place)) {
                continue;
            }
            logged_event(batch, &log->place, &event);
            if (!take(context, &event)) {
                return VARVE_OK;
            }
            log->waiting--;
        }
        bool is_over = false;
        VARVE_TRY(rest_next(log, &is_over, message));
        if (is_over) {
            log->place = (struct batch_place){0};
            return VARVE_OK;
        }
    }
}
