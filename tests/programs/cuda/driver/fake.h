/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * State of the driver that lib_cuda_fake.so pretends to be, and its log: one line per call in the file that
 * FAKE_CUDA_LOG names, written when the call has done its work, to be compared with what was recorded. Lines
 * are `PID DEPTH FUNCTION RESULT key=value…`; functions that the recorder may ask by itself begin with `?`.
 * Devices have no memory, and addresses are imaginary: nobody looks at what lies there.
 */
#ifndef VARVE_TESTS_PROGRAMS_CUDA_DRIVER_FAKE_H
#define VARVE_TESTS_PROGRAMS_CUDA_DRIVER_FAKE_H

#include "trace/recorder/cuda/hooks.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#define FAKE_DEVICES 2
#define FAKE_OBJECTS 4096
#define FAKE_INVALID 1
#define FAKE_OUT_OF_MEMORY 2
#define FAKE_NO_CONTEXT 201
#define FAKE_BYTES_INVALID 2989 /* a size that is refused */
#define FAKE_BYTES_TOTAL ((size_t)80 << 30)
#define FAKE_PITCH 512U
#define FAKE_FIRST_ADDRESS UINT64_C(0x7e0000000000)
#define FAKE_WINDOW_BYTES (UINT64_C(16) << 20) /* addresses per object; none of the tests is larger */

enum fake_kind { FAKE_NONE, FAKE_MEMORY, FAKE_HOST, FAKE_ARRAY, FAKE_HANDLE, FAKE_ADDRESSES, FAKE_MAPPING, FAKE_POOL };

struct fake_object {
    enum fake_kind kind;
    int device;
    uint64_t addr;
    uint64_t bytes;
    uint64_t count; /* references of physical memory */
};

struct fake_context {
    int device;
    bool is_primary;
    bool is_alive;
    unsigned retained;
};

struct fake_stream {
    int device;
    bool is_captured;
};

struct fake_driver {
    pthread_mutex_t lock;
    pid_t pid; /* that called cuInit */
    bool has_ended;
    int log_fd;
    size_t used;
    struct fake_object objects[FAKE_OBJECTS];
    struct fake_context primary[FAKE_DEVICES];
    struct fake_object default_pools[FAKE_DEVICES];
    void *current_pools[FAKE_DEVICES];
};

#define FAKE_HIDDEN __attribute__((visibility("hidden")))

extern FAKE_HIDDEN struct fake_driver fake;
extern FAKE_HIDDEN __thread struct fake_context *fake_current;
extern FAKE_HIDDEN __thread unsigned fake_depth; /* calls of its own symbols */
extern FAKE_HIDDEN __thread int fake_mode;

/* A line of the log. Returns the result. */
FAKE_HIDDEN int fake_logged(const char *function, int result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What calls begin with: 0, or why they cannot work: at all; without a context; with so many bytes. */
FAKE_HIDDEN int fake_state(void);
FAKE_HIDDEN int fake_state_context(void);
FAKE_HIDDEN int fake_state_bytes(size_t bytes);
FAKE_HIDDEN int fake_device(void); /* of the current context; -1 without one */
FAKE_HIDDEN struct fake_object *fake_find(enum fake_kind kind, uint64_t addr);
FAKE_HIDDEN uint64_t fake_add(enum fake_kind kind, int device, uint64_t bytes);
FAKE_HIDDEN int fake_drop(enum fake_kind kind, uint64_t addr);
FAKE_HIDDEN void fake_drop_all(int device);

/* Where calls take place: what lines of the log end with. */
#define FAKE_ORIGIN "device=%d context=%#lx"
#define FAKE_HERE fake_device(), (unsigned long)(uintptr_t)fake_current

/* ---- what it exports ---- */

#define X(exported, ...) cuda_type_##exported exported;
CUDA_HOOK_LIST(X)
#undef X

/* What the recorder asks, and what programs need beside. */
int cuInit(unsigned flags);
int cuDriverGetVersion(int *version_out);
int cudbgApiInit(unsigned arg);
int cuDeviceGetCount(int *count_out);
int cuDeviceGet(int *device_out, int ordinal);
int cuDeviceGetName(char *name, int bytes, int device);
int cuDeviceTotalMem_v2(size_t *bytes_out, int device);
int cuDeviceGetUuid_v2(unsigned char *uuid, int device);
int cuDeviceGetDefaultMemPool(void **pool_out, int device);
int cuDeviceGetMemPool(void **pool_out, int device);
int cuDeviceSetMemPool(int device, void *pool);
int cuDevicePrimaryCtxRetain(void **context_out, int device);
int cuDevicePrimaryCtxGetState(int device, unsigned *flags_out, int *is_active_out);
int cuCtxCreate_v2(void **context_out, unsigned flags, int device);
int cuCtxGetCurrent(void **context_out);
int cuCtxSetCurrent(void *context);
int cuCtxGetDevice(int *device_out);
int cuMemGetInfo_v2(size_t *free_out, size_t *total_out);
int cuMemGetAllocationPropertiesFromHandle(struct cuda_properties *properties, uint64_t handle);
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuStreamCreate(void **stream_out, unsigned flags);
int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph_out);
int cuStreamIsCapturing(void *stream, int *status_out);
int cuStreamIsCapturing_ptsz(void *stream, int *status_out);
int cuStreamGetDevice(void *stream, int *device_out);
int cuMemAlloc(unsigned *addr_out, unsigned bytes); /* of the first version */

#endif
