/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages in the GPU's memory in another process (support/storage).
 * Costs: 1 s
 */
#include "gpu/device_cuda_support.h"
#include "support/storage/ipc_rules.h"

static const struct CMUnitTest rules[] = {
    IPC_RULES(pool_cuda),
};

TEST_CASES(rules)
TEST_FILE(gpu_start, NULL)

int main(int argc, char **argv)
{
    if (argc > 1) {
        return gpu_start(NULL) != 0 ? 1 : ipc_part(argc, argv);
    }
    return test_file_run("test_storage_cuda_process");
}
