/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What derive gathered about caching allocators becomes rows of segment, oom and keyframe. derive_finish
 * calls it in its last transaction.
 */
#include "trace/store/derived.h"

static int write_segments(const struct derive *derive, struct store *store, struct varve_message *message)
{
    int code = VARVE_OK;
    for (size_t i = 0; i < derive->segment_count && code == VARVE_OK; i++) {
        const struct derive_segment *segment = &derive->segments[i];
        bool is_freed = segment->free_seq != 0;
        const struct store_value values[] = {
            VALUE_INTEGER(i + 1),
            VALUE_INTEGER(segment->device),
            VALUE_INTEGER(segment->pool),
            VALUE_INTEGER(segment->stream),
            VALUE_INTEGER(segment->addr),
            VALUE_INTEGER(segment->size),
            VALUE_INTEGER(segment->alloc_seq),
            is_freed ? VALUE_INTEGER(segment->free_seq) : VALUE_NULL,
            VALUE_INTEGER(segment->alloc_ns),
            is_freed ? VALUE_INTEGER(segment->free_ns) : VALUE_NULL,
            is_freed ? VALUE_INTEGER(segment->cause) : VALUE_NULL,
            VALUE_INTEGER(segment->process_id),
            value_not_negative(segment->number != 0 ? (int64_t)segment->number : -1),
            VALUE_INTEGER(segment->is_expandable),
        };
        code = derive_write_row(store, STATEMENT_SEGMENT, values, sizeof values / sizeof values[0], message);
    }
    return code;
}

static int write_ooms(const struct derive *derive, struct store *store, struct varve_message *message)
{
    int code = VARVE_OK;
    for (size_t i = 0; i < derive->oom_count && code == VARVE_OK; i++) {
        const struct derive_oom *oom = &derive->ooms[i];
        const struct store_value values[] = {
            VALUE_INTEGER(oom->seq),
            VALUE_INTEGER(oom->ts_ns),
            VALUE_INTEGER(oom->device),
            VALUE_INTEGER(oom->requested),
            VALUE_INTEGER(oom->allocated),
            VALUE_INTEGER(oom->reserved),
            oom->largest_free != 0 ? VALUE_INTEGER(oom->largest_free) : VALUE_NULL,
            oom->stage != 0 ? VALUE_INTEGER(oom->stage) : VALUE_NULL,
            VALUE_INTEGER(oom->process_id),
        };
        code = derive_write_row(store, STATEMENT_OOM, values, sizeof values / sizeof values[0], message);
    }
    return code;
}

struct keyframe_writer {
    struct store *store;
    struct varve_message *message;
};

static int write_keyframe(void *context, const struct derive_keyframe *keyframe, const void *bytes)
{
    const struct keyframe_writer *writer = context;
    const struct store_value values[] = {
        VALUE_INTEGER(keyframe->seq),
        VALUE_INTEGER(keyframe->process_id),
        VALUE_INTEGER(keyframe->device),
        {.blob = bytes, .integer = (int64_t)keyframe->bytes, .is_null = bytes == NULL},
    };
    return derive_write_row(writer->store, STATEMENT_KEYFRAME, values, sizeof values / sizeof values[0],
                            writer->message);
}

int derive_write_blocks(const struct derive *derive, struct store *store, struct varve_message *message)
{
    struct keyframe_writer writer = {.store = store, .message = message};
    int code = write_segments(derive, store, message);
    if (code == VARVE_OK) {
        code = write_ooms(derive, store, message);
    }
    return code == VARVE_OK ? keyframes_each(derive, write_keyframe, &writer, message) : code;
}
