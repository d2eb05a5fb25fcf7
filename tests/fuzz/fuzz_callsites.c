/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: any bytes as a call-site file, in two steps, so that a file that grows while it is read
 * is covered too. Whatever the bytes, reading ends, numbers are in range, and asking twice gives one answer.
 */
#include "fuzz/target.h"

#include "base/error.h"
#include "trace/callsites/callsites.h"
#include "trace/callsites/callsite_intern.h"
#include "trace/callsites/callsite_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

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

/* Parents come before their children and are frames of the same kind, and so are the two ends of a stack. */
static void check_nodes(const struct callsites *callsites)
{
    const struct callsites_frame *frames = callsites->frames.bytes;
    const struct pair *nodes = callsites->nodes.pairs;
    for (uint32_t i = 0; i < callsites->nodes.count; i++) {
        check(nodes[i].first <= i && nodes[i].second - 1 < callsites->frames.count);
        check(nodes[i].first == 0 ||
              frames[nodes[nodes[i].first - 1].second - 1].is_python == frames[nodes[i].second - 1].is_python);
    }
    for (uint32_t i = 0; i < callsites->stacks.count; i++) {
        const struct pair stack = callsites->stacks.pairs[i];
        check(stack.first <= callsites->nodes.count && stack.second <= callsites->nodes.count);
        check(stack.first == 0 || !frames[nodes[stack.first - 1].second - 1].is_python);
        check(stack.second == 0 || frames[nodes[stack.second - 1].second - 1].is_python);
    }
}

static void hear(void *context, uint32_t process_id, const struct callsite_file_entry *entry, const uint8_t *payload)
{
    uint64_t *sum = context;
    check(process_id == 1);
    for (uint32_t i = 0; i < entry->bytes; i++) {
        *sum += payload[i];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t sum = 0;
    int file = memfd_create("sites", MFD_CLOEXEC);
    size_t first = size ? data[size - 1] * size / 256 : 0;
    check(file >= 0);
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    struct callsites *callsites;
    check(callsites_open(&callsites) == VARVE_OK && callsites_process(callsites, 1, path) == VARVE_OK);
    callsites_listen(callsites, hear, &sum);
    write_all(file, data, first);
    ask(callsites);
    write_all(file, data + first, size - first);
    ask(callsites);
    callsites_process_end(callsites, 1);
    ask(callsites);
    check_nodes(callsites);
    callsites_close(callsites);
    close(file);
    return 0;
}
