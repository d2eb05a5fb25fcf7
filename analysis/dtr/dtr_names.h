/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts, each once, numbered from 0 in the order in which they came. Used by dtr_log.c for the names of
 * operators and of handles.
 */
#ifndef VARVE_ANALYSIS_DTR_DTR_NAMES_H
#define VARVE_ANALYSIS_DTR_DTR_NAMES_H

#include "analysis/base/key_map.h"

#define NAME_TABLE_NONE UINT32_MAX

/* Begins zeroed. offsets[i + 1] - offsets[i] = bytes of name i, the NUL behind it included. */
struct name_table {
    struct map numbers; /* by hash */
    char *bytes;
    size_t *offsets;
    size_t byte_capacity, offset_capacity;
    uint32_t count;
};

/// NAME_TABLE_NONE: it is not there.
uint32_t name_table_find(const struct name_table *table, const char *bytes, size_t count);
/// Its number, old or new. `bytes` hold no NUL.
uint32_t name_table_add(struct name_table *table, const char *bytes, size_t count);
/// With a NUL at its end; until the next one is added.
const char *name_table_text(const struct name_table *table, uint32_t number);
void name_table_free(struct name_table *table);

#endif
