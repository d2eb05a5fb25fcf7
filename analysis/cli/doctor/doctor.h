/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks of `varve doctor`, grouped by file: each adds lines, none changes anything on the machine.
 */
#ifndef VARVE_ANALYSIS_CLI_DOCTOR_DOCTOR_H
#define VARVE_ANALYSIS_CLI_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- doctor_*.c: what this machine offers ---- */

enum doctor_state {
    DOCTOR_OK,
    DOCTOR_MISSING,
    DOCTOR_WARNING,
};

struct doctor_line {
    const char *key;
    enum doctor_state state;
    char found[160];  /* what is there */
    char effect[200]; /* what its absence costs; "" if nothing */
    char remedy[200]; /* package to install, or command; "" if none */
};

struct doctor_lines {
    struct doctor_line items[96];
    size_t count;
};

void doctor_add(struct doctor_lines *lines, const char *key, enum doctor_state state, const char *effect,
                const char *remedy, const char *found_format, ...) __attribute__((format(printf, 6, 7)));
void doctor_check_machine(struct doctor_lines *lines);   /* machine.c */
void doctor_check_libraries(struct doctor_lines *lines); /* libraries.c */
void doctor_check_gpu(struct doctor_lines *lines);       /* gpu.c */
void doctor_check_lttng(struct doctor_lines *lines);     /* lttng.c */
void doctor_check_leftovers(struct doctor_lines *lines); /* leftovers.c */
/// The first file that a pattern of paths names.
bool pattern_find(const char *pattern, char *path, size_t path_bytes);
/// Where LD_LIBRARY_PATH and the usual folders have the library `name`, which may be a pattern.
bool library_find(const char *name, char *buffer, size_t buffer_bytes);
/// Where PATH has `name`.
bool program_find(const char *name, char *buffer, size_t buffer_bytes);

/* ---- program.c: programs, and code that may hang or crash, as processes with a time limit ---- */

enum program_answer {
    PROGRAM_ANSWERED, /* and ended with status 0 */
    PROGRAM_FAILED,
    PROGRAM_LATE, /* said nothing for so long; it was ended */
};

/// What `argv` (found in PATH, NULL at its end) prints goes to `text`; what is too much is dropped.
enum program_answer program_run(const char *const *argv, int limit_ms, char *text, size_t bytes);
/// `work` in a fork child; what it writes to `output` goes to `text`. status_out: as waitpid reports it, of
/// PROGRAM_FAILED.
enum program_answer child_run(void (*work)(int output), int limit_ms, char *text, size_t bytes,
                              int *status_out);

/* ---- gpu_probe.c: the CUDA driver, queried by a child ---- */

#define PROBE_DEVICES 8

enum probe_step {
    PROBE_LOADING,
    PROBE_FINDING,
    PROBE_STARTING,
    PROBE_COUNTING,
    PROBE_OPENING,
    PROBE_DONE,
};

struct driver_probe {
    enum program_answer answer;
    enum probe_step step; /* the last one begun */
    int signal;           /* that ended it; 0: none */
    char library[256];    /* path, once it is loaded */
    char reason[200];     /* of a library that does not load; what the driver says of a start that failed */
    int version;          /* CUDA's: 1000 * major + 10 * minor; 0: unknown */
    int result;           /* of cuInit */
    int devices, named;   /* there are, and are named below */
    struct {
        char name[64];
        int64_t bytes;
    } device[PROBE_DEVICES];
    int opened;        /* 0 or enum varve_error: can our allocator have the first device? */
    char refusal[200]; /* why not */
};

void driver_probe(struct driver_probe *probe);
const char *probe_step_text(enum probe_step step);

struct cupti_probe {
    enum program_answer answer;
    int signal;
    int version;      /* CUPTI_API_VERSION; 0: unknown */
    char reason[200]; /* why it does not load */
};

/// `path`: of the library, as it was found.
void cupti_probe(struct cupti_probe *probe, const char *path);

/* ---- doctor_gpu_*.c: parts of doctor_check_gpu ---- */

/// Device nodes of the driver in `folder` (/dev), and the file in which the kernel module says its version.
void doctor_check_gpu_nodes(struct doctor_lines *lines, const char *folder, const char *module);
/// PyTorch of the python3 in PATH, against the driver's version (0: unknown). Where its package lies goes to
/// `folder`, "" if nowhere.
void doctor_check_pytorch(struct doctor_lines *lines, int driver_version, char *folder, size_t folder_bytes);
/// `packages`: the folder of Python's packages that PyTorch is in, or "".
void doctor_check_cupti(struct doctor_lines *lines, const char *packages);

#ifdef __cplusplus
}
#endif

#endif
