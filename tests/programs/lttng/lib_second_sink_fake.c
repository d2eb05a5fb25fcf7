/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A provider library that knows no LTTng: it writes whatever it gets into the file that
 * VARVE_TEST_SINK_LOG names, which a test maps too (unit/sink_support.h), and behaves as badly as
 * LTTng-UST may: threads of its own that start when it is loaded and when it is opened, allocate and emit;
 * memory for each thread's first record; errno changed by every record. Records are written without a lock,
 * since they come from signal handlers too.
 */
#define SINK_LAYOUT_ONLY
#include "support/lttng/second_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

sink_provider_open varve_sink_provider;

static struct sink_log *journal; /* NULL: no test has asked */
static const struct sink_host *host;
static const int *states[SINK_KINDS];
static __thread bool knows_thread;
static uint32_t threads_started, threads_awake; /* the latter is atomic */

/* ---- threads of its own ---- */

/* What a program does, and must not be taken for the program's. */
static void act(void)
{
    struct varve_record record = {.addr = 1, .size = SINK_OWN_SIZE};
    uintptr_t address = (uintptr_t)journal->emit;
    void (*emit)(const struct varve_record *);
    record.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_HEAP_ALLOC, 0);
    if (address != 0) {
        memcpy(&emit, &address, sizeof(emit));
        emit(&record);
    }
    free(malloc(SINK_OWN_SIZE));
}

/* Where a test wants a trace to begin at another moment. */
static void hold(void)
{
    const struct timespec nap = {0, 200000};
    __atomic_add_fetch(&journal->holding, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&journal->must_hold, __ATOMIC_ACQUIRE) != 0) {
        nanosleep(&nap, NULL);
    }
}

static void obey(void)
{
    while (__atomic_load_n(&host, __ATOMIC_ACQUIRE) != NULL &&
           journal->starts_done < __atomic_load_n(&journal->starts_wanted, __ATOMIC_ACQUIRE)) {
        hold();
        host->started(host->context);
        __atomic_add_fetch(&journal->starts_done, 1, __ATOMIC_ACQ_REL);
    }
    while (journal->emits_done < __atomic_load_n(&journal->emits_wanted, __ATOMIC_ACQUIRE)) {
        act();
        __atomic_add_fetch(&journal->emits_done, 1, __ATOMIC_ACQ_REL);
    }
}

/* Every other thread allocates for the first time when the library has been open for a while. */
static void *live(void *argument)
{
    const struct timespec nap = {0, 200000};
    uintptr_t number = (uintptr_t)argument;
    uint32_t naps_left = number % 2 == 0 ? 0 : 20;
    if (naps_left == 0) {
        act();
    }
    __atomic_add_fetch(&threads_awake, 1, __ATOMIC_ACQ_REL);
    __atomic_add_fetch(&journal->own_running, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&journal->must_stop, __ATOMIC_ACQUIRE) == 0) {
        if (number == 0) {
            obey();
        }
        if (naps_left > 0 && __atomic_load_n(&host, __ATOMIC_ACQUIRE) != NULL && --naps_left == 0) {
            act();
            __atomic_add_fetch(&journal->late_acts, 1, __ATOMIC_ACQ_REL);
        }
        nanosleep(&nap, NULL);
    }
    act();
    __atomic_sub_fetch(&journal->own_running, 1, __ATOMIC_ACQ_REL);
    return NULL;
}

/* As LTTng does: with all signals blocked. The first one obeys. */
static void start_threads(uint32_t first, uint32_t count)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (uint32_t i = first; i < first + count; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, live, (void *)(uintptr_t)i) == 0) {
            threads_started++;
            pthread_detach(thread);
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static struct sink_log *map_journal(void)
{
    const char *path = getenv(SINK_LOG_ENVIRONMENT);
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *memory = MAP_FAILED;
    if (fd >= 0) {
        memory = mmap(NULL, sizeof(struct sink_log), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
    }
    return memory == MAP_FAILED ? NULL : memory;
}

__attribute__((constructor)) static void load(void)
{
    journal = map_journal();
    if (journal != NULL) {
        start_threads(journal->threads_at_open, journal->threads_at_load);
    }
}

/* ---- records ---- */

static void emit_record(const struct varve_sink_origin *origin, uint64_t ring_seq, const struct varve_record *record)
{
    uint32_t at = __atomic_fetch_add(&journal->record_count, 1, __ATOMIC_ACQ_REL);
    uintptr_t address = (uintptr_t)journal->inside;
    void (*inside)(const struct sink_event *);
    struct sink_event *reported = &journal->records[at];
    if (at >= SINK_RECORDS_MAX) {
        abort();
    }
    if (!knows_thread) {
        knows_thread = true;
        free(malloc(SINK_OWN_SIZE));
    }
    reported->origin = *origin;
    reported->ring_seq = ring_seq;
    reported->record = *record;
    reported->emitter = (int32_t)getpid();
    if (address != 0) {
        memcpy(&inside, &address, sizeof(inside));
        inside(reported);
    }
    __atomic_store_n(&reported->is_whole, 1, __ATOMIC_RELEASE);
    errno = EXDEV;
}

/* ---- everything else ---- */

/* Takes the next one and begins its text; the rest is appended by `add`, until `end`. */
static struct sink_fact *begin(void)
{
    uint32_t at = __atomic_fetch_add(&journal->fact_count, 1, __ATOMIC_ACQ_REL);
    if (at >= SINK_FACTS_MAX) {
        abort();
    }
    journal->facts[at].emitter = (int32_t)getpid();
    return &journal->facts[at];
}

#define ADD(fact, ...)                                                               \
    do {                                                                             \
        size_t add_at = strlen((fact)->text);                                        \
        snprintf((fact)->text + add_at, sizeof((fact)->text) - add_at, __VA_ARGS__); \
    } while (0)

static void end(struct sink_fact *fact)
{
    __atomic_store_n(&fact->is_whole, 1, __ATOMIC_RELEASE);
}

typedef unsigned long long wide;

/* Facts of which nothing has a length of its own. */
#define FACT(name, parameters, ...)       \
    static void emit_##name parameters    \
    {                                     \
        struct sink_fact *fact = begin(); \
        ADD(fact, #name " " __VA_ARGS__); \
        end(fact);                        \
    }

FACT(process, (const struct varve_sink_process *p),
     "%u pid=%d parent=%u parent_pid=%d rank=%d trace_id=%llu clock=%u start=%llu proc=%llu executable=%s command=%s",
     p->process, p->pid, p->parent, p->parent_pid, p->rank, (wide)p->trace_id, p->clock_kind, (wide)p->start_ticks,
     (wide)p->start_ticks_proc, p->executable, p->command_line)
FACT(process_end, (const struct varve_sink_process_end *e), "%u pid=%d end=%u exec=%s", e->process, e->pid, e->end,
     e->exec_path)
FACT(thread, (const struct varve_sink_thread *t), "p%u.r%u pid=%d tid=%d created=%llu name=%s", t->origin.process,
     t->origin.ring, t->origin.pid, t->origin.tid, (wide)t->created_ticks, t->name)
FACT(thread_end, (const struct varve_sink_thread_end *e),
     "p%u.r%u pid=%d tid=%d emitted=%llu lost=%llu lost_bytes=%llu", e->origin.process, e->origin.ring, e->origin.pid,
     e->origin.tid, (wide)e->emitted, (wide)e->lost, (wide)e->lost_bytes)
FACT(clock, (const struct varve_sink_clock *c), "trace_id=%llu ticks=%llu mono=%lld real=%lld", (wide)c->trace_id,
     (wide)c->ticks, (long long)c->mono_ns, (long long)c->real_ns)
FACT(module_gone, (uint32_t process, int32_t pid, uint32_t number), "%u pid=%d number=%u", process, pid, number)
FACT(code, (const struct varve_sink_code *c), "%u pid=%d code=%u line=%u function=%s file=%s", c->process, c->pid,
     c->code, c->first_line, c->function, c->file)

static void emit_module(const struct varve_sink_module *m)
{
    struct sink_fact *fact = begin();
    ADD(fact, "module %u pid=%d number=%u base=%llx end=%llx bias=%llx path=%s build_id=", m->process, m->pid,
        m->number, (wide)m->base, (wide)m->end, (wide)m->bias, m->path);
    for (uint32_t i = 0; i < m->build_id_bytes; i++) {
        ADD(fact, "%02x", m->build_id[i]);
    }
    end(fact);
}

static void emit_callsite(const struct varve_sink_callsite *s)
{
    struct sink_fact *fact = begin();
    ADD(fact, "callsite %u pid=%d callsite=%u native=", s->process, s->pid, s->callsite);
    for (uint32_t i = 0; i < s->native_count; i++) {
        ADD(fact, "%llx,", (wide)s->native[i]);
    }
    ADD(fact, " python=");
    for (uint32_t i = 0; i < s->python_count; i++) {
        ADD(fact, "%u:%x,", s->codes[i], s->lines[i]);
    }
    end(fact);
}

static void emit_meta_text(uint64_t trace_id, const char *key, const char *value)
{
    struct sink_fact *fact = begin();
    ADD(fact, "meta trace_id=%llu %s text=%s", (wide)trace_id, key, value);
    end(fact);
}

static void emit_meta_integer(uint64_t trace_id, const char *key, int64_t value)
{
    struct sink_fact *fact = begin();
    ADD(fact, "meta trace_id=%llu %s integer=%lld", (wide)trace_id, key, (long long)value);
    end(fact);
}

static struct sink_provider provider = {
    .version = SINK_INTERFACE_VERSION,
    .enabled = states,
    .record = emit_record,
    .process = emit_process,
    .process_end = emit_process_end,
    .thread = emit_thread,
    .thread_end = emit_thread_end,
    .clock = emit_clock,
    .module = emit_module,
    .module_gone = emit_module_gone,
    .code = emit_code,
    .callsite = emit_callsite,
    .meta_text = emit_meta_text,
    .meta_integer = emit_meta_integer,
};

/* A process may open it once more, for another test with another file. */
const struct sink_provider *varve_sink_provider(uint32_t version, const struct sink_host *of_opener)
{
    bool is_recorded = getenv("VARVE_SESSION") != NULL; /* else it is the collector */
    journal = map_journal();
    if (journal == NULL) {
        return NULL;
    }
    start_threads(0, journal->threads_at_open);
    while (__atomic_load_n(&threads_awake, __ATOMIC_ACQUIRE) < threads_started) {
        usleep(100); /* they have allocated and emitted while the library is being opened */
    }
    if (journal->version != version) {
        __atomic_add_fetch(&journal->refused, 1, __ATOMIC_ACQ_REL);
        return NULL;
    }
    for (unsigned kind = 0; kind < SINK_KINDS; kind++) {
        states[kind] = &(is_recorded ? journal->enabled : journal->enabled_there)[kind];
    }
    __atomic_store_n(&host, of_opener, __ATOMIC_RELEASE);
    __atomic_add_fetch(&journal->opened, 1, __ATOMIC_ACQ_REL);
    return &provider;
}
