/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What alloc/device_cuda_driver.h says of the CUDA driver, against the toolkit's own header: numbers, sizes,
 * layouts, and the prototype of each function both under the name that the library exports and at the version
 * that the driver is asked for. All of that is compared by the compiler. Without a toolkit, skipped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "alloc/device_cuda_driver.h"

#include <stdio.h>
#include <string.h>

#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>)
#include <cuda.h>
#include <cudaTypedefs.h>
#elif __has_include(</usr/local/cuda/include/cuda.h>) && __has_include(</usr/local/cuda/include/cudaTypedefs.h>)
#include </usr/local/cuda/include/cuda.h>
#define cuda_cuda_h /* the header's guard of old; the next one includes it by name */
#include </usr/local/cuda/include/cudaTypedefs.h>
#endif
