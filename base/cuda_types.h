/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types and numbers of the CUDA driver, as own declarations, so that what uses them builds where there is no toolkit.
 * Names are ours, values and layouts the driver's; test_device_cuda_driver.c and test_cuda_hooks.c compare them with
 * <cuda.h> where there is one.
 */
#ifndef VARVE_BASE_CUDA_TYPES_H
#define VARVE_BASE_CUDA_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef int cuda_ordinal;     /* a device */
typedef uint64_t cuda_address;
typedef uint64_t cuda_memory; /* a handle of physical memory */
typedef struct cuda_context_opaque *cuda_context;
typedef struct cuda_stream_opaque *cuda_stream;
typedef struct cuda_event_opaque *cuda_event;
typedef struct cuda_pool_opaque *cuda_pool; /* of stream-ordered memory */

enum cuda_number {
    CUDA_LOCATION_DEVICE = 1,
    CUDA_ALLOCATION_MANAGED = 2,
    CUDA_STREAM_LEGACY = 1, /* the default stream by its other name */
    CUDA_STREAM_PER_THREAD = 2,
};

enum cuda_pool_attribute {
    CUDA_POOL_RELEASE_THRESHOLD = 4, /* uint64_t: bytes that it keeps unused */
};

struct cuda_location {
    int type, id;
};

struct cuda_access {
    struct cuda_location location;
    int flags;
};

/* How physical memory is to be made. */
struct cuda_memory_kind {
    int type, handle_types;
    struct cuda_location location;
    void *windows_only;
    unsigned char compression, is_rdma_capable;
    unsigned short usage;
    unsigned char reserved[4];
};

/* How a pool is to be made; max_bytes 0: as much as there is. */
struct cuda_pool_kind {
    int type, handle_types;
    struct cuda_location location;
    void *windows_only;
    size_t max_bytes;
    unsigned short usage;
    unsigned char reserved[54];
};

struct cuda_ipc_memory {
    char bytes[64];
};

enum cuda_address_status {
    CUDA_ADDRESS_FOUND = 0,
};

#endif
