// SPDX-License-Identifier: Apache-2.0
//
// A library that needs the C++ library, which its program has not loaded: 100 blocks of 31,013 bytes from operator new,
// an exception thrown and caught, a new_handler called.
#include <cstdint>
#include <new>

namespace
{

unsigned handled;

void handler()
{
    handled++;
    std::set_new_handler(nullptr);
}

} // namespace

extern "C" __attribute__((visibility("default"))) int plugin_run()
{
    volatile std::size_t huge = SIZE_MAX / 2 - 4096;
    void *volatile blocks[100];
    bool is_caught = false;

    for (auto &block : blocks) {
        block = ::operator new(31013);
    }
    for (auto &block : blocks) {
        ::operator delete(block);
    }
    handled = 0;
    std::set_new_handler(handler);
    try {
        blocks[0] = ::operator new(huge);
    } catch (const std::bad_alloc &) {
        is_caught = true;
    }
    return is_caught && handled == 1 ? 0 : 1;
}
