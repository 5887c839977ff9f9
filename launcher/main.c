/* SPDX-License-Identifier: Apache-2.0 */
/* baton-launch: run by `baton serve`. Starts the routers and workers of a
 * cluster on this machine, watches them and stops them. Links no MPI, UCX or
 * nng: nng aborts in a forked child. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "launcher/admin_client.h"
#include "launcher/check.h"
#include "launcher/child.h"
#include "launcher/document.h"
#include "launcher/health.h"
#include "launcher/mpi.h"
#include "launcher/plan.h"
#include "launcher/preflight.h"
#include "launcher/programs.h"
#include "launcher/run_dir.h"
#include "launcher/supervisor.h"
#include "launcher/survey.h"

#define MAN_BYTES    (1u << 20)
#define PATH_BYTES   4096
#define OPTIONS_PAGE "OPTIONS.md" /* for people who have no man */

static const struct {
    const char *page;
    unsigned program;
} pages[] = {
    {"baton.1", BT_PROG_SERVE},
    {"baton-router.1", BT_PROG_ROUTER},
    {"baton-prefill-worker.1", BT_PROG_PREFILL},
    {"baton-decode-worker.1", BT_PROG_DECODE},
    {"baton.conf.5", 0},
    {OPTIONS_PAGE, 0},
};

static int print_page(const char *page, unsigned program)
{
    bt_strbuf_t out;

    bt_strbuf_init(&out, MAN_BYTES);
    if (strcmp(page, OPTIONS_PAGE) == 0) {
        bt_config_print_doc(&out);
    } else {
        bt_config_print_man(program, &out);
    }
    return bt_strbuf_print(&out) ? 0 : 1;
}

static int print_man(const char *page)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(pages); i++) {
        if (strcmp(pages[i].page, page) == 0) {
            return print_page(page, pages[i].program);
        }
    }
    fprintf(stderr, "baton-launch: no page %s; there are:", page);
    for (size_t i = 0; i < BT_ARRAY_LEN(pages); i++) {
        fprintf(stderr, " %s", pages[i].page);
    }
    fprintf(stderr, "\n");
    return 1;
}

/* `--print-completion SHELL COMMAND...` */
static int print_completion(int argc, char **argv)
{
    bt_strbuf_t out;

    bt_strbuf_init(&out, MAN_BYTES);
    if (bt_config_print_completion(argv[2], (const char *const *)(argv + 3),
                                   (size_t)argc - 3, &out) != BT_OK) {
        bt_strbuf_fini(&out);
        fprintf(stderr,
                "baton-launch: no completion for %s; there are: bash "
                "zsh\n",
                argv[2]);
        return 1;
    }
    return bt_strbuf_print(&out) ? 0 : 1;
}

static int print_build(void)
{
    bt_strbuf_t out;

    bt_strbuf_init(&out, MAN_BYTES);
    bt_build_info_print(&out);
    return bt_strbuf_print(&out) ? 0 : 1;
}

/* Problems that every child would have are reported once, before any is
 * started. */
static bt_status_t check_models(const bt_config_t *config)
{
    char why[512];
    char hint[BT_CONFIG_HINT_BYTES];
    char origin[BT_MODEL_FILE_ORIGIN_BYTES];

    if (config->n_models == 0) {
        BT_LOG_ERROR("no model: name one with --model PATH, or --model NAME "
                     "after %s pull NAME",
                     bt_process_command());
        return BT_ERR_INVALID_PARAM;
    }
    for (uint32_t i = 0; i < config->n_models; i++) {
        if (bt_model_file_check(config->models[i].path, why, sizeof(why)) !=
            BT_OK) {
            bt_config_pulled_hint(config->models_dir, config->models[i].path,
                                  hint, sizeof(hint));
            bt_model_file_origin(config, config->models[i].path, origin,
                                 sizeof(origin));
            BT_LOG_ERROR("%s%s%s", why, hint, origin);
            return BT_ERR_NOT_FOUND;
        }
    }
    return BT_OK;
}

static void say_start(const bt_config_t *config)
{
    const char *const plural = (config->routers == 1) ? "" : "s";

    if (config->n_models == 1) {
        BT_LOG_INFO("starting %u router%s, %u prefill and %u decode workers "
                    "with %s",
                    config->routers, plural, config->prefill, config->decode,
                    config->model);
    } else {
        BT_LOG_INFO("starting %u router%s, %u prefill and %u decode workers "
                    "for each of %u models",
                    config->routers, plural, config->prefill, config->decode,
                    config->n_models);
    }
}

/* Logs when cores are hardware threads of fewer physical cores. */
static void say_cores(const bt_plan_t *plan, uint32_t n_allowed)
{
    if (plan->n_physical < n_allowed) {
        BT_LOG_INFO(
            "%u CPUs are hardware threads of %u physical cores; workers share the physical cores unless --prefill-threads and --decode-threads are set",
            n_allowed, plan->n_physical);
    }
}

static void copy_line(void *log, const char *line, size_t bytes)
{
    bt_log_file_write(log, line, bytes);
}

/* With a directory for logs the launcher's own lines are written there too. */
static bt_status_t open_log(const bt_log_dir_t *dir, bt_log_file_t *log)
{
    bt_status_t status;

    if ((dir->path[0] != '\0') && (mkdir(dir->path, 0750) != 0) &&
        (errno != EEXIST)) {
        BT_LOG_ERROR("cannot make the directory %s: %m", dir->path);
        return BT_ERR_IO;
    }
    status = bt_log_file_open(log, dir, "launcher");
    if (status == BT_OK) {
        bt_log_copy_to(copy_line, log);
    }
    return status;
}

static bt_status_t check_watchdog(const bt_config_t *config)
{
    if (bt_watchdog_is_long_enough(config->watchdog_ms)) {
        return BT_OK;
    }
    BT_LOG_ERROR("watchdog-ms %u is too short: 0 for never, or at least %u",
                 config->watchdog_ms, BT_WATCHDOG_LEAST_MS);
    return BT_ERR_INVALID_PARAM;
}

/* Logs notes too: the person who set a limit may not be the reader. Problems
 * come last, since the last line is the cause. @return BT_ERR_NO_MEMORY if
 * there is a problem */
static bt_status_t say_findings(bt_diagnostics_t *findings)
{
    static const bt_log_level_t levels[] = {
        [BT_FINDING_NOTE] = BT_LOG_LEVEL_INFO,
        [BT_FINDING_WARNING] = BT_LOG_LEVEL_WARN,
        [BT_FINDING_PROBLEM] = BT_LOG_LEVEL_ERROR};
    bt_status_t status = findings->status;

    for (size_t level = 0; level < BT_ARRAY_LEN(levels); level++) {
        for (uint32_t i = 0; i < findings->n; i++) {
            const bt_diagnostic_t *const finding = &findings->list[i];

            if (finding->level == level) {
                bt_log(levels[level], "%s: %s%s%s", finding->about,
                       finding->text, (finding->fix[0] != '\0') ? "; " : "",
                       finding->fix);
            }
        }
    }
    if (bt_diagnostics_count(findings, BT_FINDING_PROBLEM) > 0) {
        status = BT_ERR_NO_MEMORY;
    }
    bt_diagnostics_fini(findings);
    return status;
}

static bt_status_t check_threads(const bt_config_t *config,
                                 const bt_survey_limits_t *limits)
{
    bt_diagnostics_t findings = {0};

    bt_survey_check_threads(config, config->n_models, limits, &findings);
    return say_findings(&findings);
}

/* Checks the sum over all workers; each worker checks for itself alone, and
 * reports its other problems when it starts. */
static bt_status_t check_memory(bt_plan_t *plan,
                                const bt_survey_limits_t *limits)
{
    bt_diagnostics_t said = {0};
    bt_diagnostics_t findings = {0};
    bt_survey_t survey = {.findings = &said};
    bt_status_t status = bt_survey_ask(&survey, plan, false);
    uint64_t shm_bytes;

    bt_diagnostics_fini(&said);
    if (status != BT_OK) {
        return status;
    }
    bt_survey_note_limits(plan, limits, &findings);
    (void)bt_survey_check_memory(&survey, plan->config, limits, &findings,
                                 &shm_bytes);
    status = say_findings(&findings);
    return (status == BT_OK) ? bt_survey_deal_pools(&survey, limits, plan)
                             : status;
}

/* Blocks signals until there are processes, whose owner handles them. */
static void hold_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
}

/* Workers cannot report it: they are aborted before main(). */
static bt_status_t check_host_name(void)
{
    char why[512];

    if (bt_process_host_name_fits(why, sizeof(why))) {
        return BT_OK;
    }
    BT_LOG_ERROR("%s", why);
    return BT_ERR_UNSUPPORTED;
}

/* UCX tests at the start of each process whether it would notice memory that is
 * unmapped, with a System V segment, which leaks if the process is killed
 * meanwhile. The test is for memory registered with a device: without RDMA
 * there is none. */
static void spare_ucx_its_trial(void)
{
    if (access("/sys/class/infiniband", F_OK) != 0) {
        setenv("UCX_MEM_EVENTS", "n", 0);
    }
}

static int serve(const bt_config_store_t *store, const bt_config_t *config)
{
    const bt_log_dir_t log_dir = {.path = config->log_dir,
                                  .max_bytes = config->log_max_bytes,
                                  .n_keep = config->log_keep};
    bt_log_file_t log;
    bt_notify_t notify;
    bt_run_dir_t run_dir;
    const bt_supervisor_options_t options = {
        .log_dir = &log_dir,
        .log = &log,
        .notify = &notify,
        .run_dir = &run_dir,
        .libexec = getenv("BATON_LIBEXEC"),
        .drain_ms = config->lame_duck_ms + config->drain_ms,
        .watchdog_ms = config->watchdog_ms,
    };
    const bool by_mpi = bt_process_is_of_mpi();
    bt_survey_limits_t limits;
    bt_plan_t *plan = NULL;
    bt_devices_t devices = {0};
    bt_topology_t topology;
    cpu_set_t allowed;
    char fd_number[16];
    int exit_status = BT_EXIT_OK;
    bt_status_t status;

    if (open_log(&log_dir, &log) != BT_OK) {
        return BT_EXIT_CONFIG;
    }
    bt_run_dir_remove_dead();
    status = bt_notify_open(&notify);
    if (status != BT_OK) {
        goto out_log;
    }
    /* From here on there is something to remove: a stop request ends in order
     * (bt_supervise(), bt_orchestrate()). */
    hold_signals();
    bt_survey_limits_read("", &limits);
    if ((status = check_watchdog(config)) != BT_OK ||
        (status = check_host_name()) != BT_OK ||
        (status = check_models(config)) != BT_OK ||
        (status = bt_reuseport_check(config)) != BT_OK ||
        (status = check_threads(config, &limits)) != BT_OK ||
        (status = bt_run_dir_create(&run_dir)) != BT_OK) {
        goto out_notify;
    }
    if (bt_run_dir_ends_with_session(&run_dir)) {
        BT_LOG_WARN(
            "%s is removed when this user logs out, and processes of the session may be killed; loginctl enable-linger keeps both",
            run_dir.path);
    }
    bt_cores_allowed(&allowed);
    bt_topology_read(BT_TOPOLOGY_DIR, &topology);
    bt_topology_read_threads(BT_TOPOLOGY_CPUS, &topology);
    status = bt_plan_find_devices(config, &devices);
    if (status != BT_OK) {
        goto out;
    }
    status = bt_plan_create(store, config, &run_dir, &allowed,
                            (uint32_t)limits.cpus.most, &topology, &devices,
                            !by_mpi, &plan);
    if (status != BT_OK) {
        BT_LOG_ERROR("cannot plan the processes: %s", bt_status_str(status));
        goto out;
    }

    /* The children's options come from the plan alone. */
    bt_config_unset_environment();
    spare_ucx_its_trial();
    say_start(config);
    say_cores(plan, (uint32_t)CPU_COUNT(&allowed));
    status = check_memory(plan, &limits);
    if (status != BT_OK) {
        goto out;
    }
    if (by_mpi) {
        exit_status = bt_orchestrate(plan, options.libexec, options.drain_ms);
        goto out;
    }
    snprintf(fd_number, sizeof(fd_number), "%d", BT_CHILD_READY_FD);
    setenv("BATON_READY_FD", fd_number, 1);
    snprintf(fd_number, sizeof(fd_number), "%d", BT_CHILD_BEAT_FD);
    setenv("BATON_BEAT_FD", fd_number, 1);
    setenv("BATON_READY_JOINED", "1", 1);
    exit_status = bt_supervise(plan, &options);

out:
    bt_plan_destroy(plan);
    bt_devices_fini(&devices);
    bt_run_dir_remove(&run_dir);
out_notify:
    bt_notify_close(&notify);
out_log:
    bt_log_copy_to(NULL, NULL);
    bt_log_file_close(&log);
    return (status == BT_OK) ? exit_status : bt_exit_of_start(status);
}

/* The log has a thread. If it cannot start, most likely no thread is left,
 * which is logged. */
static int serve_with_log(const bt_config_store_t *store,
                          const bt_config_t *config)
{
    bt_survey_limits_t limits;
    bt_status_t status;

    if (bt_log_start() == BT_OK) {
        return serve(store, config);
    }
    bt_survey_limits_read("", &limits);
    status = check_threads(config, &limits);
    return (status == BT_OK) ? BT_EXIT_FAILURE : bt_exit_of_start(status);
}

/* Handles `--print-model OPTION...`. Prints three lines: the model that the
 * options, the environment and the file name between them, or an empty line;
 * --override-generation-config; --chat-template. Reports errors in the options,
 * so that the baton script can ask before it fetches anything. */
static int print_model(int argc, char **argv)
{
    const bt_config_t *config = NULL;
    bt_config_store_t *store = NULL;

    /* Drop the first argument; the options ignore argv[0]. Warnings are left to
     * the start that follows. */
    if (bt_config_load(BT_PROG_SERVE, true, argc - 1, argv + 1, &config,
                       &store) != BT_OK) {
        return BT_EXIT_USAGE;
    }
    for (uint32_t i = 0; bt_config_finding(store, i) != NULL; i++) {
        if (bt_config_finding(store, i)->is_error) {
            fprintf(stderr, "%s: %s\n", bt_config_program_name(BT_PROG_SERVE),
                    bt_config_finding(store, i)->text);
            bt_config_destroy(store);
            return BT_EXIT_USAGE;
        }
    }
    puts(config->model);
    puts(config->override_generation_config);
    puts(config->chat_template);
    bt_config_destroy(store);
    return 0;
}

int main(int argc, char **argv)
{
    const bt_config_t *config = NULL;
    bt_config_store_t *store = NULL;
    bt_log_level_t level;
    bt_status_t status;
    int exit_status;

    if ((argc == 3) && (strcmp(argv[1], "--print-man") == 0)) {
        return print_man(argv[2]);
    }
    if ((argc >= 3) && (strcmp(argv[1], "--print-completion") == 0)) {
        return print_completion(argc, argv);
    }
    if ((argc == 2) && (strcmp(argv[1], "--print-build") == 0)) {
        return print_build();
    }
    if ((argc >= 2) && (strcmp(argv[1], "--print-model") == 0)) {
        return print_model(argc, argv);
    }
    if ((argc >= 2) && (strcmp(argv[1], "--check") == 0)) {
        return bt_check_main(argc - 1, argv + 1);
    }
    if ((argc >= 3) && (strcmp(argv[1], "--print-limits") == 0)) {
        return bt_check_print_limits(argv[2], argc - 2, argv + 2);
    }
    if ((argc >= 2) && (strcmp(argv[1], "--admin") == 0)) {
        return bt_admin_client_main(argc - 2, argv + 2);
    }
    status = bt_config_load(BT_PROG_SERVE, false, argc, argv, &config, &store);
    if (status == BT_ERR_CANCELED) {
        return 0;
    }
    if (status != BT_OK) {
        return BT_EXIT_USAGE;
    }
    if (bt_log_level_parse(config->log_level, &level) != 0) {
        level = BT_LOG_LEVEL_INFO; /* the option's table allows no other name */
    }
    bt_log_init("baton", level);
    (void)bt_log_format(config->log_format); /* checked with the options */
    signal(SIGPIPE, SIG_IGN); /* standard error may be closed before us */
    signal(SIGXFSZ, SIG_IGN); /* a file size limit (ulimit -f) is not fatal */
    if (!config->core_dumps) {
        bt_core_dump_forbid(); /* also for child processes */
    }
    exit_status = serve_with_log(store, config);
    bt_log_flush();
    bt_config_destroy(store);
    return exit_status;
}
