/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/* A CTF trace read into memory, item by item. */
#ifndef VARVE_TESTS_SUPPORT_CTF_READING_H
#define VARVE_TESTS_SUPPORT_CTF_READING_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "analysis/import/ctf/ctf.h"
#include "support/ctf_writing.h"

#define ITEMS 256U

/* The items of a trace, with copies of their parts. */
struct got {
    struct ctf_item items[ITEMS];
    char parts[ITEMS][CTF_PARTS][256];
    size_t count;
    struct ctf_reading reading;
};

static struct got got;

static inline int keep(void *context, const struct ctf_item *item)
{
    struct ctf_item *copy = &got.items[got.count];

    assert_null(context);
    assert_true(got.count < ITEMS);
    *copy = *item;
    for (unsigned i = 0; i < ctf_item_shape(item->kind)->parts; i++) {
        assert_true(item->parts[i].bytes <= sizeof(got.parts[0][0]));
        if (item->parts[i].bytes > 0) {
            memcpy(got.parts[got.count][i], item->parts[i].data, item->parts[i].bytes);
        }
        copy->parts[i].data = got.parts[got.count][i];
    }
    ctf_item_bind(copy);
    got.count++;
    return VARVE_OK;
}

static inline void read_trace(const char *folder)
{
    struct ctf_source source = {.folder = folder, .take = keep};
    struct varve_message message = {""};
    int error;

    memset(&got, 0, sizeof(got));
    error = ctf_read(&source, &got.reading, &message);
    if (error != VARVE_OK) {
        fail_msg("%s: %s", folder, message.text);
    }
    assert_string_equal(got.reading.damage.text, "");
}

static inline int enter(void **state)
{
    *state = test_folder_enter();
    return 0;
}

static inline int leave(void **state)
{
    test_folder_leave(*state);
    return 0;
}

#endif
