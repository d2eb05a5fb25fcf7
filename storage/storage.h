/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one public header of storage/: elements in memory (array.h), the storages that own them, and their
 * exchange (dlpack.h).
 *
 * A storage is a piece of memory with a type and a shape, counted by its references; a view is a storage that shows
 * elements of another one, which it keeps alive. What PyTorch calls StorageImpl, DataPtr and Tensor geometry is
 * one object here.
 *
 * Unless a comment says otherwise: functions return 0 or a negative enum varve_error with a reason in `message`
 * (caller-owned, may be NULL) and change nothing when they fail; sizes are bytes; shapes are arrays of `ndim` sizes.
 * Threads: references may be taken and released by any thread at any time; everything else about one storage, its views
 * included, wants the caller's order.
 */
#ifndef VARVE_STORAGE_H
#define VARVE_STORAGE_H

#include "alloc/alloc.h"
#include "storage/array.h"
#include "storage/dlpack.h"
#include "storage/index_plan.h"
#include "storage/operators.h"
#include "storage/remat.h"
#include "storage/runtime.h"
#include "storage/tracker.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Memory: where storages get their bytes ---- */

struct varve_memory;

/// The C library's memory: not pooled, aligned to 64 bytes at least. Static.
struct varve_memory *varve_memory_host(void);
/// Blocks of an allocator, on whatever device it serves. The allocator is borrowed and must outlive the memory. Owner:
/// the caller, by varve_memory_close. Errors: VARVE_ERROR_NO_MEMORY.
int varve_memory_open(struct varve_alloc *alloc, struct varve_memory **memory_out, struct varve_message *message);
/// Errors: VARVE_ERROR_BUSY while any storage, or plan that is ready to run, has bytes of it.
int varve_memory_close(struct varve_memory *memory, struct varve_message *message);
/// May the processor read and write it? Not on devices with memory of their own.
bool varve_memory_is_addressable(const struct varve_memory *memory);
/// The allocator; NULL for varve_memory_host().
struct varve_alloc *varve_memory_alloc(const struct varve_memory *memory);

/* ---- Creating ---- */

struct varve_storage;

struct varve_storage_options {
    struct varve_memory *memory; /* borrowed; NULL: varve_memory_host() */
    uint64_t alignment;          /* of the first element, a power of two; 0: 64 in the processor's memory, else 512 */
    uint64_t stream;             /* whose block it is in a pool; elements come behind what it has */
    const char *name;            /* copied, to at most 63 bytes; NULL: none */
};

/// A storage of that shape, its elements undefined, with one reference, the caller's. `options` may be NULL. Errors:
/// VARVE_ERROR_INVALID (shape, alignment, type), VARVE_ERROR_NO_MEMORY with the allocator's accounting.
int varve_storage_empty(const struct varve_storage_options *options, enum varve_dtype dtype, unsigned ndim,
                        const int64_t *shape, struct varve_storage **storage_out, struct varve_message *message);
/// The same with all elements 0, or as `value` says. Errors: VARVE_ERROR_UNSUPPORTED too (memory that
/// can't be written).
int varve_storage_zeros(const struct varve_storage_options *options, enum varve_dtype dtype, unsigned ndim,
                        const int64_t *shape, struct varve_storage **storage_out, struct varve_message *message);
int varve_storage_full(const struct varve_storage_options *options, enum varve_dtype dtype, unsigned ndim,
                       const int64_t *shape, struct varve_scalar value, struct varve_storage **storage_out,
                       struct varve_message *message);
/// A contiguous copy of elements in the processor's memory.
int varve_storage_from_array(const struct varve_storage_options *options, const struct varve_array *source,
                             struct varve_storage **storage_out, struct varve_message *message);

/* Memory of somebody else: what to call once nobody uses it any more. */
struct varve_foreign {
    void *data; /* of the first byte; `bytes` belong to it */
    uint64_t bytes;
    void (*release)(void *context,
                    void *data); /* NULL: nothing is to be done. Called once, by the thread of the last release */
    void *context;
    struct varve_memory *memory; /* what kind of memory it is; NULL: varve_memory_host() */
    bool is_read_only;           /* the storage, and views of it, may not be written */
};

/// A storage of elements that lie in foreign memory. On success the storage owes the release; on failure the caller
/// does. Errors: VARVE_ERROR_INVALID (elements beyond the bytes).
int varve_storage_wrap(const struct varve_foreign *foreign, enum varve_dtype dtype,
                       const struct varve_geometry *geometry, const char *name, struct varve_storage **storage_out,
                       struct varve_message *message);

/* ---- References ---- */

/// One more reference; returns the storage. The caller has one already.
struct varve_storage *varve_storage_retain(struct varve_storage *storage);
/// Give a reference back; with the last one the memory goes. NULL is allowed. Errors: VARVE_ERROR_INVALID if there was
/// none: the storage has been released already, as far as its object does not serve another storage by now.
int varve_storage_release(struct varve_storage *storage, struct varve_message *message);
/// References now. Only a hint while other threads have some.
uint32_t varve_storage_use_count(const struct varve_storage *storage);

/// `storage` keeps `kept` alive until it goes, or until they are detached; once for each call. Two storages that keep
/// each other alive never go by themselves: the tracker finds such cycles. Errors: VARVE_ERROR_NO_MEMORY.
int varve_storage_attach(struct varve_storage *storage, struct varve_storage *kept, struct varve_message *message);
/// Errors: VARVE_ERROR_NOT_FOUND.
int varve_storage_detach(struct varve_storage *storage, struct varve_storage *kept, struct varve_message *message);

/* A reference to the object, not to the memory. */
struct varve_storage_weak;

/// Owner: the caller, by varve_storage_weak_release. The caller has a reference to the storage.
struct varve_storage_weak *varve_storage_weak_retain(struct varve_storage *storage);
void varve_storage_weak_release(struct varve_storage_weak *weak);
/// A reference to the storage, or NULL if its memory has gone.
struct varve_storage *varve_storage_weak_lock(struct varve_storage_weak *weak);

/* ---- Questions ---- */

/// Where its elements are. `data` is of the base of a view, and may not be followed where the memory is
/// not addressable.
void varve_storage_get_array(const struct varve_storage *storage, struct varve_array *array_out);
/// Address of its first element; NULL if it has none.
void *varve_storage_data(const struct varve_storage *storage);
enum varve_dtype varve_storage_dtype(const struct varve_storage *storage);
/// Elements, and their bytes.
int64_t varve_storage_count(const struct varve_storage *storage);
uint64_t varve_storage_bytes(const struct varve_storage *storage);
struct varve_memory *varve_storage_memory(const struct varve_storage *storage);
/// May its elements only be read? So they are of foreign memory that says so, and of views of it.
bool varve_storage_is_read_only(const struct varve_storage *storage);
/// The storage that a view shows elements of, borrowed; NULL: it is no view.
struct varve_storage *varve_storage_base(const struct varve_storage *storage);
/// The block of the allocator; no allocation where there is none. Of a view its base's.
struct varve_allocation varve_storage_allocation(const struct varve_storage *storage);
/// A number that no other storage of the process has.
uint64_t varve_storage_id(const struct varve_storage *storage);
/// "" if it has none; as long as the storage lives and is not named again.
const char *varve_storage_name(const struct varve_storage *storage);
void varve_storage_set_name(struct varve_storage *storage, const char *name);

/* ---- Views ---- */

/// A view of elements of the storage, or of the base of a view; `geometry` counts from the beginning of the base's
/// data. It has one reference, the caller's, and one of its own to the base. Errors: VARVE_ERROR_INVALID (elements
/// beyond the base's), NO_MEMORY.
int varve_storage_view(struct varve_storage *storage, const struct varve_geometry *geometry,
                       struct varve_storage **view_out, struct varve_message *message);
/// As the functions on geometries in array.h.
int varve_storage_slice(struct varve_storage *storage, int axis, int64_t start, int64_t stop, int64_t step,
                        struct varve_storage **view_out, struct varve_message *message);
int varve_storage_select(struct varve_storage *storage, int axis, int64_t index, struct varve_storage **view_out,
                         struct varve_message *message);
int varve_storage_transpose(struct varve_storage *storage, int axis, int other, struct varve_storage **view_out,
                            struct varve_message *message);
int varve_storage_permute(struct varve_storage *storage, const int *axes, unsigned count,
                          struct varve_storage **view_out, struct varve_message *message);
int varve_storage_expand(struct varve_storage *storage, unsigned ndim, const int64_t *shape,
                         struct varve_storage **view_out, struct varve_message *message);
int varve_storage_reshape(struct varve_storage *storage, unsigned ndim, const int64_t *shape,
                          struct varve_storage **view_out, struct varve_message *message);

/* ---- Copies ---- */

/// Elements of `source` to `target`, converted and broadcast as varve_array_copy does, behind what the default streams
/// of their devices have; done when the call returns. Errors: as there, VARVE_ERROR_PERMISSION (the target may not be
/// written), the device's.
int varve_storage_copy(struct varve_storage *target, const struct varve_storage *source, struct varve_message *message);
int varve_storage_fill(struct varve_storage *storage, struct varve_scalar value, struct varve_message *message);
/// The same behind what a stream of the device has by now; of the target's device where both ends are on one, and what
/// comes from another device is behind its default stream, too. The work may go on behind the call, and both storages
/// stay until it is done; only what has to go through host memory first is waited for. The first call of a process that
/// needs a kernel loads it, for which the driver may wait until all streams are done.
int varve_storage_copy_on(struct varve_storage *target, const struct varve_storage *source, uint64_t stream,
                          struct varve_message *message);
int varve_storage_fill_on(struct varve_storage *storage, struct varve_scalar value, uint64_t stream,
                          struct varve_message *message);
struct varve_storage_pair {
    struct varve_storage *target; /* borrowed */
    const struct varve_storage *source;
};

/// Many copies, each as varve_storage_copy, on `streams` streams (1 to 16) that each memory on a device keeps for it,
/// behind what the default stream has. Done when the call returns. No pair's target is read or written by another pair.
/// Errors: those of the first copy that failed; those before it in the list are done then, those behind it may be.
int varve_storage_copy_batch(const struct varve_storage_pair *pairs, size_t count, unsigned streams,
                             struct varve_message *message);
/// A contiguous storage with the same elements, in the same memory unless `options` say otherwise (NULL: all
/// as the source's).
int varve_storage_clone(const struct varve_storage *storage, const struct varve_storage_options *options,
                        struct varve_storage **storage_out, struct varve_message *message);
/// The same storage with one more reference if it is of that memory and type already; else a copy.
int varve_storage_to(struct varve_storage *storage, struct varve_memory *memory, enum varve_dtype dtype,
                     struct varve_storage **storage_out, struct varve_message *message);
/// Another shape, contiguous. The first elements, in order, stay; others are undefined. Memory is only exchanged where
/// it is too small, for some of the same alignment and stream. Errors: VARVE_ERROR_INVALID (a view; foreign memory that
/// is too small, or in which the elements do not lie one behind the other from its first byte), VARVE_ERROR_BUSY (it
/// has views), NO_MEMORY.
int varve_storage_resize(struct varve_storage *storage, unsigned ndim, const int64_t *shape,
                         struct varve_message *message);

/* ---- Indices: what stands in the brackets of NumPy; index_plan.h has the plans themselves ---- */

/// storage[indices]: a view where that is one, else a new contiguous storage in the same memory. Errors: those of
/// varve_index_plan_get, of views and of creation.
int varve_storage_index(struct varve_storage *storage, const struct varve_index *indices, unsigned count,
                        struct varve_storage **storage_out, struct varve_message *message);
/// storage[indices] = value, and storage[indices] = number. Errors: those of varve_index_plan_set and
/// varve_storage_copy.
int varve_storage_index_set(struct varve_storage *storage, const struct varve_index *indices, unsigned count,
                            const struct varve_storage *value, struct varve_message *message);
int varve_storage_index_fill(struct varve_storage *storage, const struct varve_index *indices, unsigned count,
                             struct varve_scalar value, struct varve_message *message);

/* A plan that is ready to run in one memory, as often as wanted: on a device, what it keeps of indices has
 * been brought there. */
struct varve_storage_plan;

/// Memory and plan are borrowed until the plan is closed. Owner: the caller. Errors: VARVE_ERROR_UNSUPPORTED (a device
/// without kernels), NO_MEMORY, the device's.
int varve_storage_plan_open(struct varve_memory *memory, const struct varve_index_plan *plan,
                            struct varve_storage_plan **plan_out, struct varve_message *message);
/// Without effect on NULL. What runs on a device may go on.
void varve_storage_plan_close(struct varve_storage_plan *plan);
/// As varve_index_plan_run, on storages in the plan's memory. On a device behind what `stream` has by now, and the work
/// may go on behind the call: both storages stay until it is done. Errors: as there, VARVE_ERROR_INVALID (another
/// memory), PERMISSION.
int varve_storage_plan_run(struct varve_storage_plan *plan, struct varve_storage *target,
                           const struct varve_storage *source, uint64_t stream, struct varve_message *message);

/* ---- Operators: those of operators.h, on storages ----
 *
 * All operands lie in memory of one device, or all in the processor's; `out` may be one of the inputs, or overlap them,
 * as in operators.h. What the processor can address is computed by the time that the call returns. On a device with
 * kernels the work is enqueued on `stream` behind what that has by now, and may go on behind the call: storages stay
 * until it is done, or go back to a pool on that same stream, whose order then keeps their bytes. On other devices the
 * operands come to host memory and the result goes back before the call returns, also where an address is no multiple
 * of the element's size.
 *
 * A device gives the results of the host, bit for bit, but for
 * - exp, pow and normal, which go by the device's own functions (at most 2 units in the last place of what is computed:
 *   f32 for f16 and bf16, f64 for normal and for pow of f32);
 * - the order in which sums are added, within the bound of operators.h; and products of floating point, which go to
 *   cuBLAS if the process finds it (libcublas.so.13, .12, .11; the environment's VARVE_CUBLAS names another library, or
 *   none), else to a kernel of ours. f32 is multiplied as f32 (not as TF32), f16 and bf16 are summed in f32;
 * - the bits of NaN, and the sign of a zero that max finds beside the other zero. */

/* The arguments of each kind; `sequence` is what operators.h calls the stream of random numbers. */
#define VARVE_STORAGE_OPERATOR_ARGUMENTS_BINARY const struct varve_storage *a, const struct varve_storage *b
#define VARVE_STORAGE_OPERATOR_ARGUMENTS_UNARY const struct varve_storage *a
#define VARVE_STORAGE_OPERATOR_ARGUMENTS_REDUCTION const struct varve_storage *a, int axis
#define VARVE_STORAGE_OPERATOR_ARGUMENTS_SETTER struct varve_scalar value
#define VARVE_STORAGE_OPERATOR_ARGUMENTS_SEQUENCE struct varve_scalar start, struct varve_scalar step
#define VARVE_STORAGE_OPERATOR_ARGUMENTS_RANDOM uint64_t seed, uint64_t sequence, double a, double b

/// varve_storage_op_add and so on. Errors: those of varve_op_…; VARVE_ERROR_INVALID (operands on different devices),
/// PERMISSION (`out` may not be written), UNSUPPORTED (memory that can't be copied), the device's, after which elements
/// of `out` are undefined.
#define VARVE_STORAGE_OPERATOR_FUNCTION(code, NAME, name, KIND)                                                      \
    int varve_storage_op_##name(struct varve_storage *out, VARVE_STORAGE_OPERATOR_ARGUMENTS_##KIND, uint64_t stream, \
                                struct varve_message *message);
VARVE_OPERATOR_LIST(VARVE_STORAGE_OPERATOR_FUNCTION)
#undef VARVE_STORAGE_OPERATOR_FUNCTION

/* ---- Shared memory ----
 *
 * A storage that other processes attach to by name; its memory is the system's until it is unlinked and the last
 * process has released it. Names as in shm_open, with or without the slash in front. What a process writes the
 * others see at once. */

/// A storage in shared memory of that name, its elements 0. Owner: the caller; the name is there until it is unlinked.
/// Errors: VARVE_ERROR_BUSY (the name exists), INVALID, FULL (no such room in shared memory), PERMISSION.
int varve_storage_shared_create(const char *name, enum varve_dtype dtype, unsigned ndim, const int64_t *shape,
                                struct varve_storage **storage_out, struct varve_message *message);
/// The storage that was created under that name. Errors: VARVE_ERROR_NOT_FOUND, PERMISSION, FORMAT (it is none of
/// these, or is being made), VERSION.
int varve_storage_shared_attach(const char *name, bool is_read_only, struct varve_storage **storage_out,
                                struct varve_message *message);
/// The name goes; whoever is attached stays so. VARVE_ERROR_NOT_FOUND.
int varve_storage_shared_unlink(const char *name, struct varve_message *message);

/* What another process needs to open a storage of a pool, as bytes that may be sent to it. */
struct varve_storage_ipc {
    struct varve_alloc_ipc block;
    struct varve_geometry geometry;
    uint64_t bytes; /* of the base, behind its first element */
    enum varve_dtype dtype;
};

/// The storage stays until nobody has it open. Errors: VARVE_ERROR_INVALID (it has no memory of a pool), the device's.
int varve_storage_ipc_export(const struct varve_storage *storage, struct varve_storage_ipc *ipc_out,
                             struct varve_message *message);
/// In the memory of a pool on the same device. Errors: the device's.
int varve_storage_ipc_open(struct varve_memory *memory, const struct varve_storage_ipc *ipc,
                           struct varve_storage **storage_out, struct varve_message *message);

/* ---- Mapped files, as numpy.memmap ---- */

struct varve_file {
    const char *path;
    uint64_t offset;  /* of the first element, any byte */
    const char *mode; /* "r": read only; "r+" (NULL): an existing file, which grows if the shape needs it; "w+": new or
                       * emptied; "c": changes stay in this process */
};

/// Elements of a file as a storage; one size of the shape may be -1, which the file's size then gives. Errors:
/// VARVE_ERROR_INVALID (a file shorter than the shape in modes r and c, no regular file), NOT_FOUND, PERMISSION, FULL.
/// Reading behind the end of a file that somebody has cut meanwhile ends the program (SIGBUS), as with any mapping.
int varve_storage_map(const struct varve_file *file, enum varve_dtype dtype, unsigned ndim, const int64_t *shape,
                      struct varve_storage **storage_out, struct varve_message *message);
/// What was written to a mapped file, or a view of it, is on the disk when this returns. Errors: VARVE_ERROR_INVALID
/// (it is none), IO.
int varve_storage_flush(struct varve_storage *storage, struct varve_message *message);

/* ---- Inspection ---- */

/* All that is known of a storage at a moment. */
struct varve_storage_info {
    uint64_t id, base_id; /* base_id 0: it is no view */
    char name[64];
    enum varve_dtype dtype;
    struct varve_geometry geometry;
    uint64_t bytes, data_addr; /* of its elements, and of the first one */
    uint64_t base_bytes;       /* of the memory that it keeps alive */
    const char *device;        /* "host", "cuda", "sim": static text */
    int device_index;          /* as records carry it; -1: the C library's memory */
    uint32_t use_count, view_count;
    bool is_contiguous, is_foreign, is_read_only;
    bool has_block; /* of an allocator: `block` says which */
    struct varve_allocation_info block;
};

void varve_storage_inspect(const struct varve_storage *storage, struct varve_storage_info *info_out);
/// The same as one line of text, or as a JSON object: at most `bytes` with the NUL at its end. Returns the length of
/// the whole, as snprintf does.
size_t varve_storage_info_text(const struct varve_storage_info *info, char *text, size_t bytes);
size_t varve_storage_info_json(const struct varve_storage_info *info, char *text, size_t bytes);

/* ---- Looking inside: tests ---- */

/// Storages with a reference, in this process.
uint64_t varve_storage_live(void);
/// Every invariant of one storage. VARVE_ERROR_CORRUPT.
int varve_storage_check(const struct varve_storage *storage, struct varve_message *message);

#ifdef __cplusplus
}
#endif

#endif
