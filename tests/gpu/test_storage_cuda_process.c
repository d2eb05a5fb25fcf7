/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages in the GPU's memory in another process (support/storage).
 */
#include "gpu/device_cuda_support.h"
#include "support/storage/ipc_rules.h"

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        IPC_RULES(pool_cuda),
    };
    int status = gpu_start();

    if (status == 0 && argc > 1) {
        status = ipc_part(argc, argv);
    } else if (status == 0) {
        status = cmocka_run_group_tests(tests, NULL, NULL);
    }
    return status;
}
