/* SPDX-License-Identifier: Apache-2.0 */
/* Costs: 1 s */
/* What a trace lacks of the rings, by ring and number. */
#include <cmocka.h>

#include "trace/collector/lttng_session.h"

#include <string.h>

static int status; /* of the reading */

static int numbers(const char *folder,
                   void (*take)(void *context, uint32_t process, uint32_t ring, uint64_t first, uint64_t last),
                   void *context, struct varve_message *message)
{
    assert_string_equal(folder, "trace");
    take(context, 2, 1, 1, 50);
    take(context, 1, 3, 1, 10);
    take(context, 1, 3, 12, 21); /* 11 is missing; 21 was never committed */
    take(context, 2, 1, 61, 100);
    take(context, 9, 9, 1, 1000); /* of another recording */
    take(context, 1, 4, 5, 5);
    return status == VARVE_OK ? VARVE_OK : varve_message_set(message, status, "no trace");
}

TEST(test_counted_by_ring_and_number)
{
    struct lttng_ring rings[] = {
        {.process = 2, .ring = 1, .records = 100, .last = 100}, /* 51 … 60 */
        {.process = 1, .ring = 3, .records = 20, .last = 20},   /* 11 */
        {.process = 1, .ring = 4, .records = 1, .last = 5},     /* 1 … 4 were dropped by the program itself */
        {.process = 1, .ring = 5, .records = 7, .last = 7},     /* all */
    };
    struct varve_message message = {""};
    uint64_t missing = 1;
    assert_int_equal(lttng_missing_count(rings, 4, "trace", numbers, &missing, &message), VARVE_OK);
    assert_int_equal(missing, 10 + 1 + 7);
    assert_int_equal(lttng_missing_count(NULL, 0, "none", numbers, &missing, &message), VARVE_OK);
    assert_int_equal(missing, 0); /* nothing to compare: nothing is read */
    missing = 1;
    status = VARVE_ERROR_FORMAT;
    assert_int_equal(lttng_missing_count(rings, 1, "trace", numbers, &missing, &message), VARVE_ERROR_FORMAT);
    assert_int_equal(missing, 0);
    assert_string_equal(message.text, "no trace");
}
