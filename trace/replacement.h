/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What serves cudaMalloc and cudaFree where `varve record --cuda=replace` asks for it: a library of alloc/,
 * opened by the preload library (session_control.replace_path) at the first allocation, which finds in it one
 * symbol. It allocates from the driver through the hooks like anybody, but calls made inside it are never
 * replaced again.
 */
#ifndef VARVE_TRACE_REPLACEMENT_H
#define VARVE_TRACE_REPLACEMENT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VARVE_REPLACEMENT_VERSION 2U
#define VARVE_REPLACEMENT_SYMBOL "varve_cuda_replacement"

struct varve_replacement {
    uint32_t version; /* VARVE_REPLACEMENT_VERSION */
    /* All return a CUresult, 0 for success. `device` is the ordinal of the current context's device. A freed
     * block may be handed out again at once: free waits for the device first, as cudaFree does. `callsite` is
     * the program's, for what the call has to say of itself: inside it there is none to be had. */
    int (*alloc)(int device, uint64_t bytes, uint32_t callsite, uint64_t *addr_out);
    /* -1: not one of ours; the driver is asked then. */
    int (*free)(uint64_t addr);
    /* 1 and the block's first address and size if `addr` lies in a block of ours (cuMemGetAddressRange). */
    int (*range)(uint64_t addr, uint64_t *base_out, uint64_t *bytes_out);
    /* All memory of the device is gone: a reset. */
    void (*forget)(int device);
};

#ifdef __cplusplus
}
#endif

#endif
