/* SPDX-License-Identifier: Apache-2.0 */
/* Between cuda_lookup.c and the one file dlsym_hook_*.c that fits the processor, which defines dlsym itself. */
#ifndef VARVE_TRACE_RECORDER_CUDA_DLSYM_HOOK_H
#define VARVE_TRACE_RECORDER_CUDA_DLSYM_HOOK_H

/* Versions of the C library's own dlsym, NULL at the end; all are the same function, one of them is there.
 * None: ours does not exist, so that the plain name is the C library's. */
extern const char *const cuda_dlsym_versions[];

#endif
