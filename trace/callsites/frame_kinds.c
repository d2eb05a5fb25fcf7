/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a function's or a module's name says about a frame. A report that said "malloc" or "operator new"
 * for every call site would say nothing, so allocation functions and the usual wrappers are known by name and
 * passed over, of the C library, of CUDA and of PyTorch. The lists err on the short side: a wrapper that is
 * missing is still a true answer. Called by callsite_finish.c.
 */
#include "trace/callsites/frame_kinds.h"

#include <stdlib.h>
#include <string.h>

/* Sorted for bsearch. */
static const char *const exact_names[] = {
    "PyObject_Calloc",
    "PyObject_Malloc",
    "PyObject_Realloc",
    "__libc_calloc",
    "__libc_malloc",
    "__libc_memalign",
    "__libc_realloc",
    "__mmap",
    "__mmap64",
    "__mremap",
    "__strdup",
    "__strndup",
    "aligned_alloc",
    "calloc",
    "g_aligned_alloc",
    "g_calloc",
    "g_malloc",
    "g_malloc0",
    "g_malloc0_n",
    "g_malloc_n",
    "g_memdup",
    "g_memdup2",
    "g_realloc",
    "g_realloc_n",
    "g_slice_alloc",
    "g_slice_alloc0",
    "g_strdup",
    "g_strndup",
    "g_try_malloc",
    "g_try_malloc0",
    "g_try_malloc0_n",
    "g_try_malloc_n",
    "g_try_realloc",
    "g_try_realloc_n",
    "malloc",
    "memalign",
    "mmap",
    "mmap64",
    "mremap",
    "posix_memalign",
    "pvalloc",
    "realloc",
    "reallocarray",
    "strdup",
    "strndup",
    "valloc",
    "xcalloc",
    "xmalloc",
    "xmemdup",
    "xnmalloc",
    "xnrealloc",
    "xrealloc",
    "xreallocarray",
    "xstrdup",
    "xstrndup",
    "xzalloc",
};

static const char *const prefixes[] = {
    "PyMem_",        "_PyMem_",          "_PyObject_", "operator new(", "operator new[](", "cuMem",
    "cudaHostAlloc", "cudaHostRegister", "cudaMalloc", "cudaFree",      "varve_torch_",    "__cudart",
};

/* Of names with their namespaces, which may follow a return type. Stacks in PyTorch's snapshots begin with what took
 * them. */
static const char *const qualified_prefixes[] = {
    "at::_ops::empty",
    "at::detail::_empty_",
    "at::detail::empty_",
    "at::empty_",
    "at::native::empty_",
    "c10::StorageImpl::StorageImpl",
    "c10::cuda::CUDACachingAllocator::",
    "cudaMalloc",
    "torch::CapturedTraceback::",
    "torch::cuda::(anonymous namespace)::gather",
    "torch::cuda::CUDAPluggableAllocator::",
    "torch::cuda::gather",
    "torch::unwind::",
};

static const char *const allocator_classes[] = {
    "std::allocator<",      "std::allocator_traits<",      "std::__new_allocator<",
    "std::__1::allocator<", "std::__1::allocator_traits<", "__gnu_cxx::new_allocator<",
};

static bool frame_kinds_has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* How the containers of libstdc++ get memory; such names are reserved for it. */
static const char *const library_members[] = {
    "::_M_allocate", "::_M_get_node(", "::_M_create(", "::_M_create_node", "::_M_create_storage(",
};

struct name {
    const char *text;
    size_t length;
};

static int compare_name(const void *left, const void *right)
{
    const struct name *name = left;
    const char *entry = *(const char *const *)right;
    int order = strncmp(name->text, entry, name->length);
    return order ? order : -(int)(entry[name->length] != '\0');
}

/* The name itself, without return type, template arguments and parameters. */
static struct name qualified_name(const char *function)
{
    static const char anonymous[] = "(anonymous namespace)";
    const char *start = function;
    const char *at = function;
    while (*at != '\0' && *at != '<') {
        if (frame_kinds_has_prefix(at, anonymous)) {
            at += strlen(anonymous);
        } else if (*at == '(') {
            break;
        } else if (*at++ == ' ') {
            start = at;
        }
    }
    return (struct name){start, (size_t)(at - start)};
}

const char *callsites_name_begin(const char *function)
{
    return qualified_name(function).text;
}

/* PyTorch's ways to memory: the caching allocators and what makes an empty tensor. */
static bool is_torch_allocation(const char *function)
{
    static const char allocate[] = "::allocate(";
    const struct name name = qualified_name(function);
    const char *member = strstr(function, allocate);
    const char *allocator = strstr(function, "Allocator");
    if (name.length == strlen("at::empty") && frame_kinds_has_prefix(name.text, "at::empty")) {
        return true;
    }
    for (size_t i = 0; i < sizeof(qualified_prefixes) / sizeof(*qualified_prefixes); i++) {
        if (frame_kinds_has_prefix(name.text, qualified_prefixes[i])) {
            return true;
        }
    }
    return (frame_kinds_has_prefix(function, "c10::") || frame_kinds_has_prefix(function, "at::")) && member != NULL &&
           allocator != NULL && allocator < member;
}

bool callsites_name_is_allocation(const char *function)
{
    /* The compiler's clones are named after their function: .cold, .part.0, .constprop.0; @ is a version. */

    if (frame_kinds_has_prefix(function, "__GI_")) { /* glibc's names for its own calls */
        function += strlen("__GI_");
    }
    struct name name = (struct name){function, strcspn(function, ".@")};
    if (bsearch(&name, exact_names, sizeof(exact_names) / sizeof(*exact_names), sizeof(*exact_names), compare_name)) {
        return true;
    }
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++) {
        if (frame_kinds_has_prefix(function, prefixes[i])) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof(allocator_classes) / sizeof(*allocator_classes); i++) {
        if (frame_kinds_has_prefix(function, allocator_classes[i])) {
            return strstr(function, "::allocate") != NULL;
        }
    }
    for (size_t i = 0; i < sizeof(library_members) / sizeof(*library_members); i++) {
        if (strstr(function, library_members[i])) {
            return true;
        }
    }
    return is_torch_allocation(function);
}

/* Not _PyEval_EvalFrame: that calls the loop, and its frame stands beside the loop's own. */
bool callsites_name_is_interpreter_loop(const char *function)
{
    return frame_kinds_has_prefix(function, "_PyEval_EvalFrameDefault");
}

/* Its nodes are named after what they are the derivative of: where the pass runs in a thread of its own, whose stack
 * has nothing else to say, that is where the memory went. */
bool callsites_name_is_backward(const char *function)
{
    return frame_kinds_has_prefix(qualified_name(function).text, "torch::autograd::") &&
           strstr(function, "::apply(") != NULL;
}

static const char *frame_kinds_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool callsites_path_is_interpreter(const char *module_path)
{
    const char *name = frame_kinds_base_name(module_path);
    if (frame_kinds_has_prefix(name, "libpython")) {
        return true;
    }
    if (!frame_kinds_has_prefix(name, "python")) {
        return false;
    }
    name += strlen("python");
    return name[strspn(name, "0123456789.dmt")] == '\0'; /* python, python3.11, python3.13t, python3.9dm */
}

bool callsites_path_is_recorder(const char *module_path)
{
    const char *name = frame_kinds_base_name(module_path);
    return (frame_kinds_has_prefix(name, "libvarve_") || frame_kinds_has_prefix(name, "libvarve-")) &&
           strstr(name, ".so") != NULL;
}

static bool is_one_of(const char *module_path, const char *const *names, size_t count)
{
    const char *name = frame_kinds_base_name(module_path);
    for (size_t i = 0; i < count; i++) {
        if (frame_kinds_has_prefix(name, names[i])) {
            return strstr(name, ".so") != NULL;
        }
    }
    return false;
}

bool callsites_path_is_driver(const char *module_path)
{
    static const char *const names[] = {"libcuda.so", "libcudart.so", "libcudart-", "libcupti.so"};
    return is_one_of(module_path, names, sizeof(names) / sizeof(*names));
}

bool callsites_path_is_storage(const char *module_path)
{
    static const char *const names[] = {"libvarve.so"};
    return is_one_of(module_path, names, 1);
}

bool callsites_path_is_torch(const char *module_path)
{
    static const char *const names[] = {"libtorch",    "libc10",      "libcublas", "libcudnn", "libcufft",
                                        "libcusolver", "libcusparse", "libnccl",   "libnvrtc", "libnvJitLink"};
    return is_one_of(module_path, names, sizeof(names) / sizeof(*names));
}

static bool is_below_one_of(const char *file, const char *const *folders, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strstr(file, folders[i])) {
            return true;
        }
    }
    return false;
}

bool callsites_path_is_storage_python(const char *file)
{
    static const char *const folders[] = {"-packages/varve/", "/notebooks/varve/"};
    return is_below_one_of(file, folders, sizeof(folders) / sizeof(*folders));
}

/* Below a folder torch/ that need not be an installed one: what only PyTorch has there. Other people's folders have
 * that name too. */
static const char *const torch_parts[] = {
    "_C/",          "_compile.py",      "_dynamo/",
    "_export/",     "_functorch/",      "_higher_order_ops/",
    "_inductor/",   "_jit_internal.py", "_library/",
    "_ops.py",      "_prims/",          "_prims_common/",
    "_refs/",       "_subclasses/",     "_tensor.py",
    "ao/",          "autograd/",        "cuda/",
    "distributed/", "functional.py",    "fx/",
    "jit/",         "nn/functional.py", "nn/init.py",
    "nn/modules/",  "nn/parallel/",     "nn/utils/",
    "optim/",       "overrides.py",     "serialization.py",
    "storage.py",   "utils/_",          "utils/checkpoint.py",
    "utils/data/",
};

static bool has_torch_part(const char *file)
{
    static const char folder[] = "torch/";
    for (const char *at = strstr(file, folder); at != NULL; at = strstr(at + 1, folder)) {
        const char *below = at + strlen(folder);
        for (size_t i = 0; i < sizeof(torch_parts) / sizeof(*torch_parts) && (at == file || at[-1] == '/'); i++) {
            if (frame_kinds_has_prefix(below, torch_parts[i])) {
                return true;
            }
        }
    }
    return false;
}

bool callsites_path_is_torch_python(const char *file)
{
    static const char *const folders[] = {"-packages/torch/", "/varve_torch/"};
    return is_below_one_of(file, folders, sizeof(folders) / sizeof(*folders)) || has_torch_part(file);
}

/* Inductor names a file c and its contents' SHA-256 in base 32, and the folder of it after the first two characters of
 * that; by default this folder lies in torchinductor_USER, and may lie anywhere. Source: PyTorch 2.11,
 * _inductor/codecache.py, code_hash and get_path. */
bool callsites_path_is_compiled(const char *file)
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz234567";
    const char *name = frame_kinds_base_name(file);
    const size_t length = strspn(name, digits);
    const bool has_folder = name - file >= 3 && (name - file == 3 || name[-4] == '/');
    if (name[0] != 'c' || !has_folder || strcmp(name + length, ".py") != 0) {
        return false;
    }
    return strstr(file, "/torchinductor_") != NULL || (length == 52 && strncmp(name - 3, name + 1, 2) == 0);
}
