/* SPDX-License-Identifier: Apache-2.0 */
/* lib_bypass in C++: operators of the C++ library. */
#include <cstddef>
#include <cstdlib>
#include <cstring>

#pragma GCC visibility push(default)
extern "C" {
void *lib_make(size_t bytes);
void lib_drop(void *memory);
void *lib_regrow(void *memory, size_t bytes);
char *lib_print(int width);
}
#pragma GCC visibility pop

void *lib_make(size_t bytes)
{
    return memset(new char[bytes], 1, bytes);
}

void lib_drop(void *memory)
{
    delete[] static_cast<char *>(memory);
}

void *lib_regrow(void *memory, size_t bytes)
{
    delete[] static_cast<char *>(memory);
    return lib_make(bytes);
}

char *lib_print(int width)
{
    const size_t bytes = static_cast<size_t>(width) + 1;
    return static_cast<char *>(memset(new char[bytes], 0, bytes));
}
