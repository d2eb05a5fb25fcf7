/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emitting events, inside the recorded process (libvarve_trace.so).
 *
 * Functions may be called from any thread; sizes are bytes, times ns; functions return 0 or a negative enum
 * varve_error, with a reason in `message` (caller-owned, may be NULL), unless a comment says otherwise.
 */
#ifndef VARVE_TRACE_EMIT_H
#define VARVE_TRACE_EMIT_H

#include "trace/producer.h"
#include "trace/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Write one record, given as the words it consists of (`tag`: varve_record_tag, `last`: varve_record_last), which so
/// stay in registers until they are in its slot. The time is filled in here. Async-signal-safe; never allocates;
/// no system call unless the ring is full or new. Without a session the record is dropped at once.
static inline __attribute__((always_inline)) void varve_emit_words(uint64_t addr, uint64_t size, uint64_t requested,
                                                                   uint64_t arg, uint64_t id_stream, uint64_t tag,
                                                                   uint64_t last)
{
    struct varve_producer *producer = varve_producer_current;
    struct varve_record *slot;
    uint64_t ticks;
    uint64_t head;

    if (__builtin_expect(
            (producer->busy | producer->nested | __atomic_load_n(&varve_emit_has_sink, __ATOMIC_RELAXED)) != 0 ||
                producer->head >= producer->limit,
            0)) {
        varve_emit_words_slow(0, addr, size, requested, arg, id_stream, tag, last);
        return;
    }
    varve_emit_count(producer->emitted);
    ticks = varve_clock_ticks(); /* after the count, which is what a watermark rests on: see collector/ring_merge.c */
    producer->busy = 1;
    __asm__ volatile("" ::: "memory"); /* from here on a signal handler puts its events, which are later, aside */
    head = producer->head;
    if (__builtin_expect(head >= producer->limit, 0)) {
        producer->busy = 0; /* a handler has filled the ring meanwhile */
        varve_emit_words_slow(ticks, addr, size, requested, arg, id_stream, tag, last);
        return;
    }
    slot = &producer->records[head & producer->mask];
    varve_emit_fetch(&producer->records[(head + VARVE_EMIT_AHEAD) & producer->mask]);
    varve_emit_store(&slot->ticks, ticks);
    varve_emit_store(&slot->addr, addr);
    varve_emit_store(&slot->size, size);
    varve_emit_store(&slot->requested, requested);
    varve_emit_store(&slot->arg, arg);
    varve_emit_store(&slot->id_stream, id_stream);
    varve_emit_store(&slot->dev_seq_kind_flags, tag);
    varve_emit_store(&slot->callsite, last);
    __atomic_store_n(producer->published, head + 1, __ATOMIC_RELEASE);
    producer->head = head + 1;
    __asm__ volatile("" ::: "memory");
    producer->busy = 0;
    __asm__ volatile("" ::: "memory");
    if (__builtin_expect(producer->nested != 0, 0)) {
        varve_emit_nested();
    }
}

/// The same for a record whose `ticks` are 0. The compiler makes words of its fields where it sees them being set.
static inline __attribute__((always_inline)) void varve_emit(const struct varve_record *record)
{
    varve_emit_words(record->addr, record->size, record->requested, record->arg, record->id_stream,
                     record->dev_seq_kind_flags,
                     varve_record_last(record->callsite, record->pool, record->device, record->cause));
}

/// The same, not inline, for those who find it by dlsym: a program that is being recorded.
VARVE_API void varve_emit_record(const struct varve_record *record);

/// Number of the calling thread's stack, for varve_record.callsite, beginning with the caller; 0: none is
/// wanted. Async-signal-safe, never allocates. It is in the call-site file before it is returned.
VARVE_API uint32_t varve_callsite_here(void);

/// Publish the Python frames of the calling thread, without the `skip` innermost, as the parent stack that other
/// threads inherit in varve_callsite_here: until the matching withdrawal, for which this thread stays inside the
/// frames. Who has Python frames already puts them inside of these, unless its outermost one runs `thread_code`: the
/// code object in which threads that Python starts begin; borrowed, NULL: none. Nests; one thread publishes at a time.
/// The caller holds the GIL.
VARVE_API void varve_python_stack_publish(uint32_t skip, const void *thread_code);
VARVE_API void varve_python_stack_withdraw(void);

/// Is anything of these kinds (enum varve_records) wanted by the session that this process belongs to?
/// False without a session. A load and a branch.
enum varve_records {
    VARVE_RECORDS_HEAP = 1,    /* the malloc family, mmap */
    VARVE_RECORDS_CUDA = 2,    /* calls of the CUDA driver about memory */
    VARVE_RECORDS_CUPTI = 4,   /* the same as CUPTI reports them */
    VARVE_RECORDS_TORCH = 8,   /* PyTorch's allocator, or ours in its place */
    VARVE_RECORDS_PYTHON = 16, /* what Python interpreters cut from their arenas */
};
VARVE_API bool varve_records_wanted(unsigned records);

/* Not to be called by others. */
static inline void varve_mark_emit(enum varve_kind kind, const char *name)
{
    uint64_t words[3] = {0};
    char *text = (char *)words;

    if (!varve_records_wanted(UINT32_MAX)) {
        return;
    }
    for (unsigned i = 0; i < sizeof(words) && name[i] != '\0'; i++) {
        text[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
    }
    varve_emit_words(words[0], words[1], words[2], 0, 0, varve_record_tag(0, kind, 0),
                     varve_record_last(varve_callsite_here(), 0, 0, 0));
}

/// A phase of the program begins, of all its threads: what is created in it and outlives it is growth (view
/// storage_growth). Phases nest. Of the name the first 24 bytes count, and others than printable ASCII become '?'.
static inline void varve_mark_begin(const char *name)
{
    varve_mark_emit(VARVE_KIND_MARK_BEGIN, name);
}

/// The innermost phase of that name ends; nothing if there is none.
static inline void varve_mark_end(const char *name)
{
    varve_mark_emit(VARVE_KIND_MARK_END, name);
}

/// A number for a stream of a device, for varve_record.id_stream: 0 for handle 0, else the same number for
/// the same handle until the process ends; described once by a STREAM event. 65535: there are too many.
VARVE_API unsigned varve_stream_number(unsigned device, uint64_t handle);
/// Report once what `device`, a number of this process, is: DEVICE and DEVICE_NAME events. Later calls for the
/// same device do nothing. The collector numbers devices of all processes by their UUID.
VARVE_API void varve_device_describe(unsigned device, const unsigned char uuid[16], uint64_t total_bytes,
                                     const char *name);
VARVE_API bool varve_device_is_described(unsigned device);

#ifdef __cplusplus
}
#endif

#endif
