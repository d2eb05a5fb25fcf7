/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks shared between processes over the host device: the exporter's process writes, another one, with a
 * device and an allocator of its own, reads and answers in the same memory. One mapping for each segment,
 * however many of its blocks are open; what was never opened, or has been closed, can't be closed.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "alloc/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define BLOCKS 3

/* What the other process gets, by a pipe. */
struct offer {
    struct varve_alloc_ipc ipc[BLOCKS];
};

static int open_both(struct varve_device **device, struct varve_alloc **alloc, bool is_expandable)
{
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    if (varve_host_open(&(struct varve_host_options){.limit_bytes = 100 * MIB}, device, NULL) != VARVE_OK) {
        return -1;
    }
    options.device = *device;
    options.config.expandable_segments = is_expandable;
    return varve_alloc_open(&options, alloc, NULL);
}

/* 0 if all is well. */
static int close_both(struct varve_device *device, struct varve_alloc *alloc)
{
    int error = varve_alloc_check(alloc, NULL);
    varve_alloc_close(alloc);
    error = error != VARVE_OK ? error : varve_host_check(device, NULL);
    device->ops->close(device);
    return error;
}

/* ---- the other process: the number of the first step that fails, 0 if none does ---- */

static int is_pattern(uint64_t addr, unsigned char byte)
{
    const unsigned char *bytes = (const unsigned char *)(uintptr_t)addr;
    return bytes[0] == byte && bytes[4095] == byte;
}

static int import_blocks(struct varve_alloc *alloc, const struct offer *offer)
{
    struct varve_message message = {""};
    uint64_t addr[BLOCKS], again, own;
    for (int i = 0; i < BLOCKS; i++) {
        if (varve_alloc_ipc_open(alloc, &offer->ipc[i], &addr[i], &message) != VARVE_OK) {
            fprintf(stderr, "%s\n", message.text);
            return 1;
        }
        if (!is_pattern(addr[i], (unsigned char)(i + 1))) {
            return 2;
        }
    }
    /* the first two are of one segment, and one mapping */
    if (addr[1] - addr[0] != offer->ipc[1].offset - offer->ipc[0].offset) {
        return 3;
    }
    if (varve_alloc_ipc_open(alloc, &offer->ipc[0], &again, NULL) != VARVE_OK || again != addr[0]) {
        return 4;
    }
    memset((void *)(uintptr_t)addr[1], 0xaa, 4096);
    /* own blocks are nobody's imports */
    if (varve_alloc_raw_alloc(alloc, 4096, &own, NULL) != VARVE_OK ||
        varve_alloc_ipc_close(alloc, own) != VARVE_ERROR_NOT_FOUND ||
        varve_alloc_raw_delete(alloc, addr[0], NULL) != VARVE_ERROR_NOT_FOUND) {
        return 5;
    }
    if (varve_alloc_ipc_close(alloc, UINT64_MAX) != VARVE_ERROR_NOT_FOUND ||
        varve_alloc_ipc_close(alloc, 1) != VARVE_ERROR_NOT_FOUND) {
        return 6;
    }
    if (varve_alloc_ipc_close(alloc, again) != VARVE_OK || varve_alloc_ipc_close(alloc, addr[0]) != VARVE_OK ||
        !is_pattern(addr[1], 0xaa)) {
        return 7; /* the mapping lives as long as one block of it is open */
    }
    if (varve_alloc_ipc_close(alloc, addr[1]) != VARVE_OK) {
        return 8;
    }
    if (varve_alloc_ipc_close(alloc, addr[1]) != VARVE_ERROR_NOT_FOUND) {
        return 10; /* closed once more */
    }
    return varve_alloc_check(alloc, NULL) == VARVE_OK ? 0 : 9; /* the third one is left open */
}

/* Every byte of a handle counts: none that was changed may be opened. */
static int import_nonsense(struct varve_alloc *alloc, const struct offer *offer)
{
    struct varve_alloc_ipc spoilt = offer->ipc[0];
    struct varve_message message = {""};
    memset(&spoilt.handle, 0, sizeof(spoilt.handle));
    uint64_t addr;
    if (varve_alloc_ipc_open(alloc, &spoilt, &addr, &message) >= 0 || message.text[0] == '\0') {
        return 10;
    }
    memset(&spoilt.handle, 0xff, sizeof(spoilt.handle));
    return varve_alloc_ipc_open(alloc, &spoilt, &addr, &message) < 0 ? 0 : 11;
}

static int other_process(int offers, int answers)
{
    struct varve_device *device = NULL;
    struct varve_alloc *alloc = NULL;
    struct offer offer;
    int failed = 20;
    if (read(offers, &offer, sizeof(offer)) == (ssize_t)sizeof(offer) &&
        open_both(&device, &alloc, false) == VARVE_OK) {
        failed = import_blocks(alloc, &offer);
        failed = failed != 0 ? failed : import_nonsense(alloc, &offer);
        failed = close_both(device, alloc) != VARVE_OK && failed == 0 ? 21 : failed;
    }
    return write(answers, &failed, sizeof(failed)) == (ssize_t)sizeof(failed) ? 0 : 1;
}

/* ---- this process ---- */

/* Before there is a device, since a child can't go on with one. */
static pid_t start_other(int *offers_out, int *answers_out)
{
    int offers[2], answers[2];
    assert_int_equal(pipe(offers), 0);
    assert_int_equal(pipe(answers), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(offers[1]);
        _exit(other_process(offers[0], answers[1]));
    }
    close(offers[0]);
    close(answers[1]);
    *offers_out = offers[1];
    *answers_out = answers[0];
    return child;
}

TEST(test_between_processes)
{
    int offers, answers, failed = -1, status;
    pid_t child = start_other(&offers, &answers);
    struct offer offer;
    struct varve_device *device = NULL;
    struct varve_alloc *alloc = NULL;
    uint64_t addr[BLOCKS] = {0};
    memset(&offer, 0, sizeof(offer));
    assert_int_equal(open_both(&device, &alloc, false), VARVE_OK);
    for (int i = 0; i < BLOCKS; i++) {
        uint64_t bytes = i < 2 ? 100 * 4096 : 5 * MIB;
        assert_int_equal(varve_alloc_raw_alloc(alloc, bytes, &addr[i], NULL), VARVE_OK);
        memset((void *)(uintptr_t)addr[i], i + 1, bytes);
        assert_int_equal(varve_alloc_ipc_export(alloc, addr[i], &offer.ipc[i]), VARVE_OK);
    }
    assert_int_equal(offer.ipc[1].offset, 100 * 4096);
    assert_memory_equal(&offer.ipc[0].handle, &offer.ipc[1].handle, sizeof(offer.ipc[0].handle));
    assert_int_equal(write(offers, &offer, sizeof(offer)), (int)sizeof(offer));
    assert_int_equal(read(answers, &failed, sizeof(failed)), (int)sizeof(failed));
    assert_int_equal(failed, 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(*(unsigned char *)(uintptr_t)addr[1], 0xaa); /* its answer */
    close(offers);
    close(answers);
    assert_int_equal(close_both(device, alloc), VARVE_OK);
}

/* A handle outlives its segment: it is refused then, also when new memory lies in its place. */
TEST(test_handle_of_a_freed_segment)
{
    struct varve_device *devices[2] = {NULL};
    struct varve_alloc *allocs[2] = {NULL};
    struct varve_message message = {""};
    uint64_t addr = 0, other;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(open_both(&devices[i], &allocs[i], false), VARVE_OK);
    }
    assert_int_equal(varve_alloc_raw_alloc(allocs[0], 5 * MIB, &addr, NULL), VARVE_OK);
    struct varve_alloc_ipc ipc;
    assert_int_equal(varve_alloc_ipc_export(allocs[0], addr, &ipc), VARVE_OK);
    assert_int_equal(varve_alloc_raw_delete(allocs[0], addr, NULL), VARVE_OK);
    assert_int_equal(varve_alloc_ipc_export(allocs[0], addr, &ipc), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_alloc_empty_cache(allocs[0]), VARVE_OK);
    assert_int_equal(varve_alloc_raw_alloc(allocs[0], 5 * MIB, &addr, NULL), VARVE_OK);
    assert_int_equal(varve_alloc_ipc_open(allocs[1], &ipc, &other, &message), VARVE_ERROR_NOT_FOUND);
    assert_string_not_equal(message.text, "");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(close_both(devices[i], allocs[i]), VARVE_OK);
    }
}

/* Expandable segments are no single piece of memory that a handle could name. */
TEST(test_expandable_segments_are_not_exported)
{
    struct varve_device *device = NULL;
    struct varve_alloc *alloc = NULL;
    uint64_t addr;
    struct varve_alloc_ipc ipc;
    assert_int_equal(open_both(&device, &alloc, true), VARVE_OK);
    assert_int_equal(varve_alloc_raw_alloc(alloc, 5 * MIB, &addr, NULL), VARVE_OK);
    memset((void *)(uintptr_t)addr, 1, 5 * MIB); /* it is memory, though */
    assert_int_equal(varve_alloc_ipc_export(alloc, addr, &ipc), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(close_both(device, alloc), VARVE_OK);
}
