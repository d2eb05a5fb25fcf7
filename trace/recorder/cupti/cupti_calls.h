/* SPDX-License-Identifier: Apache-2.0 */
/* CUPTI's callbacks of the driver's functions. */
#ifndef VARVE_TRACE_RECORDER_CUPTI_CUPTI_CALLS_H
#define VARVE_TRACE_RECORDER_CUPTI_CUPTI_CALLS_H

#include "trace/recorder/cupti/cupti_driver.h"
#include "trace/recorder/cupti/cupti_recorder.h"

#include <stdint.h>

/// Ask CUPTI for the callbacks that we want. Returns the CUptiResult of the first one that matters and was
/// refused, or 0.
cupti_result cupti_calls_enable(const struct cupti_recorder *recorder);
/// A callback of the driver's domain.
void cupti_calls_on_callback(struct cupti_recorder *recorder, uint32_t id, const struct cupti_callback_data *data);
/// The current call of this thread ended a context.
void cupti_calls_mark_end(void);

#endif
