/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: figures of a recording under way whose file has changed bytes, five bytes a change, or ends early.
 * They are refused, or an error of the database, or shown; what is shown has no control characters.
 */
#include "fuzz/target.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/json_writer.h"
#include "analysis/query/database.h"
#include "analysis/top/top_page.h"
#include "base/error.h"
#include "trace/model/domain.h"
#include "trace/model/group_leaders.h"
#include "trace/store/live_store.h"
#include "trace/store/store.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHANGE_BYTES 5U
#define COMPUTING_NS INT64_C(300000000)

static uint8_t *whole;
static size_t whole_bytes;

static void make(void)
{
    const struct live_moment moment = {.ts_ns = 5, .command = "command", .pid = 1, .events = 10, .threads = 1};
    const struct leader leader = {.domain = DOMAIN_HEAP, .callsite = 1, .total = {.bytes = 10, .live_bytes = 5}};
    const struct store_symbol symbol = {.function = "function", .file = "file.c", .module = "module", .line = 3};
    const struct live_allocator allocator = {.process_id = 1, .reserved = 100, .allocated = 50};
    const struct live_process process = {.id = 1, .pid = 2, .command_line = "command", .rss_bytes = 5, .threads = 1};
    const struct total total = {.allocations = 3, .bytes = 10, .live_bytes = 5};
    struct live *live;
    if (live_open(&live) != VARVE_OK || live_begin(live, &moment) != VARVE_OK ||
        live_total(live, 0, slot_of(DOMAIN_HEAP, 0), &total) != VARVE_OK || live_callsite(live, &leader) != VARVE_OK ||
        live_name(live, 1, &symbol, &symbol) != VARVE_OK || live_allocator(live, &allocator) != VARVE_OK ||
        live_process(live, &process) != VARVE_OK) {
        abort();
    }
    whole = live_bytes(live, &whole_bytes);
    live_close(live);
}

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
    if (whole == NULL) {
        make();
        database_set_timeout(COMPUTING_NS);
    }
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
    if (database_open_live("input", copy, bytes, &database, &message) == VARVE_OK) {
        show(database);
        database_close(database);
    }
    free(copy);
    return 0;
}
