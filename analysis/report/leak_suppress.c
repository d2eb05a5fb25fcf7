/* SPDX-License-Identifier: Apache-2.0 */
/* Each pattern is kept as one of fnmatch, with stars where the name may go on. */
#include "analysis/report/leak_suppress.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/user_config.h"
#include "analysis/query/callsite_query.h"
#include "base/error.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAK "leak:"
#define LINE_BYTES_MAX 4096

struct suppressions {
    char **patterns;
    size_t count;
};

static char *glob_of(const char *pattern, size_t length)
{
    char *text;
    size_t bytes;
    FILE *glob = memory_stream(&text, &bytes);
    bool from_begin = length > 0 && pattern[0] == '^';
    bool to_end = length > from_begin && pattern[length - 1] == '$';
    fputs(from_begin ? "" : "*", glob);
    for (size_t i = from_begin; i < length - to_end; i++) {
        if (strchr("?[]\\", pattern[i]) != NULL) {
            fputc('\\', glob);
        }
        fputc(pattern[i], glob);
    }
    fputs(to_end ? "" : "*", glob);
    memory_stream_end(glob, &text);
    return text;
}

static void pattern_add(struct suppressions *suppressions, const char *pattern, size_t length)
{
    suppressions->patterns =
        memory_resize(suppressions->patterns, (suppressions->count + 1) * sizeof(*suppressions->patterns));
    suppressions->patterns[suppressions->count++] = glob_of(pattern, length);
}

/* ---- a file in LeakSanitizer's form ---- */

static int line_add(struct suppressions *suppressions, const char *line, size_t length, const char *path,
                    unsigned number, struct varve_message *message)
{
    while (length > 0 && strchr(" \t\r", line[length - 1]) != NULL) {
        length--;
    }
    if (length == 0 || line[0] == '#') {
        return VARVE_OK;
    }
    const size_t head = strlen(LEAK);
    if (length <= head || strncmp(line, LEAK, head) != 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "%s: line %u is no suppression: leak:PATTERN, as LeakSanitizer has them", path,
                                 number);
    }
    pattern_add(suppressions, line + head, length - head);
    return VARVE_OK;
}

static int suppress_add_file(struct suppressions *suppressions, const char *path, struct varve_message *message)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return varve_message_set(message, errno == ENOENT ? VARVE_ERROR_NOT_FOUND : VARVE_ERROR_IO,
                                 "%s: cannot be read: %s", path, strerror(errno));
    }
    int error = VARVE_OK;
    char line[LINE_BYTES_MAX];
    for (unsigned number = 1; error == VARVE_OK && fgets(line, sizeof(line), file) != NULL; number++) {
        error = line_add(suppressions, line, strcspn(line, "\n"), path, number, message);
    }
    if (error == VARVE_OK && ferror(file)) {
        error = varve_message_set(message, VARVE_ERROR_IO, "%s: cannot be read: %s", path, strerror(errno));
    }
    fclose(file);
    return error;
}

/* ---- the user's files ---- */

static int config_add(struct suppressions *suppressions, struct varve_message *message)
{
    struct user_config config;
    int error = user_config_load(&config, message);
    const struct config_entry *entry = NULL;
    while (error == VARVE_OK && (entry = user_config_next(&config, "suppressions", entry)) != NULL) {
        if (strcmp(entry->key, "leak") == 0 && entry->value[0] != '\0') {
            pattern_add(suppressions, entry->value, strlen(entry->value));
        } else {
            error = user_config_refuse(entry, "a suppression is leak = PATTERN", message);
        }
    }
    user_config_free(&config);
    return error;
}

int suppressions_load(struct suppressions **out, const char *path, struct varve_message *message)
{
    struct suppressions *suppressions = memory_resize(NULL, sizeof(*suppressions));
    *suppressions = (struct suppressions){0};
    int error = config_add(suppressions, message);
    if (path != NULL) {
        VARVE_THEN(error, suppress_add_file(suppressions, path, message));
    }
    *out = NULL;
    if (error == VARVE_OK && suppressions->count > 0) {
        *out = suppressions;
    } else {
        suppressions_free(suppressions);
    }
    return error;
}

static bool name_matches(const struct suppressions *suppressions, const char *name)
{
    bool is_match = false;
    for (size_t i = 0; i < suppressions->count && !is_match && name != NULL; i++) {
        is_match = fnmatch(suppressions->patterns[i], name, 0) == 0;
    }
    return is_match;
}

bool suppressions_match(const struct suppressions *suppressions, struct database *database, int64_t callsite_id)
{
    struct stack stack;
    if (suppressions == NULL || callsite_id == 0) {
        return false;
    }
    stack_load(&stack, database, callsite_id);
    bool is_match = false;
    for (size_t i = 0; i < stack.count && !is_match; i++) {
        const struct stack_frame *frame = &stack.frames[i];
        is_match = name_matches(suppressions, frame->function) || name_matches(suppressions, frame->file) ||
                   name_matches(suppressions, frame->module);
    }
    stack_free(&stack);
    return is_match;
}

void suppressions_free(struct suppressions *suppressions)
{
    for (size_t i = 0; suppressions != NULL && i < suppressions->count; i++) {
        free(suppressions->patterns[i]);
    }
    if (suppressions != NULL) {
        free(suppressions->patterns);
    }
    free(suppressions);
}
