/* SPDX-License-Identifier: Apache-2.0 */
/* Table function_stat: what each function has anywhere in the stacks. */
#ifndef VARVE_TRACE_STORE_FUNCTION_TOTALS_H
#define VARVE_TRACE_STORE_FUNCTION_TOTALS_H

#include <sqlite3.h>

struct varve_message;

/// In the open transaction, after the tables callsite_stat, callsite, stack_node_row, stack_frame and symbol; may be
/// repeated. Takes 8 bytes a stack node. Errors: VARVE_ERROR_NO_MEMORY, those of schema_error.
int function_totals_write(sqlite3 *db, const char *path, struct varve_message *message);

#endif
