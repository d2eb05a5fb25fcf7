/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libcuda.so.1 and libcupti.so, as bad as FAKE_CUDA says, so that `varve doctor` can be seen
 * with drivers that this machine does not have: ok, old, none (no device), stub, mismatch, crash, hang, exit.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is(const char *word)
{
    const char *given = getenv("FAKE_CUDA");
    return given != NULL && strcmp(given, word) == 0;
}

/* The functions are CUDA's, with all their parameters, and no header of ours declares them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define ANSWERS(name, parameters, out, value, result) \
    int name parameters                               \
    {                                                 \
        *(out) = (value);                             \
        return result;                                \
    }

ANSWERS(cuDriverGetVersion, (int *version_out), version_out, is("old") ? 12040 : 13000, 0)
ANSWERS(cuGetErrorName, (int result, const char **name_out), name_out,
        result == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", is("stub") ? 34 : 0)
ANSWERS(cuGetErrorString, (int result, const char **text_out), text_out,
        result == 100 ? "no CUDA-capable device is detected" : "system has unsupported\nthings", is("stub") ? 34 : 0)
ANSWERS(cuDeviceGetCount, (int *count_out), count_out, 10, 0)
ANSWERS(cuDeviceGet, (int *device_out, int ordinal), device_out, ordinal, 0)
ANSWERS(cuDeviceTotalMem_v2, (size_t * bytes_out, int device), bytes_out, (size_t)(device + 1) << 30, 0)
ANSWERS(cuptiGetVersion, (uint32_t * version_out), version_out, 130001, 0)

int cuDeviceGetName(char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "Fake %d", device);
    return 0;
}

int cuInit(unsigned flags)
{
    printf("a driver that talks\n");
    fflush(stdout);
    if (is("crash")) {
        abort();
    }
    if (is("exit")) {
        _exit(3);
    }
    while (is("hang")) {
        pause();
    }
    return flags != 0 ? 1 : is("none") ? 100 : is("stub") ? 34 : is("mismatch") ? 803 : 0;
}
