/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in for the exports to pprof and Perfetto where protobuf-c was not there when varve was built. */
#include "analysis/export/export.h"

#include "base/error.h"

bool export_has_protobuf(void)
{
    return false;
}

static int no_protobuf_refuse(const char *format, struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                             "--to %s: varve was built without protobuf-c; apt install libprotobuf-c-dev "
                             "protobuf-c-compiler, then build varve again",
                             format);
}

int export_pprof(const void *request, FILE *out, struct varve_message *message)
{
    (void)request;
    (void)out;
    return no_protobuf_refuse("pprof", message);
}

int export_perfetto(const void *request, FILE *out, struct varve_message *message)
{
    (void)request;
    (void)out;
    return no_protobuf_refuse("perfetto", message);
}
