/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON, over cJSON. Two things cJSON leaves to its caller are done here: integers beyond 2^53 keep all their
 * digits (its numbers are doubles), and text that is not UTF-8 (file names may be anything) becomes valid
 * JSON.
 */
#include "analysis/base/json_writer.h"

#include "analysis/base/memory_or_exit.h"
#include "base/error.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
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

struct cJSON *json_text_value(const char *text, size_t bytes)
{
    char *quoted = memory_resize(NULL, bytes * 6 + 3);
    size_t to = 0;
    quoted[to++] = '"';
    for (size_t i = 0; i < bytes;) {
        size_t length = varve_utf8_length(text + i, bytes - i);
        if (length == 0) {
            to += (size_t)sprintf(quoted + to, "\\ufffd");
            i++;
            continue;
        }
        if (varve_utf8_shown(text + i, bytes - i) == 0) { /* of U+0080 to U+009F the second byte is the number */
            to += (size_t)sprintf(quoted + to, "\\u%04x", (unsigned)(unsigned char)text[i + length - 1]);
        } else {
            if (text[i] == '"' || text[i] == '\\') {
                quoted[to++] = '\\';
            }
            memcpy(quoted + to, text + i, length);
            to += length;
        }
        i += length;
    }
    quoted[to++] = '"';
    quoted[to] = '\0';
    struct cJSON *value = checked(cJSON_CreateRaw(quoted));
    free(quoted);
    return value;
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

struct cJSON *json_member(struct cJSON *object, const char *key)
{
    struct cJSON *found = cJSON_GetObjectItemCaseSensitive(object, key);
    return found != NULL ? found : checked(cJSON_AddObjectToObject(object, key));
}

/* Keys may be names of a database as well, and of those cJSON escapes only what JSON itself forbids. */
static void print_shown(const char *text, FILE *out)
{
    size_t bytes = strlen(text);
    size_t printed = 0;
    for (size_t i = 0; i < bytes;) {
        size_t shown = varve_utf8_shown(text + i, bytes - i);
        size_t length = shown > 0 ? shown : varve_utf8_length(text + i, bytes - i);
        if (shown == 0) {
            fwrite(text + printed, 1, i - printed, out);
            if (length > 0) {
                fprintf(out, "\\u%04x", (unsigned)(unsigned char)text[i + length - 1]);
            } else {
                fputs("\\ufffd", out);
            }
            printed = i + (length > 0 ? length : 1);
        }
        i += length > 0 ? length : 1;
    }
    fwrite(text + printed, 1, bytes - printed, out);
}

void json_print(struct cJSON *value, FILE *out)
{
    char *text = cJSON_PrintUnformatted(value);
    if (text == NULL) {
        memory_exhausted();
    }
    print_shown(text, out);
    fputc('\n', out);
    free(text);
    cJSON_Delete(value);
}

struct cJSON *json_parse(const char *text, size_t bytes)
{
    return cJSON_ParseWithLength(text, bytes);
}

void json_free(struct cJSON *value)
{
    cJSON_Delete(value);
}

const struct cJSON *json_find_object(const struct cJSON *object, const char *key)
{
    const struct cJSON *found = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsObject(found) ? found : NULL;
}

const char *json_find_text(const struct cJSON *object, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

bool json_find_number(const struct cJSON *object, const char *key, double *number_out)
{
    const struct cJSON *found = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(found)) {
        return false;
    }
    *number_out = found->valuedouble;
    return true;
}
