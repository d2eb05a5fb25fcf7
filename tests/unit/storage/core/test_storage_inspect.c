/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said of storages: in the C library's memory and in a pool's, of views, with names that JSON must escape;
 * texts that do not fit are cut, and their length is told.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/storage/pool.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

static const int64_t shape[] = {2, 3};
static struct varve_message message;

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    assert_true(cJSON_IsNumber(value));
    return value->valuedouble;
}

/* The JSON object; its text is complete just in as many bytes as are said. Owner: the caller. */
static cJSON *json_of(const struct varve_storage *storage)
{
    struct varve_storage_info info;
    varve_storage_inspect(storage, &info);
    char text[2048];
    size_t length = varve_storage_info_json(&info, text, sizeof(text));
    assert_int_equal(length, strlen(text));
    cJSON *object = cJSON_Parse(text);
    assert_non_null(object);
    assert_int_equal(varve_storage_info_json(&info, text, length), length);
    assert_int_equal(strlen(text), length - 1);
    assert_int_equal(varve_storage_info_json(&info, NULL, 0), length);
    return object;
}

TEST(test_text)
{
    struct varve_storage *storage, *view;
    assert_int_equal(varve_storage_empty(&(struct varve_storage_options){.name = "weights"}, VARVE_DTYPE_F32, 2, shape,
                                         &storage, &message),
                     VARVE_OK);
    assert_int_equal(varve_storage_transpose(storage, 0, 1, &view, &message), VARVE_OK);
    struct varve_storage_info info;
    varve_storage_inspect(storage, &info);
    assert_string_equal(info.device, "host");
    assert_int_equal(info.device_index, -1);
    assert_false(info.has_block);
    char text[512], expected[512];
    varve_storage_info_text(&info, text, sizeof(text));
    snprintf(expected, sizeof(expected),
             "storage %d 'weights': f32 (2, 3), 24 bytes at %p on host, 2 references, 1 view",
             (int)varve_storage_id(storage), varve_storage_data(storage));
    assert_string_equal(text, expected);
    varve_storage_inspect(view, &info);
    varve_storage_info_text(&info, text, sizeof(text));
    snprintf(expected, sizeof(expected),
             "storage %d: f32 (3, 2), 24 bytes at %p on host, strides (1, 3), a view of storage %d with 24 bytes, 1 "
             "reference, 0 views",
             (int)varve_storage_id(view), varve_storage_data(view), (int)varve_storage_id(storage));
    assert_string_equal(text, expected);
    varve_storage_release(view, NULL);
    varve_storage_release(storage, NULL);
}

static int third_open(struct varve_device **device_out, struct varve_message *said)
{
    return varve_sim_open(&(struct varve_sim_options){.index = 3, .capacity_bytes = POOL_LIMIT}, device_out, said);
}

static const struct pool_kind pool_third = {.name = "third", .open = third_open, .check = varve_sim_check};

static void test_json(void **state)
{
    struct varve_storage_options options = {.name = "a \"b\"\n\xff\xc3\xa9",
                                            .memory = ((const struct pool *)*state)->memory};
    struct varve_storage *storage, *view;
    assert_int_equal(varve_storage_empty(&options, VARVE_DTYPE_I64, 2, shape, &storage, &message), VARVE_OK);
    assert_int_equal(varve_storage_select(storage, 1, 2, &view, &message), VARVE_OK);
    cJSON *object = json_of(view);
    assert_int_equal(number_of(object, "base_id"), varve_storage_id(storage));
    assert_int_equal(number_of(object, "bytes"), 16);
    assert_int_equal(number_of(object, "offset"), 2);
    assert_int_equal(number_of(object, "base_bytes"), 48);
    assert_int_equal(number_of(object, "device_index"), 3);
    const cJSON *block = cJSON_GetObjectItemCaseSensitive(object, "block");
    assert_int_equal(number_of(block, "bytes"), 512);
    assert_int_equal(number_of(block, "requested"), 48);
    assert_int_equal(number_of(object, "data_addr"), number_of(block, "addr") + 16);
    cJSON_Delete(object);
    object = json_of(storage);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "name")), "a \"b\"\n?\xc3\xa9");
    assert_null(cJSON_GetObjectItemCaseSensitive(object, "base_id"));
    assert_int_equal(number_of(object, "view_count"), 1);
    cJSON_Delete(object);
    varve_storage_release(storage, NULL);
    varve_storage_release(view, NULL);
}

static const struct CMUnitTest cases[] = {
    POOL_CASE(test_json, pool_third),
};

TEST_CASES(cases)
