/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/check.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/base/exit_code.h"
#include "common/base/free_memory.h"
#include "common/base/json_doc.h"
#include "common/base/log.h"
#include "launcher/cores.h"
#include "launcher/findings.h"
#include "launcher/model_file.h"
#include "launcher/needs.h"
#include "launcher/plan.h"
#include "launcher/probe.h"
#include "launcher/programs.h"
#include "launcher/watchdog.h"

#define ASK_MS     60000u /* against hanging: it reads headers */
#define TEXT_BYTES 4096
#define OUT_BYTES  (4u << 20)
#define MAX_NEEDS  (2 * BT_CONFIG_MAX_MODELS)

typedef struct check {
    const bt_config_t *config;
    bt_config_store_t *store;
    bt_findings_t findings;
    bt_need_t needs[MAX_NEEDS];
    uint32_t n_needs;
    bool needs_whole;   /**< all workers said what they take... */
    uint64_t shm_bytes; /**< ...of /dev/shm, where any did */
    bool cannot_open[BT_CONFIG_MAX_MODELS]; /**< said; nobody is asked of it */
} check_t;

/* ---- what the launcher sees by itself ---- */

static void take_config(check_t *c)
{
    const bt_config_finding_t *finding;

    for (uint32_t i = 0; (finding = bt_config_finding(c->store, i)) != NULL;
         i++) {
        bt_findings_add(&c->findings,
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
    bt_findings_add(&c->findings, BT_FINDING_NOTE, "model repository", text,
                    "Baton has preprocessing, tensorrt_llm, postprocessing, "
                    "ensemble and tensorrt_llm_bls, and runs neither other "
                    "back ends nor a model.py");
}

/* Those that can be opened are asked of the programs. @return whether any is */
static bool check_models(check_t *c)
{
    bool has_any = false;

    if (c->config->n_models == 0) {
        bt_findings_add(
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
        c->cannot_open[i] = true;
        bt_config_pulled_hint(c->config->models_dir, path, hint, sizeof(hint));
        bt_model_file_origin(c->config, path, origin, sizeof(origin));
        snprintf(text, sizeof(text), "%s%s%s", why, hint, origin);
        bt_findings_add(&c->findings, BT_FINDING_PROBLEM, "model", text, "");
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
    bt_findings_add(&c->findings, BT_FINDING_PROBLEM, "logs", text, "");
}

static void check_watchdog(check_t *c)
{
    char text[TEXT_BYTES];

    if (!bt_watchdog_is_long_enough(c->config->watchdog_ms)) {
        snprintf(text, sizeof(text),
                 "watchdog-ms %u is too short: 0 for never, or at least %u",
                 c->config->watchdog_ms, BT_WATCHDOG_LEAST_MS);
        bt_findings_add(&c->findings, BT_FINDING_PROBLEM, "configuration", text,
                        "");
    }
}

/* ---- what the programs say ---- */

/* Of a file that cannot be opened the launcher has said it. */
static bool is_said(const check_t *c, const char *text)
{
    for (uint32_t i = 0; i < c->config->n_models; i++) {
        if (c->cannot_open[i] &&
            (strstr(text, c->config->models[i].path) != NULL)) {
            return true;
        }
    }
    return false;
}

/* A line of a log in JSON, or of the reading of options. */
static void take_line(check_t *c, const char *about, const char *line,
                      size_t bytes)
{
    bt_finding_level_t level = BT_FINDING_PROBLEM;
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
            goto end; /* it says what it does */
        }
        level =
            bt_json_is(word, "error") ? BT_FINDING_PROBLEM : BT_FINDING_WARNING;
        snprintf(text, sizeof(text), "%.*s", (int)said->len, said->text);
    }
    if (!is_said(c, text)) {
        bt_findings_add(&c->findings, level, about, text, "");
    }
end:
    bt_json_doc_free(doc);
}

static void take_lines(check_t *c, const char *about, const bt_strbuf_t *err)
{
    const char *at = (err->len > 0) ? err->data : "";

    while (*at != '\0') {
        const size_t n = strcspn(at, "\n");

        if (n > 0) {
            take_line(c, about, at, n);
        }
        at += n + ((at[n] == '\n') ? 1 : 0);
    }
}

static bool read_number(const bt_json_doc_t *doc, const bt_json_node_t *root,
                        const char *key, uint64_t *out)
{
    return bt_json_as_u64(bt_json_get(doc, root, key), out);
}

/* What a worker would take. @return false: it does not say */
static bool take_need(check_t *c, const bt_plan_t *plan,
                      const bt_plan_process_t *process, const bt_strbuf_t *out)
{
    bt_need_t need = {.model = process->model};
    bt_json_doc_t *doc = NULL;
    const bt_json_node_t *root;
    uint64_t ranks = 0;
    char why[128];
    bool ok;

    if ((out->len == 0) || (c->n_needs == MAX_NEEDS) ||
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
        c->needs[c->n_needs++] = need;
    }
    bt_json_doc_free(doc);
    return ok;
}

static bt_status_t ask(check_t *c, const bt_plan_t *plan,
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
        bt_findings_add(&c->findings, BT_FINDING_PROBLEM, process->name, text,
                        "");
    }
    take_lines(c, process->name, &probe.err);
    if ((process->model != BT_PLAN_NO_MODEL) &&
        !take_need(c, plan, process, &probe.out)) {
        c->needs_whole = false;
    }
    bt_probe_fini(&probe);
end:
    bt_free(argv);
    return status;
}

/* Of processes that are alike one is asked. */
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

static void check_needs(check_t *c)
{
    const bt_config_t *config = c->config;
    struct statvfs fs;
    bt_needs_room_t room = {
        .available_bytes = bt_memory_available(),
        .pools_given = config->kv_memory_bytes > 0,
        .uses_shm = strcmp(config->transport, "network") != 0,
        .needs_shm = strcmp(config->transport, "shm") == 0,
    };

    room.shm_bytes = (statvfs("/dev/shm", &fs) == 0)
                         ? (uint64_t)fs.f_bavail * fs.f_frsize
                         : 0;
    if (c->needs_whole && (c->n_needs > 0)) {
        c->shm_bytes =
            bt_needs_check(c->needs, c->n_needs, &room, &c->findings);
    }
}

/* The start's own steps, up to its first process. */
static bt_status_t ask_programs(check_t *c)
{
    bt_devices_t devices = {0};
    bt_topology_t topology;
    bt_run_dir_t run_dir;
    bt_plan_t *plan = NULL;
    cpu_set_t allowed;
    bt_status_t status = bt_run_dir_create(&run_dir);

    if (status != BT_OK) {
        bt_findings_add(&c->findings, BT_FINDING_PROBLEM, "run directory",
                        "no directory for sockets can be made in "
                        "$XDG_RUNTIME_DIR, $TMPDIR or /tmp",
                        "XDG_RUNTIME_DIR=DIR, of one that can be written");
        return BT_OK;
    }
    bt_cores_allowed(&allowed);
    bt_topology_read(BT_TOPOLOGY_DIR, &topology);
    status = bt_plan_find_devices(c->config, &devices);
    if (status == BT_OK) {
        status = bt_plan_create(c->store, c->config, &run_dir, &allowed,
                                &topology, &devices, true, &plan);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < plan->n_processes); i++) {
        const uint32_t model = plan->processes[i]->model;

        if (is_first(plan, i) &&
            ((model == BT_PLAN_NO_MODEL) || !c->cannot_open[model])) {
            status = ask(c, plan, plan->processes[i]);
        }
    }
    if (status == BT_OK) {
        check_needs(c);
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
    bool done;

    bt_strbuf_init(&out, OUT_BYTES);
    if (as_json) {
        bt_json_init(&json, &out);
        bt_json_object(&json, NULL);
        json_options(c, &json);
        bt_findings_json(&c->findings, &json);
        if (c->needs_whole && (c->n_needs > 0)) {
            bt_json_u64(&json, "shm_bytes", c->shm_bytes);
        } else {
            bt_json_str(&json, "shm_bytes", NULL); /* nobody knows */
        }
        bt_json_end_object(&json);
        bt_strbuf_puts(&out, "\n");
    } else {
        print_options(c, &out);
        bt_findings_print(&c->findings, &out);
    }
    done = (bt_strbuf_status(&out) == BT_OK) &&
           (fputs(out.data, stdout) >= 0) && (fflush(stdout) == 0);
    bt_strbuf_fini(&out);
    return done;
}

/* --json is no option of the server's. @return how many are left */
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
    check_t c = {.needs_whole = true};
    bt_status_t status;
    bool as_json;
    bool done;

    argc = take_json(argc, argv, &as_json);
    bt_log_init("baton", BT_LOG_LEVEL_ERROR);
    status = bt_config_load_all(BT_PROG_SERVE, argc, argv, &c.config, &c.store);
    if (status != BT_OK) {
        return (status == BT_ERR_CANCELED) ? 0 : 2;
    }
    /* As of a start: the programs' options come from the plan alone. */
    bt_config_unset_environment();
    take_config(&c);
    take_repository(&c);
    check_watchdog(&c);
    check_log_dir(&c);
    if (check_models(&c)) {
        status = ask_programs(&c);
    }
    status = (status == BT_OK) ? c.findings.status : status;
    if (status != BT_OK) {
        fprintf(stderr, "baton check: %s\n", bt_status_str(status));
    }
    done = print(&c, as_json) && (status == BT_OK);
    status = (bt_findings_count(&c.findings, BT_FINDING_PROBLEM) > 0)
                 ? BT_ERR_INVALID_PARAM
                 : BT_OK;
    bt_findings_fini(&c.findings);
    bt_config_destroy(c.store);
    return !done ? 2 : (status != BT_OK) ? 1 : 0;
}
