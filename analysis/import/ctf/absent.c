/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In place of graph.c, sink.c and fields.c in a build without babeltrace2.
 */
#include "analysis/import/ctf/ctf.h"

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
