/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/health.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/config/config.h"

/* ---- readiness ---- */

#define ADDRESS_BYTES 256
#define ASK_DEFAULT                                           \
    "127.0.0.1:8000" /* of ./baton ask, tools/cli/endpoint.py \
                      */

void bt_ready_reset(bt_ready_t *ready)
{
    ready->len = 0;
    ready->text[0] = '\0';
    ready->role[0] = '\0';
    ready->why[0] = '\0';
    ready->said_joined = false;
    ready->is_loading = false;
}

/* Start of the complete line that begins with that word, or NULL. */
static const char *find_line(const bt_ready_t *ready, const char *word)
{
    const size_t n = strlen(word);
    const char *line = ready->text;
    const char *end;

    while ((end = strchr(line, '\n')) != NULL) {
        if ((strncmp(line, word, n) == 0) &&
            ((line[n] == ' ') || (line[n] == '\n'))) {
            return line;
        }
        line = end + 1;
    }
    return NULL;
}

static void take_out(bt_ready_t *ready, const char *line)
{
    const size_t n = strcspn(line, "\n") + 1;
    char *const at = ready->text + (line - ready->text);

    memmove(at, at + n, ready->len - (size_t)(at - ready->text) - n + 1);
    ready->len -= n;
}

/* "1 2 URL: WHY", or "2 2 WHY" */
static void take_joined(bt_ready_t *ready, const char *text)
{
    unsigned n_up, n_all;
    int at = 0;

    ready->said_joined = true;
    ready->why[0] = '\0';
    if ((sscanf(text, "%9u %9u%n", &n_up, &n_all, &at) != 2) || (at <= 0)) {
        return;
    }
    text += at;
    text += strspn(text, " ");
    if (n_up == n_all) {
        snprintf(ready->why, sizeof(ready->why), "%s", text);
    } else if (n_up < n_all) {
        snprintf(ready->why, sizeof(ready->why),
                 "linked with %u of %u routers%s%s", n_up, n_all,
                 (text[0] != '\0') ? "; " : "", text);
    }
}

/* Each "loading" has a "loaded" behind it: the last of the lines counts. */
static void take_loading(bt_ready_t *ready)
{
    for (;;) {
        const char *begins = find_line(ready, "loading");
        const char *line = find_line(ready, "loaded");

        if ((begins != NULL) && ((line == NULL) || (begins < line))) {
            line = begins;
        }
        if (line == NULL) {
            return;
        }
        ready->is_loading = line == begins;
        take_out(ready, line);
    }
}

/* Removes lines that may be repeated any number of times, to save space. */
static void take_repeated(bt_ready_t *ready)
{
    char text[BT_READY_WHY_BYTES];
    const char *line;

    while ((line = find_line(ready, "role")) != NULL) {
        if (!bt_ready_address(ready, "role", ready->role,
                              sizeof(ready->role))) {
            ready->role[0] = '\0';
        }
        take_out(ready, line);
    }
    take_loading(ready);
    while ((line = find_line(ready, "joined")) != NULL) {
        if (bt_ready_address(ready, "joined", text, sizeof(text))) {
            take_joined(ready, text);
        }
        take_out(ready, line);
    }
}

void bt_ready_add(bt_ready_t *ready, const char *data, size_t n)
{
    if (n > sizeof(ready->text) - 1 - ready->len) {
        n = sizeof(ready->text) - 1 - ready->len;
    }
    memcpy(ready->text + ready->len, data, n);
    ready->len += n;
    ready->text[ready->len] = '\0';
    take_repeated(ready);
}

bool bt_ready_is_done(const bt_ready_t *ready)
{
    return find_line(ready, "ready") != NULL;
}

bool bt_ready_has_line(const bt_ready_t *ready)
{
    return strchr(ready->text, '\n') != NULL;
}

bool bt_ready_address(const bt_ready_t *ready, const char *key, char *out,
                      size_t bytes)
{
    const char *const line = find_line(ready, key);
    const char *start;
    size_t n;

    if (line == NULL) {
        return false;
    }
    start = line + strlen(key);
    start += (*start == ' ') ? 1 : 0;
    n = strcspn(start, "\n");
    if ((n == 0) || (n >= bytes)) {
        return false;
    }
    memcpy(out, start, n);
    out[n] = '\0';
    return true;
}

/* An address that a client on this machine can use: a server that listens on
 * all interfaces is reached at the loopback address. */
static void print_client_address(const char *address, bt_strbuf_t *out)
{
    const char *const scheme = strstr(address, "://");
    char host[ADDRESS_BYTES];
    uint16_t port;

    if (scheme != NULL) {
        bt_strbuf_append(out, address, (size_t)(scheme + 3 - address));
        address = scheme + 3;
    }

    if (bt_config_split_address(address, host, sizeof(host), &port) != BT_OK) {
        bt_strbuf_puts(out, address);
        return;
    }
    if (strcmp(host, "0.0.0.0") == 0) {
        bt_strbuf_printf(out, "127.0.0.1:%u", (unsigned)port);
    } else if (strcmp(host, "::") == 0) {
        bt_strbuf_printf(out, "[::1]:%u", (unsigned)port);
    } else {
        bt_strbuf_puts(out, address);
    }
}

/* Prints a line for each router that has such an address; the first one has the
 * title. */
static void print_addresses(const bt_ready_t *const *routers, uint32_t n,
                            const char *key, const char *title,
                            const char *before, const char *behind,
                            bt_strbuf_t *out)
{
    char address[ADDRESS_BYTES];

    for (uint32_t i = 0; i < n; i++) {
        if (bt_ready_address(routers[i], key, address, sizeof(address))) {
            bt_strbuf_printf(out, "  %-8s %s%s%s\n", title,
                             (strstr(address, "://") != NULL) ? "" : before,
                             address, behind);
            title = "";
        }
    }
}

/* Prints the URL of the first router for OpenAI API clients, and for people. */
static void print_address(const char *title, const char *address,
                          const char *path, bt_strbuf_t *out)
{
    bt_strbuf_printf(out, "  %-8s %s", title,
                     (strstr(address, "://") != NULL) ? "" : "http://");
    print_client_address(address, out);
    bt_strbuf_printf(out, "%s\n", path);
}

/* Model of setup/fetch_model.py, which is served if none is named. */
#define DEMONSTRATION_MODEL "SmolLM2-135M-Instruct.Q4_1"

static void print_models(const char *const *models, uint32_t n,
                         bt_strbuf_t *out)
{
    const char *const command = bt_process_command();

    for (uint32_t i = 0; i < n; i++) {
        bt_strbuf_printf(out, "  %-8s %s\n",
                         (i > 0) ? "" : ((n == 1) ? "model" : "models"),
                         models[i]);
        if (strcmp(models[i], DEMONSTRATION_MODEL) == 0) {
            bt_strbuf_printf(out,
                             "           (a small one, to try things out: its "
                             "answers are often wrong.\n"
                             "           %s list --known names better ones, %s "
                             "pull NAME fetches one,\n"
                             "           %s serve NAME serves it)\n",
                             command, command, command);
        }
    }
}

/* Prints the options that ./baton ask needs, if any. */
static void print_ask(const char *address, bt_strbuf_t *out)
{
    const bool tls = (strstr(address, "://") != NULL);
    bt_strbuf_t client;

    bt_strbuf_init(&client, ADDRESS_BYTES);
    print_client_address(address, &client);
    bt_strbuf_puts(out, "  ");
    if ((client.len > 0) && (strcmp(client.data, ASK_DEFAULT) != 0)) {
        bt_strbuf_printf(out, "BATON_URL=%s ", client.data);
    }
    bt_strbuf_fini(&client);
    bt_strbuf_printf(out, "%s ask %s\"Why is the sky blue?\"\n",
                     bt_process_command(), tls ? "--cacert FILE " : "");
}

void bt_ready_announce(const bt_ready_t *const *routers, uint32_t n,
                       const char *const *models, uint32_t n_models,
                       bt_strbuf_t *out)
{
    char address[ADDRESS_BYTES];
    const bool has_http = (n > 0) && bt_ready_address(routers[0], "http",
                                                      address, sizeof(address));

    bt_strbuf_puts(out, "\nBaton is ready.\n");
    print_addresses(routers, n, "http", "HTTP", "http://", "", out);
    if (has_http) {
        print_address("OpenAI", address, "/v1", out);
        print_address("page", address, "/", out);
    }
    print_addresses(routers, n, "grpc", "gRPC", "", "", out);
    print_addresses(routers, n, "metrics", "metrics", "http://", "/metrics",
                    out);
    print_models(models, n_models, out);
    if (has_http) {
        bt_strbuf_puts(out, "\nTry it:\n");
        print_ask(address, out);
        bt_strbuf_puts(out, "  curl -X POST ");
        if (strstr(address, "://") != NULL) {
            bt_strbuf_puts(out, "--cacert FILE ");
        }
        print_client_address(address, out);
        bt_strbuf_puts(out,
                       "/v2/models/ensemble/generate -d '{\"text_input\": "
                       "\"The capital of France is\", \"max_tokens\": 16}'\n");
    }
    bt_strbuf_puts(out, "\nCtrl-C stops everything.\n");
}

/* ---- liveness ---- */

#define SHORTEST_MS 20u
#define LONGEST_MS  1000u

bool bt_watchdog_is_long_enough(uint32_t limit_ms)
{
    return (limit_ms == 0) || (limit_ms >= BT_WATCHDOG_LEAST_MS);
}

void bt_watchdog_init(bt_watchdog_t *watchdog, uint64_t now_ms)
{
    *watchdog = (bt_watchdog_t){.looked_ms = now_ms};
}

uint32_t bt_watchdog_period_ms(uint32_t limit_ms)
{
    const uint32_t tenth = limit_ms / 10;

    if (tenth < SHORTEST_MS) {
        return SHORTEST_MS;
    }
    return (tenth > LONGEST_MS) ? LONGEST_MS : tenth;
}

/* Returns the time since the last look, without what the launcher itself has
 * not run. */
static uint64_t passed(bt_watchdog_t *watchdog, uint64_t now_ms,
                       uint32_t limit_ms)
{
    const uint64_t most_ms = 2u * bt_watchdog_period_ms(limit_ms);
    const uint64_t passed_ms = now_ms - watchdog->looked_ms;

    watchdog->looked_ms = now_ms;
    return (passed_ms > most_ms) ? most_ms : passed_ms;
}

bool bt_watchdog_look_loading(bt_watchdog_t *watchdog, uint64_t now_ms,
                              uint32_t limit_ms)
{
    const uint64_t loading_ms =
        watchdog->loading_ms + passed(watchdog, now_ms, limit_ms);

    bt_watchdog_init(watchdog, now_ms);
    if (loading_ms >= BT_LOADING_MOST_MS) {
        return true;
    }
    watchdog->loading_ms = loading_ms;
    return false;
}

bool bt_watchdog_look(bt_watchdog_t *watchdog, uint64_t now_ms, bool has_beaten,
                      uint64_t waited_ms, uint32_t limit_ms)
{
    const uint64_t passed_ms = passed(watchdog, now_ms, limit_ms);

    watchdog->loading_ms = 0;
    if (has_beaten) {
        watchdog->is_watched = true;
        watchdog->silent_ms = watchdog->waited_ms = 0;
        return false;
    }
    if (!watchdog->is_watched) {
        return false;
    }
    waited_ms = (waited_ms < passed_ms) ? waited_ms : passed_ms;
    watchdog->waited_ms += waited_ms;
    watchdog->silent_ms += passed_ms - waited_ms;
    if (watchdog->silent_ms < limit_ms) {
        return false;
    }
    watchdog->is_watched = false;
    return true;
}

bool bt_watchdog_is_starved(const bt_watchdog_t *watchdog, uint32_t limit_ms)
{
    return watchdog->is_watched &&
           (watchdog->waited_ms >= bt_watchdog_period_ms(limit_ms)) &&
           (watchdog->waited_ms >= watchdog->silent_ms);
}

/* ---- threads of a hung process ---- */

#define MAX_THREADS 64u
#define TEXT_BYTES  4096
#define STACK_BYTES 512
#define NS_PER_MS   1000000u

/* "[<0>] futex_do_wait+0x38/0x70\n…": the names, innermost first. */
static void names_of(const char *stack, char *names, size_t bytes)
{
    size_t n = 0;

    names[0] = '\0';
    while ((stack = strchr(stack, ']')) != NULL) {
        const char *const name = stack + strspn(stack, "] ");
        const int length = (int)strcspn(name, "+\n");
        const int wrote = snprintf(names + n, bytes - n, "%s%.*s",
                                   (n > 0) ? " < " : "", length, name);

        if ((wrote < 0) || ((size_t)wrote >= bytes - n)) {
            return; /* the outer ones are less useful */
        }
        n += (size_t)wrote;
        stack = name + length;
    }
}

static void log_thread(const char *name, pid_t pid, int32_t tid)
{
    bt_core_wait_thread_t sample;
    char text[TEXT_BYTES];
    char thread[32];
    char waits[64];
    char names[STACK_BYTES];

    (void)bt_task_text_read(pid, tid, "comm", thread, sizeof(thread));
    thread[strcspn(thread, "\n")] = '\0';
    if (!bt_core_wait_thread_read(pid, tid, &sample)) {
        return; /* it has just ended */
    }
    if (!bt_task_text_read(pid, tid, "wchan", waits, sizeof(waits)) ||
        (strcmp(waits, "0") == 0)) {
        snprintf(waits, sizeof(waits), "no call");
    }
    BT_LOG_WARN("%s thread %d (%s): state %c, waits in %s, ran %" PRIu64
                " ms, waited %" PRIu64 " ms for a core in %" PRIu64 " turns",
                name, tid, thread, sample.state, waits,
                sample.ran_ns / NS_PER_MS, sample.waited_ns / NS_PER_MS,
                sample.n_turns);
    if (bt_task_text_read(pid, tid, "stack", text, sizeof(text))) {
        names_of(text, names, sizeof(names));
        BT_LOG_WARN("%s thread %d is in: %s", name, tid, names);
    }
}

void bt_threads_log(const char *name, pid_t pid)
{
    BT_CLEANUP(closedir) DIR *dir = NULL;
    const struct dirent *entry;
    uint32_t n = 0;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    dir = opendir(path);
    if (dir == NULL) {
        BT_LOG_WARN("%s: its threads cannot be read: %m", name);
        return;
    }
    while ((n < MAX_THREADS) && ((entry = readdir(dir)) != NULL)) {
        if (entry->d_name[0] != '.') {
            log_thread(name, pid, (int32_t)strtol(entry->d_name, NULL, 10));
            n++;
        }
    }
}
