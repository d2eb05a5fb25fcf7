/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: any bytes as a call-site file, in two steps, so that a file that grows while it is read
 * is covered too. Whatever the bytes, reading ends, numbers are in range, and asking twice gives one answer.
 */
#include "trace/error.h"
#include "trace/symbols/callsites/callsites.h"
#include "trace/symbols/callsites/intern.h"
#include "trace/symbols/callsites/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

static void write_all(int file, const uint8_t *data, size_t size)
{
    check(write(file, data, size) == (ssize_t)size);
}

static void ask(struct callsites *callsites)
{
    for (uint32_t callsite = 0; callsite < 20; callsite++) {
        uint32_t number = callsites_global(callsites, 1, callsite);

        check(number <= callsites->stacks.count && callsites_global(callsites, 1, callsite) == number);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int file = memfd_create("sites", MFD_CLOEXEC);
    size_t first = size ? data[size - 1] * size / 256 : 0;
    struct callsites *callsites;
    char path[64];

    check(file >= 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    check(callsites_open(&callsites) == VARVE_OK && callsites_process(callsites, 1, path) == VARVE_OK);
    write_all(file, data, first);
    ask(callsites);
    write_all(file, data + first, size - first);
    ask(callsites);
    callsites_process_end(callsites, 1);
    ask(callsites);
    for (uint32_t number = 1; number <= callsites->stacks.count; number++) {
        const struct callsites_stack *stack = callsites_stack(&callsites->stacks, number);

        for (unsigned i = 0; i < (unsigned)stack->native_count + stack->python_count; i++) {
            check(stack->frame_ids[i] - 1 < callsites->frames.count);
        }
    }
    callsites_close(callsites);
    close(file);
    return 0;
}
