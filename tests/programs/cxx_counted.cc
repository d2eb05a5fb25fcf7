// SPDX-License-Identifier: Apache-2.0
//
// Every form of operator new and delete, pairs of new and free, requests that fail, a new_handler: a line of JSON for
// each allocation, with a size that nothing else has, and at the end the sums of what lies between the two marks
// (blocks of MARK bytes from malloc). Nothing is printed meanwhile. With an argument no request fails: an allocator
// that was built without C++ ends the program then.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace
{

constexpr std::size_t MARK = 7654321, LINES = 4096;

struct Line {
    const char *form;
    std::uintptr_t addr;
    std::size_t size, alignment;
    bool is_freed;
};

Line lines[LINES];
std::size_t line_count;
std::size_t next_size = 20011;
unsigned long long allocations, bytes, frees;
void *volatile sink; // so that no pair of new and delete is taken away

std::size_t size_of_next()
{
    return next_size += 2;
}

void *took(const char *form, void *memory, std::size_t size, std::size_t alignment = 0)
{
    sink = memory;
    if (memory == nullptr || (alignment != 0 && reinterpret_cast<std::uintptr_t>(memory) % alignment != 0)) {
        std::abort();
    }
    lines[line_count++] = {form, reinterpret_cast<std::uintptr_t>(memory), size, alignment, true};
    allocations++;
    bytes += size;
    frees++;
    return memory;
}

void plain()
{
    std::size_t size = size_of_next();
    ::operator delete(took("new", ::operator new(size), size));
    size = size_of_next();
    ::operator delete(took("new", ::operator new(size), size), size);
    size = size_of_next();
    ::operator delete(took("new nothrow", ::operator new(size, std::nothrow), size), std::nothrow);
    size = size_of_next();
    ::operator delete[](took("new[]", ::operator new[](size), size));
    size = size_of_next();
    ::operator delete[](took("new[]", ::operator new[](size), size), size);
    size = size_of_next();
    ::operator delete[](took("new[] nothrow", ::operator new[](size, std::nothrow), size), std::nothrow);
}

void aligned()
{
    const std::align_val_t at{128};
    // A multiple of the alignment, to which the C++ library may round what it asks of aligned_alloc.
    const auto next = [] { return size_of_next() * 128; };
    std::size_t size = next();
    ::operator delete(took("new aligned", ::operator new(size, at), size, 128), at);
    size = next();
    ::operator delete(took("new aligned", ::operator new(size, at), size, 128), size, at);
    size = next();
    ::operator delete(took("new aligned nothrow", ::operator new(size, at, std::nothrow), size, 128), at, std::nothrow);
    size = next();
    ::operator delete[](took("new[] aligned", ::operator new[](size, at), size, 128), at);
    size = next();
    ::operator delete[](took("new[] aligned", ::operator new[](size, at), size, 128), size, at);
    size = next();
    ::operator delete[](took("new[] aligned nothrow", ::operator new[](size, at, std::nothrow), size, 128), at,
                        std::nothrow);
}

// What the standard forbids and every allocator here allows.
void mixed()
{
    std::size_t size = size_of_next();
    std::free(took("new", ::operator new(size), size));
    size = size_of_next();
    ::operator delete(took("malloc", std::malloc(size), size));
    size = size_of_next();
    void *block = took("new[]", ::operator new[](size), size);
    size = size_of_next();
    std::free(took("realloc", std::realloc(block, size), size));
}

unsigned handled;
void *reserve;

void handler()
{
    std::size_t size = size_of_next();
    ::operator delete[](took("new[]", ::operator new[](size), size));
    if (++handled == 2) {
        std::free(reserve);
        std::set_new_handler(nullptr);
    }
}

[[gnu::noinline]] unsigned fail()
{
    volatile std::size_t huge = SIZE_MAX / 2 - 4096;
    std::size_t size = size_of_next();
    unsigned caught = 0;

    reserve = took("malloc", std::malloc(size), size);
    std::set_new_handler(handler);
    try {
        sink = ::operator new(huge);
    } catch (const std::bad_alloc &) {
        caught++;
    }
    if (handled != 2 || std::get_new_handler() != nullptr) {
        std::abort();
    }
    try {
        sink = ::operator new[](huge, std::align_val_t{64});
    } catch (const std::bad_alloc &) {
        caught++;
    }
    caught += ::operator new(huge, std::nothrow) == nullptr;
    caught += ::operator new[](huge, std::align_val_t{64}, std::nothrow) == nullptr;
    return caught;
}

void mark()
{
    void *volatile block = std::malloc(MARK);
    std::free(block);
}

} // namespace

int main(int argc, char **)
{
    const bool may_fail = argc == 1;
    unsigned caught = 0;

    ::operator delete(::operator new(1)); // what is set up by the first is not of the count
    if (may_fail) {
        fail();
    }
    handled = 0;
    line_count = 0;
    allocations = bytes = frees = 0;
    mark();
    for (int i = 0; i < 8; i++) {
        plain();
        aligned();
        mixed();
    }
    if (may_fail) {
        caught = fail();
    }
    std::size_t size = size_of_next();
    took("new", ::operator new(size), size);
    lines[line_count - 1].is_freed = false;
    frees--;
    mark();
    for (std::size_t i = 0; i < line_count; i++) {
        std::printf("{\"form\":\"%s\",\"addr\":%llu,\"size\":%zu,\"alignment\":%zu,\"freed\":%d}\n", lines[i].form,
                    static_cast<unsigned long long>(lines[i].addr), lines[i].size, lines[i].alignment,
                    lines[i].is_freed ? 1 : 0);
    }
    std::printf("{\"allocations\":%llu,\"bytes\":%llu,\"frees\":%llu,\"caught\":%u,\"handled\":%u}\n", allocations,
                bytes, frees, caught, handled);
    return 0;
}
