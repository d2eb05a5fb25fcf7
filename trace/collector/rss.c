/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples of the resident memory of recorded processes. /proc/PID/status has what is resident now and the most that
 * ever was (VmHWM), so that no peak between two samples is missed but one just before the end; of the program itself
 * waitpid reports that as well. Samples are 10 ms apart, and further where reading them would take more than a
 * hundredth of a CPU. They are thinned as those of the allocations are. traced_process.c, retire_ended.c and
 * collector.c call it.
 */
#include "trace/collector/collector.h"

#include "trace/collector/collector_clock.h"
#include "trace/collector/session/recording_directory.h"
#include "trace/collector/session/mapped_recordings.h"
#include "base/error.h"
#include "trace/format/session_format.h"
#include "base/downsample.h"
#include "base/monotonic.h"
#include "base/proc_file.h"
#include "trace/store/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define SAMPLE_EVERY_NS UINT64_C(10000000)
#define SAMPLE_COST 100U                    /* times what a sample takes is left to other work */
#define SEARCH_EVERY_NS UINT64_C(100000000) /* all of /proc */
#define POINTS_ENDED_MAX (UINT64_C(1) << 18)
#define POINTS_ENDED 16U /* of a process that ends when so many are written */

/* A row of samples. */
enum rss_value { RSS_NS, RSS_BYTES, RSS_BYTES_MAX, RSS_VALUES };

/* Its folder, or -1. The pid may have been given out anew before it was opened, but not since: so the
 * check comes after. */
static int rss_open_folder(const struct traced_process *process, int32_t pid)
{
    uint64_t started = process->identity.start_ticks_proc;
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d", pid);
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && started != 0 && proc_file_started(pid) != started) {
        session_descriptor_close(&fd);
    }
    return fd;
}

/* Of a process that has another PID namespace, now and then for one of them. */
static void rss_seek(struct collector *collector, struct traced_process *process, uint64_t now_ns)
{
    if (process->is_ours || process->rss.is_sought || now_ns < collector->rss.next_search_ns) {
        return;
    }
    collector->rss.next_search_ns = now_ns + SEARCH_EVERY_NS;
    process->rss.is_sought = true;
    int32_t pid = liveness_find(&process->identity);
    process->rss.folder_fd = pid > 0 ? rss_open_folder(process, pid) : -1;
}

/* Bytes that are resident now; 0: it has ended, or can't be looked at. */
static uint64_t rss_look(struct process_rss *rss)
{
    int fd = rss->folder_fd >= 0 ? openat(rss->folder_fd, "status", O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) {
        return 0;
    }
    char text[4096];
    ssize_t length = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    uint64_t peak_bytes = (uint64_t)session_status_number(text, "VmHWM:") * 1024;
    rss->peak_bytes = peak_bytes > rss->peak_bytes ? peak_bytes : rss->peak_bytes;
    return (uint64_t)session_status_number(text, "VmRSS:") * 1024;
}

/* Without memory for another point the sample is left out. */
static void rss_add(struct downsample *samples, uint32_t limit, int64_t ts_ns, uint64_t bytes)
{
    if (samples->limit == 0) {
        *samples = downsample_make(limit, RSS_VALUES, 1, RSS_BYTES_MAX);
    }
    if (downsample_reserve(samples)) {
        downsample_add(samples, (const int64_t[RSS_VALUES]){ts_ns, (int64_t)bytes});
    }
}

static uint64_t rss_sample_process(struct traced_process *process, int64_t ts_ns)
{
    uint64_t bytes = rss_look(&process->rss);
    process->rss.now_bytes = bytes;
    if (bytes > 0) {
        rss_add(&process->rss.samples, SAMPLES_PROCESS, ts_ns, bytes);
    }
    return bytes;
}

static int64_t time_now(struct collector *collector)
{
    int64_t ts_ns = collect_clock_ns(&collector->clock, collect_clock_now(&collector->clock));
    return ts_ns > 0 ? ts_ns : 0;
}

void collect_rss_begin(struct collector *collector, struct traced_process *process)
{
    process->rss.folder_fd = process->is_ours ? rss_open_folder(process, process->pid) : -1;
    rss_sample_process(process, time_now(collector));
}

void collect_rss_round(struct collector *collector, uint64_t now_ns)
{
    struct collect_rss *rss = &collector->rss;
    if (collector->is_recovering || now_ns < rss->next_ns) {
        return;
    }
    uint64_t begin_ns = monotonic_computed_ns();
    int64_t ts_ns = time_now(collector);
    uint64_t sum = 0;
    for (uint32_t i = collector->first_open; i < collector->process_count; i++) {
        struct traced_process *process = collector->processes[i];
        if (process != NULL && !process->has_ended) {
            rss_seek(collector, process, now_ns);
            sum += rss_sample_process(process, ts_ns);
        }
    }
    rss->now_bytes = sum;
    if (sum > 0) {
        rss_add(&rss->samples, SAMPLES_ALL, ts_ns, sum);
    }
    uint64_t cost_ns = monotonic_computed_ns() - begin_ns;
    rss->next_ns = now_ns + (cost_ns * SAMPLE_COST > SAMPLE_EVERY_NS ? cost_ns * SAMPLE_COST : SAMPLE_EVERY_NS);
}

/* waitpid's peak is the process' own if nothing else that it includes was as large: the collector's image before the
 * first exec, earlier images, children. Of programs that were not recorded nobody knows. */
static bool is_own_peak(const struct collector *collector, const struct traced_process *process)
{
    uint64_t bytes = process->rss.ended_peak_bytes;
    if (bytes <= collector->rss.own_bytes || collector->unrecorded > 0) {
        return false;
    }
    for (uint32_t i = 0; i < collector->process_count; i++) {
        const struct traced_process *other = collector->processes[i];
        if (other != NULL && other != process && other->rss.peak_bytes >= bytes) {
            return false;
        }
    }
    return true;
}

uint64_t collect_rss_peak(const struct collector *collector, const struct traced_process *process)
{
    const struct process_rss *rss = &process->rss;
    return rss->ended_peak_bytes > rss->peak_bytes && is_own_peak(collector, process) ? rss->ended_peak_bytes
                                                                                      : rss->peak_bytes;
}

static int rss_write_samples(struct collector *collector, uint32_t process_id, const struct downsample *samples)
{
    int error = VARVE_OK;
    for (size_t i = 0; i < samples->count && error == VARVE_OK && !collector->is_unstored; i++) {
        const int64_t *row = downsample_row(samples, i);
        error = store_rss(collector->store, process_id, row[RSS_NS], (uint64_t)row[RSS_BYTES],
                          (uint64_t)row[RSS_BYTES_MAX]);
    }
    return error;
}

int collect_rss_rows(struct collector *collector, struct traced_process *process)
{
    struct process_rss *rss = &process->rss;
    if (rss->is_stored || rss->samples.limit == 0) {
        return VARVE_OK;
    }
    downsample_limit(&rss->samples, collector->rss.points_written < POINTS_ENDED_MAX ? SAMPLES_PROCESS : POINTS_ENDED);
    int error = rss_write_samples(collector, process->id, &rss->samples);
    if (error == VARVE_OK) {
        collector->rss.points_written += rss->samples.count;
        rss->is_stored = true;
        downsample_free(&rss->samples);
    }
    return error;
}

int collect_rss_finish(struct collector *collector)
{
    return rss_write_samples(collector, 0, &collector->rss.samples);
}

void collect_rss_end(struct traced_process *process)
{
    session_descriptor_close(&process->rss.folder_fd);
    downsample_free(&process->rss.samples);
}
