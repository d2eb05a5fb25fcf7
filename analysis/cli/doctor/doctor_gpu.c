/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve doctor`, what recording GPU programs rests on: the driver's device nodes, the driver itself, the
 * toolkit, CUPTI, PyTorch, and the libraries of varve that go into the program. A machine without a GPU is no
 * fault: its lines say what can't be recorded here. nvidia-smi is not asked; a container may lack it.
 */
#include "analysis/cli/doctor/doctor.h"

#include "analysis/cli/doctor/doctor_gpu_probe.h"
#include "analysis/cli/doctor/doctor_program.h"
#include "analysis/base/number_format.h"
#include "base/error.h"
#include "base/program.h"

#include <errno.h>
#include <glob.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NODES "/dev"
#define MODULE "/proc/driver/nvidia/version"

static const char no_gpu[] = "no memory of a GPU to record here; traces can be read, and replayed";
static const char no_cuda[] = "programs here can't use the GPU: there is nothing of it to record";

/* ---- device nodes ---- */

/* "580.65.06" of a line that has the words "Kernel Module" somewhere before it. */
static void module_version(const char *path, char *version, size_t bytes)
{
    FILE *file = fopen(path, "re");
    version[0] = '\0';
    if (file == NULL) {
        return;
    }
    const char *at;
    char line[256] = "";
    if (fgets(line, sizeof(line), file) != NULL && (at = strstr(line, "Module")) != NULL) {
        for (at += strcspn(at, " "); *at != '\0'; at += strcspn(at, " \n")) {
            at += strspn(at, " \n");
            if (strspn(at, "0123456789.") >= 3 && *at != '.') {
                snprintf(version, bytes, "%.*s", (int)strspn(at, "0123456789."), at);
                break;
            }
        }
    }
    fclose(file);
}

/* Says who may use a node that we may not; true if that is so. */
static bool doctor_gpu_is_forbidden(struct doctor_lines *lines, const char *node)
{
    struct stat status;
    if (access(node, R_OK | W_OK) == 0 || errno != EACCES || stat(node, &status) != 0) {
        return false;
    }
    const struct group *group = getgrgid(status.st_gid);
    char remedy[200];
    if ((status.st_mode & 0060U) == 0060U && group != NULL && status.st_gid != 0) {
        snprintf(remedy, sizeof(remedy), "as root: usermod -aG %.32s USER, then log in again", group->gr_name);
    } else {
        snprintf(remedy, sizeof(remedy), "as root: chmod a+rw %.100s", node);
    }
    doctor_add(lines, "gpu", DOCTOR_MISSING, no_cuda, remedy, "no right to read and write %.80s (mode %04o)", node,
               (unsigned)status.st_mode & 07777U);
    return true;
}

void doctor_check_gpu_nodes(struct doctor_lines *lines, const char *folder, const char *module)
{
    char control[PATH_MAX];
    snprintf(control, sizeof(control), "%s/nvidiactl", folder);
    char memory[PATH_MAX];
    snprintf(memory, sizeof(memory), "%s/nvidia-uvm", folder);
    char pattern[PATH_MAX];
    snprintf(pattern, sizeof(pattern), "%s/nvidia[0-9]*", folder);
    if (access(control, F_OK) != 0) {
        snprintf(pattern, sizeof(pattern), "%s/dxg", folder);
        if (access(pattern, F_OK) == 0) {
            doctor_add(lines, "gpu", DOCTOR_OK, "", "", "through Windows (%.100s)", pattern);
        } else {
            doctor_add(lines, "gpu", DOCTOR_MISSING, no_gpu,
                       "NVIDIA's driver; a container is started with its GPUs (--gpus all)",
                       "no NVIDIA driver (%.100s)", control);
        }
        return;
    }
    glob_t gpus;
    if (glob(pattern, 0, NULL, &gpus) != 0) {
        gpus.gl_pathc = 0;
    }
    bool is_refused = doctor_gpu_is_forbidden(lines, control) || doctor_gpu_is_forbidden(lines, memory);
    for (size_t i = 0; i < gpus.gl_pathc && !is_refused; i++) {
        is_refused = doctor_gpu_is_forbidden(lines, gpus.gl_pathv[i]);
    }
    char version[64];
    module_version(module, version, sizeof(version));
    if (is_refused) {
        /* said already */
    } else if (gpus.gl_pathc == 0) {
        doctor_add(lines, "gpu", DOCTOR_WARNING, no_cuda,
                   "a container is started with its GPUs (--gpus all); else nvidia-modprobe as root",
                   "no device node (%.100s)", pattern);
    } else if (access(memory, F_OK) != 0) {
        doctor_add(lines, "gpu", DOCTOR_WARNING, no_cuda, "as root: nvidia-modprobe -u -c 0", "no %.100s", memory);
    } else {
        doctor_add(lines, "gpu", DOCTOR_OK, "", "", "%zu device node%s%s%s", (size_t)gpus.gl_pathc,
                   gpus.gl_pathc == 1 ? "" : "s", version[0] != '\0' ? ", kernel module " : "", version);
    }
    globfree(&gpus);
}

/* ---- the driver ---- */

/* CUDA's numbers for a start that failed, and what helps. */
static const char *start_remedy(int result)
{
    switch (result) {
    case 34: /* CUDA_ERROR_STUB_LIBRARY */
        return "this is the toolkit's stub: take its folder out of LD_LIBRARY_PATH; NVIDIA's driver";
    case 100: /* CUDA_ERROR_NO_DEVICE */
        return getenv("CUDA_VISIBLE_DEVICES") != NULL ? "CUDA_VISIBLE_DEVICES is set: it may hide all of them"
                                                      : "a container is started with its GPUs (--gpus all)";
    case 802: /* CUDA_ERROR_SYSTEM_NOT_READY */
        return "systemctl start nvidia-fabricmanager (GPUs that are joined by switches)";
    case 803: /* CUDA_ERROR_SYSTEM_DRIVER_MISMATCH */
        return "the library and the kernel module are of different versions: restart the machine";
    case 804: /* CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE */
        return "take the cuda-compat folder out of LD_LIBRARY_PATH";
    default:
        return "dmesg, or nvidia-bug-report.sh, may say why";
    }
}

static void check_unfinished(struct doctor_lines *lines, const struct driver_probe *probe)
{
    const char *step = probe_step_text(probe->step);
    if (probe->answer == PROGRAM_LATE) {
        doctor_add(lines, "cuda", DOCTOR_WARNING, "programs that use the GPU may hang as this check did",
                   "nvidia-smi -pm 1 makes its start faster; dmesg may say why it hangs",
                   "libcuda.so.1 does not answer within 5 s (%s)", step);
    } else if (probe->signal != 0) {
        doctor_add(lines, "cuda", DOCTOR_MISSING, no_cuda, "install NVIDIA's driver again",
                   "libcuda.so.1 crashes: %s (%s)", strsignal(probe->signal), step);
    } else {
        doctor_add(lines, "cuda", DOCTOR_MISSING, no_cuda, "install NVIDIA's driver again",
                   "libcuda.so.1 ends the process (%s)", step);
    }
}

static void check_unloadable(struct doctor_lines *lines, const struct driver_probe *probe)
{
    if (strstr(probe->reason, "cannot open shared object file") != NULL &&
        strncmp(probe->reason, "libcuda.so.1:", 13) == 0) {
        doctor_add(lines, "cuda", DOCTOR_MISSING, no_gpu, "NVIDIA's driver package", "no libcuda.so.1");
    } else {
        doctor_add(lines, "cuda", DOCTOR_MISSING, no_cuda, "install NVIDIA's driver again",
                   "libcuda.so.1 does not load: %.110s", probe->reason);
    }
}

static void check_devices(struct doctor_lines *lines, const struct driver_probe *probe)
{
    for (int i = 0; i < probe->named; i++) {
        doctor_add(lines, "cuda_device", DOCTOR_OK, "", "", "%d: %s, %s", i, probe->device[i].name,
                   BYTES(probe->device[i].bytes));
    }
    if (probe->devices > probe->named) {
        doctor_add(lines, "cuda_device", DOCTOR_OK, "", "", "and %d more", probe->devices - probe->named);
    }
    if (probe->opened != VARVE_OK) {
        doctor_add(lines, "cuda_memory", DOCTOR_WARNING,
                   "varve's allocator can't serve this GPU (record --torch, --cuda=replace)", "", "%.150s",
                   probe->refusal);
    }
}

static void check_driver(struct doctor_lines *lines, const struct driver_probe *probe)
{
    if (probe->step == PROBE_LOADING && probe->answer == PROGRAM_ANSWERED) {
        check_unloadable(lines, probe);
    } else if (probe->answer != PROGRAM_ANSWERED) {
        check_unfinished(lines, probe);
    } else if (probe->result != 0) {
        doctor_add(lines, "cuda", DOCTOR_MISSING, no_cuda, start_remedy(probe->result), "%.60s does not start: %.80s",
                   probe->library,
                   probe->reason[0] != '\0' ? probe->reason
                   : probe->result == 34    ? "CUDA_ERROR_STUB_LIBRARY"
                                            : "error without a name");
    } else {
        doctor_add(lines, "cuda", DOCTOR_OK, "", "", "driver for CUDA %d.%d, %d device%s, %.90s", probe->version / 1000,
                   probe->version % 1000 / 10, probe->devices, probe->devices == 1 ? "" : "s", probe->library);
    }
    if (probe->result == 0 && probe->step >= PROBE_COUNTING) {
        check_devices(lines, probe);
    }
}

/* ---- the toolkit ---- */

static int header_version(const char *folder)
{
    static const char define[] = "#define CUDA_VERSION ";
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/include/cuda.h", folder);
    FILE *file = fopen(path, "re");
    char line[512];
    int version = 0;
    while (file != NULL && version == 0 && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, define, sizeof(define) - 1) == 0) {
            version = (int)strtol(line + sizeof(define) - 1, NULL, 10);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return version;
}

/* The toolkit that a build would take: of CUDA_HOME or CUDA_PATH, of nvcc in PATH, the usual one. */
static int toolkit_find(char *folder, size_t bytes)
{
    const char *const given[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH")};
    int version = 0;
    for (size_t i = 0; i < 2 && version == 0; i++) {
        if (given[i] != NULL && given[i][0] != '\0') {
            snprintf(folder, bytes, "%s", given[i]);
            version = header_version(folder);
        }
    }
    char path[PATH_MAX];
    char resolved[PATH_MAX];
    if (version == 0 && program_find("nvcc", path, sizeof(path)) && realpath(path, resolved) != NULL) {
        for (int up = 0; up < 2; up++) {
            char *slash = strrchr(resolved, '/');
            *(slash != NULL ? slash : resolved) = '\0';
        }
        snprintf(folder, bytes, "%s", resolved);
        version = header_version(folder);
    }
    if (version == 0) {
        snprintf(folder, bytes, "/usr/local/cuda");
        version = header_version(folder);
    }
    return version;
}

static void check_toolkit(struct doctor_lines *lines, int driver_version)
{
    char folder[PATH_MAX];
    int version = toolkit_find(folder, sizeof(folder));
    if (version == 0) {
        doctor_add(lines, "cuda_toolkit", DOCTOR_OK, "", "", "none; varve needs none");
    } else if (driver_version == 0 || version <= driver_version) {
        doctor_add(lines, "cuda_toolkit", DOCTOR_OK, "", "", "CUDA %d.%d in %.120s", version / 1000,
                   version % 1000 / 10, folder);
    } else {
        bool is_major = version / 1000 > driver_version / 1000;
        doctor_add(lines, "cuda_toolkit", DOCTOR_WARNING,
                   is_major ? "programs built with it end with \"driver version is insufficient\""
                            : "programs built with it run, unless they compile kernels (PTX) when they run",
                   "a newer driver, or an older toolkit",
                   "CUDA %d.%d in %.80s is newer than the driver, which is for CUDA %d.%d", version / 1000,
                   version % 1000 / 10, folder, driver_version / 1000, driver_version % 1000 / 10);
    }
}

/* ---- varve's own ---- */

static void check_components(struct doctor_lines *lines)
{
    static const struct {
        enum component component;
        const char *key, *effect;
    } parts[] = {
        {COMPONENT_CUPTI, "varve_cupti", "varve record --cupti does not work"},
        {COMPONENT_TORCH, "varve_torch", "varve record --torch does not work"},
        {COMPONENT_PYTHON, "varve_python", "varve record --torch does not work"},
        {COMPONENT_REPLACE, "varve_replace", "varve record --cuda=replace does not work"},
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        doctor_check_component(lines, parts[i].key, parts[i].component, parts[i].effect,
                               "build or install varve as a whole");
    }
}

void doctor_check_gpu(struct doctor_lines *lines)
{
    const char *injected = getenv("CUDA_INJECTION64_PATH");
    doctor_check_gpu_nodes(lines, NODES, MODULE);
    struct driver_probe probe;
    driver_probe(&probe);
    check_driver(lines, &probe);
    check_toolkit(lines, probe.version);
    char torch[PATH_MAX];
    doctor_check_pytorch(lines, probe.version, torch, sizeof(torch));
    doctor_check_cupti(lines, torch);
    if (injected != NULL && injected[0] != '\0') {
        doctor_add(lines, "cuda_injection", DOCTOR_WARNING,
                   "another tool's library: varve record --cupti takes its place", "unset CUDA_INJECTION64_PATH",
                   "CUDA_INJECTION64_PATH is %.120s", injected);
    }
    check_components(lines);
}
