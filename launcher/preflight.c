/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/preflight.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "launcher/plan.h"

/* ---- memory and threads ---- */

#define TEXT_BYTES 2048 /* with the path of a cgroup */
#define OF_BYTES   1152
#define POOL_PART  4 /* worker/preflight.c: a quarter of what is left */

/* The launcher itself, its log, its output; a program being asked. */
#define LAUNCHER_THREADS 4

typedef struct sums {
    uint64_t weights, own, pools, shm;
    uint64_t n_pools;
    uint64_t left; /* for the pools */
} sums_t;

static uint64_t least(uint64_t a, uint64_t b)
{
    return (a < b) ? a : b;
}

static uint64_t largest(uint64_t a, uint64_t b)
{
    return (a > b) ? a : b;
}

static uint64_t mib(uint64_t bytes)
{
    return (bytes >> 20) + (((bytes & ((1u << 20) - 1)) != 0) ? 1 : 0);
}

/* True when an earlier group counted this file. A file belongs to a rank, per
 * number of ranks. */
static bool is_counted(const bt_preflight_need_t *needs, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++) {
        if (needs[k].weights_shared && (needs[k].model == needs[i].model) &&
            (needs[k].ranks == needs[i].ranks)) {
            return true;
        }
    }
    return false;
}

/* Pool of an instance. Workers start at once, so without given sizes they share
 * half of the remaining memory evenly; each gets a quarter of it at most. */
static uint64_t pool_of(const bt_preflight_need_t *need,
                        const bt_preflight_headroom_t *headroom, uint64_t left,
                        uint64_t n_pools)
{
    const uint64_t pool = need->ranks * need->pool_bytes;

    return headroom->pools_given
               ? pool
               : least(pool, left / largest(POOL_PART, 2 * n_pools));
}

static sums_t sum_up(const bt_preflight_need_t *needs, uint32_t n,
                     const bt_preflight_headroom_t *headroom)
{
    uint64_t left = headroom->available_bytes;
    sums_t sums = {0};

    for (uint32_t i = 0; i < n; i++) {
        const bt_preflight_need_t *const need = &needs[i];
        const uint64_t all =
            (uint64_t)(need->n + need->n_standby) * need->ranks;

        sums.own += all * need->own_bytes;
        if (!need->weights_shared) {
            sums.weights += all * need->weight_bytes;
        } else if (!is_counted(needs, i)) {
            sums.weights += need->ranks * need->weight_bytes;
        }
        sums.n_pools += need->n;
    }
    left -= (sums.own + sums.weights < left) ? sums.own + sums.weights : left;
    sums.left = left;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t pool = pool_of(&needs[i], headroom, left, sums.n_pools);

        sums.pools += needs[i].n * pool;
        sums.shm += needs[i].n * pool;
    }
    return sums;
}

static void check_memory(const sums_t *sums,
                         const bt_preflight_headroom_t *headroom,
                         bt_diagnostics_t *findings)
{
    const uint64_t rest = sums->weights + sums->own;
    char text[TEXT_BYTES];
    char fix[TEXT_BYTES] = "";
    char of[OF_BYTES] = "";
    uint64_t most;

    if (rest + sums->pools <= headroom->available_bytes) {
        return;
    }
    if ((headroom->limit_by != NULL) && (headroom->limit_by[0] != '\0')) {
        snprintf(of, sizeof(of), " of the cgroup's %" PRIu64 " (%s)",
                 (headroom->limit_bytes >> 20), headroom->limit_by);
    }
    snprintf(text, sizeof(text),
             "the workers take %" PRIu64 " MiB together (weights %" PRIu64
             ", their own %" PRIu64 ", "
             "KV pools %" PRIu64 "), and %" PRIu64
             " MiB are available%s: %" PRIu64 " MiB are missing",
             mib(rest + sums->pools), mib(sums->weights), mib(sums->own),
             mib(sums->pools), (headroom->available_bytes >> 20), of,
             mib(rest + sums->pools - headroom->available_bytes));
    most = (rest < headroom->available_bytes) && (sums->n_pools > 0)
               ? (headroom->available_bytes - rest) / sums->n_pools >> 20
               : 0;
    if (most > 0) {
        snprintf(fix, sizeof(fix), "--kv-memory %" PRIu64 "m", most);
    } else {
        snprintf(fix, sizeof(fix),
                 "fewer workers (--prefill, --decode), a smaller model, or "
                 "more memory");
    }
    bt_diagnostics_add(findings, BT_FINDING_PROBLEM, "memory", text, fix);
}

static void check_shm(const sums_t *sums,
                      const bt_preflight_headroom_t *headroom,
                      bt_diagnostics_t *findings)
{
    char text[TEXT_BYTES];
    char fix[TEXT_BYTES];

    if (!headroom->uses_shm || (sums->shm <= headroom->shm_bytes)) {
        return;
    }
    snprintf(text, sizeof(text),
             "the KV pools take %" PRIu64 " MiB of /dev/shm, which has %" PRIu64
             " MiB left: "
             "%s",
             mib(sums->shm), (headroom->shm_bytes >> 20),
             headroom->needs_shm
                 ? "with --kv-transport shm a worker that finds no "
                   "room does not start"
                 : "a worker that finds no room sends KV over the "
                   "loopback network");
    snprintf(fix, sizeof(fix),
             "mount -o remount,size=%" PRIu64 "m /dev/shm (a container: "
             "--shm-size %" PRIu64 "m)",
             mib(sums->shm) + 64, mib(sums->shm) + 64);
    bt_diagnostics_add(
        findings, headroom->needs_shm ? BT_FINDING_PROBLEM : BT_FINDING_WARNING,
        "/dev/shm", text, fix);
}

uint64_t bt_preflight_check(const bt_preflight_need_t *needs, uint32_t n,
                            const bt_preflight_headroom_t *headroom,
                            bt_diagnostics_t *findings)
{
    const sums_t sums = sum_up(needs, n, headroom);

    check_memory(&sums, headroom, findings);
    check_shm(&sums, headroom, findings);
    return sums.shm;
}

uint64_t bt_preflight_pool(const bt_preflight_need_t *needs, uint32_t n,
                           const bt_preflight_headroom_t *headroom, uint32_t i)
{
    const sums_t sums = sum_up(needs, n, headroom);

    return pool_of(&needs[i], headroom, sums.left, sums.n_pools);
}

/* Threads of a rank of a worker, given its compute threads. */
static uint64_t worker_threads(const bt_preflight_cpus_t *cpus,
                               uint64_t n_compute)
{
    const uint64_t n_with_lent =
        cpus->lends ? largest(n_compute, cpus->n_cpus) : n_compute;

    return bt_worker_threads(cpus->n_online, n_with_lent);
}

uint64_t bt_preflight_threads(const bt_config_t *config, uint32_t n_models,
                              const bt_preflight_cpus_t *cpus)
{
    const uint64_t router = bt_router_threads(
        cpus->n_online, bt_parse_threads(config, cpus->n_cpus));
    const uint64_t prefill_ranks =
        (uint64_t)config->prefill_tp * config->prefill_pp;
    const uint64_t decode_ranks =
        (uint64_t)config->decode_tp * config->decode_pp;
    uint32_t n_prefill, n_decode;
    uint64_t prefill, decode;

    bt_plan_threads(config, n_models, cpus->n_cpus, &n_prefill, &n_decode);
    prefill = prefill_ranks *
              worker_threads(cpus, largest(n_prefill / prefill_ranks, 1));
    decode = decode_ranks *
             worker_threads(cpus, largest(n_decode / decode_ranks, 1));
    return LAUNCHER_THREADS + config->routers * router +
           n_models * (config->prefill * prefill + config->decode * decode +
                       config->standby * largest(prefill, decode));
}

/* ---- model files ---- */

/* trtllm-build writes rank0.engine beside a config.json. */
static bool is_engine(int fd, const struct stat *info, const char *path)
{
    const size_t n = strlen(path);
    static const char suffix[] = ".engine";

    if (S_ISDIR(info->st_mode)) {
        return faccessat(fd, "rank0.engine", F_OK, 0) == 0;
    }
    return (n > sizeof(suffix)) &&
           (strcmp(path + n - (sizeof(suffix) - 1), suffix) == 0);
}

bt_status_t bt_model_file_check(const char *path, char *why, size_t why_bytes)
{
    /* Do not hang on a pipe of that name. */
    BT_CLEANUP(close)
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;

    if ((fd < 0) && ((errno == ENOENT) || (errno == ENOTDIR))) {
        snprintf(why, why_bytes, "cannot open the model %s: %m; ", path);
        bt_model_hint(path, why + strlen(why), why_bytes - strlen(why));
        return BT_ERR_IO;
    }
    if ((fd < 0) || (fstat(fd, &info) != 0)) {
        snprintf(why, why_bytes, "cannot open the model %s: %m", path);
        return BT_ERR_IO;
    }
    if (is_engine(fd, &info, path)) {
        snprintf(why, why_bytes,
                 "%s is an engine of TensorRT, which is not served; a GGUF "
                 "file or the folder of Hugging Face that it was built from is",
                 path);
        return BT_ERR_IO;
    }
    if (S_ISDIR(info.st_mode) && (faccessat(fd, "config.json", R_OK, 0) != 0)) {
        snprintf(why, why_bytes,
                 "the model %s is a folder without a config.json, so not a "
                 "model's",
                 path);
        return BT_ERR_IO;
    }
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
        snprintf(why, why_bytes, "the model %s is neither a file nor a folder",
                 path);
        return BT_ERR_IO;
    }
    return BT_OK;
}

void bt_model_file_origin(const bt_config_t *config, const char *path,
                          char *out, size_t out_bytes)
{
    const bt_repository_t *repository = config->repository;
    const char *named =
        (repository != NULL)
            ? bt_repo_parameter(&repository->models[BT_REPO_LLM],
                                "gpt_model_path")
            : NULL;

    out[0] = '\0';
    if ((named != NULL) && (strcmp(named, path) == 0)) {
        snprintf(out, out_bytes,
                 " (gpt_model_path, fill_template's engine_dir, of "
                 "%s/tensorrt_llm/config.pbtxt says so: --model PATH names "
                 "the model that is served)",
                 config->model_repository);
    }
}

/* ---- findings ---- */

static const char *const names[] = {
    [BT_FINDING_NOTE] = "note",
    [BT_FINDING_WARNING] = "warning",
    [BT_FINDING_PROBLEM] = "problem",
};

static void free_texts(const bt_diagnostic_t *finding)
{
    bt_free(finding->about);
    bt_free(finding->text);
    bt_free(finding->fix);
}

void bt_diagnostics_add(bt_diagnostics_t *findings, bt_diagnostic_level_t level,
                        const char *about, const char *text, const char *fix)
{
    bt_diagnostic_t finding;
    bt_diagnostic_t *list;

    for (uint32_t i = 0; i < findings->n; i++) {
        if (strcmp(findings->list[i].text, text) == 0) {
            return;
        }
    }
    list = bt_realloc_array(findings->list, (size_t)findings->n + 1,
                            sizeof(*list));
    if (list == NULL) {
        findings->status = BT_ERR_NO_MEMORY;
        return;
    }
    findings->list = list;
    finding = (bt_diagnostic_t){.level = level,
                                .about = bt_strdup(about),
                                .text = bt_strdup(text),
                                .fix = bt_strdup(fix)};
    if ((finding.about == NULL) || (finding.text == NULL) ||
        (finding.fix == NULL)) {
        free_texts(&finding);
        findings->status = BT_ERR_NO_MEMORY;
        return;
    }
    list[findings->n++] = finding;
}

void bt_diagnostics_fini(bt_diagnostics_t *findings)
{
    for (uint32_t i = 0; i < findings->n; i++) {
        free_texts(&findings->list[i]);
    }
    bt_free(findings->list);
    *findings = (bt_diagnostics_t){0};
}

uint32_t bt_diagnostics_count(const bt_diagnostics_t *findings,
                              bt_diagnostic_level_t level)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < findings->n; i++) {
        n += (findings->list[i].level == level) ? 1 : 0;
    }
    return n;
}

void bt_diagnostics_print(const bt_diagnostics_t *findings, bt_strbuf_t *out)
{
    const uint32_t n_problems =
        bt_diagnostics_count(findings, BT_FINDING_PROBLEM);
    const uint32_t n_warnings =
        bt_diagnostics_count(findings, BT_FINDING_WARNING);

    for (uint32_t i = 0; i < findings->n; i++) {
        const bt_diagnostic_t *const finding = &findings->list[i];

        bt_strbuf_printf(out, "%-8s %s: %s\n", names[finding->level],
                         finding->about, finding->text);
        if (finding->fix[0] != '\0') {
            bt_strbuf_printf(out, "%-8s fix: %s\n", "", finding->fix);
        }
    }
    bt_strbuf_printf(out, "%u problem%s, %u warning%s\n", n_problems,
                     (n_problems == 1) ? "" : "s", n_warnings,
                     (n_warnings == 1) ? "" : "s");
}

void bt_diagnostics_json(const bt_diagnostics_t *findings, bt_json_t *json)
{
    bt_json_array(json, "findings");
    for (uint32_t i = 0; i < findings->n; i++) {
        const bt_diagnostic_t *const finding = &findings->list[i];

        bt_json_object(json, NULL);
        bt_json_str(json, "level", names[finding->level]);
        bt_json_str(json, "about", finding->about);
        bt_json_str(json, "text", finding->text);
        bt_json_str(json, "fix",
                    (finding->fix[0] != '\0') ? finding->fix : NULL);
        bt_json_end_object(json);
    }
    bt_json_end_array(json);
}
