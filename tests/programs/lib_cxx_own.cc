// SPDX-License-Identifier: Apache-2.0
//
// A library with an operator new of its own, which nobody else sees: it must get this one and no other. It has its own
// memory, 50 blocks of which come from no malloc.
#include <cstddef>

namespace
{

alignas(64) unsigned char pool[50 * 256];
unsigned char *volatile start = pool; // volatile: compilers know that new returns nothing that has a name
volatile unsigned taken, given;

} // namespace

__attribute__((visibility("default"))) void *operator new(std::size_t size)
{
    (void)size;
    taken = taken + 1;
    return start + (taken - 1) * 256;
}

__attribute__((visibility("default"))) void operator delete(void *) noexcept
{
    given = given + 1;
}

__attribute__((visibility("default"))) void operator delete(void *, std::size_t) noexcept
{
    given = given + 1;
}

extern "C" __attribute__((visibility("default"))) int plugin_run()
{
    taken = given = 0;
    for (int i = 0; i < 50; i++) {
        unsigned char *volatile block = static_cast<unsigned char *>(::operator new(32));
        if (block != start + i * 256) {
            return 1;
        }
        ::operator delete(block);
    }
    return taken == 50 && given == 50 ? 0 : 1;
}
