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
    if (!is_true)
        abort();
}

static void write_all(int file, const uint8_t *data, size_t size)
{
    check(write(file, data, size) == (ssize_t)size);
}

static void ask(struct sites *sites)
{
    for (uint32_t site = 0; site < 20; site++) {
        uint32_t number = sites_global(sites, 1, site);

        check(number <= sites->stacks.count && sites_global(sites, 1, site) == number);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int file = memfd_create("sites", MFD_CLOEXEC);
    size_t first = size ? data[size - 1] * size / 256 : 0;
    struct sites *sites;
    char path[64];

    check(file >= 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    check(sites_open(&sites) == VARVE_OK && sites_process(sites, 1, path) == VARVE_OK);
    write_all(file, data, first);
    ask(sites);
    write_all(file, data + first, size - first);
    ask(sites);
    sites_process_end(sites, 1);
    ask(sites);
    for (uint32_t number = 1; number <= sites->stacks.count; number++) {
        const struct sites_stack *stack = &sites->stacks.stacks[number - 1];

        for (unsigned i = 0; i < (unsigned)stack->native_count + stack->python_count; i++)
            check(sites->stacks.words[stack->start + i] - 1 < sites->frames.count);
    }
    sites_close(sites);
    close(file);
    return 0;
}
