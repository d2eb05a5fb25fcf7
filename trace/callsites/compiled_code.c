/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The comments are those of torch.fx's code, in which a line `# File: PATH:LINE in FUNCTION, code: …` stands before the
 * operations that come from there, without FUNCTION or code in older versions. The file lies where everybody may write,
 * and may have gone or be anything by now: it is read whole, if it is no more than one such file may be, and what is no
 * plain text in it is no comment. Called by callsite_resolver.c.
 */
#include "trace/callsites/callsite_output.h"

#include "base/grown_array.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((off_t)16 << 20)
#define MARKS_MAX ((size_t)1 << 16)
#define DIGITS_MAX 9 /* of a line's number */

/* From a line on, until that of the next mark. */
struct compiled_mark {
    uint32_t at;
    struct compiled_line line; /* file NULL: nothing is known, since a function begins there */
};

/* ---- the file ---- */

static char *compiled_code_read_all(int file, size_t bytes, size_t *length_out)
{
    char *text = malloc(bytes + 1);
    size_t length = 0;
    while (text != NULL && length < bytes) {
        const ssize_t got = read(file, text + length, bytes - length);
        if (got <= 0) {
            break;
        }
        length += (size_t)got;
    }
    *length_out = length;
    return text;
}

/* Owner: the caller, by free; NULL: there is none to be read. There is room for one character more. */
static char *read_file(const char *path, size_t *length_out)
{
    const int file = path[0] == '/' ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY) : -1;
    struct stat status;
    char *text = NULL;
    if (file < 0) {
        return NULL;
    }
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= FILE_BYTES_MAX) {
        text = compiled_code_read_all(file, (size_t)status.st_size, length_out);
    }
    close(file);
    return text;
}

/* ---- its comments ---- */

static bool compiled_code_has_prefix(const char *text, const char *end, const char *prefix)
{
    const size_t length = strlen(prefix);
    return (size_t)(end - text) >= length && memcmp(text, prefix, length) == 0;
}

static bool compiled_code_is_plain(const char *text, const char *end)
{
    for (; text < end; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f) {
            return false;
        }
    }
    return true;
}

/* Behind a colon: the number and what may follow it, else NULL. */
static const char *compiled_code_read_number(const char *text, const char *end, uint32_t *number_out)
{
    const char *at = text;
    uint32_t number = 0;
    for (; at < end && *at >= '0' && *at <= '9' && at - text < DIGITS_MAX; at++) {
        number = 10 * number + (uint32_t)(*at - '0');
    }
    *number_out = number;
    return number > 0 && (at == end || *at == ',' || compiled_code_has_prefix(at, end, " in ")) ? at : NULL;
}

/* ` in FUNCTION`, up to the code or the end of the line; NULL without it. */
static const char *read_function(char *text, char *end)
{
    if (!compiled_code_has_prefix(text, end, " in ")) {
        return NULL;
    }
    char *name = text + strlen(" in ");
    char *rest = memmem(name, (size_t)(end - name), ", code: ", strlen(", code: "));
    char *name_end = rest != NULL ? rest : end;
    if (name_end == name || !compiled_code_is_plain(name, name_end)) {
        return NULL;
    }
    *name_end = '\0';
    return name;
}

/* A line without its end, which may be overwritten. */
static bool read_comment(char *text, char *end, struct compiled_line *line)
{
    static const char begin[] = "# File: ";
    if (!compiled_code_has_prefix(text, end, begin)) {
        return false;
    }
    char *file = text + strlen(begin);
    for (char *colon = file; (colon = memchr(colon, ':', (size_t)(end - colon))) != NULL; colon++) {
        const char *rest = compiled_code_read_number(colon + 1, end, &line->line);
        if (rest != NULL && colon > file && colon - file < PATH_MAX && compiled_code_is_plain(file, colon)) {
            line->function = read_function(text + (rest - text), end);
            line->file = file;
            *colon = '\0';
            return true;
        }
    }
    return false;
}

static bool begins_function(const char *text, const char *end)
{
    return compiled_code_has_prefix(text, end, "def ") || compiled_code_has_prefix(text, end, "async def ") ||
           compiled_code_has_prefix(text, end, "class ");
}

static void read_marks(struct compiled *compiled, size_t length)
{
    char *const end = compiled->text + length;
    uint32_t number = 1;
    for (char *line = compiled->text; line < end; number++) {
        char *line_end = memchr(line, '\n', (size_t)(end - line));
        line_end = line_end != NULL ? line_end : end;
        struct compiled_mark mark = {.at = number};
        for (; line < line_end && (*line == ' ' || *line == '\t'); line++) {
        }
        if (read_comment(line, line_end, &mark.line) || begins_function(line, line_end)) {
            if (!ARRAY_GROW(compiled->marks, compiled->mark_capacity, compiled->mark_count + 1)) {
                return;
            }
            if (compiled->mark_count == MARKS_MAX) { /* what follows is not known */
                compiled->marks[MARKS_MAX - 1] = (struct compiled_mark){.at = compiled->marks[MARKS_MAX - 1].at};
                return;
            }
            compiled->marks[compiled->mark_count++] = mark;
        }
        line = line_end + 1;
    }
}

/* ---- the interface ---- */

void compiled_free(struct compiled *compiled)
{
    free(compiled->path);
    free(compiled->text);
    free(compiled->marks);
    compiled->path = compiled->text = NULL;
    compiled->marks = NULL;
    compiled->mark_count = compiled->mark_capacity = 0;
}

static void compiled_open(struct compiled *compiled, const char *path)
{
    size_t length = 0;
    if (compiled->path != NULL && strcmp(compiled->path, path) == 0) {
        return;
    }
    compiled_free(compiled);
    compiled->path = strdup(path);
    compiled->text = read_file(path, &length);
    if (compiled->text != NULL) {
        read_marks(compiled, length);
    }
}

bool compiled_find(struct compiled *compiled, const char *path, uint32_t line, struct compiled_line *found)
{
    compiled_open(compiled, path);
    size_t low = 0, high = compiled->mark_count;
    while (low < high) { /* the first mark behind the line */
        const size_t middle = low + (high - low) / 2;
        if (compiled->marks[middle].at <= line) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0 || compiled->marks[low - 1].line.file == NULL) {
        return false;
    }
    *found = compiled->marks[low - 1].line;
    return true;
}
