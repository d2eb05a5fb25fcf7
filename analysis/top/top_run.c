/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recording is looked at four times a second, so that its end and its last figures are seen before its directory
 * goes; the picture changes as often as was asked for, with each key, and with each size of the terminal.
 * cli/command_top.c calls it.
 */
#include "analysis/top/top_run.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/base/terminal.h"
#include "analysis/query/database.h"
#include "analysis/top/top_figures.h"
#include "analysis/top/top_screen.h"
#include "base/error.h"
#include "base/monotonic.h"
#include "trace/collect.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX TERMINAL_COLUMNS_MAX
#define LOOK_EVERY_NS INT64_C(250000000)
#define FIGURES_WITHIN_NS UINT64_C(10000000000)
#define LINES_FOR_LIST 5 /* that allocators leave to the list, where there are so many */

int top_refresh(struct top *top, struct varve_message *message)
{
    size_t count;
    void *bytes = varve_watch_read(top->watch, &count);
    if (bytes == NULL) {
        return VARVE_OK;
    }
    struct database *figures = NULL;
    int error = figures_open(varve_watch_directory(top->watch), bytes, count, top->number, &figures, message);
    free(bytes);
    if (error != VARVE_OK || figures == NULL) {
        return error;
    }
    database_close(top->figures);
    top->figures = figures;
    top->number = database_integer(figures, "SELECT number FROM recording", 0);
    top->seen++;
    top->is_over = database_integer(figures, "SELECT is_over FROM recording", 0) != 0;
    torch_now_add(&top->torch, top->watch, figures);
    return database_error(figures, message);
}

/* The database's name: the directory's without .d */
static int name_length(const struct top *top)
{
    const size_t length = strlen(varve_watch_directory(top->watch));
    return (int)(length > 2 ? length - 2 : length);
}

void top_state(const struct top *top, char *text, size_t bytes)
{
    const char *directory = varve_watch_directory(top->watch);
    switch (varve_watch_state(top->watch)) {
    case VARVE_WATCH_RECORDING:
        snprintf(text, bytes, "recording");
        break;
    case VARVE_WATCH_FINISHING:
        snprintf(text, bytes, "ended: the database is being written");
        break;
    case VARVE_WATCH_ENDED:
        snprintf(text, bytes, "ended: varve report %.*s", name_length(top), directory);
        break;
    case VARVE_WATCH_DEAD:
        snprintf(text, bytes, "varve record has died: varve recover %s", directory);
        break;
    }
}

int top_wait(struct top *top, struct varve_message *message)
{
    const uint64_t until_ns = monotonic_ns() + FIGURES_WITHIN_NS;
    while (monotonic_ns() < until_ns) {
        const enum varve_watch_state now = varve_watch_state(top->watch);
        const int error = top_refresh(top, message);
        if (error != VARVE_OK || top->seen > 1 || top->is_over) {
            return error;
        }
        if (now != VARVE_WATCH_RECORDING) {
            break;
        }
        monotonic_nap(LOOK_EVERY_NS / 5);
    }
    if (top->figures != NULL) {
        return VARVE_OK;
    }
    char state[4352];
    top_state(top, state, sizeof(state));
    return varve_message_set(message, VARVE_ERROR_BUSY, "%.200s: no figures came (%.250s)",
                             varve_watch_directory(top->watch), state);
}

void top_close(struct top *top)
{
    torch_now_free(&top->torch);
    database_close(top->figures);
    varve_watch_close(top->watch);
    *top = (struct top){0};
}

/* ---- the terminal ---- */

struct show {
    struct top *top;
    struct page *page;
    size_t scroll, list_lines, list_room;
    char *domain; /* page->domain, if a key chose it */
    bool is_paused, has_help, has_ended;
};

static const char *const help_lines[] = {
    "q, Ctrl-C          end; the recording goes on",
    "Up Down PgUp PgDn  move in the list; Home, End",
    "s, < >             sort by live bytes, bytes allocated, bytes per second",
    "d                  lines of the next domain, then of all again",
    "Tab                lines, processes",
    "p, Space           pause the picture, not the recording",
    "h, ?               this help, or back",
    "",
    "live: allocated and not freed; peak: the most that was live at a time;",
    "allocated: all bytes that were ever asked for; /s: over the last second",
};

/* A text without control characters, cut to the screen. */
static void put_line(const struct show *show, size_t line, const char *text, enum screen_style style)
{
    char cut[4 * COLUMNS_MAX + 8];
    format_head(cut, sizeof(cut), text, show->page->columns);
    screen_line(line, cut, strlen(cut), style);
}

/* Lines of a text, from line `skip` on, onto the screen from line `at` to before `end`; returns the
 * line after the last. */
static size_t top_run_put_text(const char *text, size_t skip, size_t at, size_t end)
{
    for (const char *line = text; *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        if (skip > 0) {
            skip--;
        } else if (at < end) {
            screen_line(at++, line, length, SCREEN_PLAIN);
        }
        line += length + (line[length] == '\n');
    }
    return at;
}

static size_t count_lines(const char *text)
{
    size_t lines = 0;
    for (; *text != '\0'; text++) {
        lines += *text == '\n';
    }
    return lines;
}

static char *make_text(void (*print)(FILE *out, struct database *database, const struct page *page),
                       struct database *database, const struct page *page)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = memory_stream(&text, &bytes);
    print(out, database, page);
    memory_stream_end(out, &text);
    return text;
}

static void draw_help(const struct show *show, size_t lines)
{
    for (size_t i = 0; i < sizeof(help_lines) / sizeof(help_lines[0]) && i + 1 < lines; i++) {
        put_line(show, i, help_lines[i], SCREEN_PLAIN);
    }
}

/* The title of the list, its heading, and as much of the rest as there is room for. */
static void draw_list(struct show *show, const char *list, size_t at, size_t end)
{
    const size_t title = strcspn(list, "\n");
    const size_t lines = count_lines(list);
    if (at >= end) {
        return;
    }
    screen_line(at, list, title, SCREEN_BOLD);
    const size_t fixed = 2; /* title and heading */
    show->list_lines = lines > fixed ? lines - fixed : 0;
    show->list_room = end - at > fixed ? end - at - fixed : 0;
    if (show->scroll + show->list_room > show->list_lines) {
        show->scroll = show->list_lines > show->list_room ? show->list_lines - show->list_room : 0;
    }
    if (lines > 1) {
        const char *heading = list + title + 1;
        if (at + 1 < end) {
            screen_line(at + 1, heading, strcspn(heading, "\n"), SCREEN_REVERSE);
        }
        top_run_put_text(list, fixed + show->scroll, at + fixed, end);
    }
}

static void draw_waiting(const struct show *show)
{
    put_line(show, 0, show->page->state, SCREEN_BOLD);
    put_line(show, 1, "waiting for figures", SCREEN_PLAIN);
}

static void draw_figures(struct show *show, size_t lines)
{
    struct database *figures = show->top->figures;
    size_t room = lines > 1 ? lines - 1 : 0;
    show->page->allocators = lines > 30 ? 8 : lines > 20 ? 3 : 1;
    char *head = make_text(page_head, figures, show->page);
    char *list = make_text(page_list, figures, show->page);
    size_t at = top_run_put_text(head, 0, 0, room > LINES_FOR_LIST ? room - LINES_FOR_LIST : room);
    draw_list(show, list, at, room);
    free(head);
    free(list);
}

static int top_run_draw(struct show *show, struct varve_message *message)
{
    static const char keys[] = "q end  s sort  Tab list  d domain  p pause  h help";
    static const char paused[] = "paused: p goes on";
    size_t columns, lines;
    screen_size(&columns, &lines);
    char state[4352];
    top_state(show->top, state, sizeof(state));
    show->page->columns = columns < COLUMNS_MAX ? columns : COLUMNS_MAX;
    show->page->state = state;
    screen_clear();
    if (show->has_help) {
        draw_help(show, lines);
    } else if (show->top->figures == NULL) {
        draw_waiting(show);
    } else {
        draw_figures(show, lines);
        if (database_error(show->top->figures, message) != VARVE_OK) {
            return database_error(show->top->figures, message);
        }
    }
    if (lines > 1) {
        put_line(show, lines - 1, show->is_paused ? paused : keys, show->is_paused ? SCREEN_BOLD : SCREEN_PLAIN);
    }
    screen_show();
    return VARVE_OK;
}

static void next_domain(struct show *show)
{
    char *next = show->top->figures != NULL ? page_next_domain(show->top->figures, show->page->domain) : NULL;
    free(show->domain);
    show->page->domain = show->domain = next;
    show->scroll = 0;
}

static void turn_order(struct page *page, unsigned steps)
{
    page->order = (enum page_order)((page->order + steps) % PAGE_ORDERS);
    page->list = PAGE_LINES;
}

static void scroll_back(struct show *show, size_t lines)
{
    show->scroll -= show->scroll < lines ? show->scroll : lines;
}

static void on_key(struct show *show, int key)
{
    const size_t leap = show->list_room > 1 ? show->list_room - 1 : 1;
    switch (key) {
    case 'q':
        show->has_ended = true;
        break;
    case 's':
    case '>':
        turn_order(show->page, 1);
        break;
    case '<':
        turn_order(show->page, PAGE_ORDERS - 1);
        break;
    case 'd':
        next_domain(show);
        break;
    case '\t':
        show->page->list = (enum page_list)((show->page->list + 1) % PAGE_LISTS);
        show->scroll = 0;
        break;
    case 'p':
    case ' ':
        show->is_paused = !show->is_paused;
        break;
    case 'h':
    case '?':
        show->has_help = !show->has_help;
        break;
    case SCREEN_UP:
        scroll_back(show, 1);
        break;
    case SCREEN_PAGE_UP:
        scroll_back(show, leap);
        break;
    case SCREEN_DOWN:
        show->scroll++; /* draw_list knows where the list ends */
        break;
    case SCREEN_PAGE_DOWN:
        show->scroll += leap;
        break;
    case SCREEN_HOME:
        show->scroll = 0;
        break;
    case SCREEN_END:
        show->scroll = show->list_lines;
        break;
    default:
        break;
    }
}

/* Until the user or a signal ends it. */
static int loop(struct show *show, int64_t every_ns, struct varve_message *message)
{
    enum varve_watch_state shown = VARVE_WATCH_RECORDING;
    int64_t next_ns = 0; /* when the picture changes by itself */
    bool must_draw = true;
    int error = VARVE_OK;
    while (error == VARVE_OK && !show->has_ended && screen_signal() == 0) {
        const enum varve_watch_state state = varve_watch_state(show->top->watch);
        const int64_t now_ns = (int64_t)monotonic_ns();
        const int64_t seen = show->top->seen;
        if (!show->is_paused && (now_ns >= next_ns || state != VARVE_WATCH_RECORDING)) {
            error = top_refresh(show->top, message);
        }
        if (show->top->seen != seen) {
            next_ns = now_ns + every_ns - LOOK_EVERY_NS;
            must_draw = true;
        }
        if (error == VARVE_OK && (must_draw || state != shown)) {
            error = top_run_draw(show, message);
            shown = state;
        }
        int key = error == VARVE_OK ? screen_wait(LOOK_EVERY_NS) : SCREEN_NO_KEY;
        must_draw = key != SCREEN_NO_KEY;
        on_key(show, key);
    }
    return error;
}

int top_show(struct top *top, struct page *page, int64_t every_ns, int *signal_out, struct varve_message *message)
{
    struct show show = {.top = top, .page = page};
    int error = screen_begin(message);
    *signal_out = 0;
    if (error != VARVE_OK) {
        return error;
    }
    error = loop(&show, every_ns, message);
    *signal_out = screen_signal();
    screen_end();
    free(show.domain);
    page->domain = NULL;
    return error;
}
