/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes and one storage: a child attaches by name and writes, its parent reads what it wrote. */
#include "storage/storage.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int work(const char *name)
{
    struct varve_message message = {""};
    struct varve_storage *storage;

    if (varve_storage_shared_attach(name, false, &storage, &message) != VARVE_OK) {
        fprintf(stderr, "child: %s\n", message.text);
        return 1;
    }
    for (int64_t i = 0; i < varve_storage_count(storage); i++) {
        ((int64_t *)varve_storage_data(storage))[i] = i * i;
    }
    return varve_storage_release(storage, NULL) != VARVE_OK;
}

int main(void)
{
    const int64_t shape[] = {100};
    struct varve_message message = {""};
    struct varve_storage *storage;
    int64_t sum = 0;
    char name[64];
    int status;
    pid_t child;

    snprintf(name, sizeof(name), "squares-%d", (int)getpid());
    if (varve_storage_shared_create(name, VARVE_DTYPE_I64, 1, shape, &storage, &message) != VARVE_OK) {
        fprintf(stderr, "%s\n", message.text);
        return 1;
    }
    child = fork();
    if (child == 0) {
        _exit(work(name));
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        varve_storage_shared_unlink(name, NULL);
        return 1;
    }
    for (int64_t i = 0; i < varve_storage_count(storage); i++) {
        sum += ((const int64_t *)varve_storage_data(storage))[i];
    }
    printf("sum of squares from another process: %" PRId64 "\n", sum);
    varve_storage_shared_unlink(name, NULL); /* the memory goes with the last reference */
    varve_storage_release(storage, NULL);
    return sum != 328350;
}
