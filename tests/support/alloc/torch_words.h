/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * PyTorch's requests and what the Python shim asks, on sim devices of 1 GiB, as words of plays (device_play.h). A
 * device is a number here: take:BYTES:DEVICE@STREAM, give:ADDR:DEVICE; a pool two, uses:DEVICE:CAPTURE:USER. All open
 * allocators are walked after each word.
 */
#ifndef VARVE_TESTS_SUPPORT_ALLOC_TORCH_WORDS_H
#define VARVE_TESTS_SUPPORT_ALLOC_TORCH_WORDS_H

#include "alloc/frontend/registry.h"
#include "alloc/frontend/torch_requests.h"
#include "alloc/frontend/torch.h"
#include "support/cuda/device_play.h"
#include "tests/cmocka.h"

#include <stdlib.h>
#include <string.h>

static struct varve_message torch_said;

/* `config`: PyTorch's variable; NULL: it is not set. */
static inline int torch_prepare(const char *config)
{
    unsetenv("PYTORCH_ALLOC_CONF");
    unsetenv("PYTORCH_CUDA_ALLOC_CONF");
    if (config != NULL) {
        setenv("PYTORCH_CUDA_ALLOC_CONF", config, 1);
    }
    return setenv("VARVE_TORCH_DEVICE", "sim", 1) || setenv("VARVE_TORCH_LIMIT", "1073741824", 1);
}

static inline void give(uint64_t addr, int device)
{
    varve_torch_free((void *)(uintptr_t)addr, 1, device, NULL);
}

static inline uint64_t take(uint64_t bytes, int device, uint64_t stream)
{
    uint64_t addr = 0;
    if (torch_allocate(bytes, device, stream, &addr, &torch_said) != VARVE_OK) {
        fail_msg("%s", torch_said.text);
    }
    return addr;
}

static inline int torch_open(const struct device_case *one, struct varve_device **device_out)
{
    (void)one;
    *device_out = NULL; /* they open when they are used */
    return VARVE_OK;
}

static inline int torch_check(const struct varve_device *none, struct varve_message *message)
{
    (void)none;
    int error = VARVE_OK;
    for (struct frontend_device *device = registry_next(-1); device != NULL && error == VARVE_OK;
         device = registry_next(device->ordinal)) {
        error = varve_alloc_check(device->alloc, message);
    }
    return error;
}

static inline const char *torch_reason(void)
{
    return torch_said.text[0] != '\0' ? torch_said.text : varve_torch_message();
}

/* A request that fails gives 0. */
static inline int torch_take(struct device_step *step)
{
    uint64_t addr = 1;
    int error = torch_allocate(step->at[0], (int)step->at[1], step->stream, &addr, &torch_said);
    assert_true(error == VARVE_OK || addr == 0);
    step->out = error == VARVE_OK ? addr : step->out;
    return error;
}

static inline int torch_figure(struct device_step *step, int which)
{
    int64_t figures[4];
    int error = varve_torch_memory((int)step->at[0], figures);
    step->out = error == VARVE_OK ? (uint64_t)figures[which] : step->out;
    return error;
}

static inline int torch_gives(struct device_step *step, int64_t value)
{
    step->out = value < 0 ? step->out : (uint64_t)value;
    return value < 0 ? (int)value : VARVE_OK;
}

/* The segment, or the block itself, that an address is in; its bytes. */
static inline int torch_base(struct device_step *step, bool is_bytes)
{
    size_t bytes = 1;
    uint64_t base = (uint64_t)(uintptr_t)varve_torch_base_alloc((void *)(uintptr_t)step->at[0], &bytes);
    step->out = is_bytes ? bytes : base;
    return VARVE_OK;
}

/* X(name, what it does) */
/* clang-format off */
#define TORCH_WORDS(X) \
    X(take, torch_take(step)) \
    X(give, (give(at[0], (int)at[1]), VARVE_OK)) \
    X(serve, torch_take(step) == VARVE_OK ? (give(step->out, (int)at[1]), VARVE_OK) : VARVE_ERROR_NO_MEMORY) \
    X(use, torch_record_stream(at[0], step->stream, &torch_said)) \
    X(base, torch_base(step, false)) \
    X(base_bytes, torch_base(step, true)) \
    X(reset, (varve_torch_reset(), VARVE_OK)) \
    X(empty, varve_torch_empty_cache(device, 0, 0)) \
    X(is_open, torch_gives(step, varve_torch_is_open(device))) \
    X(allocated, torch_figure(step, 0)) \
    X(allocated_peak, torch_figure(step, 1)) \
    X(reserved, torch_figure(step, 2)) \
    X(reserved_peak, torch_figure(step, 3)) \
    X(largest, varve_torch_cache_info(device, &step->out)) \
    X(method, (step->out = at[1], varve_torch_cache_info_method(NULL, (int8_t)device, &step->out), VARVE_OK)) \
    X(begin, torch_pool_begin(device, pool, NULL, NULL, &torch_said)) \
    X(end, torch_pool_end(device, pool, &torch_said)) \
    X(let_go, (torch_pool_release(device, pool), VARVE_OK)) \
    X(take_pool, varve_torch_take_pool(device, at[1], at[2])) \
    X(drop_pool, varve_torch_drop_pool(device, at[1], at[2])) \
    X(uses, torch_gives(step, varve_torch_pool_use_count(device, at[1], at[2]))) \
    X(no_split, varve_torch_set_no_split(device, at[1], at[2])) \
    X(use_on_oom, varve_torch_set_use_on_oom(device, at[1], at[2], 1))
/* clang-format on */

#define TORCH_FUNCTION(name, expression)                          \
    static inline int torch_word_##name(struct device_step *step) \
    {                                                             \
        const uint64_t *at = step->at;                            \
        const int device = (int)at[0];                            \
        const struct varve_pool_id pool = {at[1], at[2]};         \
        (void)device, (void)pool;                                 \
        torch_said.text[0] = '\0';                                \
        return expression;                                        \
    }
TORCH_WORDS(TORCH_FUNCTION)
#undef TORCH_FUNCTION

#define TORCH_ENTRY(name, expression) {#name, torch_word_##name},
static const struct device_word torch_words[] = {TORCH_WORDS(TORCH_ENTRY){NULL, NULL}};
#undef TORCH_ENTRY

static const struct device_kind torch_kind = {
    .name = "torch", .open = torch_open, .check = torch_check, .reason = torch_reason, .words = torch_words};

#endif
