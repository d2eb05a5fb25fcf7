/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where CPython keeps what a stack walk reads, one row per minor version. The C API offers no way: since
 * 3.11 PyThreadState_GetFrame makes a frame object (it allocates and may collect garbage), which is out of
 * the question inside malloc. Called by python_stack.c.
 */
#include "trace/stacks/python_layout.h"

/*
 * The offsets are those of Include/cpython/pystate.h, Include/cpython/code.h and
 * Include/internal/pycore_frame.h (pycore_interpframe_structs.h from 3.14 on), computed with offsetof from the headers
 * of 3.9.18, 3.10.13, 3.11.2, 3.11.7, 3.12.1, 3.12.10, 3.13.0, 3.14.10 and 3.15.2. Other patch levels are held to the
 * same rows and are not tested one by one: python_verify.c refuses those that differ. Free-threaded builds have other
 * object headers and no GIL to stand on; they are refused by name.
 */

/* clang-format off */
static const struct python_layout layouts[] = {
    {.minor = 9, .lines = PYTHON_LINES_LNOTAB, .frames_are_objects = true, .state_thread = 176,
     .state_frame = 24, .frame_code = 32, .frame_previous = 24, .frame_instruction = 104,
     .frame_bytes = 112, .lasti_unit = 1, .code_first_line = 40, .code_filename = 104, .code_name = 112,
     .code_lines = 120, .code_bytecode = 48, .code_bytes = 128, .ascii_data = 48, .compact_data = 72},
    {.minor = 10, .lines = PYTHON_LINES_RANGES, .frames_are_objects = true, .state_thread = 176,
     .state_frame = 24, .frame_code = 32, .frame_previous = 24, .frame_instruction = 96,
     .frame_bytes = 104, .lasti_unit = 2, .code_first_line = 40, .code_filename = 104, .code_name = 112,
     .code_lines = 120, .code_bytecode = 48, .code_bytes = 128, .ascii_data = 48, .compact_data = 72},
    {.minor = 11, .lines = PYTHON_LINES_LOCATIONS, .has_cframe = true, .has_entry_flag = true,
     .state_thread = 152, .state_frame = 56, .cframe_frame = 8, .frame_code = 32, .frame_previous = 48,
     .frame_instruction = 56, .frame_owner = 69, .frame_entry = 68, .frame_bytes = 72,
     .code_first_line = 72, .code_filename = 112, .code_name = 120, .code_lines = 136,
     .code_first_traceable = 168, .code_bytecode = 184, .code_bytes = 184, .ascii_data = 48,
     .compact_data = 72},
    {.minor = 12, .lines = PYTHON_LINES_LOCATIONS, .state_per_thread = true, .has_cframe = true,
     .state_thread = 136, .state_frame = 56, .cframe_frame = 0, .frame_code = 0, .frame_previous = 8,
     .frame_instruction = 56, .frame_owner = 70, .frame_bytes = 72, .code_first_line = 68,
     .code_filename = 112, .code_name = 120, .code_lines = 136, .code_first_traceable = 176,
     .code_bytecode = 192, .code_bytes = 192, .ascii_data = 40, .compact_data = 56},
    {.minor = 13, .lines = PYTHON_LINES_LOCATIONS, .state_per_thread = true, .state_thread = 152,
     .state_frame = 72, .frame_code = 0, .frame_previous = 8, .frame_instruction = 56, .frame_owner = 70,
     .frame_bytes = 72, .code_first_line = 68, .code_filename = 112, .code_name = 120, .code_lines = 136,
     .code_first_traceable = 184, .code_bytecode = 200, .code_bytes = 200, .ascii_data = 40,
     .compact_data = 56},
    {.minor = 14, .lines = PYTHON_LINES_LOCATIONS, .state_per_thread = true, .state_thread = 152,
     .state_frame = 72, .frame_code = 0, .frame_previous = 8, .frame_instruction = 56, .frame_owner = 74,
     .frame_bytes = 76, .code_first_line = 68, .code_filename = 112, .code_name = 120, .code_lines = 136,
     .code_first_traceable = 192, .code_bytecode = 208, .code_bytes = 208, .ascii_data = 40,
     .compact_data = 56},
    {.minor = 15, .lines = PYTHON_LINES_LOCATIONS, .state_per_thread = true, .state_thread = 176,
     .state_frame = 72, .frame_code = 0, .frame_previous = 8, .frame_instruction = 56, .frame_owner = 74,
     .frame_bytes = 76, .code_first_line = 68, .code_filename = 112, .code_name = 120, .code_lines = 136,
     .code_first_traceable = 192, .code_bytecode = 208, .code_bytes = 208, .ascii_data = 40,
     .compact_data = 56},
};
/* clang-format on */

const struct python_layout *python_layout_find(const char *version)
{
    if (strncmp(version, "3.", 2) != 0 || strstr(version, "free-threading") != NULL || sizeof(void *) != 8) {
        return NULL;
    }
    unsigned minor = 0;
    for (const char *digit = version + 2; *digit >= '0' && *digit <= '9' && minor < 1000; digit++) {
        minor = minor * 10 + (unsigned)(*digit - '0');
    }
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        if (layouts[i].minor == minor) {
            return &layouts[i];
        }
    }
    return NULL;
}
