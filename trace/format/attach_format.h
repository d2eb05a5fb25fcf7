/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VARVE_TRACE_FORMAT_ATTACH_FORMAT_H
#define VARVE_TRACE_FORMAT_ATTACH_FORMAT_H

/* Functions of libvarve_preload.so, which the collector has called in a program (recorder/heap/heap_attach.h). */
#define ATTACH_FUNCTION "varve_preload_attach"
#define ATTACH_FUNCTION_DETACH "varve_preload_detach"
#define ATTACH_FUNCTION_RELEASE "varve_preload_release"

enum attach_answer {
    ATTACH_DONE = 1,
    ATTACH_NOT_LATE = 2,   /* the program was started with the library */
    ATTACH_RECORDED = 3,   /* it is being recorded */
    ATTACH_NO_SESSION = 4, /* the recording directory can't be reached, or the program is confined */
};

#endif
