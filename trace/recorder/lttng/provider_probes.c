/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What LTTng's macros make of provider_events.h: the tracepoints, the functions that write their
 * fields, the description of both for a trace's metadata, and the constructors that register all of it when
 * the library is opened. Alone in a file, because it takes long to compile and has no code of ours.
 */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "trace/recorder/lttng/provider_events.h"
