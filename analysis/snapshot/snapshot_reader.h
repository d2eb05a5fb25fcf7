/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parsers of a snapshot's parts share: the reader's state, the words that have a meaning, and single
 * values: each function takes a key and its value, and gives the value in C or says which key of which event,
 * segment or block has which wrong type at which byte. A file can make an object its own part: whoever reads
 * items of an object holds a reference to it meanwhile, and looks at its count again after each item.
 */
#ifndef VARVE_ANALYSIS_SNAPSHOT_SNAPSHOT_READER_H
#define VARVE_ANALYSIS_SNAPSHOT_SNAPSHOT_READER_H

#include "analysis/history/history.h"
#include "analysis/snapshot/pickle_decoder.h"

/* Texts with a meaning; their numbers in pickle.texts are these. The first nine in the order of
 * history_action. */
#define SNAPSHOT_WORD_LIST(X)                           \
    X(ALLOC, "alloc")                                   \
    X(FREE_REQUESTED, "free_requested")                 \
    X(FREE_COMPLETED, "free_completed")                 \
    X(SEGMENT_ALLOC, "segment_alloc")                   \
    X(SEGMENT_FREE, "segment_free")                     \
    X(SEGMENT_MAP, "segment_map")                       \
    X(SEGMENT_UNMAP, "segment_unmap")                   \
    X(SNAPSHOT, "snapshot")                             \
    X(OOM, "oom")                                       \
    X(ANNOTATE, "annotate")                             \
    X(USER_DEFINED, "user_defined")                     \
    X(WORKSPACE_SNAPSHOT, "workspace_snapshot")         \
    X(ACTION, "action")                                 \
    X(ADDR, "addr")                                     \
    X(DEVICE_FREE, "device_free")                       \
    X(SIZE, "size")                                     \
    X(STREAM, "stream")                                 \
    X(TIME_US, "time_us")                               \
    X(FRAMES, "frames")                                 \
    X(FILENAME, "filename")                             \
    X(LINE, "line")                                     \
    X(NAME, "name")                                     \
    X(SEGMENTS, "segments")                             \
    X(DEVICE_TRACES, "device_traces")                   \
    X(ALLOCATOR_SETTINGS, "allocator_settings")         \
    X(TRACE_ALLOC_OVERFLOWED, "trace_alloc_overflowed") \
    X(DEVICE, "device")                                 \
    X(ADDRESS, "address")                               \
    X(TOTAL_SIZE, "total_size")                         \
    X(ALLOCATED_SIZE, "allocated_size")                 \
    X(ACTIVE_SIZE, "active_size")                       \
    X(REQUESTED_SIZE, "requested_size")                 \
    X(SEGMENT_TYPE, "segment_type")                     \
    X(SEGMENT_POOL_ID, "segment_pool_id")               \
    X(POOL_ID, "pool_id")                               \
    X(IS_EXPANDABLE, "is_expandable")                   \
    X(BLOCKS, "blocks")                                 \
    X(STATE, "state")                                   \
    X(HISTORY, "history")                               \
    X(REAL_SIZE, "real_size")                           \
    X(SMALL, "small")                                   \
    X(LARGE, "large")                                   \
    X(INACTIVE, "inactive")                             \
    X(ACTIVE_ALLOCATED, "active_allocated")             \
    X(ACTIVE_PENDING_FREE, "active_pending_free")       \
    X(ACTIVE_AWAITING_FREE, "active_awaiting_free")     \
    X(CONF, "PYTORCH_CUDA_ALLOC_CONF")                  \
    X(MAX_SPLIT_SIZE, "max_split_size")                 \
    X(GC_THRESHOLD, "garbage_collection_threshold")     \
    X(EXPANDABLE_SEGMENTS, "expandable_segments")       \
    X(ROUNDUP_POWER2_DIVISIONS, "roundup_power2_divisions")

enum snapshot_word {
#define SNAPSHOT_WORD_ENUM(name, text) WORD_##name,
    SNAPSHOT_WORD_LIST(SNAPSHOT_WORD_ENUM)
#undef SNAPSHOT_WORD_ENUM
        WORD_LIMIT,
};

enum snapshot_tag {
    TAG_FRAME = 1, /* number in snapshot_reader.frames */
    TAG_STACK,     /* number in history.stacks */
    TAG_REST,      /* number in history.texts: what makes the value again (snapshot_reader.h) */
};

/* Of lists, and of the dict at the bottom of the stack. */
enum snapshot_role {
    ROLE_UNKNOWN = PICKLE_ROLE_PLAIN + 1, /* below a key that means nothing here: holds what may be referred to */
    ROLE_ROOT,
    ROLE_SEGMENTS,
    ROLE_TRACES, /* its number: traces that have arrived */
    ROLE_TRACE,  /* its number: the device */
};

/* Where in the snapshot the reading is, for messages. */
struct snapshot_position {
    const char *what; /* "event", … */
    size_t index;
    const char *outer; /* "device", …; NULL: none */
    size_t outer_index;
};

/* Opcodes, as they gather (snapshot_reader.h). */
struct snapshot_rest {
    char *bytes;
    size_t count, capacity;
};

struct snapshot_reader {
    struct pickle pickle;
    struct history *history;
    struct snapshot_position position;
    size_t segment_count;
    size_t trace_device;               /* of a trace that was kept whole */
    bool has_segments, has_traces;     /* the root has that key */
    bool takes_segments, takes_traces; /* items came before the key did */
    bool has_overflowed;               /* all devices */
    size_t snapshots;                  /* whole ones in place of parts of one */
    struct pickle_value first, last;   /* their keys; integers in a list */

    struct history_frame *frames; /* different ones */
    size_t frame_count, frame_capacity;
    struct map frame_numbers;        /* by hash */
    struct snapshot_rest rest, root; /* of the value at hand; of the keys of the snapshot itself */
    size_t unknown_bytes;            /* kept below keys that mean nothing here */
    bool has_forgotten;              /* of those, some was too much */
    struct history_frame *stack;     /* the one at work */
    size_t stack_capacity;
};

/// "PATH: at byte N: reason in event 3 of device 0".
int field_fail(struct snapshot_reader *reader, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/// KEY is …, not `wanted`.
int field_fail_type(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                    const char *wanted);
int field_fail_missing(struct snapshot_reader *reader, uint64_t offset, const char *key);
/// Where `error` is one of format, the field is unknown, which is counted, and `key` and `value` are kept for an
/// export: no odd field is a reason to refuse a snapshot. Other errors come back.
int field_soften(struct snapshot_reader *reader, int error, struct pickle_value key, struct pickle_value value);
/// The same of a field that is kept already.
int field_soften_kept(struct snapshot_reader *reader, int error);
/// The same of an entry, which is left out.
int field_soften_entry(struct snapshot_reader *reader, int error);
/// The word that a value is, WORD_LIMIT if it is none.
static inline enum snapshot_word field_word(struct pickle_value value)
{
    return value.type == PICKLE_TEXT && value.bits < WORD_LIMIT ? (enum snapshot_word)value.bits : WORD_LIMIT;
}
/* An address or handle: any 64 bits, negative ones as two's complement. */
int field_address(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value, uint64_t *out);
int field_size(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value, uint64_t *out);
int field_integer(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value, int64_t *out);
int field_bool(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value, bool *out);
/// A pair of numbers, a list or a tuple.
int field_pool(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value, uint64_t out[2]);
int field_stream(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value, uint16_t *out);
/// The dict that the value is: an item of a list of `what`.
int field_dict(struct snapshot_reader *reader, struct pickle_value value, struct pickle_object **object_out);
/// The list or tuple that the value is. Neither was used before.
int field_list(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
               struct pickle_object **object_out);

/*
 * Keys of a snapshot that mean nothing here, kept for an export: as the opcodes of a pickle that make key and value
 * again, which need nothing of the pickle around them. Called by the parsers of a snapshot's parts.
 */

/// Add a key and its value to what `reader->rest` holds so far. What cannot be kept (bytes, texts of more than 64 KiB,
/// deep or very large values) is left out, key and all.
void rest_add(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value);
/// The number of the text of all that was added; nothing is there afterwards.
uint32_t rest_take(struct snapshot_reader *reader);
/// Move what was added behind what `reader->root` has, as far as there is room; nothing is in
/// `reader->rest` afterwards.
void rest_keep(struct snapshot_reader *reader);
/// The same of one value. False: it cannot be kept.
bool rest_value(struct snapshot_reader *reader, struct pickle_value value, uint32_t *text_out);

#endif
