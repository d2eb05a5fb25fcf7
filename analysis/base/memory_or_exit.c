/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that does not fail: where there is none, the program's handler ends the process. */
#include "analysis/base/memory_or_exit.h"

#include <stdlib.h>
#include <string.h>

static void (*handler)(void);

void memory_exhausted_then(void (*end)(void))
{
    handler = end;
}

void memory_exhausted(void)
{
    if (handler != NULL) {
        handler();
    }
    abort();
}

void *memory_resize(void *memory, size_t bytes)
{
    void *result = realloc(memory, bytes > 0 ? bytes : 1);
    if (result == NULL) {
        memory_exhausted();
    }
    return result;
}

void *memory_grow(void *array, size_t *capacity, size_t count, size_t item_bytes)
{
    if (count < *capacity) {
        return array;
    }
    *capacity = count < 16 ? 16 : 2 * count;
    return memory_resize(array, *capacity * item_bytes);
}

char *memory_copy_text(const char *text)
{
    if (text == NULL) {
        return NULL;
    }
    size_t bytes = strlen(text) + 1;

    return memcpy(memory_resize(NULL, bytes), text, bytes);
}

bool memory_same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

FILE *memory_stream(char **text, size_t *bytes)
{
    *text = NULL;
    *bytes = 0;
    FILE *stream = open_memstream(text, bytes);
    if (stream == NULL) {
        memory_exhausted();
    }
    return stream;
}

void memory_stream_end(FILE *stream, char *const *text)
{
    if (fclose(stream) != 0 || *text == NULL) {
        memory_exhausted();
    }
}
