/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For processors without a dlsym of ours: programs that find the driver by dlsym are recorded by the symbols
 * that they link, if any, and by cuGetProcAddress.
 */
#include "trace/recorder/cuda/cuda_call.h"

#include <stddef.h>

const char *const cuda_dlsym_versions[] = {NULL};
