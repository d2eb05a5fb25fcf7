/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The history of a process's caching allocators in memory, in a form that import, replay and export share:
 * events, the segments at the end, call stacks, settings. Owns everything in it; made by the readers (history_read.h).
 * One thread uses it.
 */
#ifndef VARVE_ANALYSIS_HISTORY_HISTORY_H
#define VARVE_ANALYSIS_HISTORY_HISTORY_H

#include "trace/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* PyTorch's actions. */
enum history_action {
    HISTORY_ALLOC,
    HISTORY_FREE_REQUESTED,
    HISTORY_FREE_COMPLETED,
    HISTORY_SEGMENT_ALLOC,
    HISTORY_SEGMENT_FREE,
    HISTORY_SEGMENT_MAP,
    HISTORY_SEGMENT_UNMAP,
    HISTORY_SNAPSHOT,
    HISTORY_OOM,
    HISTORY_ACTION_LIMIT,
};

/// Name as PyTorch writes it, static. `action` is below HISTORY_ACTION_LIMIT.
const char *history_action_name(unsigned action);
/// The kind of record that says the same; VARVE_KIND_NONE for a snapshot mark.
enum varve_kind history_action_kind(unsigned action);
/// HISTORY_ACTION_LIMIT for a kind that no action says.
unsigned history_action_of_kind(unsigned kind);

/* 32 bytes, since ten million of them are held at a time. */
struct history_event {
    uint64_t addr;   /* of an oom: bytes free on the device */
    uint64_t size;   /* as PyTorch records it: an alloc's requested bytes, an oom's rounded ones */
    int64_t time_us; /* 0 if unknown */
    uint32_t stack;  /* number in history.stacks, 0: none */
    uint16_t stream; /* index into history.streams */
    uint8_t action;  /* enum history_action */
    uint8_t pool;    /* as newer versions name it: number in history.pool_ids + 1; 0: not named */
};

#define HISTORY_POOLS_MAX 255 /* that events name */

enum history_state {
    HISTORY_INACTIVE,
    HISTORY_ACTIVE_ALLOCATED,
    HISTORY_ACTIVE_PENDING_FREE,
};

/* Keys that a snapshot's segment, block or entry has; PyTorch's versions write different ones. */
#define HISTORY_HAS_TIME 1U
#define HISTORY_HAS_FRAMES 2U
#define HISTORY_HAS_STREAM 4U
#define HISTORY_HAS_POOL 8U
#define HISTORY_HAS_REQUESTED 16U
#define HISTORY_HAS_ALLOCATED 32U
#define HISTORY_HAS_ACTIVE 64U
#define HISTORY_HAS_TYPE 128U
#define HISTORY_HAS_EXPANDABLE 256U
#define HISTORY_HAS_ADDRESS 512U
#define HISTORY_HAS_DEVICE 1024U
#define HISTORY_HAS_ALL 2047U

struct history_block {
    uint64_t addr, size, requested;
    uint32_t stack;
    uint32_t rest; /* as of a history_rest */
    uint16_t keys; /* HISTORY_HAS_…, if the history is from a snapshot */
    uint8_t state; /* enum history_state */
};

struct history_segment {
    uint64_t addr, size;
    uint64_t allocated, active, requested;
    uint64_t pool_id[2];
    size_t first_block, block_count; /* in history_device.blocks */
    uint32_t stack;
    uint32_t rest; /* as of a history_rest */
    uint16_t keys; /* HISTORY_HAS_…, if the history is from a snapshot */
    uint16_t stream;
    bool is_small, is_expandable;
    bool pool_is_list; /* in the snapshot; PyTorch writes a tuple */
};

/* Of a snapshot's entries from number `event` on, up to the next of these: the keys that they have and that mean
 * nothing here, with their values, and which of the others they have. */
struct history_rest {
    size_t event;
    uint32_t text; /* number in history.texts: opcodes of a pickle, key and value by turns, without a memo */
    uint16_t keys; /* HISTORY_HAS_… */
};

/* A snapshot's entry that says nothing of memory, and comes before event number `event`. */
struct history_entry {
    size_t event;
    uint32_t text; /* as of a history_rest: all of it */
};

struct history_device {
    struct history_event *events; /* in the order of the allocator's lock */
    size_t event_count, event_capacity;
    struct history_segment *segments; /* at the end of the history; by address */
    size_t segment_count, segment_capacity;
    struct history_block *blocks; /* of segment after segment, by address */
    size_t block_count, block_capacity;
    struct history_entry *skipped; /* entries that say nothing of memory (annotations), not in `events` */
    size_t skipped_count, skipped_capacity;
    struct history_rest *rests; /* in the order of events; none if the history is from no snapshot */
    size_t rest_count, rest_capacity;
    uint16_t inferred;   /* bits of actions: all events of them stand for what was not recorded (history_read.h) */
    bool has_overflowed; /* the ring that recorded it lost its oldest events (only newer versions say) */
};

struct history_frame {
    uint32_t function, file; /* numbers in history.texts */
    uint32_t line;
};

struct history_stack {
    size_t first_frame; /* in history.frames, innermost first */
    uint32_t frame_count;
};

/* allocator_settings of a snapshot. */
struct history_settings {
    bool is_known;
    char text[1024];        /* PYTORCH_CUDA_ALLOC_CONF */
    int64_t max_split_size; /* bytes; -1: unlimited */
    double garbage_collection_threshold;
    bool expandable_segments;
    uint64_t divisions[16];
};

/* What a snapshot has beside all this, for an export: numbers in history.texts, as of a history_rest. */
struct history_rests {
    bool is_known;                              /* the history is from a snapshot: what it lacks is not to be added */
    bool is_list, lacks_segments, lacks_traces; /* the snapshot: segments alone; a dict without one of its lists */
    uint16_t traces;                            /* devices that it has a trace of, be it empty */
    uint32_t root;                              /* beside segments, traces and settings */
    uint32_t settings;                          /* all of them */
};

/* What is not as PyTorch writes it. */
struct history_unknown {
    uint64_t fields;  /* of another type: taken as if they were not there */
    uint64_t entries; /* that are left out: their action is not known, or they lack what it needs */
    char first[200];  /* what is wrong with the first of all */
};

struct history_tables; /* history.c's own: finds what is interned */

struct history {
    struct history_device *devices; /* by index */
    size_t device_count;
    uint64_t *streams; /* handles; number 0 is the default stream, handle 0 */
    size_t stream_count, stream_capacity;
    char **texts; /* number 0 is "" */
    size_t text_count, text_capacity;
    struct history_frame *frames;
    size_t frame_count, frame_capacity;
    struct history_stack *stacks; /* number 0 is the empty stack */
    size_t stack_count, stack_capacity;
    uint64_t pool_ids[HISTORY_POOLS_MAX][2];
    size_t pool_count;
    /* allocs and frees of a program to what is no caching allocator of PyTorch's, or to one of which no more is known:
     * there are no segments, and no decisions that could come out again */
    bool has_requests_only;
    struct history_settings settings;
    struct history_rests rests;
    struct history_unknown unknown;
    struct history_tables *tables;
};

struct history *history_new(void);
void history_free(struct history *history);
/// The number of a stream handle, added if it is new; VARVE_ERROR_UNSUPPORTED above 65535 of them.
int history_stream(struct history *history, uint64_t handle, uint16_t *number_out);
/// The number of a handle, 0 if it is none of the history's.
uint16_t history_find_stream(const struct history *history, uint64_t handle);
/// What `pool` of an event that names this pool is; 0 if there is no number left.
uint8_t history_pool(struct history *history, const uint64_t id[2]);
/// Device `index` (at most 255, else NULL), made with all before it if it is new; the array may move then.
struct history_device *history_device(struct history *history, size_t index);
struct history_event *history_add_event(struct history_device *device);         /* zeroed, at the end */
struct history_segment *history_add_segment(struct history_device *device);     /* zeroed, at the end */
struct history_block *history_add_block(struct history_device *device);         /* zeroed, at the end */
uint32_t history_text(struct history *history, const char *text, size_t bytes); /* interned */
size_t history_text_bytes(const struct history *history, uint32_t number);      /* texts may hold zero bytes */
/// Entries from number `event` on have these keys; adds nothing if those before it have the same.
void history_add_rest(struct history_device *device, size_t event, uint32_t text, uint16_t keys);
void history_add_skipped(struct history_device *device, uint32_t text); /* before the next event */
/// Is a frame of this file one of Python's? Its name is a file's, or in angle brackets what there is in place of one.
bool history_file_is_python(const char *file);
/// Equal stacks get one number.
uint32_t history_add_stack(struct history *history, const struct history_frame *frames, uint32_t count);

#endif
