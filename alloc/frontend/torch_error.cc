/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.OutOfMemoryError without PyTorch's headers or libraries. What PyTorch's allocator throws is the class
 * c10::OutOfMemoryError, which adds nothing to c10::Error, so an object of it is one of c10::Error with
 * another table of virtual functions. The constructor of the one and the table of the other are symbols of
 * libraries that are loaded when PyTorch asks for memory; they are looked up there.
 *
 * All that is taken for granted of c10 is checked before it is used: that the table belongs to a class of
 * that name whose only base is c10::Error. An object may be as large as OBJECT_BYTES (of 2.11 it has 128).
 * Whatever is not as expected means std::runtime_error, with the same words.
 */
#include "alloc/frontend/torch_error.h"
#include "alloc/frontend/torch_symbols.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cxxabi.h>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <utility>

namespace
{

constexpr std::size_t OBJECT_BYTES = 1024;

const char ERROR_CONSTRUCTOR[] = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_"
                                 "traitsIcESaIcEEE";
const char OUT_OF_MEMORY_TABLE[] = "_ZTVN3c1016OutOfMemoryErrorE";
const char OUT_OF_MEMORY_NAME[] = "N3c1016OutOfMemoryErrorE";
const char ERROR_NAME[] = "N3c105ErrorE";

/* c10::SourceLocation */
struct source_location {
    const char *function;
    const char *file;
    std::uint32_t line;
};

using error_construct = void (*)(void *object, source_location where, std::string text);
using error_destroy = void (*)(void *object);

/* Entries of a table of virtual functions; an object points behind the first two. */
enum table_entry { TABLE_TOP_OFFSET, TABLE_TYPE, TABLE_DESTROY };

/* What c10 is in this process; zero where it is not there. */
struct c10_symbols {
    error_construct construct;
    void **table;
};

bool is_out_of_memory_table(void *const *table)
{
    const auto *type = static_cast<const std::type_info *>(table[TABLE_TYPE]);
    const abi::__si_class_type_info *single;

    if (table[TABLE_TOP_OFFSET] != nullptr || type == nullptr ||
        std::strcmp(type->name(), OUT_OF_MEMORY_NAME) != 0) {
        return false;
    }
    single = dynamic_cast<const abi::__si_class_type_info *>(type);
    return single != nullptr && std::strcmp(single->__base_type->name(), ERROR_NAME) == 0;
}

c10_symbols find_c10()
{
    static const char *const libraries[] = {"libc10_cuda.so", "libtorch_python.so", "libtorch_cuda.so",
                                            "libc10.so"};
    c10_symbols found = {};
    void *construct = torch_symbol_find("libc10.so", ERROR_CONSTRUCTOR);

    for (const char *library : libraries) {
        auto **table = static_cast<void **>(torch_symbol_find(library, OUT_OF_MEMORY_TABLE));

        if (table != nullptr && is_out_of_memory_table(table)) {
            found.table = table;
            break;
        }
    }
    if (construct != nullptr && found.table != nullptr) {
        std::memcpy(&found.construct, &construct, sizeof(construct));
    }
    return found;
}

[[noreturn]] void throw_c10(const c10_symbols &c10, const char *text)
{
    void *object = abi::__cxa_allocate_exception(OBJECT_BYTES);
    void *address_point = c10.table + TABLE_DESTROY;
    error_destroy destroy;

    try {
        c10.construct(object, source_location{"varve_torch_alloc", "libvarve-torch.so", 0},
                      std::string(text));
    } catch (...) {
        abi::__cxa_free_exception(object);
        throw;
    }
    std::memcpy(object, &address_point, sizeof(address_point));
    std::memcpy(&destroy, &c10.table[TABLE_DESTROY], sizeof(destroy));
    abi::__cxa_throw(object, static_cast<std::type_info *>(c10.table[TABLE_TYPE]), destroy);
}

/* A pointer, since what a library that is loaded late may take of a thread's own memory is little. */
__thread std::exception_ptr *kept;

} // namespace

void torch_keep_exception(std::exception_ptr thrown)
{
    delete kept;
    kept = new std::exception_ptr(std::move(thrown));
}

void torch_throw_kept()
{
    if (kept != nullptr) {
        std::exception_ptr thrown = std::move(*kept);

        delete kept;
        kept = nullptr;
        std::rethrow_exception(thrown);
    }
}

void torch_throw_out_of_memory(const char *text)
{
    c10_symbols c10 = find_c10();

    if (c10.construct != nullptr) {
        throw_c10(c10, text);
    }
    throw std::runtime_error(text);
}
