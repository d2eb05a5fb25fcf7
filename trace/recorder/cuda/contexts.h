/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the CUDA recorder */
/*
 * Ends of contexts.
 */
#ifndef VARVE_TRACE_RECORDER_CUDA_CONTEXTS_H
#define VARVE_TRACE_RECORDER_CUDA_CONTEXTS_H

/// The program has reset this device, in a way that no hook of the driver saw.
void cuda_reset_emit(int device);

#endif
