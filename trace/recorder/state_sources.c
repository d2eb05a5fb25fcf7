/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of those who can tell what they hold when a trace begins in mid-run. The hard part is that a dump
 * calls foreign code and may be long, while allocators come and go in other threads, some of them with locks
 * in hand that the tracer wants: so the list's own lock is held for a few instructions only, a dump holds
 * none at all, and nobody waits for it but the one whose source is being asked just then, asleep.
 *
 * All of it lies in a page that the kernel wipes in fork children: no lock stays held there, and the list is
 * empty. What a child inherits may be a copy of something that another thread of its parent was changing, so
 * nobody should walk it; and the tracer has told of it in the parent's name.
 */
#include "trace/recorder/state_sources.h"
#include "trace/recorder/guest/lock.h"
#include "trace/recorder/guest/memory.h"
#include "trace/base/syscall.h"
#include "trace/sink.h"
#include "trace/trace.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>

struct state_sources {
    uint32_t lock;                      /* guards all below */
    bool is_dumping;                    /* at most one dump at a time */
    struct varve_state_source *first;   /* linked by `next` */
    struct varve_state_source *current; /* being asked now, without the lock */
    struct varve_state_source *later;   /* what the dump asks next */
    uint32_t turns; /* futex: grows whenever `current` is let go of or a dump ends; wraps around */
};

#define STATE_SOURCES_BYTES 4096U
static_assert(sizeof(struct state_sources) <= STATE_SOURCES_BYTES, "fits its page");

/* Made by the first source; the same in fork children, where it reads as zeros. */
static struct state_sources *page;

static struct state_sources *sources_made(void)
{
    struct state_sources *sources = __atomic_load_n(&page, __ATOMIC_ACQUIRE);
    struct state_sources *fresh;

    if (sources != NULL) {
        return sources;
    }
    fresh = recorder_map_wiped(STATE_SOURCES_BYTES);
    if (fresh != NULL &&
        !__atomic_compare_exchange_n(&page, &sources, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        recorder_unmap(fresh, STATE_SOURCES_BYTES); /* another thread was first */
        return sources;
    }
    return fresh;
}

/* Until a source is let go of or a dump ends. The lock is held, and open meanwhile. */
static void wait_for_turn(struct state_sources *sources)
{
    uint32_t seen = sources->turns;

    recorder_unlock(&sources->lock);
    recorder_sys_futex(&sources->turns, FUTEX_WAIT_PRIVATE, seen, NULL);
    recorder_lock(&sources->lock);
}

/* The lock is held. */
static void take_turn(struct state_sources *sources)
{
    __atomic_store_n(&sources->turns, sources->turns + 1, __ATOMIC_RELAXED);
    recorder_sys_futex(&sources->turns, FUTEX_WAKE_PRIVATE, INT_MAX, NULL);
}

void varve_state_source_add(struct varve_state_source *source)
{
    struct state_sources *sources = sources_made();

    if (sources == NULL) {
        return; /* there is no recorder either: it needs pages of that kind, too */
    }
    recorder_lock(&sources->lock);
    source->next = sources->first; /* in front of what a running dump has yet to ask */
    sources->first = source;
    recorder_unlock(&sources->lock);
}

void varve_state_source_remove(struct varve_state_source *source)
{
    struct state_sources *sources = __atomic_load_n(&page, __ATOMIC_ACQUIRE);
    struct varve_state_source **link;

    if (sources == NULL) {
        return;
    }
    recorder_lock(&sources->lock);
    for (link = &sources->first; *link != NULL && *link != source; link = &(*link)->next) {
    }
    if (*link != NULL) { /* else it is the parent's, and this a fork child */
        *link = source->next;
    }
    if (sources->later == source) {
        sources->later = source->next;
    }
    while (sources->current == source) {
        wait_for_turn(sources);
    }
    recorder_unlock(&sources->lock);
}

void state_sources_dump(const struct varve_state_sink *sink)
{
    struct state_sources *sources = __atomic_load_n(&page, __ATOMIC_ACQUIRE);

    if (sources == NULL) {
        return;
    }
    recorder_lock(&sources->lock);
    while (sources->is_dumping) {
        wait_for_turn(sources);
    }
    sources->is_dumping = true;
    sources->later = sources->first;
    while (sources->later != NULL) {
        struct varve_state_source *source = sources->later;

        sources->later = source->next;
        sources->current = source;
        recorder_unlock(&sources->lock);
        source->dump(source, sink);
        recorder_lock(&sources->lock);
        sources->current = NULL;
        take_turn(sources);
    }
    sources->is_dumping = false;
    take_turn(sources);
    recorder_unlock(&sources->lock);
}
