/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses in modules to functions, files and lines, after the program has ended. Keeps a few modules open,
 * the least recently used one goes first, so that memory stays bounded however many a recording has; callers
 * ask in the order of modules and addresses. Where the ELF files and their debug data are read:
 * symbol_module.c, dwarf.c. Called by trace/callsites/callsite_finish.c.
 */
#include "trace/symbols/symbols.h"

#include "base/error.h"
#include "trace/symbols/demangle.h"
#include "trace/symbols/symbol_module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEBUG_PATH ":.debug:/usr/lib/debug"   /* as libdwfl reads it */
#define OTHERS_BYTES_MAX (UINT64_C(64) << 20) /* files of the modules beside the one in use */
#define LINE_ROWS_MAX (UINT64_C(1) << 20)     /* about 48 MiB in libdw: then the module is opened anew */

int symbols_add_debug_root(struct symbols *symbols, const char *directory)
{
    char *path;
    if (asprintf(&path, "%s:%s", symbols->debug_path, directory) < 0) {
        return VARVE_ERROR_NO_MEMORY;
    }
    free(symbols->debug_path);
    symbols->debug_path = path;
    return VARVE_OK;
}

int symbols_open(struct symbols **symbols_out, struct varve_message *message)
{
    struct symbols *symbols = calloc(1, sizeof(*symbols));
    *symbols_out = NULL;
    unsetenv("DEBUGINFOD_URLS"); /* libdwfl would ask these servers: a recording must not send anything anywhere */
    if (!symbols || !(symbols->debug_path = strdup(DEBUG_PATH))) {
        free(symbols);
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to look up symbols");
    }
    *symbols_out = symbols;
    return VARVE_OK;
}

static void drop_module(struct symbols *symbols, unsigned slot)
{
    struct symbols_module *module = symbols->modules[slot];
    symbols->modules[slot] = NULL;
    if (!module) {
        return;
    }
    symbols_module_close(module);
    free(module->path);
    free(module);
}

void symbols_close(struct symbols *symbols)
{
    if (!symbols) {
        return;
    }
    for (unsigned slot = 0; slot < SYMBOLS_MODULES_MAX; slot++) {
        drop_module(symbols, slot);
    }
    free(symbols->debug_path);
    symbols_demangler_free(&symbols->demangler);
    free(symbols);
}

/* ---- modules ---- */

static struct symbols_module *find_module(struct symbols *symbols, const char *path, const uint8_t *build_id,
                                          size_t build_id_bytes)
{
    for (unsigned slot = 0; slot < SYMBOLS_MODULES_MAX; slot++) {
        struct symbols_module *module = symbols->modules[slot];
        if (module && module->build_id_bytes == build_id_bytes && strcmp(module->path, path) == 0 &&
            (build_id_bytes == 0 || memcmp(module->build_id, build_id, build_id_bytes) == 0)) {
            return module;
        }
    }
    return NULL;
}

/* An empty slot, or the one used longest ago. */
static unsigned oldest_slot(const struct symbols *symbols)
{
    unsigned oldest = 0;
    for (unsigned slot = 0; slot < SYMBOLS_MODULES_MAX; slot++) {
        if (!symbols->modules[slot]) {
            return slot;
        }
        if (symbols->modules[slot]->used < symbols->modules[oldest]->used) {
            oldest = slot;
        }
    }
    return oldest;
}

/* Close the oldest modules until the files of all but `kept` are small enough. */
static void drop_large(struct symbols *symbols, const struct symbols_module *kept)
{
    for (;;) {
        unsigned oldest = SYMBOLS_MODULES_MAX;
        uint64_t bytes = 0;
        for (unsigned slot = 0; slot < SYMBOLS_MODULES_MAX; slot++) {
            const struct symbols_module *module = symbols->modules[slot];
            if (!module || module == kept) {
                continue;
            }
            bytes += module->bytes;
            if (oldest == SYMBOLS_MODULES_MAX || module->used < symbols->modules[oldest]->used) {
                oldest = slot;
            }
        }
        if (bytes <= OTHERS_BYTES_MAX) {
            return;
        }
        drop_module(symbols, oldest);
    }
}

static struct symbols_module *symbols_add_module(struct symbols *symbols, const char *path, const uint8_t *build_id,
                                                 size_t build_id_bytes, struct symbols_image *image)
{
    struct symbols_module *module = calloc(1, sizeof(*module));
    unsigned slot = oldest_slot(symbols);
    if (!module) {
        return NULL;
    }
    module->path = strdup(path);
    if (!module->path) {
        free(module);
        return NULL;
    }
    module->symbols = symbols;
    module->image = image;
    module->build_id_bytes = build_id_bytes;
    if (build_id_bytes) {
        memcpy(module->build_id, build_id, build_id_bytes);
    }
    drop_module(symbols, slot);
    symbols->modules[slot] = module;
    symbols_module_open(module);
    drop_large(symbols, module);
    return module;
}

int symbols_resolve(struct symbols *symbols, const char *path, const uint8_t *build_id, size_t build_id_bytes,
                    struct symbols_image *image, uint64_t address,
                    void (*take)(void *context, const struct symbols_frame *frame), void *context)
{
    struct symbols_frame frame = {0};
    if (build_id_bytes > SYMBOLS_BUILD_ID_MAX) {
        return VARVE_ERROR_INVALID;
    }
    struct symbols_module *module = find_module(symbols, path, build_id, build_id_bytes);
    if (!module) {
        module = symbols_add_module(symbols, path, build_id, build_id_bytes, image);
    }
    if (!module) {
        return VARVE_ERROR_NO_MEMORY;
    }
    module->used = ++symbols->used;
    if (module->line_rows > LINE_ROWS_MAX) {
        symbols_module_close(module);
        symbols_module_open(module);
    }
    const char *name = NULL;
    if (module->dwfl) {
        name = symbols_module_name(module, address);
    }
    if (module->dwfl && symbols_dwarf_resolve(symbols, module, address, name, take, context)) {
        return VARVE_OK;
    }
    frame.function = name ? symbols_demangle(&symbols->demangler, name) : NULL;
    frame.start = name ? 0 : symbols_function_start(module, address);
    take(context, &frame);
    return VARVE_OK;
}
