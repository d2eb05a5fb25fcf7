/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions, inlined calls and lines from DWARF. For speed: libdw's general search walks a whole
 * unit for each address, and .debug_aranges is missing from what clang makes. So the ranges of all units are
 * listed once per module and the functions of a unit once, when its first address is asked for; per address
 * only the function's own tree is walked, for the calls inlined around the address. Called by symbols.c.
 */
#include "trace/symbols/symbol_module.h"

#include "base/grown_array.h"
#include "trace/symbols/symbol_range.h"
#include "trace/symbols/symbols.h"

#include <assert.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <stdlib.h>
#include <string.h>

#define NESTING_MAX 64 /* of inlined calls, and of scopes in a unit */

struct symbols_unit {
    Dwarf_Die die;   /* has the ranges and the lines */
    Dwarf_Die scope; /* has the functions: in the .dwo file of a split unit, else the same */
    Dwarf_Die *functions;
    size_t function_count, function_capacity;
    struct symbols_ranges function_ranges; /* values are places in functions[] */
    bool is_loaded;
    bool is_deep;   /* functions inside functions were collected too */
    bool has_lines; /* counted in line_rows */
};

/* ---- units ---- */

static bool dwarf_add_ranges(struct symbols_ranges *table, Dwarf_Die *die, uint32_t value)
{
    Dwarf_Addr base = 0, low = 0, high = 0;
    ptrdiff_t offset = 0;
    while ((offset = dwarf_ranges(die, offset, &base, &low, &high)) > 0) {
        if (!symbols_ranges_add(table, low, high, value, 0)) {
            return false;
        }
    }
    return true;
}

static struct symbols_unit *add_unit(struct symbols_module *module)
{
    if (!ARRAY_GROW(module->units, module->unit_capacity, module->unit_count + 1)) {
        return NULL;
    }
    memset(&module->units[module->unit_count], 0, sizeof(*module->units));
    return &module->units[module->unit_count++];
}

void symbols_dwarf_open(struct symbols_module *module)
{
    Dwarf_CU *unit = NULL;
    Dwarf_Half version;
    uint8_t type;
    Dwarf_Die die, split;
    while (module->dwarf && dwarf_get_units(module->dwarf, unit, &unit, &version, &type, &die, &split) == 0) {
        if (type != DW_UT_compile && type != DW_UT_skeleton) {
            continue;
        }
        struct symbols_unit *added = add_unit(module);
        if (!added) {
            break;
        }
        added->die = die;
        added->scope = type == DW_UT_skeleton && split.addr ? split : die;
        if (!dwarf_add_ranges(&module->unit_ranges, &added->die, (uint32_t)(module->unit_count - 1))) {
            break;
        }
    }
    symbols_ranges_sort(&module->unit_ranges);
}

void symbols_dwarf_close(struct symbols_module *module)
{
    for (size_t i = 0; i < module->unit_count; i++) {
        free(module->units[i].functions);
        symbols_ranges_free(&module->units[i].function_ranges);
    }
    free(module->units);
    module->units = NULL;
    module->unit_count = module->unit_capacity = 0;
    module->line_rows = 0;
    module->dwarf = NULL;
    symbols_ranges_free(&module->unit_ranges);
}

/* ---- functions of a unit ---- */

static bool add_function(struct symbols_unit *unit, Dwarf_Die *die)
{
    if (!dwarf_hasattr(die, DW_AT_low_pc) && !dwarf_hasattr(die, DW_AT_ranges)) {
        return true;
    }
    if (!ARRAY_GROW(unit->functions, unit->function_capacity, unit->function_count + 1)) {
        return false;
    }
    unit->functions[unit->function_count] = *die;
    return dwarf_add_ranges(&unit->function_ranges, die, (uint32_t)unit->function_count++);
}

static bool collect_functions(struct symbols_unit *unit, Dwarf_Die *parent, int depth)
{
    Dwarf_Die child;
    if (depth > NESTING_MAX || dwarf_child(parent, &child) != 0) {
        return true;
    }
    do {
        bool enter = false;
        switch (dwarf_tag(&child)) {
        case DW_TAG_subprogram:
            if (!add_function(unit, &child)) {
                return false;
            }
            enter = unit->is_deep;
            break;
        case DW_TAG_namespace:
        case DW_TAG_module:
        case DW_TAG_class_type:
        case DW_TAG_structure_type:
        case DW_TAG_union_type:
        case DW_TAG_enumeration_type:
            enter = true;
            break;
        case DW_TAG_lexical_block:
        case DW_TAG_inlined_subroutine:
            enter = unit->is_deep;
            break;
        default:
            break;
        }
        if (enter && !collect_functions(unit, &child, depth + 1)) {
            return false;
        }
    } while (dwarf_siblingof(&child, &child) == 0);
    return true;
}

static void load_functions(struct symbols_unit *unit, bool is_deep)
{
    unit->is_loaded = true;
    unit->is_deep = is_deep;
    unit->function_count = 0;
    symbols_ranges_free(&unit->function_ranges);
    collect_functions(unit, &unit->scope, 0);
    symbols_ranges_sort(&unit->function_ranges);
}

static Dwarf_Die *find_function(struct symbols_unit *unit, uint64_t address)
{
    if (!unit->is_loaded) {
        load_functions(unit, false);
    }
    const struct symbols_range *range = symbols_ranges_find(&unit->function_ranges, address);
    if (!range && !unit->is_deep) {
        /* Functions inside functions (GNU C, Ada) are rare: the whole unit is walked only when one is missed.
         */
        load_functions(unit, true);
        range = symbols_ranges_find(&unit->function_ranges, address);
    }
    return range ? &unit->functions[range->value] : NULL;
}

/* ---- inlined calls ---- */

/* The calls inlined around the address, outermost first; returns how many. */
static int find_inlined(Dwarf_Die *function, uint64_t address, Dwarf_Die inlined[NESTING_MAX])
{
    Dwarf_Die parent = *function, child;
    int count = 0;
    for (int depth = 0; depth < 4 * NESTING_MAX && dwarf_child(&parent, &child) == 0; depth++) {
        bool found = false;
        do {
            int tag = dwarf_tag(&child);
            if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_lexical_block && tag != DW_TAG_try_block &&
                tag != DW_TAG_catch_block) {
                continue;
            }
            found = dwarf_haspc(&child, address) > 0;
            if (found && tag == DW_TAG_inlined_subroutine && count < NESTING_MAX) {
                inlined[count++] = child;
            }
        } while (!found && dwarf_siblingof(&child, &child) == 0);
        if (!found) {
            break;
        }
        parent = child;
    }
    return count;
}

static const char *linkage_name(Dwarf_Die *die)
{
    Dwarf_Attribute attribute;
    if (dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute) ||
        dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &attribute)) {
        return dwarf_formstring(&attribute);
    }
    return NULL;
}

/* `symbol`: the symbol table's name for the pc, NULL for an inlined function. GCC leaves out the linkage
 * name of static C++ functions; the symbol then has the namespace and the parameters. */
static const char *function_name(struct symbols *symbols, Dwarf_Die *die, const char *symbol)
{
    const char *mangled = linkage_name(die), *plain = dwarf_diename(die);
    if (!mangled && symbol && symbols_is_mangled(symbol)) {
        mangled = symbol;
    }
    if (!mangled) {
        return plain;
    }
    const char *name = symbols_demangle(&symbols->demangler, mangled);
    /* What cannot be demangled is an alias (glibc's __GI_): the plain name reads better. */
    return name == mangled && plain ? plain : name;
}

static uint32_t unsigned_attribute(Dwarf_Die *die, unsigned name)
{
    Dwarf_Attribute attribute;
    Dwarf_Word value = 0;
    if (!dwarf_attr(die, name, &attribute) || dwarf_formudata(&attribute, &value) != 0) {
        return 0;
    }
    return value > UINT32_MAX ? 0 : (uint32_t)value;
}

static const char *call_file(Dwarf_Die *inlined)
{
    uint32_t number = unsigned_attribute(inlined, DW_AT_call_file);
    Dwarf_Files *files;
    Dwarf_Die unit;
    size_t count;
    if (!dwarf_hasattr(inlined, DW_AT_call_file) || !dwarf_diecu(inlined, &unit, NULL, NULL) ||
        dwarf_getsrcfiles(&unit, &files, &count) != 0 || number >= count) {
        return NULL;
    }
    return dwarf_filesrc(files, number, NULL, NULL);
}

/* ---- lines ---- */

static void find_line(struct symbols_module *module, struct symbols_unit *unit, uint64_t address,
                      struct symbols_frame *frame)
{
    Dwarf_Lines *lines;
    size_t rows = 0;
    if (!unit->has_lines && dwarf_getsrclines(&unit->die, &lines, &rows) == 0) {
        module->line_rows += rows;
    }
    unit->has_lines = true;
    Dwarf_Line *line = dwarf_getsrc_die(&unit->die, address);
    if (!line) {
        return;
    }
    frame->file = dwarf_linesrc(line, NULL, NULL);
    int number = 0;
    if (frame->file && dwarf_lineno(line, &number) == 0 && number > 0) {
        frame->line = (uint32_t)number;
    }
}

bool symbols_dwarf_resolve(struct symbols *symbols, struct symbols_module *module, uint64_t address,
                           const char *fallback, void (*take)(void *context, const struct symbols_frame *frame),
                           void *context)
{
    uint64_t pc = address - module->dwarf_bias;
    const struct symbols_range *range = module->dwarf ? symbols_ranges_find(&module->unit_ranges, pc) : NULL;
    struct symbols_frame frame = {0};
    if (!range) {
        return false;
    }
    frame.start = fallback ? 0 : symbols_function_start(module, address);
    struct symbols_unit *unit = &module->units[range->value];
    Dwarf_Die *function = find_function(unit, pc);
    find_line(module, unit, pc, &frame);
    if (!function && !frame.file) {
        return false;
    }
    Dwarf_Die inlined[NESTING_MAX];
    for (int i = function ? find_inlined(function, pc, inlined) : 0; i > 0; i--) {
        frame.function = function_name(symbols, &inlined[i - 1], NULL);
        frame.is_inlined = true;
        take(context, &frame);
        frame.file = call_file(&inlined[i - 1]);
        frame.line = unsigned_attribute(&inlined[i - 1], DW_AT_call_line);
    }
    frame.is_inlined = false;
    frame.function = function ? function_name(symbols, function, fallback) : NULL;
    if (!frame.function && fallback) {
        frame.function = symbols_demangle(&symbols->demangler, fallback);
    }
    take(context, &frame);
    return true;
}
