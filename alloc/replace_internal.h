/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to replace_*.c and its test */
/*
 * What libvarve-replace.so exports: the one symbol that the preload library looks for. The layout is that of
 * trace/cuda_replace_internal.h, which is not for this folder to include; test_replace_cuda.c compares them.
 */
#ifndef VARVE_ALLOC_REPLACE_INTERNAL_H
#define VARVE_ALLOC_REPLACE_INTERNAL_H

#include "trace/trace.h"

#include <stdint.h>

#define REPLACE_INTERFACE_VERSION 2U

/* All that return int but `free` and `range` return a CUresult; 0 is success. */
struct replace_interface {
    uint32_t version;
    int (*alloc)(int device, uint64_t bytes, uint32_t callsite, uint64_t *addr_out);
    int (*free)(uint64_t addr); /* -1: not one of ours */
    int (*range)(uint64_t addr, uint64_t *base_out, uint64_t *bytes_out);
    void (*forget)(int device);
};

extern VARVE_API const struct replace_interface varve_cuda_replacement;

#endif
