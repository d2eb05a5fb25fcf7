// SPDX-License-Identifier: Apache-2.0
//
// A program with an operator new of its own: 32 bytes in front of each block. The forms that it does not define come
// from the C++ library, which calls those that it does. Exit status 1 if another one was called.
#include <cstdio>
#include <cstdlib>
#include <new>

namespace
{

unsigned calls;
void *volatile sink;

} // namespace

void *operator new(std::size_t size)
{
    calls++;
    unsigned char *block = static_cast<unsigned char *>(std::malloc(size + 32));
    if (block == nullptr) {
        throw std::bad_alloc();
    }
    return block + 32;
}

void operator delete(void *memory) noexcept
{
    if (memory != nullptr) {
        calls++;
        std::free(static_cast<unsigned char *>(memory) - 32);
    }
}

void operator delete(void *memory, std::size_t) noexcept
{
    ::operator delete(memory);
}

int main()
{
    for (int i = 0; i < 40; i++) {
        sink = ::operator new(41011);
        ::operator delete(sink);
        sink = ::operator new[](41011);
        ::operator delete[](sink);
        sink = ::operator new(41011, std::nothrow);
        ::operator delete(sink, std::nothrow);
    }
    return calls == 240 ? 0 : 1;
}
