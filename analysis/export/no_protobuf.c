/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in for export/protobuf/ where protobuf-c was not there when varve was built. */
#include "analysis/export/export.h"

#include "trace/trace.h"

const char *export_protobuf_missing(void)
{
    return "varve was built without protobuf-c; apt install libprotobuf-c-dev protobuf-c-compiler, then build varve again";
}

int export_pprof(const void *request, FILE *out, struct varve_message *message)
{
    (void)request;
    (void)out;
    return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "--to pprof: %s", export_protobuf_missing());
}

int export_perfetto(const void *request, FILE *out, struct varve_message *message)
{
    (void)request;
    (void)out;
    return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "--to perfetto: %s",
                             export_protobuf_missing());
}
