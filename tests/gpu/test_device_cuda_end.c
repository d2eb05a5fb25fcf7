/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda device when its driver is no more: in a fork child, after the driver's own exit handlers, and
 * after a reset of the GPU.
 * Costs: 1 s
 */
#include "gpu/device_cuda_support.h"
#include "support/other_process.h"

/* ---- fork ---- */

TEST_CUDA(test_after_fork, 64 * MIB)
{
    uint64_t addr = 0;
    int status = -1;
    assert_int_equal(device->ops->segment_alloc(device, UNIT, 0, &addr), 0);
    gpu_fill(addr, UNIT, 5, 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct varve_device *own = NULL;
        uint64_t out = 0;
        bool is_refused = device->ops->segment_alloc(device, UNIT, 0, &out) == VARVE_ERROR_UNSUPPORTED &&
                          device->ops->segment_free(device, addr, UNIT) == VARVE_ERROR_UNSUPPORTED &&
                          device->ops->event_create(device, &out) == VARVE_ERROR_UNSUPPORTED &&
                          varve_cuda_open(&(struct varve_cuda_options){0}, &own, NULL) == VARVE_ERROR_UNSUPPORTED;
        device->ops->close(device);
        _exit(is_refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(gpu_first_other(addr, UNIT, 5), UNIT);
    assert_int_equal(device->ops->segment_free(device, addr, UNIT), 0);
}

/* A program that used CUDA before us, and not through us: the child's driver says so itself. */
TEST(test_open_after_fork)
{
    struct other other = other_start("forker");
    assert_int_equal(other_end(&other), 0);
}

static int part_forker(void)
{
    cuda_result (*init)(unsigned) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = library ? dlsym(library, "cuInit") : NULL;
    int status = -1;
    memcpy(&init, &found, sizeof(init));
    if (!init || init(0) != 0) {
        return 2;
    }
    pid_t child = fork();
    if (child == 0) {
        struct varve_message message = {""};
        struct varve_device *device = NULL;
        int error = varve_cuda_open(&(struct varve_cuda_options){0}, &device, &message);
        printf("a fork child: %s\n", message.text);
        fflush(stdout);
        _exit(error == VARVE_ERROR_UNSUPPORTED ? 0 : 1);
    }
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 3;
}

/* ---- the end ---- */

static struct varve_device *ending;
static struct varve_alloc *ending_alloc;
static uint64_t ending_segment, ending_event;

/* Runs after the driver's own exit handlers, since it was registered before there was a driver. */
static void end_late(void)
{
    uint64_t addr = 0;
    int freed = ending->ops->segment_free(ending, ending_segment, UNIT);
    int destroyed = ending->ops->event_destroy(ending, ending_event);
    int allocated = ending->ops->segment_alloc(ending, UNIT, 0, &addr);
    printf("after the driver's end: free %d, destroy %d, alloc %d: %s\n", freed, destroyed, allocated,
           cuda_reason(ending));
    varve_alloc_close(ending_alloc);
    ending->ops->close(ending);
    fflush(stdout);
    _exit(freed == 0 && destroyed == 0 && (allocated == 0 || allocated == VARVE_ERROR_UNSUPPORTED) ? 0 : 9);
}

static int part_ender(void)
{
    uint64_t addr = 0;
    atexit(end_late);
    if (gpu_start(NULL) != 0) {
        _exit(2);
    }
    ending = cuda_open(0);
    ending_alloc = alloc_open(ending, NULL);
    if (!ending_alloc || ending->ops->segment_alloc(ending, UNIT, 0, &ending_segment) != 0 ||
        ending->ops->event_create(ending, &ending_event) != 0 ||
        varve_alloc_raw_alloc(ending_alloc, 1000, &addr, NULL) != 0) {
        _exit(3);
    }
    return 4; /* what end_late makes of it */
}

TEST(test_exit)
{
    struct other other = other_start("ender");
    assert_int_equal(other_end(&other), 0);
}

static int part_resetter(void)
{
    struct varve_device *device = cuda_open(0);
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = 0, base = 0, handle = 0, event = 0, out = 0;
    if (ops->segment_alloc(device, UNIT, 0, &addr) != 0 || ops->vmm_reserve(device, UNIT, NULL, &base) != 0 ||
        ops->vmm_create(device, UNIT, &handle) != 0 || ops->vmm_map(device, base, UNIT, handle) != 0 ||
        ops->event_create(device, &event) != 0 || ops->event_record(device, event, 0) != 0) {
        return 2;
    }
    if (gpu.primary_reset(0) != 0) {
        return 3;
    }
    int freed = ops->segment_free(device, addr, UNIT);
    printf("after a reset: free %d: %s\n", freed, cuda_reason(device));
    int allocated = ops->segment_alloc(device, UNIT, 0, &out);
    printf("alloc %d: %s\n", allocated, cuda_reason(device));
    if (freed != 0 || ops->vmm_unmap(device, base, UNIT) != 0 || ops->vmm_release(device, handle, UNIT) != 0 ||
        ops->event_destroy(device, event) != 0) {
        return 4;
    }
    device->ops->close(device);
    device = cuda_open(0);
    if (device->ops->segment_alloc(device, UNIT, 0, &addr) != 0 || device->ops->segment_free(device, addr, UNIT) != 0) {
        return 5;
    }
    device->ops->close(device);
    return 0;
}

TEST(test_reset)
{
    struct other other = other_start("resetter");
    assert_int_equal(other_end(&other), 0);
}
TEST_FILE(gpu_start, NULL)

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    if (strcmp(part, "forker") == 0) {
        return part_forker();
    }
    if (strcmp(part, "ender") == 0) {
        return part_ender();
    }
    if (strcmp(part, "resetter") == 0) {
        return gpu_start(NULL) != 0 ? 1 : part_resetter();
    }
    return test_file_run("test_device_cuda_end");
}
