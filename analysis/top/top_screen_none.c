/* SPDX-License-Identifier: Apache-2.0 */
/* The screen of a build without ncurses: there is none. */
#include "analysis/top/top_screen.h"

#include "base/error.h"

const char *screen_missing(void)
{
    return "this build has no ncurses: --once prints one screen as text";
}

int screen_begin(struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "%s", screen_missing());
}

void screen_end(void)
{
}

int screen_signal(void)
{
    return 0;
}

void screen_size(size_t *columns_out, size_t *lines_out)
{
    *columns_out = *lines_out = 0;
}

void screen_clear(void)
{
}

void screen_line(size_t line, const char *text, size_t bytes, enum screen_style style)
{
    (void)line;
    (void)text;
    (void)bytes;
    (void)style;
}

void screen_show(void)
{
}

int screen_wait(int64_t ns)
{
    (void)ns;
    return 'q';
}
