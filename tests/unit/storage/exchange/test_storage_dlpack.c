/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DLPack's tensors of storages, and storages of tensors: the same addresses on both sides, each deleter called once
 * in every order of releases, by whatever thread, and tensors that can't be are refused. A producer of another
 * library is played by the test.
 * Reads damaged input: tensors whose fields may be anything.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "storage/storage.h"
#include "support/random.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static const int64_t shape_23[] = {2, 3};
static struct varve_message message;

static int nothing_is_left(void **state)
{
    (void)state;
    return varve_storage_live() == 0 ? 0 : -1;
}

static void release(struct varve_storage *storage)
{
    assert_int_equal(varve_storage_release(storage, &message), VARVE_OK);
}

/* ---- another library ---- */

/* A tensor of the test's own, on the heap, so that the sanitizer sees who uses it after its deleter. */
struct producer {
    union {
        struct varve_dlpack_versioned versioned;
        struct varve_dlpack_managed managed;
    } * tensor;
    int64_t shape[VARVE_DIMS_MAX + 1], strides[VARVE_DIMS_MAX + 1];
    void *elements;
    unsigned deleted; /* atomic */
};

static void producer_delete(struct producer *producer)
{
    free(producer->elements);
    free(producer->tensor);
    __atomic_add_fetch(&producer->deleted, 1, __ATOMIC_SEQ_CST);
}

static void versioned_delete(struct varve_dlpack_versioned *self)
{
    producer_delete(self->context);
}

static void managed_delete(struct varve_dlpack_managed *self)
{
    producer_delete(self->context);
}

/* 2 × 3 floats, 0 to 5. */
static struct varve_dlpack_tensor producer_fill(struct producer *producer)
{
    *producer = (struct producer){.shape = {2, 3}, .strides = {3, 1}};
    producer->tensor = calloc(1, sizeof(*producer->tensor));
    producer->elements = malloc(6 * sizeof(float));
    assert_non_null(producer->tensor);
    assert_non_null(producer->elements);
    for (unsigned i = 0; i < 6; i++) {
        ((float *)producer->elements)[i] = (float)i;
    }
    return (struct varve_dlpack_tensor){.data = producer->elements,
                                        .device = {VARVE_DLPACK_CPU, 0},
                                        .ndim = 2,
                                        .dtype = {VARVE_DLPACK_FLOAT, 32, 1},
                                        .shape = producer->shape,
                                        .strides = producer->strides};
}

static struct varve_dlpack_versioned *produce(struct producer *producer)
{
    struct varve_dlpack_tensor tensor = producer_fill(producer);
    producer->tensor->versioned = (struct varve_dlpack_versioned){
        .version = {1, 0}, .context = producer, .deleter = versioned_delete, .tensor = tensor};
    return &producer->tensor->versioned;
}

static struct varve_dlpack_managed *produce_unversioned(struct producer *producer)
{
    struct varve_dlpack_tensor tensor = producer_fill(producer);
    producer->tensor->managed =
        (struct varve_dlpack_managed){.tensor = tensor, .context = producer, .deleter = managed_delete};
    return &producer->tensor->managed;
}

/* ---- what an exported tensor says ---- */

TEST_WITH(test_export, NULL, nothing_is_left)
{
    struct varve_storage *storage, *view;
    const int64_t smaller[] = {1};
    assert_int_equal(varve_storage_zeros(NULL, VARVE_DTYPE_I16, 2, shape_23, &storage, &message), VARVE_OK);
    assert_int_equal(varve_storage_slice(storage, 1, VARVE_SLICE_NONE, 0, -1, &view, &message), VARVE_OK);
    struct varve_dlpack_versioned *tensor;
    assert_int_equal(varve_storage_to_dlpack(view, VARVE_DLPACK_STREAM_NONE, false, &tensor, &message), VARVE_OK);
    assert_int_equal(tensor->version.major, 1);
    assert_int_equal(tensor->flags, 0);
    assert_int_equal(tensor->tensor.device.type, VARVE_DLPACK_CPU);
    assert_int_equal(tensor->tensor.device.id, 0);
    assert_int_equal(tensor->tensor.dtype.code, VARVE_DLPACK_INT);
    assert_int_equal(tensor->tensor.dtype.bits, 16);
    assert_int_equal(tensor->tensor.dtype.lanes, 1);
    assert_int_equal(tensor->tensor.ndim, 2);
    assert_memory_equal(tensor->tensor.shape, ((int64_t[]){2, 2}), 16);
    assert_memory_equal(tensor->tensor.strides, ((int64_t[]){3, -1}), 16);
    assert_int_equal(tensor->tensor.byte_offset, 0);
    assert_ptr_equal(tensor->tensor.data, (int16_t *)varve_storage_data(storage) + 2);
    ((int16_t *)tensor->tensor.data)[-1] = 77;
    assert_int_equal(((int16_t *)varve_storage_data(storage))[1], 77);
    assert_int_equal(varve_storage_use_count(storage), 3); /* the two views' */
    assert_int_equal(varve_storage_resize(storage, 1, smaller, &message), VARVE_ERROR_BUSY);
    release(view);
    struct varve_dlpack_managed *managed;
    assert_int_equal(varve_storage_to_dlpack_unversioned(storage, VARVE_DLPACK_STREAM_NONE, false, &managed, &message),
                     VARVE_OK);
    assert_ptr_equal(managed->tensor.data, varve_storage_data(storage));
    tensor->deleter(tensor);
    assert_int_equal(varve_storage_resize(storage, 1, smaller, &message), VARVE_ERROR_BUSY);
    managed->deleter(managed);
    assert_int_equal(varve_storage_resize(storage, 1, smaller, &message), VARVE_OK);
    release(storage);
}

TEST_WITH(test_export_types, NULL, nothing_is_left)
{
    static const struct varve_dlpack_dtype expected[] = {
        {2, 64, 1}, {2, 32, 1}, {2, 16, 1}, {4, 16, 1}, {0, 64, 1},
        {0, 32, 1}, {0, 16, 1}, {0, 8, 1},  {1, 8, 1},  {6, 8, 1},
    };
    const int64_t empty[] = {3, 0};
    for (unsigned i = 0; i < VARVE_DTYPE_LIMIT; i++) {
        struct varve_storage *storage, *back;
        assert_int_equal(varve_storage_empty(NULL, i, i % 2 == 0 ? 0 : 2, empty, &storage, &message), VARVE_OK);
        struct varve_dlpack_versioned *tensor;
        assert_int_equal(varve_storage_to_dlpack(storage, VARVE_DLPACK_STREAM_NONE, false, &tensor, &message),
                         VARVE_OK);
        assert_memory_equal(&tensor->tensor.dtype, &expected[i], sizeof(expected[i]));
        assert_true((tensor->tensor.data == NULL) == (i % 2 != 0)); /* no elements, no address */
        assert_int_equal(varve_storage_from_dlpack(tensor, NULL, "back", &back, &message), VARVE_OK);
        assert_int_equal(varve_storage_dtype(back), i);
        assert_int_equal(varve_storage_count(back), i % 2 == 0);
        assert_ptr_equal(varve_storage_data(back), varve_storage_data(storage));
        assert_string_equal(varve_storage_name(back), "back");
        assert_int_equal(varve_storage_check(back, &message), VARVE_OK);
        release(storage);
        release(back);
    }
}

TEST_WITH(test_export_copy, NULL, nothing_is_left)
{
    struct producer producer;
    struct varve_dlpack_versioned *source = produce(&producer), *tensor;
    source->flags = VARVE_DLPACK_READ_ONLY;
    struct varve_storage *storage, *transposed;
    assert_int_equal(varve_storage_from_dlpack(source, NULL, NULL, &storage, &message), VARVE_OK);
    assert_int_equal(varve_storage_transpose(storage, 0, 1, &transposed, &message), VARVE_OK);
    assert_int_equal(varve_storage_to_dlpack(transposed, VARVE_DLPACK_STREAM_NONE, true, &tensor, &message), VARVE_OK);
    assert_int_equal(tensor->flags, VARVE_DLPACK_IS_COPIED);
    assert_memory_equal(tensor->tensor.strides, ((int64_t[]){2, 1}), 16);
    assert_int_equal(varve_storage_use_count(transposed), 1);
    struct varve_dlpack_managed *managed;
    assert_int_equal(
        varve_storage_to_dlpack_unversioned(transposed, VARVE_DLPACK_STREAM_NONE, true, &managed, &message), VARVE_OK);
    release(storage);
    release(transposed);
    assert_int_equal(producer.deleted, 1);
    assert_memory_equal(tensor->tensor.data, ((float[]){0, 3, 1, 4, 2, 5}), 24);
    assert_memory_equal(managed->tensor.data, ((float[]){0, 3, 1, 4, 2, 5}), 24);
    tensor->deleter(tensor);
    managed->deleter(managed);
}

TEST_WITH(test_export_errors, NULL, nothing_is_left)
{
    struct varve_sim_options sim = {.capacity_bytes = 64 * MIB};
    struct varve_dlpack_versioned *tensor = NULL;
    struct varve_storage *storage;
    assert_int_equal(varve_storage_zeros(NULL, VARVE_DTYPE_F64, 2, shape_23, &storage, &message), VARVE_OK);
    for (int64_t stream = 0; stream < 3; stream++) {
        assert_int_equal(varve_storage_to_dlpack(storage, stream, false, &tensor, &message), VARVE_ERROR_INVALID);
    }
    assert_string_equal(message.text, "stream 2 for elements in host memory, which has none");
    release(storage);
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    assert_int_equal(varve_sim_open(&sim, &options.device, &message), VARVE_OK);
    struct varve_alloc *alloc;
    assert_int_equal(varve_alloc_open(&options, &alloc, &message), VARVE_OK);
    struct varve_memory *memory;
    assert_int_equal(varve_memory_open(alloc, &memory, &message), VARVE_OK);
    assert_int_equal(varve_storage_empty(&(struct varve_storage_options){.memory = memory}, VARVE_DTYPE_F64, 2,
                                         shape_23, &storage, &message),
                     VARVE_OK);
    assert_int_equal(varve_storage_to_dlpack(storage, VARVE_DLPACK_STREAM_NONE, false, &tensor, &message),
                     VARVE_ERROR_UNSUPPORTED);
    assert_string_equal(message.text, "DLPack knows no memory of the device 'sim'");
    struct varve_dlpack_device device;
    assert_int_equal(varve_storage_dlpack_device(storage, &device, NULL), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(varve_storage_use_count(storage), 1);
    release(storage);
    assert_int_equal(varve_memory_close(memory, &message), VARVE_OK);
    varve_alloc_close(alloc);
    options.device->ops->close(options.device);
    assert_null(tensor);
}

/* A pool's block, on which a stream of the device still works: the export waits for it, and the tensor keeps the
 * block. */
struct waiting {
    struct varve_storage *storage;
    struct varve_dlpack_versioned *tensor;
    uint32_t first; /* element, when the export returns */
    int error;
};

static void *export_and_look(void *context)
{
    struct waiting *waiting = context;
    waiting->error = varve_storage_to_dlpack(waiting->storage, VARVE_DLPACK_STREAM_NONE, false, &waiting->tensor, NULL);
    waiting->first = waiting->error == VARVE_OK ? *(uint32_t *)waiting->tensor->tensor.data : 0;
    return NULL;
}

TEST_WITH(test_export_waits, NULL, nothing_is_left)
{
    const struct varve_host_options host = {.limit_bytes = 64 * MIB};
    struct varve_alloc_options options;
    struct waiting waiting = {.error = VARVE_ERROR_IO};
    varve_alloc_options_init(&options);
    assert_int_equal(varve_host_open(&host, &options.device, &message), VARVE_OK);
    struct varve_alloc *alloc;
    assert_int_equal(varve_alloc_open(&options, &alloc, &message), VARVE_OK);
    struct varve_memory *memory;
    assert_int_equal(varve_memory_open(alloc, &memory, &message), VARVE_OK);
    assert_int_equal(varve_storage_zeros(&(struct varve_storage_options){.memory = memory, .stream = 5},
                                         VARVE_DTYPE_I32, 2, shape_23, &waiting.storage, &message),
                     VARVE_OK);
    uint64_t addr = (uint64_t)(uintptr_t)varve_storage_data(waiting.storage);
    assert_int_equal(varve_host_stream_block(options.device, 5), VARVE_OK);
    assert_int_equal(options.device->ops->fill(options.device, addr, 0x12345678, 4, 6, 5), VARVE_OK);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, export_and_look, &waiting), 0);
    usleep(20000); /* time to return too early */
    assert_int_equal(varve_host_stream_release(options.device, 5), VARVE_OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(waiting.error, VARVE_OK);
    assert_int_equal(waiting.first, 0x12345678);
    release(waiting.storage);
    assert_int_equal(varve_memory_close(memory, &message), VARVE_ERROR_BUSY);
    waiting.tensor->deleter(waiting.tensor);
    assert_int_equal(varve_memory_close(memory, &message), VARVE_OK);
    varve_alloc_close(alloc);
    options.device->ops->close(options.device);
}

/* ---- what an import makes of a tensor ---- */

static void expect(struct varve_storage *storage, size_t count, const float *expected)
{
    assert_int_equal(varve_storage_check(storage, &message), VARVE_OK);
    struct varve_storage *copy;
    assert_int_equal(varve_storage_clone(storage, NULL, &copy, &message), VARVE_OK);
    assert_int_equal(varve_storage_count(copy), count);
    if (count > 0) {
        assert_memory_equal(varve_storage_data(copy), expected, count * sizeof(*expected));
    }
    release(copy);
}

TEST_WITH(test_import_forms, NULL, nothing_is_left)
{
    struct producer producer;
    struct varve_dlpack_versioned *tensor = produce(&producer);
    tensor->tensor.strides = NULL; /* contiguous */
    tensor->version.minor = 99;
    struct varve_storage *storage;
    assert_int_equal(varve_storage_from_dlpack(tensor, NULL, NULL, &storage, &message), VARVE_OK);
    assert_ptr_equal(varve_storage_data(storage), producer.elements);
    expect(storage, 6, (const float[]){0, 1, 2, 3, 4, 5});
    release(storage);
    assert_int_equal(producer.deleted, 1);

    tensor = produce(&producer); /* backwards, from the last element */
    tensor->tensor.byte_offset = 5 * sizeof(float);
    producer.strides[0] = -3;
    producer.strides[1] = -1;
    tensor->tensor.device.type = VARVE_DLPACK_CUDA_HOST;
    assert_int_equal(varve_storage_from_dlpack(tensor, NULL, NULL, &storage, &message), VARVE_OK);
    assert_ptr_equal(varve_storage_data(storage), (float *)producer.elements + 5);
    expect(storage, 6, (const float[]){5, 4, 3, 2, 1, 0});
    release(storage);
    assert_int_equal(producer.deleted, 1);

    tensor = produce(&producer); /* one column, whose first axis is of size 1 and has any stride */
    producer.shape[0] = 1;
    producer.strides[0] = INT64_MIN;
    assert_int_equal(varve_storage_from_dlpack(tensor, NULL, NULL, &storage, &message), VARVE_OK);
    expect(storage, 3, (const float[]){0, 1, 2});
    release(storage);
    assert_int_equal(producer.deleted, 1);

    tensor = produce(&producer); /* no elements, and nothing that strides could mean */
    producer.shape[0] = 0;
    producer.strides[0] = producer.strides[1] = INT64_MAX;
    tensor->tensor.data = NULL;
    assert_int_equal(varve_storage_from_dlpack(tensor, NULL, NULL, &storage, &message), VARVE_OK);
    assert_null(varve_storage_data(storage));
    expect(storage, 0, NULL);
    release(storage);
    assert_int_equal(producer.deleted, 1);

    tensor = produce(&producer); /* a number, and nothing to call */
    tensor->tensor.ndim = 0;
    tensor->tensor.shape = tensor->tensor.strides = NULL;
    tensor->deleter = NULL;
    assert_int_equal(varve_storage_from_dlpack(tensor, NULL, NULL, &storage, &message), VARVE_OK);
    expect(storage, 1, (const float[]){0});
    release(storage);
    assert_int_equal(producer.deleted, 0);
    producer_delete(&producer);
}

TEST_WITH(test_import_read_only, NULL, nothing_is_left)
{
    const struct varve_scalar one = {.kind = VARVE_SCALAR_INTEGER, .integer = 1};
    struct producer producer;
    struct varve_dlpack_versioned *tensor = produce(&producer);
    tensor->flags = VARVE_DLPACK_READ_ONLY;
    struct varve_storage *storage, *view, *copy;
    assert_int_equal(varve_storage_from_dlpack(tensor, NULL, NULL, &storage, &message), VARVE_OK);
    assert_int_equal(varve_storage_select(storage, 0, 0, &view, &message), VARVE_OK);
    assert_true(varve_storage_is_read_only(storage));
    assert_true(varve_storage_is_read_only(view));
    assert_int_equal(varve_storage_fill(view, one, &message), VARVE_ERROR_PERMISSION);
    assert_int_equal(varve_storage_copy(storage, view, &message), VARVE_ERROR_PERMISSION);
    struct varve_dlpack_managed *managed;
    assert_int_equal(varve_storage_to_dlpack_unversioned(view, VARVE_DLPACK_STREAM_NONE, false, &managed, &message),
                     VARVE_ERROR_PERMISSION);
    assert_int_equal(varve_storage_to_dlpack(view, VARVE_DLPACK_STREAM_NONE, false, &tensor, &message), VARVE_OK);
    assert_int_equal(tensor->flags, VARVE_DLPACK_READ_ONLY);
    tensor->deleter(tensor);
    assert_int_equal(varve_storage_clone(view, NULL, &copy, &message), VARVE_OK);
    assert_false(varve_storage_is_read_only(copy));
    assert_int_equal(varve_storage_fill(copy, one, &message), VARVE_OK);
    expect(view, 3, (const float[]){0, 1, 2});
    release(copy);
    release(storage);
    release(view);
    assert_int_equal(producer.deleted, 1);
}

/* ---- tensors that are refused ---- */

/* Whatever the flags and the tensor mean there. */
static void other_version(struct varve_dlpack_versioned *tensor)
{
    tensor->version.major = 2;
    tensor->flags = UINT64_MAX;
    memset(&tensor->tensor, 0xee, sizeof(tensor->tensor));
}

#define DAMAGE(name, field, ...)                               \
    static void name(struct varve_dlpack_versioned *versioned) \
    {                                                          \
        versioned->tensor.field = __VA_ARGS__;                 \
    }
DAMAGE(no_device, device, (struct varve_dlpack_device){10, 3})
DAMAGE(cuda_device, device.type, VARVE_DLPACK_CUDA)
DAMAGE(complex_type, dtype, (struct varve_dlpack_dtype){5, 64, 1})
DAMAGE(four_lanes, dtype.lanes, 4)
DAMAGE(wide_type, dtype.bits, 128)
DAMAGE(many_dims, ndim, VARVE_DIMS_MAX + 1)
DAMAGE(negative_dims, ndim, -1)
DAMAGE(no_shape, shape, NULL)
DAMAGE(negative_size, shape[1], -3)
DAMAGE(huge_shape, shape[0], versioned->tensor.shape[1] = INT64_MAX)
DAMAGE(huge_stride, strides[0], INT64_MAX)
DAMAGE(huge_negative_stride, strides[1], INT64_MIN)
DAMAGE(no_data, data, NULL)
DAMAGE(huge_offset, byte_offset, UINT64_MAX)
DAMAGE(below_zero, strides[0], -(INT64_C(1) << 56))
DAMAGE(beyond_the_end, data, (void *)(UINTPTR_MAX - 7))

TEST_WITH(test_import_errors, NULL, nothing_is_left)
{
    static const struct {
        void (*damage)(struct varve_dlpack_versioned *tensor);
        int error;
        const char *text;
    } cases[] = {
        {other_version, VARVE_ERROR_VERSION, "a tensor of DLPack 2.0; only versions 1.x are known"},
        {no_device, VARVE_ERROR_UNSUPPORTED, "a tensor on DLPack's device (10, 3), of which there is no memory here"},
        {cuda_device, VARVE_ERROR_UNSUPPORTED,
         "a tensor on DLPack's device (2, 0); its storage wants the memory of an allocator on CUDA device 0, and was "
         "given none"},
        {complex_type, VARVE_ERROR_UNSUPPORTED, "elements of DLPack's type 5 with 64 bits and 1 lanes"},
        {four_lanes, VARVE_ERROR_UNSUPPORTED, "elements of DLPack's type 2 with 32 bits and 4 lanes"},
        {wide_type, VARVE_ERROR_UNSUPPORTED, "elements of DLPack's type 2 with 128 bits and 1 lanes"},
        {many_dims, VARVE_ERROR_UNSUPPORTED, "17 dimensions; 0 to 16 are possible"},
        {negative_dims, VARVE_ERROR_UNSUPPORTED, "-1 dimensions; 0 to 16 are possible"},
        {no_shape, VARVE_ERROR_INVALID, "a tensor without a shape"},
        {negative_size, VARVE_ERROR_INVALID, NULL},
        {huge_shape, VARVE_ERROR_INVALID, NULL},
        {huge_stride, VARVE_ERROR_INVALID,
         "axis 0 has size 2 and stride 9223372036854775807; its elements are too far apart"},
        {huge_negative_stride, VARVE_ERROR_INVALID,
         "axis 1 has size 3 and stride -9223372036854775808; its elements are too far apart"},
        {no_data, VARVE_ERROR_INVALID, "a tensor of elements at address 0"},
        {huge_offset, VARVE_ERROR_INVALID, "the tensor's elements lie beyond all memory"},
        {below_zero, VARVE_ERROR_INVALID, "the tensor's elements lie beyond all memory"},
        {beyond_the_end, VARVE_ERROR_INVALID, "the tensor's elements lie beyond all memory"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct producer producer;
        struct varve_dlpack_versioned *tensor = produce(&producer);
        struct varve_storage *storage = NULL;
        cases[i].damage(tensor);
        message.text[0] = '\0';
        assert_int_equal(varve_storage_from_dlpack(tensor, NULL, NULL, &storage, &message), cases[i].error);
        if (cases[i].text != NULL) {
            assert_string_equal(message.text, cases[i].text);
        }
        assert_true(message.text[0] != '\0');
        assert_null(storage);
        assert_int_equal(producer.deleted, 1);
        assert_int_equal(varve_storage_live(), 0);
    }
}

/* Any bits in any field: refused with one call of the deleter, or a storage that hangs together, whose memory is not
 * looked at. */
TEST_WITH(test_import_anything, NULL, nothing_is_left)
{
    uint64_t random = test_first_seed(31);
    unsigned taken = 0;
    for (unsigned round = 0; round < 20000; round++) {
        struct producer producer;
        struct varve_dlpack_versioned *tensor = produce(&producer);
        struct varve_storage *storage = NULL, *view;
        tensor->tensor.ndim = (int32_t)random_below(&random, 5);
        for (unsigned i = 0; i < 4; i++) {
            producer.shape[i] = (int64_t)(random_next(&random) >> random_below(&random, 64));
            producer.strides[i] = (int64_t)random_next(&random) >> random_below(&random, 64);
        }
        tensor->tensor.byte_offset = random_next(&random) >> random_below(&random, 64);
        tensor->tensor.dtype.bits = (uint8_t)(8 << random_below(&random, 5));
        int error = varve_storage_from_dlpack(tensor, NULL, NULL, &storage, &message);
        assert_int_equal(producer.deleted, error != VARVE_OK);
        if (error == VARVE_OK) {
            taken++;
            assert_int_equal(varve_storage_check(storage, &message), VARVE_OK);
            if (varve_storage_slice(storage, -1, VARVE_SLICE_NONE, VARVE_SLICE_NONE, -2, &view, &message) == VARVE_OK) {
                assert_int_equal(varve_storage_check(view, &message), VARVE_OK);
                release(view);
            }
            release(storage);
        }
        assert_int_equal(producer.deleted, 1);
    }
    print_message("%u of 20000 tensors were taken\n", taken);
    assert_true(taken > 1000 && taken < 19000);
}

/* ---- every order of releases ---- */

/* What has to be given back, in any order: a storage, or a tensor that nobody has consumed. */
struct handle {
    struct varve_storage *storage;
    struct varve_dlpack_versioned *versioned;
    struct varve_dlpack_managed *managed;
};

static void handle_release(const struct handle *handle)
{
    if (handle->versioned != NULL) {
        handle->versioned->deleter(handle->versioned);
    } else if (handle->managed != NULL) {
        handle->managed->deleter(handle->managed);
    } else {
        release(handle->storage);
    }
}

/* The elements through the handle: the same address in all of them. */
static float *handle_data(const struct handle *handle)
{
    return handle->versioned != NULL ? handle->versioned->tensor.data
           : handle->managed != NULL ? handle->managed->tensor.data
                                     : varve_storage_data(handle->storage);
}

static struct varve_storage *consume(struct varve_storage *storage, bool is_versioned)
{
    struct varve_dlpack_versioned *versioned;
    struct varve_dlpack_managed *managed;
    struct varve_storage *consumed;
    if (is_versioned) {
        assert_int_equal(varve_storage_to_dlpack(storage, VARVE_DLPACK_STREAM_NONE, false, &versioned, &message),
                         VARVE_OK);
        assert_int_equal(varve_storage_from_dlpack(versioned, NULL, NULL, &consumed, &message), VARVE_OK);
    } else {
        assert_int_equal(
            varve_storage_to_dlpack_unversioned(storage, VARVE_DLPACK_STREAM_NONE, false, &managed, &message),
            VARVE_OK);
        assert_int_equal(varve_storage_from_dlpack_unversioned(managed, NULL, NULL, &consumed, &message), VARVE_OK);
    }
    return consumed;
}

#define HANDLES 6U

/* A tensor taken over, viewed, the view handed on and taken over again, and two tensors of that on their way. */
static void make_handles(struct producer *producer, bool is_versioned, struct handle handles[HANDLES])
{
    struct handle all[HANDLES] = {{0}};
    if (is_versioned) {
        assert_int_equal(varve_storage_from_dlpack(produce(producer), NULL, NULL, &all[0].storage, &message), VARVE_OK);
    } else {
        assert_int_equal(
            varve_storage_from_dlpack_unversioned(produce_unversioned(producer), NULL, NULL, &all[0].storage, &message),
            VARVE_OK);
    }
    assert_int_equal(varve_storage_slice(all[0].storage, 1, 0, 2, 1, &all[1].storage, &message), VARVE_OK);
    all[2].storage = consume(all[1].storage, is_versioned);
    all[3].storage = consume(all[2].storage, !is_versioned);
    assert_int_equal(
        varve_storage_to_dlpack(all[3].storage, VARVE_DLPACK_STREAM_UNORDERED, false, &all[4].versioned, &message),
        VARVE_OK);
    assert_int_equal(
        varve_storage_to_dlpack_unversioned(all[1].storage, VARVE_DLPACK_STREAM_NONE, false, &all[5].managed, &message),
        VARVE_OK);
    memcpy(handles, all, sizeof(all));
}

/* All handles of the permutation number `number`, one after the other: whoever is left sees the elements, and writes
 * them. */
static void release_in_order(unsigned number, bool is_versioned)
{
    struct handle handles[HANDLES];
    struct producer producer;
    make_handles(&producer, is_versioned, handles);
    for (unsigned left = HANDLES; left > 0; left--) {
        unsigned next = number % left;
        number /= left;
        for (unsigned i = 0; i < left; i++) {
            assert_ptr_equal(handle_data(&handles[i]), producer.elements);
        }
        handle_data(&handles[next])[1] += 1; /* seen by all */
        assert_true(((float *)producer.elements)[1] == (float)(2 + HANDLES - left));
        assert_int_equal(producer.deleted, 0);
        handle_release(&handles[next]);
        handles[next] = handles[left - 1];
    }
    assert_int_equal(producer.deleted, 1);
    assert_int_equal(varve_storage_live(), 0);
}

TEST_WITH(test_every_order, NULL, nothing_is_left)
{
    for (unsigned number = 0; number < 6 * 5 * 4 * 3 * 2; number++) {
        release_in_order(number, true);
        release_in_order(number, false);
    }
}

/* ---- threads ---- */

#define STEPS 5000U

struct worker {
    pthread_t thread;
    struct handle handle; /* of the thread alone, given back at its end */
    unsigned errors;
};

static void *work(void *context)
{
    struct worker *worker = context;
    struct varve_dlpack_versioned *tensor;
    struct varve_storage *storage;
    for (unsigned i = 0; i < STEPS; i++) {
        if (worker->handle.storage == NULL) {
            break;
        }
        if (varve_storage_to_dlpack(worker->handle.storage, VARVE_DLPACK_STREAM_NONE, false, &tensor, NULL) !=
            VARVE_OK) {
            worker->errors++;
        } else if (i % 2 == 0) {
            tensor->deleter(tensor);
        } else {
            worker->errors += varve_storage_from_dlpack(tensor, NULL, NULL, &storage, NULL) != VARVE_OK;
            worker->errors += varve_storage_release(storage, NULL) != VARVE_OK;
        }
    }
    if (worker->handle.versioned != NULL) {
        worker->handle.versioned->deleter(worker->handle.versioned);
    } else if (worker->handle.managed != NULL) {
        worker->handle.managed->deleter(worker->handle.managed);
    } else {
        worker->errors += varve_storage_release(worker->handle.storage, NULL) != VARVE_OK;
    }
    return NULL;
}

/* Each has a handle of its own; whoever is last, the deleter is called once. */
TEST_WITH(test_threads, NULL, nothing_is_left)
{
    for (unsigned round = 0; round < 20; round++) {
        struct handle handles[HANDLES];
        struct producer producer;
        make_handles(&producer, round % 2 == 0, handles);
        struct worker workers[HANDLES];
        for (unsigned i = 0; i < HANDLES; i++) {
            workers[i] = (struct worker){.handle = handles[i]};
            assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
        }
        for (unsigned i = 0; i < HANDLES; i++) {
            assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
            assert_int_equal(workers[i].errors, 0);
        }
        assert_int_equal(producer.deleted, 1);
        assert_int_equal(varve_storage_live(), 0);
    }
}
