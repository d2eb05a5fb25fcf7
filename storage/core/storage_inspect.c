/* SPDX-License-Identifier: Apache-2.0 */
/* What a storage is, for people and for programs. */
#include "storage/core/storage_object.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void varve_storage_inspect(const struct varve_storage *storage, struct varve_storage_info *info_out)
{
    const struct varve_storage *base = storage->base;
    const struct varve_memory *memory = storage->memory;
    struct varve_allocation allocation = varve_storage_allocation(storage);
    *info_out = (struct varve_storage_info){
        .id = storage->id,
        .base_id = base != NULL ? base->id : 0,
        .dtype = storage->array.dtype,
        .geometry = storage->array.geometry,
        .bytes = varve_storage_bytes(storage),
        .data_addr = (uint64_t)(uintptr_t)object_data(storage),
        .base_bytes = storage->bytes,
        .device = memory->device != NULL ? memory->device->ops->name : "host",
        .device_index = memory->device != NULL ? memory->device->index : -1,
        .use_count = varve_storage_use_count(storage),
        .view_count = __atomic_load_n(&storage->views, __ATOMIC_RELAXED),
        .is_contiguous = varve_geometry_is_contiguous(&storage->array.geometry),
        .is_foreign = (base != NULL ? base : storage)->is_foreign,
        .is_read_only = storage->is_read_only,
    };
    memcpy(info_out->name, storage->name, sizeof(info_out->name));
    info_out->has_block =
        allocation.block != NULL && varve_alloc_describe(memory->alloc, allocation, &info_out->block) == VARVE_OK;
}

/* ---- text ---- */

/* A text that grows as far as there is room for it; `used` counts on. */
struct writer {
    char *text;
    size_t bytes, used;
};

static __attribute__((format(printf, 2, 3))) void storage_inspect_put(struct writer *writer, const char *format, ...)
{
    bool has_room = writer->used < writer->bytes;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(has_room ? writer->text + writer->used : NULL, has_room ? writer->bytes - writer->used : 0,
                           format, arguments);
    va_end(arguments);
    writer->used += length > 0 ? (size_t)length : 0;
}

static void put_sizes(struct writer *writer, unsigned count, const int64_t *sizes)
{
    for (unsigned i = 0; i < count; i++) {
        storage_inspect_put(writer, i > 0 ? ", %" PRId64 : "%" PRId64, sizes[i]);
    }
}

size_t varve_storage_info_text(const struct varve_storage_info *info, char *text, size_t bytes)
{
    struct writer writer = {.text = text, .bytes = bytes};
    char shape[VARVE_SHAPE_TEXT_BYTES];
    storage_inspect_put(&writer, "storage %" PRIu64 "%s%s%s: %s %s, %" PRIu64 " bytes at %#" PRIx64 " on %s", info->id,
                        info->name[0] != '\0' ? " '" : "", info->name, info->name[0] != '\0' ? "'" : "",
                        varve_dtype_name(info->dtype),
                        varve_shape_text(info->geometry.ndim, info->geometry.shape, shape, sizeof(shape)), info->bytes,
                        info->data_addr, info->device);
    if (info->device_index >= 0) {
        storage_inspect_put(&writer, ":%d", info->device_index);
    }
    if (!info->is_contiguous) {
        storage_inspect_put(&writer, ", strides (");
        put_sizes(&writer, info->geometry.ndim, info->geometry.strides);
        storage_inspect_put(&writer, ")");
    }
    if (info->base_id != 0) {
        storage_inspect_put(&writer, ", a view of storage %" PRIu64 " with %" PRIu64 " bytes", info->base_id,
                            info->base_bytes);
    }
    if (info->has_block) {
        storage_inspect_put(&writer, ", block %#" PRIx64 " of %" PRIu64 " bytes in segment %" PRIu32,
                            info->block.block.addr, info->block.block.bytes, info->block.segment_id);
    }
    storage_inspect_put(&writer, "%s%s, %" PRIu32 " reference%s, %" PRIu32 " view%s",
                        info->is_foreign ? ", foreign" : "", info->is_read_only ? ", read only" : "", info->use_count,
                        info->use_count == 1 ? "" : "s", info->view_count, info->view_count == 1 ? "" : "s");
    return writer.used;
}

/* ---- JSON ---- */

/* What is not UTF-8, or must not stand in a JSON string as it is, becomes an escape or a question mark. */
static void put_string(struct writer *writer, const char *text)
{
    size_t left = strlen(text);
    storage_inspect_put(writer, "\"");
    while (left > 0) {
        size_t length = varve_utf8_length(text, left);
        unsigned char byte = (unsigned char)*text;
        if (length == 0) {
            storage_inspect_put(writer, "?");
            length = 1;
        } else if (byte < 0x20) {
            storage_inspect_put(writer, "\\u%04x", byte);
        } else {
            storage_inspect_put(writer, "%s%.*s", byte == '"' || byte == '\\' ? "\\" : "", (int)length, text);
        }
        text += length;
        left -= length;
    }
    storage_inspect_put(writer, "\"");
}

static void storage_inspect_put_block(struct writer *writer, const struct varve_allocation_info *block)
{
    storage_inspect_put(
        writer,
        ",\"block\":{\"addr\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"requested\":%" PRIu64 ",\"allocation_id\":%" PRIu64
        ",\"segment_id\":%" PRIu32 ",\"stream\":%" PRIu64 ",\"pool\":[%" PRIu64 ",%" PRIu64 "],\"is_small\":%s}",
        block->block.addr, block->block.bytes, block->block.requested, block->block.allocation_id, block->segment_id,
        block->stream, block->pool.capture, block->pool.user, block->is_small ? "true" : "false");
}

size_t varve_storage_info_json(const struct varve_storage_info *info, char *text, size_t bytes)
{
    struct writer writer = {.text = text, .bytes = bytes};
    storage_inspect_put(&writer, "{\"id\":%" PRIu64 ",\"name\":", info->id);
    put_string(&writer, info->name);
    storage_inspect_put(&writer, ",\"dtype\":\"%s\",\"shape\":[", varve_dtype_name(info->dtype));
    put_sizes(&writer, info->geometry.ndim, info->geometry.shape);
    storage_inspect_put(&writer, "],\"strides\":[");
    put_sizes(&writer, info->geometry.ndim, info->geometry.strides);
    storage_inspect_put(
        &writer, "],\"offset\":%" PRId64 ",\"bytes\":%" PRIu64 ",\"data_addr\":%" PRIu64 ",\"base_bytes\":%" PRIu64,
        info->geometry.offset, info->bytes, info->data_addr, info->base_bytes);
    storage_inspect_put(&writer,
                        ",\"device\":\"%s\",\"device_index\":%d,\"use_count\":%" PRIu32 ",\"view_count\":%" PRIu32,
                        info->device, info->device_index, info->use_count, info->view_count);
    storage_inspect_put(&writer, ",\"is_contiguous\":%s,\"is_foreign\":%s,\"is_read_only\":%s",
                        info->is_contiguous ? "true" : "false", info->is_foreign ? "true" : "false",
                        info->is_read_only ? "true" : "false");
    if (info->base_id != 0) {
        storage_inspect_put(&writer, ",\"base_id\":%" PRIu64, info->base_id);
    }
    if (info->has_block) {
        storage_inspect_put_block(&writer, &info->block);
    }
    storage_inspect_put(&writer, "}");
    return writer.used;
}
