/* SPDX-License-Identifier: Apache-2.0 */
/* Costs: 1 s */
/* The tables made from the lists of event_list.h, and the texts of errors. */
#include "storage/array.h"
#include "base/error.h"
#include "trace/event_list.h"
#include "trace/event_names.h"
#include "trace/record.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

TEST(test_every_kind_is_described)
{
    static const char *const groups[] = {"allocator", "storage", "remat", "heap", "device", "process"};
    unsigned count = 0;
    for (unsigned code = 0; code < 300; code++) {
        const struct event_kind_info *info = event_kind_info(code);
        if (info == NULL) {
            continue;
        }
        bool is_group = false;
        for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
            is_group |= strcmp(info->group, groups[i]) == 0;
        }
        assert_true(is_group);
        assert_true(strlen(info->name) > 0 && strlen(info->meaning) > 0);
        assert_non_null(info->addr);
        assert_non_null(info->arg);
        for (unsigned other = 0; other < code; other++) {
            assert_true(event_kind_info(other) == NULL || strcmp(event_kind_info(other)->name, info->name) != 0);
        }
        count++;
    }
#define COUNT_ONE(...) +1
    assert_int_equal(count, 0 VARVE_EVENT_LIST(COUNT_ONE));
#undef COUNT_ONE
}

/* Stored in every database: these numbers stay. */
TEST(test_stable_codes)
{
    assert_null(event_kind_info(0));
    assert_null(event_kind_info(VARVE_KIND_LIMIT));
    assert_string_equal(event_kind_info(VARVE_KIND_HEAP_REALLOC)->name, "heap_realloc");
    assert_int_equal(VARVE_KIND_ALLOC, 1);
    assert_int_equal(VARVE_KIND_HEAP_ALLOC, 32);
    assert_int_equal(VARVE_KIND_MUNMAP, 36);
    assert_int_equal(VARVE_KIND_LOST, 53);
    assert_string_equal(event_kind_info(VARVE_KIND_HEAP_FREE)->requested, "");
    assert_string_equal(event_cause_text(VARVE_CAUSE_NONE), "");
    assert_string_equal(event_cause_text(VARVE_CAUSE_REALLOC), "realloc");
    assert_string_equal(event_cause_text(VARVE_CAUSE_OVERMAPPED), "overmapped");
    assert_null(event_cause_text(255));
    assert_null(event_cause_text(100000));
}

TEST(test_error_texts)
{
    assert_string_equal(varve_strerror(VARVE_OK), "success");
    assert_string_equal(varve_strerror(VARVE_ERROR_FULL), "no space left");
    assert_string_equal(varve_strerror(-1000), "unknown error");
    assert_string_equal(varve_strerror(1), "unknown error");
    struct varve_message message;
    assert_int_equal(varve_message_set(&message, VARVE_ERROR_IO, "%s: line\nbreak %d", "a", 7), VARVE_ERROR_IO);
    assert_string_equal(message.text, "a: line break 7");
    assert_int_equal(varve_message_set(NULL, VARVE_ERROR_IO, "%s", "dropped"), VARVE_ERROR_IO);
    char longer[2000];
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    varve_message_set(&message, VARVE_ERROR_IO, "%s", longer);
    assert_int_equal(strlen(message.text), sizeof(message.text) - 1);
}

/* What a trace calls the types of elements is what the storage layer calls them. */
TEST(test_element_types)
{
    int count = 0;
#define ELEMENT_CHECK(code, NAME, text, size)                              \
    assert_string_equal(varve_dtype_name((enum varve_dtype)(code)), text); \
    assert_int_equal(varve_dtype_bytes((enum varve_dtype)(code)), size);   \
    count++;
    VARVE_ELEMENT_LIST(ELEMENT_CHECK)
#undef ELEMENT_CHECK
    assert_int_equal(count, VARVE_DTYPE_LIMIT);
}
