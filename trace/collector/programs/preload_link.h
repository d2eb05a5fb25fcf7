/* SPDX-License-Identifier: Apache-2.0 */
/* A name for the recorder's library that can stand in LD_PRELOAD, which the loader splits at spaces and colons. */
#ifndef VARVE_TRACE_COLLECTOR_PROGRAMS_PRELOAD_LINK_H
#define VARVE_TRACE_COLLECTOR_PROGRAMS_PRELOAD_LINK_H

struct varve_message;

/// The library's path, or, where that has spaces or colons, a link to it in /tmp/varve-UID, which stays: programs that
/// live on execute others after the recording. Owner of `name_out`: the caller, by free, after an error too. Errors:
/// VARVE_ERROR_NOT_FOUND (there is no such file), UNSUPPORTED (no link can be made), NO_MEMORY.
int preload_link(const char *library, char **name_out, struct varve_message *message);

#endif
