/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to derive*.c and sqlite_derive*.c */
/*
 * The state behind the events of the group `device`: what the CUDA API handed out, what its calls cost, and
 * what its numbers mean. Part of model/derive.h, apart because most recordings need none of it.
 *
 *   address ──► block row ──► scratch row        (DEV_ALLOC and its kin)
 *   handle ───► block row ──► scratch row        (physical memory; imported: no scratch row)
 *   mapping ──► the same block row
 *
 * Each process has two of these indexes: what the CUDA recorder told (domains device, pinned, managed), and
 * what CUPTI told beside it (domain cupti), so that the two can be compared.
 *
 * Invariants (derive_api_check), for every process that has not ended and each slot:
 *   block rows in the indexes that have a scratch row = rows of the slot with free_seq 0 = its total
 *   of physical memory: maps = its mappings; refs + maps > 0; it has a name, or refs = 0
 */
#ifndef VARVE_TRACE_MODEL_DEVICE_DEVICE_H
#define VARVE_TRACE_MODEL_DEVICE_DEVICE_H

#include "trace/model/derive.h"

/* ---- model/names.c: what the numbers of devices, streams and pools mean ---- */

struct derive_name {
    uint64_t uuid[2]; /* as its bytes lie in memory */
    uint64_t total_bytes;
    char name[33];
    bool is_used;
};

/* A row of `stream` or, with ids, of `pool`. */
struct derive_meaning {
    uint32_t process_id;
    uint16_t number;
    uint8_t device; /* of a stream: as its process calls it */
    bool is_pool, is_small;
    uint64_t ids[2]; /* of a stream: its handle */
};

struct derive_ordinal {
    uint32_t process_id;
    uint8_t ordinal, device;
};

struct derive_names {
    struct derive_name devices[DEVICE_LIMIT];
    struct derive_ordinal *ordinals; /* rows of `process_device` */
    size_t ordinal_count, ordinal_capacity;
    struct derive_meaning *meanings;
    size_t meaning_count, meaning_capacity;
};

/* ---- model/calls.c: what calls of the CUDA API cost ---- */

enum call_class {
    CALL_NONE = 0, /* no call, or one without a duration */
    CALL_ALLOC = 1,
    CALL_FREE = 2,
    CALL_WAIT = 3,
    CALL_OTHER = 4,
};

/* A row of `device_call_stat`. */
struct derive_call {
    uint32_t process_id;
    uint16_t stream;
    uint8_t device, cause, class;
    uint64_t calls, failed, ns, max_ns, bytes;
};

/* A row of `device_memory`. */
struct derive_memory {
    uint64_t seq, total_bytes, free_bytes, live_bytes;
    int64_t ts_ns;
    uint32_t process_id;
    uint8_t device;
};

#define CALL_EVENTS_BUFFERED 4096U

struct derive_calls {
    struct live_index index; /* process, device, stream and cause → 1 + place in `calls` */
    struct derive_call *calls;
    size_t call_count, call_capacity;
    struct derive_memory *memories;
    size_t memory_count, memory_capacity;
    int fd;               /* rows of `device_event`, kind in bits 0-7, seq above; -1: none yet */
    uint64_t event_count; /* in the file */
    uint32_t buffered;
    uint64_t *buffer; /* CALL_EVENTS_BUFFERED that come after those in the file */
};

/* ---- model/streams.c: memory by stream ---- */

/* A row of `stream_stat`. */
struct derive_stream {
    uint32_t process_id;
    uint16_t stream;
    uint8_t domain, device;
    uint64_t allocations, frees, bytes, live_bytes, peak_bytes;
};

struct derive_streams {
    struct live_index index; /* process, domain, device and stream → 1 + place in `streams` */
    struct derive_stream *streams;
    size_t count, capacity;
};

enum stream_change {
    STREAM_OPENS,
    STREAM_CLOSES,
    STREAM_REOPENS,
};

int streams_reserve(struct derive *derive); /* for one row that opens; VARVE_ERROR_NO_MEMORY */
/// What happened to the row of this block row, which has one.
void streams_take(struct derive *derive, const struct scratch_block *block, enum stream_change change);
void streams_close(struct derive_streams *streams); /* NULL is allowed */

/* ---- model/names.c and model/calls.c, again ---- */

/// The number that the device of `event` has in the trace.
uint8_t names_device(const struct derive *derive, const struct event *event);
/// Space for what names_take may need; VARVE_ERROR_NO_MEMORY.
int names_reserve(struct derive *derive, const struct event *event);
/// The event's device becomes the one of the trace; what the event tells of numbers is remembered.
void names_take(struct derive *derive, struct event *event);
/// The device of a stream or pool, as the trace calls it by now.
unsigned names_device_of(const struct derive *derive, const struct derive_meaning *meaning);
void names_close(struct derive_names *names); /* NULL is allowed */

/// Does this function give memory back, or end a context? Of such a call, a dev_sync of the same cause may
/// tell the time.
bool call_frees(unsigned cause);
bool call_resets(unsigned cause);
/// The class of the calls that such an event is about.
enum call_class call_class_of(unsigned kind, unsigned cause);
/// Space for what calls_take may need. VARVE_ERROR_NO_MEMORY, FULL, IO.
int calls_reserve(struct derive *derive, const struct event *event, struct varve_message *message);
/// An event of the group `device`, completed.
void calls_take(struct derive *derive, const struct event *event);
int calls_each_event(const struct derive *derive, int (*take)(void *context, uint64_t seq, unsigned kind),
                     void *context, struct varve_message *message);
struct derive_calls *calls_open(void);        /* NULL: no memory */
void calls_close(struct derive_calls *calls); /* NULL is allowed */

/* ---- device.c: what the CUDA API handed out ---- */

/* What an index holds are numbers of block rows. */
struct api_index {
    struct live_index live;
    struct live_index handles; /* the names of physical memory */
    struct ranges mappings;
};

struct derive_api {
    struct api_index sides[2]; /* [1]: told by a witness */
    uint16_t *slots;           /* that the process has used */
    size_t slot_count, slot_capacity;
    uint64_t touched[SLOT_LIMIT / 64 + 1]; /* bits of slots: changed by the event under way */
};

/* A mapping that a call ended. */
struct api_undone {
    struct range range; /* id: its block row */
    bool was_named;     /* it had a handle until then */
};

/* The last free of a thread, which its next event may take back; kind 0: there is nothing to take back. */
struct api_undo {
    uint64_t seq;
    uint64_t addr;
    uint64_t block; /* of an address or a handle; 0: it was unknown */
    uint16_t stream;
    uint8_t kind, cause, device;
    bool was_named;
    struct api_undone *mappings; /* of an unmapping */
    size_t count, capacity;
};

struct derive_api_thread {
    uint64_t last_id[2]; /* opened by its last event that opens or closes; by side */
    struct api_undo undo[2];
};

/* One event on its way. */
struct api_step {
    struct derive_step *step;
    struct derive_api *api;
    struct api_index *index;
    struct api_undo *undo;
};

int derive_api(struct derive_step *step, struct varve_message *message);
bool derive_api_is_premature(const struct derive *derive, const struct derive_process *process,
                             const struct event *event);
void derive_api_end(struct derive_process *process); /* it has ended: its indexes go */
void derive_api_free(struct derive_process *process);
void derive_api_thread_free(struct derive_thread *thread);
int derive_api_check(const struct derive *derive, uint32_t process_id, struct varve_message *message);

/* ---- rows.c ---- */

/// This slot becomes the step's, without or with being settled at the end of the event.
void api_slot_enter_untouched(const struct api_step *step, unsigned slot);
void api_slot_enter(const struct api_step *step, unsigned slot);
/// The slot of the event's device in this domain is used from now on, and becomes the step's. Errors:
/// NO_MEMORY.
int api_slot_use(const struct api_step *step, unsigned domain, struct varve_message *message);
/// The event is over.
void api_settle(const struct api_step *step);
/// The slot of the row that belongs to a block row.
unsigned api_slot_of(const struct derive *derive, const struct scratch_block *block);
/// The domain that an event's memory belongs to; 0: nothing is counted of it.
unsigned api_domain_of(const struct event *event);
/// An allocation, and not another process' memory.
bool api_makes_row(const struct event *event);
/// Does a reset of this context (0: of all of them) end it?
bool api_is_of(const struct scratch_block *block, unsigned device, unsigned context);
/// A new block row, with a scratch row in `domain` unless that is 0. Returns its number.
uint64_t api_open(const struct api_step *step, unsigned domain, uint64_t addr);
/// The scratch row of a block row ends at this event, if there is one and it is open.
void api_close(const struct api_step *step, uint64_t number, bool is_free);
/// Undo that. False: it was not event `seq` that ended it, and nothing has changed.
bool api_reopen(const struct api_step *step, uint64_t number, uint64_t seq);
/// The event becomes one about this block row; of a failure, only if that has a row: it is counted where the
/// event says that it is, and must say the same when it comes back from a database.
void api_tell(const struct api_step *step, uint64_t number);
void api_tell_row(const struct api_step *step, uint64_t number);

/* ---- vmm.c: physical memory and its mappings ---- */

int vmm_reserve(const struct api_step *step);
void vmm_create(const struct api_step *step);
void vmm_map(const struct api_step *step);
void vmm_unmap(const struct api_step *step);
void vmm_release(const struct api_step *step);
/// The thread's last free has failed: what it ended is there again.
void vmm_take_back(const struct api_step *step);
/// All that is the device's: a reset; `context` 0: of all contexts.
void vmm_reset(const struct api_step *step, unsigned device, unsigned context);
bool vmm_is_premature(const struct derive *derive, const struct api_index *index, const struct event *event);

#endif
