/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the driver by a program that runs already (recorder/attach). Threads: one at a time, that nothing is
 * recorded of.
 */
#ifndef VARVE_TRACE_RECORDER_CUDA_CUDA_ATTACH_H
#define VARVE_TRACE_RECORDER_CUDA_CUDA_ATTACH_H

/// If the session wants it: what the loaded objects have of the driver's functions are ours from now on, and so is what
/// they find by dlsym and cuGetProcAddress. Takes the loader's lock.
void cuda_attach_begin(void);
/// The objects have the driver's again. What else a program has kept goes on through ours, which record nothing.
void cuda_attach_end(void);
/// What is known of contexts and pools goes (cuda_resources.c), once no thread is inside.
void cuda_resources_release(void);

#endif
