/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cblas_sgemm and cblas_dgemm are taken from a library at run time, so that libvarve.so needs none. Without one, and
 * for integers, products are added to a strip of a row of the result, for four rows of b at a time.
 */
#include "storage/tensors/operands.h"

#include "storage/tensors/element.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- a BLAS ---- */

#define BLAS_NAME "libopenblas.so.0"
enum { CBLAS_ROW_MAJOR = 101, CBLAS_NO_TRANS = 111, CBLAS_TRANS = 112 };

typedef void cblas_sgemm(int order, int turn_a, int turn_b, int m, int n, int k, float alpha, const float *a, int lda,
                         const float *b, int ldb, float beta, float *c, int ldc);
typedef void cblas_dgemm(int order, int turn_a, int turn_b, int m, int n, int k, double alpha, const double *a, int lda,
                         const double *b, int ldb, double beta, double *c, int ldc);

static struct {
    cblas_sgemm *sgemm;
    cblas_dgemm *dgemm;
} blas; /* both or none; written once */
static pthread_once_t blas_once = PTHREAD_ONCE_INIT;

static void blas_open(void)
{
    const char *name = getenv("VARVE_BLAS");
    if (name != NULL && strcmp(name, "none") == 0) {
        return;
    }
    void *library = dlopen(name != NULL && name[0] != '\0' ? name : BLAS_NAME, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return;
    }
    *(void **)&blas.sgemm = dlsym(library, "cblas_sgemm");
    *(void **)&blas.dgemm = dlsym(library, "cblas_dgemm");
    if (blas.sgemm == NULL || blas.dgemm == NULL) {
        blas.sgemm = NULL;
        blas.dgemm = NULL;
        dlclose(library);
    }
}

bool gemm_takes_turned(enum varve_dtype dtype)
{
    pthread_once(&blas_once, blas_open);
    return blas.sgemm != NULL && dtype != VARVE_DTYPE_I64;
}

static bool fits_blas(const struct gemm *gemm)
{
    return gemm_takes_turned(gemm->dtype) && gemm->rows <= INT_MAX && gemm->columns <= INT_MAX &&
           gemm->depth <= INT_MAX && gemm->lead[0] <= INT_MAX && gemm->lead[1] <= INT_MAX && gemm->out_lead <= INT_MAX;
}

static void blas_run(const struct gemm *gemm, void *out, const void *a, const void *b)
{
    int turns[2];
    for (int i = 0; i < 2; i++) {
        turns[i] = gemm->is_turned[i] ? CBLAS_TRANS : CBLAS_NO_TRANS;
    }
    if (gemm->dtype == VARVE_DTYPE_F32) {
        blas.sgemm(CBLAS_ROW_MAJOR, turns[0], turns[1], (int)gemm->rows, (int)gemm->columns, (int)gemm->depth, 1, a,
                   (int)gemm->lead[0], b, (int)gemm->lead[1], 0, out, (int)gemm->out_lead);
    } else {
        blas.dgemm(CBLAS_ROW_MAJOR, turns[0], turns[1], (int)gemm->rows, (int)gemm->columns, (int)gemm->depth, 1, a,
                   (int)gemm->lead[0], b, (int)gemm->lead[1], 0, out, (int)gemm->out_lead);
    }
}

/* ---- our own ---- */

/* A strip of b, STRIP columns of DEPTH rows, stays in the cache while all rows of a pass. */
#define STRIP 512
#define DEPTH 64

#define GEMM_DEFINE(name, type, attributes)                                                                  \
    attributes static void strip_##name(type *out, const type *a, int64_t step, const type *b, int64_t lead, \
                                        int64_t depth, int64_t columns)                                      \
    {                                                                                                        \
        int64_t k = 0;                                                                                       \
                                                                                                             \
        for (; k + 4 <= depth; k += 4) {                                                                     \
            type x0 = a[k * step], x1 = a[(k + 1) * step], x2 = a[(k + 2) * step], x3 = a[(k + 3) * step];   \
            const type *b0 = b + k * lead, *b1 = b0 + lead, *b2 = b1 + lead, *b3 = b2 + lead;                \
                                                                                                             \
            ELEMENTS_LOOP                                                                                    \
            for (int64_t i = 0; i < columns; i++) {                                                          \
                out[i] += (x0 * b0[i] + x1 * b1[i]) + (x2 * b2[i] + x3 * b3[i]);                             \
            }                                                                                                \
        }                                                                                                    \
        for (; k < depth; k++) {                                                                             \
            ELEMENTS_LOOP                                                                                    \
            for (int64_t i = 0; i < columns; i++) {                                                          \
                out[i] += a[k * step] * b[k * lead + i];                                                     \
            }                                                                                                \
        }                                                                                                    \
    }                                                                                                        \
                                                                                                             \
    attributes static void gemm_##name(const struct gemm *gemm, type *out, const type *a, const type *b)     \
    {                                                                                                        \
        int64_t row_step = gemm->is_turned[0] ? 1 : gemm->lead[0];                                           \
        int64_t step = gemm->is_turned[0] ? gemm->lead[0] : 1;                                               \
                                                                                                             \
        for (int64_t i = 0; i < gemm->rows; i++) {                                                           \
            memset(out + i * gemm->out_lead, 0, (size_t)gemm->columns * sizeof(type));                       \
        }                                                                                                    \
        for (int64_t first = 0; first < gemm->columns; first += STRIP) {                                     \
            int64_t columns = gemm->columns - first < STRIP ? gemm->columns - first : STRIP;                 \
                                                                                                             \
            for (int64_t k = 0; k < gemm->depth; k += DEPTH) {                                               \
                int64_t depth = gemm->depth - k < DEPTH ? gemm->depth - k : DEPTH;                           \
                                                                                                             \
                for (int64_t i = 0; i < gemm->rows; i++) {                                                   \
                    strip_##name(out + i * gemm->out_lead + first, a + i * row_step + k * step, step,        \
                                 b + k * gemm->lead[1] + first, gemm->lead[1], depth, columns);              \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
    }

GEMM_DEFINE(f64, double, )
GEMM_DEFINE(f32, float, )
GEMM_DEFINE(i64, uint64_t, )
#if ELEMENTS_HAS_AVX2
GEMM_DEFINE(f64_avx2, double, ELEMENTS_AVX2)
GEMM_DEFINE(f32_avx2, float, ELEMENTS_AVX2)
#endif

void gemm_run(const struct gemm *gemm, void *out, const void *a, const void *b)
{
    if (gemm->rows == 0 || gemm->columns == 0) {
        return;
    }
    if (fits_blas(gemm)) {
        blas_run(gemm, out, a, b);
        return;
    }
#if ELEMENTS_HAS_AVX2
    if (gemm->dtype != VARVE_DTYPE_I64 && __builtin_cpu_supports("avx2")) {
        if (gemm->dtype == VARVE_DTYPE_F64) {
            gemm_f64_avx2(gemm, out, a, b);
        } else {
            gemm_f32_avx2(gemm, out, a, b);
        }
        return;
    }
#endif
    if (gemm->dtype == VARVE_DTYPE_F64) {
        gemm_f64(gemm, out, a, b);
    } else if (gemm->dtype == VARVE_DTYPE_F32) {
        gemm_f32(gemm, out, a, b);
    } else {
        gemm_i64(gemm, out, a, b);
    }
}
