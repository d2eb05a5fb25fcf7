/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an event gets into the ring of its thread: what the inline part of emit.h consists of. Nothing here is called by
 * others than emit.h and the recorder.
 */
#ifndef VARVE_TRACE_PRODUCER_H
#define VARVE_TRACE_PRODUCER_H

#include "trace/record.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VARVE_API __attribute__((visibility("default")))
#define VARVE_EMIT_AHEAD 16U /* slots */

/* A thread's end of its ring. The page it lies in reads as zeros in a fork child, which sends the child's
 * first event down the slow path: it attaches anew and never touches the ring of its parent. */
struct varve_producer {
    uint64_t head;
    uint64_t limit; /* head may grow up to here without a look at the consumer */
    struct varve_record *records;
    uint64_t mask;
    uint64_t *emitted;   /* in the ring's header: records begun */
    uint64_t *published; /* there too: records committed, of the ring or of its spill */
    uint32_t busy;       /* a record is being written: what a signal handler emits now is put aside (idle: always) */
    uint32_t nested;     /* records were put aside: they come before anything new */
};

/// This thread's producer; never NULL (an idle one with limit 0 before the first event).
extern VARVE_API __thread struct varve_producer *varve_producer_current __attribute__((tls_model("initial-exec")));

/// 1 if `ticks` are TSC ticks in this session, and all threads may read it.
extern VARVE_API uint32_t varve_clock_is_tsc;

/// 1 while events also go to a second sink: then none of them takes the fast path.
extern VARVE_API uint32_t varve_emit_has_sink;

/// 1 while several events of a call may be one record: this process records, and no second sink gets each of them.
extern VARVE_API uint32_t varve_emit_may_fold;

/// Everything that the fast path leaves out: first event of a thread, full ring, nested events, fork
/// children, the second sink.
VARVE_API void varve_emit_slow(const struct varve_record *record);
VARVE_API void varve_emit_nested(void);

/// CLOCK_MONOTONIC, past the C library. Async-signal-safe.
VARVE_API uint64_t varve_clock_monotonic_ns(void);

/// The session's clock where that is not the TSC, or where this thread may not read it.
VARVE_API uint64_t varve_clock_ticks_elsewhere(void);

static inline uint64_t varve_clock_ticks(void)
{
#if defined(__x86_64__)
    if (__builtin_expect(varve_clock_is_tsc != 0, 1)) {
        return __builtin_ia32_rdtsc();
    }
#endif
    return varve_clock_ticks_elsewhere();
}

/* One instruction, so that a signal handler that emits comes before it or after it; no other thread writes.
 */
static inline void varve_emit_count(uint64_t *emitted)
{
#if defined(__x86_64__)
    __asm__ volatile("addq $1, %0" : "+m"(*emitted) : : "cc", "memory");
#else
    __atomic_fetch_add(emitted, 1, __ATOMIC_RELAXED);
#endif
}

/* The collector has read the slots of the lap before: fetch a later one back from its core for writing, long
 * before it is its turn. */
static inline void varve_emit_fetch(const struct varve_record *slot)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*slot));
#else
    __builtin_prefetch(slot, 1);
#endif
}

/* A word of a record goes into its slot as it is: compilers would gather pairs of them in a vector register, which
 * takes longer than the second store, and spill what they gather. */
static inline void varve_emit_store(void *to, uint64_t word)
{
    typedef volatile uint64_t __attribute__((may_alias)) varve_word;

    *(varve_word *)to = word;
}

/* The slow path wants a record in memory. */
static __attribute__((noinline, unused, cold)) void varve_emit_words_slow(uint64_t ticks, uint64_t addr, uint64_t size,
                                                                          uint64_t requested, uint64_t arg,
                                                                          uint64_t id_stream, uint64_t tag,
                                                                          uint64_t last)
{
    struct varve_record record;

    record.ticks = ticks;
    record.addr = addr;
    record.size = size;
    record.requested = requested;
    record.arg = arg;
    record.id_stream = id_stream;
    record.dev_seq_kind_flags = tag;
    record.callsite = (uint32_t)last;
    record.pool = (uint16_t)(last >> 32);
    record.device = (uint8_t)(last >> 48);
    record.cause = (uint8_t)(last >> 56);
    varve_emit_slow(&record);
}

#ifdef __cplusplus
}
#endif

#endif
