/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * The other side of the fake CUPTI (lib_cupti_fake.c): what a program calls to play the driver. It finds
 * these by dlsym in the library that VARVE_CUPTI_LIBRARY names.
 */
#ifndef VARVE_TESTS_PROGRAMS_CUDA_CUPTI_FAKE_H
#define VARVE_TESTS_PROGRAMS_CUDA_CUPTI_FAKE_H

#include "trace/recorder/cupti/cupti_driver.h"

#include <stdbool.h>

#define FAKE_CUPTI_VERSION 130001U
#define FAKE_CUPTI_TIME UINT64_C(1790000000000000000)
#define FAKE_HOLDER "CUPTI for somebody"

enum fake_count {
    FAKE_COUNT_BUFFERS_REFUSED,
    FAKE_COUNT_SUBSCRIBERS,
    FAKE_COUNT_KINDS,            /* enabled kinds of activity */
    FAKE_COUNT_ASKED_IN_CAPTURE, /* the driver, other things than whether it captures */
};

#define FAKE_CAPTURED UINT64_C(0x66) /* a stream, while a graph of it is recorded: between begin and end */

/* The context that is current in this thread; CUPTI's number of it. Its device is the handle less 0x1000. */
typedef void fake_context(uintptr_t context, uint32_t id);
/* Play a call: callbacks if they are enabled, `inside` between them. Returns `result`. */
typedef uint32_t fake_call(uint32_t id, const void *parameters, uint32_t result, void (*inside)(void *), void *context);
/* One callback alone. */
typedef void fake_callback(uint32_t domain, uint32_t id, const void *data);
/* An activity record into the buffer under way. False: there is none. */
typedef bool fake_record(const void *record, size_t bytes);
typedef void fake_capture(bool is_on);
typedef unsigned fake_count(enum fake_count what);

struct fake_cupti {
    fake_context *set_context;
    fake_call *call;
    fake_callback *callback;
    fake_record *record;
    fake_capture *capture;
    fake_count *count;
};

/// The table, of type struct fake_cupti.
#define FAKE_CUPTI_SYMBOL "fake_cupti"

#endif
