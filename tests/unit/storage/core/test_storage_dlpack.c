/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DLPack's tensors of storages, and storages of tensors: what a tensor says, that an export waits for the device,
 * tensors that can't be are refused with one call of their deleter, and whoever is last of many threads calls it once.
 * A producer of another library is played by the test. Every order of releases, copies and what may only be read are in
 * tests/conformance/test_dlpack.py.
 * Reads damaged input: tensors whose fields may be anything.
 * Costs: 1 s
 */
#include "support/random.h"
#include "support/storage/storage_rules.h"

#include <pthread.h>
#include <unistd.h>

static int nothing_is_left(void **state)
{
    (void)state;
    return varve_storage_live() == 0 ? 0 : -1;
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

static struct varve_dlpack_versioned *exported(struct varve_storage *storage)
{
    struct varve_dlpack_versioned *tensor;
    rule_ok(varve_storage_to_dlpack(storage, VARVE_DLPACK_STREAM_NONE, false, &tensor, &rule_message));
    return tensor;
}

static struct varve_dlpack_managed *exported_unversioned(struct varve_storage *storage)
{
    struct varve_dlpack_managed *managed;
    rule_ok(varve_storage_to_dlpack_unversioned(storage, VARVE_DLPACK_STREAM_NONE, false, &managed, &rule_message));
    return managed;
}

TEST_WITH(test_export, NULL, nothing_is_left)
{
    struct varve_storage *storage, *view;
    const int64_t smaller[] = {1};
    rule_ok(varve_storage_zeros(NULL, VARVE_DTYPE_I16, 2, rule_23, &storage, &rule_message));
    rule_ok(varve_storage_slice(storage, 1, VARVE_SLICE_NONE, 0, -1, &view, &rule_message));
    struct varve_dlpack_versioned *tensor = exported(view);
    assert_int_equal(tensor->version.major, 1);
    assert_int_equal(tensor->flags, 0);
    assert_memory_equal(&tensor->tensor.device, (&(struct varve_dlpack_device){VARVE_DLPACK_CPU, 0}), 8);
    assert_int_equal(tensor->tensor.ndim, 2);
    assert_memory_equal(tensor->tensor.shape, ((int64_t[]){2, 2}), 16);
    assert_memory_equal(tensor->tensor.strides, ((int64_t[]){3, -1}), 16);
    assert_int_equal(tensor->tensor.byte_offset, 0);
    assert_ptr_equal(tensor->tensor.data, (int16_t *)varve_storage_data(storage) + 2);
    assert_int_equal(varve_storage_use_count(storage), 3); /* the two views' */
    rule_release(view);
    struct varve_dlpack_managed *managed = exported_unversioned(storage);
    assert_ptr_equal(managed->tensor.data, varve_storage_data(storage));
    tensor->deleter(tensor);
    assert_int_equal(varve_storage_resize(storage, 1, smaller, &rule_message), VARVE_ERROR_BUSY);
    managed->deleter(managed);
    rule_ok(varve_storage_resize(storage, 1, smaller, &rule_message));
    rule_release(storage);
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
        rule_ok(varve_storage_empty(NULL, i, i % 2 == 0 ? 0 : 2, empty, &storage, &rule_message));
        struct varve_dlpack_versioned *tensor = exported(storage);
        assert_memory_equal(&tensor->tensor.dtype, &expected[i], sizeof(expected[i]));
        assert_true((tensor->tensor.data == NULL) == (i % 2 != 0)); /* no elements, no address */
        rule_ok(varve_storage_from_dlpack(tensor, NULL, "back", &back, &rule_message));
        assert_int_equal(varve_storage_dtype(back), i);
        assert_int_equal(varve_storage_count(back), i % 2 == 0);
        assert_ptr_equal(varve_storage_data(back), varve_storage_data(storage));
        assert_string_equal(varve_storage_name(back), "back");
        rule_ok(varve_storage_check(back, &rule_message));
        rule_release(storage);
        rule_release(back);
    }
}

/* Streams that host memory has not, and memory that DLPack does not know. */
static void test_export_errors(void **state)
{
    const struct varve_storage_options options = {.memory = ((const struct pool *)*state)->memory};
    struct varve_dlpack_versioned *tensor = NULL;
    struct varve_dlpack_device device;
    struct varve_storage *storage;
    rule_ok(varve_storage_zeros(NULL, VARVE_DTYPE_F64, 2, rule_23, &storage, &rule_message));
    for (int64_t stream = 0; stream < 3; stream++) {
        rule_refused(varve_storage_to_dlpack(storage, stream, false, &tensor, &rule_message), VARVE_ERROR_INVALID,
                     "for elements in host memory, which has none");
    }
    rule_release(storage);
    rule_ok(varve_storage_empty(&options, VARVE_DTYPE_F64, 2, rule_23, &storage, &rule_message));
    rule_refused(varve_storage_to_dlpack(storage, VARVE_DLPACK_STREAM_NONE, false, &tensor, &rule_message),
                 VARVE_ERROR_UNSUPPORTED, "DLPack knows no memory of the device 'sim'");
    assert_int_equal(varve_storage_dlpack_device(storage, &device, NULL), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(varve_storage_use_count(storage), 1);
    rule_release(storage);
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

static void test_export_waits(void **state)
{
    const struct pool *pool = *state;
    const struct varve_storage_options options = {.memory = pool->memory, .stream = 5};
    struct waiting waiting = {.error = VARVE_ERROR_IO};
    rule_ok(varve_storage_zeros(&options, VARVE_DTYPE_I32, 2, rule_23, &waiting.storage, &rule_message));
    uint64_t addr = (uint64_t)(uintptr_t)varve_storage_data(waiting.storage);
    rule_ok(varve_host_stream_block(pool->device, 5));
    rule_ok(pool->device->ops->fill(pool->device, addr, 0x12345678, 4, 6, 5));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, export_and_look, &waiting), 0);
    usleep(20000); /* time to return too early */
    rule_ok(varve_host_stream_release(pool->device, 5));
    assert_int_equal(pthread_join(thread, NULL), 0);
    rule_ok(waiting.error);
    assert_int_equal(waiting.first, 0x12345678);
    rule_release(waiting.storage);
    assert_int_equal(varve_memory_close(pool->memory, &rule_message), VARVE_ERROR_BUSY);
    waiting.tensor->deleter(waiting.tensor);
}

/* ---- what an import makes of a tensor ---- */

/* Taken, with these elements from `data` on; then released. */
static void take(struct producer *producer, const void *data, size_t count, const float *expected)
{
    struct varve_storage *storage;
    rule_ok(varve_storage_from_dlpack(&producer->tensor->versioned, NULL, NULL, &storage, &rule_message));
    rule_ok(varve_storage_check(storage, &rule_message));
    assert_ptr_equal(varve_storage_data(storage), data);
    rule_expect(storage, count, expected);
    rule_release(storage);
}

TEST_WITH(test_import_forms, NULL, nothing_is_left)
{
    struct producer producer;
    struct varve_dlpack_versioned *tensor = produce(&producer);
    tensor->tensor.strides = NULL; /* contiguous */
    tensor->version.minor = 99;
    take(&producer, producer.elements, 6, (const float[]){0, 1, 2, 3, 4, 5});
    assert_int_equal(producer.deleted, 1);

    tensor = produce(&producer); /* backwards, from the last element */
    tensor->tensor.byte_offset = 5 * sizeof(float);
    producer.strides[0] = -3;
    producer.strides[1] = -1;
    tensor->tensor.device.type = VARVE_DLPACK_CUDA_HOST;
    take(&producer, (float *)producer.elements + 5, 6, (const float[]){5, 4, 3, 2, 1, 0});
    assert_int_equal(producer.deleted, 1);

    produce(&producer); /* one column, whose first axis is of size 1 and has any stride */
    producer.shape[0] = 1;
    producer.strides[0] = INT64_MIN;
    take(&producer, producer.elements, 3, (const float[]){0, 1, 2});
    assert_int_equal(producer.deleted, 1);

    tensor = produce(&producer); /* no elements, and nothing that strides could mean */
    producer.shape[0] = 0;
    producer.strides[0] = producer.strides[1] = INT64_MAX;
    tensor->tensor.data = NULL;
    take(&producer, NULL, 0, NULL);
    assert_int_equal(producer.deleted, 1);

    tensor = produce(&producer); /* a number, and nothing to call */
    tensor->tensor.ndim = 0;
    tensor->tensor.shape = tensor->tensor.strides = NULL;
    tensor->deleter = NULL;
    take(&producer, producer.elements, 1, (const float[]){0});
    assert_int_equal(producer.deleted, 0);
    producer_delete(&producer);
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
        rule_message.text[0] = '\0';
        assert_int_equal(varve_storage_from_dlpack(tensor, NULL, NULL, &storage, &rule_message), cases[i].error);
        if (cases[i].text != NULL) {
            assert_string_equal(rule_message.text, cases[i].text);
        }
        assert_true(rule_message.text[0] != '\0');
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
        int error = varve_storage_from_dlpack(tensor, NULL, NULL, &storage, &rule_message);
        assert_int_equal(producer.deleted, error != VARVE_OK);
        if (error == VARVE_OK) {
            taken++;
            assert_int_equal(varve_storage_check(storage, &rule_message), VARVE_OK);
            if (varve_storage_slice(storage, -1, VARVE_SLICE_NONE, VARVE_SLICE_NONE, -2, &view, &rule_message) ==
                VARVE_OK) {
                assert_int_equal(varve_storage_check(view, &rule_message), VARVE_OK);
                rule_release(view);
            }
            rule_release(storage);
        }
        assert_int_equal(producer.deleted, 1);
    }
    print_message("%u of 20000 tensors were taken\n", taken);
    assert_true(taken > 1000 && taken < 19000);
}

/* ---- threads ---- */

#define STEPS 5000U
#define HANDLES 6U

/* A storage of the thread's own, or a tensor that nobody has consumed; given back at its end. */
struct worker {
    pthread_t thread;
    struct varve_storage *storage;
    struct varve_dlpack_versioned *versioned;
    struct varve_dlpack_managed *managed;
    unsigned errors;
};

static struct varve_storage *consume(struct varve_storage *storage, bool is_versioned)
{
    struct varve_storage *consumed;
    rule_ok(is_versioned ? varve_storage_from_dlpack(exported(storage), NULL, NULL, &consumed, &rule_message)
                         : varve_storage_from_dlpack_unversioned(exported_unversioned(storage), NULL, NULL, &consumed,
                                                                 &rule_message));
    return consumed;
}

/* A tensor taken over, viewed, the view handed on and taken over again, and two tensors of that on their way. */
static void make_workers(struct producer *producer, bool is_versioned, struct worker *workers)
{
    memset(workers, 0, HANDLES * sizeof(*workers));
    rule_ok(is_versioned ? varve_storage_from_dlpack(produce(producer), NULL, NULL, &workers[0].storage, &rule_message)
                         : varve_storage_from_dlpack_unversioned(produce_unversioned(producer), NULL, NULL,
                                                                 &workers[0].storage, &rule_message));
    rule_ok(varve_storage_slice(workers[0].storage, 1, 0, 2, 1, &workers[1].storage, &rule_message));
    workers[2].storage = consume(workers[1].storage, is_versioned);
    workers[3].storage = consume(workers[2].storage, !is_versioned);
    rule_ok(varve_storage_to_dlpack(workers[3].storage, VARVE_DLPACK_STREAM_UNORDERED, false, &workers[4].versioned,
                                    &rule_message));
    workers[5].managed = exported_unversioned(workers[1].storage);
}

static void *work(void *context)
{
    struct worker *worker = context;
    struct varve_dlpack_versioned *tensor;
    struct varve_storage *storage;
    for (unsigned i = 0; i < STEPS && worker->storage != NULL; i++) {
        if (varve_storage_to_dlpack(worker->storage, VARVE_DLPACK_STREAM_NONE, false, &tensor, NULL) != VARVE_OK) {
            worker->errors++;
        } else if (i % 2 == 0) {
            tensor->deleter(tensor);
        } else {
            worker->errors += varve_storage_from_dlpack(tensor, NULL, NULL, &storage, NULL) != VARVE_OK;
            worker->errors += varve_storage_release(storage, NULL) != VARVE_OK;
        }
    }
    if (worker->versioned != NULL) {
        worker->versioned->deleter(worker->versioned);
    } else if (worker->managed != NULL) {
        worker->managed->deleter(worker->managed);
    }
    worker->errors += varve_storage_release(worker->storage, NULL) != VARVE_OK;
    return NULL;
}

/* Each has a handle of its own; whoever is last, the deleter is called once. */
TEST_WITH(test_threads, NULL, nothing_is_left)
{
    for (unsigned round = 0; round < 20; round++) {
        struct worker workers[HANDLES];
        struct producer producer;
        make_workers(&producer, round % 2 == 0, workers);
        for (unsigned i = 0; i < HANDLES; i++) {
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

static const struct CMUnitTest cases[] = {
    POOL_CASE(test_export_errors, pool_sim),
    POOL_CASE(test_export_waits, pool_host),
};

TEST_CASES(cases)
