/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In place of all other ctf_*.c in a build without babeltrace2.
 */
#include "analysis/ctf_internal.h"

#include <string.h>

static int fail(const char *folder, struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                             "%s: built without babeltrace2 (libbabeltrace2-dev): CTF can't be read", folder);
}

const char *ctf_version(void)
{
    return NULL;
}

int ctf_import(const char *folder, const char *database_path, bool replace, struct progress *progress,
               struct ctf_import_result *result, struct varve_message *message)
{
    (void)database_path;
    (void)replace;
    (void)progress;
    memset(result, 0, sizeof(*result));
    return fail(folder, message);
}

int ctf_each_number(const char *folder,
                    void (*take)(void *context, uint32_t process, int32_t pid, uint32_t ring,
                                 uint64_t ring_seq),
                    void *context, struct varve_message *message)
{
    (void)take;
    (void)context;
    return fail(folder, message);
}
