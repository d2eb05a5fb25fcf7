/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In place of ctf_graph.c, ctf_sink.c and ctf_fields.c in a build without babeltrace2.
 */
#include "analysis/ctf_internal.h"

const char *ctf_version(void)
{
    return NULL;
}

int ctf_graph_run(char *const *folders, size_t count, ctf_take *take, void *context)
{
    (void)folders;
    (void)count;
    (void)take;
    (void)context;
    return VARVE_ERROR_UNSUPPORTED;
}
