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

int cuDriverGetVersion(int *version_out);
int cuInit(unsigned flags);
int cuGetErrorName(int result, const char **name_out);
int cuGetErrorString(int result, const char **text_out);
int cuDeviceGetCount(int *count_out);
int cuDeviceGet(int *device_out, int ordinal);
int cuDeviceGetName(char *name, int bytes, int device);
int cuDeviceTotalMem_v2(size_t *bytes_out, int device);
int cuptiGetVersion(uint32_t *version_out);

int cuDriverGetVersion(int *version_out)
{
    *version_out = is("old") ? 12040 : 13000;
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

int cuGetErrorName(int result, const char **name_out)
{
    *name_out = result == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
    return is("stub") ? 34 : 0;
}

int cuGetErrorString(int result, const char **text_out)
{
    *text_out = result == 100 ? "no CUDA-capable device is detected" : "system has unsupported\nthings";
    return is("stub") ? 34 : 0;
}

int cuDeviceGetCount(int *count_out)
{
    *count_out = 10;
    return 0;
}

int cuDeviceGet(int *device_out, int ordinal)
{
    *device_out = ordinal;
    return 0;
}

int cuDeviceGetName(char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "Fake %d", device);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes_out, int device)
{
    *bytes_out = (size_t)(device + 1) << 30;
    return 0;
}

int cuptiGetVersion(uint32_t *version_out)
{
    *version_out = 130001;
    return 0;
}
