/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/whatif/oom_cause.h"

#include "analysis/base/number_format.h"

#include <stdbool.h>
#include <stdio.h>

const char *oom_cause_name(enum oom_cause cause)
{
#define OOM_CAUSE_NAME(code, name) [OOM_##code] = name,
    static const char *const names[] = {OOM_CAUSE_LIST(OOM_CAUSE_NAME)};
#undef OOM_CAUSE_NAME

    return names[cause];
}

/* The device refused, and not a limit of the process. */
static bool is_device_full(const struct oom_memory *memory)
{
    return memory->device_free != OOM_UNKNOWN && memory->device_free < memory->segment;
}

/* What may be reserved; 0: unknown. */
static uint64_t oom_cause_limit_of(const struct oom_memory *memory)
{
    return is_device_full(memory) ? memory->reserved + memory->device_free : memory->limit;
}

static uint64_t oom_cause_room_of(const struct oom_memory *memory)
{
    uint64_t limit = oom_cause_limit_of(memory);
    return limit > memory->reserved ? limit - memory->reserved : 0;
}

uint64_t oom_excess(const struct oom_memory *memory)
{
    uint64_t limit = oom_cause_limit_of(memory);
    uint64_t wanted = memory->live + memory->requested;
    return limit != 0 && wanted > limit ? wanted - limit : 0;
}

/* Blocks that max_split_size_mb keeps for requests of about their size. */
static bool oom_cause_is_kept(const struct oom_memory *memory, uint64_t block)
{
    return memory->rounded < memory->max_split_size
               ? block >= memory->max_split_size
               : block >= memory->rounded && block - memory->rounded >= memory->max_rounding;
}

static enum oom_cause cause_of_excess(const struct oom_memory *memory)
{
    return is_device_full(memory) && memory->reserved + memory->segment <= memory->device_total ? OOM_FOREIGN
                                                                                                : OOM_OVER_LIMIT;
}

enum oom_cause oom_cause_of(const struct oom_memory *memory)
{
    uint64_t room = oom_cause_room_of(memory);
    uint64_t unused = memory->own_free + memory->other_free;
    if (memory->own_largest >= memory->rounded) {
        return oom_cause_is_kept(memory, memory->own_largest) ? OOM_SPLIT_LIMIT : OOM_NOT_SEARCHED;
    }
    if (memory->pending > 0 && memory->with_pending >= memory->rounded &&
        !oom_cause_is_kept(memory, memory->with_pending)) {
        return OOM_PENDING;
    }
    if (memory->other_largest >= memory->rounded) {
        return OOM_OTHER_POOL;
    }
    if (oom_excess(memory) > 0) {
        return cause_of_excess(memory);
    }
    if (oom_cause_limit_of(memory) == 0) {
        return unused >= memory->rounded ? OOM_FRAGMENTATION : OOM_NOT_ENOUGH;
    }
    if (room >= memory->segment) {
        return OOM_UNEXPLAINED;
    }
    if (room >= memory->rounded) {
        return OOM_SEGMENT_SIZE;
    }
    if (memory->own_free + room >= memory->rounded) {
        return OOM_FRAGMENTATION;
    }
    if (unused + room >= memory->rounded) {
        return OOM_OTHER_POOL;
    }
    return memory->pending > 0 && unused + room + memory->pending >= memory->rounded ? OOM_PENDING : OOM_ROUNDING;
}

/* " and 3 MiB not reserved yet", if there is any. */
static struct format_text room_text(const struct oom_memory *memory)
{
    uint64_t room = oom_cause_room_of(memory);
    struct format_text text = {""};
    if (room > 0) {
        snprintf(text.text, sizeof(text.text), " and %.20s not reserved", BYTES(room));
    }
    return text;
}

static void write_other_pool(const struct oom_memory *memory, char *text)
{
    if (memory->other_largest >= memory->rounded) {
        snprintf(text, OOM_SENTENCE_BYTES,
                 "other pool or stream: a free block of %s would fit, but belongs to another pool or stream; the "
                 "largest of its own is %s",
                 BYTES(memory->other_largest), BYTES(memory->own_largest));
    } else {
        snprintf(text, OOM_SENTENCE_BYTES,
                 "other pools or streams: they hold %s of the %s that is free%s; its own hold %s, the largest "
                 "block %s",
                 BYTES(memory->other_free), BYTES(memory->own_free + memory->other_free), room_text(memory).text,
                 BYTES(memory->own_free), BYTES(memory->own_largest));
    }
}

static void write_over_limit(const struct oom_memory *memory, char *text)
{
    snprintf(text, OOM_SENTENCE_BYTES, "over the limit: %s in use and %s asked for are %s more than %s",
             BYTES(memory->live), BYTES(memory->requested), BYTES(oom_excess(memory)),
             BYTES(oom_cause_limit_of(memory)));
}

static void write_foreign(const struct oom_memory *memory, char *text)
{
    uint64_t known = memory->reserved + memory->device_free;
    snprintf(text, OOM_SENTENCE_BYTES,
             "memory of others on the device: of %s this allocator has %s and %s is free, so %s is held by the "
             "driver, libraries or other processes",
             BYTES(memory->device_total), BYTES(memory->reserved), BYTES(memory->device_free),
             BYTES(memory->device_total - known));
}

static void write_fragmentation(const struct oom_memory *memory, char *text)
{
    snprintf(text, OOM_SENTENCE_BYTES,
             "fragmentation: %s free%s would do, but the largest free block is %s, %s too small",
             BYTES(memory->own_free + memory->other_free), room_text(memory).text, BYTES(memory->own_largest),
             BYTES(memory->rounded - memory->own_largest));
}

static void write_pending(const struct oom_memory *memory, char *text)
{
    snprintf(text, OOM_SENTENCE_BYTES,
             "pending frees: %s is freed, but other streams may still use it; once free, it would leave a block of %s",
             BYTES(memory->pending), BYTES(memory->with_pending));
}

static void write_own_block(const struct oom_memory *memory, enum oom_cause cause, char *text)
{
    if (cause == OOM_SPLIT_LIMIT) {
        snprintf(text, OOM_SENTENCE_BYTES,
                 "max_split_size_mb: a free block of %s would fit, and is kept for requests of about its size",
                 BYTES(memory->own_largest));
    } else {
        snprintf(text, OOM_SENTENCE_BYTES,
                 "searched too early: a free block of %s fits, but it came free when the pool was not searched "
                 "any more (while it waited for other streams); the same request made again is served",
                 BYTES(memory->own_largest));
    }
}

static void oom_cause_write_sizes(const struct oom_memory *memory, enum oom_cause cause, char *text)
{
    if (cause == OOM_SEGMENT_SIZE) {
        snprintf(text, OOM_SENTENCE_BYTES,
                 "segment size: %s can still be reserved, enough for the block of %s, but its segment is %s",
                 BYTES(oom_cause_room_of(memory)), BYTES(memory->rounded), BYTES(memory->segment));
    } else if (cause == OOM_ROUNDING) {
        snprintf(text, OOM_SENTENCE_BYTES,
                 "rounding: %s in use and %s asked for are within %s, but their blocks take %s more than was "
                 "asked for",
                 BYTES(memory->live), BYTES(memory->requested), BYTES(oom_cause_limit_of(memory)),
                 BYTES(memory->allocated - memory->live + memory->rounded - memory->requested));
    } else if (cause == OOM_NOT_ENOUGH) {
        snprintf(text, OOM_SENTENCE_BYTES,
                 "not enough memory in what is reserved: %s free is %s less than the request, and the device gave "
                 "no more",
                 BYTES(memory->own_free + memory->other_free),
                 BYTES(memory->rounded - memory->own_free - memory->other_free));
    } else {
        snprintf(text, OOM_SENTENCE_BYTES, "unexplained: under a limit of %s a segment of %s could still be reserved",
                 BYTES(oom_cause_limit_of(memory)), BYTES(memory->segment));
    }
}

void oom_sentence(const struct oom_memory *memory, char text[OOM_SENTENCE_BYTES])
{
    enum oom_cause cause = oom_cause_of(memory);
    switch (cause) {
    case OOM_NOT_SEARCHED:
    case OOM_SPLIT_LIMIT:
        write_own_block(memory, cause, text);
        break;
    case OOM_PENDING:
        write_pending(memory, text);
        break;
    case OOM_OTHER_POOL:
        write_other_pool(memory, text);
        break;
    case OOM_FOREIGN:
        write_foreign(memory, text);
        break;
    case OOM_OVER_LIMIT:
        write_over_limit(memory, text);
        break;
    case OOM_FRAGMENTATION:
        write_fragmentation(memory, text);
        break;
    default:
        oom_cause_write_sizes(memory, cause, text);
        break;
    }
}
