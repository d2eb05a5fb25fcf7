/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Destructors that Python calls, or that call Python, for a binding by ctypes. In Python they would run code of the
 * interpreter at moments when that may not be: a capsule goes while an exception is set, a storage is released by a
 * thread of C. Nothing links against Python: who calls has an interpreter in its process, whose functions are
 * looked up by name.
 */
#include "storage/storage.h"

#include <dlfcn.h>
#include <string.h>

/* `function_out`: a pointer to the function, NULL if there is none. */
static void dlpack_python_find(const char *name, void *function_out)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(function_out, &found, sizeof(found));
}

void varve_dlpack_capsule_destroy(void *capsule)
{
    static const char versioned_name[] = "dltensor_versioned", managed_name[] = "dltensor";
    int (*is_valid)(void *, const char *);
    void *(*get_pointer)(void *, const char *);
    dlpack_python_find("PyCapsule_IsValid", &is_valid);
    dlpack_python_find("PyCapsule_GetPointer", &get_pointer);
    if (is_valid == NULL || get_pointer == NULL) {
        return;
    }
    if (is_valid(capsule, versioned_name)) {
        struct varve_dlpack_versioned *tensor = get_pointer(capsule, versioned_name);
        if (tensor->deleter != NULL) {
            tensor->deleter(tensor);
        }
    } else if (is_valid(capsule, managed_name)) {
        struct varve_dlpack_managed *tensor = get_pointer(capsule, managed_name);
        if (tensor->deleter != NULL) {
            tensor->deleter(tensor);
        }
    }
}

void varve_python_release(void *object, void *data)
{
    int (*is_initialized)(void);
    int (*ensure)(void);
    void (*release)(int);
    void (*decrement)(void *);
    (void)data;
    dlpack_python_find("Py_IsInitialized", &is_initialized);
    dlpack_python_find("PyGILState_Ensure", &ensure);
    dlpack_python_find("PyGILState_Release", &release);
    dlpack_python_find("Py_DecRef", &decrement);
    if (is_initialized == NULL || ensure == NULL || release == NULL || decrement == NULL || !is_initialized()) {
        return; /* with the interpreter all its objects have gone */
    }
    int state = ensure();

    decrement(object);
    release(state);
}
