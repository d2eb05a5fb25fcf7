/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of source code, read while the page is made. A database may come from anybody and name any file: only what is
 * named as source code is goes into a page, which may be sent on. A file that was changed or put in place after the
 * recording began does not have the lines that ran; where a trace does not say when it began, no file is known to.
 */
#include "analysis/page/page_writer.h"

#include "analysis/query/database.h"

#include "statements_generated.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AROUND 3 /* lines above, and below */
#define FILE_BYTES_MAX (2 << 20)
#define LINE_BYTES 180
#define LINE_NUMBER_MAX 100000

static bool is_source(const char *path)
{
    static const char *const endings[] = {".py",  ".pyx", ".c",   ".cc", ".cpp", ".cxx", ".h", ".hh",
                                          ".hpp", ".hxx", ".inl", ".rs", ".go",  ".cu",  ".f", ".f90",
                                          ".cuh", ".tcc", ".zig", ".jl", ".nim", ".d"};
    const char *ending = strrchr(path, '.');
    bool is_one = false;
    for (size_t i = 0; ending != NULL && i < sizeof(endings) / sizeof(endings[0]) && !is_one; i++) {
        is_one = strcmp(ending, endings[i]) == 0;
    }
    return is_one && path[0] == '/';
}

/* NULL: it can't be read, or is not what ran. */
static FILE *source_open(const char *path, int64_t began_ns)
{
    const int descriptor = is_source(path) ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
    struct stat status;
    if (descriptor < 0) {
        return NULL;
    }
    const bool is_good = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
                         status.st_size <= FILE_BYTES_MAX && (int64_t)status.st_mtim.tv_sec <= began_ns / 1000000000 &&
                         (int64_t)status.st_ctim.tv_sec <= began_ns / 1000000000;
    FILE *file = is_good ? fdopen(descriptor, "r") : NULL;
    if (file == NULL) {
        close(descriptor);
    }
    return file;
}

static void write_around(struct page_writer *writer, FILE *file, const char *path, int64_t line)
{
    const int64_t first = line > AROUND ? line - AROUND : 1;
    char *text = NULL;
    size_t capacity = 0;
    int64_t number = 1;
    for (; number <= line + AROUND && getline(&text, &capacity, file) >= 0; number++) {
        if (number == first) {
            page_open(writer, '[');
            page_name(writer, path);
            page_integer(writer, line);
            page_integer(writer, first);
        }
        if (number >= first) {
            text[strcspn(text, "\n")] = '\0';
            text[strnlen(text, LINE_BYTES)] = '\0';
            page_text(writer, text);
        }
    }
    if (number > first) {
        page_close(writer, ']');
    }
    free(text);
}

void source_write(struct database *database, struct page_writer *writer, const struct page_stacks *stacks)
{
    const int64_t began_ns = database_meta_integer(database, "start_real_ns", 0);
    struct cursor symbols;
    page_open(writer, '[');
    cursor_open(&symbols, database, sql_symbol);
    for (size_t i = 0, written = 0; i < stacks->count && written < SOURCE_PLACES_MAX; i++) {
        struct call_tree_frame frame;
        call_tree_frame_read(&stacks->stacks, &symbols, stacks->symbols[i], &frame);
        FILE *file = frame.file != NULL && frame.line > 0 && frame.line < LINE_NUMBER_MAX
                         ? source_open(frame.file, began_ns)
                         : NULL;
        if (file != NULL) {
            write_around(writer, file, frame.file, frame.line);
            fclose(file);
            written++;
        }
        call_tree_frame_free(&frame);
    }
    cursor_close(&symbols);
    page_close(writer, ']');
}
