/* SPDX-License-Identifier: Apache-2.0 */
/* Each pattern is kept as one of fnmatch, with stars where the name may go on. */
#include "analysis/report/leak_suppress.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/query/callsite_query.h"
#include "analysis/query/hidden_lines.h"
#include "base/error.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAK "leak:"

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
    suppressions->patterns =
        memory_resize(suppressions->patterns, (suppressions->count + 1) * sizeof(*suppressions->patterns));
    suppressions->patterns[suppressions->count++] = glob_of(line + head, length - head);
    return VARVE_OK;
}

static int text_add(struct suppressions *suppressions, const char *text, const char *path,
                    struct varve_message *message)
{
    int error = VARVE_OK;
    for (unsigned number = 1; text != NULL && *text != '\0' && error == VARVE_OK; number++) {
        const size_t length = strcspn(text, "\n");
        error = line_add(suppressions, text, length, path, number, message);
        text += length + (text[length] == '\n');
    }
    return error;
}

int suppressions_load(struct suppressions **out, const char *path, struct varve_message *message)
{
    struct suppressions *suppressions = memory_resize(NULL, sizeof(*suppressions));
    *suppressions = (struct suppressions){0};
    char config[4096];
    char *text = NULL;
    int error = user_file_of_config("suppressions.txt", config, sizeof(config), &text, message);
    if (error == VARVE_OK) {
        error = text_add(suppressions, text, config, message);
    }
    free(text);
    text = NULL;
    if (error == VARVE_OK && path != NULL) {
        error = user_file_read(path, &text, message);
        if (error == VARVE_OK) {
            error = text_add(suppressions, text, path, message);
        }
    }
    free(text);
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
