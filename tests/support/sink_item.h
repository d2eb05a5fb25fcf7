/* SPDX-License-Identifier: Apache-2.0 */
/* C only: helpers of cmocka programs */
/* Items of a second sink that are kept: with texts and arrays of their own. */
#ifndef VARVE_TESTS_SUPPORT_SINK_ITEM_H
#define VARVE_TESTS_SUPPORT_SINK_ITEM_H

#include <cmocka.h>

#include "trace/sink.h"

#include <stdlib.h>
#include <string.h>

#define SINK_ITEM_POINTERS 3

/* Pointers to its texts (`bytes` 0) and arrays. */
struct sink_item_pointer {
    const void **pointer;
    size_t bytes;
};

#define SINK_ITEM_TEXT(member)             \
    {                                      \
        (const void **)&item->of.member, 0 \
    }
#define SINK_ITEM_ARRAY(member, count)                                                 \
    {                                                                                  \
        (const void **)&item->of.member, item->of.count * sizeof(*item->of.member) + 1 \
    }

static inline void sink_item_pointers(struct varve_sink_item *item, struct sink_item_pointer *out)
{
    const struct {
        enum varve_sink_item_kind kind;
        struct sink_item_pointer pointers[SINK_ITEM_POINTERS];
    } table[] = {
        {VARVE_SINK_ITEM_PROCESS, {SINK_ITEM_TEXT(process.executable), SINK_ITEM_TEXT(process.command_line)}},
        {VARVE_SINK_ITEM_PROCESS_END, {SINK_ITEM_TEXT(process_end.exec_path)}},
        {VARVE_SINK_ITEM_THREAD, {SINK_ITEM_TEXT(thread.name)}},
        {VARVE_SINK_ITEM_MODULE,
         {SINK_ITEM_TEXT(module.path), SINK_ITEM_ARRAY(module.build_id, module.build_id_bytes)}},
        {VARVE_SINK_ITEM_CODE, {SINK_ITEM_TEXT(code.function), SINK_ITEM_TEXT(code.file)}},
        {VARVE_SINK_ITEM_CALLSITE,
         {SINK_ITEM_ARRAY(callsite.native, callsite.native_count),
          SINK_ITEM_ARRAY(callsite.codes, callsite.python_count),
          SINK_ITEM_ARRAY(callsite.lines, callsite.python_count)}},
        {VARVE_SINK_ITEM_META_TEXT, {SINK_ITEM_TEXT(meta.key), SINK_ITEM_TEXT(meta.text)}},
        {VARVE_SINK_ITEM_META_INTEGER, {SINK_ITEM_TEXT(meta.key)}},
    };
    memset(out, 0, SINK_ITEM_POINTERS * sizeof(*out));
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (table[i].kind == item->kind) {
            memcpy(out, table[i].pointers, sizeof(table[i].pointers));
        }
    }
}

/* Until sink_item_drop. */
static inline struct varve_sink_item sink_item_copy(const struct varve_sink_item *from)
{
    struct varve_sink_item item = *from;
    struct sink_item_pointer pointers[SINK_ITEM_POINTERS];
    sink_item_pointers(&item, pointers);
    for (size_t i = 0; i < SINK_ITEM_POINTERS && pointers[i].pointer != NULL; i++) {
        const void *borrowed = *pointers[i].pointer;
        size_t bytes = pointers[i].bytes > 0 ? pointers[i].bytes - 1 : strlen(borrowed) + 1;
        void *own = malloc(bytes + 1);
        assert_non_null(own);
        if (bytes > 0) {
            memcpy(own, borrowed, bytes);
        }
        *pointers[i].pointer = own;
    }
    return item;
}

static inline void sink_item_drop(struct varve_sink_item *item)
{
    struct sink_item_pointer pointers[SINK_ITEM_POINTERS];
    sink_item_pointers(item, pointers);
    for (size_t i = 0; i < SINK_ITEM_POINTERS && pointers[i].pointer != NULL; i++) {
        free((void *)*pointers[i].pointer);
    }
}

#endif
