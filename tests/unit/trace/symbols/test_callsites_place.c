/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which line of a stack stands for it: written as letters, innermost first, and the place that a reader would
 * name. m an allocation function, n the program's native code, u native code without a name, i the
 * interpreter, t native code of PyTorch, d the CUDA driver, T Python code of PyTorch, p the program's Python.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "trace/symbols/callsites/merge.h"

#include <string.h>

static uint32_t roles_of(char letter)
{
    switch (letter) {
    case 'm':
    case 'd':
        return CALLSITES_ROLE_ALLOCATION;
    case 'u':
        return CALLSITES_ROLE_UNNAMED;
    case 'i':
        return CALLSITES_ROLE_INTERPRETER;
    case 't':
        return CALLSITES_ROLE_TORCH;
    case 'T':
        return CALLSITES_ROLE_PYTHON | CALLSITES_ROLE_TORCH;
    case 'p':
        return CALLSITES_ROLE_PYTHON;
    default:
        return 0;
    }
}

/* Where the place is, from 0; -1: the stack is empty. */
static int place_of(const char *stack)
{
    struct callsites_line lines[32] = {{0}};
    const uint32_t count = (uint32_t)strlen(stack);
    for (uint32_t i = 0; i < count; i++) {
        lines[count - i] =
            (struct callsites_line){.parent = count - i - 1, .symbol = i + 1, .roles = roles_of(stack[i])};
    }
    return (int)callsites_line_symbol(lines, count) - 1;
}

TEST(test_places)
{
    static const struct {
        const char *stack;
        int place;
    } cases[] = {
        {"", -1},
        {"mnn", 1},
        {"mmm", 2},
        {"mip", 2},
        {"mup", 2},
        {"mun", 1},
        {"mnp", 1},
        /* a tensor made by PyTorch: the program's line, past PyTorch's own */
        {"mttip", 4},
        {"mttiTiTip", 8},
        {"ddttip", 5},
        {"mttTTp", 5},
        {"mtmtTnp", 6},
        /* nothing but PyTorch's Python: its innermost line */
        {"mttiTiT", 4},
        {"mtTT", 2},
        /* stacks of Python alone */
        {"TTp", 2},
        {"pTp", 0},
        {"TT", 0},
        /* native code of the program between: that is the place */
        {"mttnp", 1},
        {"mntp", 1},
        {"dnp", 1},
        /* a thread of PyTorch without Python */
        {"mttn", 1},
        {"mtt", 1},
        {"ddd", 2},
        /* the driver alone, called from Python by something else */
        {"ddip", 2 + 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        if (place_of(cases[i].stack) != cases[i].place) {
            fail_msg("%s: place %d, expected %d", cases[i].stack, place_of(cases[i].stack), cases[i].place);
        }
    }
}
