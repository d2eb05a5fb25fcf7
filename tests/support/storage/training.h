/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training of small networks with the runtime's operators, for tests and benchmarks: a multi-layer perceptron and a
 * residual network of sigmoid layers, a fixed batch, gradients written out, plain descent. All numbers come from
 * seeds, so two runs give the same losses, bit for bit, whatever is evicted between.
 */
#ifndef VARVE_TESTS_SUPPORT_STORAGE_TRAINING_H
#define VARVE_TESTS_SUPPORT_STORAGE_TRAINING_H

#include "storage/storage.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRAINING_STEPS 20
#define TRAINING_LAYERS_MAX 64

struct training {
    bool is_residual;
    unsigned layers; /* up to TRAINING_LAYERS_MAX */
    int64_t batch, width;
    struct varve_runtime_options options; /* memory, budget and so on */
    const char *log;                      /* file for the operators of the second step as a DTR log; NULL: none */
};

struct training_result {
    float losses[TRAINING_STEPS];
    uint64_t peak_bytes; /* of what the allocator had allocated */
    struct varve_remat_counters counters;
};

/// Errors: the runtime's, with the losses up to there.
int training_run(const struct training *training, struct training_result *result_out, struct varve_message *message);

#ifdef __cplusplus
}
#endif

#endif
