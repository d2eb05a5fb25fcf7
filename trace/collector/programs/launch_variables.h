/* SPDX-License-Identifier: Apache-2.0 */
/* What the program's environment says besides LD_PRELOAD and the session. */
#ifndef VARVE_TRACE_COLLECTOR_PROGRAMS_LAUNCH_VARIABLES_H
#define VARVE_TRACE_COLLECTOR_PROGRAMS_LAUNCH_VARIABLES_H

struct varve_collect_options;
struct varve_message;

#define RECORD_VARIABLES 8

struct record_variables {
    char *items[RECORD_VARIABLES + 1]; /* "NAME=VALUE", NULL at the end */
};

/// For what `options` asks for: `torch_history` (4096 bytes) gets the prefix of what PyTorch's own
/// history is written to, "" if it isn't asked for. Errors: VARVE_ERROR_NOT_FOUND (a library is missing, or
/// the database's folder), NO_MEMORY.
int record_variables_make(struct record_variables *variables, const struct varve_collect_options *options,
                          char *torch_history, struct varve_message *message);
void record_variables_free(struct record_variables *variables);

#endif
