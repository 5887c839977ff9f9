/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ready.h"

#include <stdio.h>
#include <string.h>

#include "common/base/process.h"
#include "common/config/config.h"

#define ADDRESS_BYTES 256
#define ASK_DEFAULT   "127.0.0.1:8000" /* of ./baton ask, cli/endpoint.py */

void bt_ready_reset(bt_ready_t *ready)
{
    ready->len = 0;
    ready->text[0] = '\0';
    ready->role[0] = '\0';
    ready->why[0] = '\0';
    ready->said_joined = false;
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
static void print_place(const char *title, const char *address,
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
        print_place("OpenAI", address, "/v1", out);
        print_place("page", address, "/", out);
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
