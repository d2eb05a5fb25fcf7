/* SPDX-License-Identifier: Apache-2.0 */
/* Figures and names for people. A struct format_text lives until the end of the full expression. */
#ifndef VARVE_ANALYSIS_BASE_NUMBER_FORMAT_H
#define VARVE_ANALYSIS_BASE_NUMBER_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct format_text {
    char text[48];
};

/* For a path, each of whose letters may take four. */
struct format_word {
    char text[16390];
};

/* Figures of any type of integer as arguments of printf. */
#define BYTES(number) format_bytes((int64_t)(number)).text
#define EXACT(number) format_bytes_exact((int64_t)(number)).text
#define COUNT(number) format_count((int64_t)(number)).text
#define DURATION(number) format_duration((int64_t)(number)).text

struct format_text format_count(int64_t number);      /* 1,234,567 */
struct format_text format_bytes(int64_t bytes);       /* 1.21 MiB */
struct format_text format_bytes_exact(int64_t bytes); /* 1.21 MiB (1,268,000) */
/// By one of these two, with its sign: +1.21 MiB.
struct format_text format_signed(int64_t change, struct format_text (*format)(int64_t number));
struct format_text format_duration(int64_t ns);               /* 1.5 ms; "-" if negative */
struct format_text format_share(int64_t part, int64_t whole); /* 12.3 %; "-" of nothing */
struct format_text format_time_utc(int64_t seconds);          /* 2026-05-01 09:30:00 UTC */
const char *format_plural(int64_t count, const char *one, const char *many);
/// The last name of a path; the path itself if it ends in a slash. Part of `path`.
const char *format_base_name(const char *path);
/// A word of a command line: in quotes where a shell would split or change it. Cut if it is longer than any path.
struct format_word format_shell(const char *word);
#define SHELL(word) format_shell(word).text
/// In words, code of which only the module is known; NULL: not even that.
void format_unresolved(char *buffer, size_t buffer_bytes, const char *module);
/// Columns that UTF-8 text takes on a terminal (one for each code point).
size_t format_width(const char *text);
/// All of a text, with U+FFFD for each byte of no UTF-8 sequence, and for each NUL unless `keeps_nul`. `to` has room
/// for three times `bytes`; the result is how many it took.
size_t format_utf8(char *to, const char *text, size_t bytes, bool keeps_nul);
/// A code point of Unicode as UTF-8; how many of the four bytes it took.
size_t format_utf8_point(char to[4], uint32_t point);
/// The value of a digit of hexadecimal; -1: it is none.
int format_hexadecimal_digit(int letter);
/// Copy without control characters and malformed UTF-8, at most `columns` wide; what is cut at the front
/// becomes "…".
void format_tail(char *buffer, size_t buffer_bytes, const char *text, size_t columns);
/// The same, cut at the end.
void format_head(char *buffer, size_t buffer_bytes, const char *text, size_t columns);
/// The same of a function's name: what is too wide first loses what its brackets hold, f<…>(…), then its end.
void format_function(char *buffer, size_t buffer_bytes, const char *text, size_t columns);
/// The same of a path: what is too wide loses its first folders, …/last/ones.c.
void format_path(char *buffer, size_t buffer_bytes, const char *text, size_t columns);
/// Print the name of a function as format_function has it; whole with --full-names.
void format_print_function(FILE *out, const char *text, size_t columns);
/// Print without control characters and malformed UTF-8, so that a file name can't drive the terminal.
void format_print_safe(FILE *out, const char *text);
/// The same as text or an attribute's value of XML.
void format_print_xml(FILE *out, const char *text);
/// The same, word by word from column `column` on, at which lines that follow begin too; and the end of the line. What
/// is longer than a line is cut.
void format_print_wrapped(FILE *out, const char *text, size_t column);
/// The same of what is printed in this format, a sentence.
void format_wrap(FILE *out, size_t column, const char *format, ...) __attribute__((format(printf, 3, 4)));
/// The same for a whole answer: ends of lines stay.
void format_print_lines(FILE *out, const char *text);
/// The same; lines that are wider than the terminal go on in the next one, from column `column` on.
void format_print_folded(FILE *out, const char *text, size_t column);

char *hexadecimal(const char *bytes, size_t count); /* owner: the caller, by free */

#endif
