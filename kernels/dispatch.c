/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "kernels/cpu/cpu.h"
#include "kernels/kernels.h"

/* Selects the back end, and for the CPU the instruction set tier. */

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define MAX_NAME 32 /* of a back end */

static const char *const tier_names[] = {
    [BT_CPU_PLAIN] = "plain",
    [BT_CPU_AVX2] = "avx2",
    [BT_CPU_AVX512] = "avx512",
};

#if defined(__x86_64__)
/* clang 14's __builtin_cpu_supports() does not know F16C. The operating
 * system's part (AVX state) is covered by the question for AVX2. */
static bool has_f16c(void)
{
    unsigned int eax;
    unsigned int ebx;
    unsigned int ecx;
    unsigned int edx;

    return (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) &&
           ((ecx & bit_F16C) != 0);
}
#endif

bt_cpu_tier_t bt_cpu_tier_detect(void)
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !has_f16c()) {
        return BT_CPU_PLAIN;
    }
    if (__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni")) {
        return BT_CPU_AVX512;
    }
    return BT_CPU_AVX2;
#else
    return BT_CPU_PLAIN;
#endif
}

const bt_cpu_isa_t *bt_cpu_isa(bt_cpu_tier_t tier)
{
#if defined(__x86_64__)
    if (tier == BT_CPU_AVX512) {
        return &bt_cpu_avx512;
    }
    if (tier == BT_CPU_AVX2) {
        return &bt_cpu_avx2;
    }
#endif
    (void)tier;
    return &bt_cpu_plain;
}

static bt_cpu_tier_t tier_pick(void)
{
    const char *env = getenv("BATON_CPU_TIER");
    bt_cpu_tier_t tier = bt_cpu_tier_detect();

    if ((env != NULL) && (env[0] != '\0')) {
        size_t i;

        for (i = 0; i < BT_ARRAY_LEN(tier_names); i++) {
            if (strcmp(env, tier_names[i]) == 0) {
                break;
            }
        }
        if (i == BT_ARRAY_LEN(tier_names)) {
            BT_LOG_WARN("BATON_CPU_TIER is ignored: not plain, avx2 or avx512");
        } else if (i < (size_t)tier) {
            tier = (bt_cpu_tier_t)i;
        }
    }
    return tier;
}

/* @param [out] is_there_p  set where the folder has such a plugin
 * @return NULL: it has none, or one that cannot be loaded (logged) */
static void *plugin_load(const char *dir, const char *name, bool *is_there_p)
{
    char path[PATH_MAX];
    const int len = snprintf(path, sizeof(path), "%s/baton_%s.so", dir, name);
    void *handle;

    if ((len < 0) || ((size_t)len >= sizeof(path)) ||
        (access(path, R_OK) != 0)) {
        return NULL;
    }
    *is_there_p = true;
    /* Never closed: a driver keeps threads of its own, which must not lose
     * their code. */
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        BT_LOG_ERROR("cannot load the plugin of back end %s: %s", name,
                     dlerror());
    }
    return handle;
}

static bool program_dir(char dir[PATH_MAX])
{
    const ssize_t len = readlink("/proc/self/exe", dir, PATH_MAX - 1);
    char *slash;

    if (len <= 0) {
        return false;
    }
    dir[len] = '\0';
    slash = strrchr(dir, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    return true;
}

static void *plugin_find(const char *name, bool *is_there_p)
{
    /* The latter two: in a build tree, a folder for each back end. */
    static const struct {
        const char *dir;
        bool own_folder;
    } dirs[] = {{"", false}, {"/../kernels/", true}, {"/../../kernels/", true}};
    const char *env = getenv("BATON_PLUGIN_DIR");
    char program[PATH_MAX];
    void *handle = NULL;

    if ((env != NULL) && (env[0] != '\0')) {
        handle = plugin_load(env, name, is_there_p);
    }
    if (!program_dir(program)) {
        return handle;
    }
    for (size_t i = 0; (handle == NULL) && (i < BT_ARRAY_LEN(dirs)); i++) {
        char dir[PATH_MAX];
        const int len = snprintf(dir, sizeof(dir), "%s%s%s", program,
                                 dirs[i].dir, dirs[i].own_folder ? name : "");

        if ((len > 0) && ((size_t)len < sizeof(dir))) {
            handle = plugin_load(dir, name, is_there_p);
        }
    }
    return handle;
}

/* Such a name cannot form a path that leads elsewhere. */
static bool is_name(const char *name)
{
    const size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");

    return (n > 0) && (n < MAX_NAME) && (name[n] == '\0');
}

__attribute__((format(printf, 2, 3))) static void
explain(const bt_backend_config_t *config, const char *format, ...)
{
    va_list args;

    if (config->why != NULL) {
        va_start(args, format);
        vsnprintf(config->why, config->why_bytes, format, args);
        va_end(args);
    }
}

static bt_status_t plugin_open(const char *name,
                               const bt_backend_config_t *config,
                               bt_backend_t **be_p)
{
    char symbol_name[MAX_NAME + sizeof("bt__backend_open")];
    bool is_there = false;
    void *handle = is_name(name) ? plugin_find(name, &is_there) : NULL;
    bt_backend_open_fn open_fn = NULL;
    void *symbol;

    if (handle == NULL) {
        explain(config,
                is_there
                    ? "no plugin baton_%s.so could be loaded from "
                      "BATON_PLUGIN_DIR or the program's folder"
                    : "no plugin baton_%s.so is in BATON_PLUGIN_DIR or the "
                      "program's folder: this Baton was built without it, "
                      "as Debian packages are",
                is_name(name) ? name : "NAME");
        return BT_ERR_NOT_FOUND;
    }
    snprintf(symbol_name, sizeof(symbol_name), "bt_%s_backend_open", name);
    symbol = dlsym(handle, symbol_name);
    if (symbol == NULL) {
        BT_LOG_ERROR("the plugin of back end %s has no %s", name, symbol_name);
        dlclose(handle);
        return BT_ERR_NOT_FOUND;
    }
    /* POSIX: a function's address has the form of a data pointer. */
    memcpy(&open_fn, &symbol, sizeof(symbol));
    return open_fn(config, be_p);
}

bt_status_t bt_backend_open(const char *name, const bt_backend_config_t *config,
                            bt_backend_t **be_p)
{
    explain(config, "%s", "");
    if (strcmp(name, "cpu") == 0) {
        return bt_cpu_open(bt_cpu_isa(tier_pick()), config, be_p);
    }
    return plugin_open(name, config, be_p);
}

void bt_backend_close(bt_backend_t *be)
{
    if (be != NULL) {
        be->ops->close(be);
    }
}

/* Checks requests to a back end against its capabilities. */

static bt_status_t refuse(char *why, size_t why_bytes, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static bt_status_t refuse(char *why, size_t why_bytes, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(why, why_bytes, fmt, args);
    va_end(args);
    return BT_ERR_UNSUPPORTED;
}

bt_status_t bt_kernels_check_kv(const bt_kernels_caps_t *caps,
                                const bt_kv_view_t *kv, char *why,
                                size_t why_bytes)
{
    const bt_kv_type_info_t *const info = bt_kv_type_info(kv->type);

    if ((info == NULL) || ((caps->kv_types >> kv->type & 1u) == 0)) {
        return refuse(why, why_bytes,
                      "the %s back end does not have kv-dtype %s", caps->name,
                      (info == NULL) ? "(unknown)" : info->name);
    }
    if (kv->head_dim > caps->max_head_dim) {
        return refuse(why, why_bytes,
                      "the %s back end supports heads of at most %u "
                      "dimensions; the model's have %u",
                      caps->name, caps->max_head_dim, kv->head_dim);
    }
    if ((kv->tokens_per_block == 0) ||
        (kv->tokens_per_block % caps->kv_block_tokens != 0)) {
        return refuse(why, why_bytes,
                      "tokens-per-block is %u; the %s back end needs a "
                      "multiple of %u",
                      kv->tokens_per_block, caps->name, caps->kv_block_tokens);
    }
    if ((caps->max_block_tokens != 0) &&
        (kv->tokens_per_block > caps->max_block_tokens)) {
        return refuse(why, why_bytes,
                      "tokens-per-block is %u; the %s back end takes at most "
                      "%u",
                      kv->tokens_per_block, caps->name, caps->max_block_tokens);
    }
    if (((uintptr_t)kv->base % caps->kv_align_bytes != 0) ||
        (kv->block_bytes % caps->kv_align_bytes != 0)) {
        return refuse(why, why_bytes,
                      "KV blocks of %zu bytes do not all begin on %u bytes, as "
                      "the %s back end needs",
                      kv->block_bytes, caps->kv_align_bytes, caps->name);
    }
    return BT_OK;
}

static uint32_t parts_of(const bt_attention_t *a)
{
    return ((a->window != 0) ? (uint32_t)BT_ATTENTION_WINDOW : 0) |
           ((a->soft_cap > 0.0f) ? (uint32_t)BT_ATTENTION_SOFT_CAP : 0) |
           ((a->sinks != NULL) ? (uint32_t)BT_ATTENTION_SINKS : 0) |
           ((a->value_dim != a->key_dim) ? (uint32_t)BT_ATTENTION_VALUE_DIM
                                         : 0) |
           ((a->slopes != NULL) ? (uint32_t)BT_ATTENTION_SLOPES : 0);
}

bt_status_t bt_kernels_check_attention(const bt_kernels_caps_t *caps,
                                       const bt_attention_t *attention,
                                       char *why, size_t why_bytes)
{
    static const struct {
        bt_attention_part_t part;
        const char *name;
    } parts[] = {
        {BT_ATTENTION_WINDOW, "a sliding window"},
        {BT_ATTENTION_SOFT_CAP, "a soft cap of its scores"},
        {BT_ATTENTION_SINKS, "sinks"},
        {BT_ATTENTION_VALUE_DIM, "values of another width than keys"},
        {BT_ATTENTION_SLOPES, "linear biases of its scores"},
    };
    const uint32_t missing = parts_of(attention) & ~caps->attention;

    for (size_t i = 0; i < BT_ARRAY_LEN(parts); i++) {
        if ((missing & (uint32_t)parts[i].part) != 0) {
            return refuse(why, why_bytes,
                          "the %s back end does not compute attention with %s",
                          caps->name, parts[i].name);
        }
    }
    return BT_OK;
}

static const bt_kv_type_info_t kv_types[] = {
    [BT_KV_F16] = {"f16", 2, 0},
    [BT_KV_BF16] = {"bf16", 2, 0},
    [BT_KV_INT8] = {"int8", 1, 4},
    [BT_KV_FP8] = {"fp8", 1, 4},
};

const bt_kv_type_info_t *bt_kv_type_info(uint32_t type)
{
    return (type < BT_ARRAY_LEN(kv_types)) ? &kv_types[type] : NULL;
}

bt_status_t bt_kv_type_parse(const char *name, bt_kv_type_t *type_p)
{
    for (uint32_t i = 0; i < BT_ARRAY_LEN(kv_types); i++) {
        if (strcmp(kv_types[i].name, name) == 0) {
            *type_p = (bt_kv_type_t)i;
            return BT_OK;
        }
    }
    return BT_ERR_NOT_FOUND;
}
