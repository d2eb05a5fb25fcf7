/* SPDX-License-Identifier: Apache-2.0 */
/* C only: helpers of cmocka programs */
/*
 * One derivation of its own for each test, that events are handed to one by one, everything being checked after each.
 */
#ifndef VARVE_TESTS_SUPPORT_DERIVE_LAB_H
#define VARVE_TESTS_SUPPORT_DERIVE_LAB_H

#include "base/error.h"
#include "trace/model/derive.h"
#include "trace/model/domain.h"
#include "trace/model/model_event.h"
#include "trace/model/model_state.h"
#include "trace/record.h"

#include <stdint.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lab {
    char path[64];
    struct derive *derive;
    uint64_t seq;
};

static inline int lab_begin(void **state)
{
    struct lab *lab = calloc(1, sizeof(*lab));
    strcpy(lab->path, "/tmp/test_derive.XXXXXX");
    int fd = mkstemp(lab->path);
    close(fd);
    *state = lab;
    struct varve_message message;
    return fd < 0 ? -1 : derive_open(lab->path, &lab->derive, &message);
}

static inline int lab_end(void **state)
{
    struct lab *lab = *state;
    derive_close(lab->derive);
    unlink(lab->path);
    free(lab);
    return 0;
}

#define KIND_OF(memory, number) ((uint16_t)((unsigned)(memory) << VARVE_MEMORY_KIND_SHIFT | (number)))

/* An event of process 1 and thread 1, unless it says otherwise; returns it as it is stored. */
static inline struct event take(struct lab *lab, struct event event)
{
    event.seq = ++lab->seq;
    event.ts_ns = (int64_t)lab->seq * 100;
    event.process_id = event.process_id != 0 ? event.process_id : 1;
    event.thread_id = event.thread_id != 0 ? event.thread_id : event.process_id;
    struct varve_message message;
    assert_int_equal(derive_event(lab->derive, &event, &message), VARVE_OK);
    if (derive_check(lab->derive, &message) != VARVE_OK) {
        fail_msg("event %llu: %s", (unsigned long long)lab->seq, message.text);
    }
    return event;
}

/* Its code; for many events in turn, which are checked together. */
static inline int take_unchecked(struct lab *lab, struct event *event)
{
    event->seq = ++lab->seq;
    event->ts_ns = (int64_t)lab->seq * 100;
    event->process_id = event->thread_id = 1;
    struct varve_message message;
    return derive_event(lab->derive, event, &message);
}

static inline struct event heap(enum varve_kind kind, enum varve_cause cause, uint64_t addr, uint64_t size)
{
    return (struct event){.kind = (uint8_t)kind, .cause = (uint8_t)cause, .addr = addr, .size = size};
}

static inline struct event alloc_of(uint64_t addr, uint64_t size, unsigned memory)
{
    return (struct event){.kind = VARVE_KIND_DEV_ALLOC,
                          .cause = VARVE_CAUSE_CUDA_MALLOC,
                          .addr = addr,
                          .size = size,
                          .requested = 50,
                          .pool = KIND_OF(memory, 1)};
}

static inline struct event free_of(uint64_t addr)
{
    return (struct event){.kind = VARVE_KIND_DEV_FREE, .cause = VARVE_CAUSE_CUDA_FREE, .addr = addr};
}

static inline struct event failed(struct event event)
{
    event.flags |= VARVE_FLAG_FAILED;
    event.arg = 700;
    return event;
}

static inline const struct total *total_of(const struct lab *lab, unsigned domain, unsigned device)
{
    return &lab->derive->domains[slot_of(domain, device)].all;
}

#endif
