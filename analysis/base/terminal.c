/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Styles are positions in the collected text. The text is filtered piece by piece when it is let out, and the sequences
 * for the terminal are written between the pieces.
 */
#include "analysis/base/terminal.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COLUMNS_ELSE 100

struct mark {
    size_t position;
    enum terminal_style style;
};

static struct {
    size_t columns;
    bool is_coloured;
    bool has_full_names;
    bool is_folded;
    FILE *collected;
    struct mark *marks;
    size_t count, capacity;
} terminal = {.columns = COLUMNS_ELSE};

static size_t clamp_columns(int64_t columns)
{
    return columns < TERMINAL_COLUMNS_MIN   ? TERMINAL_COLUMNS_MIN
           : columns > TERMINAL_COLUMNS_MAX ? TERMINAL_COLUMNS_MAX
                                            : (size_t)columns;
}

/* The window's, else what the environment says; 0: neither is known. */
static int64_t window_columns(int descriptor)
{
    const char *text = getenv("COLUMNS");
    struct winsize size = {0};
    if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        return size.ws_col;
    }
    return text != NULL ? strtol(text, NULL, 10) : 0;
}

static bool wants_colour(void)
{
    const char *refused = getenv("NO_COLOR");
    const char *kind = getenv("TERM");
    return (refused == NULL || refused[0] == '\0') && kind != NULL && kind[0] != '\0' && strcmp(kind, "dumb") != 0;
}

void terminal_begin(FILE *out)
{
    int descriptor = fileno(out);
    bool is_terminal = descriptor >= 0 && isatty(descriptor);
    int64_t columns = is_terminal ? window_columns(descriptor) : 0;
    terminal.columns = columns > 0 ? clamp_columns(columns) : COLUMNS_ELSE;
    terminal.is_coloured = is_terminal && wants_colour();
    terminal.has_full_names = false;
    terminal.collected = NULL;
    terminal.count = 0;
}

void terminal_set_columns(int64_t columns)
{
    terminal.columns = clamp_columns(columns);
}

size_t terminal_columns(void)
{
    return terminal.columns;
}

void terminal_set_full_names(bool is_on)
{
    terminal.has_full_names = is_on;
}

bool terminal_has_full_names(void)
{
    return terminal.has_full_names;
}

void terminal_collect(FILE *collected)
{
    terminal.collected = collected;
    terminal.is_folded = false;
    terminal.count = 0;
}

void terminal_fold(void)
{
    terminal.is_folded = true;
}

void terminal_style(FILE *collected, enum terminal_style style)
{
    if (!terminal.is_coloured || collected != terminal.collected) {
        return;
    }
    off_t position = ftello(collected);
    if (position >= 0) {
        terminal.marks = memory_grow(terminal.marks, &terminal.capacity, terminal.count, sizeof(terminal.marks[0]));
        terminal.marks[terminal.count++] = (struct mark){.position = (size_t)position, .style = style};
    }
}

static void print_style(FILE *out, enum terminal_style style)
{
    static const char *const sequences[] = {
        [TERMINAL_PLAIN] = "\033[0m", [TERMINAL_TITLE] = "\033[1m", [TERMINAL_GOOD] = "\033[32m",
        [TERMINAL_BAD] = "\033[31m",  [TERMINAL_FAINT] = "\033[2m",
    };
    fputs(sequences[style], out);
}

/* Where a line that is too wide is broken: its last space within the columns, behind its indent; its end
 * if there is none. */
static size_t line_break(const char *line, size_t bytes, size_t indent, size_t columns)
{
    size_t at = bytes;
    size_t width = 0;
    for (size_t i = 0; i < bytes && width <= columns; i++) {
        width += ((unsigned char)line[i] & 0xc0U) != 0x80U ? 1 : 0; /* of UTF-8 the first byte counts */
        if (line[i] == ' ' && i > indent && width <= columns + 1) {
            at = i;
        }
    }
    return width <= columns ? bytes : at;
}

#define FOLD_INDENT 4

/* The text with its lines folded, and the marks moved along. Owner: the caller, by free. */
static char *terminal_fold_text(const char *text)
{
    char *folded;
    size_t bytes;
    size_t mark = 0;
    FILE *out = memory_stream(&folded, &bytes);
    const char *at = text;
    while (*at != '\0') {
        size_t length = strcspn(at, "\n");
        size_t indent = strspn(at, " ");
        size_t behind = indent; /* of this part */
        size_t next = indent + FOLD_INDENT < terminal.columns / 2 ? indent + FOLD_INDENT : terminal.columns / 2;
        size_t columns = terminal.columns;
        while (length > 0) {
            size_t part = line_break(at, length, behind, columns);
            for (; mark < terminal.count && terminal.marks[mark].position <= (size_t)(at - text) + part; mark++) {
                terminal.marks[mark].position += (size_t)ftello(out) - (size_t)(at - text);
            }
            fwrite(at, 1, part, out);
            at += part;
            length -= part;
            if (length > 0) {
                fprintf(out, "\n%*s", (int)next, "");
                columns = terminal.columns - next;
                at++;
                length--;
            }
            behind = 0;
        }
        for (; mark < terminal.count && terminal.marks[mark].position <= (size_t)(at - text); mark++) {
            terminal.marks[mark].position += (size_t)ftello(out) - (size_t)(at - text);
        }
        if (*at == '\n') {
            fputc(*at++, out);
        }
    }
    memory_stream_end(out, &folded);
    return folded;
}

void terminal_print(FILE *out, const char *text)
{
    char *shown = terminal.is_folded && !terminal.has_full_names ? terminal_fold_text(text) : memory_copy_text(text);
    size_t length = strlen(shown);
    size_t from = 0;
    for (size_t i = 0; i < terminal.count; i++) {
        size_t to = terminal.marks[i].position;

        /* a style ends before the line does: pagers and copied lines have it whole */
        if (terminal.marks[i].style == TERMINAL_PLAIN && to > from && to <= length && shown[to - 1] == '\n') {
            to--;
        }
        if (to >= from && to <= length) {
            char next = shown[to];
            shown[to] = '\0';
            format_print_lines(out, shown + from);
            shown[to] = next;
            print_style(out, terminal.marks[i].style);
            from = to;
        }
    }
    format_print_lines(out, shown + from);
    free(shown);
    free(terminal.marks);
    terminal.marks = NULL;
    terminal.count = terminal.capacity = 0;
    terminal.collected = NULL;
}
