/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tracker and the leaks that it finds (support/storage), among storages in the GPU's memory.
 *
 * Runs threads: the tracker looks while they create and release.
 */
#include "gpu/device_cuda_support.h"
#include "support/storage/tracker_rules.h"

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRACKER_RULES(pool_cuda),
    };
    int status = gpu_start();

    return status != 0 ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
