/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layout as bytes: the keyframes of a database, from which any later moment is a few thousand events away.
 * About 5 bytes per block: numbers of variable length (7 bits per byte, low first), only what differs from
 * the usual. Also what trace/layout.h offers of layouts. A database may come from anybody, so decoding believes
 * nothing: what does not fit together is VARVE_ERROR_CORRUPT.
 *
 *   version, flags, segments, { id, addr, number, stream, pool, flags },
 *   blocks, { flags, extent, extent - requested, [gap to the block before], [segment], [size] },
 *   unmapped ranges, { gap, extent, 1 + requested }
 *
 * An extent is in units of 512 bytes unless a flag says otherwise; a difference has its sign in the lowest
 * bit.
 */
#include "trace/model/domain.h"
#include "trace/model/layout_state.h"

#include "trace/model/model_event.h"
#include "base/range_set.h"
#include "trace/record.h"
#include "base/error.h"
#include "trace/layout.h"

#include <stdlib.h>
#include <string.h>

#define CODE_VERSION 1U
#define NUMBER_BYTES 10U /* at most */
#define FLAG_MERGES 1U
#define FLAG_CUT 2U
#define FLAG_EXPANDABLE 1U
#define FLAG_IMPLIED 2U
#define FLAG_STATE 3U
#define FLAG_SEGMENT 4U /* not that of the block before */
#define FLAG_SIZE 8U    /* not the extent */
#define FLAG_GAP 16U
#define FLAG_BYTES 32U /* the extent */
#define UNIT 512U

/* ---- encoding ---- */

struct encoder {
    const struct varve_layout *layout;
    uint8_t *bytes;
    size_t used;
    uint64_t end;     /* of the block before */
    uint32_t segment; /* of the block before */
};

static void layout_code_put(struct encoder *encoder, uint64_t value)
{
    while (value >= 0x80) {
        encoder->bytes[encoder->used++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    encoder->bytes[encoder->used++] = (uint8_t)value;
}

/* A number that may be negative. */
static uint64_t layout_code_fold(uint64_t value)
{
    return value << 1 ^ (0 - (value >> 63));
}

static uint64_t layout_code_unfold(uint64_t value)
{
    return value >> 1 ^ (0 - (value & 1));
}

static int layout_code_put_block(void *context, const struct range *range)
{
    struct encoder *encoder = context;
    const struct layout_block *block = &encoder->layout->blocks[range->id - 1];
    uint64_t extent = range->end - range->start;
    unsigned flags = block->state;
    flags |= block->segment != encoder->segment ? FLAG_SEGMENT : 0;
    flags |= block->size != extent ? FLAG_SIZE : 0;
    flags |= range->start != encoder->end ? FLAG_GAP : 0;
    flags |= extent % UNIT != 0 ? FLAG_BYTES : 0;
    layout_code_put(encoder, flags);
    layout_code_put(encoder, flags & FLAG_BYTES ? extent : extent / UNIT);
    layout_code_put(encoder, layout_code_fold(extent - block->requested));
    if (flags & FLAG_GAP) {
        layout_code_put(encoder, range->start - encoder->end);
    }
    if (flags & FLAG_SEGMENT) {
        layout_code_put(encoder, block->segment);
    }
    if (flags & FLAG_SIZE) {
        layout_code_put(encoder, block->size);
    }
    encoder->end = range->end;
    encoder->segment = block->segment;
    return 0;
}

static int put_unmapped(void *context, const struct range *range)
{
    struct encoder *encoder = context;
    layout_code_put(encoder, range->start - encoder->end);
    layout_code_put(encoder, range->end - range->start);
    layout_code_put(encoder, range->id);
    encoder->end = range->end;
    return 0;
}

size_t layout_encode_bound(const struct varve_layout *layout)
{
    return (4 + 6 * (size_t)layout->segment_limit + 6 * (size_t)layout->ranges.count +
            3 * (size_t)layout->unmapped.count + 1) *
           NUMBER_BYTES;
}

size_t layout_encode(const struct varve_layout *layout, uint8_t *bytes)
{
    struct encoder encoder = {.layout = layout, .bytes = bytes};
    layout_code_put(&encoder, CODE_VERSION);
    layout_code_put(&encoder, (layout->has_merge_events ? FLAG_MERGES : 0) | (layout->has_cut ? FLAG_CUT : 0));
    /* Unused slots stand for themselves: a segment without memory. */
    layout_code_put(&encoder, layout->segment_limit);
    for (uint32_t i = 0; i < layout->segment_limit; i++) {
        const struct layout_segment *segment = &layout->segments[i];
        layout_code_put(&encoder, segment->id);
        layout_code_put(&encoder, segment->addr);
        layout_code_put(&encoder, segment->number);
        layout_code_put(&encoder, segment->stream);
        layout_code_put(&encoder, segment->pool);
        layout_code_put(&encoder,
                        (segment->is_expandable ? FLAG_EXPANDABLE : 0) | (segment->is_implied ? FLAG_IMPLIED : 0));
    }
    layout_code_put(&encoder, layout->ranges.count);
    ranges_each(&layout->ranges, layout_code_put_block, &encoder);
    encoder.end = 0;
    layout_code_put(&encoder, layout->unmapped.count);
    ranges_each(&layout->unmapped, put_unmapped, &encoder);
    return encoder.used;
}

/* ---- decoding ---- */

struct decoder {
    const uint8_t *bytes;
    size_t left;
    bool is_bad;
};

static uint64_t layout_code_get(struct decoder *decoder)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (decoder->left == 0) {
            break;
        }
        uint8_t byte = *decoder->bytes++;
        decoder->left--;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return value;
        }
    }
    decoder->is_bad = true;
    return 0;
}

/* A range `gap` behind *end, which moves to its end. */
static struct range range_make(struct decoder *decoder, uint64_t *end, uint64_t gap, uint64_t extent)
{
    struct range range = {.start = *end + gap};
    range.end = range.start + extent;
    if (range.start < *end || range.end <= range.start) {
        decoder->is_bad = true;
    }
    *end = range.end;
    return range;
}

static int get_segments(struct varve_layout *layout, struct decoder *decoder)
{
    uint64_t count = layout_code_get(decoder);
    for (uint64_t i = 0; i < count && !decoder->is_bad; i++) {
        struct layout_segment segment = {.id = layout_code_get(decoder)};
        segment.addr = layout_code_get(decoder);
        segment.number = (uint32_t)layout_code_get(decoder);
        segment.stream = (uint16_t)layout_code_get(decoder);
        segment.pool = (uint16_t)layout_code_get(decoder);
        uint64_t flags = layout_code_get(decoder);
        segment.is_expandable = flags & FLAG_EXPANDABLE;
        segment.is_implied = flags & FLAG_IMPLIED;
        if (!layout_reserve(layout)) {
            return VARVE_ERROR_NO_MEMORY;
        }
        layout_segment_add(layout, &segment);
    }
    return VARVE_OK;
}

static int get_blocks(struct varve_layout *layout, struct decoder *decoder)
{
    uint64_t count = layout_code_get(decoder);
    uint64_t end = 0;
    struct layout_block block = {0};
    for (uint64_t i = 0; i < count && !decoder->is_bad; i++) {
        uint64_t flags = layout_code_get(decoder);
        uint64_t extent = layout_code_get(decoder) * (flags & FLAG_BYTES ? 1 : UNIT);
        block.requested = extent - layout_code_unfold(layout_code_get(decoder));
        const struct range range = range_make(decoder, &end, flags & FLAG_GAP ? layout_code_get(decoder) : 0, extent);
        block.state = flags & FLAG_STATE;
        if (flags & FLAG_SEGMENT) {
            block.segment = (uint32_t)layout_code_get(decoder);
        }
        block.size = flags & FLAG_SIZE ? layout_code_get(decoder) : extent;
        if (decoder->is_bad || block.segment == 0 || block.segment > layout->segment_limit ||
            block.state > VARVE_LAYOUT_PENDING || (block.state == VARVE_LAYOUT_FREE && block.size != extent)) {
            return VARVE_ERROR_CORRUPT;
        }
        if (!layout_reserve(layout)) {
            return VARVE_ERROR_NO_MEMORY;
        }
        layout_block_add(layout, range.start, range.end, &block);
    }
    return VARVE_OK;
}

static int get_unmapped(struct varve_layout *layout, struct decoder *decoder)
{
    uint64_t count = layout_code_get(decoder);
    uint64_t end = 0;
    for (uint64_t i = 0; i < count && !decoder->is_bad; i++) {
        uint64_t gap = layout_code_get(decoder);
        struct range range = range_make(decoder, &end, gap, layout_code_get(decoder));
        range.id = layout_code_get(decoder);
        if (decoder->is_bad || range.id == 0) {
            return VARVE_ERROR_CORRUPT;
        }
        if (!layout_reserve(layout)) {
            return VARVE_ERROR_NO_MEMORY;
        }
        ranges_insert(&layout->unmapped, &range);
    }
    return decoder->is_bad ? VARVE_ERROR_CORRUPT : VARVE_OK;
}

/* ---- what trace/layout.h offers ---- */

struct varve_layout *varve_layout_new(void)
{
    return calloc(1, sizeof(struct varve_layout));
}

void varve_layout_free(struct varve_layout *layout)
{
    if (layout != NULL) {
        layout_clear(layout);
        free(layout);
    }
}

int varve_layout_decode(struct varve_layout *layout, const void *bytes, size_t count)
{
    struct decoder decoder = {.bytes = bytes, .left = count};
    layout_clear(layout);
    if (layout_code_get(&decoder) != CODE_VERSION || decoder.is_bad) {
        return VARVE_ERROR_CORRUPT;
    }
    uint64_t flags = layout_code_get(&decoder);
    layout->has_merge_events = flags & FLAG_MERGES;
    layout->has_cut = flags & FLAG_CUT;
    int error = get_segments(layout, &decoder);
    VARVE_THEN(error, get_blocks(layout, &decoder));
    VARVE_THEN(error, get_unmapped(layout, &decoder));
    /* Slots that were free in the writer come back as segments without memory. */
    layout_segments_tidy(layout);
    return error == VARVE_OK && decoder.left > 0 ? VARVE_ERROR_CORRUPT : error;
}

static struct event layout_event_of(const struct varve_record *record)
{
    return (struct event){
        .kind = (uint8_t)varve_record_kind(record),
        .cause = record->cause,
        .device = record->device,
        .flags = (uint8_t)varve_record_flags(record),
        .pool = record->pool,
        .stream = (uint16_t)varve_record_stream(record),
        .id = varve_record_id(record),
        .addr = record->addr,
        .size = record->size,
        .requested = record->requested,
        .arg = record->arg,
    };
}

int varve_layout_apply(struct varve_layout *layout, const struct varve_record *record)
{
    const struct event event = layout_event_of(record);
    if (!layout_reserve(layout)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    struct layout_change change = {0};
    layout_apply(layout, &event, &change);
    return VARVE_OK;
}

bool varve_layout_block(const struct varve_layout *layout, uint64_t from, struct varve_layout_block *block_out)
{
    struct range range;
    if (!ranges_first(&layout->ranges, from, UINT64_MAX, &range)) {
        return false;
    }
    const struct layout_block *block = &layout->blocks[range.id - 1];
    const struct layout_segment *segment = &layout->segments[block->segment - 1];
    *block_out = (struct varve_layout_block){
        .addr = range.start,
        .extent = range.end - range.start,
        .size = block->size,
        .requested = block->requested,
        .segment_id = segment->id,
        .segment_number = segment->number,
        .segment = block->segment,
        .stream = segment->stream,
        .pool = segment->pool,
        .state = (enum varve_layout_state)block->state,
        .is_expandable = segment->is_expandable,
        .is_implied = segment->is_implied,
    };
    return true;
}

bool varve_layout_is_approximate(const struct varve_layout *layout)
{
    return layout->has_cut && !layout->has_merge_events;
}

struct varve_ladders {
    struct ladder_device {
        struct varve_layout layout;
        struct islands islands;
        struct ladder_peak peak;
    } * devices[DEVICE_LIMIT]; /* NULL: no allocator */
};

struct varve_ladders *varve_ladders_new(void)
{
    return calloc(1, sizeof(struct varve_ladders));
}

void varve_ladders_free(struct varve_ladders *ladders)
{
    for (unsigned i = 0; ladders != NULL && i < DEVICE_LIMIT; i++) {
        if (ladders->devices[i] != NULL) {
            layout_clear(&ladders->devices[i]->layout);
            free(ladders->devices[i]);
        }
    }
    free(ladders);
}

int varve_ladders_apply(struct varve_ladders *ladders, const struct varve_record *record)
{
    struct ladder_device **device = &ladders->devices[record->device % DEVICE_LIMIT];
    if (*device == NULL) {
        *device = calloc(1, sizeof(**device));
        if (*device == NULL) {
            return VARVE_ERROR_NO_MEMORY;
        }
        (*device)->layout.islands = &(*device)->islands;
    }
    int error = varve_layout_apply(&(*device)->layout, record);
    if (error == VARVE_OK) {
        const struct event event = layout_event_of(record);
        islands_event(&(*device)->islands, &event, &(*device)->peak);
    }
    return error;
}

struct varve_ladder varve_ladders_peak(const struct varve_ladders *ladders)
{
    uint64_t bytes[LADDER_RUNGS] = {0};
    for (unsigned i = 0; i < DEVICE_LIMIT; i++) {
        for (unsigned k = 0; k < LADDER_RUNGS && ladders->devices[i] != NULL; k++) {
            bytes[k] += ladders->devices[i]->peak.ladder.bytes[k];
        }
    }
    struct varve_ladder sum = {
        .reserved = bytes[LADDER_RESERVED],
        .live_requested = bytes[LADDER_LIVE],
        .rounding = bytes[LADDER_ROUNDING],
        .unsplit_remainder = bytes[LADDER_UNSPLIT],
        .segment_quantum = bytes[LADDER_QUANTUM],
        .pool_segregation = bytes[LADDER_POOLS],
        .stream_pending = bytes[LADDER_PENDING],
        .cached_segments = bytes[LADDER_CACHED],
    };
    sum.external_holes = 2 * sum.reserved;
    for (unsigned k = 0; k < LADDER_RUNGS; k++) {
        sum.external_holes -= bytes[k]; /* reserved is one of them */
    }
    return sum;
}
