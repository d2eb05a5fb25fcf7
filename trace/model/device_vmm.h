/* SPDX-License-Identifier: Apache-2.0 */
/* Physical memory of a device and its mappings. */
#ifndef VARVE_TRACE_MODEL_DEVICE_VMM_H
#define VARVE_TRACE_MODEL_DEVICE_VMM_H

#include <stdbool.h>

struct api_index;
struct api_step;
struct derive;
struct event;

bool vmm_reserve(const struct api_step *step); /* false without memory */
void vmm_create(const struct api_step *step);
void vmm_map(const struct api_step *step);
void vmm_unmap(const struct api_step *step);
void vmm_release(const struct api_step *step);
/// The thread's last free has failed: what it ended is there again.
void vmm_take_back(const struct api_step *step);
/// All that is the device's: a reset; `context` 0: of all contexts.
void vmm_reset(const struct api_step *step, unsigned device, unsigned context);
bool vmm_is_out_of_order(const struct derive *derive, const struct api_index *index, const struct event *event);

#endif
