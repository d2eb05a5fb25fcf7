/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: any bytes, plain or compressed, as a CSV file of buffers. Reading ends with an error of one line,
 * or with buffers that the solver takes, and written they are read again as the same. A few are placed.
 */
#include "fuzz/target.h"

#include "analysis/base/input_stream.h"
#include "analysis/whatif/buffer_file.h"

#include <stdlib.h>
#include <string.h>

#define PLACED_MAX 200

static int read_bytes(const void *data, size_t size, struct buffer_file *file, struct varve_message *message)
{
    struct input_stream *input;
    int error = input_stream_open_memory("fuzz", data, size, &input, message);
    return error != VARVE_OK ? error : buffer_file_read_stream(input, file, message);
}

static void check_written(const struct buffer_file *file)
{
    struct varve_message message = {""};
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    check(out != NULL);
    buffer_file_write(out, file, file->buffers, file->count);
    check(fclose(out) == 0);
    struct buffer_file again;
    check(read_bytes(text, bytes, &again, &message) == VARVE_OK && again.count == file->count);
    for (size_t i = 0; i < file->count; i++) {
        check(strcmp(buffer_file_id(file, i), buffer_file_id(&again, i)) == 0);
        check(memcmp(&file->buffers[i], &again.buffers[i], sizeof(again.buffers[i])) == 0);
    }
    buffer_file_free(&again);
    free(text);
}

static void check_placed(struct buffer_file *file)
{
    struct placement_options options = {.seconds = 0.01, .threads = 1};
    struct placement_result result;
    struct varve_message message = {""};
    check(placement_solve(file->buffers, file->count, &options, &result, &message) == VARVE_OK);
    check(result.height >= result.bound && result.bound >= result.load);
    check(placement_check(file->buffers, file->count, result.height, &message));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buffer_file file;
    struct varve_message message = {""};
    int error = read_bytes(data, size, &file, &message);
    if (error != VARVE_OK) {
        check(message.text[0] != '\0' && strchr(message.text, '\n') == NULL);
        return 0;
    }
    check(file.count > 0);
    check_written(&file);
    if (file.count <= PLACED_MAX) {
        check_placed(&file);
    }
    buffer_file_free(&file);
    return 0;
}
