/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the output looks like to who reads it: how many columns a line may have, and whether it has colour. Set once per
 * command line, by terminal_begin; one thread. Colour is kept beside the text, not in it: nothing that a database holds
 * can make an escape sequence.
 */
#ifndef VARVE_ANALYSIS_BASE_TERMINAL_H
#define VARVE_ANALYSIS_BASE_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TERMINAL_COLUMNS_MIN 60
#define TERMINAL_COLUMNS_MAX 1000

enum terminal_style {
    TERMINAL_PLAIN,
    TERMINAL_TITLE, /* bold: a section */
    TERMINAL_GOOD,  /* green */
    TERMINAL_BAD,   /* red */
    TERMINAL_FAINT, /* what is read second */
};

/// `out` is where the answer goes in the end. A terminal has its columns, and colour unless NO_COLOR is set or TERM is
/// dumb; all else has 100 columns and no colour.
void terminal_begin(FILE *out);
/// As asked for by --width.
void terminal_set_columns(int64_t columns);
size_t terminal_columns(void);
/// Names of functions are printed whole, however wide: --full-names.
void terminal_set_full_names(bool is_on);
bool terminal_has_full_names(void);

/// The text of `collected` (an open_memstream) has its style from here on. Streams are distinguished: of another one
/// than the last given to terminal_collect nothing is noted.
void terminal_style(FILE *collected, enum terminal_style style);
void terminal_collect(FILE *collected);
/// Lines of what is collected that are too wide go on in the next one, except with --full-names.
void terminal_fold(void);
/// What was collected, without control characters but line ends, and in the styles that were noted; forgets them.
void terminal_print(FILE *out, const char *text);

#endif
