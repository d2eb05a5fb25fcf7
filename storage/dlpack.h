/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages shared with other libraries by DLPack (github.com/dmlc/dlpack, version 1), without a copy: NumPy, PyTorch,
 * CuPy and JAX read and write the same addresses. Part of storage.h.
 *
 * The structures are DLPack's, field by field, under names of this library; they may be cast to and from DLTensor,
 * DLManagedTensor and DLManagedTensorVersioned. Who receives a managed tensor calls its deleter exactly once, from any
 * thread, when the elements are not needed any more; until then they stay where they are.
 */
#ifndef VARVE_STORAGE_DLPACK_H
#define VARVE_STORAGE_DLPACK_H

#include "storage/array.h"

#ifdef __cplusplus
extern "C" {
#endif

struct varve_memory;
struct varve_storage;

/* ---- DLPack's own structures and numbers ---- */

/* The layout is the one of all versions with this major number. */
#define VARVE_DLPACK_MAJOR 1
#define VARVE_DLPACK_MINOR 1

#define VARVE_DLPACK_CPU 1
#define VARVE_DLPACK_CUDA 2
#define VARVE_DLPACK_CUDA_HOST 3     /* pinned */
#define VARVE_DLPACK_CUDA_MANAGED 13 /* of cuMemAllocManaged */

#define VARVE_DLPACK_INT 0
#define VARVE_DLPACK_UINT 1
#define VARVE_DLPACK_FLOAT 2
#define VARVE_DLPACK_BFLOAT 4
#define VARVE_DLPACK_BOOL 6

#define VARVE_DLPACK_READ_ONLY UINT64_C(1) /* flags of varve_dlpack_versioned */
#define VARVE_DLPACK_IS_COPIED UINT64_C(2) /* nobody else has the elements */

struct varve_dlpack_version {
    uint32_t major, minor;
};

struct varve_dlpack_device {
    int32_t type; /* VARVE_DLPACK_CPU, … */
    int32_t id;   /* CUDA's ordinal; 0 for host memory */
};

struct varve_dlpack_dtype {
    uint8_t code; /* VARVE_DLPACK_INT, … */
    uint8_t bits;
    uint16_t lanes; /* 1: scalars */
};

struct varve_dlpack_tensor {
    void *data;
    struct varve_dlpack_device device;
    int32_t ndim;
    struct varve_dlpack_dtype dtype;
    int64_t *shape;       /* may be NULL if ndim is 0 */
    int64_t *strides;     /* elements; NULL: contiguous (not since version 1.2) */
    uint64_t byte_offset; /* from `data` to element [0, 0, …] */
};

/* DLManagedTensor, which a Python capsule "dltensor" holds: it can't say that it may only be read. */
struct varve_dlpack_managed {
    struct varve_dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct varve_dlpack_managed *self); /* frees `self` too; NULL: nothing is to be done */
};

/* DLManagedTensorVersioned, in a capsule "dltensor_versioned". Of another major version only the first three
 * fields are known. */
struct varve_dlpack_versioned {
    struct varve_dlpack_version version;
    void *context;
    void (*deleter)(struct varve_dlpack_versioned *self); /* as above */
    uint64_t flags;
    struct varve_dlpack_tensor tensor;
};

/* ---- Streams, as the `stream` of Python's __dlpack__ has them ----
 *
 * The consumer names the stream on which it is going to use the elements. In host memory there is no stream to name:
 * work that the stream of the storage's block still has is waited for. In a CUDA device's memory the consumer's stream
 * waits for what the block's has been given by then (the default one's where the block is none of ours), and the block,
 * once freed, waits for what the consumer's has been given. Work on other streams the caller orders. Handles of streams
 * are above 2; 0 means nothing. */
#define VARVE_DLPACK_STREAM_NONE INT64_MIN /* CUDA: as VARVE_DLPACK_STREAM_LEGACY */
#define VARVE_DLPACK_STREAM_UNORDERED (-1) /* the consumer orders the work itself */
#define VARVE_DLPACK_STREAM_LEGACY 1       /* CUDA's two default streams */
#define VARVE_DLPACK_STREAM_PER_THREAD 2

/* ---- Export and import ---- */

/// Where DLPack says that the elements are. Errors: VARVE_ERROR_UNSUPPORTED (a simulated device).
int varve_storage_dlpack_device(const struct varve_storage *storage, struct varve_dlpack_device *device_out,
                                struct varve_message *message);

/// The storage's elements as a tensor, whose owner is the caller until it calls the deleter. The tensor is a view
/// (storage.h) as far as references and varve_storage_resize are concerned. With `copies` it is a copy that nobody else
/// has. Errors: VARVE_ERROR_INVALID (a stream that can't be), UNSUPPORTED (the device), NO_MEMORY, the device's.
int varve_storage_to_dlpack(struct varve_storage *storage, int64_t stream, bool copies,
                            struct varve_dlpack_versioned **tensor_out, struct varve_message *message);
/// The same for consumers of before version 1. Errors: VARVE_ERROR_PERMISSION too: a storage that may only be read.
int varve_storage_to_dlpack_unversioned(struct varve_storage *storage, int64_t stream, bool copies,
                                        struct varve_dlpack_managed **tensor_out, struct varve_message *message);

/// A storage of a tensor's elements, where they are. The call takes the tensor over, whatever comes of it: the last
/// release of the storage, or of its views, calls the deleter, and a call that fails has done so. `memory` is the
/// memory of the CUDA device that the tensor may lie in, as long as the storage lives; NULL: only tensors in host
/// memory are taken, which is that of varve_memory_host() then. What the elements lie in stays the other library's;
/// copies and fills there are the memory's device's (alloc/device.h), on its streams, as are those of storages of its
/// own. `name` as of varve_storage_wrap. Errors: VARVE_ERROR_VERSION (another major version), UNSUPPORTED (device, type
/// of elements, dimensions), INVALID (sizes and strides that can't be), NO_MEMORY.
int varve_storage_from_dlpack(struct varve_dlpack_versioned *tensor, struct varve_memory *memory, const char *name,
                              struct varve_storage **storage_out, struct varve_message *message);
int varve_storage_from_dlpack_unversioned(struct varve_dlpack_managed *tensor, struct varve_memory *memory,
                                          const char *name, struct varve_storage **storage_out,
                                          struct varve_message *message);

/* ---- For bindings of Python without C of their own ----
 *
 * What a callback in Python can't do, because an exception may be set, the lock of the interpreter not held, or the
 * interpreter gone. The functions of Python are those of the process that calls. */

/// Destructor of a capsule "dltensor" or "dltensor_versioned": calls the deleter if nobody has consumed it.
void varve_dlpack_capsule_destroy(void *capsule);
/// `release` of a varve_foreign (storage.h) whose context is a Python object: gives one reference to it back.
void varve_python_release(void *object, void *data);

#ifdef __cplusplus
}
#endif

#endif
