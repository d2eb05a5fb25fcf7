/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which names are allocation functions, which the interpreter's, which our own: by examples of both kinds, as
 * compilers, C++ demanglers and Python builds write them.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "trace/symbols/callsites/names.h"

static void expect_all(const char *const *names, size_t count, bool is_allocation)
{
    for (size_t i = 0; i < count; i++) {
        if (callsites_name_is_allocation(names[i]) != is_allocation) {
            fail_msg("%s is %s allocation function", names[i], is_allocation ? "an" : "no");
        }
    }
}

TEST(test_allocation_functions)
{
    static const char *const names[] = {
        "malloc",
        "calloc",
        "realloc",
        "reallocarray",
        "posix_memalign",
        "aligned_alloc",
        "memalign",
        "valloc",
        "pvalloc",
        "strdup",
        "strndup",
        "__strdup",
        "operator new(unsigned long)",
        "operator new[](unsigned long, std::align_val_t)",
        "mmap",
        "mmap64",
        "mremap",
        "g_malloc",
        "g_malloc0_n",
        "g_try_realloc",
        "xmalloc",
        "xrealloc",
        "xcalloc",
        "xstrdup",
        "PyMem_RawMalloc",
        "PyMem_Malloc",
        "PyObject_Malloc",
        "_PyObject_GC_Alloc",
        "_PyMem_RawMalloc",
        "xmalloc.part.0",
        "malloc.cold",
        "std::allocator<int>::allocate(unsigned long, void const*)",
        "std::allocator_traits<std::allocator<int> >::allocate(std::allocator<int>&, unsigned long)",
        "__gnu_cxx::new_allocator<char>::allocate(unsigned long)",
        "std::__new_allocator<char>::allocate(unsigned long, void const*)",
        "strdup@@GLIBC_2.2.5",
        "__GI___strdup",
        "std::_Vector_base<int, std::allocator<int> >::_M_allocate(unsigned long)",
        "std::__cxx11::basic_string<char>::_M_create(unsigned long&, unsigned long)",
        "node* std::_Rb_tree<int>::_M_create_node<int const&>(int const&)"};
    expect_all(names, sizeof(names) / sizeof(*names), true);
}

TEST(test_allocation_functions_of_gpus)
{
    static const char *const names[] = {
        "cudaMalloc",
        "cudaMallocAsync_ptsz",
        "cudaError cudaMallocManaged<float>(float**, unsigned long, unsigned int)",
        "cudaHostAlloc",
        "cuMemAlloc_v2",
        "cuMemCreate",
        "__cudart1234",
        "varve_torch_alloc",
        "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(signed char, unsigned long, "
        "CUstream_st*)",
        "c10::cuda::CUDACachingAllocator::raw_alloc(unsigned long)",
        "torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator::malloc(unsigned long, signed char, "
        "CUstream_st*)",
        "c10::cuda::(anonymous namespace)::DefaultCUDAAllocator::allocate(unsigned long)",
        "at::CachingHostAllocatorImpl<c10::cuda::CUDAStream>::allocate(unsigned long)",
        "c10::StorageImpl::StorageImpl(c10::StorageImpl::use_byte_size_t, c10::SymInt const&, "
        "c10::Allocator*, "
        "bool)",
        "at::empty(c10::ArrayRef<long>, c10::TensorOptions, std::optional<c10::MemoryFormat>)",
        "at::detail::empty_cuda(c10::ArrayRef<long>, c10::ScalarType, std::optional<c10::Device>)",
        "at::TensorBase at::detail::_empty_generic<c10::ArrayRef<long> >(c10::ArrayRef<long>, "
        "c10::Allocator*)",
        "at::native::empty_cuda(c10::ArrayRef<long>, std::optional<c10::ScalarType>)",
        "at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>)"};
    expect_all(names, sizeof(names) / sizeof(*names), true);
}

TEST(test_other_functions)
{
    static const char *const names[] = {"main",
                                        "mallocate",
                                        "mallo",
                                        "malloc_info",
                                        "my_malloc",
                                        "",
                                        "operator new_thing()",
                                        "PyObject_Call",
                                        "std::allocator<int>::deallocate(int*, unsigned long)",
                                        "std::vector<int>::push_back(int const&)",
                                        "zmalloc",
                                        "a",
                                        "xm",
                                        "at::native::addmm_out_cuda_impl(at::Tensor&, at::empty_thing)",
                                        "at::emptyish()",
                                        "at::native::linear(at::Tensor const&, at::Tensor const&)",
                                        "user::train(c10::cuda::CUDACachingAllocator::Block*)",
                                        "user::Allocator::allocate(unsigned long)",
                                        "c10::Allocator::deleter() const",
                                        "cudaLaunchKernel",
                                        "cuLaunchKernel",
                                        "my_cudaMalloc"};
    expect_all(names, sizeof(names) / sizeof(*names), false);
}

TEST(test_interpreter_and_recorder)
{
    assert_true(callsites_name_is_interpreter_loop("_PyEval_EvalFrameDefault"));
    assert_true(callsites_name_is_interpreter_loop("_PyEval_EvalFrameDefault.constprop.0"));
    assert_true(callsites_name_is_interpreter_loop("_PyEval_EvalFrameDefault.cold"));
    assert_false(callsites_name_is_interpreter_loop("_PyEval_EvalFrame"));
    assert_false(callsites_name_is_interpreter_loop("PyEval_EvalCode"));
    assert_true(callsites_path_is_interpreter("/usr/bin/python3.11"));
    assert_true(callsites_path_is_interpreter("python3"));
    assert_true(callsites_path_is_interpreter("/x/libpython3.12.so.1.0"));
    assert_false(callsites_path_is_interpreter("/usr/lib/python3/dist-packages/x.so"));
    assert_false(callsites_path_is_interpreter("/usr/bin/python-helper"));
    assert_true(callsites_path_is_recorder("/a/libvarve_preload.so"));
    assert_true(callsites_path_is_recorder("libvarve_trace.so.0"));
    assert_false(callsites_path_is_recorder("/a/libvarve_preload.so/libc.so.6"));
    assert_true(callsites_path_is_recorder("/a/libvarve-torch.so"));
    assert_false(callsites_path_is_recorder("/a/varve-torch.so"));
}

TEST(test_cuda_and_torch)
{
    assert_true(callsites_path_is_driver("/usr/lib/x86_64-linux-gnu/libcuda.so.580.65"));
    assert_true(callsites_path_is_driver("/x/nvidia/cuda_runtime/lib/libcudart.so.12"));
    assert_true(callsites_path_is_driver("libcudart-d0da41ae.so.11.0"));
    assert_true(callsites_path_is_driver("/x/libcupti.so.13"));
    assert_false(callsites_path_is_driver("/x/libcudafilter.so"));
    assert_true(callsites_path_is_storage("/usr/lib/libvarve.so.0"));
    assert_false(callsites_path_is_storage("/usr/lib/libvarve_trace.so"));
    assert_false(callsites_path_is_storage("/usr/lib/libvarvel.so"));
    assert_true(callsites_path_is_storage_python("/usr/lib/python3/dist-packages/varve/storage.py"));
    assert_true(callsites_path_is_storage_python("/src/notebooks/varve/library.py"));
    assert_false(callsites_path_is_storage_python("/srv/varve/experiment.py"));
    assert_true(callsites_path_is_torch("/x/torch/lib/libtorch_cuda.so"));
    assert_true(callsites_path_is_torch("/x/torch/lib/libc10_cuda.so"));
    assert_true(callsites_path_is_torch("/x/libcublasLt.so.12"));
    assert_false(callsites_path_is_torch("/x/libcurl.so.4"));
    assert_false(callsites_path_is_torch("/x/libtorch/libmine.so"));
    assert_true(callsites_path_is_torch_python("/x/site-packages/torch/nn/modules/linear.py"));
    assert_true(callsites_path_is_torch_python("/usr/lib/python3/dist-packages/torch/_tensor.py"));
    assert_false(callsites_path_is_torch_python("/x/site-packages/torchvision/models/resnet.py"));
    assert_false(callsites_path_is_torch_python("/srv/torch/train.py"));
}
