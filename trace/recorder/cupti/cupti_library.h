/* SPDX-License-Identifier: Apache-2.0 */
/* Finding libcupti. */
#ifndef VARVE_TRACE_RECORDER_CUPTI_CUPTI_LIBRARY_H
#define VARVE_TRACE_RECORDER_CUPTI_CUPTI_LIBRARY_H

#include "trace/recorder/cupti/cupti_driver.h"
#include "base/error.h"

/// Find and open libcupti and look its functions up. The library stays open until the process ends. Errors:
/// VARVE_ERROR_NOT_FOUND (none found, or too old a one).
int cupti_library_open(struct cupti_functions *functions, struct varve_message *message);

#endif
