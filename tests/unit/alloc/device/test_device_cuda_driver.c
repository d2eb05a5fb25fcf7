/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What alloc/device/cuda_driver.h says of the CUDA driver, against the toolkit's own headers: numbers, sizes,
 * layouts, and each function's prototype, both under the name that the library exports and at the version
 * that the driver is asked for. The compiler does the comparing: with a toolkit at hand, a program that was
 * built has passed. Without one, that part is skipped.
 * Costs: 1 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "alloc/device/cuda_driver.h"

#include <stdio.h>
#include <string.h>

#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>)
#include <cuda.h>
#include <cudaTypedefs.h>
#define HAS_TYPEDEFS 1
#elif __has_include(<cuda.h>)
#include <cuda.h>
#elif __has_include(</usr/local/cuda/include/cuda.h>)
#include </usr/local/cuda/include/cuda.h>
#endif

#ifdef CUDA_VERSION

/* ---- numbers and layouts ---- */

#define NUMBER_CHECK(NAME, number, error) _Static_assert((int)CUDA_ERROR_##NAME == (number), "CUDA_ERROR_" #NAME);
CUDA_RESULT_LIST(NUMBER_CHECK)

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(CUDA_RESULT_SUCCESS, CUDA_SUCCESS);
SAME(CUDA_ATTRIBUTE_HAS_VMM, CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED);
SAME(CUDA_ATTRIBUTE_SHARES_BY_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME(CUDA_ATTRIBUTE_HAS_POOLS, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
SAME(CUDA_POOL_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
SAME(CUDA_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME(CUDA_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(CUDA_CAPTURE_STATUS_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
SAME(CUDA_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(CUDA_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(CUDA_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(CUDA_HANDLE_TYPE_NONE, 0);
SAME(CUDA_HANDLE_TYPE_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME(CUDA_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(CUDA_EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(CUDA_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(CUDA_MEMORY_UNIFIED, CU_MEMORYTYPE_UNIFIED);
SAME(CUDA_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(CUDA_POINTER_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(CUDA_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME(CUDA_IPC_LAZY_PEER_ACCESS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
SAME(CUDA_ADDRESS_DEFAULT, CU_GET_PROC_ADDRESS_DEFAULT);

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), "size of " #theirs)
SAME_SIZE(cuda_result, CUresult);
SAME_SIZE(cuda_ordinal, CUdevice);
SAME_SIZE(cuda_address, CUdeviceptr);
SAME_SIZE(cuda_memory, CUmemGenericAllocationHandle);
SAME_SIZE(cuda_context, CUcontext);
SAME_SIZE(cuda_stream, CUstream);
SAME_SIZE(cuda_event, CUevent);
SAME_SIZE(enum cuda_attribute, CUdevice_attribute);
SAME_SIZE(enum cuda_capture_mode, CUstreamCaptureMode);
SAME_SIZE(enum cuda_capture_status, CUstreamCaptureStatus);
SAME_SIZE(enum cuda_granularity, CUmemAllocationGranularity_flags);
SAME_SIZE(struct cuda_location, CUmemLocation);
SAME_SIZE(struct cuda_memory_kind, CUmemAllocationProp);
SAME_SIZE(struct cuda_access, CUmemAccessDesc);
SAME_SIZE(struct cuda_ipc_memory, CUipcMemHandle);
SAME_SIZE(cuda_pool, CUmemoryPool);
SAME_SIZE(cuda_module, CUmodule);
SAME_SIZE(cuda_function, CUfunction);
SAME_SIZE(enum cuda_pool_attribute, CUmemPool_attribute);
SAME_SIZE(enum cuda_pointer_attribute, CUpointer_attribute);
SAME_SIZE(struct cuda_pool_kind, CUmemPoolProps);
SAME_SIZE(struct cuda_copy_2d, CUDA_MEMCPY2D);

#define SAME_FIELD(ours, field, theirs, their_field)                                     \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field) &&             \
                       sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->their_field), \
                   #theirs "." #their_field)
SAME_FIELD(struct cuda_location, type, CUmemLocation, type);
SAME_FIELD(struct cuda_location, id, CUmemLocation, id);
SAME_FIELD(struct cuda_memory_kind, type, CUmemAllocationProp, type);
SAME_FIELD(struct cuda_memory_kind, handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_FIELD(struct cuda_memory_kind, location, CUmemAllocationProp, location);
SAME_FIELD(struct cuda_memory_kind, windows_only, CUmemAllocationProp, win32HandleMetaData);
SAME_FIELD(struct cuda_memory_kind, compression, CUmemAllocationProp, allocFlags.compressionType);
SAME_FIELD(struct cuda_memory_kind, is_rdma_capable, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
SAME_FIELD(struct cuda_memory_kind, usage, CUmemAllocationProp, allocFlags.usage);
SAME_FIELD(struct cuda_access, location, CUmemAccessDesc, location);
SAME_FIELD(struct cuda_access, flags, CUmemAccessDesc, flags);
SAME_FIELD(struct cuda_pool_kind, type, CUmemPoolProps, allocType);
SAME_FIELD(struct cuda_pool_kind, handle_types, CUmemPoolProps, handleTypes);
SAME_FIELD(struct cuda_pool_kind, location, CUmemPoolProps, location);
SAME_FIELD(struct cuda_pool_kind, windows_only, CUmemPoolProps, win32SecurityAttributes);
SAME_FIELD(struct cuda_copy_2d, source_x, CUDA_MEMCPY2D, srcXInBytes);
SAME_FIELD(struct cuda_copy_2d, source_y, CUDA_MEMCPY2D, srcY);
SAME_FIELD(struct cuda_copy_2d, source_type, CUDA_MEMCPY2D, srcMemoryType);
SAME_FIELD(struct cuda_copy_2d, source_host, CUDA_MEMCPY2D, srcHost);
SAME_FIELD(struct cuda_copy_2d, source_device, CUDA_MEMCPY2D, srcDevice);
SAME_FIELD(struct cuda_copy_2d, source_array, CUDA_MEMCPY2D, srcArray);
SAME_FIELD(struct cuda_copy_2d, source_pitch, CUDA_MEMCPY2D, srcPitch);
SAME_FIELD(struct cuda_copy_2d, target_x, CUDA_MEMCPY2D, dstXInBytes);
SAME_FIELD(struct cuda_copy_2d, target_y, CUDA_MEMCPY2D, dstY);
SAME_FIELD(struct cuda_copy_2d, target_type, CUDA_MEMCPY2D, dstMemoryType);
SAME_FIELD(struct cuda_copy_2d, target_host, CUDA_MEMCPY2D, dstHost);
SAME_FIELD(struct cuda_copy_2d, target_device, CUDA_MEMCPY2D, dstDevice);
SAME_FIELD(struct cuda_copy_2d, target_array, CUDA_MEMCPY2D, dstArray);
SAME_FIELD(struct cuda_copy_2d, target_pitch, CUDA_MEMCPY2D, dstPitch);
SAME_FIELD(struct cuda_copy_2d, row_bytes, CUDA_MEMCPY2D, WidthInBytes);
SAME_FIELD(struct cuda_copy_2d, rows, CUDA_MEMCPY2D, Height);
#if CUDA_VERSION >= 12040 /* before, these two were a part of what is reserved */
SAME_FIELD(struct cuda_pool_kind, max_bytes, CUmemPoolProps, maxSize);
SAME_FIELD(struct cuda_pool_kind, usage, CUmemPoolProps, usage);
#endif

/* ---- prototypes: ours, written with the driver's types from here on ---- */

#define cuda_result CUresult
#define cuda_ordinal CUdevice
#define cuda_address CUdeviceptr
#define cuda_memory CUmemGenericAllocationHandle
#define cuda_context CUcontext
#define cuda_stream CUstream
#define cuda_event CUevent
#define cuda_pool CUmemoryPool
#define cuda_module CUmodule
#define cuda_function CUfunction
#define cuda_pool_attribute CUmemPool_attribute_enum
#define cuda_pointer_attribute CUpointer_attribute_enum
#define cuda_pool_kind CUmemPoolProps_st
#define cuda_copy_2d CUDA_MEMCPY2D_st
#define cuda_attribute CUdevice_attribute_enum
#define cuda_capture_mode CUstreamCaptureMode_enum
#define cuda_capture_status CUstreamCaptureStatus_enum
#define cuda_granularity CUmemAllocationGranularity_flags_enum
#define cuda_memory_kind CUmemAllocationProp_st
#define cuda_access CUmemAccessDesc_st
#define cuda_ipc_memory CUipcMemHandle_st
#define cuda_address_status CUdriverProcAddressQueryResult_enum

#define IS_SAME_TYPE(ours, theirs) __builtin_types_compatible_p(ours, theirs)
#define TEXT(symbol) #symbol
#define TEXT_EXPANDED(symbol) TEXT(symbol)
/* The header's macros lead from a name to that of its newest version: what is exported is no such macro. */
#define PROTOTYPE_CHECK(field, symbol, exported, version, parameters)                                       \
    _Static_assert(IS_SAME_TYPE(CUresult(*) parameters, __typeof__(&exported)), "prototype of " #exported); \
    _Static_assert(sizeof(#exported) == sizeof(TEXT_EXPANDED(exported)), "version of " #exported);
CUDA_DRIVER_LIST(PROTOTYPE_CHECK)
CUDA_DRIVER_POOL_LIST(PROTOTYPE_CHECK)
CUDA_DRIVER_TRANSFER_LIST(PROTOTYPE_CHECK)
CUDA_DRIVER_PROGRAM_LIST(PROTOTYPE_CHECK)

#ifdef HAS_TYPEDEFS
#define VERSION_CHECK(field, symbol, exported, version, parameters)                 \
    _Static_assert(IS_SAME_TYPE(CUresult(*) parameters, PFN_##symbol##_v##version), \
                   "prototype of " #symbol " at " #version);
CUDA_DRIVER_LIST(VERSION_CHECK)
CUDA_DRIVER_POOL_LIST(VERSION_CHECK)
CUDA_DRIVER_TRANSFER_LIST(VERSION_CHECK)
CUDA_DRIVER_PROGRAM_LIST(VERSION_CHECK)

_Static_assert(IS_SAME_TYPE(CUresult(*) CUDA_ADDRESS_GET, PFN_cuGetProcAddress_v11030), "cuGetProcAddress");
#if CUDA_VERSION >= 12000
_Static_assert(IS_SAME_TYPE(CUresult(*) CUDA_ADDRESS_GET_V2, PFN_cuGetProcAddress_v12000), "cuGetProcAddress_v2");
#endif
#endif

#undef cuda_result

TEST(test_declarations)
{
    assert_int_equal(CUDA_STREAM_LEGACY, (uintptr_t)CU_STREAM_LEGACY); /* a pointer: no constant expression */
    printf("compared with the declarations of CUDA %d.%d%s\n", CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10,
#ifdef HAS_TYPEDEFS
           ""
#else
           ", without their versions: there is no cudaTypedefs.h"
#endif
    );
}

#else

TEST(test_declarations)
{
    skip("there is no cuda.h here to compare the declarations with");
}

#endif

/* ---- results ---- */

TEST(test_errors)
{
    assert_int_equal(cuda_driver_error(0), VARVE_OK);
    assert_int_equal(cuda_driver_error(2), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(cuda_driver_error(1), VARVE_ERROR_INVALID);
    assert_int_equal(cuda_driver_error(100), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(cuda_driver_error(800), VARVE_ERROR_PERMISSION);
    assert_int_equal(cuda_driver_error(700), VARVE_ERROR_IO); /* an illegal address, by some kernel */
    assert_int_equal(cuda_driver_error(UINT32_MAX), VARVE_ERROR_IO);
#define NEGATIVE_CHECK(NAME, number, error) assert_true(cuda_driver_error(number) == VARVE_ERROR_##error);
    CUDA_RESULT_LIST(NEGATIVE_CHECK)
}

static cuda_result name_of(cuda_result result, const char **name_out)
{
    *name_out = result == 2 || result == 3 ? "CUDA_ERROR_X" : NULL;
    return *name_out ? 0 : 1;
}

static cuda_result text_of(cuda_result result, const char **text_out)
{
    *text_out = result == 2 ? "the text" : NULL;
    return *text_out ? 0 : 1;
}

TEST(test_words)
{
    const struct cuda_driver driver = {.error_name = name_of, .error_text = text_of};
    char text[40];
    cuda_driver_describe(&driver, 2, text, sizeof(text));
    assert_string_equal(text, "CUDA_ERROR_X (the text)");
    cuda_driver_describe(&driver, 3, text, sizeof(text));
    assert_string_equal(text, "CUDA_ERROR_X");
    cuda_driver_describe(&driver, 77777, text, sizeof(text));
    assert_string_equal(text, "CUDA error 77777");
    cuda_driver_describe(&driver, 34, text, sizeof(text)); /* the driver has no name for it, we have */
    assert_string_equal(text, "CUDA_ERROR_STUB_LIBRARY");
    cuda_driver_describe(&driver, 2, text, 8);
    assert_string_equal(text, "CUDA_ER");
}
