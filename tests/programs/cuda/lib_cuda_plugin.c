/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links the CUDA runtime library and the driver (the fake ones, in tests) and is opened for itself alone, as
 * extensions of interpreters are: nothing of what it links is visible to others. Also the body of the program
 * cuda_runtime.
 */
#include "programs/cuda/driver/fake.h"
#include "programs/cuda/driver/runtime_calls.h"

int plugin_run(void);

int plugin_run(void)
{
    uint64_t addr = 0;
    int failed = runtime_calls();
    failed += cuMemAlloc_v2(&addr, 22000) != 0 || addr == 0;
    failed += cuMemFree_v2(addr) != 0;
    return failed;
}
