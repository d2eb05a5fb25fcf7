/* SPDX-License-Identifier: Apache-2.0 */
/* What PyTorch does in a process that runs already, for commands that answer from histories. */
#ifndef VARVE_ANALYSIS_CLI_ATTACHED_HISTORY_H
#define VARVE_ANALYSIS_CLI_ATTACHED_HISTORY_H

#include <stdint.h>

struct command_context;
struct history;

/// The history of process `pid` over the next `for_ns`, or until it ends, or until Ctrl-C: recorded as by `varve attach
/// --torch`, of which nothing is left. Owner: the caller, by history_free. Returns 0, or EXIT_STATUS_FAILED with the
/// reason said.
int attached_history_read(struct command_context *context, int32_t pid, int64_t for_ns, struct history **history_out);

#endif
