/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/survey.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "common/base/alloc.h"
#include "common/base/json_doc.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "launcher/programs.h"

#define ASK_MS     60000u /* against hangs: it reads headers */
#define TEXT_BYTES 4096

void bt_survey_limits_read(const char *root, bt_survey_limits_t *limits_p)
{
    bt_limits_cpus(root, &limits_p->cpus);
    bt_limits_memory(root, &limits_p->memory);
    bt_limits_threads(root, &limits_p->threads);
}

/* ---- limits ---- */

static bool is_of_user(const bt_limit_t *threads)
{
    return strcmp(threads->by, BT_LIMITS_OF_USER) == 0;
}

/* The most processes and threads of a launch. */
static uint64_t threads_of(const bt_config_t *config, uint32_t n_models,
                           const bt_survey_limits_t *limits)
{
    const bt_preflight_cpus_t cpus = {
        .n_cpus = (uint32_t)limits->cpus.most,
        .n_online = bt_online_cpus(),
        /* With a quota no worker has cores of its own that could be lent. */
        .lends = (limits->cpus.by[0] == '\0') &&
                 (strcmp(config->share_idle_cores, "off") != 0),
    };

    return bt_preflight_threads(config, n_models, &cpus);
}

void bt_survey_check_threads(const bt_config_t *config, uint32_t n_models,
                             const bt_survey_limits_t *limits,
                             bt_diagnostics_t *findings)
{
    const bt_limit_t *const limit = &limits->threads;
    const uint64_t n = threads_of(config, n_models, limits);
    char text[TEXT_BYTES];
    char fix[256] = "";

    /* Most users have a limit, which is far away. */
    if ((limit->most == UINT64_MAX) ||
        (is_of_user(limit) && (limit->left / 4 >= n))) {
        return;
    }
    snprintf(text, sizeof(text),
             "up to %" PRIu64 " processes and threads are needed, and %" PRIu64
             " of %" PRIu64 " are left (%s)",
             n, limit->left, limit->most, limit->by);
    if (limit->left < n) {
        snprintf(fix, sizeof(fix),
                 is_of_user(limit)
                     ? "ulimit -u %" PRIu64 " (systemd: LimitNPROC=%" PRIu64 ")"
                     : "%" PRIu64 " or more there (systemd: TasksMax=%" PRIu64
                       "; docker: --pids-limit)",
                 limit->most - limit->left + n, limit->most - limit->left + n);
    }
    bt_diagnostics_add(findings,
                       (limit->left < n) ? BT_FINDING_PROBLEM : BT_FINDING_NOTE,
                       "processes", text, fix);
}

void bt_survey_note_limits(const bt_plan_t *plan,
                           const bt_survey_limits_t *limits,
                           bt_diagnostics_t *findings)
{
    const bt_limit_t *const cpus = &limits->cpus;
    const bt_limit_t *const memory = &limits->memory;
    char text[TEXT_BYTES];
    uint32_t n = 0;

    for (uint32_t i = 0; i < plan->n_processes; i++) {
        n += plan->processes[i]->is_standby ? 0 : plan->processes[i]->threads;
    }
    if (cpus->by[0] != '\0') {
        snprintf(text, sizeof(text),
                 "the cgroup has the time of %" PRIu64
                 " CPU%s (%s), and the workers "
                 "have %u threads%s",
                 cpus->most, (cpus->most == 1) ? "" : "s", cpus->by, n,
                 (n > cpus->most) ? ", one each at least: they wait for each "
                                    "other"
                                  : ", on no cores of their own");
        bt_diagnostics_add(
            findings, (n > cpus->most) ? BT_FINDING_WARNING : BT_FINDING_NOTE,
            "cores", text, "");
    }
    if (memory->by[0] != '\0') {
        snprintf(text, sizeof(text),
                 "the cgroup has %" PRIu64 " MiB and leaves %" PRIu64 " (%s)",
                 (memory->most >> 20), (memory->left >> 20), memory->by);
        bt_diagnostics_add(findings, BT_FINDING_NOTE, "memory", text, "");
    }
}

static void json_limit(bt_json_t *json, const char *name,
                       const bt_limit_t *limit)
{
    bt_json_object(json, name);
    if (limit->most == UINT64_MAX) {
        bt_json_str(json, "most", NULL);
        bt_json_str(json, "left", NULL);
    } else {
        bt_json_u64(json, "most", limit->most);
        bt_json_u64(json, "left", limit->left);
    }
    bt_json_str(json, "by", (limit->by[0] != '\0') ? limit->by : NULL);
    bt_json_end_object(json);
}

void bt_survey_limits_json(const bt_config_t *config,
                           const bt_survey_limits_t *limits, bt_json_t *json)
{
    const uint32_t n_models = (config->n_models == 0) ? 1 : config->n_models;

    json_limit(json, "cpus", &limits->cpus);
    json_limit(json, "memory", &limits->memory);
    json_limit(json, "threads", &limits->threads);
    bt_json_u64(json, "threads_needed", threads_of(config, n_models, limits));
}

/* ---- what the programs say ---- */

/* True when the launcher has reported that the file cannot be opened. */
static bool is_said(const bt_survey_t *s, const bt_plan_t *plan,
                    const char *text)
{
    for (uint32_t i = 0; i < plan->config->n_models; i++) {
        if (s->cannot_open[i] &&
            (strstr(text, plan->config->models[i].path) != NULL)) {
            return true;
        }
    }
    return false;
}

/* Handles a log line in JSON, or of the option parser. */
static void take_line(bt_survey_t *s, const bt_plan_t *plan, const char *about,
                      const char *line, size_t bytes)
{
    bt_diagnostic_level_t level = BT_FINDING_PROBLEM;
    const bt_json_node_t *said = NULL;
    bt_json_doc_t *doc = NULL;
    char text[TEXT_BYTES];
    char why[128];

    snprintf(text, sizeof(text), "%.*s", (int)bytes, line);
    if (bt_json_doc_parse(line, bytes, why, sizeof(why), &doc) == BT_OK) {
        const bt_json_node_t *const root = bt_json_doc_root(doc);
        const bt_json_node_t *const word = bt_json_get(doc, root, "level");

        said = bt_json_get(doc, root, "message");
        if ((said == NULL) || (said->kind != BT_JSON_STRING) ||
            !(bt_json_is(word, "error") || bt_json_is(word, "warn"))) {
            goto end; /* an ordinary message */
        }
        level =
            bt_json_is(word, "error") ? BT_FINDING_PROBLEM : BT_FINDING_WARNING;
        snprintf(text, sizeof(text), "%.*s", (int)said->len, said->text);
    }
    if (!is_said(s, plan, text)) {
        bt_diagnostics_add(s->findings, level, about, text, "");
    }
end:
    bt_json_doc_free(doc);
}

static void take_lines(bt_survey_t *s, const bt_plan_t *plan, const char *about,
                       const bt_strbuf_t *err)
{
    const char *at = (err->len > 0) ? err->data : "";

    while (*at != '\0') {
        const size_t n = strcspn(at, "\n");

        if (n > 0) {
            take_line(s, plan, about, at, n);
        }
        at += n + ((at[n] == '\n') ? 1 : 0);
    }
}

static bool read_number(const bt_json_doc_t *doc, const bt_json_node_t *root,
                        const char *key, uint64_t *out)
{
    return bt_json_as_u64(bt_json_get(doc, root, key), out);
}

/* Reads the needs of a worker. @return false: it did not report them */
static bool take_need(bt_survey_t *s, const bt_plan_t *plan,
                      const bt_plan_process_t *process, const bt_strbuf_t *out)
{
    bt_preflight_need_t need = {.model = process->model,
                                .program = process->program};
    bt_json_doc_t *doc = NULL;
    const bt_json_node_t *root;
    uint64_t ranks = 0;
    char why[128];
    bool ok;

    if ((out->len == 0) || (s->n_needs == BT_SURVEY_NEEDS) ||
        (bt_json_doc_parse(out->data, out->len, why, sizeof(why), &doc) !=
         BT_OK)) {
        return false;
    }
    root = bt_json_doc_root(doc);
    ok = read_number(doc, root, "weight_bytes", &need.weight_bytes) &&
         read_number(doc, root, "own_bytes", &need.own_bytes) &&
         read_number(doc, root, "pool_bytes", &need.pool_bytes) &&
         read_number(doc, root, "ranks", &ranks) && (ranks <= UINT16_MAX);
    need.ranks = (uint32_t)ranks;
    if (ok) {
        const bt_json_node_t *const shared =
            bt_json_get(doc, root, "weights_shared");

        need.weights_shared =
            (shared != NULL) && (shared->kind == BT_JSON_TRUE);
        for (uint32_t i = 0; i < plan->n_processes; i++) {
            const bt_plan_process_t *const other = plan->processes[i];

            if ((other->model == process->model) &&
                (other->program == process->program)) {
                need.n += other->is_standby ? 0 : 1;
                need.n_standby += other->is_standby ? 1 : 0;
            }
        }
        s->needs[s->n_needs++] = need;
    }
    bt_json_doc_free(doc);
    return ok;
}

static bt_status_t ask(bt_survey_t *s, const bt_plan_t *plan,
                       const bt_plan_process_t *process)
{
    static char check_word[] = "--check";
    const size_t n = bt_plan_put_args(process, NULL);
    char path[BT_PROGRAM_PATH_BYTES];
    char **argv = bt_calloc(n + 3, sizeof(*argv));
    char text[TEXT_BYTES];
    bt_probe_t probe;
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (argv == NULL) {
        return status;
    }
    status = bt_program_path(getenv("BATON_LIBEXEC"), process->program, path,
                             sizeof(path));
    if (status != BT_OK) {
        goto end;
    }
    argv[0] = path;
    argv[1] = check_word;
    (void)bt_plan_put_args(process, argv + 2);
    status = bt_probe_run(argv, ASK_MS, &probe);
    if (status != BT_OK) {
        goto end;
    }
    if (probe.took_too_long || (probe.exit_status > 128) ||
        (probe.exit_status == BT_EXIT_NO_SUCH_PROGRAM)) {
        snprintf(
            text, sizeof(text),
            probe.took_too_long ? "%s was asked and did not answer within %u s"
            : (probe.exit_status > 128) ? "%s was asked and ended by signal %u"
                                        : "%s cannot be executed",
            path,
            probe.took_too_long ? ASK_MS / 1000
                                : (unsigned)probe.exit_status - 128);
        bt_diagnostics_add(s->findings, BT_FINDING_PROBLEM, process->name, text,
                           "");
    }
    take_lines(s, plan, process->name, &probe.err);
    if ((process->model != BT_PLAN_NO_MODEL) &&
        !take_need(s, plan, process, &probe.out)) {
        s->is_partial = true;
    }
    bt_probe_fini(&probe);
end:
    bt_free(argv);
    return status;
}

/* One of several identical processes is asked. */
static bool is_first(const bt_plan_t *plan, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++) {
        if ((plan->processes[k]->program == plan->processes[i]->program) &&
            (plan->processes[k]->model == plan->processes[i]->model)) {
            return false;
        }
    }
    return !plan->processes[i]->is_standby;
}

bt_status_t bt_survey_ask(bt_survey_t *survey, const bt_plan_t *plan,
                          bool routers)
{
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (status == BT_OK) && (i < plan->n_processes); i++) {
        const uint32_t model = plan->processes[i]->model;

        if (is_first(plan, i) &&
            ((model == BT_PLAN_NO_MODEL)
                 ? routers
                 : !survey->workers_abort && !survey->cannot_open[model])) {
            status = ask(survey, plan, plan->processes[i]);
        }
    }
    survey->is_partial = survey->is_partial || survey->workers_abort;
    return status;
}

static bt_preflight_headroom_t headroom_of(const bt_config_t *config,
                                           const bt_survey_limits_t *limits)
{
    struct statvfs fs;

    return (bt_preflight_headroom_t){
        .available_bytes = limits->memory.left,
        .limit_bytes = limits->memory.most,
        .limit_by = limits->memory.by,
        .pools_given = config->kv_memory_bytes > 0,
        .uses_shm = strcmp(config->kv_transport, "network") != 0,
        .needs_shm = strcmp(config->kv_transport, "shm") == 0,
        .shm_bytes = (statvfs("/dev/shm", &fs) == 0)
                         ? (uint64_t)fs.f_bavail * fs.f_frsize
                         : 0,
    };
}

bool bt_survey_check_memory(const bt_survey_t *survey,
                            const bt_config_t *config,
                            const bt_survey_limits_t *limits,
                            bt_diagnostics_t *findings, uint64_t *shm_bytes_p)
{
    const bt_preflight_headroom_t headroom = headroom_of(config, limits);

    if (survey->is_partial || (survey->n_needs == 0)) {
        return false;
    }
    *shm_bytes_p =
        bt_preflight_check(survey->needs, survey->n_needs, &headroom, findings);
    return true;
}

bt_status_t bt_survey_deal_pools(const bt_survey_t *survey,
                                 const bt_survey_limits_t *limits,
                                 const bt_plan_t *plan)
{
    const bt_preflight_headroom_t headroom = headroom_of(plan->config, limits);
    bt_status_t status = BT_OK;

    if (headroom.pools_given || survey->is_partial) {
        return BT_OK;
    }
    for (uint32_t i = 0; i < survey->n_needs; i++) {
        const uint64_t pool =
            bt_preflight_pool(survey->needs, survey->n_needs, &headroom, i);

        for (uint32_t k = 0; (status == BT_OK) && (k < plan->n_processes);
             k++) {
            bt_plan_process_t *const process = plan->processes[k];

            if ((process->model == survey->needs[i].model) &&
                (process->program == survey->needs[i].program)) {
                process->pool_bytes = pool;
                status = bt_plan_renew_args(plan, process);
            }
        }
    }
    return status;
}
