/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory by stream: what each stream of a process and device was given, by caching allocators and by the CUDA
 * API, and the most that it had at a time. Adding that up from the table of allocations would read all of
 * them. derive_blocks.c and device_api.c call it.
 */
#include "trace/model/device_labels.h"

#include "base/grown_array.h"
#include "base/hash_index.h"
#include "trace/model/allocation_scratch.h"
#include "trace/model/model_state.h"

#include <assert.h>
#include <stdlib.h>

bool streams_reserve(struct derive *derive)
{
    struct derive_streams *streams = derive->streams;
    return index_reserve(&streams->index) && ARRAY_GROW(streams->streams, streams->capacity, streams->count + 1);
}

static struct derive_stream *stream_get(struct derive_streams *streams, const struct derive_stream *like)
{
    uint64_t key =
        (uint64_t)like->process_id << 32 | (uint64_t)like->domain << 24 | (uint64_t)like->device << 16 | like->stream;
    uint64_t number = index_find(&streams->index, key);
    if (number == 0) {
        assert(streams->count < streams->capacity);
        streams->streams[streams->count++] = *like;
        number = streams->count;
        index_insert(&streams->index, key, number);
    }
    return &streams->streams[number - 1];
}

void streams_count(struct derive *derive, const struct scratch_block *block, enum stream_change change)
{
    const struct scratch_row *row = scratch_peek(&derive->scratch, block->id);
    const struct derive_stream like = {.process_id = derive->threads[row->thread_id].process_id,
                                       .domain = row->domain,
                                       .device = block->device,
                                       .stream = block->stream};
    struct derive_stream *stream = stream_get(derive->streams, &like);
    const int64_t main_end_ns = process_main_end_ns(derive->processes[like.process_id]);
    if (change == STREAM_OPENS) {
        figures_open(&stream->sum, row, main_end_ns);
    } else {
        figures_close(&stream->sum, row, main_end_ns, change == STREAM_REOPENS ? -1 : 1);
    }
    stream->peak_bytes = stream->sum.live_bytes > stream->peak_bytes ? stream->sum.live_bytes : stream->peak_bytes;
}

void streams_close(struct derive_streams *streams)
{
    if (streams != NULL) {
        index_free(&streams->index);
        free(streams->streams);
        free(streams);
    }
}
