/* SPDX-License-Identifier: Apache-2.0 */
/** @file stored_fixture.h  Responses that are stored: in memory, on disk, or in
 * a folder that routers share. */
#ifndef BT_TESTS_UNIT_ROUTER_STORED_FIXTURE_H
#define BT_TESTS_UNIT_ROUTER_STORED_FIXTURE_H

#include "tests/unit/router/request_fixture.h"

#include <dirent.h>
#include <limits.h>
#include <unistd.h>

#define RESPONSES "/v1/responses"
#define ID_BYTES  64

static char folder[64];
static uint32_t n_answered; /* requests of this world that were answered */

enum { IN_MEMORY, ON_DISK, SHARED, N_PLACES };

static inline void open_stored(world_t *w, int place)
{
    folder[0] = '\0';
    if (place != IN_MEMORY) {
        snprintf(folder, sizeof(folder), "/tmp/baton-stored-XXXXXX");
        assert_non_null(mkdtemp(folder));
        store_path = (place == ON_DISK) ? folder : "";
        response_dir = (place == SHARED) ? folder : "";
    }
    response_limit = (response_limit > 0) ? response_limit : 1u << 20;
    n_answered = 0;
    start(w, true);
}

static inline void close_stored(world_t *w)
{
    char command[96];

    stop(w);
    if (folder[0] != '\0') {
        snprintf(command, sizeof(command), "rm -rf %s", folder);
        assert_int_equal(system(command), 0);
    }
    store_path = "";
    response_dir = "";
    response_limit = 0;
    api_keys = "";
}

/* Begins another server with the same folder. */
static inline void __attribute__((unused)) reopen_stored(world_t *w)
{
    stop(w);
    n_answered = 0;
    start(w, true);
}

static inline void __attribute__((unused))
call_as(world_t *w, bt_exchange_t *ex, bt_http_method_t method, const char *key,
        const char *path, const char *query)
{
    memset(ex, 0, sizeof(*ex));
    ex->method = method;
    ex->path = path;
    ex->query = query;
    ex->body = "";
    ex->api_key = key;
    ex->door = &w->door;
    bt_door_request(&w->door, ex);
    drain_pool(w);
    assert_int_equal(ex->n_ends, 1);
}

/* Posts a response, which is answered. */
static inline void __attribute__((unused))
respond_as(world_t *w, bt_exchange_t *ex, const char *key, const char *body,
           const char *text)
{
    memset(ex, 0, sizeof(*ex));
    ex->method = BT_HTTP_POST;
    ex->path = RESPONSES;
    ex->body = body;
    ex->api_key = key;
    ex->door = &w->door;
    bt_door_request(&w->door, ex);
    drain_pool(w);
    if (ex->n_ends == 0) {
        answer(w, n_answered++, text, BT_FINISH_STOP);
        drain_pool(w);
    }
    assert_int_equal(ex->n_ends, 1);
}

static inline void id_from(const bt_exchange_t *ex, char id[ID_BYTES])
{
    const char *at = strstr(ex->out, "\"id\":\"resp_");

    assert_non_null(at);
    snprintf(id, ID_BYTES, "%.*s", (int)strcspn(at + 6, "\""), at + 6);
}

/* Stores a response. @param more  further members, with a comma before them */
static inline void __attribute__((unused))
keep_as(world_t *w, const char *key, const char *more, const char *text,
        char id[ID_BYTES])
{
    char body[1024];
    bt_exchange_t ex;

    snprintf(body, sizeof(body), "{\"store\":true%s}", more);
    respond_as(w, &ex, key, body, text);
    if (ex.status != 200) {
        fail_msg("%s", ex.out);
    }
    has(&ex, "\"store\":true,");
    id_from(&ex, id);
    assert_int_equal(strlen(id), 5 + 32);
}

#define STORED_PATH_BYTES (160 + HOST_NAME_MAX)

/* Writes the path of a response's file; "": the path of their folder. */
static inline void __attribute__((unused))
stored_path(const char *id, char path[STORED_PATH_BYTES])
{
    const bool is_shared = response_dir[0] != '\0';
    char host[HOST_NAME_MAX + 1] = "";

    assert_int_equal(gethostname(host, sizeof(host) - 1), 0);
    snprintf(path, STORED_PATH_BYTES, "%s/%s%s/%.63s", folder,
             is_shared ? "router@" : "responses", is_shared ? host : "", id);
}

/* Counts the responses on disk. */
static inline unsigned __attribute__((unused)) responses_on_disk(void)
{
    char path[STORED_PATH_BYTES];
    DIR *dir;
    const struct dirent *entry;
    unsigned n = 0;

    stored_path("", path);
    dir = opendir(path);
    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        n += strncmp(entry->d_name, "resp_", 5) == 0;
    }
    closedir(dir);
    return n;
}

#endif
