/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views: other shapes of the same bytes. A view of a view is one of its base, so that a chain of them is never
 * longer than one.
 */
#include "storage/core/storage_object.h"

/* A view with the storage's own geometry, to be changed and then checked by view_end. NULL: no memory. */
static struct varve_storage *view_begin(struct varve_storage *storage, struct varve_message *message)
{
    const struct varve_geometry *geometry = &storage->array.geometry;
    struct varve_storage *base = object_base(storage), *view = object_new();
    if (view == NULL) {
        varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a view's own object");
        return NULL;
    }
    view->base = base;
    view->array.data = base->array.data;
    view->array.dtype = base->array.dtype;
    view->array.geometry.ndim = geometry->ndim;
    view->array.geometry.offset = geometry->offset;
    for (unsigned i = 0; i < geometry->ndim; i++) { /* most have few of many possible axes */
        view->array.geometry.shape[i] = geometry->shape[i];
        view->array.geometry.strides[i] = geometry->strides[i];
    }
    view->bytes = base->bytes;
    view->memory = base->memory;
    view->is_read_only = storage->is_read_only;
    return view;
}

static int view_end(struct varve_storage *view, int error, struct varve_storage **view_out)
{
    if (error != VARVE_OK) {
        object_discard(view);
        return error;
    }
    varve_storage_retain(view->base);
    __atomic_add_fetch(&view->base->views, 1, __ATOMIC_RELAXED);
    object_publish(view);
    emit_storage(VARVE_KIND_VIEW, view, 0);
    *view_out = view;
    return VARVE_OK;
}

int varve_storage_view(struct varve_storage *storage, const struct varve_geometry *geometry,
                       struct varve_storage **view_out, struct varve_message *message)
{
    uint64_t elements = storage->bytes / varve_dtype_bytes(storage->array.dtype);
    int error = varve_geometry_check(geometry, elements, message);
    struct varve_storage *view = error == VARVE_OK ? view_begin(storage, message) : NULL;
    if (view == NULL) {
        return error == VARVE_OK ? VARVE_ERROR_NO_MEMORY : error;
    }
    view->array.geometry = *geometry;
    return object_created(view_end(view, VARVE_OK, view_out), view_out, __builtin_return_address(0));
}

/* What follows changes a geometry that lies within the base, and leaves it there. */
#define VIEW_BY(change)                                                                                        \
    struct varve_storage *view = view_begin(storage, message);                                                 \
                                                                                                               \
    return object_created(view != NULL ? view_end(view, (change), view_out) : VARVE_ERROR_NO_MEMORY, view_out, \
                          __builtin_return_address(0))

int varve_storage_slice(struct varve_storage *storage, int axis, int64_t start, int64_t stop, int64_t step,
                        struct varve_storage **view_out, struct varve_message *message)
{
    VIEW_BY(varve_geometry_slice(&view->array.geometry, axis, start, stop, step, message));
}

int varve_storage_select(struct varve_storage *storage, int axis, int64_t index, struct varve_storage **view_out,
                         struct varve_message *message)
{
    VIEW_BY(varve_geometry_select(&view->array.geometry, axis, index, message));
}

int varve_storage_transpose(struct varve_storage *storage, int axis, int other, struct varve_storage **view_out,
                            struct varve_message *message)
{
    VIEW_BY(varve_geometry_transpose(&view->array.geometry, axis, other, message));
}

int varve_storage_permute(struct varve_storage *storage, const int *axes, unsigned count,
                          struct varve_storage **view_out, struct varve_message *message)
{
    VIEW_BY(varve_geometry_permute(&view->array.geometry, axes, count, message));
}

int varve_storage_expand(struct varve_storage *storage, unsigned ndim, const int64_t *shape,
                         struct varve_storage **view_out, struct varve_message *message)
{
    VIEW_BY(varve_geometry_expand(&view->array.geometry, ndim, shape, message));
}

int varve_storage_reshape(struct varve_storage *storage, unsigned ndim, const int64_t *shape,
                          struct varve_storage **view_out, struct varve_message *message)
{
    VIEW_BY(varve_geometry_reshape(&view->array.geometry, ndim, shape, message));
}
