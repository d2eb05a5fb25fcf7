/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every cached request and every free go through is inline (HOT): a pair passes some thirty functions, so
 * that calls, and not what they do, would be a third of its cost, and a compiler left alone does not inline
 * across files, and little within them.
 */
#ifndef VARVE_ALLOC_INDEX_INDEX_INLINE_H
#define VARVE_ALLOC_INDEX_INDEX_INLINE_H

#define HOT static inline __attribute__((always_inline))
#define LIKELY(condition) __builtin_expect((condition), 1)
#define UNLIKELY(condition) __builtin_expect((condition), 0)

#endif
