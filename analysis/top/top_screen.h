/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The terminal as a screen of lines, and its keys: all that knows ncurses is top_screen_curses.c; top_screen_none.c
 * stands for it in a build without. One screen at a time, one thread.
 */
#ifndef VARVE_ANALYSIS_TOP_TOP_SCREEN_H
#define VARVE_ANALYSIS_TOP_TOP_SCREEN_H

#include <stddef.h>
#include <stdint.h>

struct varve_message;

/* Keys of the keyboard are their character. */
enum screen_key {
    SCREEN_NO_KEY = 0,
    SCREEN_UP = 0x100,
    SCREEN_DOWN,
    SCREEN_PAGE_UP,
    SCREEN_PAGE_DOWN,
    SCREEN_HOME,
    SCREEN_END,
    SCREEN_RESIZED,
};

enum screen_style { SCREEN_PLAIN, SCREEN_BOLD, SCREEN_REVERSE };

/// Of this build: the line that says what is missing, or NULL.
const char *screen_missing(void);
/// Take the terminal of standard input and output over. Until screen_end signals that would end the
/// process are noted only.
/// Errors: VARVE_ERROR_UNSUPPORTED (this build, or a terminal that can't be driven).
int screen_begin(struct varve_message *message);
/// The terminal is as it was.
void screen_end(void);
/// A signal asked to end: its number, else 0. A terminal that is gone is SIGHUP.
int screen_signal(void);
void screen_size(size_t *columns_out, size_t *lines_out);
void screen_clear(void);
/// Text in UTF-8 without control characters; what is beyond the last column is not shown.
void screen_line(size_t line, const char *text, size_t bytes, enum screen_style style);
/// What was put since screen_clear becomes visible.
void screen_show(void);
/// Wait for a key, a signal or `ns`.
int screen_wait(int64_t ns);

#endif
