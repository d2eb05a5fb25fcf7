/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How near a frame is to the user's own code. The table of what is plumbing is plumbing.txt; trace/writer.h has the
 * interface, since who reads a database adds patterns of the user's. Here is what the writers of call sites share.
 */
#ifndef VARVE_TRACE_CALLSITES_PLUMBING_H
#define VARVE_TRACE_CALLSITES_PLUMBING_H

#include <stdbool.h>
#include <stddef.h>

/// The table as text, one pattern a line, ends with 0.
extern const char callsites_plumbing_txt[];

/// Does `text` match? A `*` in `pattern` stands for any characters, all else for itself.
bool plumbing_match(const char *pattern, const char *text);

#endif
