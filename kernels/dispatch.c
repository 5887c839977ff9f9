/* SPDX-License-Identifier: Apache-2.0 */
/* Which back end, and on a CPU which instruction tier. */
#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "kernels/cpu/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define PLUGIN_FILE "baton_cuda.so"

typedef bt_status_t (*plugin_open_fn)(const bt_backend_config_t *config,
                                      bt_backend_t **be_p);

typedef void (*plugin_close_fn)(bt_backend_t *be);

/* Set once the plugin is loaded, which stays for the life of the process: the
 * driver keeps threads of its own, which must not lose their code. */
static _Atomic(plugin_close_fn) plugin_close;

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

/* Open the plugin from a folder given relative to the program's own. */
static void *plugin_load(const char *program_dir, const char *relative)
{
    char path[PATH_MAX];
    int len = snprintf(path, sizeof(path), "%s/%s" PLUGIN_FILE, program_dir,
                       relative);
    void *handle;

    if ((len < 0) || ((size_t)len >= sizeof(path)) ||
        (access(path, R_OK) != 0)) {
        return NULL;
    }
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        BT_LOG_ERROR("cannot load the CUDA plugin: %s", dlerror());
    }
    return handle;
}

static void *plugin_find(void)
{
    static const char *const places[] = {
        "", "../lib/baton/", "../kernels/cuda/", "../../kernels/cuda/"};
    char dir[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
    char *slash;

    if (len <= 0) {
        return NULL;
    }
    dir[len] = '\0';
    slash = strrchr(dir, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(places); i++) {
        void *handle = plugin_load(dir, places[i]);

        if (handle != NULL) {
            return handle;
        }
    }
    return NULL;
}

/* POSIX: a function's address has the form of a data pointer. */
static bool plugin_symbol(void *handle, const char *name, void *fn_p)
{
    void *symbol = dlsym(handle, name);

    if (symbol == NULL) {
        BT_LOG_ERROR("the CUDA plugin has no %s", name);
        return false;
    }
    memcpy(fn_p, &symbol, sizeof(symbol));
    return true;
}

static bt_status_t plugin_open(const bt_backend_config_t *config,
                               bt_backend_t **be_p)
{
    void *handle = plugin_find();
    plugin_open_fn open_fn = NULL;
    plugin_close_fn close_fn = NULL;

    if (handle == NULL) {
        return BT_ERR_NOT_FOUND;
    }
    if (!plugin_symbol(handle, "bt_cuda_backend_open", &open_fn) ||
        !plugin_symbol(handle, "bt_cuda_backend_close", &close_fn)) {
        dlclose(handle);
        return BT_ERR_NOT_FOUND;
    }
    atomic_store(&plugin_close, close_fn);
    return open_fn(config, be_p);
}

bt_status_t bt_backend_open(const char *name, const bt_backend_config_t *config,
                            bt_backend_t **be_p)
{
    if (strcmp(name, "cpu") == 0) {
        return bt_cpu_open(bt_cpu_isa(tier_pick()), config, be_p);
    }
    if (strcmp(name, "cuda") == 0) {
        return plugin_open(config, be_p);
    }
    return BT_ERR_NOT_FOUND;
}

void bt_backend_close(bt_backend_t *be)
{
    if (be == NULL) {
        return;
    }
    if (be->ops->close != NULL) {
        be->ops->close(be);
    } else {
        atomic_load (&plugin_close)(be);
    }
}
