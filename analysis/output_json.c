/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON, over cJSON. Two things cJSON leaves to its caller are done here: integers beyond 2^53 keep all their
 * digits (its numbers are doubles), and text that is not UTF-8 (file names may be anything) becomes valid
 * JSON.
 */
#include "analysis/analysis_internal.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* cJSON gives NULL for nothing but a lack of memory. */
static struct cJSON *checked(struct cJSON *value)
{
    if (value == NULL) {
        memory_exhausted();
    }
    return value;
}

struct cJSON *json_object(void)
{
    return checked(cJSON_CreateObject());
}

struct cJSON *json_array(void)
{
    return checked(cJSON_CreateArray());
}

struct cJSON *json_null_value(void)
{
    return checked(cJSON_CreateNull());
}

struct cJSON *json_integer_value(int64_t number)
{
    char digits[32];

    snprintf(digits, sizeof(digits), "%" PRId64, number);
    return checked(cJSON_CreateRaw(digits));
}

struct cJSON *json_real_value(double number)
{
    return checked(cJSON_CreateNumber(number)); /* infinities print as null */
}

/* Bytes of the well-formed UTF-8 sequence at `text`, 0 if there is none (Unicode 15, table 3-7). */
static size_t utf8_length(const unsigned char *text, size_t bytes)
{
    unsigned char lead = text[0];
    size_t length = lead < 0x80   ? 1
                    : lead < 0xc2 ? 0
                    : lead < 0xe0 ? 2
                    : lead < 0xf0 ? 3
                    : lead < 0xf5 ? 4
                                  : 0;

    if (length == 0 || length > bytes) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0U) != 0x80U) {
            return 0;
        }
    }
    if ((lead == 0xe0 && text[1] < 0xa0) || (lead == 0xed && text[1] > 0x9f) ||
        (lead == 0xf0 && text[1] < 0x90) || (lead == 0xf4 && text[1] > 0x8f)) {
        return 0;
    }
    return length;
}

struct cJSON *json_text_value(const char *text, size_t bytes)
{
    const unsigned char *from = (const unsigned char *)text;
    char *quoted = memory_resize(NULL, bytes * 6 + 3);
    size_t to = 0;
    struct cJSON *value;

    quoted[to++] = '"';
    for (size_t i = 0; i < bytes;) {
        size_t length = utf8_length(from + i, bytes - i);

        if (length == 0) {
            to += (size_t)sprintf(quoted + to, "\\ufffd");
            i++;
        } else if (from[i] < 0x20 || from[i] == 0x7f) {
            to += (size_t)sprintf(quoted + to, "\\u%04x", from[i]);
            i++;
        } else {
            if (from[i] == '"' || from[i] == '\\') {
                quoted[to++] = '\\';
            }
            memcpy(quoted + to, from + i, length);
            to += length;
            i += length;
        }
    }
    quoted[to++] = '"';
    quoted[to] = '\0';
    value = checked(cJSON_CreateRaw(quoted));
    free(quoted);
    return value;
}

struct cJSON *json_value(const struct value *value)
{
    struct cJSON *json;
    char *digits;

    switch (value->type) {
    case VALUE_INTEGER:
        return json_integer_value(value->integer);
    case VALUE_REAL:
        return json_real_value(value->real);
    case VALUE_TEXT:
        return json_text_value(value->text, value->bytes);
    case VALUE_BLOB:
        digits = hexadecimal(value->text, value->bytes);
        json = json_text_value(digits, value->bytes * 2);
        free(digits);
        return json;
    default:
        return json_null_value();
    }
}

void json_add(struct cJSON *object, const char *key, struct cJSON *value)
{
    if (!cJSON_AddItemToObject(object, key, value)) {
        memory_exhausted();
    }
}

void json_append(struct cJSON *array, struct cJSON *value)
{
    cJSON_AddItemToArray(array, value);
}

void json_text(struct cJSON *object, const char *key, const char *text)
{
    json_add(object, key, text != NULL ? json_text_value(text, strlen(text)) : json_null_value());
}

void json_integer(struct cJSON *object, const char *key, int64_t number)
{
    json_add(object, key, json_integer_value(number));
}

void json_integer_or_null(struct cJSON *object, const char *key, int64_t number)
{
    json_add(object, key, number >= 0 ? json_integer_value(number) : json_null_value());
}

void json_bool(struct cJSON *object, const char *key, bool value)
{
    json_add(object, key, checked(cJSON_CreateBool(value)));
}

void json_real(struct cJSON *object, const char *key, double value)
{
    json_add(object, key, json_real_value(value));
}

void json_print(struct cJSON *value, FILE *out)
{
    char *text = cJSON_PrintUnformatted(value);

    if (text == NULL) {
        memory_exhausted();
    }
    fputs(text, out);
    fputc('\n', out);
    free(text);
    cJSON_Delete(value);
}
