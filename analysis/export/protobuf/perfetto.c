/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/export/export.h"
#include "trace/trace.h"
int export_perfetto(const void *request, FILE *out, struct varve_message *message)
{
    (void)request;
    (void)out;
    return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "soon");
}
