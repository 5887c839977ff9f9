/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/check.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/process.h"
#include "launcher/cores.h"
#include "launcher/document.h"
#include "launcher/health.h"
#include "launcher/plan.h"
#include "launcher/preflight.h"
#include "launcher/survey.h"

#define TEXT_BYTES 4096
#define OUT_BYTES  (4u << 20)

typedef struct check {
    const bt_config_t *config;
    bt_config_store_t *store;
    bt_diagnostics_t findings;
    bt_survey_limits_t limits;
    bt_survey_t survey;
    bool knows_shm;     /**< all workers reported their needs */
    uint64_t shm_bytes; /**< total need of /dev/shm */
} check_t;

/* ---- what the launcher sees by itself ---- */

static void take_config(check_t *c)
{
    const bt_config_finding_t *finding;

    for (uint32_t i = 0; (finding = bt_config_finding(c->store, i)) != NULL;
         i++) {
        bt_diagnostics_add(&c->findings,
                           finding->is_error ? BT_FINDING_PROBLEM
                                             : BT_FINDING_NOTE,
                           "configuration", finding->text, "");
    }
}

static void take_repository(check_t *c)
{
    const bt_repository_t *repository = c->config->repository;
    char text[TEXT_BYTES];

    if ((repository == NULL) || (repository->others[0] == '\0')) {
        return;
    }
    snprintf(text, sizeof(text), "%s: folders that are not served: %s",
             c->config->model_repository, repository->others);
    bt_diagnostics_add(
        &c->findings, BT_FINDING_NOTE, "model repository", text,
        "Baton has preprocessing, tensorrt_llm, postprocessing, ensemble and tensorrt_llm_bls, and runs no other back ends and no model.py");
}

/* Checks the models; those that can be opened are checked by the programs too.
 * @return whether there is any */
static bool check_models(check_t *c)
{
    bool has_any = false;

    if (c->config->n_models == 0) {
        bt_diagnostics_add(
            &c->findings, BT_FINDING_NOTE, "model",
            "no model is named: ./baton serve fetches its default "
            "one",
            "--model PATH, or --model NAME after ./baton pull NAME");
    }
    for (uint32_t i = 0; i < c->config->n_models; i++) {
        const char *path = c->config->models[i].path;
        char hint[BT_CONFIG_HINT_BYTES] = "";
        char origin[BT_MODEL_FILE_ORIGIN_BYTES];
        char why[TEXT_BYTES];
        char text[TEXT_BYTES + sizeof(hint) + sizeof(origin)];

        if (bt_model_file_check(path, why, sizeof(why)) == BT_OK) {
            has_any = true;
            continue;
        }
        c->survey.cannot_open[i] = true;
        bt_config_pulled_hint(c->config->models_dir, path, hint, sizeof(hint));
        bt_model_file_origin(c->config, path, origin, sizeof(origin));
        snprintf(text, sizeof(text), "%s%s%s", why, hint, origin);
        bt_diagnostics_add(&c->findings, BT_FINDING_PROBLEM, "model", text, "");
    }
    return has_any;
}

static void check_log_dir(check_t *c)
{
    const char *dir = c->config->log_dir;
    char parent[PATH_MAX];
    char text[TEXT_BYTES];
    struct stat info;

    if (dir[0] == '\0') {
        return;
    }
    snprintf(parent, sizeof(parent), "%s", dir);
    if (stat(dir, &info) == 0) {
        if (S_ISDIR(info.st_mode) && (access(dir, W_OK | X_OK) == 0)) {
            return;
        }
        errno = S_ISDIR(info.st_mode) ? errno : ENOTDIR;
    } else if ((errno == ENOENT) &&
               (access(dirname(parent), W_OK | X_OK) == 0)) {
        return; /* it is made */
    }
    snprintf(text, sizeof(text), "--log-dir %s cannot be written: %m", dir);
    bt_diagnostics_add(&c->findings, BT_FINDING_PROBLEM, "logs", text, "");
}

static void check_watchdog(check_t *c)
{
    char text[TEXT_BYTES];

    if (!bt_watchdog_is_long_enough(c->config->watchdog_ms)) {
        snprintf(text, sizeof(text),
                 "watchdog-ms %u is too short: 0 for never, or at least %u",
                 c->config->watchdog_ms, BT_WATCHDOG_LEAST_MS);
        bt_diagnostics_add(&c->findings, BT_FINDING_PROBLEM, "configuration",
                           text, "");
    }
}

/* With a host name that is too long, no worker is asked anything. */
static void check_host_name(check_t *c)
{
    char text[TEXT_BYTES];

    if (!bt_process_host_name_fits(text, sizeof(text))) {
        c->survey.workers_abort = true;
        bt_diagnostics_add(&c->findings, BT_FINDING_PROBLEM, "host name", text,
                           "");
    }
}

/* The steps of a start, up to its first process. */
static bt_status_t ask_programs(check_t *c)
{
    bt_devices_t devices = {0};
    bt_topology_t topology;
    bt_run_dir_t run_dir;
    bt_plan_t *plan = NULL;
    cpu_set_t allowed;
    bt_status_t status = bt_run_dir_create(&run_dir);

    if (status != BT_OK) {
        bt_diagnostics_add(&c->findings, BT_FINDING_PROBLEM, "run directory",
                           "no directory for sockets can be made in "
                           "$XDG_RUNTIME_DIR, $TMPDIR or /tmp",
                           "XDG_RUNTIME_DIR=DIR, of one that can be written");
        return BT_OK;
    }
    bt_cores_allowed(&allowed);
    bt_topology_read(BT_TOPOLOGY_DIR, &topology);
    bt_topology_read_threads(BT_TOPOLOGY_CPUS, &topology);
    status = bt_plan_find_devices(c->config, &devices);
    if (status == BT_OK) {
        status = bt_plan_create(c->store, c->config, &run_dir, &allowed,
                                (uint32_t)c->limits.cpus.most, &topology,
                                &devices, true, &plan);
    }
    if (status == BT_OK) {
        bt_survey_note_limits(plan, &c->limits, &c->findings);
        status = bt_survey_ask(&c->survey, plan, true);
    }
    if (status == BT_OK) {
        c->knows_shm = bt_survey_check_memory(&c->survey, c->config, &c->limits,
                                              &c->findings, &c->shm_bytes);
    }
    bt_plan_destroy(plan);
    bt_devices_fini(&devices);
    bt_run_dir_remove(&run_dir);
    return status;
}

/* ---- what is said of it ---- */

static void print_options(const check_t *c, bt_strbuf_t *out)
{
    bt_config_effect_t effect;
    uint32_t at = 0;

    while (bt_config_next_effect(c->store, &at, &effect)) {
        bt_strbuf_printf(out, "--%-26s %-28s %s%s%s\n", effect.name,
                         (effect.value.len > 0) ? effect.value.data : "\"\"",
                         effect.source, (effect.where.len > 0) ? ", " : "",
                         (effect.where.len > 0) ? effect.where.data : "");
        bt_strbuf_fini(&effect.value);
        bt_strbuf_fini(&effect.where);
    }
    bt_strbuf_puts(out, "\n");
}

static void json_options(const check_t *c, bt_json_t *json)
{
    bt_config_effect_t effect;
    uint32_t at = 0;

    bt_json_array(json, "options");
    while (bt_config_next_effect(c->store, &at, &effect)) {
        bt_json_object(json, NULL);
        bt_json_str(json, "name", effect.name);
        bt_json_str(json, "value",
                    (effect.value.len > 0) ? effect.value.data : "");
        bt_json_str(json, "source", effect.source);
        bt_json_str(json, "where",
                    (effect.where.len > 0) ? effect.where.data : NULL);
        bt_json_end_object(json);
        bt_strbuf_fini(&effect.value);
        bt_strbuf_fini(&effect.where);
    }
    bt_json_end_array(json);
}

static bool print(const check_t *c, bool as_json)
{
    bt_strbuf_t out;
    bt_json_t json;

    bt_strbuf_init(&out, OUT_BYTES);
    if (as_json) {
        bt_json_init(&json, &out);
        bt_json_object(&json, NULL);
        json_options(c, &json);
        bt_diagnostics_json(&c->findings, &json);
        if (c->knows_shm) {
            bt_json_u64(&json, "shm_bytes", c->shm_bytes);
        } else {
            bt_json_str(&json, "shm_bytes", NULL); /* unknown */
        }
        bt_json_end_object(&json);
        bt_strbuf_puts(&out, "\n");
    } else {
        print_options(c, &out);
        bt_diagnostics_print(&c->findings, &out);
    }
    return bt_strbuf_print(&out);
}

/* --json is no option of the server. @return how many arguments are left */
static int take_json(int argc, char **argv, bool *as_json_p)
{
    int n = 1;

    *as_json_p = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            *as_json_p = true;
        } else {
            argv[n++] = argv[i];
        }
    }
    return n;
}

int bt_check_main(int argc, char **argv)
{
    check_t c = {.survey.findings = &c.findings};
    bt_status_t status;
    bool as_json;
    bool done;

    argc = take_json(argc, argv, &as_json);
    bt_log_init("baton", BT_LOG_LEVEL_ERROR);
    status =
        bt_config_load(BT_PROG_SERVE, true, argc, argv, &c.config, &c.store);
    if (status != BT_OK) {
        return (status == BT_ERR_CANCELED) ? 0 : 2;
    }
    /* As at a start: the programs' options come from the plan alone. */
    bt_config_unset_environment();
    take_config(&c);
    take_repository(&c);
    check_watchdog(&c);
    check_log_dir(&c);
    check_host_name(&c);
    bt_survey_limits_read("", &c.limits);
    bt_survey_check_threads(c.config, c.config->n_models, &c.limits,
                            &c.findings);
    if (check_models(&c)) {
        status = ask_programs(&c);
    }
    status = (status == BT_OK) ? c.findings.status : status;
    if (status != BT_OK) {
        fprintf(stderr, "baton check: %s\n", bt_status_str(status));
    }
    done = print(&c, as_json) && (status == BT_OK);
    status = (bt_diagnostics_count(&c.findings, BT_FINDING_PROBLEM) > 0)
                 ? BT_ERR_INVALID_PARAM
                 : BT_OK;
    bt_diagnostics_fini(&c.findings);
    bt_config_destroy(c.store);
    return !done ? 2 : (status != BT_OK) ? 1 : 0;
}

int bt_check_print_limits(const char *root, int argc, char **argv)
{
    const bt_config_t *config = NULL;
    bt_config_store_t *store = NULL;
    bt_survey_limits_t limits;
    bt_strbuf_t out;
    bt_json_t json;

    bt_log_init("baton", BT_LOG_LEVEL_ERROR);
    if (bt_config_load(BT_PROG_SERVE, true, argc, argv, &config, &store) !=
        BT_OK) {
        return 2;
    }
    bt_survey_limits_read((strcmp(root, "/") == 0) ? "" : root, &limits);
    bt_strbuf_init(&out, OUT_BYTES);
    bt_json_init(&json, &out);
    bt_json_object(&json, NULL);
    bt_survey_limits_json(config, &limits, &json);
    bt_json_end_object(&json);
    bt_strbuf_puts(&out, "\n");
    bt_config_destroy(store);
    return bt_strbuf_print(&out) ? 0 : 2;
}
