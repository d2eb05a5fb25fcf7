/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, streams and pools as records name them. */
#ifndef VARVE_TRACE_RECORDER_CUPTI_CUPTI_DEVICE_H
#define VARVE_TRACE_RECORDER_CUPTI_CUPTI_DEVICE_H

#include "trace/recorder/cupti/cupti_driver.h"
#include "trace/recorder/cupti/cupti_recorder.h"
#include "trace/record.h"

#include <stdbool.h>
#include <stdint.h>

/// The device of a context, 0 if CUPTI can't say. `context_id` is CUPTI's number of it.
unsigned cupti_device_of(const struct cupti_recorder *recorder, cupti_context context, uint32_t context_id);
/// Find the driver's functions that the two below ask. Once, in cuInit.
void cupti_driver_find(void);
/// Emit what `device` is, once per process; until then each call asks the driver. In a callback of a call
/// that is not captured.
void cupti_device_describe(unsigned device);
/// Does what is called on this stream become part of a graph? Asks the driver: in a callback, when a call
/// begins. `stream`: its handle, 2 for the thread's own.
bool cupti_stream_is_captured(uint64_t stream);
/// A number of 12 bits for a pool of the driver's, 0 if there are too many.
unsigned cupti_pool_number(uint64_t handle);
/// A pool of this kind of memory was made. Of others nothing is known: they are the device's.
void cupti_pool_made(uint64_t handle, enum varve_memory_kind memory);
enum varve_memory_kind cupti_pool_memory(unsigned number);
/// The pool is gone; its number may be given out again.
void cupti_pool_forget(uint64_t handle);

#endif
