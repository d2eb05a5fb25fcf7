/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the cuda device in other processes: segments from device to device and blocks from allocator to
 * allocator, written and read by both sides; handles that are stale, forged or one's own.
 * Costs: 1 s
 */
#include "gpu/device_cuda_support.h"
#include "support/other_process.h"

#define SEGMENTS 3
#define BLOCKS 3

/* ---- segments, device to device ---- */

struct offer {
    struct varve_ipc_handle handles[SEGMENTS];
    uint64_t bytes[SEGMENTS];
};

/* Two of its segments share the driver's unit of memory, and with it the handle's. */
static int part_exporter(void)
{
    struct varve_device *device = cuda_open(64 * MIB);
    struct offer offer = {.bytes = {4 * MIB, 256 * 1024, 256 * 1024}};
    uint64_t addrs[SEGMENTS];
    for (unsigned i = 0; i < SEGMENTS; i++) {
        if (device->ops->segment_alloc(device, offer.bytes[i], 0, &addrs[i]) != 0 ||
            device->ops->ipc_export(device, addrs[i], &offer.handles[i]) != 0 ||
            gpu.fill(addrs[i], (unsigned char)(0x50 + i), offer.bytes[i], NULL) != 0) {
            fprintf(stderr, "%s\n", cuda_reason(device));
            return 1;
        }
    }
    char step;
    if (gpu.context_synchronize() != 0 || !say(1, &offer, sizeof(offer)) || !read_all(0, &step, 1)) {
        return 2;
    }
    for (unsigned i = 0; i < SEGMENTS; i++) {
        if (gpu_first_other(addrs[i] + offer.bytes[i] - 16, 16, (unsigned char)(0x70 + i)) != 16) {
            return 3 + (int)i;
        }
    }
    device->ops->close(device);
    return say(1, "c", 1) && read_all(0, &step, 1) ? 0 : 6;
}

/* What others own counts against their limits. */
TEST_CUDA(test_ipc, UNIT)
{
    struct other other = other_start("exporter");
    struct offer offer;
    uint64_t addrs[SEGMENTS], again = 0;
    assert_true(read_all(other.from, &offer, sizeof(offer)));
    for (unsigned i = 0; i < SEGMENTS; i++) {
        if (ops->ipc_open(device, &offer.handles[i], &addrs[i]) != 0) {
            fail_msg("%s", cuda_reason(device));
        }
        assert_int_equal(gpu_first_other(addrs[i], offer.bytes[i], (unsigned char)(0x50 + i)), offer.bytes[i]);
        gpu_fill(addrs[i] + offer.bytes[i] - 16, 16, (unsigned char)(0x70 + i), 0);
    }
    GPU_OK(gpu.context_synchronize());
    assert_int_equal(ops->ipc_open(device, &offer.handles[0], &again), 0);
    assert_int_equal(again, addrs[0]);
    assert_int_equal(ops->segment_free(device, addrs[0], offer.bytes[0]), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->ipc_export(device, addrs[0], &offer.handles[0]), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->ipc_close(device, again), 0);
    for (unsigned i = 0; i < SEGMENTS; i++) {
        assert_int_equal(ops->ipc_close(device, addrs[i]), 0);
        assert_int_equal(ops->ipc_close(device, addrs[i]), VARVE_ERROR_NOT_FOUND);
    }
    assert_true(say(other.to, "1", 1));
    char step;
    assert_true(read_all(other.from, &step, 1) && step == 'c');
    assert_true(ops->ipc_open(device, &offer.handles[0], &again) < 0); /* freed */
    printf("a segment that was freed: %s\n", cuda_reason(device));
    assert_true(say(other.to, "2", 1));
    assert_int_equal(other_end(&other), 0);
    assert_true(ops->ipc_open(device, &offer.handles[0], &again) < 0);
    printf("one of a process that has ended: %s\n", cuda_reason(device));
}

TEST_CUDA(test_ipc_refuses, 64 * MIB)
{
    uint64_t addr = 0, base = 0, opened = 0;
    assert_int_equal(ops->segment_alloc(device, UNIT, 0, &addr), 0);
    assert_int_equal(ops->vmm_reserve(device, UNIT, NULL, &base), 0);
    struct varve_ipc_handle handle, again, forged;
    assert_int_equal(ops->ipc_export(device, base, &handle), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->ipc_export(device, addr + 4096, &handle), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->ipc_export(device, addr, &handle), 0);
    assert_int_equal(ops->ipc_export(device, addr, &again), 0);
    assert_memory_equal(&handle, &again, sizeof(handle));
    memset(&forged, 0, sizeof(forged));
    assert_true(ops->ipc_open(device, &forged, &opened) < 0);
    memset(&forged, 0xff, sizeof(forged));
    assert_true(ops->ipc_open(device, &forged, &opened) < 0);
    assert_int_equal(ops->ipc_open(device, &handle, &opened), 0); /* of this process: CUDA would refuse it */
    assert_int_equal(opened, addr);
    assert_int_equal(ops->ipc_close(device, addr), 0);
    assert_int_equal(ops->ipc_close(device, addr), VARVE_ERROR_NOT_FOUND);
}

/* ---- blocks, allocator to allocator ---- */

struct block_offer {
    struct varve_alloc_ipc ipc[BLOCKS];
};

/* The number of the first step that fails. */
static int import_blocks(struct varve_alloc *alloc, const struct block_offer *offer)
{
    struct varve_message message = {""};
    uint64_t addr[BLOCKS], again;
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (varve_alloc_ipc_open(alloc, &offer->ipc[i], &addr[i], &message) != VARVE_OK) {
            fprintf(stderr, "%s\n", message.text);
            return 1;
        }
        if (gpu_first_other(addr[i], 4096, (unsigned char)(i + 1)) != 4096) {
            return 2;
        }
    }
    if (addr[1] - addr[0] != offer->ipc[1].offset - offer->ipc[0].offset) {
        return 3; /* the first two are of one segment, and one mapping */
    }
    if (varve_alloc_ipc_open(alloc, &offer->ipc[0], &again, NULL) != VARVE_OK || again != addr[0]) {
        return 4;
    }
    if (gpu.fill(addr[1], 0xaa, 4096, NULL) != 0 || gpu.context_synchronize() != 0) {
        return 5;
    }
    if (varve_alloc_ipc_close(alloc, again) != VARVE_OK || varve_alloc_ipc_close(alloc, addr[0]) != VARVE_OK ||
        gpu_first_other(addr[1], 4096, 0xaa) != 4096 || varve_alloc_ipc_close(alloc, addr[1]) != VARVE_OK ||
        varve_alloc_ipc_close(alloc, addr[1]) != VARVE_ERROR_NOT_FOUND) {
        return 6;
    }
    return varve_alloc_check(alloc, NULL) == VARVE_OK ? 0 : 7; /* the third one is left open */
}

static int part_importer(void)
{
    struct varve_device *device = cuda_open(100 * MIB);
    struct varve_alloc *alloc = alloc_open(device, NULL);
    struct block_offer offer;
    int failed = 20;
    if (alloc && read_all(0, &offer, sizeof(offer))) {
        failed = import_blocks(alloc, &offer);
        varve_alloc_close(alloc);
        failed = failed == 0 && varve_cuda_check(device, NULL) != VARVE_OK ? 21 : failed;
    }
    device->ops->close(device);
    return failed;
}

TEST_CUDA(test_blocks, 100 * MIB)
{
    struct varve_alloc *alloc = alloc_open(device, NULL);
    struct other other = other_start("importer");
    struct block_offer offer;
    uint64_t addr[BLOCKS] = {0};
    memset(&offer, 0, sizeof(offer));
    assert_non_null(alloc);
    for (unsigned i = 0; i < BLOCKS; i++) {
        uint64_t bytes = i < 2 ? 100 * 4096 : 5 * MIB;
        assert_int_equal(varve_alloc_raw_alloc(alloc, bytes, &addr[i], NULL), VARVE_OK);
        gpu_fill(addr[i], bytes, (unsigned char)(i + 1), 0);
        assert_int_equal(varve_alloc_ipc_export(alloc, addr[i], &offer.ipc[i]), VARVE_OK);
    }
    GPU_OK(gpu.context_synchronize());
    assert_int_equal(offer.ipc[1].offset, 100 * 4096);
    assert_memory_equal(&offer.ipc[0].handle, &offer.ipc[1].handle, sizeof(offer.ipc[0].handle));
    assert_true(say(other.to, &offer, sizeof(offer)));
    assert_int_equal(other_end(&other), 0);
    assert_int_equal(gpu_first_other(addr[1], 4096, 0xaa), 4096); /* its answer */
    varve_alloc_close(alloc);
}
TEST_FILE(gpu_start, NULL)

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    if (strcmp(part, "exporter") != 0 && strcmp(part, "importer") != 0) {
        return test_file_run("test_device_cuda_process");
    }
    if (gpu_start(NULL) != 0) {
        return 1;
    }
    return strcmp(part, "exporter") == 0 ? part_exporter() : part_importer();
}
