/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: any bytes as a tensor of DLPack, of either kind. It becomes a storage whose elements lie where the
 * tensor says, and whose own tensor says the same, or is refused with a reason; its deleter is called once in any case,
 * by the last release. Elements are looked at where they lie in the memory that there is: nothing says of a tensor how
 * much belongs to it.
 */
#include "fuzz/target.h"

#include "storage/storage.h"

#include <stdlib.h>
#include <string.h>

#define MEMORY_BYTES 4096
#define INPUT_DIMS 20 /* more than there may be */

static unsigned char *memory;
static unsigned deletions;

/* ---- the tensor ---- */

struct input {
    const uint8_t *data;
    size_t size;
};

static uint8_t take_byte(struct input *input)
{
    if (input->size == 0) {
        return 0;
    }
    input->size--;
    return *input->data++;
}

/* Most numbers are small ones; a byte says that 8 bytes follow. */
static int64_t take_number(struct input *input)
{
    int8_t small = (int8_t)take_byte(input);
    int64_t number = small;
    if (small == 127 && input->size >= sizeof(number)) {
        memcpy(&number, input->data, sizeof(number));
        input->data += sizeof(number);
        input->size -= sizeof(number);
    }
    return number;
}

struct given {
    struct varve_dlpack_versioned versioned;
    struct varve_dlpack_managed managed;
    int64_t shape[INPUT_DIMS], strides[INPUT_DIMS];
};

static void versioned_delete(struct varve_dlpack_versioned *self)
{
    check(self->context == memory);
    deletions++;
}

static void managed_delete(struct varve_dlpack_managed *self)
{
    check(self->context == memory);
    deletions++;
}

/* The arrays have as many numbers as the tensor says, where that is a number of axes that a storage may have. */
static void tensor_take(struct input *input, struct given *given)
{
    struct varve_dlpack_tensor *tensor = &given->managed.tensor;
    uint8_t how = take_byte(input);
    tensor->device.type = how & 1 ? (int32_t)take_number(input) : VARVE_DLPACK_CPU;
    tensor->device.id = how & 1 ? (int32_t)take_number(input) : 0;
    tensor->dtype = (struct varve_dlpack_dtype){take_byte(input), take_byte(input), take_byte(input)};
    tensor->ndim = (int32_t)take_number(input);
    tensor->byte_offset = (uint64_t)take_number(input);
    tensor->data = how & 2 ? (void *)(uintptr_t)take_number(input) : how & 4 ? memory : memory + MEMORY_BYTES / 2;
    tensor->shape = how & 8 ? NULL : given->shape;
    tensor->strides = how & 16 ? NULL : given->strides;
    for (int32_t i = 0; i < INPUT_DIMS && i < tensor->ndim; i++) {
        given->shape[i] = take_number(input);
        given->strides[i] = take_number(input);
    }
}

/* ---- what has become of it ---- */

/* Every element, by its index, where the tensor has it. */
static void check_elements(const struct given *given, struct varve_storage *storage)
{
    const struct varve_dlpack_tensor *tensor = &given->managed.tensor;
    size_t bytes = varve_dtype_bytes(varve_storage_dtype(storage));
    int64_t count = varve_storage_count(storage);
    struct varve_storage *copy;
    check(varve_storage_clone(storage, NULL, &copy, NULL) == VARVE_OK);
    for (int64_t i = 0; i < count; i++) {
        const unsigned char *element = (const unsigned char *)tensor->data + tensor->byte_offset;
        int64_t rest = i, stride = 1;
        for (int32_t axis = tensor->ndim; axis-- > 0;) {
            int64_t index = rest % tensor->shape[axis];
            element += index * (tensor->strides != NULL ? tensor->strides[axis] : stride) * (int64_t)bytes;
            rest /= tensor->shape[axis];
            stride *= tensor->shape[axis];
        }
        check(memcmp((unsigned char *)varve_storage_data(copy) + (size_t)i * bytes, element, bytes) == 0);
    }
    check(varve_storage_release(copy, NULL) == VARVE_OK);
}

static void check_exported(const struct given *given, struct varve_storage *storage)
{
    const struct varve_dlpack_tensor *tensor = &given->managed.tensor;
    struct varve_dlpack_versioned *exported;
    check(varve_storage_to_dlpack(storage, VARVE_DLPACK_STREAM_NONE, false, &exported, NULL) == VARVE_OK);
    check(exported->tensor.ndim == tensor->ndim);
    check(memcmp(&exported->tensor.dtype, &tensor->dtype, sizeof(tensor->dtype)) == 0);
    for (int32_t i = 0; i < tensor->ndim; i++) {
        check(exported->tensor.shape[i] == tensor->shape[i]);
    }
    exported->deleter(exported);
}

static void check_taken(const struct given *given, struct varve_storage *storage)
{
    check(deletions == 0 && varve_storage_check(storage, NULL) == VARVE_OK);
    check_exported(given, storage);
    struct varve_array array;
    varve_storage_get_array(storage, &array);
    int64_t first, end;
    varve_geometry_range(&array.geometry, &first, &end);
    size_t bytes = varve_dtype_bytes(array.dtype);
    int64_t place = (int64_t)((uintptr_t)array.data - (uintptr_t)memory);
    if (place >= 0 && place <= MEMORY_BYTES && first >= 0 && end <= (MEMORY_BYTES - place) / (int64_t)bytes &&
        varve_storage_count(storage) <= MEMORY_BYTES) {
        check_elements(given, storage);
    }
}

/* Nothing is wrong with it: f32 in host memory, few axes, small numbers. */
static bool is_plain(const struct given *given)
{
    const struct varve_dlpack_tensor *tensor = &given->managed.tensor;
    if (tensor->device.type != VARVE_DLPACK_CPU || tensor->dtype.code != VARVE_DLPACK_FLOAT ||
        tensor->dtype.bits != 32 || tensor->dtype.lanes != 1 || tensor->ndim < 0 || tensor->ndim > 3 ||
        tensor->shape == NULL || tensor->byte_offset > MEMORY_BYTES ||
        (tensor->data != memory && tensor->data != memory + MEMORY_BYTES / 2)) {
        return false;
    }
    for (int32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] < 0 || tensor->shape[i] > 1000 || tensor->strides == NULL || tensor->strides[i] < -1000 ||
            tensor->strides[i] > 1000) {
            return false;
        }
    }
    return true;
}

static void take_over(struct given *given, bool is_versioned)
{
    struct varve_storage *storage = NULL;
    struct varve_message message = {""};
    deletions = 0;
    int error = is_versioned ? varve_storage_from_dlpack(&given->versioned, NULL, "fuzz", &storage, &message)
                             : varve_storage_from_dlpack_unversioned(&given->managed, NULL, NULL, &storage, &message);
    if (error == VARVE_OK) {
        check_taken(given, storage);
        check(varve_storage_is_read_only(storage) ==
              (is_versioned && (given->versioned.flags & VARVE_DLPACK_READ_ONLY) != 0));
        check(varve_storage_release(storage, NULL) == VARVE_OK);
    } else {
        check(storage == NULL && message.text[0] != '\0');
        check(!is_plain(given) || (is_versioned && given->versioned.version.major != VARVE_DLPACK_MAJOR));
    }
    check(deletions == 1 && varve_storage_live() == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct given given = {.managed = {.deleter = managed_delete}};
    if (memory == NULL) {
        memory = malloc(MEMORY_BYTES);
        check(memory != NULL);
        for (int i = 0; i < MEMORY_BYTES; i++) {
            memory[i] = (unsigned char)(i * 37 + i / 256);
        }
    }
    given.versioned.version.major = take_byte(&input);
    given.versioned.version.minor = take_byte(&input);
    given.versioned.flags = take_byte(&input);
    given.versioned.deleter = versioned_delete;
    given.versioned.context = given.managed.context = memory;
    tensor_take(&input, &given);
    given.versioned.tensor = given.managed.tensor;
    take_over(&given, true);
    take_over(&given, false);
    return 0;
}
