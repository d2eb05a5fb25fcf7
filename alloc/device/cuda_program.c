/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of the cuda device are modules of the driver's in the primary context. A launch is work like a copy: it may
 * wait for room in a stream's queue, so the table is unlocked meanwhile, and a stream under capture takes
 * it into its graph.
 */
#include "alloc/device/cuda_device.h"
#include "base/grown_array.h"

bool cuda_has_programs(const struct cuda_driver *driver)
{
#define IS_THERE(field, symbol, exported, version, parameters) driver->field &&
    return CUDA_DRIVER_PROGRAM_LIST(IS_THERE) true;
#undef IS_THERE
}

/* The driver may compile for a while, so the table is unlocked meanwhile. */
static int cuda_program_program_load(struct device_table *table, struct device_call *call)
{
    struct cuda_device *cuda = cuda_of_table(table);
    cuda_unlock(cuda);
    cuda_module module = NULL;
    cuda_result result = cuda->driver->module_load(&module, call->argument);
    cuda_lock(cuda);
    int error = cuda_failed(cuda, result, "cuModuleLoadData");
    if (error != VARVE_OK) {
        return error;
    }
    if (!ARRAY_GROW(cuda->programs, cuda->program_capacity, cuda->program_count + 1)) {
        cuda->driver->module_unload(module);
        return DEVICE_REFUSE(&table->resources, VARVE_ERROR_NO_MEMORY, "no memory to note a program");
    }
    cuda->programs[cuda->program_count++] = module;
    *(uint64_t *)call->out = (uint64_t)(uintptr_t)module;
    return VARVE_OK;
}

int cuda_program_load(struct varve_device *device, const void *image, uint64_t *program_out)
{
    return device_run(device,
                      (struct device_call){.kind = DEVICE_CALL_UNCOUNTED, .argument = image, .out = program_out},
                      cuda_program_program_load);
}

/* The driver may wait for what runs. */
static int program_unload(struct device_table *table, struct device_call *call)
{
    struct cuda_device *cuda = cuda_of_table(table);
    cuda_module module = (cuda_module)(uintptr_t)call->id;
    for (uint32_t i = 0; i < cuda->program_count; i++) {
        if (cuda->programs[i] == module) {
            cuda->programs[i] = cuda->programs[--cuda->program_count];
            cuda_unlock(cuda);
            cuda_result result = cuda->driver->module_unload(module);
            cuda_lock(cuda);
            return cuda_failed(cuda, result, "cuModuleUnload");
        }
    }
    return DEVICE_REFUSE(&table->resources, VARVE_ERROR_NOT_FOUND, "%#llx is no program", (unsigned long long)call->id);
}

int cuda_program_unload(struct varve_device *device, uint64_t program)
{
    return device_run(device, (struct device_call){.kind = DEVICE_CALL_UNCOUNTED, .id = program, .gives_back = true},
                      program_unload);
}

static int cuda_program_program_find(struct device_table *table, struct device_call *call)
{
    struct cuda_device *cuda = cuda_of_table(table);
    cuda_function function = NULL;
    int error =
        cuda_failed(cuda, cuda->driver->module_function(&function, (cuda_module)(uintptr_t)call->id, call->argument),
                    "cuModuleGetFunction of %s", (const char *)call->argument);
    *(uint64_t *)call->out = (uint64_t)(uintptr_t)function;
    return error;
}

int cuda_program_find(struct varve_device *device, uint64_t program, const char *name, uint64_t *function_out)
{
    uint64_t function = 0;
    int error = device_run(
        device, (struct device_call){.kind = DEVICE_CALL_UNCOUNTED, .id = program, .argument = name, .out = &function},
        cuda_program_program_find);
    if (error == VARVE_OK) {
        *function_out = function;
    }
    return error;
}

static int launch_run(struct device_table *table, struct device_call *call)
{
    struct cuda_device *cuda = cuda_of_table(table);
    const struct varve_launch *launch = call->argument;
    int error = resources_stream_check(&table->resources, call->stream);
    VARVE_THEN(error, cuda_work_check(cuda, call->stream));
    if (error != VARVE_OK) {
        return error;
    }
    cuda_unlock(cuda);
    cuda_result result =
        cuda->driver->launch((cuda_function)(uintptr_t)call->id, launch->blocks[0], launch->blocks[1],
                             launch->blocks[2], launch->threads[0], launch->threads[1], launch->threads[2],
                             launch->shared_bytes, cuda_stream_of(call->stream), launch->arguments, NULL);
    cuda_lock(cuda);
    return cuda_failed(cuda, result, "cuLaunchKernel of %u * %u * %u blocks of %u threads on the stream %#llx",
                       launch->blocks[0], launch->blocks[1], launch->blocks[2], launch->threads[0],
                       (unsigned long long)call->stream);
}

int cuda_launch(struct varve_device *device, uint64_t function, const struct varve_launch *launch, uint64_t stream)
{
    return device_run(
        device,
        (struct device_call){.kind = DEVICE_CALL_UNCOUNTED, .id = function, .stream = stream, .argument = launch},
        launch_run);
}

void cuda_programs_close(struct cuda_device *cuda)
{
    for (uint32_t i = 0; i < cuda->program_count; i++) {
        cuda->driver->module_unload(cuda->programs[i]);
    }
}
