/* SPDX-License-Identifier: Apache-2.0 */
/* The events of caching allocators. */
#ifndef VARVE_TRACE_MODEL_DERIVE_BLOCKS_H
#define VARVE_TRACE_MODEL_DERIVE_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

struct derive;
struct derive_device;
struct derive_process;
struct derive_step;
struct event;
struct varve_message;

/// The allocator of the event, made if it is new, and space for what one event needs; before anything else.
int derive_device_prepare(struct derive *derive, struct derive_process *process, const struct event *event,
                          struct varve_message *message);
int derive_block(struct derive_step *step, struct varve_message *message);
bool derive_block_is_out_of_order(const struct derive *derive, const struct derive_process *process,
                                  const struct event *event);
/// After the last event: segments that have memory, and bytes of those without any block in use or pending (the
/// rung of the ladder).
void derive_device_now(const struct derive_device *device, uint32_t *segments_out, uint64_t *cached_out);
/// The process has ended: what its allocators were like goes into a keyframe and from memory.
void derive_devices_end(struct derive *derive, struct derive_process *process);
void derive_devices_free(struct derive_process *process);
int derive_device_check(const struct derive *derive, const struct derive_process *process, unsigned number,
                        struct varve_message *message);

#endif
