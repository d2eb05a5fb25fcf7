/* SPDX-License-Identifier: Apache-2.0 */
/* A leak hunt: a cache that forgets to release, and two storages that keep each other alive. Found by a mark
 * and the tracker. */
#include "storage/storage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static struct varve_storage *make(const char *name)
{
    const struct varve_storage_options options = {.name = name};
    const int64_t shape[] = {64, 64};
    struct varve_storage *storage = NULL;

    if (varve_storage_zeros(&options, VARVE_DTYPE_F32, 2, shape, &storage, NULL) != VARVE_OK) {
        exit(1);
    }
    return storage;
}

static void step(struct varve_storage **cache, int number)
{
    struct varve_storage *input = make("input"), *result = make("result");

    cache[number] = varve_storage_retain(result); /* and never asked for again */
    varve_storage_release(result, NULL);
    varve_storage_release(input, NULL);
}

int main(void)
{
    struct varve_storage *cache[100], *parent, *child;
    struct varve_leak *leaks;
    size_t count;
    uint64_t mark;

    varve_tracker_enable(true);
    step(cache, 0); /* what is usual */
    mark = varve_tracker_mark();
    for (int i = 1; i < 91; i++) {
        step(cache, i);
    }
    parent = make("parent");
    child = make("child");
    varve_storage_attach(parent, child, NULL);
    varve_storage_attach(child, parent, NULL);
    varve_storage_release(child, NULL);
    varve_storage_release(parent, NULL);
    if (varve_tracker_check_leaks(&(struct varve_leak_options){.after = mark}, &leaks, &count, NULL) != VARVE_OK) {
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        printf("%-14s %8" PRIu64 " bytes, score %.2f: %s\n", varve_leak_kind_name(leaks[i].kind), leaks[i].bytes,
               leaks[i].score, leaks[i].evidence);
    }
    free(leaks);
    return count != 3; /* the cache, the parent, the child */
}
