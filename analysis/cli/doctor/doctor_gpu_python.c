/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve doctor`, PyTorch and CUPTI. PyTorch is asked for without importing it, which takes seconds and may
 * start CUDA: the interpreter says where the package is, and the package's own version file says the rest.
 * CUPTI often lies beside it, where the dynamic linker does not look.
 */
#include "analysis/cli/doctor/doctor.h"

#include "analysis/cli/doctor/doctor_gpu_probe.h"
#include "analysis/cli/doctor/doctor_program.h"
#include "base/program.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PYTHON_LIMIT_MS 5000

/* ---- PyTorch ---- */

struct pytorch {
    char folder[PATH_MAX]; /* of the package */
    char version[64];
    char cuda[32]; /* that it was built for; "" if for none */
};

/* The text between the first two quotes behind the '=' of a line "name… = 'text'"; "" for None. */
static void quoted_value(const char *line, char *value, size_t bytes)
{
    const char *at = strchr(line, '=');
    at = at != NULL ? at + strcspn(at, "'\"") : "";
    snprintf(value, bytes, "%.*s", *at != '\0' ? (int)strcspn(at + 1, "'\"\n") : 0, *at != '\0' ? at + 1 : "");
}

static void read_version(struct pytorch *pytorch)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s/version.py", pytorch->folder);
    FILE *file = fopen(path, "re");
    char line[512];
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "__version__", 11) == 0) {
            quoted_value(line, pytorch->version, sizeof(pytorch->version));
        } else if (strncmp(line, "cuda", 4) == 0 && strchr(":= ", line[4]) != NULL) {
            quoted_value(line, pytorch->cuda, sizeof(pytorch->cuda));
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* False if there is none, or no answer. */
static bool pytorch_find(struct pytorch *pytorch, enum program_answer *answer_out)
{
    static const char script[] = "import importlib.util, os\n"
                                 "spec = importlib.util.find_spec('torch')\n"
                                 "origin = spec.origin if spec else None\n"
                                 "print('varve:' + (os.path.dirname(origin) if origin else ''))\n";
    static const char *const argv[] = {"python3", "-c", script, NULL};
    *pytorch = (struct pytorch){.folder = ""};
    char text[PATH_MAX];
    *answer_out = program_run(argv, PYTHON_LIMIT_MS, text, sizeof(text));
    const char *said = *answer_out == PROGRAM_ANSWERED ? strstr(text, "varve:") : NULL;
    if (said == NULL || said[6] != '/') {
        return false;
    }
    snprintf(pytorch->folder, sizeof(pytorch->folder), "%.*s", (int)strcspn(said + 6, "\n"), said + 6);
    read_version(pytorch);
    return true;
}

static void check_found(struct doctor_lines *lines, const struct pytorch *pytorch, int driver_version)
{
    char *rest;
    long major = strtol(pytorch->cuda, &rest, 10);
    long minor = *rest == '.' ? strtol(rest + 1, NULL, 10) : 0;
    if (pytorch->cuda[0] == '\0') {
        doctor_add(lines, "pytorch", DOCTOR_WARNING, "it uses no GPU: varve record --torch has nothing to do",
                   "a PyTorch that is built for CUDA", "PyTorch %.30s without CUDA, %.100s", pytorch->version,
                   pytorch->folder);
    } else if (driver_version > 0 && major > driver_version / 1000) {
        doctor_add(lines, "pytorch", DOCTOR_WARNING, "it finds no GPU (torch.cuda.is_available() is False)",
                   "a newer driver, or a PyTorch for an older CUDA",
                   "PyTorch %.30s is for CUDA %ld.%ld, the driver for CUDA %d.%d", pytorch->version, major, minor,
                   driver_version / 1000, driver_version % 1000 / 10);
    } else {
        doctor_add(lines, "pytorch", DOCTOR_OK, "", "", "PyTorch %.30s for CUDA %.10s, %.100s", pytorch->version,
                   pytorch->cuda, pytorch->folder);
    }
}

void doctor_check_pytorch(struct doctor_lines *lines, int driver_version, char *folder, size_t folder_bytes)
{
    static const char effect[] = "nothing, unless PyTorch programs are recorded (varve record --torch)";
    folder[0] = '\0';
    char path[PATH_MAX];
    if (!program_find("python3", path, sizeof(path))) {
        return; /* the line `python` has said so */
    }
    enum program_answer answer = PROGRAM_FAILED;
    struct pytorch pytorch;
    if (pytorch_find(&pytorch, &answer)) {
        check_found(lines, &pytorch, driver_version);
        snprintf(folder, folder_bytes, "%s", pytorch.folder);
        char *slash = strrchr(folder, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
    } else if (answer == PROGRAM_LATE) {
        doctor_add(lines, "pytorch", DOCTOR_WARNING, effect, "", "%.100s does not answer within %d s", path,
                   PYTHON_LIMIT_MS / 1000);
    } else if (answer == PROGRAM_FAILED) {
        doctor_add(lines, "pytorch", DOCTOR_WARNING, effect, "", "%.100s does not run", path);
    } else {
        doctor_add(lines, "pytorch", DOCTOR_MISSING, effect, "pip install torch", "none for %.120s", path);
    }
}

/* ---- CUPTI ---- */

static bool cupti_find(const char *packages, char *path, size_t bytes)
{
    static const char name[] = "libcupti.so.1[23]"; /* those that our recorder knows */
    const char *given = getenv("VARVE_CUPTI_LIBRARY");
    static const char *const wheels[] = {"nvidia/cu[0-9]*/lib", "nvidia/cuda_cupti/lib"};
    if (given != NULL && given[0] != '\0') {
        snprintf(path, bytes, "%s", given);
        return true;
    }
    char pattern[PATH_MAX + 64];
    for (size_t i = 0; packages[0] != '\0' && i < sizeof(wheels) / sizeof(wheels[0]); i++) {
        snprintf(pattern, sizeof(pattern), "%s/%s/%s", packages, wheels[i], name);
        if (pattern_find(pattern, path, bytes)) {
            return true;
        }
    }
    return library_find(name, path, bytes);
}

void doctor_check_cupti(struct doctor_lines *lines, const char *packages)
{
    static const char effect[] = "varve record --cupti records nothing; --cuda does not need it";
    char path[PATH_MAX];
    if (!cupti_find(packages, path, sizeof(path))) {
        doctor_add(lines, "cupti", DOCTOR_MISSING, effect, "NVIDIA's CUDA toolkit, or pip install nvidia-cuda-cupti",
                   "no libcupti.so.13 or libcupti.so.12");
        return;
    }
    struct cupti_probe probe;
    cupti_probe(&probe, path);
    if (probe.answer == PROGRAM_LATE || probe.signal != 0) {
        doctor_add(lines, "cupti", DOCTOR_WARNING, effect, "install CUPTI again", "%.120s %s", path,
                   probe.signal != 0 ? strsignal(probe.signal) : "does not load within 5 s");
    } else if (probe.reason[0] != '\0') {
        doctor_add(lines, "cupti", DOCTOR_WARNING, effect, "install CUPTI again", "does not load: %.140s",
                   probe.reason);
    } else {
        doctor_add(lines, "cupti", DOCTOR_OK, "", "", "API version %d, %.120s", probe.version, path);
    }
}
