/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens when a ring is full. Signals are blocked (emit_slow.c), but for naps. The thread may hold any
 * lock of the program, so no wait is unbounded. Called by emit_slow.c for every record that takes the slow path.
 */
#include "trace/recorder/ring.h"
#include "trace/guest/confinement.h"
#include "trace/guest/own_stack.h"
#include "trace/guest/guest_signals.h"
#include "trace/recorder/session.h"
#include "base/syscall.h"
#include "trace/format/ring_format.h"
#include "trace/format/session_format.h"
#include "trace/emit.h"
#include "trace/record.h"
#include "trace/record_fold.h"

/*
 * `spill` (the default) goes on in the ring's pieces (spill.c); if that fails it waits for room up to a second;
 * then it drops and counts, and emits one `lost` record when there is room again. `block` waits for the
 * collector first, and spills when that is gone or too slow; `drop` drops at once.
 */

#define PATIENCE_NS UINT64_C(1000000000) /* of all threads of a recording whose spills fail */
/* Naps of one wait get longer: hundreds of threads that look every 50 us leave the collector no processor. */
#define NAP_FIRST_NS 50000L
#define NAP_LONGEST_NS 12800000L

struct nap {
    long ns; /* how long the next one is */
    const struct recorder_signals *outer;
};

static void nap(struct nap *nap)
{
    const struct timespec time = {0, nap->ns};
    recorder_sys_nanosleep(&time);
    nap->ns = nap->ns < NAP_LONGEST_NS ? 2 * nap->ns : nap->ns;
}

/* Only then may the ring be used again (format/ring_format.h). */
static bool ring_is_empty(const struct ring_header *ring)
{
    return __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) == ring->head;
}

/* A staging slot for the next spilled record. */
static bool spill_has_room(struct recorder_thread *thread)
{
    struct ring_header *ring = thread->ring;
    return ring->spill_head - ring->spill_flushed < RING_STAGING_RECORDS || spill_flush(thread);
}

/* Where the thread may commit its next record; false: nowhere. */
static bool find_room(struct recorder_thread *thread, bool may_spill)
{
    if (thread->is_spilling && ring_is_empty(thread->ring)) {
        spill_end(thread);
        recorder_produce_to_ring(thread);
    }
    if (!thread->is_spilling && recorder_ring_space(thread) > 0) {
        return true;
    }
    return may_spill && spill_has_room(thread) && recorder_produce_to_spill(thread);
}

static bool put_once(struct recorder_thread *thread, const struct varve_record *record, bool may_spill)
{
    if (!find_room(thread, may_spill)) {
        return false;
    }
    recorder_commit(thread, record);
    return true;
}

static void overflow_drop(struct recorder_thread *thread, const struct varve_record *record)
{
    struct ring_header *ring = thread->ring;
    struct varve_record parts[VARVE_FOLD_EVENTS_MAX];
    unsigned count = varve_record_unfold(record, parts);
    for (unsigned i = 0; i < count; i++) {
        ring->lost_by_kind[varve_record_kind(&parts[i]) % VARVE_KIND_LIMIT]++;
        ring->lost_bytes += parts[i].size;
        thread->lost_open_bytes += parts[i].size;
    }
    thread->lost_open += count;
    __atomic_store_n(&ring->lost_folded, ring->lost_folded + count - 1, __ATOMIC_RELAXED);
    __atomic_store_n(&ring->lost, ring->lost + 1, __ATOMIC_RELEASE);
}

/* A `lost` record in the stream itself, in front of the first event after the gap. */
static void emit_loss(struct recorder_thread *thread, uint64_t ticks, bool may_spill)
{
    struct varve_record loss = {0};
    loss.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_LOST, 0);
    loss.ticks = ticks;
    loss.arg = thread->lost_open;
    loss.size = thread->lost_open_bytes;
    varve_emit_count(thread->producer.emitted);
    if (put_once(thread, &loss, may_spill)) {
        thread->lost_open = 0;
        thread->lost_open_bytes = 0;
    } else {
        __atomic_store_n(&thread->ring->emitted, thread->ring->emitted - 1, __ATOMIC_RELAXED);
    }
}

static bool put_after_loss(struct recorder_thread *thread, const struct varve_record *record, bool may_spill)
{
    if (thread->lost_open > 0) {
        emit_loss(thread, record->ticks, may_spill);
        if (thread->lost_open > 0) {
            return false;
        }
    }
    return put_once(thread, record, may_spill);
}

static void nap_with_signals(void *pointer)
{
    struct nap *asleep = pointer;
    recorder_signals_restore(asleep->outer);
    nap(asleep);
    struct recorder_signals saved;
    recorder_signals_block(&saved);
}

/* A nap with the program's signals open, where the caller said how these are: a handler may be what the
 * program waits for. Its own events are put aside meanwhile, as in the middle of any other event. False: the
 * ring is not ours any more, since a handler forked and this is the child. */
static bool nap_open(struct recorder_thread *thread, struct nap *asleep)
{
    asleep->outer = thread->outer_signals;
    if (asleep->outer == NULL || thread->ring->nested_count >= RING_NESTED_SLOTS / 2) {
        nap(asleep); /* the rest of the slots is for handlers that interrupt the fast path */
        return true;
    }
    thread->producer.busy = 1;
    recorder_off_stack(nap_with_signals, asleep);
    thread->producer.busy = 0;
    return thread->ring != NULL && recorder_process_current() != NULL;
}

/* Wait for the collector, while less than `limit_ns` of `*used_ns` are used up; the wait is added to it.
 * False: gave up. True also if there is nothing left to be done, in the child of a fork. */
static bool put_waiting(struct recorder_thread *thread, const struct varve_record *record, bool may_spill,
                        uint64_t *used_ns, uint64_t limit_ns)
{
    struct nap asleep = {.ns = NAP_FIRST_NS};
    uint64_t now_ns = varve_clock_monotonic_ns();
    while (__atomic_load_n(used_ns, __ATOMIC_RELAXED) < limit_ns && !recorder_collector_is_gone()) {
        uint64_t before_ns = now_ns;
        if (!nap_open(thread, &asleep) || put_after_loss(thread, record, may_spill)) {
            return true;
        }
        now_ns = varve_clock_monotonic_ns();
        __atomic_fetch_add(used_ns, now_ns - before_ns, __ATOMIC_RELAXED);
    }
    return false;
}

/* Patience is the recording's: where nothing fits, waiting for every event would stop the program. What is
 * used up does not come back when something fits. `block` uses it only for waits that were in vain. */
static void put_blocking(struct recorder_thread *thread, const struct varve_record *record)
{
    uint64_t *patience_ns = &recorder_session_counts()->patience_used_ns;
    uint64_t timeout_ns = recorder_session()->block_timeout_ns;

    /* once in the spill, later records must follow there until it is drained */
    if (put_after_loss(thread, record, thread->is_spilling)) {
        return;
    }
    uint64_t used_ns = 0;
    if (!recorder_ring_is_short(thread) && __atomic_load_n(patience_ns, __ATOMIC_RELAXED) < timeout_ns) {
        if (put_waiting(thread, record, false, &used_ns, timeout_ns)) {
            return;
        }
        __atomic_fetch_add(patience_ns, used_ns, __ATOMIC_RELAXED);
    }
    if (!put_after_loss(thread, record, true)) { /* the collector was waited for in vain */
        overflow_drop(thread, record);
    }
}

/* One that can't make pieces, or whose program would pay for them, is served by the collector alone. */
static void put_spilling(struct recorder_thread *thread, const struct varve_record *record)
{
    if (thread->is_cut_off || recorder_memory_is_scarce()) {
        put_blocking(thread, record);
    } else if (!put_after_loss(thread, record, true) &&
               !put_waiting(thread, record, true, &recorder_session_counts()->patience_used_ns, PATIENCE_NS)) {
        overflow_drop(thread, record);
    }
}

void overflow_put(struct recorder_thread *thread, const struct varve_record *record)
{
    switch (recorder_is_confined() ? SESSION_OVERFLOW_DROP : recorder_session()->overflow) {
    case SESSION_OVERFLOW_BLOCK:
        put_blocking(thread, record);
        break;
    case SESSION_OVERFLOW_DROP:
        if (!put_after_loss(thread, record, false)) {
            overflow_drop(thread, record);
        }
        break;
    default:
        put_spilling(thread, record);
        break;
    }
}
