/* SPDX-License-Identifier: Apache-2.0 */
/* Environments with and without the recorder in LD_PRELOAD. Called by exec_look.c and heap/process_hooks.c. */
#include "trace/recorder/exec_look.h"
#include "trace/guest/guest_memory.h"
#include "trace/format/exec_check.h"

#include <string.h>

#define VARIABLE "LD_PRELOAD"
#define ENTRY VARIABLE "="
#define ENTRY_BYTES (sizeof(ENTRY) - 1)
#define LIBRARY_NAME "libvarve_preload"

/* Of the list in LD_PRELOAD. */
struct element {
    const char *start;
    size_t length;
    const char *name; /* without folders */
};

static bool is_separator(char letter)
{
    return letter == ':' || letter == ' ';
}

/* The first one from `list` on. */
static bool element_find(const char *list, struct element *element)
{
    while (is_separator(*list)) {
        list++;
    }
    element->start = list;
    element->name = list;
    for (; *list != '\0' && !is_separator(*list); list++) {
        if (*list == '/') {
            element->name = list + 1;
        }
    }
    element->length = (size_t)(list - element->start);
    return element->length > 0;
}

static bool is_recorder(const struct element *element)
{
    return strncmp(element->name, LIBRARY_NAME, sizeof(LIBRARY_NAME) - 1) == 0;
}

static bool recorder_find(const char *list, struct element *element)
{
    while (list != NULL && element_find(list, element)) {
        if (is_recorder(element)) {
            return true;
        }
        list = element->start + element->length;
    }
    return false;
}

bool exec_environment_recorder(char *const *envp, char *path, size_t bytes)
{
    struct element element;
    if (!recorder_find(recorder_variable(envp, VARIABLE), &element) || element.length >= bytes) {
        return false;
    }
    memcpy(path, element.start, element.length);
    path[element.length] = '\0';
    return true;
}

enum exec_order exec_environment_order(char *const *envp)
{
    const char *list = recorder_variable(envp, VARIABLE);
    enum exec_order order = EXEC_ORDER_BEFORE;
    for (struct element element; list != NULL && element_find(list, &element); list = element.start + element.length) {
        if (exec_check_is_first(element.name)) {
            return order;
        }
        if (is_recorder(&element)) {
            order = EXEC_ORDER_BEHIND;
        }
    }
    return EXEC_ORDER_NONE;
}

static bool is_preload(const char *entry)
{
    return strncmp(entry, ENTRY, ENTRY_BYTES) == 0;
}

size_t exec_environment_bytes(char *const *envp)
{
    size_t bytes = sizeof(char *);
    for (; envp != NULL && *envp != NULL; envp++) {
        bytes += sizeof(char *) + (is_preload(*envp) ? strlen(*envp) + 1 : 0);
    }
    return bytes;
}

/* Of an entry, each element that is the recorder, with one separator. */
static void remove_recorder(char *entry)
{
    struct element element;
    char *list = entry + ENTRY_BYTES;
    while (recorder_find(list, &element)) {
        char *start = list + (element.start - list);
        const char *end = start + element.length;
        if (*end != '\0') {
            end++;
        } else if (start > list) {
            start--;
        }
        memmove(start, end, strlen(end) + 1);
    }
}

char **exec_environment_without(char *const *envp, void *memory)
{
    size_t count = 0;
    while (envp != NULL && envp[count] != NULL) {
        count++;
    }
    char **entries = memory;
    char *text = (char *)(entries + count + 1);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_preload(envp[i])) {
            entries[kept++] = envp[i];
            continue;
        }
        size_t bytes = strlen(envp[i]) + 1;
        memcpy(text, envp[i], bytes);
        remove_recorder(text);
        if (text[ENTRY_BYTES] != '\0') {
            entries[kept++] = text;
            text += bytes;
        }
    }
    entries[kept] = NULL;
    return entries;
}
