/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: any bytes as a row of the table `keyframe`, and events after it. What is decoded holds
 * the invariants of a layout, and walking its blocks ends; so it is after every event, which may contradict
 * it.
 */
#include "fuzz/target.h"

#include "trace/model/layout_state.h"
#include "trace/record.h"
#include "base/error.h"
#include "trace/layout.h"

#include <stdlib.h>
#include <string.h>

#define RECORDS_MAX 32U

static void walk(const struct varve_layout *layout)
{
    struct varve_layout_block block;
    uint64_t from = 0;
    while (varve_layout_block(layout, from, &block)) {
        check(block.addr >= from && block.extent > 0);
        if (block.addr + block.extent <= from) {
            break; /* the last byte of the address space */
        }
        from = block.addr + block.extent;
    }
}

/* The first byte says how many records follow the keyframe. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct varve_layout *layout = varve_layout_new();
    size_t records = size > 0 ? data[0] % RECORDS_MAX : 0;
    check(layout != NULL);
    if (size == 0 || records * sizeof(struct varve_record) > size - 1) {
        records = 0;
    }
    int code =
        varve_layout_decode(layout, data + (size > 0), size - (size > 0) - records * sizeof(struct varve_record));
    check(code == VARVE_OK || code == VARVE_ERROR_CORRUPT || code == VARVE_ERROR_NO_MEMORY);
    if (code == VARVE_OK) {
        check(layout_check(layout) == VARVE_OK);
        walk(layout);
    }
    for (size_t i = 0; code == VARVE_OK && i < records; i++) {
        struct varve_record record;
        memcpy(&record, data + size - (records - i) * sizeof(record), sizeof(record));
        code = varve_layout_apply(layout, &record);
        check(code == VARVE_OK || code == VARVE_ERROR_CORRUPT || code == VARVE_ERROR_NO_MEMORY ||
              code == VARVE_ERROR_INVALID);
        check(code != VARVE_OK || layout_check(layout) == VARVE_OK);
    }
    if (code == VARVE_OK) {
        walk(layout);
    }
    varve_layout_free(layout);
    return 0;
}
