/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second sink inside the workload: the provider library is opened before the program's main, and from
 * then on gets each record before that is committed to the ring. Its threads are not the program's, nor is
 * what it allocates. Fork children and threads past their end can't use it: their records stay unmarked,
 * and the collector emits them. While no trace wants events the detour through here is off; a thread of the
 * library switches it on again.
 */
#include "trace/recorder/emit_slow.h"
#include "trace/guest/confinement.h"
#include "trace/guest/elf_symbol.h"
#include "trace/guest/reentrant.h"
#include "trace/guest/guest_signals.h"
#include "trace/guest/guest_memory.h"
#include "trace/recorder/ring.h"
#include "trace/recorder/session.h"
#include "trace/format/sink_provider.h"
#include "base/syscall.h"
#include "trace/format/ring_format.h"
#include "trace/format/session_format.h"
#include "trace/sink.h"
#include "trace/producer.h"
#include "trace/record.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>

#define OWN_THREADS_MAX 8U
#define OWN_OBJECTS_MAX 8U
#define THREADS_MAX 256U
#define MISSES_TO_LOOK 4096U /* records that nobody wanted, until we look whether anybody wants any */

static bool is_opening;
static int32_t opener;
static int32_t own_threads[OWN_THREADS_MAX];
static uint32_t starts; /* traces that have begun */

bool second_sink_is_closed;
static struct {
    uintptr_t begin, end;
} own_objects[OWN_OBJECTS_MAX];
static unsigned own_object_count;
static __thread uint32_t misses;

bool second_sink_owns_thread(void)
{
    const struct recorder_process *process = recorder_process_page();
    if (process == NULL) {
        return false;
    }
    if (__atomic_load_n(&is_opening, __ATOMIC_ACQUIRE)) { /* asked first: `second_sink` is set before it ends */
        return (int32_t)recorder_sys_gettid() != opener;  /* made meanwhile, before main */
    }
    if (__atomic_load_n(&process->second_sink, __ATOMIC_ACQUIRE) == NULL) {
        return false;
    }
    int32_t tid = (int32_t)recorder_sys_gettid();
    for (unsigned i = 0; i < OWN_THREADS_MAX; i++) {
        if (own_threads[i] == tid) {
            return true;
        }
    }
    return false;
}

/* Of getdents64(2). */
struct folder_entry {
    uint64_t inode;
    int64_t next;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

static unsigned list_threads(int32_t *tids, unsigned max)
{
    _Alignas(struct folder_entry) char entries[1024];
    int folder = recorder_sys_open("/proc/self/task", O_RDONLY | O_DIRECTORY, 0);
    if (folder < 0) {
        return 0;
    }
    unsigned count = 0;
    long got;
    while ((got = recorder_syscall(SYS_getdents64, folder, (long)entries, sizeof(entries), 0, 0, 0)) > 0) {
        for (long at = 0; at < got && count < max; at += ((struct folder_entry *)(entries + at))->bytes) {
            const char *name = ((struct folder_entry *)(entries + at))->name;
            if (name[0] >= '0' && name[0] <= '9') {
                tids[count++] = (int32_t)recorder_number(name);
            }
        }
    }
    recorder_sys_close(folder);
    return count;
}

/* Threads that were not there before. */
static void note_own_threads(const int32_t *before, unsigned before_count)
{
    int32_t after[THREADS_MAX];
    unsigned after_count = list_threads(after, THREADS_MAX);
    unsigned own = 0;
    for (unsigned i = 0; i < after_count && own < OWN_THREADS_MAX; i++) {
        bool is_new = true;
        for (unsigned j = 0; j < before_count; j++) {
            is_new = is_new && after[i] != before[j];
        }
        if (is_new) {
            own_threads[own++] = after[i];
        }
    }
}

/* Text of the objects that came with the library: ours and LTTng's. */
static int note_own_object(struct dl_phdr_info *info, size_t bytes, void *context)
{
    (void)bytes;
    (void)context;
    if (strstr(info->dlpi_name, "lttng") == NULL || own_object_count == OWN_OBJECTS_MAX) {
        return 0;
    }
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_LOAD && (header->p_flags & PF_X) != 0) {
            own_objects[own_object_count].begin = info->dlpi_addr + header->p_vaddr;
            own_objects[own_object_count].end = own_objects[own_object_count].begin + header->p_memsz;
            own_object_count++;
            break;
        }
    }
    return 0;
}

bool second_sink_owns_code(uintptr_t pc)
{
    for (unsigned i = 0; i < own_object_count; i++) {
        if (pc >= own_objects[i].begin && pc < own_objects[i].end) {
            return true;
        }
    }
    return false;
}

static bool is_any_enabled(const struct sink_provider *provider)
{
    for (unsigned kind = 0; kind < VARVE_KIND_LIMIT; kind++) {
        if (__atomic_load_n(provider->enabled[kind], __ATOMIC_RELAXED) > 0) {
            return true;
        }
    }
    return false;
}

/* In a thread of the provider's. */
static void sink_emit_started(void *context)
{
    const struct sink_provider *provider =
        __atomic_load_n(&recorder_process_page()->second_sink, __ATOMIC_ACQUIRE); /* the program may exit now */
    (void)context;
    __atomic_add_fetch(&starts, 1, __ATOMIC_ACQ_REL);
    if (provider != NULL) {
        __atomic_store_n(&varve_emit_has_sink, 1, __ATOMIC_RELEASE);
    }
}

/* Before the library's destructor, which pulls its tracepoints out one by one: from here on the collector
 * emits what comes. What that destructor frees was never recorded when it was allocated. */
static void close_at_exit(void)
{
    struct recorder_process *process = recorder_process_page();
    elf_each_object(note_own_object, NULL);
    second_sink_is_closed = true;
    __atomic_store_n(&process->second_sink, NULL, __ATOMIC_RELEASE);
    __atomic_store_n(&varve_emit_has_sink, 0, __ATOMIC_RELEASE);
}

static const struct sink_provider *sink_emit_load_provider(const char *path)
{
    static const struct sink_host host = {.started = sink_emit_started};
    /* a relative one would be looked for wherever the program stands */
    sink_provider_open *open_provider = path[0] == '/' ? sink_provider_find(path) : NULL;
    return open_provider != NULL ? open_provider(SINK_INTERFACE_VERSION, &host) : NULL;
}

void second_sink_open(void)
{
    const struct session_control *session = recorder_session();
    struct recorder_process *process = recorder_process_page();
    if (session == NULL || process == NULL || (session->sink & SESSION_SINK_LTTNG) == 0 || recorder_is_confined()) {
        return;
    }
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    opener = (int32_t)recorder_sys_gettid();
    int32_t before[THREADS_MAX];
    unsigned before_count = list_threads(before, THREADS_MAX);
    __atomic_store_n(&is_opening, true, __ATOMIC_RELEASE);
    const struct sink_provider *provider = sink_emit_load_provider(session->sink_path);
    if (provider != NULL && atexit(close_at_exit) == 0) {
        note_own_threads(before, before_count);
        __atomic_store_n(&process->second_sink, provider, __ATOMIC_RELEASE);
        __atomic_store_n(&varve_emit_has_sink, 1, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&is_opening, false, __ATOMIC_RELEASE);
    recorder_reentrant_end(&saved);
}

void second_sink_check(void)
{
    const struct sink_provider *provider = __atomic_load_n(&recorder_process_page()->second_sink, __ATOMIC_ACQUIRE);
    if (provider != NULL && __atomic_load_n(&varve_emit_has_sink, __ATOMIC_RELAXED) == 0 && is_any_enabled(provider)) {
        __atomic_store_n(&varve_emit_has_sink, 1, __ATOMIC_RELEASE);
    }
}

/* Nobody wanted a record; when nobody wants any, the detour ends. */
static void count_miss(const struct sink_provider *provider)
{
    uint32_t starts_before = __atomic_load_n(&starts, __ATOMIC_ACQUIRE);
    if (++misses < MISSES_TO_LOOK) {
        return;
    }
    misses = 0;
    if (!is_any_enabled(provider)) {
        __atomic_store_n(&varve_emit_has_sink, 0, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&starts, __ATOMIC_SEQ_CST) != starts_before) {
            __atomic_store_n(&varve_emit_has_sink, 1, __ATOMIC_RELEASE);
        }
    }
}

/* Dropped records count where their `lost` record lies in the order. */
static uint64_t sink_emit_sequence_of(const struct recorder_thread *thread, const struct varve_record *record)
{
    const struct ring_header *ring = thread->ring;
    uint64_t dropped = ring->lost + ring->lost_folded - thread->lost_open;
    return ring->head + ring->spill_head + dropped + (varve_record_kind(record) == VARVE_KIND_LOST ? record->arg : 0) +
           1;
}

void second_sink_emit(struct recorder_thread *thread, struct varve_record *record)
{
    const struct recorder_process *process = recorder_process_page();
    const struct sink_provider *provider = __atomic_load_n(&process->second_sink, __ATOMIC_ACQUIRE);
    const struct ring_header *ring = thread->ring;
    struct varve_sink_origin origin;
    if (provider == NULL) {
        __atomic_store_n(&varve_emit_has_sink, 0, __ATOMIC_RELEASE); /* a fork child */
        return;
    }
    if (ring->ring_index == 0) {
        return; /* of a thread that is past its end: the provider has forgotten it */
    }
    if (*provider->enabled[varve_record_kind(record) % VARVE_KIND_LIMIT] <= 0) {
        count_miss(provider);
        return;
    }
    origin = (struct varve_sink_origin){
        .process = ring->process_id, .ring = ring->ring_index, .pid = process->control->pid, .tid = (int32_t)ring->tid};
    record->dev_seq_kind_flags |= VARVE_FLAG_SECOND_SINK;
    if (thread->is_known_to_sink) {
        provider->record(&origin, sink_emit_sequence_of(thread, record), record);
        return;
    }
    thread->is_known_to_sink = true;
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    provider->record(&origin, sink_emit_sequence_of(thread, record), record);
    recorder_reentrant_end(&saved);
}
