/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slow side of varve_emit: the first event of a thread or of a fork child, full rings, events of signal
 * handlers that interrupt another event, events after the thread's own end. Everything here runs with
 * signals blocked. The append of varve_emit does not: a handler that interrupts it (`busy`) stores its
 * record in the ring's nested slots, in shared memory. Called by emit.h's inline functions.
 */
#include "trace/recorder/emit_slow.h"
#include "trace/guest/guest_clock.h"
#include "trace/guest/confinement.h"
#include "trace/guest/guest_lock.h"
#include "trace/guest/guest_memory.h"
#include "trace/guest/own_stack.h"
#include "trace/guest/reentrant.h"
#include "trace/guest/guest_signals.h"
#include "trace/recorder/ring.h"
#include "trace/recorder/session.h"
#include "trace/stacks/callsite_here.h"
#include "trace/stacks/native_stack.h"
#include "trace/stacks/python_stack.h"
#include "base/syscall.h"
#include "trace/format/ring_format.h"
#include "trace/format/session_format.h"
#include "base/error.h"
#include "trace/emit.h"
#include "trace/record.h"
#include "trace/record_fold.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define THREAD_BYTES 8192U

/* Rounds of key destructors until a thread is over. The thread sanitizer tears itself down in the last one.
 */
#if defined(__SANITIZE_THREAD__)
#define END_ROUNDS (PTHREAD_DESTRUCTOR_ITERATIONS - 1)
#else
#define END_ROUNDS PTHREAD_DESTRUCTOR_ITERATIONS
#endif

static_assert(sizeof(struct recorder_thread) <= THREAD_BYTES, "two pages per thread");

/* Threads start with this one, which is always busy: their first event comes here. Never written. */
static struct varve_producer idle = {.busy = 1};

__thread struct varve_producer *varve_producer_current = &idle;
uint32_t varve_emit_has_sink;
uint32_t varve_emit_may_fold;

static __thread bool thread_is_watched;
static __thread bool thread_has_ended;
/* Of a thread for which no ring could be made. */
static __thread struct {
    uint64_t process; /* process_key of the one for which the rest holds; 0: of none */
    uint32_t index;   /* the number that the ring will have; 0: none was taken yet */
    struct recorder_retry retry;
} ringless;
static uint64_t nobodys_emitted;

/* A fork in the middle of an append (a signal handler forked): what the child must be given to finish it. */
static __thread struct varve_producer interrupted;
static __thread struct recorder_thread *interrupted_thread;
static __thread struct {
    void *memory;
    uint64_t bytes;
} interrupted_maps[2]; /* ring, staging slots apart from it */

/* Made once by recorder_prepare, before the program has a second thread. */
static pthread_key_t end_key;
static bool has_end_key;
static bool is_prepared;

static bool session_is_open(void)
{
    return __atomic_load_n(&recorder_session()->state, __ATOMIC_ACQUIRE) == SESSION_STATE_RECORDING;
}

static struct recorder_thread *thread_of(struct varve_producer *producer)
{
    return (struct recorder_thread *)producer; /* its first member */
}

/* Numbers of processes begin anew in each recording. */
static uint64_t process_key(const struct recorder_process *process)
{
    return recorder_session()->trace_id ^ ((uint64_t)process->id << 32 | 1);
}

/* ---- the list of threads ---- */

/* Signals are blocked. */
static bool thread_link(struct recorder_process *process, struct recorder_thread *thread)
{
    if (!recorder_lock_soon(&process->threads_lock)) {
        return false;
    }
    thread->previous = NULL;
    thread->next = process->threads;
    if (thread->next != NULL) {
        thread->next->previous = thread;
    }
    process->threads = thread;
    recorder_unlock(&process->threads_lock);
    return true;
}

static bool thread_unlink(struct recorder_thread *thread)
{
    struct recorder_process *process = recorder_process_page();
    if (process == NULL || !recorder_lock_soon(&process->threads_lock)) {
        return false;
    }
    if (thread->next != NULL) {
        thread->next->previous = thread->previous;
    }
    if (thread->previous != NULL) {
        thread->previous->next = thread->next;
    } else {
        process->threads = thread->next;
    }
    recorder_unlock(&process->threads_lock);
    return true;
}

void recorder_threads_release(void)
{
    struct recorder_process *process = recorder_process_page();
    struct recorder_thread *next;
    for (struct recorder_thread *thread = process != NULL ? process->threads : NULL; thread != NULL; thread = next) {
        next = thread->next;
        if (thread->ring != NULL) {
            recorder_ring_retire(thread);
        }
        if (thread == process->late) {
            recorder_unmap(thread, THREAD_BYTES);
            continue;
        }
        memset(thread, 0, sizeof(*thread));
        thread->is_released = true;
    }
    if (process != NULL) {
        process->threads = NULL;
        process->late = NULL;
    }
}

/* Other destructors may still free memory: stay until the last round. `round` counts down from the pointer.
 */
static void end_of_thread(void *round)
{
    uintptr_t left = (uintptr_t)round;
    struct varve_producer *producer = varve_producer_current;
    if (left > 1) {
        pthread_setspecific(end_key, (void *)(left - 1));
        return;
    }
    struct recorder_signals saved;
    recorder_signals_block(&saved);
    thread_has_ended = true;
    varve_producer_current = &idle;
    if (producer != &idle && thread_of(producer)->ring != NULL) {
        recorder_ring_retire(thread_of(producer));
        if (thread_unlink(thread_of(producer))) {
            recorder_unmap(producer, THREAD_BYTES);
        }
    } else if (producer != &idle && thread_of(producer)->is_released) {
        recorder_unmap(producer, THREAD_BYTES);
    }
    native_stack_thread_end();
    python_memo_thread_end();
    recorder_stack_thread_end();
    recorder_signals_restore(&saved);
}

static void fork_prepare(void)
{
    struct varve_producer *producer = varve_producer_current;
    interrupted_thread = NULL;
    if (producer != &idle && thread_of(producer)->ring != NULL) {
        interrupted_thread = thread_of(producer);
        interrupted = *producer;
        interrupted_maps[0].memory = interrupted_thread->ring;
        interrupted_maps[0].bytes = interrupted_thread->ring_bytes;
        interrupted_maps[1].memory = interrupted_thread->staging;
        interrupted_maps[1].bytes = recorder_ring_staging_is_apart(interrupted_thread) ? RING_STAGING_BYTES : 0;
    }
}

/* An append that the fork cut in two goes on in the child: let it end in memory that nobody reads. */
static void fork_child(void)
{
    struct varve_producer *producer = varve_producer_current;
    if (producer == &idle) {
        return;
    }
    producer->emitted = &nobodys_emitted;
    if (interrupted_thread != NULL) {
        for (size_t i = 0; i < 2 && interrupted_maps[i].bytes > 0; i++) {
            recorder_sys_mmap(interrupted_maps[i].memory, interrupted_maps[i].bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        }
        if (interrupted.busy != 0) {
            *producer = interrupted;
            producer->nested = 0;
            producer->limit = 0; /* and then the slow path finds a process that is not attached */
        }
    }
}

bool recorder_prepare(void)
{
    if (recorder_session() == NULL) {
        return false;
    }
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    if (!__atomic_exchange_n(&is_prepared, true, __ATOMIC_ACQ_REL)) {
        has_end_key = pthread_key_create(&end_key, end_of_thread) == 0;
        pthread_atfork(fork_prepare, NULL, fork_child);
    }
    recorder_reentrant_end(&saved);
    return true;
}

/* Hooks pass through: for a late key the C library allocates. */
static void watch_end_of_thread(void)
{
    struct recorder_signals saved;
    if (has_end_key && !thread_is_watched) {
        thread_is_watched = true;
        recorder_reentrant_begin(&saved);
        pthread_setspecific(end_key, (void *)(uintptr_t)END_ROUNDS);
        recorder_reentrant_end(&saved);
    }
}

static void emit_slow_put(struct recorder_thread *thread, const struct varve_record *record)
{
    varve_emit_count(thread->producer.emitted);
    overflow_put(thread, record);
}

static void put_kind(struct recorder_thread *thread, enum varve_kind kind, uint64_t arg)
{
    struct varve_record record = {0};
    record.dev_seq_kind_flags = varve_record_tag(0, kind, 0);
    record.ticks = varve_clock_ticks();
    record.arg = arg;
    emit_slow_put(thread, &record);
}

/* The page of this thread, if an earlier recording has left it one. */
static struct recorder_thread *thread_released(void)
{
    struct recorder_thread *thread = thread_of(varve_producer_current);
    return varve_producer_current != &idle && thread->is_released ? thread : NULL;
}

/* In `page`, which stays if that fails; NULL: in one of its own. */
static struct recorder_thread *thread_create(struct recorder_process *process, uint32_t index,
                                             struct recorder_thread *page)
{
    struct recorder_thread *thread = page != NULL ? page : recorder_map_wiped(THREAD_BYTES);
    bool is_linked = thread != NULL && thread_link(process, thread);
    if (!is_linked || recorder_ring_create(thread, process, index) != VARVE_OK) {
        if ((!is_linked || thread_unlink(thread)) && thread != page) {
            recorder_unmap(thread, THREAD_BYTES);
        }
        return NULL;
    }
    thread->is_released = false;
    thread->producer.busy = 1;
    if (index == 1) {
        put_kind(thread, VARVE_KIND_PROCESS_START, process->control->parent_id);
    }
    put_kind(thread, VARVE_KIND_THREAD_START, 0);
    if (index == 1 && __atomic_load_n(&process->main_has_ended, __ATOMIC_ACQUIRE)) {
        put_kind(thread, VARVE_KIND_MAIN_END, 0); /* exit handlers of a fork child that had recorded nothing */
    }
    thread->producer.busy = 0;
    return thread;
}

/* Signals are blocked. NULL: this event cannot be recorded (counted by the caller). */
static struct recorder_thread *thread_attach(struct recorder_process *process)
{
    if (ringless.process != process_key(process)) {
        memset(&ringless, 0, sizeof(ringless));
        ringless.process = process_key(process);
    }
    if (ringless.index != 0 && !recorder_retry_is_due(&ringless.retry)) {
        return NULL;
    }
    if (ringless.index == 0) {
        ringless.index = __atomic_fetch_add(&process->control->ring_count, 1, __ATOMIC_ACQ_REL);
    }
    struct recorder_thread *thread = thread_create(process, ringless.index, thread_released());
    if (thread != NULL) {
        ringless.process = 0;
        recorder_confine_thread_known();
        varve_producer_current = &thread->producer;
        __atomic_store_n(&varve_emit_may_fold, (recorder_session()->sink & SESSION_SINK_LTTNG) == 0, __ATOMIC_RELAXED);
    } else {
        recorder_retry_later(&ringless.retry);
    }
    return thread;
}

/* In the page of the process, or of the session where the process has none. */
static void count_unattached(struct recorder_process *process, const struct varve_record *record)
{
    struct process_control *control = process != NULL ? process->control : NULL;
    struct session_counts *counts = recorder_session_counts();
    uint64_t *by_kind = control != NULL ? control->unattached_by_kind : counts->unattached_by_kind;
    struct varve_record parts[VARVE_FOLD_EVENTS_MAX];
    unsigned count = varve_record_unfold(record, parts);
    for (unsigned i = 0; i < count; i++) {
        __atomic_fetch_add(&by_kind[varve_record_kind(&parts[i]) % VARVE_KIND_LIMIT], 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(control != NULL ? &control->unattached_bytes : &counts->unattached_bytes, parts[i].size,
                           __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(control != NULL ? &control->unattached : &counts->unattached, count, __ATOMIC_RELEASE);
}

/* Its lock is held. */
static struct recorder_thread *late_thread(struct recorder_process *process)
{
    if (process->late == NULL) {
        process->late = thread_create(process, 0, NULL);
        __atomic_store_n(&process->control->late_created, process->late != NULL, __ATOMIC_RELEASE);
    }
    return process->late;
}

/* After the thread's own ring is gone: one ring for all such threads of the process. Signals are blocked. */
static void put_late(struct recorder_process *process, const struct varve_record *record)
{
    if (!recorder_retry_is_due(&process->late_retry)) {
        count_unattached(process, record);
        return;
    }
    if (!recorder_lock_soon(&process->late_lock)) {
        recorder_retry_later(&process->late_retry); /* the wait is for one event, not for each */
        count_unattached(process, record);
        return;
    }
    struct recorder_thread *thread = late_thread(process);
    if (thread != NULL) {
        struct varve_record late = *record;
        late.dev_seq_kind_flags |= VARVE_FLAG_LATE;
        late.ticks = varve_clock_ticks();
        emit_slow_put(thread, &late);
    } else {
        recorder_retry_later(&process->late_retry);
        count_unattached(process, record);
    }
    recorder_unlock(&process->late_lock);
}

static bool emit_slow_is_attached(void)
{
    struct varve_producer *producer = varve_producer_current;
    return producer != &idle && thread_of(producer)->ring != NULL && recorder_process_current() != NULL;
}

/* First event of this thread or process image. Signals are blocked. */
static void put_first(const struct varve_record *record)
{
    struct varve_record timed = *record;
    if (second_sink_owns_thread()) {
        recorder_reentrant_depth++; /* for good */
        return;
    }
    struct recorder_process *process = recorder_process_attach();
    if (process != NULL && thread_has_ended) {
        put_late(process, record);
        return;
    }
    struct recorder_thread *thread = NULL;
    if (process != NULL) {
        thread = thread_attach(process);
    }
    if (!thread_has_ended) {
        watch_end_of_thread(); /* without a ring too: it has a stack of ours */
    }
    if (thread != NULL) {
        timed.ticks = varve_clock_ticks();
        emit_slow_put(thread, &timed);
    } else {
        count_unattached(process, record);
    }
}

/* Atomic for the sake of confined threads, whose handlers interrupt each other here. */
static void lose_nested(struct recorder_thread *thread, const struct varve_record *record)
{
    struct varve_record parts[VARVE_FOLD_EVENTS_MAX];
    unsigned count = varve_record_unfold(record, parts);
    for (unsigned i = 0; i < count; i++) {
        __atomic_fetch_add(&thread->nested_lost_kinds[varve_record_kind(&parts[i]) % VARVE_KIND_LIMIT], 1,
                           __ATOMIC_RELAXED);
    }
    __atomic_store_n(&thread->producer.nested, 1, __ATOMIC_RELAXED);
}

/* A signal handler emits in the middle of an event of the same thread: put aside until that is complete.
 * Signals are blocked, since handlers interrupt each other. */
static void put_nested(struct recorder_thread *thread, const struct varve_record *record)
{
    struct ring_header *ring = thread->ring;
    uint32_t count = ring->nested_count;
    if (count == RING_NESTED_SLOTS) {
        lose_nested(thread, record);
    } else {
        ring->nested[count] = *record;
        ring->nested[count].ticks = varve_clock_ticks();
        ring->nested[count].dev_seq_kind_flags |= VARVE_FLAG_NESTED;
        __atomic_store_n(&ring->nested_count, count + 1, __ATOMIC_RELEASE);
    }
    thread->producer.nested = 1;
}

/* What was put aside, into the ring. Signals are blocked. */
static void file_nested(struct recorder_thread *thread)
{
    struct ring_header *ring = thread->ring;
    thread->producer.nested = 0;
    for (uint32_t i = 0; i < ring->nested_count; i++) {
        emit_slow_put(thread, &ring->nested[i]);
        __atomic_store_n(&ring->nested_filed, i + 1, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&ring->nested_count, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&ring->nested_filed, 0, __ATOMIC_RELEASE);
    for (uint32_t kind = 0; kind < VARVE_KIND_LIMIT; kind++) {
        uint32_t lost = __atomic_exchange_n(&thread->nested_lost_kinds[kind], 0, __ATOMIC_RELAXED);
        ring->lost_by_kind[kind] += lost;
        thread->lost_open += lost;
        __atomic_store_n(&ring->emitted, ring->emitted + lost, __ATOMIC_RELAXED);
        __atomic_store_n(&ring->lost, ring->lost + lost, __ATOMIC_RELEASE);
    }
}

static void file_nested_now(void *unused)
{
    (void)unused;
    file_nested(thread_of(varve_producer_current));
}

void varve_emit_nested(void)
{
    int saved_errno = errno;
    if (recorder_is_confined()) {
        return; /* with the next event that takes the slow path, which this is now the way of */
    }
    struct recorder_signals saved;
    recorder_signals_block(&saved);
    if (emit_slow_is_attached()) { /* not in the child of a handler that forked just now */
        (void)recorder_on_stack(file_nested_now, NULL);
    }
    recorder_signals_restore(&saved);
    errno = saved_errno;
}

/* The ring has no room, or is not to be used now, or a handler left something to do first. */
static void put_slowly(struct recorder_thread *thread, const struct varve_record *record,
                       const struct recorder_signals *outer)
{
    struct varve_record timed = *record;
    if (thread->producer.nested != 0) {
        file_nested(thread);
    }
    if (timed.ticks == 0) {
        varve_emit_count(thread->producer.emitted);
        timed.ticks = varve_clock_ticks();
    }
    if (!recorder_is_confined()) {
        second_sink_check();
    }
    thread->outer_signals = outer;
    overflow_put(thread, &timed);
    thread->outer_signals = NULL;
    if (thread->producer.nested != 0 && emit_slow_is_attached()) { /* of handlers, while it waited for room */
        file_nested(thread);
    }
}

/* The fast path, with the record in the second sink before it is committed: what a ring holds, that has too. */
static bool put_with_sink(struct varve_producer *producer, const struct varve_record *record)
{
    struct varve_record timed = *record;
    int saved_errno = errno;
    if ((producer->busy | producer->nested) != 0 || producer->head >= producer->limit || record->ticks != 0) {
        return false;
    }
    varve_emit_count(producer->emitted);
    timed.ticks = varve_clock_ticks();
    producer->busy = 1;
    __asm__ volatile("" ::: "memory");
    if (producer->head >= producer->limit) {
        producer->busy = 0; /* a handler has filled the ring meanwhile */
        varve_emit_slow(&timed);
        return true;
    }
    recorder_commit(thread_of(producer), &timed);
    __asm__ volatile("" ::: "memory");
    producer->busy = 0;
    __asm__ volatile("" ::: "memory");
    if (producer->nested != 0) {
        varve_emit_nested();
    }
    errno = saved_errno;
    return true;
}

/* The thread can't block signals. Its record is `busy` to handlers meanwhile, and theirs are lost. */
static void emit_confined(const struct varve_record *record)
{
    struct recorder_thread *thread = thread_of(varve_producer_current);
    if (!emit_slow_is_attached()) {
        count_unattached(recorder_process_current(), record);
        return;
    }
    if (thread->producer.busy != 0) {
        lose_nested(thread, record);
        return;
    }
    thread->producer.busy = 1;
    __asm__ volatile("" ::: "memory");
    put_slowly(thread, record, NULL);
    __asm__ volatile("" ::: "memory");
    thread->producer.busy = 0;
}

static void thread_prepare(void *unused)
{
    (void)unused;
    if (!emit_slow_is_attached() && !thread_has_ended && session_is_open() && !second_sink_owns_thread()) {
        struct recorder_process *process = recorder_process_attach();
        if (process != NULL) {
            thread_attach(process);
        }
        watch_end_of_thread();
    }
    if (emit_slow_is_attached()) {
        recorder_ring_grow_whole(thread_of(varve_producer_current));
    }
}

void recorder_thread_prepare(void)
{
    if (recorder_is_confined()) {
        return;
    }
    struct recorder_signals saved;
    recorder_signals_block(&saved);
    (void)recorder_on_stack(thread_prepare, NULL);
    recorder_signals_restore(&saved);
    varve_callsite_here(); /* what the walk keeps for each thread */
}

void varve_emit_record(const struct varve_record *record)
{
    varve_emit(record);
}

struct emission {
    const struct varve_record *record;
    const struct recorder_signals *outer;
};

static void put_now(void *argument)
{
    const struct emission *emission = argument;
    if (emit_slow_is_attached()) {
        put_slowly(thread_of(varve_producer_current), emission->record, emission->outer);
    } else {
        put_first(emission->record);
    }
}

/* All of it with signals blocked, but for the second sink's fast path: a handler could emit, or fork, with
 * the ring half changed. */
void varve_emit_slow(const struct varve_record *record)
{
    struct recorder_signals saved;
    struct emission emission = {record, &saved};
    int saved_errno = errno;
    if (recorder_session() == NULL || (__atomic_load_n(&varve_emit_has_sink, __ATOMIC_RELAXED) != 0 &&
                                       put_with_sink(varve_producer_current, record))) {
        return;
    }
    if (recorder_is_confined()) {
        emit_confined(record);
        errno = saved_errno;
        return;
    }
    recorder_signals_block(&saved);
    if (emit_slow_is_attached()) {
        struct recorder_thread *thread = thread_of(varve_producer_current);
        if (thread->producer.busy != 0 || !recorder_on_stack(put_now, &emission)) {
            put_nested(thread, record);
        }
    } else if (session_is_open() && !recorder_on_stack(put_now, &emission)) {
        count_unattached(recorder_process_current(), record);
    }
    recorder_signals_restore(&saved);
    errno = saved_errno;
}

/* ---- what code that emits asks first ---- */

bool varve_records_wanted(unsigned records)
{
    static bool has_looked;
    if (!__atomic_load_n(&has_looked, __ATOMIC_ACQUIRE)) {
        recorder_prepare();
        __atomic_store_n(&has_looked, true, __ATOMIC_RELEASE);
    }
    return recorder_session() != NULL && (recorder_session()->records & records) != 0;
}

uint32_t varve_callsite_here(void)
{
    const struct session_control *session = recorder_session();
    const uintptr_t *frame = __builtin_frame_address(0);
    if (session == NULL || session->stacks == SESSION_STACKS_NONE || recorder_reentrant_depth > 0) {
        return 0;
    }
    struct callsite_start start = (struct callsite_start){.pc = frame[1], .sp = (uintptr_t)(frame + 2), .fp = frame[0]};
    return callsite_capture_inheriting(&start);
}
