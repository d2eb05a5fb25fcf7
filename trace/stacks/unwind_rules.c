/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From an address to the 32-bit rule that leaves its frame: runs the call frame instructions of its table
 * entry and keeps what the walk needs, the canonical frame address (CFA), where rbp is saved and that the
 * return address lies at CFA - 8. Expressions for PLT stubs, realigned stacks and signal frames are
 * recognized by their meaning; a CFA in another register than rsp and rbp ends the stack. Called on a miss
 * of the rule cache only.
 */
#include "trace/stacks/native_walk.h"
#include "trace/guest/loaded_object.h"
#include "trace/stacks/unwind_expression.h"
#include "trace/stacks/unwind_table.h"

#include <stddef.h>

/*
 * Source: DWARF 4, sections 2.5 (expressions) and 6.4.2 (call frame instructions); System V ABI for AMD64,
 * figure 3.36 (register numbers).
 */

enum { ROWS_REMEMBERED = 8 };

enum saved_kind {
    SAVED_NOT,    /* the register still holds the caller's value */
    SAVED_NEVER,  /* undefined: for the return address, this frame is the outermost */
    SAVED_OFFSET, /* at CFA + offset */
    SAVED_EXPRESSION,
    SAVED_OTHER,
};

struct saved_register {
    enum saved_kind kind;
    int64_t offset;
    struct unwind_reader expression;
};

/* One row of the table that DWARF describes, for the two registers of interest. */
struct unwind_row {
    bool cfa_is_expression;
    uint64_t cfa_register;
    int64_t cfa_offset;
    struct unwind_reader cfa_expression;
    struct saved_register rbp;
    struct saved_register rip;
};

struct interpreter {
    const struct unwind_entry *entry;
    uintptr_t address; /* the row for this one is wanted */
    uintptr_t location;
    struct unwind_row row;
    struct unwind_row initial; /* after the CIE's instructions, for the restoring ones */
    struct unwind_row remembered[ROWS_REMEMBERED];
    unsigned remembered_count;
};

/* ---- call frame instructions ---- */

static struct saved_register *row_register(struct interpreter *state, struct unwind_row *row, uint64_t number)
{
    if (number == state->entry->return_register) {
        return &row->rip;
    }
    return number == UNWIND_REGISTER_RBP ? &row->rbp : NULL;
}

static void save_at(struct interpreter *state, uint64_t number, int64_t offset)
{
    struct saved_register *saved = row_register(state, &state->row, number);
    if (saved != NULL) {
        *saved = (struct saved_register){.kind = SAVED_OFFSET, .offset = offset};
    }
}

static void save_as(struct interpreter *state, uint64_t number, enum saved_kind kind)
{
    struct saved_register *saved = row_register(state, &state->row, number);
    if (saved != NULL) {
        *saved = (struct saved_register){.kind = kind};
    }
}

static void restore_initial(struct interpreter *state, uint64_t number)
{
    struct saved_register *saved = row_register(state, &state->row, number);
    if (saved != NULL) {
        *saved = *row_register(state, &state->initial, number);
    }
}

static struct unwind_reader block_read(struct unwind_reader *reader)
{
    uint64_t bytes = unwind_read_uleb(reader);
    struct unwind_reader block = {reader->at, reader->at, false};
    if (bytes > (size_t)(reader->end - reader->at)) {
        reader->bad = true;
        return block;
    }
    reader->at += bytes;
    block.end = reader->at;
    return block;
}

static void cfa_set(struct interpreter *state, uint64_t number, int64_t offset)
{
    state->row.cfa_is_expression = false;
    state->row.cfa_register = number;
    state->row.cfa_offset = offset;
}

/* Instructions that define the CFA; false if `opcode` is none of them. */
static bool step_cfa(struct interpreter *state, unsigned opcode, struct unwind_reader *code)
{
    const int64_t data_alignment = state->entry->data_alignment;
    uint64_t number;
    switch (opcode) {
    case 0x0c: /* def_cfa */
        number = unwind_read_uleb(code);
        cfa_set(state, number, (int64_t)unwind_read_uleb(code));
        return true;
    case 0x0d: /* def_cfa_register */
        cfa_set(state, unwind_read_uleb(code), state->row.cfa_offset);
        return true;
    case 0x0e: /* def_cfa_offset */
        cfa_set(state, state->row.cfa_register, (int64_t)unwind_read_uleb(code));
        return true;
    case 0x0f: /* def_cfa_expression */
        state->row.cfa_is_expression = true;
        state->row.cfa_expression = block_read(code);
        return true;
    case 0x12: /* def_cfa_sf */
        number = unwind_read_uleb(code);
        cfa_set(state, number, unwind_read_sleb(code) * data_alignment);
        return true;
    case 0x13: /* def_cfa_offset_sf */
        cfa_set(state, state->row.cfa_register, unwind_read_sleb(code) * data_alignment);
        return true;
    default:
        return false;
    }
}

/* Instructions that say where a register is saved; false if `opcode` is none of them. */
static bool step_register(struct interpreter *state, unsigned opcode, struct unwind_reader *code)
{
    const int64_t data_alignment = state->entry->data_alignment;
    if (opcode < 0x05 || (opcode > 0x11 && opcode != 0x14 && opcode != 0x15 && opcode != 0x16 && opcode != 0x2f)) {
        return false;
    }
    uint64_t number = unwind_read_uleb(code);
    struct saved_register *saved;
    switch (opcode) {
    case 0x05: /* offset_extended */
        save_at(state, number, (int64_t)unwind_read_uleb(code) * data_alignment);
        return true;
    case 0x06: /* restore_extended */
        restore_initial(state, number);
        return true;
    case 0x07: /* undefined */
        save_as(state, number, SAVED_NEVER);
        return true;
    case 0x08: /* same_value */
        save_as(state, number, SAVED_NOT);
        return true;
    case 0x09: /* register */
    case 0x14: /* val_offset */
    case 0x15: /* val_offset_sf */
        (void)unwind_read_uleb(code);
        save_as(state, number, SAVED_OTHER);
        return true;
    case 0x10: /* expression */
    case 0x16: /* val_expression */
        saved = row_register(state, &state->row, number);
        save_as(state, number, opcode == 0x10 ? SAVED_EXPRESSION : SAVED_OTHER);
        if (saved != NULL) {
            saved->expression = block_read(code);
        } else {
            (void)block_read(code);
        }
        return true;
    case 0x11: /* offset_extended_sf */
        save_at(state, number, unwind_read_sleb(code) * data_alignment);
        return true;
    case 0x2f: /* GNU_negative_offset_extended */
        save_at(state, number, -(int64_t)unwind_read_uleb(code) * data_alignment);
        return true;
    default:
        return false;
    }
}

/* The other instructions; sets code->bad at an unknown one. */
static void step_control(struct interpreter *state, unsigned opcode, struct unwind_reader *code)
{
    const uint64_t alignment = state->entry->code_alignment;
    switch (opcode) {
    case 0x00: /* nop */
        break;
    case 0x01: /* set_loc */
        state->location = unwind_read_pointer(code, state->entry->pointer_encoding, 0);
        break;
    case 0x02: /* advance_loc1, 2, 4 */
    case 0x03:
        state->location += unwind_read_fixed(code, opcode == 0x02 ? 1 : 2) * alignment;
        break;
    case 0x04:
        state->location += unwind_read_fixed(code, 4) * alignment;
        break;
    case 0x0a: /* remember_state */
        if (state->remembered_count == ROWS_REMEMBERED) {
            code->bad = true;
            break;
        }
        state->remembered[state->remembered_count++] = state->row;
        break;
    case 0x0b: /* restore_state */
        if (state->remembered_count == 0) {
            code->bad = true;
            break;
        }
        state->row = state->remembered[--state->remembered_count];
        break;
    case 0x2e: /* GNU_args_size: of interest to exceptions only */
        (void)unwind_read_uleb(code);
        break;
    default:
        code->bad = true;
        break;
    }
}

/* Runs instructions up to the row of the wanted address; false if they are malformed. */
static bool unwind_rules_run(struct interpreter *state, struct unwind_reader *code)
{
    while (code->at < code->end && !code->bad && state->location <= state->address) {
        unsigned byte = (unsigned)unwind_read_fixed(code, 1);
        unsigned low = byte & 0x3f;
        switch (byte & 0xc0) {
        case 0x40: /* advance_loc */
            state->location += low * state->entry->code_alignment;
            break;
        case 0x80: /* offset */
            save_at(state, low, (int64_t)unwind_read_uleb(code) * state->entry->data_alignment);
            break;
        case 0xc0: /* restore */
            restore_initial(state, low);
            break;
        default:
            /* remember_state and restore_state lie among the numbers of register instructions */
            if (low == 0x0a || low == 0x0b || (!step_cfa(state, low, code) && !step_register(state, low, code))) {
                step_control(state, low, code);
            }
            break;
        }
    }
    return !code->bad;
}

/* ---- rows to rules ---- */

static uint32_t rule_unknown(void)
{
    return unwind_rule(UNWIND_UNKNOWN, 0, 0);
}

static uint32_t rule_of_base(enum unwind_base base, int64_t offset, uint32_t slot)
{
    if (offset < 8 || offset % 8 != 0 || offset / 8 > (int64_t)UNWIND_OFFSET_MAX) {
        return rule_unknown();
    }
    if (base == UNWIND_BASE_RBP && offset == 16 && slot == 2) {
        return unwind_rule(UNWIND_FRAME, 2, 2);
    }
    return unwind_rule(base == UNWIND_BASE_RBP ? UNWIND_RBP : UNWIND_RSP, slot, (uint32_t)(offset / 8));
}

/* gcc's code for a realigned stack: the CFA was saved below rbp, and rbp points to where rbp was saved. */
static uint32_t rule_of_realigned(const struct unwind_row *row, struct unwind_term cfa, uintptr_t address)
{
    struct unwind_term rbp = {UNWIND_BASE_NONE, 0};
    if (row->rbp.kind == SAVED_EXPRESSION) {
        rbp = unwind_expression_evaluate(row->rbp.expression, address);
    }
    if (rbp.base != UNWIND_BASE_RBP || rbp.value != 0 || cfa.value >= 0 || cfa.value % 8 != 0 ||
        -(cfa.value / 8) > (int64_t)UNWIND_OFFSET_MAX) {
        return rule_unknown();
    }
    return unwind_rule(UNWIND_DRAP, 0, (uint32_t) - (cfa.value / 8));
}

static uint32_t rule_of_row(const struct unwind_row *row, bool is_signal_frame, uintptr_t address)
{
    struct unwind_term cfa = {UNWIND_BASE_NONE, 0};
    if (row->cfa_is_expression) {
        cfa = unwind_expression_evaluate(row->cfa_expression, address);
    } else if (row->cfa_register == UNWIND_REGISTER_RSP || row->cfa_register == UNWIND_REGISTER_RBP) {
        cfa = (struct unwind_term){row->cfa_register == UNWIND_REGISTER_RSP ? UNWIND_BASE_RSP : UNWIND_BASE_RBP,
                                   row->cfa_offset};
    }
    if (row->rip.kind == SAVED_NEVER) {
        return unwind_rule(UNWIND_END, 0, 0);
    }
    /* rsp of the interrupted code, 160 bytes into the ucontext that rsp points to in the trampoline */
    if (is_signal_frame && cfa.base == UNWIND_BASE_AT_RSP && cfa.value == 160) {
        return unwind_rule(UNWIND_SIGNAL, 0, 0);
    }
    if (is_signal_frame || row->rip.kind != SAVED_OFFSET || row->rip.offset != -8) {
        return rule_unknown();
    }
    if (cfa.base == UNWIND_BASE_AT_RBP) {
        return rule_of_realigned(row, cfa, address);
    }
    if (cfa.base != UNWIND_BASE_RSP && cfa.base != UNWIND_BASE_RBP) {
        return rule_unknown();
    }
    if (row->rbp.kind == SAVED_NOT || row->rbp.kind == SAVED_NEVER) {
        return rule_of_base(cfa.base, cfa.value, 0);
    }
    if (row->rbp.kind != SAVED_OFFSET || row->rbp.offset > -16 || row->rbp.offset % 8 != 0 ||
        -(row->rbp.offset / 8) > (int64_t)UNWIND_SLOT_MAX) {
        return rule_unknown();
    }
    return rule_of_base(cfa.base, cfa.value, (uint32_t) - (row->rbp.offset / 8));
}

/* ---- where the last search has stopped ---- */

/* At the row of an address: one behind it in the same function needs no more than the instructions that follow. */
struct progress {
    bool is_valid;
    unsigned generation; /* of the rules */
    struct loaded_object object;
    struct unwind_entry entry;
    struct interpreter state;
    struct unwind_reader code;
};

/* One for all threads: the first call sites of a function mostly come one after the other. Whoever finds it taken does
 * without, so it does not matter when its owner is stopped, or was in the parent of this process. */
static struct {
    bool is_taken; /* atomic */
    struct progress progress;
} last;

/* The tables are read again in place only if all about their object is as it was. */
static bool progress_reaches(const struct progress *last_one, const struct loaded_object *object, uintptr_t address)
{
    return last_one->is_valid && address >= last_one->state.address &&
           address - last_one->entry.start < last_one->entry.bytes &&
           last_one->generation == __atomic_load_n(&rule_generation, __ATOMIC_ACQUIRE) &&
           loaded_object_equal(&last_one->object, object);
}

/* At the first row of the address' function; false if its table is malformed. */
static bool progress_restart(struct progress *progress)
{
    struct interpreter *state = &progress->state;
    state->entry = &progress->entry;
    state->location = 0; /* the CIE's instructions hold everywhere */
    state->row = (struct unwind_row){.cfa_register = UNWIND_REGISTER_RSP};
    state->initial = state->row;
    state->remembered_count = 0;
    struct unwind_reader common = progress->entry.common;
    if (!unwind_rules_run(state, &common)) {
        return false;
    }
    state->initial = state->row;
    state->location = progress->entry.start;
    progress->code = progress->entry.special;
    return true;
}

static uint32_t progress_rule(struct progress *progress, uintptr_t address)
{
    struct loaded_object object;
    if (!loaded_object_find(address, &object)) {
        return unwind_rule(UNWIND_NONE, 0, 0);
    }
    const bool goes_on = progress_reaches(progress, &object, address);
    progress->is_valid = false;
    progress->state.address = address;
    if (!goes_on) {
        progress->generation = __atomic_load_n(&rule_generation, __ATOMIC_ACQUIRE);
        progress->object = object;
        if (!unwind_entry_find(&object, address, &progress->entry)) {
            return unwind_rule(UNWIND_NONE, 0, 0);
        }
        if (!progress_restart(progress)) {
            return rule_unknown();
        }
    }
    if (!unwind_rules_run(&progress->state, &progress->code)) {
        return rule_unknown();
    }
    progress->is_valid = true;
    return rule_of_row(&progress->state.row, progress->entry.is_signal_frame, address);
}

/* While another thread is at it. */
static __attribute__((noinline)) uint32_t progress_apart(uintptr_t address)
{
    struct progress progress;
    progress.is_valid = false;
    return progress_rule(&progress, address);
}

uint32_t unwind_rule_find(uintptr_t address)
{
    if (__atomic_exchange_n(&last.is_taken, true, __ATOMIC_ACQUIRE)) {
        return progress_apart(address);
    }
    const uint32_t rule = progress_rule(&last.progress, address);
    __atomic_store_n(&last.is_taken, false, __ATOMIC_RELEASE);
    return rule;
}
