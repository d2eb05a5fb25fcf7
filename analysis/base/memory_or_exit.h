/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the commands. Its end ends the process, since no command could go on; how, the program says
 * (analysis/cli/process_end.h). What others load (libvarve_query.so) asks for no memory here: it returns
 * VARVE_ERROR_NO_MEMORY.
 */
#ifndef VARVE_ANALYSIS_BASE_MEMORY_OR_EXIT_H
#define VARVE_ANALYSIS_BASE_MEMORY_OR_EXIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/// Calls what memory_exhausted_then has set, in the thread that lacks the memory; aborts without.
void memory_exhausted(void) __attribute__((noreturn));
/// From now on `end`, which does not return, ends the process when there is no memory.
void memory_exhausted_then(void (*end)(void));
/// realloc that does not fail: see memory_exhausted.
void *memory_resize(void *memory, size_t bytes);
/// `array` of `count` items with room for one more; it doubles.
void *memory_grow(void *array, size_t *capacity, size_t count, size_t item_bytes);
/// Where the next item of a grown array goes, which is undefined; it counts from now on. Arguments are evaluated more
/// than once.
#define MEMORY_ADD(array, count, capacity) \
    ((array) = memory_grow((array), &(capacity), (count), sizeof(*(array))), (count)++, &(array)[(count)-1])
char *memory_copy_text(const char *text); /* NULL gives NULL */
/// Equal, or both NULL.
bool memory_same_text(const char *a, const char *b);
/// A stream into memory, and its end, after which `text` is the caller's, by free. `text` and `bytes` must
/// outlive the stream.
FILE *memory_stream(char **text, size_t *bytes);
void memory_stream_end(FILE *stream, char *const *text);

#endif
