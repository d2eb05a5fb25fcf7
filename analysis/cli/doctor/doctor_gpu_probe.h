/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver and CUPTI, loaded, started and queried by a child. */
#ifndef VARVE_ANALYSIS_CLI_DOCTOR_DOCTOR_GPU_PROBE_H
#define VARVE_ANALYSIS_CLI_DOCTOR_DOCTOR_GPU_PROBE_H

#include "analysis/cli/doctor/doctor_program.h"

#include <stdint.h>

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

#endif
