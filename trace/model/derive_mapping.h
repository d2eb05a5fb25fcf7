/* SPDX-License-Identifier: Apache-2.0 */
/* mmap, munmap and mremap. */
#ifndef VARVE_TRACE_MODEL_DERIVE_MAPPING_H
#define VARVE_TRACE_MODEL_DERIVE_MAPPING_H

struct derive_step;
struct varve_message;

int derive_mmap(struct derive_step *step, struct varve_message *message);
int derive_munmap(struct derive_step *step, struct varve_message *message);

#endif
