/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VARVE_TRACE_FORMAT_ATTACH_FORMAT_H
#define VARVE_TRACE_FORMAT_ATTACH_FORMAT_H

/* Functions of libvarve_preload.so, which the collector has called in a program (recorder/attach/attach_calls.h). */
#define ATTACH_FUNCTION "varve_preload_attach"
#define ATTACH_FUNCTION_DETACH "varve_preload_detach"
#define ATTACH_FUNCTION_RELEASE "varve_preload_release"

/* In the recording directory where the program's Python is to run something: variables, NAME=VALUE, each ended by a
 * zero byte, of which the first below names a file of Python. It finds them all as VARIABLES, and the directory as
 * SESSION. */
#define ATTACH_VARIABLES "variables"
#define ATTACH_VARIABLE_PYTHON "VARVE_PYTHON"

/* There, between the collector and that code: a FIFO that it reads, whose end ends it, and a file with what has come of
 * it: "begun", "writing", then one of the others. */
#define ATTACH_TORCH_ASK "torch.ask"
#define ATTACH_TORCH_ANSWER "torch.answer"
#define ATTACH_TORCH_NO_PYTHON "no python"
#define ATTACH_TORCH_FAILED "failed"
/* The history, once it is whole, and what is to be added to it: pickles. */
#define ATTACH_TORCH_HISTORY "torch.pickle"
#define ATTACH_TORCH_PASSES "torch.passes"
/* A byte that asks for the memory as it is, at most one at a time, and what comes of it: a snapshot of PyTorch's
 * without its history, another file in the place of the one before. Empty: this PyTorch makes none without it. */
#define ATTACH_TORCH_SHOW 's'
#define ATTACH_TORCH_NOW "torch.now.pickle"

enum attach_answer {
    ATTACH_DONE = 1,
    ATTACH_NOT_LATE = 2,   /* the program was started with the library */
    ATTACH_RECORDED = 3,   /* it is being recorded */
    ATTACH_NO_SESSION = 4, /* the recording directory can't be reached, or the program is confined */
};

#endif
