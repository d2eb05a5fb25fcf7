/* SPDX-License-Identifier: Apache-2.0 */
/* Domains (whose memory it is) and slots: a domain, or one device of it, for which totals are kept. */
#ifndef VARVE_TRACE_MODEL_DOMAIN_H
#define VARVE_TRACE_MODEL_DOMAIN_H

#include "trace/event_list.h"
#include "trace/record.h"

#include <stdbool.h>
#include <stdint.h>

enum domain {
    DOMAIN_HEAP = 1,          /* the malloc family */
    DOMAIN_MMAP = 2,          /* memory that the program itself maps, not the C library */
    DOMAIN_DEVICE = 3,        /* CUDA API: memory of a device */
    DOMAIN_BLOCK = 4,         /* blocks of a caching allocator */
    DOMAIN_PINNED = 5,        /* CUDA API: memory of the host that devices reach */
    DOMAIN_MANAGED = 6,       /* CUDA API: memory that moves between host and devices */
    DOMAIN_CUPTI = 7,         /* what DOMAIN_DEVICE is, as CUPTI reports it beside the CUDA recorder */
    DOMAIN_ADDRESS_SPACE = 8, /* mapped without access or without reserve: addresses, no memory yet */
    DOMAIN_PYTHON = 9,        /* what Python interpreters cut from the heap and from arenas */
    DOMAIN_LIMIT = 10,
};

/* Python's allocator asks malloc for larger objects: these are in the heap as well. */
#define PYTHON_OWN_MAX 512U

/* Totals are kept by slot: a domain, or a device of it; in this order. */
#define DEVICE_LIMIT 256U
#define SLOT_LIMIT (6U + 4U * DEVICE_LIMIT)

static const uint16_t slot_first[DOMAIN_LIMIT + 1] = {
    [DOMAIN_HEAP] = 1,
    [DOMAIN_MMAP] = 2,
    [DOMAIN_DEVICE] = 3,
    [DOMAIN_BLOCK] = 3 + DEVICE_LIMIT,
    [DOMAIN_PINNED] = 3 + 2 * DEVICE_LIMIT,
    [DOMAIN_MANAGED] = 4 + 2 * DEVICE_LIMIT,
    [DOMAIN_CUPTI] = 4 + 3 * DEVICE_LIMIT,
    [DOMAIN_ADDRESS_SPACE] = 4 + 4 * DEVICE_LIMIT,
    [DOMAIN_PYTHON] = 5 + 4 * DEVICE_LIMIT,
    [DOMAIN_LIMIT] = SLOT_LIMIT,
};

static inline unsigned domain_devices(unsigned domain)
{
    return (unsigned)slot_first[domain + 1] - slot_first[domain];
}

/* Device 0 stands for all devices where a domain does not distinguish them. */
static inline unsigned slot_of(unsigned domain, unsigned device)
{
    return slot_first[domain] + (domain_devices(domain) > 1 ? device : 0);
}

static inline unsigned slot_domain(unsigned slot)
{
    unsigned domain = 0;
    while (domain + 1 < DOMAIN_LIMIT && slot >= slot_first[domain + 1]) {
        domain++;
    }
    return domain;
}

static inline unsigned slot_device(unsigned slot)
{
    return slot - slot_first[slot_domain(slot)];
}

/* The groups of VARVE_EVENT_LIST, as they are spelled there. */
enum kind_group {
    KIND_GROUP_allocator = 1,
    KIND_GROUP_storage,
    KIND_GROUP_remat,
    KIND_GROUP_heap,
    KIND_GROUP_device,
    KIND_GROUP_process,
};

#define KIND_GROUP_ROW(code, NAME, name, group, addr, size, requested, arg, meaning) [code] = KIND_GROUP_##group,
static const uint8_t kind_groups[VARVE_KIND_LIMIT] = {VARVE_EVENT_LIST(KIND_GROUP_ROW)};
#undef KIND_GROUP_ROW

/* Kinds that the allocators emit, numbered by dev_seq. */
static inline bool kind_is_allocator(unsigned kind)
{
    return kind < VARVE_KIND_LIMIT && kind_groups[kind] == KIND_GROUP_allocator;
}

/* What the recorders of the CUDA API emit. */
static inline bool kind_is_api(unsigned kind)
{
    return kind < VARVE_KIND_LIMIT && kind_groups[kind] == KIND_GROUP_device;
}

/* What the storage layer emits. */
static inline bool kind_is_storage(unsigned kind)
{
    return kind < VARVE_KIND_LIMIT && kind_groups[kind] == KIND_GROUP_storage;
}

/* What planners of rematerialization emit. */
static inline bool kind_is_remat(unsigned kind)
{
    return kind < VARVE_KIND_LIMIT && kind_groups[kind] == KIND_GROUP_remat;
}

/* The domains of the CUDA API, whose events have durations where those of others have sizes. */
static inline bool domain_is_api(unsigned domain)
{
    return domain == DOMAIN_DEVICE || (domain >= DOMAIN_PINNED && domain <= DOMAIN_CUPTI);
}

/* Host memory that no recorder of a device or allocator knows more of: nothing lies beside its rows. */
static inline bool domain_is_host(unsigned domain)
{
    return domain == DOMAIN_HEAP || domain == DOMAIN_MMAP || domain == DOMAIN_ADDRESS_SPACE || domain == DOMAIN_PYTHON;
}

/* What most of the rows are of: they hold their own events, where all of these follows from them. */
static inline bool domain_holds_events(unsigned domain)
{
    return domain == DOMAIN_HEAP || domain == DOMAIN_PYTHON;
}

/* What the malloc family and Python's allocators did. */
static inline bool kind_is_of_heap(unsigned kind)
{
    return (kind >= VARVE_KIND_HEAP_ALLOC && kind <= VARVE_KIND_HEAP_REALLOC) ||
           (kind >= VARVE_KIND_PYTHON_ALLOC && kind <= VARVE_KIND_PYTHON_REALLOC);
}

/* Events by which memory is given back: what stack they have is their own, and they may have none. */
static inline bool kind_gives_back(unsigned kind)
{
    switch (kind) {
    case VARVE_KIND_FREE_REQUESTED:
    case VARVE_KIND_FREE_COMPLETED:
    case VARVE_KIND_SEGMENT_FREE:
    case VARVE_KIND_SEGMENT_UNMAP:
    case VARVE_KIND_STORAGE_DESTROY:
    case VARVE_KIND_HEAP_FREE:
    case VARVE_KIND_PYTHON_FREE:
    case VARVE_KIND_MUNMAP:
    case VARVE_KIND_DEV_FREE:
    case VARVE_KIND_DEV_FREE_ASYNC:
    case VARVE_KIND_VMM_UNMAP:
    case VARVE_KIND_VMM_RELEASE:
    case VARVE_KIND_VMM_ADDRESS_FREE:
        return true;
    default:
        return false;
    }
}

#endif
