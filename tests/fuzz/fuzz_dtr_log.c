/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: any bytes, plain or compressed, as a log of operators. Reading ends with an error of one line, or
 * with a schedule in which all numbers are in range, all sums hold and nothing is used after its release.
 */
#include "fuzz/target.h"

#include "analysis/dtr/dtr_log.h"
#include "analysis/base/input_stream.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input_stream *input;
    struct dtr_log *log = NULL;
    struct varve_message message = {""};
    int error = input_stream_open_memory("fuzz", data, size, &input, &message);
    if (error == VARVE_OK) {
        error = dtr_log_read_stream(input, NULL, &log, &message);
    }
    check((error == VARVE_OK) == (log != NULL));
    check(error == VARVE_OK || (message.text[0] != '\0' && strchr(message.text, '\n') == NULL));
    check(log == NULL || dtr_log_check(log, &message) == VARVE_OK);
    dtr_log_free(log);
    return 0;
}
