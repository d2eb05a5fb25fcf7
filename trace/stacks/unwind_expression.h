/* SPDX-License-Identifier: Apache-2.0 */
/* DWARF expressions of unwind tables, as a register or a word of the stack plus a constant. */
#ifndef VARVE_TRACE_STACKS_UNWIND_EXPRESSION_H
#define VARVE_TRACE_STACKS_UNWIND_EXPRESSION_H

#include "trace/stacks/unwind_table.h"

#include <stdint.h>

enum unwind_register { UNWIND_REGISTER_RBP = 6, UNWIND_REGISTER_RSP = 7, UNWIND_REGISTER_RIP = 16 };

enum unwind_base {
    UNWIND_BASE_NONE,
    UNWIND_BASE_RSP,
    UNWIND_BASE_RBP,
    UNWIND_BASE_AT_RSP, /* the word at a distance from where rsp points */
    UNWIND_BASE_AT_RBP,
};

struct unwind_term {
    enum unwind_base base;
    int64_t value; /* added to the register, or to the address of the word */
};

/// What `code` computes when executed at `address`; base UNWIND_BASE_NONE if that is unknown.
struct unwind_term unwind_expression_evaluate(struct unwind_reader code, uintptr_t address);

#endif
