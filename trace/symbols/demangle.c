/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work is done by libiberty, GCC's library of demanglers. Names come from files that anybody may have written, and
 * a name of 300 characters can stand for one of gigabytes, since a part may stand for two of an earlier one; libiberty
 * bounds its recursion, not what it writes. So text that grows too long is left in the middle, by longjmp, which is the
 * only way out of a callback; what is lost then is at most the buffer of one identifier. Called by symbols.c, dwarf.c.
 */
#include "trace/symbols/demangle.h"

#include "base/grown_array.h"

#include <demangle.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_MAX ((size_t)64 << 10)

static const char llvm[] = ".llvm.";

struct output {
    struct symbols_demangler *demangler;
    jmp_buf give_up;
};

bool symbols_is_mangled(const char *name)
{
    return strncmp(name, "_Z", 2) == 0 || strncmp(name, "_R", 2) == 0;
}

static bool demangle_append(struct symbols_demangler *demangler, const char *text, size_t length)
{
    if (length >= TEXT_BYTES_MAX - demangler->length ||
        !ARRAY_GROW(demangler->text, demangler->capacity, demangler->length + length + 1)) {
        return false;
    }
    memcpy(demangler->text + demangler->length, text, length);
    demangler->length += length;
    demangler->text[demangler->length] = '\0';
    return true;
}

static void write_part(const char *text, size_t length, void *context)
{
    struct output *output = context;
    if (!demangle_append(output->demangler, text, length)) {
        longjmp(output->give_up, 1);
    }
}

/* Rust's older scheme is one of C++'s names with a hash behind it: it has to be tried first. */
static bool demangle_write_name(struct symbols_demangler *demangler, const char *name)
{
    struct output output = {.demangler = demangler};
    demangler->length = 0;
    if (setjmp(output.give_up) != 0) {
        return false;
    }
    if (rust_demangle_callback(name, DMGL_NO_OPTS, write_part, &output) != 0) {
        return demangler->length > 0;
    }
    demangler->length = 0; /* it may have begun */
    return name[1] == 'Z' && cplus_demangle_v3_callback(name, DMGL_PARAMS | DMGL_TYPES, write_part, &output) != 0 &&
           demangler->length > 0;
}

/* LLVM makes a local function global, to use it in another unit, by .llvm. and a hash behind its name; further parts
 * (.cold) may follow. Where that begins, and how long it is: 0, there is none. Source: the crate rustc-demangle. */
static const char *find_llvm(const char *name, size_t *length_out)
{
    const char *at = strstr(name, llvm);
    const size_t digits = at != NULL ? strspn(at + strlen(llvm), "0123456789abcdefABCDEF@") : 0;
    const char *rest = digits > 0 ? at + strlen(llvm) + digits : NULL;
    *length_out = rest != NULL && (*rest == '\0' || *rest == '.') ? (size_t)(rest - at) : 0;
    return at;
}

/* The name without that. Owner: the caller, by free; NULL without memory. */
static char *without_llvm(const char *name, const char *at, size_t length)
{
    const size_t front = (size_t)(at - name);
    char *plain = strdup(name);
    if (plain != NULL) {
        memmove(plain + front, plain + front + length, strlen(plain + front + length) + 1);
    }
    return plain;
}

const char *symbols_demangle(struct symbols_demangler *demangler, const char *name)
{
    size_t length;
    const char *at = find_llvm(name, &length);
    char *plain = length > 0 ? without_llvm(name, at, length) : NULL;
    const char *mangled = plain != NULL ? plain : name;
    bool is_written = symbols_is_mangled(mangled) && demangle_write_name(demangler, mangled);
    if (!is_written && plain != NULL) {
        demangler->length = 0;
        is_written = demangle_append(demangler, plain, strlen(plain));
    }
    free(plain);
    return is_written ? demangler->text : name;
}

void symbols_demangler_free(struct symbols_demangler *demangler)
{
    free(demangler->text);
    *demangler = (struct symbols_demangler){0};
}
