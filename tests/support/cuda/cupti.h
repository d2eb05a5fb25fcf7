/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * Runs of programs/cuda/cupti_play.c under libvarve-cupti.so with the fake CUPTI, in a session made by hand, and
 * what they leave behind: the records of all rings and the lines on stderr.
 */
#ifndef VARVE_TESTS_SUPPORT_CUDA_CUPTI_H
#define VARVE_TESTS_SUPPORT_CUDA_CUPTI_H

#include "support/recorder.h"

#include <fcntl.h>
#include <sys/prctl.h>

#define PRELOAD VARVE_BUILD_DIR "/libvarve_preload.so"
#define INJECTION VARVE_BUILD_DIR "/libvarve-cupti.so"
#define FAKE VARVE_BUILD_DIR "/programs/lib_cupti_fake.so"
#define RECORDS_MAX 40000U
#define FAKE_TIME UINT64_C(1790000000000000000)

/* What a run left behind. */
static struct {
    struct varve_record records[RECORDS_MAX]; /* ring by ring, without THREAD_START and the like */
    unsigned count;
    char said[4096];
} seen;

/* ---- running ---- */

struct run {
    const char *scene, *how; /* of cupti_play; of the fake */
    const char *cupti_path;  /* VARVE_CUPTI_LIBRARY; NULL: the fake */
    uint32_t records;        /* of the session; 0: CUPTI alone */
    bool without_activity, without_preload;
};

static inline pid_t launch(const struct session *session, const struct run *run, const char *said_path)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(open(said_path, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
        setenv(SESSION_ENVIRONMENT, session->directory.path, 1);
        if (!run->without_preload) {
            setenv("LD_PRELOAD", PRELOAD, 1);
        }
        setenv("CUDA_INJECTION64_PATH", INJECTION, 1);
        setenv("VARVE_FAKE_LIBRARY", FAKE, 1);
        setenv("VARVE_CUPTI_LIBRARY", run->cupti_path != NULL ? run->cupti_path : FAKE, 1);
        setenv("VARVE_FAKE_CUPTI", run->how != NULL ? run->how : "", 1);
        setenv("VARVE_CUPTI_ACTIVITY", run->without_activity ? "0" : "1", 1);
        execl(VARVE_BUILD_DIR "/programs/cupti_play", "cupti_play", run->scene, NULL);
        _exit(127);
    }
    return child;
}

static inline bool is_bookkeeping(const struct varve_record *record)
{
    unsigned kind = varve_record_kind(record);
    return kind == VARVE_KIND_PROCESS_START || kind == VARVE_KIND_PROCESS_EXIT || kind == VARVE_KIND_THREAD_START ||
           kind == VARVE_KIND_MAIN_END;
}

static inline void read_rings(const struct session *session, uint32_t process)
{
    struct consumer consumer;
    for (uint32_t ring = 1; ring < 16 && consumer_try_open(&consumer, session, process, ring); ring++) {
        ring_reader_refresh(consumer.reader);
        struct varve_record record;
        while (consumer_next(&consumer, session, &record)) {
            assert_true(seen.count < RECORDS_MAX);
            if (!is_bookkeeping(&record)) {
                seen.records[seen.count++] = record;
            }
        }
        consumer_close(&consumer);
    }
}

static inline void read_said(const char *path)
{
    FILE *stream = fopen(path, "r");
    size_t length = 0;
    if (stream != NULL) {
        length = fread(seen.said, 1, sizeof(seen.said) - 1, stream);
        fclose(stream);
    }
    seen.said[length] = '\0';
}

static inline void play(const struct run *run)
{
    struct session_control settings = session_settings(SESSION_OVERFLOW_SPILL, 512);
    int status = 0;
    settings.records = run->records != 0 ? run->records : VARVE_RECORDS_CUPTI;
    memset(&seen, 0, sizeof(seen));
    struct session session;
    session_begin(&session, &settings);
    char said_path[128];
    snprintf(said_path, sizeof(said_path), "%s/said", session.folder);
    assert_int_equal(waitpid(launch(&session, run, said_path), &status, 0) > 0, 1);
    read_rings(&session, 1);
    read_said(said_path);
    session_end(&session);
    if (status != 0) {
        fail_msg("%s: wait status %#x: %s", run->scene, (unsigned)status, seen.said);
    }
}

/* Is there nothing to test? */
static inline int cupti_support_start(void **state)
{
    (void)state;
    if (access(INJECTION, R_OK) != 0) {
        skip_file("libvarve-cupti.so is not built (VARVE_CUPTI=OFF)");
    }
    return 0;
}

/* ---- counting ---- */

static inline unsigned count_records(enum varve_kind kind, enum varve_cause cause)
{
    unsigned count = 0;
    for (unsigned i = 0; i < seen.count; i++) {
        count += varve_record_kind(&seen.records[i]) == kind && seen.records[i].cause == cause;
    }
    return count;
}

static inline const struct varve_record *find_state(enum varve_cause cause)
{
    for (unsigned i = 0; i < seen.count; i++) {
        if (varve_record_kind(&seen.records[i]) == VARVE_KIND_CUPTI_STATE && seen.records[i].cause == cause) {
            return &seen.records[i];
        }
    }
    fail_msg("no CUPTI_STATE with cause %d", cause);
    return NULL;
}

#endif
