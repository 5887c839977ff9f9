/* SPDX-License-Identifier: Apache-2.0 */
/* Selects the back end, and for the CPU the instruction set tier. */
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
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
    } places[] = {
        {"", false}, {"/../kernels/", true}, {"/../../kernels/", true}};
    const char *env = getenv("BATON_PLUGIN_DIR");
    char program[PATH_MAX];
    void *handle = NULL;

    if ((env != NULL) && (env[0] != '\0')) {
        handle = plugin_load(env, name, is_there_p);
    }
    if (!program_dir(program)) {
        return handle;
    }
    for (size_t i = 0; (handle == NULL) && (i < BT_ARRAY_LEN(places)); i++) {
        char dir[PATH_MAX];
        const int len =
            snprintf(dir, sizeof(dir), "%s%s%s", program, places[i].dir,
                     places[i].own_folder ? name : "");

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
