/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns of frames that are not the user's own code, and the rank of a frame by them. Each symbol is ranked once, so
 * a pattern costs little: those with a fixed first character lie in a list of their own per character. A pattern is no
 * glob of fnmatch, to which the brackets of `operator new[]` and the bytes of names in other encodings mean something.
 */
#include "trace/callsites/frame_kinds.h"

#include "base/error.h"
#include "trace/writer.h"

#include <stdlib.h>
#include <string.h>

enum kind {
    KIND_FUNCTION,
    KIND_FILE,
    KIND_MODULE,
    KIND_LIBRARY,
    KIND_FRAMEWORK,
    KIND_USER,
    KIND_LIMIT,
};

#define LISTS 257 /* by first character; the last one: patterns that begin with a star */

struct pattern {
    struct pattern *next;
    char text[];
};

struct varve_plumbing {
    struct pattern *lists[KIND_LIMIT][LISTS];
};

bool plumbing_match(const char *pattern, const char *text)
{
    const char *star = NULL;
    const char *again = text;

    /* What a star stands for grows only as far as what follows it needs: the last star alone has to be tried again. */
    while (*text != '\0') {
        if (*pattern == '*') {
            star = ++pattern;
            again = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (star != NULL) {
            pattern = star;
            text = ++again;
        } else {
            return false;
        }
    }
    while (*pattern == '*') {
        pattern++;
    }
    return *pattern == '\0';
}

static bool list_matches(const struct pattern *pattern, const char *text)
{
    for (; pattern != NULL; pattern = pattern->next) {
        if (plumbing_match(pattern->text, text)) {
            return true;
        }
    }
    return false;
}

static bool matches(const struct varve_plumbing *plumbing, enum kind kind, const char *text)
{
    struct pattern *const *lists = plumbing->lists[kind];
    return text != NULL && (list_matches(lists[(unsigned char)text[0]], text) || list_matches(lists[LISTS - 1], text));
}

static int plumbing_add(struct varve_plumbing *plumbing, enum kind kind, const char *text, size_t bytes)
{
    struct pattern *pattern = malloc(sizeof(*pattern) + bytes + 1);
    struct pattern **list = &plumbing->lists[kind][text[0] == '*' ? LISTS - 1 : (unsigned char)text[0]];
    if (pattern == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    memcpy(pattern->text, text, bytes);
    pattern->text[bytes] = '\0';
    pattern->next = *list;
    *list = pattern;
    return VARVE_OK;
}

static const char *const kind_names[KIND_LIMIT] = {
    [KIND_FUNCTION] = "function", [KIND_FILE] = "file",           [KIND_MODULE] = "module",
    [KIND_LIBRARY] = "library",   [KIND_FRAMEWORK] = "framework", [KIND_USER] = "user",
};

/* KIND_LIMIT: there is none of that name. */
static enum kind kind_find(const char *name, size_t bytes)
{
    unsigned kind = 0;
    while (kind < KIND_LIMIT && (strlen(kind_names[kind]) != bytes || strncmp(kind_names[kind], name, bytes) != 0)) {
        kind++;
    }
    return (enum kind)kind;
}

static int add_pattern(struct varve_plumbing *plumbing, const char *text, size_t bytes)
{
    const char *colon = memchr(text, ':', bytes);
    const enum kind kind = colon != NULL ? kind_find(text, (size_t)(colon - text)) : KIND_LIMIT;
    if (colon != NULL && kind != KIND_LIMIT) {
        const size_t head = (size_t)(colon + 1 - text);
        return bytes > head ? plumbing_add(plumbing, kind, colon + 1, bytes - head) : VARVE_ERROR_INVALID;
    }
    if (bytes == 0 || memchr(text, '/', bytes) == NULL) {
        return bytes > 0 ? plumbing_add(plumbing, KIND_FUNCTION, text, bytes) : VARVE_ERROR_INVALID;
    }
    int error = plumbing_add(plumbing, KIND_FILE, text, bytes);
    return error == VARVE_OK ? plumbing_add(plumbing, KIND_MODULE, text, bytes) : error;
}

static int say_why_not_added(int error, const char *pattern, struct varve_message *message)
{
    return error == VARVE_OK
               ? VARVE_OK
               : varve_message_set(message, error, "pattern '%s': %s", pattern,
                                   error == VARVE_ERROR_INVALID ? "nothing to look for" : varve_strerror(error));
}

int varve_plumbing_add(struct varve_plumbing *plumbing, const char *pattern, struct varve_message *message)
{
    return say_why_not_added(add_pattern(plumbing, pattern, strlen(pattern)), pattern, message);
}

int varve_plumbing_add_kind(struct varve_plumbing *plumbing, const char *kind, const char *pattern,
                            struct varve_message *message)
{
    const enum kind found = kind_find(kind, strlen(kind));
    if (found == KIND_LIMIT) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "there are patterns for function, file, module, library, framework and user, not '%s'",
                                 kind);
    }
    const size_t bytes = strlen(pattern);
    return say_why_not_added(bytes > 0 ? plumbing_add(plumbing, found, pattern, bytes) : VARVE_ERROR_INVALID, pattern,
                             message);
}

int varve_plumbing_add_lines(struct varve_plumbing *plumbing, const char *text, struct varve_message *message)
{
    static const char spaces[] = " \t\r";
    for (unsigned long number = 1; *text != '\0'; number++) {
        const char *line = text + strspn(text, spaces);
        size_t bytes = strcspn(line, "\n");
        text = line + bytes + (line[bytes] == '\n');
        while (bytes > 0 && strchr(spaces, line[bytes - 1]) != NULL) {
            bytes--;
        }
        int error = VARVE_OK;
        if (bytes > 0 && line[0] != '#') {
            error = add_pattern(plumbing, line, bytes);
        }
        if (error != VARVE_OK) {
            return varve_message_set(message, error, "line %lu: %s", number,
                                     error == VARVE_ERROR_INVALID ? "nothing to look for" : varve_strerror(error));
        }
    }
    return VARVE_OK;
}

int varve_plumbing_open(struct varve_plumbing **plumbing_out)
{
    struct varve_plumbing *plumbing = calloc(1, sizeof(*plumbing));
    const int error =
        plumbing != NULL ? varve_plumbing_add_lines(plumbing, callsites_plumbing_txt, NULL) : VARVE_ERROR_NO_MEMORY;
    if (error != VARVE_OK) {
        varve_plumbing_close(plumbing);
        plumbing = NULL;
    }
    *plumbing_out = plumbing;
    return error;
}

void varve_plumbing_close(struct varve_plumbing *plumbing)
{
    if (plumbing == NULL) {
        return;
    }
    for (unsigned kind = 0; kind < KIND_LIMIT; kind++) {
        for (unsigned i = 0; i < LISTS; i++) {
            for (struct pattern *pattern = plumbing->lists[kind][i]; pattern != NULL;) {
                struct pattern *next = pattern->next;
                free(pattern);
                pattern = next;
            }
        }
    }
    free(plumbing);
}

/* A return type stands in front of the names of templates' instances. */
static bool function_matches(const struct varve_plumbing *plumbing, const char *function)
{
    const char *name = callsites_name_begin(function);
    return matches(plumbing, KIND_FUNCTION, function) || (name != function && matches(plumbing, KIND_FUNCTION, name));
}

static bool is_runtime(const struct varve_plumbing *plumbing, const char *module)
{
    return matches(plumbing, KIND_MODULE, module) || callsites_path_is_driver(module) ||
           callsites_path_is_interpreter(module);
}

static bool is_torch(const struct varve_writer_symbol *symbol)
{
    return symbol->module != NULL && callsites_path_is_torch(symbol->module);
}

static enum varve_frame_rank python_rank(const struct varve_plumbing *plumbing,
                                         const struct varve_writer_symbol *symbol)
{
    const char *file = symbol->file;
    if (matches(plumbing, KIND_FUNCTION, symbol->function) || matches(plumbing, KIND_FILE, file) ||
        (file != NULL && callsites_path_is_compiled(file))) {
        return VARVE_FRAME_PLUMBING;
    }
    if (matches(plumbing, KIND_USER, file)) {
        return VARVE_FRAME_USER;
    }
    if (matches(plumbing, KIND_FRAMEWORK, file) || (file != NULL && callsites_path_is_torch_python(file))) {
        return VARVE_FRAME_SOURCE;
    }
    const bool is_library = file == NULL || matches(plumbing, KIND_LIBRARY, file);
    if (file != NULL && file[0] == '<' && !is_library) {
        return VARVE_FRAME_GENERATED;
    }
    return is_library ? VARVE_FRAME_LIBRARY : VARVE_FRAME_USER;
}

enum varve_frame_rank varve_plumbing_rank(const struct varve_plumbing *plumbing,
                                          const struct varve_writer_symbol *symbol)
{
    if (symbol->is_python) {
        return python_rank(plumbing, symbol);
    }
    if (symbol->function == NULL) {
        return symbol->module == NULL || is_runtime(plumbing, symbol->module) || is_torch(symbol) ||
                       matches(plumbing, KIND_FILE, symbol->file)
                   ? VARVE_FRAME_PLUMBING
                   : VARVE_FRAME_UNNAMED;
    }
    if (callsites_name_is_backward(symbol->function)) {
        return VARVE_FRAME_RUNTIME;
    }
    if (callsites_name_is_allocation(symbol->function) || function_matches(plumbing, symbol->function) ||
        matches(plumbing, KIND_FILE, symbol->file) || is_torch(symbol)) {
        return VARVE_FRAME_PLUMBING;
    }
    if (symbol->module != NULL && is_runtime(plumbing, symbol->module)) {
        return VARVE_FRAME_RUNTIME;
    }
    return symbol->file != NULL && symbol->line > 0 ? VARVE_FRAME_SOURCE : VARVE_FRAME_NAMED;
}
