/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of the CUDA API. Apart from derive_*.c because most recordings need none of it.
 *
 * Invariants (derive_api_check), for every process that has not ended and each slot:
 *   block rows in the indexes that have a scratch row = rows of the slot with free_seq 0 = its total
 *   of physical memory: maps = its mappings; refs + maps > 0; it has a name, or refs = 0
 */
#ifndef VARVE_TRACE_MODEL_DEVICE_API_H
#define VARVE_TRACE_MODEL_DEVICE_API_H

#include <stdbool.h>
#include <stdint.h>

struct derive;
struct derive_process;
struct derive_step;
struct derive_thread;
struct event;
struct varve_message;

int derive_api(struct derive_step *step, struct varve_message *message);
bool derive_api_is_out_of_order(const struct derive *derive, const struct derive_process *process,
                                const struct event *event);
void derive_api_end(struct derive_process *process); /* it has ended: its indexes go */
void derive_api_free(struct derive_process *process);
void derive_api_thread_free(struct derive_thread *thread);
int derive_api_check(const struct derive *derive, uint32_t process_id, struct varve_message *message);

#endif
