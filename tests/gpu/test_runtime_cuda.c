/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime (support/storage/runtime_rules.h) in the GPU's memory.
 */
#include "gpu/device_cuda_support.h"
#include "support/storage/runtime_rules.h"

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUNTIME_RULES(pool_cuda),
    };
    int status = gpu_start();

    return status != 0 ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
