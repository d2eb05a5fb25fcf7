/* SPDX-License-Identifier: Apache-2.0 */
/* The malloc family. */
#ifndef VARVE_TRACE_MODEL_DERIVE_HEAP_H
#define VARVE_TRACE_MODEL_DERIVE_HEAP_H

struct derive_step;
struct varve_message;

int derive_heap_alloc(struct derive_step *step, struct varve_message *message);
int derive_heap_free(struct derive_step *step, struct varve_message *message);
int derive_heap_realloc(struct derive_step *step, struct varve_message *message);

#endif
