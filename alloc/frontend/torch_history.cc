/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The history that PyTorch keeps of its own allocator, written by PyTorch's C++: threads of Python go on meanwhile.
 * torch/csrc/cuda/memory_snapshot.h declares the function; its name in a library says which std::string it returns.
 */
#include "alloc/frontend/torch.h"
#include "alloc/frontend/torch_symbols.h"
#include "base/error.h"

#include <cstdio>
#include <exception>
#include <memory>
#include <string>

namespace
{

const char snapshot_symbol[] = "_ZN5torch4cuda24_memory_snapshot_pickledB5cxx11Ev";

using snapshot_pickled = std::string();

struct file_close {
    void operator()(std::FILE *file) const
    {
        (void)std::fclose(file);
    }
};

int file_write(const char *path, const std::string &text)
{
    const std::unique_ptr<std::FILE, file_close> file(std::fopen(path, "we"));
    if (file == nullptr || std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
        std::fflush(file.get()) != 0) {
        return VARVE_ERROR_IO;
    }
    return VARVE_OK;
}

} // namespace

int varve_torch_write_history(const char *path)
{
    void *found = torch_symbol_find("libtorch_cuda.so", snapshot_symbol);
    if (found == nullptr) {
        return 1;
    }
    try {
        return file_write(path, reinterpret_cast<snapshot_pickled *>(found)());
    } catch (const std::exception &) {
        return 1;
    }
}
