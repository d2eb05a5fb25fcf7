/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages in the GPU's memory: the rules of all memories (support/storage), random operations beside a model on the host, on
 * segments, expandable segments and the driver's pool.
 */
#include "gpu/device_cuda_support.h"
#include "support/storage/random_rules.h"

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORAGE_RULES(pool_cuda), STORAGE_RULES(pool_cuda_expandable), STORAGE_RULES(pool_cuda_async),
        RANDOM_RULES(pool_cuda),  RANDOM_RULES(pool_cuda_expandable),  RANDOM_RULES(pool_cuda_async),
    };
    int status = gpu_start();

    return status != 0 ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
