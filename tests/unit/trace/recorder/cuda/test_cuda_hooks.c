/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What trace/recorder/cuda/cuda_hooks.h says of the driver and of the runtime library, against the toolkit's own
 * headers: layouts, numbers, and each function's prototype, under the exported name and at the version of its row. The
 * compiler does the comparing: with a toolkit at hand, a program that was built has passed. The table itself is looked
 * at everywhere. Costs: 1 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trace/recorder/cuda/cuda_hooks.h"

#include <stdio.h>
#include <string.h>

#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>) && __has_include(<cuda_runtime_api.h>)
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#elif __has_include(</usr/local/cuda/include/cuda.h>)
#include </usr/local/cuda/include/cuda.h>
#include </usr/local/cuda/include/cudaTypedefs.h>
#include </usr/local/cuda/include/cuda_runtime_api.h>
#endif

struct row {
    const char *exported, *symbol;
    int version;
    unsigned flags;
};

static const struct row rows[] = {
#define ROW(exported, symbol, version, flags, ...) {#exported, #symbol, version, flags},
    CUDA_HOOK_LIST(ROW)
#undef ROW
};

/* For each symbol at most one row per version and kind of stream, older ones first; suffixes say what they
 * should. */
TEST(test_table)
{
    for (size_t i = 0; i < CUDA_HOOK_COUNT; i++) {
        size_t length = strlen(rows[i].symbol);
        assert_memory_equal(rows[i].exported, rows[i].symbol, length);
        assert_int_equal((rows[i].flags & CUDA_HOOK_PER_THREAD) != 0, strcmp(rows[i].exported + length, "_ptsz") == 0);
        assert_in_range(rows[i].version, 2000, CUDA_HOOK_VERSION_KNOWN);
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(rows[i].exported, rows[j].exported);
            if (strcmp(rows[i].symbol, rows[j].symbol) == 0 && rows[i].flags == rows[j].flags) {
                assert_true(rows[j].version < rows[i].version);
            }
        }
    }
}

#if defined(CUDA_VERSION) && CUDA_VERSION >= CUDA_HOOK_VERSION_KNOWN

/* ---- layouts and numbers ---- */

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(CUDA_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(CUDA_POOL_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
SAME(CUDA_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(CUDA_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(CUDA_ADDRESS_PER_THREAD, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
SAME(CUDA_RESULT_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(CUDA_RESULT_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
SAME(CUDA_RESULT_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(CUDA_RUNTIME_RESULT_NO_DRIVER, cudaErrorInsufficientDriver);
SAME(CUDA_ALLOCATION_MANAGED, CU_MEM_ALLOCATION_TYPE_MANAGED);

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), "size of " #theirs)
SAME_SIZE(struct cuda_array_2d, CUDA_ARRAY_DESCRIPTOR);
SAME_SIZE(struct cuda_array_3d, CUDA_ARRAY3D_DESCRIPTOR);
SAME_SIZE(struct cuda_location, CUmemLocation);
SAME_SIZE(struct cuda_memory_kind, CUmemAllocationProp);
SAME_SIZE(struct cuda_access, CUmemAccessDesc);
SAME_SIZE(cuda_context, CUcontext);
SAME_SIZE(struct cuda_ipc_memory, CUipcMemHandle);
SAME_SIZE(struct cuda_extent, struct cudaExtent);
SAME_SIZE(int, CUresult);
SAME_SIZE(int, CUdevice);
SAME_SIZE(uint64_t, CUdeviceptr);
SAME_SIZE(uint64_t, CUmemGenericAllocationHandle);

#define SAME_LOCATION(ours, field, theirs, their_field)                                  \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field) &&             \
                       sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->their_field), \
                   #theirs "." #their_field)
SAME_LOCATION(struct cuda_array_2d, width, CUDA_ARRAY_DESCRIPTOR, Width);
SAME_LOCATION(struct cuda_array_2d, height, CUDA_ARRAY_DESCRIPTOR, Height);
SAME_LOCATION(struct cuda_array_2d, format, CUDA_ARRAY_DESCRIPTOR, Format);
SAME_LOCATION(struct cuda_array_2d, channels, CUDA_ARRAY_DESCRIPTOR, NumChannels);
SAME_LOCATION(struct cuda_array_3d, width, CUDA_ARRAY3D_DESCRIPTOR, Width);
SAME_LOCATION(struct cuda_array_3d, height, CUDA_ARRAY3D_DESCRIPTOR, Height);
SAME_LOCATION(struct cuda_array_3d, depth, CUDA_ARRAY3D_DESCRIPTOR, Depth);
SAME_LOCATION(struct cuda_array_3d, format, CUDA_ARRAY3D_DESCRIPTOR, Format);
SAME_LOCATION(struct cuda_array_3d, channels, CUDA_ARRAY3D_DESCRIPTOR, NumChannels);
SAME_LOCATION(struct cuda_array_3d, flags, CUDA_ARRAY3D_DESCRIPTOR, Flags);
SAME_LOCATION(struct cuda_location, type, CUmemLocation, type);
SAME_LOCATION(struct cuda_location, id, CUmemLocation, id);
SAME_LOCATION(struct cuda_memory_kind, type, CUmemAllocationProp, type);
SAME_LOCATION(struct cuda_memory_kind, location, CUmemAllocationProp, location);
SAME_LOCATION(struct cuda_pool_kind, type, CUmemPoolProps, allocType);
SAME_LOCATION(struct cuda_pool_kind, location, CUmemPoolProps, location);
SAME_LOCATION(struct cuda_access, location, CUmemAccessDesc, location);
SAME_LOCATION(struct cuda_access, flags, CUmemAccessDesc, flags);

/* ---- prototypes: ours, written with CUDA's types from here on ---- */

#define cuda_address CUdeviceptr
#define cuda_memory CUmemGenericAllocationHandle
#define cuda_ordinal CUdevice
#define cuda_context CUcontext
#define cuda_stream CUstream
#define cuda_event CUevent
#define cuda_pool CUmemoryPool
#define cuda_array CUarray
#define cuda_mipmaps CUmipmappedArray
#define cuda_handle_type CUmemAllocationHandleType
#define cuda_pool_attribute CUmemPool_attribute_enum
#define cuda_address_status CUdriverProcAddressQueryResult_enum
#define cuda_array_2d CUDA_ARRAY_DESCRIPTOR_st
#define cuda_array_3d CUDA_ARRAY3D_DESCRIPTOR_st
#define cuda_memory_kind CUmemAllocationProp_st
#define cuda_pool_kind CUmemPoolProps_st
#define cuda_access CUmemAccessDesc_st
#define cuda_ipc_memory CUipcMemHandle_st
#define cuda_runtime_array cudaArray_t
#define cuda_runtime_mipmaps cudaMipmappedArray_t
#define cuda_format const struct cudaChannelFormatDesc *
#define cuda_pitched struct cudaPitchedPtr
#define cuda_extent cudaExtent

#define IS_SAME(ours, theirs) __builtin_types_compatible_p(ours, theirs)
/* With the suffix of streams apart, the type of a symbol at a version. */
#define TYPE_0(symbol, version) PFN_##symbol##_v##version
#define TYPE_CUDA_HOOK_PER_THREAD(symbol, version) PFN_##symbol##_v##version##_ptsz
#define TYPE_CUDA_HOOK_REPLACE(symbol, version) PFN_##symbol##_v##version
#define VERSION_CHECK(exported, symbol, version, flags, parameters, ...)                        \
    _Static_assert(IS_SAME(CUresult(*) parameters, TYPE_##flags(symbol, version)), "prototype " \
                                                                                   "of " #exported);
/* The header's own macros would lead from a symbol to the name of its newest version. */
#undef cuMemAlloc
#undef cuMemFree
#undef cuMemAllocPitch
#undef cuMemGetAddressRange
#undef cuMemAllocHost
#undef cuMemHostRegister
#undef cuArrayCreate
#undef cuArray3DCreate
#undef cuIpcOpenMemHandle
#undef cuDevicePrimaryCtxReset
#undef cuDevicePrimaryCtxRelease
#undef cuCtxDestroy
#undef cuCtxSynchronize
#undef cuGetProcAddress
CUDA_HOOK_LIST(VERSION_CHECK)

/* Only the second version is declared; programs of CUDA 11 link the first. */
extern PFN_cuGetProcAddress_v11030 first_version;
#define cuGetProcAddress (*first_version)

/* What programs link are these names; those of the variants per thread the header makes by macros alone. */
#define EXPORT_0(exported, parameters) \
    _Static_assert(IS_SAME(CUresult(*) parameters, __typeof__(&exported)), "declaration of " #exported);
#define EXPORT_CUDA_HOOK_REPLACE(exported, parameters) EXPORT_0(exported, parameters)
#define EXPORT_CUDA_HOOK_PER_THREAD(exported, parameters)
#define EXPORT_CHECK(exported, symbol, version, flags, parameters, ...) EXPORT_##flags(exported, parameters)
CUDA_HOOK_LIST(EXPORT_CHECK)

/* Variants per thread again are names that only macros lead to. */
#define cudaMallocAsync_ptsz cudaMallocAsync
#define cudaMallocFromPoolAsync_ptsz cudaMallocFromPoolAsync
#define cudaFreeAsync_ptsz cudaFreeAsync
#define cudaStreamSynchronize_ptsz cudaStreamSynchronize
#define RUNTIME_CHECK(name, CAUSE, parameters, arguments) \
    _Static_assert(IS_SAME(cudaError_t(*) parameters, __typeof__(&name)), "prototype of " #name);
CUDA_RUNTIME_LIST(RUNTIME_CHECK)

TEST(test_declarations)
{
    printf("compared with the declarations of CUDA %d.%d\n", CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
}

#else

TEST(test_declarations)
{
    skip("there is no cuda.h of CUDA 13 or later here to compare the declarations with");
}

#endif
