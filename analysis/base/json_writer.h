/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON of all commands: one line; and what others wrote, in pieces that fit memory. Text that is not UTF-8 gets U+FFFD;
 * integers keep all 64 bits.
 */
#ifndef VARVE_ANALYSIS_BASE_JSON_WRITER_H
#define VARVE_ANALYSIS_BASE_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct cJSON;

struct cJSON *json_object(void);
struct cJSON *json_array(void);
struct cJSON *json_text_value(const char *text, size_t bytes);
struct cJSON *json_integer_value(int64_t number);
struct cJSON *json_real_value(double number);
struct cJSON *json_null_value(void);
void json_text(struct cJSON *object, const char *key, const char *text); /* NULL is null */
void json_integer(struct cJSON *object, const char *key, int64_t number);
void json_integer_or_null(struct cJSON *object, const char *key, int64_t number); /* < 0 is null */
void json_bool(struct cJSON *object, const char *key, bool value);
void json_real(struct cJSON *object, const char *key, double value);
void json_add(struct cJSON *object, const char *key, struct cJSON *value); /* takes `value` */
void json_append(struct cJSON *array, struct cJSON *value);                /* takes `value` */
/// The object that is the member `key` of an object, added as an empty one where there is none yet.
struct cJSON *json_member(struct cJSON *object, const char *key);
void json_print(struct cJSON *value, FILE *out); /* frees `value` */

/* reading */

/// The one value that `text` is; NULL if it is none. Owner: the caller, by json_free.
struct cJSON *json_parse(const char *text, size_t bytes);
void json_free(struct cJSON *value); /* NULL is allowed */
/// What an object has under a key, NULL if that is another type, or nothing; the object's own.
const struct cJSON *json_find_object(const struct cJSON *object, const char *key);
const char *json_find_text(const struct cJSON *object, const char *key);
bool json_find_number(const struct cJSON *object, const char *key, double *number_out);

#endif
