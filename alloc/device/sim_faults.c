/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What frames each call of the sim device: it is counted, fails if a script says so, and takes its time on
 * the virtual clock. The times are those of the driver on an H200, measured at five sizes, straight lines
 * between them and on behind the last one; below the first one they are constant. Copies and fills take what the data
 * sheets of the links and of the memory let expect, as if the program waited for each. Failed calls, and calls that
 * were not measured, take no time. Called by the other files of the device.
 */
#include "alloc/device/sim_device.h"

#define MIB ((uint64_t)1 << 20)
#define COST_POINTS 5U

static const uint64_t cost_bytes[COST_POINTS] = {2 * MIB, 20 * MIB, 128 * MIB, 1024 * MIB, 8192 * MIB};

/* ns at those sizes; 0 at the end: not measured, 0 everywhere: no figure at all. */
static const uint64_t cost_ns[VARVE_DEVICE_CALL_LIMIT][COST_POINTS] = {
    [VARVE_DEVICE_SEGMENT_ALLOC] = {27000, 29000, 33000, 75000, 368000},
    [VARVE_DEVICE_SEGMENT_FREE] = {23000, 27000, 48000, 230000, 1766000},
    [VARVE_DEVICE_VMM_CREATE] = {5700, 5700, 12000, 15000, 19000000},
    [VARVE_DEVICE_VMM_MAP] = {450, 450, 450, 450, 0},
    [VARVE_DEVICE_VMM_SET_ACCESS] = {17000, 17000, 35000, 57000, 0},
    [VARVE_DEVICE_VMM_UNMAP] = {12000, 12000, 20000, 27000, 0},
    [VARVE_DEVICE_VMM_RELEASE] = {7000, 13000, 31000, 207000, 0},
    [VARVE_DEVICE_ALLOC_ASYNC] = {250, 250, 250, 250, 250}, /* of a pool that has the memory */
    [VARVE_DEVICE_FREE_ASYNC] = {360, 360, 360, 360, 360},
};

/* A transfer: the launch, then so many bytes per µs. Within the device each byte is read and written. */
#define TRANSFER_LAUNCH_NS 2000U
#define FILL_RATE 3500000U

static const uint64_t copy_rates[VARVE_COPY_DIRECTION_LIMIT] = {
    [VARVE_COPY_WITHIN] = 1900000,        [VARVE_COPY_HOST_TO_DEVICE] = 55000,  [VARVE_COPY_DEVICE_TO_HOST] = 55000,
    [VARVE_COPY_PEER_TO_DEVICE] = 380000, [VARVE_COPY_DEVICE_TO_PEER] = 380000,
};

static bool is_call(enum varve_device_call call)
{
    return (unsigned)call < VARVE_DEVICE_CALL_LIMIT;
}

/* Rules whose last call is over make room. */
static void drop_past(struct sim_device *sim)
{
    size_t kept = 0;
    for (size_t i = 0; i < sim->fault_count; i++) {
        if (sim->faults[i].last > sim->calls[sim->faults[i].call]) {
            sim->faults[kept++] = sim->faults[i];
        }
    }
    sim->fault_count = kept;
}

uint64_t sim_cost_ns(enum varve_device_call call, uint64_t bytes)
{
    const uint64_t *ns = cost_ns[call];
    size_t last = COST_POINTS - 1, at = 1;
    if (bytes <= cost_bytes[0]) {
        return ns[0];
    }
    while (last > 1 && ns[last] == 0) {
        last--;
    }
    while (at < last && bytes > cost_bytes[at]) {
        at++;
    }
    double slope = (double)(ns[at] - ns[at - 1]) / (double)(cost_bytes[at] - cost_bytes[at - 1]);
    return ns[at - 1] + (uint64_t)(slope * (double)(bytes - cost_bytes[at - 1]));
}

static uint64_t sim_transfer_ns(uint64_t bytes, uint64_t rate)
{
    return bytes == 0 ? 0 : TRANSFER_LAUNCH_NS + (uint64_t)((double)bytes * 1000 / (double)rate);
}

/* The error that a script wants of this call, or 0. */
static int scripted_error(struct sim_device *sim, enum varve_device_call kind)
{
    uint64_t number = ++sim->calls[kind];
    int error = 0;
    for (size_t i = 0; i < sim->fault_count && error == 0; i++) {
        const struct sim_fault *fault = &sim->faults[i];
        if (fault->call == kind && fault->first <= number && number <= fault->last) {
            error =
                DEVICE_REFUSE(&sim->table.resources, fault->error, "call %llu was to fail", (unsigned long long)number);
        }
    }
    if (sim->fault_count != 0) {
        drop_past(sim);
    }
    return error;
}

bool sim_enter(struct device_table *table, struct device_call *call, int *result_out)
{
    pthread_mutex_lock(&table->mutex);
    struct sim_device *sim = sim_of(&table->device);
    *result_out = is_call(call->kind) ? scripted_error(sim, call->kind) : 0;
    if (*result_out == 0 && call->kind == VARVE_DEVICE_VMM_CREATE && sim->options.grant != NULL) {
        *result_out = sim->options.grant(sim->options.address_context);
    }
    if (*result_out != 0) {
        pthread_mutex_unlock(&table->mutex);
    }
    return *result_out == 0;
}

void sim_charge(struct sim_device *sim, enum varve_device_call call, uint64_t bytes)
{
    if (sim->options.has_latency) {
        sim->clock_ns += sim_cost_ns(call, bytes);
    }
}

int sim_leave(struct device_table *table, struct device_call *call, int result)
{
    struct sim_device *sim = sim_of(&table->device);
    if (result >= 0 && call->copy && sim->options.has_latency) {
        sim->clock_ns += sim_transfer_ns(call->bytes, copy_rates[call->copy->direction]);
    } else if (result >= 0 && call->fill && sim->options.has_latency) {
        sim->clock_ns += sim_transfer_ns(call->bytes, FILL_RATE);
    } else if (result >= 0 && is_call(call->kind)) {
        sim_charge(sim, call->kind, call->bytes);
    }
    pthread_mutex_unlock(&table->mutex);
    return result;
}

int varve_sim_fail(struct varve_device *device, enum varve_device_call call, uint64_t nth, uint64_t count, int error)
{
    struct sim_device *sim = sim_of(device);
    if (!is_call(call) || nth == 0 || count == 0 || error >= 0) {
        return VARVE_ERROR_INVALID;
    }
    pthread_mutex_lock(&sim->table.mutex);
    uint64_t first = sim->calls[call] + nth;
    int result = 0;
    if (first < nth) {
        result = VARVE_ERROR_INVALID;
    } else if (sim->fault_count == SIM_FAULTS) {
        result = VARVE_ERROR_FULL;
    } else {
        sim->faults[sim->fault_count++] = (struct sim_fault){
            .call = call,
            .first = first,
            .last = count - 1 > UINT64_MAX - first ? UINT64_MAX : first + count - 1,
            .error = error,
        };
    }
    pthread_mutex_unlock(&sim->table.mutex);
    return result;
}

uint64_t varve_sim_calls(const struct varve_device *device, enum varve_device_call call)
{
    struct sim_device *sim = sim_of(device);
    if (!is_call(call)) {
        return 0;
    }
    pthread_mutex_lock(&sim->table.mutex);
    uint64_t calls = sim->calls[call];
    pthread_mutex_unlock(&sim->table.mutex);
    return calls;
}

uint64_t varve_sim_clock_ns(const struct varve_device *device)
{
    struct sim_device *sim = sim_of(device);
    pthread_mutex_lock(&sim->table.mutex);
    uint64_t now = sim->clock_ns;
    pthread_mutex_unlock(&sim->table.mutex);
    return now;
}

void varve_sim_clock_advance(struct varve_device *device, uint64_t ns)
{
    struct sim_device *sim = sim_of(device);
    pthread_mutex_lock(&sim->table.mutex);
    sim->clock_ns += ns;
    pthread_mutex_unlock(&sim->table.mutex);
}
