/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of the cuda device on a fake driver: what a launch hands on, what is refused, what the close gives back,
 * and a driver without programs.
 * Costs: 1 s
 */
#include "support/cuda/fake_device.h"

static struct varve_launch launch_of(void **arguments)
{
    return (struct varve_launch){.blocks = {2, 3, 4}, .threads = {32, 2, 1}, .arguments = arguments};
}

TEST(test_launch)
{
    struct varve_device *device = fake_opened();
    const struct varve_device_ops *ops = device->ops;
    uint64_t program = 0, other = 0, function = 0;
    void *arguments[] = {device};
    struct varve_launch launch = launch_of(arguments);
    assert_int_equal(ops->program_load(device, "image", &program), 0);
    assert_int_equal(ops->program_load(device, "another", &other), 0);
    assert_int_not_equal(program, other);
    assert_int_equal(ops->program_find(device, program, "there", &function), 0);
    assert_int_equal(function, program + 1);
    assert_int_equal(ops->launch(device, function, &launch, STREAM), 0);
    assert_int_equal(fake.transfers, 1);
    assert_string_equal(fake.transfer[0].name, "cuLaunchKernel");
    assert_int_equal(fake.transfer[0].target, function);
    assert_int_equal(fake.transfer[0].source, (uintptr_t)device);
    assert_int_equal(fake.transfer[0].width, 24);
    assert_int_equal(fake.transfer[0].rows, 64);
    assert_int_equal(fake.transfer[0].stream, STREAM);
    assert_int_equal(fake_count(FAKE_MODULE), 2);
    fake_closed(device);
    assert_int_equal(fake_count(FAKE_MODULE), 0);
}

TEST(test_refused)
{
    struct varve_device *device = fake_opened();
    const struct varve_device_ops *ops = device->ops;
    uint64_t program = 1, function = 2;
    void *arguments[] = {device};
    struct varve_launch launch = launch_of(arguments);
    assert_int_equal(ops->program_load(device, "", &program), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(program, 1);
    struct varve_message reason;
    ops->reason(device, &reason);
    assert_non_null(strstr(reason.text, "cuModuleLoadData"));
    assert_int_equal(ops->program_load(device, "image", &program), 0);
    assert_int_equal(ops->program_find(device, program, "missing", &function), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(function, 2);
    ops->reason(device, &reason);
    assert_non_null(strstr(reason.text, "missing"));
    assert_int_equal(ops->program_find(device, program, "there", &function), 0);
    fake.captured = STREAM;
    assert_int_equal(ops->launch(device, function, &launch, 0), VARVE_ERROR_BUSY);
    assert_int_equal(fake.transfers, 0);
    assert_int_equal(ops->launch(device, function, &launch, STREAM), 0); /* becomes a part of the graph */
    assert_int_equal(fake.transfers, 1);
    fake.captured = 0;
    fake_closed(device);
}

TEST(test_unload)
{
    struct varve_device *device = fake_opened();
    const struct varve_device_ops *ops = device->ops;
    uint64_t programs[3];
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(ops->program_load(device, "image", &programs[i]), 0);
    }
    assert_int_equal(ops->program_unload(device, programs[1]), 0);
    assert_int_equal(fake_count(FAKE_MODULE), 2);
    assert_int_equal(ops->program_unload(device, programs[1]), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->program_unload(device, 0), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->program_unload(device, programs[0]), 0);
    assert_int_equal(fake_count(FAKE_MODULE), 1);
    fake_closed(device);
    assert_int_equal(fake_count(FAKE_MODULE), 0);
}

TEST(test_old_driver)
{
    const struct varve_cuda_options options = {.ordinal = FAKE_ORDINAL};
    struct cuda_driver driver = fake_driver;
    struct varve_device *device = NULL;
    fake_reset();
    driver.module_function = NULL;
    assert_int_equal(cuda_device_open(&driver, &options, &device, NULL), 0);
    assert_true(!device->ops->program_load && !device->ops->program_unload && !device->ops->program_find &&
                !device->ops->launch);
    assert_non_null(device->ops->copy);
    device->ops->close(device);
    nothing_is_wrong();
}
