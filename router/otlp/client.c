/* SPDX-License-Identifier: Apache-2.0 */
#include "router/otlp/client.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/json_doc.h"
#include "common/config/config.h"
#include "common/crypt/key.h"

#define SIGNAL_PATH "/v1/traces"
#define NO_HTTP                                                    \
    "the receiver speaks no HTTP/1.1 (OTLP over HTTP usually has " \
    "port 4318, over gRPC 4317)"
#define MAX_WAIT_MS 3600000u
#define MAX_DELAY_S 86400

struct bt_otlp_client {
    CURLM *multi;
    CURL *easy;
    struct curl_slist *headers;
    char *host; /* HOST[:PORT], for logs */
    char *path;
    /* Of the current response. */
    bt_strbuf_t body;
    size_t header_bytes;
    long status; /* 0: its header is incomplete */
    char curl_error[CURL_ERROR_SIZE];
};

/* ---- URL ---- */

/* Returns "BASE/v1/traces", to be freed; NULL: no memory. */
static char *traces_path(const char *base)
{
    static const char signal[] = SIGNAL_PATH;
    const size_t n_signal = sizeof(signal) - 1;
    size_t n = strlen(base);
    bool is_whole;
    char *path;

    while ((n > 0) && (base[n - 1] == '/')) {
        n--;
    }
    is_whole =
        (n >= n_signal) && (memcmp(base + n - n_signal, signal, n_signal) == 0);
    path = bt_calloc(n + sizeof(signal), 1);
    if (path != NULL) {
        memcpy(path, base, n);
        memcpy(path + n, signal, is_whole ? 0 : sizeof(signal));
    }
    return path;
}

/* Sets the request's URL, and host and path for logs. */
static bt_status_t set_url(bt_otlp_client_t *client, CURLU *url,
                           const char *text, char *error)
{
    CURLUcode code = curl_url_set(url, CURLUPART_URL, text, 0);
    bt_status_t status = BT_ERR_NO_MEMORY;
    char *base = NULL, *whole = NULL;

    if (code == CURLUE_OK) {
        code = curl_url_get(url, CURLUPART_PATH, &base, 0);
    }
    if ((code != CURLUE_OK) && (code != CURLUE_OUT_OF_MEMORY)) {
        snprintf(error, BT_OTLP_ERROR_BYTES, "%s", curl_url_strerror(code));
        return BT_ERR_INVALID_PARAM;
    }
    if (strncasecmp(text, "http", 4) != 0) {
        curl_free(base);
        snprintf(error, BT_OTLP_ERROR_BYTES, "the URL is not http or https");
        return BT_ERR_INVALID_PARAM;
    }
    client->path = (base != NULL) ? traces_path(base) : NULL;
    client->host = bt_strdup(strstr(text, "://") + 3);
    if ((client->path != NULL) && (client->host != NULL) &&
        (curl_url_set(url, CURLUPART_PATH, client->path, 0) == CURLUE_OK) &&
        (curl_url_get(url, CURLUPART_URL, &whole, 0) == CURLUE_OK) &&
        (curl_easy_setopt(client->easy, CURLOPT_URL, whole) == CURLE_OK)) {
        client->host[strcspn(client->host, "/")] = '\0';
        status = BT_OK;
    }
    curl_free(base);
    curl_free(whole);
    return status;
}

/* ---- one response ---- */

static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
    bt_otlp_client_t *const client = arg;
    long status = 0;

    (void)size; /* 1 */
    client->header_bytes += n;
    if (client->header_bytes > BT_OTLP_RESPONSE_BYTES) {
        return 0; /* ends the request */
    }
    /* The empty line; before it the status does not count. */
    if ((n > 0) && ((line[0] == '\r') || (line[0] == '\n'))) {
        (void)curl_easy_getinfo(client->easy, CURLINFO_RESPONSE_CODE, &status);
        client->status = (status >= 200) ? status : 0;
    }
    return n;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    bt_otlp_client_t *const client = arg;

    (void)size; /* 1 */
    bt_strbuf_append(&client->body, data, n);
    return (bt_strbuf_status(&client->body) == BT_OK) ? n : 0;
}

/* ---- creation ---- */

static bool set_fixed_options(bt_otlp_client_t *client)
{
    CURL *const easy = client->easy;
    const char *const ca_file = getenv("SSL_CERT_FILE");
    const char *const ca_path = getenv("SSL_CERT_DIR");
    char agent[64];

    snprintf(agent, sizeof(agent), "baton-router/%s", bt_config_version());
    return (curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") ==
            CURLE_OK) &&
           (curl_easy_setopt(easy, CURLOPT_HTTP_VERSION,
                             (long)CURL_HTTP_VERSION_1_1) == CURLE_OK) &&
           (curl_easy_setopt(easy, CURLOPT_SSLVERSION,
                             (long)CURL_SSLVERSION_TLSv1_2) == CURLE_OK) &&
           ((ca_file == NULL) ||
            (curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file) == CURLE_OK)) &&
           ((ca_path == NULL) ||
            (curl_easy_setopt(easy, CURLOPT_CAPATH, ca_path) == CURLE_OK)) &&
           (curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK) &&
           (curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK) &&
           /* Nobody waits for a thread that resolves a name. */
           (curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L) == CURLE_OK) &&
           (curl_easy_setopt(easy, CURLOPT_USERAGENT, agent) == CURLE_OK) &&
           (curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, client->curl_error) ==
            CURLE_OK) &&
           (curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header) ==
            CURLE_OK) &&
           (curl_easy_setopt(easy, CURLOPT_HEADERDATA, client) == CURLE_OK) &&
           (curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body) ==
            CURLE_OK) &&
           (curl_easy_setopt(easy, CURLOPT_WRITEDATA, client) == CURLE_OK);
}

static void init_curl(void)
{
    (void)curl_global_init(CURL_GLOBAL_DEFAULT); /* else handles are NULL */
}

bt_status_t bt_otlp_client_create(const char *url, bt_otlp_client_t **client_p,
                                  char error[BT_OTLP_ERROR_BYTES])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bt_otlp_client_t *client = bt_calloc(1, sizeof(*client));
    bt_status_t status = BT_ERR_NO_MEMORY;
    CURLU *parsed = NULL;

    snprintf(error, BT_OTLP_ERROR_BYTES, "out of memory");
    if (client == NULL) {
        return status;
    }
    (void)pthread_once(&once, init_curl);
    bt_strbuf_init(&client->body, BT_OTLP_RESPONSE_BYTES);
    client->multi = curl_multi_init();
    client->easy = curl_easy_init();
    parsed = curl_url();
    if ((client->multi == NULL) || (client->easy == NULL) || (parsed == NULL) ||
        !set_fixed_options(client)) {
        goto err_destroy;
    }
    status = set_url(client, parsed, url, error);
    if (status != BT_OK) {
        goto err_destroy;
    }
    curl_url_cleanup(parsed);
    *client_p = client;
    return BT_OK;

err_destroy:
    curl_url_cleanup(parsed);
    bt_otlp_client_destroy(client);
    return status;
}

/* Overwrites the headers, which may hold a key, and frees them. */
static void free_headers(struct curl_slist *headers)
{
    for (struct curl_slist *at = headers; at != NULL; at = at->next) {
        bt_key_wipe(at->data, strlen(at->data));
    }
    curl_slist_free_all(headers);
}

void bt_otlp_client_destroy(bt_otlp_client_t *client)
{
    if (client == NULL) {
        return;
    }
    curl_easy_cleanup(client->easy);
    (void)curl_multi_cleanup(client->multi);
    free_headers(client->headers);
    bt_strbuf_fini(&client->body);
    bt_free(client->host);
    bt_free(client->path);
    bt_free(client);
}

const char *bt_otlp_client_host(const bt_otlp_client_t *client)
{
    return client->host;
}

const char *bt_otlp_client_path(const bt_otlp_client_t *client)
{
    return client->path;
}

/* ---- headers ---- */

static bool append_header(struct curl_slist **list_p, const char *line)
{
    struct curl_slist *const list = curl_slist_append(*list_p, line);

    if (list != NULL) {
        *list_p = list;
    }
    return list != NULL;
}

bt_status_t bt_otlp_client_set_headers(bt_otlp_client_t *client,
                                       const char *headers, size_t bytes)
{
    /* A large body is sent without waiting for "100 Continue". */
    struct curl_slist *list = NULL;
    bool done = append_header(&list, "Content-Type: application/json") &&
                append_header(&list, "Content-Encoding: gzip") &&
                append_header(&list, "Expect:");

    for (size_t at = 0; done && (at < bytes); at += strlen(headers + at) + 1) {
        done = append_header(&list, headers + at);
    }
    if (!done || (curl_easy_setopt(client->easy, CURLOPT_HTTPHEADER, list) !=
                  CURLE_OK)) {
        free_headers(list);
        return BT_ERR_NO_MEMORY;
    }
    free_headers(client->headers);
    client->headers = list;
    return BT_OK;
}

/* ---- one request ---- */

/* Runs the request until it ends. @return CURLE_ABORTED_BY_CALLBACK: *end_ms
 * has passed */
static CURLcode run(bt_otlp_client_t *client, const _Atomic uint64_t *end_ms)
{
    for (;;) {
        const CURLMsg *message;
        uint64_t now_ms, end;
        int n = 0;

        if (curl_multi_perform(client->multi, &n) != CURLM_OK) {
            return CURLE_OUT_OF_MEMORY;
        }
        message = curl_multi_info_read(client->multi, &n);
        if (message != NULL) { /* of the only request: it has ended */
            return message->data.result;
        }
        end = atomic_load(end_ms);
        now_ms = bt_now_ms();
        if ((end != 0) && (now_ms >= end)) {
            return CURLE_ABORTED_BY_CALLBACK;
        }
        /* Ends when libcurl has something to do, too. */
        bt_otlp_client_wait(client, (end != 0) ? end - now_ms : MAX_WAIT_MS);
    }
}

static void describe(const bt_otlp_client_t *client, CURLcode code, char *error)
{
    long os_error = 0;

    (void)curl_easy_getinfo(client->easy, CURLINFO_OS_ERRNO, &os_error);
    snprintf(error, BT_OTLP_ERROR_BYTES, "%.160s%s%.80s",
             (client->curl_error[0] != '\0') ? client->curl_error
                                             : curl_easy_strerror(code),
             (os_error != 0) ? ": " : "",
             (os_error != 0) ? strerror((int)os_error) : "");
    for (char *at = error; *at != '\0'; at++) {
        *at = ((*at >= ' ') && (*at <= '~')) ? *at : '?';
    }
}

static bt_status_t fail(const bt_otlp_client_t *client, CURLcode code,
                        char *error)
{
    switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
        snprintf(error, BT_OTLP_ERROR_BYTES, NO_HTTP);
        return BT_ERR_IO;
    case CURLE_ABORTED_BY_CALLBACK:
        snprintf(error, BT_OTLP_ERROR_BYTES, "no response before the end");
        return BT_ERR_IO;
    case CURLE_OUT_OF_MEMORY:
        snprintf(error, BT_OTLP_ERROR_BYTES, "out of memory");
        return BT_ERR_NO_MEMORY;
    default:
        describe(client, code, error);
        return BT_ERR_IO;
    }
}

static void read_response(const bt_otlp_client_t *client,
                          bt_otlp_response_t *response)
{
    curl_off_t delay_s = 0;

    (void)curl_easy_getinfo(client->easy, CURLINFO_RETRY_AFTER, &delay_s);
    if (delay_s > MAX_DELAY_S) {
        delay_s = MAX_DELAY_S;
    }
    *response = (bt_otlp_response_t){
        .http_status = (int)client->status,
        .retry_after_ms = (delay_s > 0) ? (uint64_t)delay_s * 1000 : 0,
        .body = client->body.data,
        .body_bytes = client->body.len,
    };
}

bt_status_t bt_otlp_client_post(bt_otlp_client_t *client,
                                const bt_otlp_request_t *request,
                                bt_otlp_response_t *response,
                                char error[BT_OTLP_ERROR_BYTES])
{
    CURL *const easy = client->easy;
    CURLcode code = CURLE_OUT_OF_MEMORY;

    bt_strbuf_reset(&client->body);
    client->header_bytes = 0;
    client->status = 0;
    client->curl_error[0] = '\0';
    if ((curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                          (curl_off_t)request->body_bytes) == CURLE_OK) &&
        (curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body) ==
         CURLE_OK) &&
        (curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)request->try_ms) ==
         CURLE_OK) &&
        (curl_multi_add_handle(client->multi, easy) == CURLM_OK)) {
        code = run(client, request->end_ms);
        (void)curl_multi_remove_handle(client->multi, easy);
    }
    if (client->status == 0) {
        return fail(client, code, error);
    }
    read_response(client, response);
    return BT_OK;
}

void bt_otlp_client_wait(bt_otlp_client_t *client, uint64_t ms)
{
    (void)curl_multi_poll(client->multi, NULL, 0,
                          (ms < MAX_WAIT_MS) ? (int)ms : (int)MAX_WAIT_MS,
                          NULL);
}

void bt_otlp_client_wake(bt_otlp_client_t *client)
{
    (void)curl_multi_wakeup(client->multi);
}

/* ---- the meaning of a response ---- */

bt_otlp_verdict_t bt_otlp_judge(int http_status)
{
    if ((http_status >= 200) && (http_status < 300)) {
        return BT_OTLP_ACCEPTED;
    }
    switch (http_status) {
    case 429:
    case 502:
    case 503:
    case 504:
        return BT_OTLP_RETRY;
    default:
        return BT_OTLP_REJECTED;
    }
}

uint64_t bt_otlp_backoff_ms(const bt_otlp_backoff_t *backoff, uint32_t n_failed,
                            uint64_t retry_after_ms, uint32_t random)
{
    uint64_t ms = backoff->first_ms;

    for (uint32_t i = 1; (i < n_failed) && (ms < backoff->max_ms); i++) {
        ms *= 2;
    }
    ms = (ms < backoff->max_ms) ? ms : backoff->max_ms;
    ms = ms / 2 + (uint64_t)random % (ms - ms / 2 + 1);
    return (retry_after_ms > ms) ? retry_after_ms : ms;
}

static bool read_count(const bt_json_node_t *node, uint64_t *n_p)
{
    char digits[24];

    if (bt_json_as_u64(node, n_p)) {
        return true;
    }
    /* proto3's JSON encodes 64-bit numbers as strings. */
    if ((node == NULL) || (node->kind != BT_JSON_STRING) || (node->len > 19)) {
        return false;
    }
    memcpy(digits, node->text, node->len);
    digits[node->len] = '\0';
    return (strlen(digits) == node->len) && bt_parse_u64(digits, n_p);
}

static void read_message(const bt_json_node_t *node, bt_otlp_result_t *result)
{
    if ((node != NULL) && (node->kind == BT_JSON_STRING)) {
        result->message = bt_printable(node->text, node->len);
    }
}

void bt_otlp_parse_body(const char *body, size_t bytes,
                        bt_otlp_result_t *result)
{
    bt_json_doc_t *doc = NULL;
    const bt_json_node_t *root, *partial;
    char why[128];

    *result = (bt_otlp_result_t){0};
    if ((bytes == 0) ||
        (bt_json_doc_parse(body, bytes, why, sizeof(why), &doc) != BT_OK)) {
        return;
    }
    root = bt_json_doc_root(doc);
    partial = bt_json_get(doc, root, "partialSuccess");
    if (partial != NULL) {
        if (!read_count(bt_json_get(doc, partial, "rejectedSpans"),
                        &result->n_rejected)) {
            result->n_rejected = 0;
        }
        read_message(bt_json_get(doc, partial, "errorMessage"), result);
        result->is_partial =
            (result->n_rejected > 0) || (result->message.text[0] != '\0');
    } else {
        read_message(bt_json_get(doc, root, "message"), result);
    }
    bt_json_doc_free(doc);
}
