/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * What the fake driver of driver_fake.h is: what is out, what each thread has, what is to go wrong and
 * what went wrong first; and what every call of it must find.
 */
#ifndef VARVE_TESTS_SUPPORT_CUDA_FAKE_STATE_H
#define VARVE_TESTS_SUPPORT_CUDA_FAKE_STATE_H

#include "alloc/alloc.h"
#include "alloc/device/cuda_device.h"

#include <stdio.h>
#include <string.h>

#define FAKE_DEVICES 3
#define FAKE_OBJECTS 512
#define FAKE_TOTAL ((size_t)1 << 40)
#define FAKE_UNIT ((uint64_t)2 << 20)
#define FAKE_ORDINAL 1 /* the device under test */

enum fake_kind {
    FAKE_NONE,
    FAKE_SEGMENT,
    FAKE_RESERVATION,
    FAKE_MAPPING,
    FAKE_HANDLE,
    FAKE_IMPORT, /* count: times that it is open */
    FAKE_EVENT,  /* count: recorded, and not complete; bytes: the stream of the last record */
    FAKE_STREAM,
    FAKE_MODULE,
    FAKE_RETAIN, /* of the context of device `addr` */
    FAKE_POOL,
    FAKE_POOLED, /* allocated from it */
    FAKE_PINNED, /* host memory */
};

struct fake_object {
    enum fake_kind kind;
    uint64_t addr, bytes, count;
};

/* `stream` was made to wait for what `other` had. */
struct fake_order {
    uint64_t stream, other;
};

/* A copy or a fill, as its call was given; what it does not have is 0. */
struct fake_transfer {
    const char *name;
    uint64_t target, target_pitch, source, source_pitch, width, rows, stream, value;
};

#define FAKE_TRANSFERS 16

static struct fake {
    struct fake_object objects[FAKE_OBJECTS];
    uint64_t next;
    size_t granularity;
    uint64_t calls, event_creates, event_records, waits, orders, trims;
    uint64_t fail_at; /* this call, counted from now on, fails; 0: none */
    cuda_result fail_with;
    bool has_ended, has_no_memory, is_event_pending, has_no_pools;
    cuda_result context_result; /* of making a context current */
    cuda_result peer_result;    /* of giving a peer access */
    uint64_t captured;          /* stream; 0: none */
    uint64_t free_stream;       /* of the last pool_free */
    uint64_t free_orders;       /* orders there were by then */
    struct fake_order order[8]; /* the first ones */
    uint64_t transfers, transfers_seen;
    struct fake_transfer transfer[FAKE_TRANSFERS]; /* the first ones */
    int handle_types;                              /* of the last vmm_create */
    int peer_from, peer_to;                        /* of the last context_enable_peer */
    int pool_peer;                                 /* of the last pool_set_access */
    int pointer_device;                            /* of all memory asked about, from FAKE_ORDINAL on */
    struct varve_device *device;                   /* whose resource table calls check; NULL: nobody's */
    char wrong[160];                               /* the first thing that was; "" */
} fake;

/* What the driver keeps for a thread. */
static __thread struct fake_thread {
    cuda_context contexts[8];
    int depth;
    enum cuda_capture_mode mode;
} fake_thread;

static inline void fake_wrong(const char *what, uint64_t addr)
{
    if (fake.wrong[0] == '\0') {
        snprintf(fake.wrong, sizeof(fake.wrong), "%s (%#llx)", what, (unsigned long long)addr);
    }
}

static inline struct fake_object *fake_find(enum fake_kind kind, uint64_t addr)
{
    for (size_t i = 0; i < FAKE_OBJECTS; i++) {
        if (fake.objects[i].kind == kind && (kind == FAKE_NONE || fake.objects[i].addr == addr)) {
            return &fake.objects[i];
        }
    }
    return NULL;
}

static inline size_t fake_count(enum fake_kind kind)
{
    size_t count = 0;
    for (size_t i = 0; i < FAKE_OBJECTS; i++) {
        count += fake.objects[i].kind == kind;
    }
    return count;
}

static inline uint64_t fake_add(enum fake_kind kind, uint64_t addr, uint64_t bytes)
{
    struct fake_object *object = fake_find(FAKE_NONE, 0);
    if (!object) {
        fake_wrong("too many objects", addr);
        return 0;
    }
    if (addr == 0) {
        addr = fake.next;
        fake.next += (bytes / FAKE_UNIT + 2) * FAKE_UNIT;
    }
    *object = (struct fake_object){kind, addr, bytes, 1};
    return addr;
}

static inline cuda_result fake_drop(enum fake_kind kind, uint64_t addr, uint64_t bytes)
{
    struct fake_object *object = fake_find(kind, addr);
    if (!object || (bytes != 0 && object->bytes != bytes)) {
        fake_wrong("given back, but not out", addr);
        return CUDA_RESULT_INVALID_VALUE;
    }
    if (--object->count == 0) {
        object->kind = FAKE_NONE;
    }
    return CUDA_RESULT_SUCCESS;
}

/* ---- what a call must find ---- */

enum fake_need {
    FAKE_ANYHOW = 0,
    FAKE_INSIDE = 1, /* the device's context, relaxed mode */
    FAKE_LASTS = 2,  /* the resource table is open */
};

static inline cuda_context fake_context(int ordinal)
{
    return (cuda_context)(uintptr_t)(0xc0000 + ordinal);
}

static inline cuda_context fake_current(void)
{
    return fake_thread.depth ? fake_thread.contexts[fake_thread.depth - 1] : NULL;
}

static inline cuda_result fake_call(const char *name, unsigned needs)
{
    fake.calls++;
    if (fake.has_ended) {
        return CUDA_RESULT_DEINITIALIZED;
    }
    if ((needs & FAKE_INSIDE) && fake_current() != fake_context(FAKE_ORDINAL)) {
        fake_wrong(name, 1);
    }
    if ((needs & FAKE_INSIDE) && fake_thread.mode != CUDA_CAPTURE_MODE_RELAXED) {
        fake_wrong(name, 2);
    }
    if ((needs & FAKE_LASTS) && fake.device) {
        if (pthread_mutex_trylock(&cuda_of(fake.device)->table.mutex) != 0) {
            fake_wrong(name, 3);
        } else {
            pthread_mutex_unlock(&cuda_of(fake.device)->table.mutex);
        }
    }
    if (fake.fail_at != 0 && --fake.fail_at == 0) {
        return fake.fail_with;
    }
    return CUDA_RESULT_SUCCESS;
}

#define FAKE_CALL(name, needs)                           \
    do {                                                 \
        cuda_result called = fake_call((name), (needs)); \
        if (called != CUDA_RESULT_SUCCESS) {             \
            return called;                               \
        }                                                \
    } while (0)

static inline void fake_not_captured(const char *what, cuda_stream stream)
{
    if (stream && (uint64_t)(uintptr_t)stream == fake.captured) {
        fake_wrong(what, fake.captured);
    }
}

/* A call with a handle of that kind, which must be out. */
static inline cuda_result fake_use(const char *name, enum fake_kind kind, const void *handle, unsigned needs)
{
    FAKE_CALL(name, needs);
    if (!fake_find(kind, (uint64_t)(uintptr_t)handle)) {
        fake_wrong(name, (uint64_t)(uintptr_t)handle);
    }
    return CUDA_RESULT_SUCCESS;
}

#endif
