/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of a database as protocol buffers may hold them, and numbers for texts that come again. */
#ifndef VARVE_ANALYSIS_EXPORT_PROTOBUF_TEXT_H
#define VARVE_ANALYSIS_EXPORT_PROTOBUF_TEXT_H

#include "analysis/base/key_map.h"
#include "analysis/report/frame_name.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Texts with numbers from `first` on, in the order of their first use. Zeroed, but for `first`,
 * before its first use. */
struct text_table {
    struct map numbers; /* by hash */
    char **texts;
    size_t count, capacity;
    uint64_t first;
};

/// UTF-8 without control characters, cut; NULL is "".
void text_clean(char clean[FRAME_NAME_BYTES], const char *text);
/// Copied. *is_new_out: it has not been asked for before.
uint64_t text_number(struct text_table *table, const char *text, bool *is_new_out);
void text_table_free(struct text_table *table);

#endif
