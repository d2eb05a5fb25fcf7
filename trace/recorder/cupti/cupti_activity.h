/* SPDX-License-Identifier: Apache-2.0 */
/* CUPTI's activity records: enrichment, without which all goes on. */
#ifndef VARVE_TRACE_RECORDER_CUPTI_CUPTI_ACTIVITY_H
#define VARVE_TRACE_RECORDER_CUPTI_CUPTI_ACTIVITY_H

#include "trace/recorder/cupti/cupti_driver.h"
#include "trace/recorder/cupti/cupti_recorder.h"

#include <stdbool.h>

/// Begin to collect activity records: enrichment, without which all goes on. Returns a CUptiResult.
cupti_result cupti_activity_begin(struct cupti_recorder *recorder);
/// Have CUPTI hand over what is complete, or (`is_forced`) all there is.
void cupti_activity_flush(struct cupti_recorder *recorder, bool is_forced);
/// The same, and no more of them.
void cupti_activity_end(struct cupti_recorder *recorder);

#endif
