/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ncurses, with its wide characters. Handlers for signals are set before it starts: it leaves those alone, and the
 * terminal is given back by the thread that draws, never by a handler.
 */
#include "analysis/top/screen.h"

#include "trace/trace.h"

#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define NCURSES_WIDECHAR 1
#include <ncurses.h>

#define ESCAPE_MS 25 /* how long after Escape the rest of a key's sequence may come */

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
#define ENDING_SIGNALS (sizeof(ending_signals) / sizeof(ending_signals[0]))

static struct {
    SCREEN *screen; /* NULL: the terminal is not taken over */
    struct sigaction before[ENDING_SIGNALS];
} terminal;

static volatile sig_atomic_t ending_signal;

static void on_signal(int number)
{
    ending_signal = number;
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

int screen_begin(struct varve_message *message)
{
    struct sigaction action = {.sa_handler = on_signal}; /* without SA_RESTART: waiting for a key ends */
    ending_signal = 0;
    for (size_t i = 0; i < ENDING_SIGNALS; i++) {
        sigaction(ending_signals[i], &action, &terminal.before[i]);
    }
    choose_locale();
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
    for (size_t i = 0; i < ENDING_SIGNALS; i++) {
        sigaction(ending_signals[i], &terminal.before[i], NULL);
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

int screen_wait(int64_t ns)
{
    timeout((int)(ns / 1000000));
    int key = getch();
    switch (key) {
    case ERR:
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
    case KEY_RESIZE:
        return SCREEN_RESIZED;
    default:
        return key < 0x100 ? key : SCREEN_NO_KEY;
    }
}
