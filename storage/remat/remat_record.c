/* SPDX-License-Identifier: Apache-2.0 */
/* What a planner does, as records of a trace. */
#include "storage/remat.h"

#include <string.h>

static const uint8_t causes[] = {
    [VARVE_REMAT_CAUSE_NONE] = VARVE_CAUSE_NONE,
    [VARVE_REMAT_CAUSE_RELEASED] = VARVE_CAUSE_EVICT_RELEASED,
    [VARVE_REMAT_CAUSE_BUDGET] = VARVE_CAUSE_EVICT_BUDGET,
    [VARVE_REMAT_CAUSE_ALLOCATOR] = VARVE_CAUSE_EVICT_ALLOCATOR,
    [VARVE_REMAT_CAUSE_REQUESTED] = VARVE_CAUSE_EVICT_REQUESTED,
    [VARVE_REMAT_CAUSE_BANISHED] = VARVE_CAUSE_EVICT_BANISHED,
    [VARVE_REMAT_CAUSE_DIRECT] = VARVE_CAUSE_REMAT_DIRECT,
    [VARVE_REMAT_CAUSE_COLLATERAL] = VARVE_CAUSE_REMAT_COLLATERAL,
    [VARVE_REMAT_CAUSE_PINNED] = VARVE_CAUSE_BLOCKED_PINNED,
    [VARVE_REMAT_CAUSE_INPUT] = VARVE_CAUSE_BLOCKED_INPUT,
};

static const struct {
    uint8_t kind, flags;
    bool is_of_op; /* else of a storage */
} kinds[] = {
    [VARVE_REMAT_EVENT_OP] = {VARVE_KIND_OP, 0, true},
    [VARVE_REMAT_EVENT_EVICT] = {VARVE_KIND_EVICT, 0, false},
    [VARVE_REMAT_EVENT_REMAT] = {VARVE_KIND_REMAT, 0, false},
    [VARVE_REMAT_EVENT_PIN] = {VARVE_KIND_PIN, 0, false},
    [VARVE_REMAT_EVENT_UNPIN] = {VARVE_KIND_UNPIN, 0, false},
    [VARVE_REMAT_EVENT_BUDGET] = {VARVE_KIND_BUDGET, 0, true},
    [VARVE_REMAT_EVENT_FAILED] = {VARVE_KIND_BUDGET, VARVE_FLAG_FAILED, true},
    [VARVE_REMAT_EVENT_BLOCKED] = {VARVE_KIND_PIN, VARVE_FLAG_FAILED, false},
};

static uint64_t double_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static uint64_t requested_of(const struct varve_remat_event *event)
{
    switch (event->kind) {
    case VARVE_REMAT_EVENT_OP:
        return event->input_bytes;
    case VARVE_REMAT_EVENT_EVICT:
        return event->time;
    case VARVE_REMAT_EVENT_REMAT:
        return event->depth;
    default:
        return 0;
    }
}

static uint64_t arg_of(const struct varve_remat_event *event)
{
    switch (event->kind) {
    case VARVE_REMAT_EVENT_EVICT:
        return double_bits(event->score);
    case VARVE_REMAT_EVENT_OP:
    case VARVE_REMAT_EVENT_REMAT:
    case VARVE_REMAT_EVENT_FAILED:
        return event->cost_ns;
    default:
        return 0;
    }
}

void varve_remat_event_record(const struct varve_remat_event *event, uint16_t name, struct varve_record *record_out)
{
    uint32_t number = kinds[event->kind].is_of_op ? event->op : event->storage;
    *record_out = (struct varve_record){
        .size = event->bytes,
        .requested = requested_of(event),
        .arg = arg_of(event),
        .id_stream = number != VARVE_REMAT_NONE ? number : 0,
        .dev_seq_kind_flags = varve_record_tag(0, (enum varve_kind)kinds[event->kind].kind, kinds[event->kind].flags),
        .pool = name,
        .cause = causes[event->cause],
    };
}

void varve_remat_name_record(uint16_t number, const char *name, struct varve_record *record_out)
{
    uint64_t words[4] = {0};
    char *text = (char *)words;
    for (size_t i = 0; i < sizeof(words) && name[i] != '\0'; i++) {
        text[i] = (char)(name[i] >= ' ' && name[i] <= '~' ? name[i] : '?'); /* as a database keeps it */
    }
    *record_out = (struct varve_record){
        .addr = words[0],
        .size = words[1],
        .requested = words[2],
        .arg = words[3],
        .id_stream = number,
        .dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_OP_NAME, 0),
    };
}
