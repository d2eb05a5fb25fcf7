/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libvarve-torch.so looks for in PyTorch's c10: an error class with a constructor of that name, and one
 * for want of memory that only has another table of virtual functions. Members are others than PyTorch's,
 * which must not matter.
 */
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>

#define SHOWN __attribute__((visibility("default")))

namespace c10
{

struct SHOWN SourceLocation {
    const char *function;
    const char *file;
    std::uint32_t line;
};

class SHOWN Error : public std::exception
{
    std::string text;
    std::shared_ptr<int> counted;
    std::string whole;

  public:
    Error(SourceLocation where, std::string message);
    const char *what() const noexcept override;
    virtual const char *what_without_backtrace() const noexcept;
    ~Error() override;
};

class SHOWN OutOfMemoryError : public Error
{
    using Error::Error;
};

static int alive;

Error::Error(SourceLocation where, std::string message)
    : text(std::move(message)), counted(new int(0)), whole(std::string(where.function) + ": " + text)
{
    alive++;
}

Error::~Error()
{
    alive--;
}

const char *Error::what() const noexcept
{
    return whole.c_str();
}

const char *Error::what_without_backtrace() const noexcept
{
    return text.c_str();
}

} // namespace c10

/* Objects that nobody has destroyed. */
extern "C" SHOWN int c10_alive()
{
    return c10::alive;
}

/* Somebody has to make one, or there is no table. */
extern "C" SHOWN void c10_throw()
{
    throw c10::OutOfMemoryError({"c10_throw", "", 0}, "made here");
}
