/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements as they lie in memory, at any address, and what loops over them share: one is written once and compiled for
 * any processor of the architecture and, on x86-64, for those with AVX2 as well, for those with AVX-512 where that
 * pays; which one runs is chosen when it is looked up.
 */
#ifndef VARVE_STORAGE_TENSORS_ELEMENT_H
#define VARVE_STORAGE_TENSORS_ELEMENT_H

#include <stdint.h>

/* element_F64 and so on, by the names of VARVE_DTYPE_LIST. */
#define ELEMENTS_TYPE(NAME, type) typedef type element_##NAME __attribute__((may_alias, aligned(1)));
ELEMENTS_TYPE(F64, double)
ELEMENTS_TYPE(F32, float)
ELEMENTS_TYPE(F16, uint16_t)
ELEMENTS_TYPE(BF16, uint16_t)
ELEMENTS_TYPE(I64, int64_t)
ELEMENTS_TYPE(I32, int32_t)
ELEMENTS_TYPE(I16, int16_t)
ELEMENTS_TYPE(I8, int8_t)
ELEMENTS_TYPE(U8, uint8_t)
ELEMENTS_TYPE(BOOL, uint8_t)
#undef ELEMENTS_TYPE

/* Before a loop whose iterations do not depend on each other, also where it writes to what it has just read. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* where no vector code is found, the loop is as right */
#define ELEMENTS_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define ELEMENTS_LOOP _Pragma("GCC ivdep")
#endif

#if defined(__x86_64__)
#define ELEMENTS_HAS_AVX2 1
#define ELEMENTS_AVX2 __attribute__((target("avx2")))
#define ELEMENTS_AVX512 __attribute__((target("avx512f,avx512dq")))
#else
#define ELEMENTS_HAS_AVX2 0
#endif

#endif
