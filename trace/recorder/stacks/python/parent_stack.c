/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python frames of a thread that waits, published for the threads that work for it: PyTorch's backward pass
 * runs on threads of its own, which have no frames, while the one that called backward() waits. One
 * publishes at a time; a second one's threads inherit the first one's frames. Who inherits copies and then
 * looks whether they are still published: a sequence lock. The wait keeps the code objects alive. Called by
 * recorder/stacks/callsite.c.
 */
#include "trace/recorder/stacks/python/parent_stack.h"
#include "trace/recorder/guest/memory.h"
#include "trace/recorder/stacks/python/frame.h"
#include "trace/recorder/stacks/python/stack.h"
#include "trace/trace.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#define PUBLISHED_MAX 64U

struct published {
    _Atomic uint32_t owner;   /* 0: none; 1: a thread of this process */
    _Atomic uint32_t version; /* odd while frames are written or taken away */
    _Atomic uint32_t count;
    struct python_frame frames[PUBLISHED_MAX];
};

static void *shared; /* struct published, in a wiped page: nothing is published in a fork child */
static _Thread_local __attribute__((tls_model("initial-exec"))) uint32_t publish_depth;
static _Thread_local __attribute__((tls_model("initial-exec"))) bool is_owner;

static void write_begin(struct published *published)
{
    atomic_fetch_add_explicit(&published->version, 1, memory_order_acq_rel);
    atomic_thread_fence(memory_order_release);
}

void varve_python_stack_publish(uint32_t skip)
{
    struct python_frame frames[PUBLISHED_MAX];
    struct published *published;
    uint32_t nobody = 0;
    unsigned count;

    if (publish_depth++ > 0 || (published = recorder_map_wiped_once(&shared, sizeof(*published))) == NULL ||
        !atomic_compare_exchange_strong(&published->owner, &nobody, 1)) {
        return;
    }
    is_owner = true;
    count = python_stack_capture(frames, PUBLISHED_MAX);
    skip = skip < count ? skip : count;
    write_begin(published);
    memcpy(published->frames, frames + skip, (count - skip) * sizeof(frames[0]));
    atomic_store_explicit(&published->count, count - skip, memory_order_relaxed);
    atomic_fetch_add_explicit(&published->version, 1, memory_order_release);
}

void varve_python_stack_withdraw(void)
{
    struct published *published = __atomic_load_n(&shared, __ATOMIC_ACQUIRE);

    if (publish_depth == 0 || --publish_depth > 0 || !is_owner) {
        return;
    }
    is_owner = false;
    write_begin(published);
    atomic_store_explicit(&published->count, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&published->version, 1, memory_order_release);
    atomic_store_explicit(&published->owner, 0, memory_order_release);
}

unsigned parent_stack_inherit(struct python_frame *frames, unsigned max)
{
    struct published *published = __atomic_load_n(&shared, __ATOMIC_ACQUIRE);
    uint32_t version;
    unsigned count;

    if (published == NULL || atomic_load_explicit(&published->owner, memory_order_acquire) == 0) {
        return 0;
    }
    version = atomic_load_explicit(&published->version, memory_order_acquire);
    count = atomic_load_explicit(&published->count, memory_order_relaxed);
    if (version % 2 != 0 || count > PUBLISHED_MAX) {
        return 0;
    }
    count = count < max ? count : max;
    memcpy(frames, published->frames, count * sizeof(frames[0]));
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&published->version, memory_order_relaxed) == version ? count : 0;
}
