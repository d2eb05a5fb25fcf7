/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a request failed for want of memory, by the accounting of that moment. Pure functions, called by
 * the command `oom`.
 */
#ifndef VARVE_ANALYSIS_WHATIF_OOM_CAUSE_H
#define VARVE_ANALYSIS_WHATIF_OOM_CAUSE_H

#include <stdint.h>

#define OOM_UNKNOWN UINT64_MAX

/* The memory of one allocator when a request failed; bytes. */
struct oom_memory {
    uint64_t requested, rounded, segment; /* of the request */
    uint64_t limit;                       /* of reserved bytes; 0: unknown */
    uint64_t reserved, allocated, pending;
    uint64_t live;                         /* requested bytes of the blocks in use */
    uint64_t own_free, own_largest;        /* of the request's pool and stream */
    uint64_t with_pending;                 /* the largest block of its own, if all pending blocks had been free */
    uint64_t other_free, other_largest;    /* of all other pools and streams */
    uint64_t device_free;                  /* OOM_UNKNOWN if the trace does not say */
    uint64_t device_total;                 /* 0: unknown */
    uint64_t max_split_size, max_rounding; /* as in struct varve_alloc_config */
};

/* X(code, name): one for each failure, the first of these that is true. */
#define OOM_CAUSE_LIST(X)                                                                                         \
    X(NOT_SEARCHED, "not_searched")      /* a free block fits; it came free when the pool was searched no more */ \
    X(SPLIT_LIMIT, "split_limit")        /* a free block fits, and max_split_size keeps it for others */          \
    X(PENDING, "pending_frees")          /* freed blocks would fit, but other streams may still use them */       \
    X(OTHER_POOL, "other_pool")          /* free memory of other pools or streams would do */                     \
    X(FOREIGN, "foreign_memory")         /* it would fit if the device were this allocator's alone */             \
    X(OVER_LIMIT, "over_limit")          /* what is in use and the request exceed the limit */                    \
    X(ROUNDING, "rounding")              /* they exceed it because blocks are larger than their requests */       \
    X(SEGMENT_SIZE, "segment_size")      /* the block fits into what is not reserved, its segment does not */     \
    X(FRAGMENTATION, "fragmentation")    /* what is free is enough, in pieces */                                  \
    X(NOT_ENOUGH, "not_enough_reserved") /* what is free is not enough; the limit is not known */                 \
    X(UNEXPLAINED, "unexplained")        /* the limit that was worked out would have let it pass */

enum oom_cause {
#define OOM_CAUSE_CODE(code, name) OOM_##code,
    OOM_CAUSE_LIST(OOM_CAUSE_CODE)
#undef OOM_CAUSE_CODE
};

#define OOM_SENTENCE_BYTES 400

const char *oom_cause_name(enum oom_cause cause); /* static */
enum oom_cause oom_cause_of(const struct oom_memory *memory);
/// In one sentence, with the figures.
void oom_sentence(const struct oom_memory *memory, char text[OOM_SENTENCE_BYTES]);
/// What is in use and the request exceed the limit, whatever the sizes of blocks: bytes that would have to go before
/// any allocator could serve it; 0: that is not so, or the limit is not known.
uint64_t oom_excess(const struct oom_memory *memory);

#endif
