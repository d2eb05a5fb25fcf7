/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the environment of a front end. Values that make no sense are an error of the first request, not a
 * silent default: a typo in a test must not put it on another device.
 */
#include "alloc/frontend/registry_config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {
    [FRONTEND_DEVICE_CUDA] = "cuda",
    [FRONTEND_DEVICE_HOST] = "host",
    [FRONTEND_DEVICE_SIM] = "sim",
};

const char *frontend_device_kind_name(enum frontend_device_kind kind)
{
    return kind_names[kind];
}

/* NULL if it is not set, or to nothing. */
static const char *variable(const char *prefix, const char *end, char *name, size_t size)
{
    snprintf(name, size, "%s_%s", prefix, end);
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static int read_kind(const char *prefix, struct frontend_config *config, struct varve_message *message)
{
    char name[64];
    const char *value = variable(prefix, "DEVICE", name, sizeof(name));
    config->kind = FRONTEND_DEVICE_CUDA;
    for (size_t i = 0; value != NULL; i++) {
        if (i == sizeof(kind_names) / sizeof(kind_names[0])) {
            return varve_message_set(message, VARVE_ERROR_INVALID,
                                     "%s: '%.64s' is no device; there are cuda, host and sim", name, value);
        }
        if (strcmp(value, kind_names[i]) == 0) {
            config->kind = (enum frontend_device_kind)i;
            break;
        }
    }
    return VARVE_OK;
}

/* The whole text is decimal digits, and the number is below 2^64. */
static bool registry_config_parse_bytes(const char *text, uint64_t *bytes_out)
{
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    errno = 0;
    char *end;
    *bytes_out = strtoull(text, &end, 10);
    return *end == '\0' && errno == 0;
}

static int read_limit(const char *prefix, struct frontend_config *config, struct varve_message *message)
{
    char name[64];
    const char *value = variable(prefix, "LIMIT", name, sizeof(name));
    if (value != NULL && !registry_config_parse_bytes(value, &config->limit_bytes)) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s: '%.64s' is no number of bytes", name, value);
    }
    return VARVE_OK;
}

static int read_policy(const char *prefix, struct frontend_config *config, struct varve_message *message)
{
    char name[64];
    const char *value = variable(prefix, "POLICY", name, sizeof(name));
    if (value != NULL && strlen(value) >= sizeof(config->policy)) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "%s: there is no policy '%.64s'", name, value);
    }
    snprintf(config->policy, sizeof(config->policy), "%s", value != NULL ? value : "pytorch");
    return VARVE_OK;
}

static int registry_config_read_alloc(const char *alloc_variable, struct frontend_config *config,
                                      struct varve_message *message)
{
    struct varve_message reason = {""};
    if (alloc_variable == NULL) {
        return varve_alloc_config_environment(&config->alloc, message);
    }
    const char *value = getenv(alloc_variable);
    int error = varve_alloc_config_parse(value != NULL ? value : "", &config->alloc, &reason);
    return error == VARVE_OK ? error : varve_message_set(message, error, "%s: %.400s", alloc_variable, reason.text);
}

int frontend_config_read(const char *prefix, const char *alloc_variable, struct frontend_config *config_out,
                         struct varve_message *message)
{
    *config_out = (struct frontend_config){0};
    int error = read_kind(prefix, config_out, message);
    VARVE_THEN(error, read_limit(prefix, config_out, message));
    VARVE_THEN(error, read_policy(prefix, config_out, message));
    return error == VARVE_OK ? registry_config_read_alloc(alloc_variable, config_out, message) : error;
}
