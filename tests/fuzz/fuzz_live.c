/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: figures of a recording under way whose file has changed bytes, five bytes a change, or ends early.
 * They are refused, or an error of the database, or shown; what is shown has no control characters.
 */
#include "fuzz/target.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/json_writer.h"
#include "analysis/query/database.h"
#include "analysis/top/top_figures.h"
#include "analysis/top/top_page.h"
#include "base/error.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHANGE_BYTES 5U
#define COMPUTING_NS INT64_C(300000000)

static const char whole[] =
    "{\"varve_live\":2,\"recording\":[{\"number\":1,\"command\":\"command\",\"pid\":1,\"is_over\":0,\"duration_ns\":5,"
    "\"events\":10,\"events_per_s\":null,\"waiting\":0,\"lost\":0,\"rss_bytes\":null,\"processes\":1,"
    "\"processes_running\":1,\"threads\":1}],\"total\":[{\"domain\":\"heap\",\"device\":0,\"allocations\":3,"
    "\"frees\":0,\"bytes\":10,\"live_allocations\":3,\"live_bytes\":5,\"peak_bytes\":10,\"peak_allocations\":3,"
    "\"peak_ns\":1,\"temporary\":0,\"failed\":0,\"allocations_per_s\":null,\"bytes_per_s\":1.5e+00}],"
    "\"allocator\":[{\"pid\":2,\"rank\":null,\"device\":0,\"segments\":1,\"reserved\":100,\"active\":60,"
    "\"allocated\":50,\"requested\":50,\"cached\":0,\"unused_share\":5.0e-01}],\"process_total\":[{\"id\":1,\"pid\":2,"
    "\"rank\":null,\"command_line\":\"command\",\"threads\":1,\"rss_bytes\":5,\"heap_bytes\":5,\"device_bytes\":null,"
    "\"allocations_per_s\":null}],\"callsite_total\":[{\"callsite_id\":1,\"domain\":\"heap\","
    "\"user_function\":\"function\",\"user_file\":\"file.c\",\"user_line\":3,\"user_module\":\"module\","
    "\"function\":\"function\",\"file\":\"file.c\",\"line\":3,\"module\":\"module\",\"is_named\":1,\"allocations\":3,"
    "\"frees\":0,\"bytes\":10,\"live_allocations\":3,\"live_bytes\":5,\"peak_allocations\":3,\"peak_bytes\":10,"
    "\"temporary\":0,\"allocations_per_s\":null,\"bytes_per_s\":null}]}\n";

static void show(struct database *database)
{
    struct page page = {.columns = 100, .allocators = 3, .state = "recording", .top = 20};
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = memory_stream(&text, &bytes);
    page_head(out, database, &page);
    page_list(out, database, &page);
    page.list = PAGE_PROCESSES;
    page_list(out, database, &page);
    json_print(page_json(database, &page), out);
    memory_stream_end(out, &text);
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)text[i] < ' ' && text[i] != '\n') {
            abort();
        }
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t whole_bytes = sizeof(whole) - 1;
    database_set_timeout(COMPUTING_NS);
    uint8_t *copy = malloc(whole_bytes);
    if (copy == NULL || size < 2) {
        free(copy);
        return 0;
    }
    memcpy(copy, whole, whole_bytes);
    size_t bytes = data[0] % 4 != 0 ? whole_bytes : whole_bytes * data[1] / 256;
    uint32_t at;
    for (data += 2, size -= 2; size >= CHANGE_BYTES; data += CHANGE_BYTES, size -= CHANGE_BYTES) {
        memcpy(&at, data, sizeof(at));
        copy[at % whole_bytes] = data[4];
    }
    struct varve_message message;
    struct database *database;
    if (figures_open("input", copy, bytes, 0, &database, &message) == VARVE_OK && database != NULL) {
        show(database);
        database_close(database);
    }
    free(copy);
    return 0;
}
