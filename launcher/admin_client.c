/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/admin_client.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/admin/connection.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/process.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "launcher/document.h"
#include "launcher/run_dir.h"

#define EXIT_REFUSED 1
#define EXIT_USAGE   2
#define MOST_WORDS   8
#define MOST_FOUND   16
/* Time limit of an answer that does not wait for a result. */
#define ANSWER_MS  10000
#define PATH_BYTES (BT_ADMIN_PATH_BYTES + 32)

static const char usage[] =
    "Usage: baton COMMAND [--run-dir DIR]\n"
    "\n"
    "  status [--json]      what runs: processes, models, addresses; of several\n"
    "                       launchers all, unless one is named\n"
    "  start NAME           start a process that is stopped\n"
    "  stop NAME            let a process finish its requests and end\n"
    "  drain NAME           the same, and wait for its end\n"
    "  restart NAME         the same, and start it again\n"
    "  load-model MODEL=PATH [prefill=N] [decode=N]\n"
    "                       start workers for one more model\n"
    "  load-model MODEL     the same for one that was pulled, or unloaded; with\n"
    "                       counts, more workers for one that has fewer\n"
    "  unload-model MODEL   stop all workers of a model\n"
    "  role NAME prefill|decode|both\n"
    "                       what a worker is given from now on; it goes on\n"
    "                       serving\n"
    "\n"
    "start, restart and load-model come back when it is ready, role when the worker\n"
    "has it, unload-model when it is over; --no-wait: when the launcher knows. --run-dir DIR, or\n"
    "BATON_RUN_DIR, names one of several launchers.\n";

/* Parsed command line. */
typedef struct arguments {
    const char *run_dir; /* NULL = find it */
    bool json;
    bool no_wait;
    bool help;
    const char *words[MOST_WORDS];
    uint32_t n_words;
} arguments_t;

/* Launchers that answer. */
typedef struct found {
    char paths[MOST_FOUND][BT_RUN_DIR_BYTES];
    uint32_t n;
} found_t;

static void complain(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

static void complain(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fputs("baton: ", stderr);
    vfprintf(stderr, fmt, args);
    fputs("\n", stderr);
    va_end(args);
}

static void complain_of_option(const char *arg)
{
    static const char *const names[] = {"--json", "--no-wait", "--help",
                                        "--run-dir"};
    const size_t n = strcspn(arg, "=");
    const char *const near = bt_fuzzy_match(arg, n, names, BT_ARRAY_LEN(names));

    if (strcmp(arg, "--run-dir") == 0) {
        complain("--run-dir needs a value");
    } else if ((near != NULL) && (strlen(near) == n) &&
               (strncmp(near, arg, n) == 0)) {
        complain("%s takes no value", near);
    } else {
        complain("unknown option %.*s%s%s%s", (int)n, arg,
                 (near != NULL) ? "; did you mean " : "",
                 (near != NULL) ? near : "", (near != NULL) ? "?" : "");
    }
}

/* @return false: reported on standard error. */
static bool read_arguments(int argc, char **argv, arguments_t *out)
{
    static const char run_dir[] = "--run-dir";
    const size_t n_run_dir = sizeof(run_dir) - 1;

    for (int i = 0; i < argc; i++) {
        const char *const arg = argv[i];

        if (strncmp(arg, "--", 2) != 0) {
            if (out->n_words == MOST_WORDS) {
                complain("too many words: '%s'", arg);
                return false;
            }
            out->words[out->n_words++] = arg;
        } else if (strcmp(arg, "--json") == 0) {
            out->json = true;
        } else if (strcmp(arg, "--no-wait") == 0) {
            out->no_wait = true;
        } else if (strcmp(arg, "--help") == 0) {
            out->help = true;
        } else if ((strcmp(arg, run_dir) == 0) && (i + 1 < argc)) {
            out->run_dir = argv[++i];
        } else if ((strncmp(arg, run_dir, n_run_dir) == 0) &&
                   (arg[n_run_dir] == '=')) {
            out->run_dir = arg + n_run_dir + 1;
        } else {
            complain_of_option(arg);
            return false;
        }
    }
    return true;
}

/* The launcher may have another working directory, and another folder of
 * models. */
static bool make_absolute(bt_admin_command_t *command)
{
    const char *const models_dir = getenv("BATON_MODELS_DIR");
    BT_CLEANUP(free) char *pulled = NULL;
    char whole[PATH_BYTES];
    char here[BT_ADMIN_PATH_BYTES];

    if ((command->path[0] == '\0') || (command->path[0] == '/')) {
        return true;
    }
    if ((access(command->path, F_OK) != 0) &&
        (bt_config_pulled_find((models_dir == NULL) ? "" : models_dir,
                               command->path, &pulled) == BT_OK) &&
        (strlen(pulled) < sizeof(command->path)) && (pulled[0] == '/')) {
        memcpy(command->path, pulled, strlen(pulled) + 1);
        return true;
    }
    if ((getcwd(here, sizeof(here)) == NULL) ||
        ((size_t)snprintf(whole, sizeof(whole), "%s/%s", here, command->path) >=
         sizeof(command->path))) {
        complain("the path of %s is too long", command->name);
        return false;
    }
    memcpy(command->path, whole, strlen(whole) + 1);
    return true;
}

static bool read_command(const arguments_t *arguments,
                         bt_admin_command_t *command)
{
    char why[512];

    if (bt_admin_command_from_words(arguments->n_words, arguments->words,
                                    command, why, sizeof(why)) != BT_OK) {
        complain("%s", why);
        return false;
    }
    if (command->verb == BT_ADMIN_VERB_WATCH) {
        complain("watch is for programs: see docs/RUN.md");
        return false;
    }
    if (arguments->json && (command->verb != BT_ADMIN_VERB_STATUS)) {
        complain("--json is an option of status");
        return false;
    }
    if ((command->verb != BT_ADMIN_VERB_STATUS) &&
        (command->verb != BT_ADMIN_VERB_STOP) &&
        (command->verb != BT_ADMIN_VERB_DRAIN)) {
        command->wait = command->wait || !arguments->no_wait;
    } else if (arguments->no_wait) {
        complain("--no-wait is no option of %s",
                 bt_admin_verb_name(command->verb));
        return false;
    }
    return make_absolute(command);
}

static bt_status_t connect_to(const char *dir, bt_admin_client_t **client_p)
{
    char path[PATH_BYTES];

    if ((size_t)snprintf(path, sizeof(path), "%s/" BT_ADMIN_SOCKET, dir) >=
        sizeof(path)) {
        return BT_ERR_TOO_LARGE;
    }
    return bt_admin_client_connect(path, client_p);
}

/* A bt_own_dir_fn: remembers a directory with a launcher that answers. */
static void try_run_dir(void *arg, const char *path)
{
    found_t *const found = arg;
    bt_admin_client_t *client = NULL;

    if ((found->n < MOST_FOUND) && (connect_to(path, &client) == BT_OK)) {
        snprintf(found->paths[found->n++], sizeof(found->paths[0]), "%s", path);
        bt_admin_client_close(client);
    }
}

/* @return the only launcher's directory, or NULL: reported on standard error.
 */
static const char *find_launcher(found_t *found)
{
    found->n = 0;
    bt_run_dir_each(try_run_dir, found);
    if (found->n == 1) {
        return found->paths[0];
    }
    if (found->n == 0) {
        complain("no launcher of this user runs; %s serve starts one",
                 bt_process_command());
        return NULL;
    }
    complain("several launchers run; name one with --run-dir:");
    for (uint32_t i = 0; i < found->n; i++) {
        fprintf(stderr, "  %s\n", found->paths[i]);
    }
    return NULL;
}

/* Connects to a launcher. @param [in] run_dir NULL: of the only launcher
 * @return a connection, or NULL: reported on standard error. */
static bt_admin_client_t *reach(const char *run_dir)
{
    bt_admin_client_t *client = NULL;
    found_t found;
    bt_status_t status;

    if (run_dir == NULL) {
        run_dir = find_launcher(&found);
        if (run_dir == NULL) {
            return NULL;
        }
    }
    status = connect_to(run_dir, &client);
    switch (status) {
    case BT_OK:
        break;
    case BT_ERR_NOT_FOUND:
        complain("no launcher runs in %s", run_dir);
        break;
    case BT_ERR_UNAUTHORIZED:
        complain("the launcher in %s is another user's", run_dir);
        break;
    case BT_ERR_IO:
        complain("cannot reach the launcher in %s: %m", run_dir);
        break;
    default:
        complain("cannot reach the launcher in %s: %s", run_dir,
                 bt_status_str(status));
        break;
    }
    return client;
}

/* Prints the status of an answer to standard output. @return the exit status */
static int print_status(const bt_admin_client_t *client,
                        const bt_admin_reply_t *reply, bool json)
{
    const char *text;
    bt_strbuf_t out;
    size_t n;

    bt_strbuf_init(&out, 2 * BT_ADMIN_REPLY_BYTES);
    if (json) {
        text = bt_admin_client_text(client, &n);
        bt_strbuf_append(&out, text, n);
        bt_strbuf_puts(&out, "\n");
    } else {
        bt_document_print_table(&reply->document, &out);
    }
    if (!bt_strbuf_print(&out)) {
        complain("the status cannot be printed");
        return EXIT_REFUSED;
    }
    return 0;
}

/* Sends the command and waits for the answer; prints a status.
 * @param [in] before  printed before a status
 * @return the exit status */
static int run(bt_admin_client_t *client, const bt_admin_command_t *command,
               bool json, const char *before)
{
    const uint64_t deadline_ms =
        command->wait ? UINT64_MAX : bt_now_ms() + ANSWER_MS;
    bt_admin_reply_t reply;
    bt_status_t status = bt_admin_client_send(client, command);
    int exit_status = 0;

    if (status == BT_OK) {
        status = bt_admin_client_wait(client, deadline_ms, &reply);
    }
    if (status != BT_OK) {
        complain((status == BT_ERR_PEER_LOST)
                     ? "the launcher has ended: %s"
                     : "the launcher does not answer as it should: %s",
                 bt_status_str(status));
        return EXIT_REFUSED;
    }
    if (reply.result != BT_ADMIN_OK) {
        complain("%s", reply.error);
        exit_status = EXIT_REFUSED;
    } else if (command->verb == BT_ADMIN_VERB_STATUS) {
        fputs(before, stdout);
        exit_status = print_status(client, &reply, json);
    }
    bt_admin_document_fini(&reply.document);
    return exit_status;
}

/* The launcher named by the arguments, or NULL. */
static const char *named_run_dir(const arguments_t *arguments)
{
    const char *const run_dir = (arguments->run_dir != NULL)
                                    ? arguments->run_dir
                                    : getenv("BATON_RUN_DIR");

    return ((run_dir == NULL) || (run_dir[0] == '\0')) ? NULL : run_dir;
}

/* Prints the status of all launchers: tables one below the other, or an array
 * of JSON. @return the exit status */
static int run_all(const found_t *found, const bt_admin_command_t *command,
                   bool json)
{
    const char *before = json ? "[" : "";
    int exit_status = 0;

    for (uint32_t i = 0; i < found->n; i++) {
        bt_admin_client_t *const client = reach(found->paths[i]);
        const int failed = (client == NULL)
                               ? EXIT_REFUSED
                               : run(client, command, json, before);

        if (failed == 0) {
            before = json ? "," : "\n";
        }
        exit_status = (failed != 0) ? failed : exit_status;
        bt_admin_client_close(client);
    }
    if (json) {
        fputs((before[0] == '[') ? "[]\n" : "]\n", stdout);
    }
    return exit_status;
}

int bt_admin_client_main(int argc, char **argv)
{
    found_t found = {.n = 0};
    arguments_t arguments = {.run_dir = NULL};
    bt_admin_command_t command;
    bt_admin_client_t *client;
    int exit_status = EXIT_REFUSED;

    if (!read_arguments(argc, argv, &arguments)) {
        return EXIT_USAGE;
    }
    if (arguments.help) {
        fputs(usage, stdout);
        return 0;
    }
    if (!read_command(&arguments, &command)) {
        fputs("\n", stderr);
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    if ((command.verb == BT_ADMIN_VERB_STATUS) &&
        (named_run_dir(&arguments) == NULL)) {
        bt_run_dir_each(try_run_dir, &found);
        if (found.n > 1) {
            return run_all(&found, &command, arguments.json);
        }
    }
    client = reach(named_run_dir(&arguments));
    if (client != NULL) {
        exit_status = run(client, &command, arguments.json, "");
    }
    bt_admin_client_close(client);
    return exit_status;
}
