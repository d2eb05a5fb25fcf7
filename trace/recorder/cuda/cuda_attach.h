/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the driver by a program that runs already (recorder/attach). All take the loader's lock. Threads: one at a
 * time, that nothing is recorded of.
 */
#ifndef VARVE_TRACE_RECORDER_CUDA_CUDA_ATTACH_H
#define VARVE_TRACE_RECORDER_CUDA_CUDA_ATTACH_H

struct elf_replacement;

/// If the session wants it: what is looked up from now on of the driver's functions is ours, by the tables of symbols
/// of the driver and, for dlsym, of the C library. What is to be put into the entries of the loaded objects comes into
/// `rows`, of which there is `room` for 64 at least; how many they are.
unsigned cuda_attach_prepare(struct elf_replacement *rows, unsigned room);
/// And so is what the objects keep of them.
void cuda_attach_begin(void);
/// The objects, and the tables, have the driver's again. What else a program has kept goes on through ours, which
/// record nothing.
void cuda_attach_end(void);
/// What is known of contexts and pools goes (cuda_resources.c), once no thread is inside.
void cuda_resources_release(void);

#endif
