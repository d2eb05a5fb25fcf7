/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: any bytes, plain or compressed, as a trace of PyTorch's profiler. Reading ends with an error of one
 * line, or with requests of memory that a machine can have.
 */
#include "fuzz/target.h"

#include "analysis/base/input_stream.h"
#include "analysis/import/import_log.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct import_requests *requests = import_requests_new("PyTorch profiler trace", "event");
    struct varve_message message = {""};
    struct input_stream *input;
    int error = input_stream_open_memory("fuzz", data, size, &input, &message);
    if (error == VARVE_OK) {
        error = profiler_read(input, requests, NULL, &message);
        check((error == VARVE_OK) == (import_requests_count(requests) > 0));
    }
    check(error == VARVE_OK || (message.text[0] != '\0' && strchr(message.text, '\n') == NULL));
    check(import_requests_check(requests));
    import_requests_free(requests);
    return 0;
}
