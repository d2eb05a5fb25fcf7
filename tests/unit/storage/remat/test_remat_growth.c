/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of numbers against an array that is searched and moved: random additions and removals, of both ends and
 * between.
 *
 * Costs: 1 s
 */
#include "storage/remat/remat_growth.h"
#include "support/random.h"

#include <cmocka.h>
#include <string.h>

#define NUMBERS_MAX 300U

struct naive {
    uint32_t numbers[NUMBERS_MAX];
    uint32_t count;
};

static uint32_t choose(const struct naive *naive, uint64_t *random)
{
    const uint64_t where = random_below(random, 4);
    return where == 0 ? 0 : where == 1 ? naive->count - 1 : (uint32_t)random_below(random, naive->count);
}

static void remove_one(struct naive *naive, struct number_list *list, uint64_t *random)
{
    const uint32_t place = choose(naive, random);
    assert_true(number_list_remove(list, naive->numbers[place]));
    naive->count--;
    memmove(&naive->numbers[place], &naive->numbers[place + 1], (naive->count - place) * sizeof(naive->numbers[0]));
}

TEST(test_number_list)
{
    uint64_t random = 7;
    for (unsigned round = 0; round < 200; round++) {
        struct naive naive = {.count = 0};
        struct number_list list = {0};
        const uint64_t grows = 20 + random_below(&random, 60); /* per cent */
        for (uint32_t step = 0; step < 1000; step++) {
            if (naive.count == 0 || (naive.count < NUMBERS_MAX && random_below(&random, 100) < grows)) {
                assert_true(number_list_append(&list, step));
                naive.numbers[naive.count++] = step;
            } else {
                remove_one(&naive, &list, &random);
            }
            assert_false(number_list_remove(&list, step + 1));
            assert_int_equal(number_list_has(&list, step), naive.count > 0 && naive.numbers[naive.count - 1] == step);
            assert_int_equal(list.count, naive.count);
            assert_int_equal(memcmp(list.numbers, naive.numbers, naive.count * sizeof(list.numbers[0])), 0);
        }
        number_list_free(&list);
    }
}
