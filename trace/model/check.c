/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walker of derive.h's invariants: what the address indexes say is live must be what the scratch
 * rows say, and what the totals counted. It reads everything, so only tests and debug builds call it.
 */
#include "trace/model/device/device.h"

struct walk {
    const struct derive *derive;
    uint32_t process_id;
    uint64_t live_allocations[DOMAIN_LIMIT];
    uint64_t live_bytes[DOMAIN_LIMIT];
    uint64_t bad_id;
};

static int walk_row(struct walk *walk, uint64_t id, uint64_t addr, enum domain domain)
{
    walk->bad_id = id;
    if (id == 0 || id > walk->derive->scratch.count) {
        return VARVE_ERROR_CORRUPT;
    }
    const struct scratch_row *row = scratch_peek(&walk->derive->scratch, id);
    if (row->free_seq != 0 || row->addr != addr || row->domain != domain ||
        walk->derive->threads[row->thread_id].process_id != walk->process_id) {
        return VARVE_ERROR_CORRUPT;
    }
    walk->live_allocations[domain]++;
    walk->live_bytes[domain] += row->size;
    return VARVE_OK;
}

static int walk_range(void *context, const struct range *range)
{
    struct walk *walk = context;
    int code = walk_row(walk, range->id, range->start, DOMAIN_MMAP);
    if (code != VARVE_OK ||
        scratch_peek(&walk->derive->scratch, range->id)->size != range->end - range->start) {
        return VARVE_ERROR_CORRUPT;
    }
    return VARVE_OK;
}

static int process_check(const struct derive *derive, uint32_t process_id, struct varve_message *message)
{
    const struct derive_process *process = derive->processes[process_id];
    struct walk walk = {.derive = derive, .process_id = process_id};
    if (live_check(&process->live) != VARVE_OK || ranges_check(&process->ranges) != VARVE_OK) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "address index of process %u", process_id);
    }
    int code = ranges_each(&process->ranges, walk_range, &walk);
    uint64_t slots = process->live.slots != NULL ? UINT64_C(1) << process->live.bits : 0;
    for (uint64_t i = 0; i < slots && code == VARVE_OK; i++) {
        const struct live_slot *slot = &process->live.slots[i];
        if (slot->addr != 0) {
            code = walk_row(&walk, slot->id, slot->addr, DOMAIN_HEAP);
        }
    }
    if (code != VARVE_OK) {
        return varve_message_set(message, code,
                                 "process %u: allocation %llu is in the address index, but its row differs",
                                 process_id, (unsigned long long)walk.bad_id);
    }
    for (unsigned i = DOMAIN_HEAP; i <= DOMAIN_MMAP && !process->has_ended; i++) {
        const struct total none = {0};
        struct total **place = process_total(process, slot_of(i, 0));
        const struct total *total = place != NULL ? *place : &none;
        if (walk.live_allocations[i] != total->live_allocations || walk.live_bytes[i] != total->live_bytes) {
            return varve_message_set(
                message, VARVE_ERROR_CORRUPT,
                "process %u, domain %u: %llu live allocations in the index, %llu in the total", process_id, i,
                (unsigned long long)walk.live_allocations[i], (unsigned long long)total->live_allocations);
        }
    }
    for (unsigned i = 0; i < DEVICE_LIMIT && process->devices != NULL && code == VARVE_OK; i++) {
        if (process->devices[i] != NULL) {
            code = derive_device_check(derive, process, i, message);
        }
    }
    return code == VARVE_OK ? derive_api_check(derive, process_id, message) : code;
}

/* Whatever waits for the end of a realloc is closed. */
static int limbo_check(const struct derive *derive, struct varve_message *message)
{
    for (size_t i = 0; i < derive->thread_limit; i++) {
        const struct derive_thread *thread = &derive->threads[i];
        for (uint32_t k = 0; k < thread->limbo_count; k++) {
            const struct scratch_row *row = scratch_peek(&derive->scratch, thread->limbo[k].id);
            if (row->free_seq == 0 || row->addr != thread->limbo[k].addr) {
                return varve_message_set(message, VARVE_ERROR_CORRUPT, "realloc of thread %zu", i);
            }
        }
    }
    return VARVE_OK;
}

int derive_check(const struct derive *derive, struct varve_message *message)
{
    int code = limbo_check(derive, message);
    for (size_t i = 0; i < derive->process_limit && code == VARVE_OK; i++) {
        if (derive->processes[i] != NULL) {
            code = process_check(derive, (uint32_t)i, message);
        }
    }
    for (unsigned i = 0; i < SLOT_LIMIT && code == VARVE_OK; i++) {
        code = totals_check(&derive->domains[i], derive->processes, derive->process_limit, i, message);
    }
    return code;
}
