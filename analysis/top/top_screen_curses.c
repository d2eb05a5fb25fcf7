/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ncurses, with its wide characters. Handlers for signals are set before it starts: it leaves those alone, and the
 * terminal is given back by the thread that draws, never by a handler. It has some 80 bytes for each place of the
 * terminal, whose size anybody can set to 65,535 times 65,535: so it is told a size that is bounded.
 */
#include "analysis/top/top_screen.h"

#include "base/error.h"

#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define NCURSES_WIDECHAR 1
#include <ncurses.h>

#define ESCAPE_MS 25 /* how long after Escape the rest of a key's sequence may come */

#define LINES_MAX 500U
#define COLUMNS_MAX 1000U

static const int handled_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};
#define HANDLED_SIGNALS (sizeof(handled_signals) / sizeof(handled_signals[0]))

static struct {
    SCREEN *screen; /* NULL: the terminal is not taken over */
    struct sigaction before[HANDLED_SIGNALS];
} terminal;

static volatile sig_atomic_t ending_signal;
static volatile sig_atomic_t has_resized;

static void top_screen_on_signal(int number)
{
    if (number == SIGWINCH) {
        has_resized = 1;
    } else {
        ending_signal = number;
    }
}

const char *screen_missing(void)
{
    return NULL;
}

/* Texts are UTF-8, as all that varve prints is, whatever the environment says. */
static void choose_locale(void)
{
    if (setlocale(LC_CTYPE, "") == NULL || strcmp(nl_langinfo(CODESET), "UTF-8") != 0) {
        setlocale(LC_CTYPE, "C.UTF-8");
    }
}

/* False: the terminal does not say. */
static bool terminal_size(unsigned *lines_out, unsigned *columns_out)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) {
        return false;
    }
    *lines_out = size.ws_row < LINES_MAX ? size.ws_row : LINES_MAX;
    *columns_out = size.ws_col < COLUMNS_MAX ? size.ws_col : COLUMNS_MAX;
    return true;
}

/* ncurses asks the environment first. */
static void tell_size(void)
{
    unsigned lines = 0;
    unsigned columns = 0;
    if (terminal_size(&lines, &columns)) {
        char text[16];
        snprintf(text, sizeof(text), "%u", lines);
        setenv("LINES", text, 1);
        snprintf(text, sizeof(text), "%u", columns);
        setenv("COLUMNS", text, 1);
    }
}

int screen_begin(struct varve_message *message)
{
    struct sigaction action = {.sa_handler = top_screen_on_signal}; /* without SA_RESTART: waiting for a key ends */
    ending_signal = 0;
    has_resized = 0;
    for (size_t i = 0; i < HANDLED_SIGNALS; i++) {
        sigaction(handled_signals[i], &action, &terminal.before[i]);
    }
    choose_locale();
    tell_size();
    terminal.screen = newterm(NULL, stdout, stdin);
    if (terminal.screen == NULL) {
        screen_end();
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "the terminal can't be driven (TERM): --once prints one screen as text");
    }
    set_escdelay(ESCAPE_MS);
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    curs_set(0);
    return VARVE_OK;
}

void screen_end(void)
{
    if (terminal.screen != NULL) {
        endwin();
        delscreen(terminal.screen);
        terminal.screen = NULL;
    }
    setlocale(LC_CTYPE, "C");
    for (size_t i = 0; i < HANDLED_SIGNALS; i++) {
        sigaction(handled_signals[i], &terminal.before[i], NULL);
    }
}

int screen_signal(void)
{
    return ending_signal;
}

void screen_size(size_t *columns_out, size_t *lines_out)
{
    int lines, columns;
    getmaxyx(stdscr, lines, columns);
    *columns_out = columns > 0 ? (size_t)columns : 0;
    *lines_out = lines > 0 ? (size_t)lines : 0;
}

void screen_clear(void)
{
    erase();
}

void screen_line(size_t line, const char *text, size_t bytes, enum screen_style style)
{
    static const attr_t attributes[] = {
        [SCREEN_PLAIN] = A_NORMAL, [SCREEN_BOLD] = A_BOLD, [SCREEN_REVERSE] = A_REVERSE};
    size_t columns, lines;
    screen_size(&columns, &lines);
    if (line >= lines) {
        return;
    }
    attrset((int)attributes[style]);
    /* A line has fewer bytes than wide characters could be; ncurses goes on in the next line, which is drawn later. */
    mvaddnstr((int)line, 0, text, (int)bytes);
    attrset(A_NORMAL);
}

void screen_show(void)
{
    refresh();
}

/* Of a terminal that is gone reading ends at once, and its signal goes to the group in its foreground only. */
static bool keyboard_is_gone(void)
{
    struct pollfd keyboard = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&keyboard, 1, 0) <= 0) {
        return false;
    }
    int bytes = 0;
    return (keyboard.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0 || ioctl(STDIN_FILENO, FIONREAD, &bytes) != 0 ||
           bytes == 0;
}

/* False: it has the size that it had. */
static bool has_new_size(void)
{
    unsigned lines = 0;
    unsigned columns = 0;
    const bool is_new = has_resized != 0;
    has_resized = 0;
    return is_new && terminal_size(&lines, &columns) && resizeterm((int)lines, (int)columns) == OK;
}

int screen_wait(int64_t ns)
{
    timeout((int)(ns / 1000000));
    int key = getch();
    switch (key) {
    case ERR:
        if (has_new_size()) {
            return SCREEN_RESIZED;
        }
        if (ending_signal == 0 && keyboard_is_gone()) {
            ending_signal = SIGHUP;
        }
        return SCREEN_NO_KEY;
    case KEY_UP:
        return SCREEN_UP;
    case KEY_DOWN:
        return SCREEN_DOWN;
    case KEY_PPAGE:
        return SCREEN_PAGE_UP;
    case KEY_NPAGE:
        return SCREEN_PAGE_DOWN;
    case KEY_HOME:
        return SCREEN_HOME;
    case KEY_END:
        return SCREEN_END;
    default:
        return key < 0x100 ? key : SCREEN_NO_KEY;
    }
}
