/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What names mean, by examples of both kinds, as compilers, C++ demanglers and Python builds write them: allocation
 * functions, the interpreter, our own; which line of a stack stands for it; which frame is the user's, whose patterns
 * are compared with a naive matcher.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "tests/support/random.h"
#include "trace/callsites/stack_merge.h"
#include "trace/callsites/frame_kinds.h"
#include "base/error.h"
#include "trace/writer.h"

#include <stdio.h>
#include <string.h>

/* ---- what a name or a path says by itself ---- */

static void expect_all(bool (*is)(const char *name), const char *names, bool expected)
{
    char name[256];
    for (bool is_last = false; !is_last;) {
        const size_t length = strcspn(names, ";");
        snprintf(name, sizeof(name), "%.*s", (int)length, names);
        if (is(name) != expected) {
            fail_msg("'%s' is%s one", name, expected ? " not" : "");
        }
        is_last = names[length] == '\0';
        names += length + 1;
    }
}

TEST(test_names_and_paths)
{
    static const struct {
        bool (*is)(const char *name);
        const char *yes, *no; /* a semicolon between each two */
    } cases[] = {
        {callsites_name_is_allocation,
         "malloc;calloc;realloc;reallocarray;posix_memalign;aligned_alloc;memalign;valloc;pvalloc;strdup;strndup;"
         "__strdup;operator new(unsigned long);operator new[](unsigned long, std::align_val_t);mmap;mmap64;mremap;"
         "g_malloc;g_malloc0_n;g_try_realloc;xmalloc;xrealloc;xcalloc;xstrdup;PyMem_RawMalloc;PyMem_Malloc;"
         "PyObject_Malloc;_PyObject_GC_Alloc;_PyMem_RawMalloc;xmalloc.part.0;malloc.cold;"
         "std::allocator<int>::allocate(unsigned long, void const*);"
         "std::allocator_traits<std::allocator<int> >::allocate(std::allocator<int>&, unsigned long);"
         "__gnu_cxx::new_allocator<char>::allocate(unsigned long);"
         "std::__new_allocator<char>::allocate(unsigned long, void const*);strdup@@GLIBC_2.2.5;__GI___strdup;"
         "std::_Vector_base<int, std::allocator<int> >::_M_allocate(unsigned long);"
         "std::__cxx11::basic_string<char>::_M_create(unsigned long&, unsigned long);"
         "node* std::_Rb_tree<int>::_M_create_node<int const&>(int const&);cudaMalloc;cudaMallocAsync_ptsz;"
         "cudaError cudaMallocManaged<float>(float**, unsigned long, unsigned int);cudaHostAlloc;cuMemAlloc_v2;"
         "cuMemCreate;__cudart1234;varve_torch_alloc;"
         "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(signed char, unsigned long, "
         "CUstream_st*);"
         "c10::cuda::CUDACachingAllocator::raw_alloc(unsigned long);"
         "torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator::malloc(unsigned long, signed char, "
         "CUstream_st*);"
         "c10::cuda::(anonymous namespace)::DefaultCUDAAllocator::allocate(unsigned long);"
         "at::CachingHostAllocatorImpl<c10::cuda::CUDAStream>::allocate(unsigned long);"
         "c10::StorageImpl::StorageImpl(c10::StorageImpl::use_byte_size_t, c10::SymInt const&, c10::Allocator*, "
         "bool);"
         "at::empty(c10::ArrayRef<long>, c10::TensorOptions, std::optional<c10::MemoryFormat>);"
         "at::detail::empty_cuda(c10::ArrayRef<long>, c10::ScalarType, std::optional<c10::Device>);"
         "at::TensorBase at::detail::_empty_generic<c10::ArrayRef<long> >(c10::ArrayRef<long>, c10::Allocator*);"
         "at::native::empty_cuda(c10::ArrayRef<long>, std::optional<c10::ScalarType>);"
         "at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>);torch::unwind::unwind();"
         "torch::CapturedTraceback::gather(bool, bool, bool);"
         "torch::cuda::(anonymous namespace)::gather_with_cpp();torch::cuda::gather_with_cpp()",
         "main;mallocate;mallo;malloc_info;my_malloc;;operator new_thing();PyObject_Call;"
         "std::allocator<int>::deallocate(int*, unsigned long);std::vector<int>::push_back(int const&);zmalloc;a;"
         "xm;at::native::addmm_out_cuda_impl(at::Tensor&, at::empty_thing);at::emptyish();"
         "at::native::linear(at::Tensor const&, at::Tensor const&);"
         "user::train(c10::cuda::CUDACachingAllocator::Block*);user::Allocator::allocate(unsigned long);"
         "c10::Allocator::deleter() const;cudaLaunchKernel;cuLaunchKernel;my_cudaMalloc"},
        {callsites_name_is_interpreter_loop,
         "_PyEval_EvalFrameDefault;_PyEval_EvalFrameDefault.constprop.0;_PyEval_EvalFrameDefault.cold",
         "_PyEval_EvalFrame;PyEval_EvalCode"},
        {callsites_path_is_interpreter, "/usr/bin/python3.11;python3;/x/libpython3.12.so.1.0",
         "/usr/lib/python3/dist-packages/x.so;/usr/bin/python-helper"},
        {callsites_path_is_recorder, "/a/libvarve_preload.so;libvarve_trace.so.0;/a/libvarve-torch.so",
         "/a/libvarve_preload.so/libc.so.6;/a/varve-torch.so"},
        {callsites_path_is_driver,
         "/usr/lib/x86_64-linux-gnu/libcuda.so.580.65;/x/nvidia/cuda_runtime/lib/libcudart.so.12;"
         "libcudart-d0da41ae.so.11.0;/x/libcupti.so.13",
         "/x/libcudafilter.so"},
        {callsites_path_is_storage, "/usr/lib/libvarve.so.0", "/usr/lib/libvarve_trace.so;/usr/lib/libvarvel.so"},
        {callsites_path_is_storage_python,
         "/usr/lib/python3/dist-packages/varve/storage.py;/src/notebooks/varve/library.py", "/srv/varve/experiment.py"},
        {callsites_path_is_torch, "/x/torch/lib/libtorch_cuda.so;/x/torch/lib/libc10_cuda.so;/x/libcublasLt.so.12",
         "/x/libcurl.so.4;/x/libtorch/libmine.so"},
        {callsites_path_is_torch_python,
         "/x/site-packages/torch/nn/modules/linear.py;/usr/lib/python3/dist-packages/torch/_tensor.py;"
         "/opt/u/src/pytorch/torch/optim/adam.py;torch/_inductor/output_code.py;/x/torch/_subclasses/fake_tensor.py",
         "/x/site-packages/torchvision/models/resnet.py;/srv/torch/train.py;/srv/mytorch/optim/adam.py;torch/utils.py"},
        {callsites_path_is_compiled,
         "/tmp/torchinductor_u/ab/cab2.py;"
         "/x/inductor_cache/tf/ctfgguofzkybjebaggwcdnky2gqegtimfieqlfs7rmjkcyhjdyui.py;"
         "tf/ctfgguofzkybjebaggwcdnky2gqegtimfieqlfs7rmjkcyhjdyui.py",
         "/tmp/torchinductor_u/ab/model.py;/tmp/torchinductor_u/model.py;/tmp/torchinductor_u/ab/cab2.so;"
         "/srv/ab/cab2.py;cab2.py;/cab2.py;;/x/ab/ctfgguofzkybjebaggwcdnky2gqegtimfieqlfs7rmjkcyhjdyui.py;"
         "/x/tf/ctfgguofzkybjebaggwcdnky2gqegtimfieqlfs7rmjkcyhjdyu.py"},
        {callsites_name_is_backward,
         "torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor, std::allocator<at::Tensor> >&&);"
         "torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)",
         "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&);"
         "user::apply(torch::autograd::Node&);at::native::apply()"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect_all(cases[i].is, cases[i].yes, true);
        expect_all(cases[i].is, cases[i].no, false);
    }
}

/* ---- which line of a stack stands for it ---- */

/* m an allocation function, n the program's native code, u native code without a name, i the interpreter, t native
 * code of PyTorch, d the CUDA driver, T Python code of PyTorch, p the program's Python. */
static uint32_t roles_of(char letter)
{
    static const uint32_t roles[128] = {
        ['m'] = CALLSITES_ROLE_ALLOCATION, ['d'] = CALLSITES_ROLE_ALLOCATION,
        ['u'] = CALLSITES_ROLE_UNNAMED,    ['i'] = CALLSITES_ROLE_INTERPRETER,
        ['t'] = CALLSITES_ROLE_TORCH,      ['T'] = CALLSITES_ROLE_PYTHON | CALLSITES_ROLE_TORCH,
        ['p'] = CALLSITES_ROLE_PYTHON};
    return roles[(unsigned char)letter];
}

/* Where the place is, from 0; -1: the stack is empty. */
static int place_of(const char *stack)
{
    struct callsites_line lines[32] = {{0}};
    const uint32_t count = (uint32_t)strlen(stack);
    for (uint32_t i = 0; i < count; i++) {
        lines[count - i] =
            (struct callsites_line){.parent = count - i - 1, .symbol = i + 1, .roles = roles_of(stack[i])};
    }
    return (int)callsites_line_symbol(lines, count) - 1;
}

TEST(test_places)
{
    static const struct {
        const char *stack;
        int place;
    } cases[] = {
        {"", -1},
        {"mnn", 1},
        {"mmm", 2},
        {"mip", 2},
        {"mup", 2},
        {"mun", 1},
        {"mnp", 1},
        /* a tensor made by PyTorch: the program's line, past PyTorch's own */
        {"mttip", 4},
        {"mttiTiTip", 8},
        {"ddttip", 5},
        {"mttTTp", 5},
        {"mtmtTnp", 6},
        /* nothing but PyTorch's Python: its innermost line */
        {"mttiTiT", 4},
        {"mtTT", 2},
        /* stacks of Python alone */
        {"TTp", 2},
        {"pTp", 0},
        {"TT", 0},
        /* native code of the program between: that is the place */
        {"mttnp", 1},
        {"mntp", 1},
        {"dnp", 1},
        /* a thread of PyTorch without Python */
        {"mttn", 1},
        {"mtt", 1},
        {"ddd", 2},
        /* the driver alone, called from Python by something else */
        {"ddip", 2 + 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        if (place_of(cases[i].stack) != cases[i].place) {
            fail_msg("%s: place %d, expected %d", cases[i].stack, place_of(cases[i].stack), cases[i].place);
        }
    }
}

/* ---- which frame is the user's ---- */

/* By its definition: a star is nothing, or one character more. */
static bool naive_match(const char *pattern, const char *text)
{
    if (*pattern == '\0') {
        return *text == '\0';
    }
    if (*pattern == '*') {
        return naive_match(pattern + 1, text) || (*text != '\0' && naive_match(pattern, text + 1));
    }
    return *pattern == *text && naive_match(pattern + 1, text + 1);
}

static void random_text(uint64_t *random, const char *letters, char *text)
{
    const uint64_t length = random_next(random) % 9;
    for (uint64_t i = 0; i < length; i++) {
        text[i] = letters[random_next(random) % strlen(letters)];
    }
    text[length] = '\0';
}

TEST(test_match)
{
    uint64_t random = 1;
    unsigned matched = 0;
    for (unsigned i = 0; i < 200000; i++) {
        char pattern[16];
        random_text(&random, "ab**", pattern);
        char text[16];
        random_text(&random, "ab", text);
        if (plumbing_match(pattern, text) != naive_match(pattern, text)) {
            fail_msg("'%s' against '%s'", pattern, text);
        }
        matched += naive_match(pattern, text);
    }
    assert_in_range(matched, 1000, 199000); /* both answers were tried */
}

static enum varve_frame_rank rank(const struct varve_plumbing *plumbing, bool is_python, const char *function,
                                  const char *file, const char *module)
{
    const struct varve_writer_symbol symbol = {
        .function = function, .file = file, .module = module, .line = file != NULL ? 7 : 0, .is_python = is_python};
    return varve_plumbing_rank(plumbing, &symbol);
}

TEST(test_native)
{
    static const struct {
        const char *function, *file, *module;
        enum varve_frame_rank rank;
    } cases[] = {
        {"malloc", NULL, "/usr/lib/x86_64-linux-gnu/libc.so.6", VARVE_FRAME_PLUMBING},
        {"main", "main.c", "/opt/me/a.out", VARVE_FRAME_SOURCE},
        {"main", NULL, "/opt/me/a.out", VARVE_FRAME_NAMED},
        {NULL, NULL, "/usr/bin/git", VARVE_FRAME_UNNAMED},
        {NULL, NULL, NULL, VARVE_FRAME_PLUMBING},
        {NULL, NULL, "/usr/bin/python3.11", VARVE_FRAME_PLUMBING},
        {"Py_InitializeFromConfig", NULL, "/usr/bin/python3.11", VARVE_FRAME_RUNTIME},
        {"arena_map_get", "Objects/obmalloc.c", "/opt/me/lib/libpython3.13.so.1.0", VARVE_FRAME_RUNTIME},
        {"PyList_New", NULL, "/usr/bin/python3.11", VARVE_FRAME_PLUMBING},
        {"load", "ext.c", "/usr/lib/python3/dist-packages/ext.so", VARVE_FRAME_SOURCE},
        {"G1CollectedHeap::initialize()", NULL, "/usr/lib/jvm/java-17/lib/server/libjvm.so", VARVE_FRAME_RUNTIME},
        {"_IO_file_doallocate", "./libio/filedoalloc.c", "/usr/lib/libc.so.6", VARVE_FRAME_RUNTIME},
        {"clone3", NULL, "/usr/lib/libc.so.6", VARVE_FRAME_PLUMBING},
        {"Request::operator new(unsigned long)", "request.cc", "/opt/me/a.out", VARVE_FRAME_PLUMBING},
        {"Request::operator==(Request const&)", "request.cc", "/opt/me/a.out", VARVE_FRAME_SOURCE},
        {"htab_find_slot", NULL, "/usr/lib/libiberty.so", VARVE_FRAME_PLUMBING},
        {"OPENSSL_sk_push", NULL, "/usr/lib/libcrypto.so.3", VARVE_FRAME_PLUMBING},
        {"appendStringInfoString", NULL, "/usr/bin/postgres", VARVE_FRAME_PLUMBING},
        {"v8::internal::BackingStore::Allocate(int)", NULL, "/usr/bin/node", VARVE_FRAME_PLUMBING},
        {NULL, NULL, "/lib/x86_64-linux-gnu/libc.so.6", VARVE_FRAME_PLUMBING},
        {"zmalloc", "zmalloc.c", "/usr/bin/redis-server", VARVE_FRAME_PLUMBING},
        {"Perl_safesysrealloc", NULL, "/usr/bin/perl", VARVE_FRAME_PLUMBING},
        {"Perl_sv_grow", NULL, "/usr/bin/perl", VARVE_FRAME_NAMED},
        {"sdsnewlen", "sds.c", "/usr/bin/redis-server", VARVE_FRAME_SOURCE},
        {"g_malloc0", NULL, "/usr/lib/libglib-2.0.so.0", VARVE_FRAME_PLUMBING},
        {"operator new(unsigned long)", NULL, "/usr/lib/libstdc++.so.6", VARVE_FRAME_PLUMBING},
        {"std::vector<int, std::allocator<int> >::push_back(int const&)", "/usr/include/c++/12/bits/stl_vector.h",
         "/opt/me/a.out", VARVE_FRAME_PLUMBING},
        {"void std::vector<int>::_M_realloc_insert<int>(int)", NULL, "/opt/me/a.out", VARVE_FRAME_PLUMBING},
        {"cache::insert(std::string const&)", "cache.cc", "/opt/me/a.out", VARVE_FRAME_SOURCE},
        {"my::vec_grow()", "vec.cc", "/opt/me/a.out", VARVE_FRAME_SOURCE},
        {"alloc::vec::Vec<T>::push", "/rustc/90b35a6/library/alloc/src/vec/mod.rs", "/opt/me/app",
         VARVE_FRAME_PLUMBING},
        {"app::parse", "src/main.rs", "/opt/me/app", VARVE_FRAME_SOURCE},
        /* v0 names say the types of generics, and a method's type in front; std's own crates come with std */
        {"<alloc::vec::Vec<u8> as alloc::vec::spec_from_elem::SpecFromElem>::from_elem", NULL, "/opt/me/app",
         VARVE_FRAME_PLUMBING},
        {"<[u8]>::to_vec", NULL, "/opt/me/app", VARVE_FRAME_PLUMBING},
        {"<str>::repeat", NULL, "/opt/me/app", VARVE_FRAME_PLUMBING},
        {"<gimli::read::abbrev::Abbreviations>::insert", NULL, "/opt/me/app", VARVE_FRAME_PLUMBING},
        {"addr2line::line::render_file::<gimli::read::endian_slice::EndianSlice<gimli::endianity::LittleEndian>>", NULL,
         "/opt/me/app", VARVE_FRAME_PLUMBING},
        {"__rustc::__rdl_alloc", NULL, "/opt/me/app", VARVE_FRAME_PLUMBING},
        {"panic_unwind::imp::panic", NULL, "/opt/me/app", VARVE_FRAME_PLUMBING},
        {"panic", "library/panic_unwind/src/gcc.rs", "/opt/me/app", VARVE_FRAME_PLUMBING},
        {"parse", "/rust/deps/gimli-0.32.3/src/read/abbrev.rs", "/opt/me/app", VARVE_FRAME_PLUMBING},
        {"parse", "/usr/local/cargo/registry/src/index.crates.io-6f17d22bba15001f/serde_json-1.0/src/de.rs",
         "/opt/me/app", VARVE_FRAME_PLUMBING},
        {"push", "/usr/src/rustc-1.63.0/library/alloc/src/vec/mod.rs", "/opt/me/app", VARVE_FRAME_PLUMBING},
        {"<app::inner::S as app::inner::T>::run", NULL, "/opt/me/app", VARVE_FRAME_NAMED},
        {"app::generic::<[u8]>", "src/main.rs", "/opt/me/app", VARVE_FRAME_SOURCE},
        {"PyDataMem_UserNEW", NULL, "/usr/lib/python3/dist-packages/numpy/core/_multiarray_umath.so",
         VARVE_FRAME_PLUMBING},
        {"_PyEval_EvalFrameDefault", NULL, "/usr/bin/python3.11", VARVE_FRAME_PLUMBING},
        {"varve_storage_empty", "storage.c", "/opt/lib/libvarve.so.1", VARVE_FRAME_RUNTIME},
        {"__libc_start_main", NULL, "/opt/me/static", VARVE_FRAME_PLUMBING},
        /* PyTorch, whose snapshots know no modules */
        {"torch::unwind::unwind()", "??", NULL, VARVE_FRAME_PLUMBING},
        {"??", "??", NULL, VARVE_FRAME_PLUMBING},
        {"at::_ops::mm::call(at::Tensor const&, at::Tensor const&)", "??", NULL, VARVE_FRAME_PLUMBING},
        {"at::Tensor c10::Dispatcher::redispatch<at::Tensor>(c10::DispatchKeySet) const", "??", NULL,
         VARVE_FRAME_PLUMBING},
        {"torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)", "??", NULL,
         VARVE_FRAME_PLUMBING},
        {"torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)", "??", NULL, VARVE_FRAME_RUNTIME},
        {"THPEngine_run_backward(_object*, _object*, _object*)", "??", NULL, VARVE_FRAME_PLUMBING},
        {"operator()", "/pytorch/aten/src/ATen/core/dispatch/Dispatcher.h", NULL, VARVE_FRAME_PLUMBING},
        {"execute_native_thread_routine", "??", NULL, VARVE_FRAME_PLUMBING},
        {"cublasLtMatmul", NULL, "/x/nvidia/cublas/lib/libcublasLt.so.12", VARVE_FRAME_PLUMBING},
        {NULL, NULL, "/x/torch/lib/libtorch_cuda.so", VARVE_FRAME_PLUMBING},
        {"train(at::Tensor const&)", "train.cc", "/opt/me/a.out", VARVE_FRAME_SOURCE},
        {"user::attention(at::Tensor, at::Tensor)", NULL, NULL, VARVE_FRAME_NAMED},
    };
    struct varve_plumbing *plumbing;
    assert_int_equal(varve_plumbing_open(&plumbing), VARVE_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const enum varve_frame_rank got = rank(plumbing, false, cases[i].function, cases[i].file, cases[i].module);
        if (got != cases[i].rank) {
            fail_msg("%s: rank %d, not %d", cases[i].function != NULL ? cases[i].function : "(unnamed)", (int)got,
                     (int)cases[i].rank);
        }
    }
    varve_plumbing_close(plumbing);
}

TEST(test_python)
{
    static const struct {
        const char *file;
        enum varve_frame_rank rank;
    } cases[] = {
        {"/opt/me/train.py", VARVE_FRAME_USER},
        {"train.py", VARVE_FRAME_USER},
        {"/tmp/ipykernel_12/3.py", VARVE_FRAME_USER},
        {"<string>", VARVE_FRAME_GENERATED},
        {"<template>", VARVE_FRAME_GENERATED},
        {"<ipython-input-3-abc>", VARVE_FRAME_USER},
        {"<stdin>", VARVE_FRAME_USER},
        {"<frozen importlib._bootstrap>", VARVE_FRAME_PLUMBING},
        {"<frozen zipfile>", VARVE_FRAME_LIBRARY},
        {"/usr/lib/python3.11/json/decoder.py", VARVE_FRAME_LIBRARY},
        {"/usr/lib/python3/dist-packages/numpy/core/numeric.py", VARVE_FRAME_LIBRARY},
        {"/opt/me/venv/lib/python3.12/site-packages/flask/app.py", VARVE_FRAME_LIBRARY},
        {"/opt/me/miniconda3/lib/python3.10/queue.py", VARVE_FRAME_LIBRARY},
        /* what runs others' code, by which it is passed over */
        {"<frozen runpy>", VARVE_FRAME_SOURCE},
        {"/opt/me/miniconda3/lib/python3.10/threading.py", VARVE_FRAME_SOURCE},
        {"/opt/me/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", VARVE_FRAME_SOURCE},
        {"/opt/me/src/pytorch/torch/optim/adam.py", VARVE_FRAME_SOURCE},
        {"/opt/me/threading.py", VARVE_FRAME_USER},
        {"/tmp/torchinductor_me/ab/cabcdef.py", VARVE_FRAME_PLUMBING},
        {"<eval_with_key>.3", VARVE_FRAME_PLUMBING},
        {NULL, VARVE_FRAME_LIBRARY},
    };
    struct varve_plumbing *plumbing;
    assert_int_equal(varve_plumbing_open(&plumbing), VARVE_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (rank(plumbing, true, "f", cases[i].file, NULL) != cases[i].rank) {
            fail_msg("%s: rank %d", cases[i].file != NULL ? cases[i].file : "(no file)",
                     (int)rank(plumbing, true, "f", cases[i].file, NULL));
        }
    }
    varve_plumbing_close(plumbing);
}

TEST(test_patterns_of_users)
{
    struct varve_message message = {0};
    struct varve_plumbing *plumbing;
    assert_int_equal(varve_plumbing_open(&plumbing), VARVE_OK);
    assert_int_equal(rank(plumbing, false, "arena_get", "arena.c", "/a"), VARVE_FRAME_SOURCE);
    assert_int_equal(varve_plumbing_add(plumbing, "arena_*", &message), VARVE_OK);
    assert_int_equal(rank(plumbing, false, "arena_get", "arena.c", "/a"), VARVE_FRAME_PLUMBING);
    assert_int_equal(varve_plumbing_add(plumbing, "*/third_party/*", &message), VARVE_OK);
    assert_int_equal(rank(plumbing, false, "f", "/src/third_party/x.c", "/a"), VARVE_FRAME_PLUMBING);
    assert_int_equal(rank(plumbing, false, "f", "/src/x.c", "/opt/third_party/a.so"), VARVE_FRAME_RUNTIME);
    assert_int_equal(rank(plumbing, true, "f", "/src/third_party/x.py", NULL), VARVE_FRAME_PLUMBING);
    assert_int_equal(
        varve_plumbing_add_lines(plumbing,
                                 "# mine\n\n  library:/opt/framework/* \r\nfunction:helper\nframework:/opt/run/*\n"
                                 "user:*/site-packages/mine/*",
                                 &message),
        VARVE_OK);
    assert_int_equal(rank(plumbing, true, "f", "/x/site-packages/mine/a.py", NULL), VARVE_FRAME_USER);
    assert_int_equal(rank(plumbing, true, "f", "/x/site-packages/other/a.py", NULL), VARVE_FRAME_LIBRARY);
    assert_int_equal(rank(plumbing, true, "f", "/opt/run/a.py", NULL), VARVE_FRAME_SOURCE);
    assert_int_equal(rank(plumbing, true, "f", "/opt/framework/a.py", NULL), VARVE_FRAME_LIBRARY);
    assert_int_equal(rank(plumbing, true, "helper", "/me/a.py", NULL), VARVE_FRAME_PLUMBING);
    assert_int_equal(varve_plumbing_add(plumbing, "", &message), VARVE_ERROR_INVALID);
    assert_int_equal(varve_plumbing_add(plumbing, "module:", &message), VARVE_ERROR_INVALID);
    assert_non_null(strstr(message.text, "'module:'"));
    assert_int_equal(varve_plumbing_add_lines(plumbing, "a\nfile:\n", &message), VARVE_ERROR_INVALID);
    assert_non_null(strstr(message.text, "line 2"));
    varve_plumbing_close(plumbing);
}
