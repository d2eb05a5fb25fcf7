/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DWARF expressions of unwind tables, evaluated by their meaning: the result is a register or a word of the
 * stack plus a constant, known before the stack is. That covers what is found in the wild: PLT stubs (the
 * CFA depends on the address alone), realigned stacks and signal frames. Called by unwind_rules.c.
 *
 * Source: DWARF 4, section 2.5; System V ABI for AMD64, figure 3.36 (register numbers).
 */
#include "trace/stacks/unwind_expression.h"
#include "trace/stacks/unwind_table.h"

enum { EXPRESSION_STACK = 8 };

struct expression {
    struct unwind_term stack[EXPRESSION_STACK];
    unsigned count;
    bool bad;
};

static void term_push(struct expression *terms, enum unwind_base base, int64_t value)
{
    if (terms->count == EXPRESSION_STACK) {
        terms->bad = true;
        return;
    }
    terms->stack[terms->count++] = (struct unwind_term){base, value};
}

static struct unwind_term term_pop(struct expression *terms)
{
    if (terms->count == 0) {
        terms->bad = true;
        return (struct unwind_term){UNWIND_BASE_NONE, 0};
    }
    return terms->stack[--terms->count];
}

static void term_binary(struct expression *terms, unsigned opcode)
{
    struct unwind_term right = term_pop(terms);
    struct unwind_term left = term_pop(terms);
    if (opcode == 0x22 && left.base == UNWIND_BASE_NONE) { /* plus: keep the register on the left */
        struct unwind_term swap = left;
        left = right;
        right = swap;
    }
    if (right.base != UNWIND_BASE_NONE || (left.base != UNWIND_BASE_NONE && opcode != 0x22) ||
        left.base >= UNWIND_BASE_AT_RSP) {
        terms->bad = true;
        return;
    }
    switch (opcode) {
    case 0x1a: /* and */
        term_push(terms, UNWIND_BASE_NONE, left.value & right.value);
        break;
    case 0x22: /* plus */
        term_push(terms, left.base, (int64_t)((uint64_t)left.value + (uint64_t)right.value));
        break;
    case 0x24: /* shl */
        term_push(terms, UNWIND_BASE_NONE, (int64_t)((uint64_t)left.value << ((uint64_t)right.value & 63)));
        break;
    default: /* ge */
        term_push(terms, UNWIND_BASE_NONE, left.value >= right.value);
        break;
    }
}

static void term_dereference(struct expression *terms)
{
    struct unwind_term top = term_pop(terms);
    if (top.base != UNWIND_BASE_RSP && top.base != UNWIND_BASE_RBP) {
        terms->bad = true;
        return;
    }
    term_push(terms, top.base == UNWIND_BASE_RSP ? UNWIND_BASE_AT_RSP : UNWIND_BASE_AT_RBP, top.value);
}

struct unwind_term unwind_expression_evaluate(struct unwind_reader code, uintptr_t address)
{
    struct expression terms = {.count = 0};
    while (code.at < code.end && !terms.bad && !code.bad) {
        unsigned opcode = (unsigned)unwind_read_fixed(&code, 1);
        if (opcode >= 0x30 && opcode <= 0x4f) { /* lit0 to lit31 */
            term_push(&terms, UNWIND_BASE_NONE, (int64_t)opcode - 0x30);
        } else if (opcode == 0x70 + UNWIND_REGISTER_RSP || opcode == 0x70 + UNWIND_REGISTER_RBP) { /* breg */
            term_push(&terms, opcode == 0x70 + UNWIND_REGISTER_RSP ? UNWIND_BASE_RSP : UNWIND_BASE_RBP,
                      unwind_read_sleb(&code));
        } else if (opcode == 0x70 + UNWIND_REGISTER_RIP) {
            term_push(&terms, UNWIND_BASE_NONE, (int64_t)((uint64_t)address + (uint64_t)unwind_read_sleb(&code)));
        } else if (opcode == 0x08) { /* const1u */
            term_push(&terms, UNWIND_BASE_NONE, (int64_t)unwind_read_fixed(&code, 1));
        } else if (opcode == 0x23) { /* plus_uconst */
            term_push(&terms, UNWIND_BASE_NONE, (int64_t)unwind_read_uleb(&code));
            term_binary(&terms, 0x22);
        } else if (opcode == 0x06) {
            term_dereference(&terms);
        } else if (opcode == 0x1a || opcode == 0x22 || opcode == 0x24 || opcode == 0x2a) {
            term_binary(&terms, opcode);
        } else {
            terms.bad = true;
        }
    }
    if (terms.bad || code.bad || terms.count != 1) {
        return (struct unwind_term){UNWIND_BASE_NONE, 0};
    }
    return terms.stack[0];
}
