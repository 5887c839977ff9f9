/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/files: uploads, lists, contents, and whose they are. */
#include "common/base/status.h"
#include "tests/unit/router/request_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define FILES "/v1/files"
#define NL    "\r\n"
#define FIELD(name, value) \
    "--B" NL "Content-Disposition: form-data; name=\"" name "\"" NL NL value NL
#define A_FILE(name, value)                                                    \
    "--B" NL "Content-Disposition: form-data; name=\"file\"; filename=\"" name \
    "\"" NL "Content-Type: application/jsonl" NL NL value NL
#define END      "--B--" NL
#define FORM     "multipart/form-data; boundary=B"
#define UPLOAD   FIELD("purpose", "batch") A_FILE("in.jsonl", "{}\n{}\n") END
#define ID_CHARS 37

static char folder[64];

/* The system's, which fail while these say so. */
static _Atomic bool unlink_fails, fsync_fails;

int unlinkat(int fd, const char *path, int flags)
{
    if (unlink_fails) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_unlinkat, fd, path, flags);
}

int fsync(int fd)
{
    if (fsync_fails) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

static void open_world(world_t *w)
{
    snprintf(folder, sizeof(folder), "/tmp/baton-files-XXXXXX");
    assert_non_null(mkdtemp(folder));
    store_path = folder;
    start(w, true);
}

static void close_world(world_t *w)
{
    char command[96];

    stop(w);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
    store_path = "";
    api_keys = "";
}

static unsigned files_on_disk(void)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    unsigned n = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        n += strncmp(entry->d_name, "file-", 5) == 0;
    }
    closedir(dir);
    return n;
}

static void call(world_t *w, bt_exchange_t *ex, bt_http_method_t method,
                 const char *key, const char *path, const char *query)
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

static void upload(world_t *w, bt_exchange_t *ex, const char *key,
                   const char *body)
{
    memset(ex, 0, sizeof(*ex));
    ex->method = BT_HTTP_POST;
    ex->path = FILES;
    ex->body = body;
    ex->content_type = FORM;
    ex->api_key = key;
    ex->door = &w->door;
    bt_door_request(&w->door, ex);
    drain_pool(w);
    assert_int_equal(ex->n_ends, 1);
}

/* Uploads, and stores the path of the file. */
static void upload_path(world_t *w, const char *key, char path[64])
{
    bt_exchange_t ex;
    const char *at;

    upload(w, &ex, key, UPLOAD);
    assert_int_equal(ex.status, 200);
    at = strstr(ex.out, "\"id\":\"file-");
    assert_non_null(at);
    snprintf(path, 64, FILES "/%.*s", ID_CHARS, at + 6);
}

static void file_is_kept_read_and_deleted(void **state)
{
    world_t *w = &world;
    char path[64], content[80];
    bt_exchange_t ex;

    (void)state;
    open_world(w);
    upload(w, &ex, NULL, UPLOAD);
    assert_int_equal(ex.status, 200);
    assert_string_equal(ex.type, "application/json");
    has(&ex, "\"object\":\"file\",\"bytes\":6,\"created_at\":");
    has(&ex, ",\"filename\":\"in.jsonl\",\"purpose\":\"batch\",\"status\":"
             "\"processed\"");
    snprintf(path, sizeof(path), FILES "/%.*s", ID_CHARS,
             strstr(ex.out, "file-"));
    call(w, &ex, BT_HTTP_GET, NULL, path, NULL);
    assert_int_equal(ex.status, 200);
    has(&ex, "\"bytes\":6");
    snprintf(content, sizeof(content), "%s/content", path);
    call(w, &ex, BT_HTTP_GET, NULL, content, NULL);
    assert_int_equal(ex.status, 200);
    assert_string_equal(ex.type, "application/octet-stream");
    assert_non_null(strstr(ex.headers, "X-Content-Type-Options: nosniff\n"));
    assert_string_equal(ex.out, "{}\n{}\n");
    assert_int_equal(files_on_disk(), 1);
    call(w, &ex, BT_HTTP_DELETE, NULL, path, NULL);
    assert_int_equal(ex.status, 200);
    has(&ex, "\"object\":\"file\",\"deleted\":true");
    assert_int_equal(files_on_disk(), 0);
    for (int i = 0; i < 3; i++) {
        call(w, &ex, (i == 2) ? BT_HTTP_DELETE : BT_HTTP_GET, NULL,
             (i == 1) ? content : path, NULL);
        assert_int_equal(ex.status, 404);
        has(&ex, "\"message\":\"no such File object: file-");
        has(&ex, "\"param\":\"id\"");
    }
    close_world(w);
}

static void fields_have_effect_or_are_refused_by_name(void **state)
{
    static const struct {
        const char *body, *part;
    } cases[] = {
        {A_FILE("x", "") END, "purpose is missing"},
        {FIELD("purpose", "batch") END, "file is missing"},
        {FIELD("purpose", "batch") A_FILE("", "y") END, "has no filename"},
        {FIELD("purpose", "fine-tune") A_FILE("x", "y") END,
         "purpose must be batch or user_data"},
        {FIELD("purpose", "") A_FILE("x", "y") END,
         "purpose must be batch or user_data"},
        {FIELD("purpose", "batch") FIELD("purpose", "batch") END,
         "purpose is given twice"},
        {FIELD("file", "y") END, "file must be given once, as a file"},
        {A_FILE("x", "y") A_FILE("x", "y") END, "file must be given once"},
        {FIELD("model", "y") END, "model is no field of an upload"},
        {FIELD("purpose", "batch") A_FILE("x", "y")
             FIELD("expires_after[anchor]", "created_at") END,
         "expires_after has an anchor and seconds"},
        {FIELD("expires_after[anchor]", "now") END,
         "expires_after[anchor] must be created_at"},
        {FIELD("expires_after[seconds]", "3599") END, "from 3600 to 2592000"},
        {FIELD("expires_after[seconds]", "2592001") END,
         "from 3600 to 2592000"},
        {FIELD("expires_after[seconds]", "1e4") END, "from 3600 to 2592000"},
        {FIELD("purpose", "batch"), "the body ends within a part"},
        {"{}", "the body does not begin with its boundary"},
        {"", "the body does not begin with its boundary"},
    };
    world_t *w = &world;
    uint64_t created, expires;
    bt_exchange_t ex;

    (void)state;
    open_world(w);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        upload(w, &ex, NULL, cases[i].body);
        assert_int_equal(ex.status, 400);
        has(&ex, cases[i].part);
        has(&ex, "\"type\":\"invalid_request_error\"");
    }
    assert_int_equal(files_on_disk(), 0);
    assert_int_equal(w->front.store != NULL, 1);
    upload(w, &ex, NULL,
           FIELD("purpose", "user_data")
               FIELD("expires_after[anchor]", "created_at")
                   FIELD("expires_after[seconds]", "3600") A_FILE("x", "") END);
    assert_int_equal(ex.status, 200);
    has(&ex, "\"bytes\":0,");
    created = strtoull(strstr(ex.out, "\"created_at\":") + 13, NULL, 10);
    expires = strtoull(strstr(ex.out, "\"expires_at\":") + 13, NULL, 10);
    assert_int_equal(expires - created, 3600);
    close_world(w);
}

static void list_is_cut_into_pages(void **state)
{
    world_t *w = &world;
    char paths[3][64], text[512], query[256];
    bt_exchange_t ex;

    (void)state;
    open_world(w);
    call(w, &ex, BT_HTTP_GET, NULL, FILES, "");
    assert_string_equal(ex.out, "{\"object\":\"list\",\"data\":[],\"first_id\":"
                                "null,\"last_id\":null,\"has_more\":false}");
    for (int i = 0; i < 3; i++) {
        upload_path(w, NULL, paths[i]);
    }
    call(w, &ex, BT_HTTP_GET, NULL, FILES, "limit=2");
    snprintf(text, sizeof(text),
             "],\"first_id\":\"%s\",\"last_id\":\"%s\",\"has_more\":true}",
             paths[2] + 10, paths[1] + 10);
    has(&ex, text);
    snprintf(query, sizeof(query), "limit=2&after=%s", paths[1] + 10);
    call(w, &ex, BT_HTTP_GET, NULL, FILES, query);
    snprintf(text, sizeof(text),
             "],\"first_id\":\"%s\",\"last_id\":\"%s\",\"has_more\":false}",
             paths[0] + 10, paths[0] + 10);
    has(&ex, text);
    snprintf(query, sizeof(query), "order=asc&after=%s&purpose=batch",
             paths[0] + 10);
    call(w, &ex, BT_HTTP_GET, NULL, FILES, query);
    snprintf(text, sizeof(text),
             "],\"first_id\":\"%s\",\"last_id\":\"%s\",\"has_more\":false}",
             paths[1] + 10, paths[2] + 10);
    has(&ex, text);
    call(w, &ex, BT_HTTP_GET, NULL, FILES, "purpose=user_data");
    has(&ex, "\"data\":[]");
    close_world(w);
}

static void list_parameters_are_refused_by_name(void **state)
{
    static const struct {
        const char *query, *part;
        int status;
    } cases[] = {
        {"limit=0", "limit must be", 400},
        {"limit=10001", "limit must be", 400},
        {"limit=", "limit must be", 400},
        {"order=up", "order must be", 400},
        {"after=file-x", "after: no such File object: file-x", 404},
        {"before=x", "before is no parameter", 400},
        {"limit=%zz", "the query is malformed", 400},
    };
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_world(w);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        call(w, &ex, BT_HTTP_GET, NULL, FILES, cases[i].query);
        assert_int_equal(ex.status, cases[i].status);
        has(&ex, cases[i].part);
    }
    close_world(w);
}

/* printf %s first-key | b2sum -l 256; the same of second-key */
static const char keys[] =
    "tenant a\ntenant b\n"
    "key a blake2b:"
    "744e3f2db4a90571dfd3944ca68929d55a8d5dfb973c2eb7ffdd3b8d3aa541dc\n"
    "key b blake2b:"
    "b403ac760ffbe9c42139816644770e85e55a2b13822d72508807979399f87ca8\n";

static char keys_path[64];

/* Opens a world with two tenants. */
static void open_shared_world(world_t *w)
{
    int fd;

    snprintf(keys_path, sizeof(keys_path), "/tmp/baton-test-keys-XXXXXX");
    fd = mkstemp(keys_path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, keys, sizeof(keys) - 1),
                     (ssize_t)sizeof(keys) - 1);
    close(fd);
    api_keys = keys_path;
    open_world(w);
    unlink(keys_path);
}

static void tenant_never_sees_files_of_another(void **state)
{
    static const bt_http_method_t methods[] = {BT_HTTP_GET, BT_HTTP_HEAD,
                                               BT_HTTP_DELETE};
    world_t *w = &world;
    char path[64], content[80], query[128];
    bt_exchange_t ex;

    (void)state;
    open_shared_world(w);
    upload_path(w, "first-key", path);
    snprintf(content, sizeof(content), "%s/content", path);
    for (size_t i = 0; i < BT_ARRAY_LEN(methods); i++) {
        call(w, &ex, methods[i], "second-key", path, NULL);
        assert_int_equal(ex.status, 404);
    }
    call(w, &ex, BT_HTTP_GET, "second-key", content, NULL);
    assert_int_equal(ex.status, 404);
    call(w, &ex, BT_HTTP_GET, "second-key", FILES, NULL);
    has(&ex, "\"data\":[]");
    snprintf(query, sizeof(query), "after=%s", path + 10);
    call(w, &ex, BT_HTTP_GET, "second-key", FILES, query);
    assert_int_equal(ex.status, 404);
    call(w, &ex, BT_HTTP_GET, NULL, content, NULL);
    assert_int_equal(ex.status, 401);
    call(w, &ex, BT_HTTP_GET, "first-key", content, NULL);
    assert_string_equal(ex.out, "{}\n{}\n");
    close_world(w);
}

/* However many small files one has. */
static void tenant_leaves_files_to_others(void **state)
{
    static bt_store_put_t *puts[5000];
    world_t *w = &world;
    bt_exchange_t ex;
    size_t n = 0;

    (void)state;
    store_limit = 1u << 30;
    open_shared_world(w);
    while (bt_store_put_begin(w->front.store, BT_STORE_FILE, "a", 0,
                              bt_unix_us(), &puts[n]) == BT_OK) {
        n++;
        assert_true(n < BT_ARRAY_LEN(puts));
    }
    assert_int_equal(n, 3856); /* 16 * 3856 >= 65536 - 3856 */
    upload(w, &ex, "first-key", UPLOAD);
    assert_int_equal(ex.status, 413);
    has(&ex, "as many as one tenant may have, a sixteenth");
    upload(w, &ex, "second-key", UPLOAD);
    assert_int_equal(ex.status, 200);
    while (n > 0) {
        assert_null(bt_store_put_end(puts[--n]));
    }
    upload(w, &ex, "first-key", UPLOAD);
    assert_int_equal(ex.status, 200);
    close_world(w);
    store_limit = 1u << 20;
}

static void server_without_folder_names_the_option(void **state)
{
    static const char *const paths[] = {FILES, FILES "/file-x",
                                        FILES "/file-x/content"};
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    for (size_t i = 0; i < BT_ARRAY_LEN(paths); i++) {
        call(w, &ex, BT_HTTP_GET, NULL, paths[i], NULL);
        assert_int_equal(ex.status, 501);
        has(&ex, "--store DIR");
    }
    upload(w, &ex, NULL, UPLOAD);
    assert_int_equal(ex.status, 501);
    stop(w);
}

static void methods_are_those_of_the_path(void **state)
{
    static const struct {
        const char *path;
        bt_http_method_t method;
        const char *allow;
    } cases[] = {
        {FILES, BT_HTTP_DELETE, "Allow: GET, HEAD, POST\n"},
        {FILES "/x", BT_HTTP_POST, "Allow: GET, HEAD, DELETE\n"},
        {FILES "/x/content", BT_HTTP_DELETE, "Allow: GET, HEAD\n"},
        {"/v1/models", BT_HTTP_DELETE, "Allow: GET, HEAD\n"},
        {CHAT, BT_HTTP_DELETE, "Allow: POST\n"},
    };
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_world(w);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        call(w, &ex, cases[i].method, NULL, cases[i].path, NULL);
        assert_int_equal(ex.status, 405);
        assert_non_null(strstr(ex.headers, cases[i].allow));
    }
    close_world(w);
}

static void room_is_bounded_and_comes_back(void **state)
{
    static char body[400000];
    world_t *w = &world;
    char path[64];
    bt_exchange_t ex;
    int n;

    (void)state;
    open_world(w); /* 1 MiB in all */
    n = snprintf(
        body, sizeof(body), "%s",
        FIELD("purpose",
              "batch") "--B" NL
                       "Content-Disposition: form-data; name=\"file\"; "
                       "filename=\"big\"" NL NL);
    memset(body + n, 'x', 360000);
    memcpy(body + n + 360000, NL END, sizeof(NL END));
    upload(w, &ex, NULL, body);
    assert_int_equal(ex.status, 200);
    snprintf(path, sizeof(path), FILES "/%.*s", ID_CHARS,
             strstr(ex.out, "file-"));
    upload(w, &ex, NULL, body);
    assert_int_equal(ex.status, 200);
    upload(w, &ex, NULL, body);
    assert_int_equal(ex.status, 413);
    has(&ex, "--store-tenant-limit");
    call(w, &ex, BT_HTTP_DELETE, NULL, path, NULL);
    assert_int_equal(ex.status, 200);
    upload(w, &ex, NULL, body);
    assert_int_equal(ex.status, 200);
    assert_int_equal(files_on_disk(), 2);
    close_world(w);
}

/* A client that was told so deletes it again. */
static void file_counts_until_it_is_gone(void **state)
{
    world_t *w = &world;
    char path[64], content[80];
    bt_exchange_t ex;

    (void)state;
    open_world(w);
    upload_path(w, NULL, path);
    snprintf(content, sizeof(content), "%s/content", path);
    unlink_fails = true;
    call(w, &ex, BT_HTTP_DELETE, NULL, path, NULL);
    assert_int_equal(ex.status, 503);
    unlink_fails = false;
    assert_int_equal(files_on_disk(), 1);
    call(w, &ex, BT_HTTP_GET, NULL, FILES, NULL);
    has(&ex, path + strlen(FILES "/"));
    call(w, &ex, BT_HTTP_GET, NULL, content, NULL);
    assert_string_equal(ex.out, "{}\n{}\n");
    fsync_fails = true; /* it may come back after a crash */
    call(w, &ex, BT_HTTP_DELETE, NULL, path, NULL);
    assert_int_equal(ex.status, 503);
    fsync_fails = false;
    assert_int_equal(bt_store_use(w->front.store).n_objects[BT_STORE_FILE], 1);
    call(w, &ex, BT_HTTP_GET, NULL, content, NULL);
    assert_int_equal(ex.status, 404);
    call(w, &ex, BT_HTTP_DELETE, NULL, path, NULL);
    assert_int_equal(ex.status, 200);
    assert_int_equal(bt_store_use(w->front.store).bytes, 0);
    call(w, &ex, BT_HTTP_DELETE, NULL, path, NULL);
    assert_int_equal(ex.status, 404);
    close_world(w);
}

/* Nobody finds it while its file is being removed. */
static void file_that_is_being_deleted_is_not_found(void **state)
{
    world_t *w = &world;
    char path[64];
    bt_exchange_t ex, other;

    (void)state;
    open_world(w);
    upload_path(w, NULL, path);
    ex = (bt_exchange_t){
        .method = BT_HTTP_DELETE, .path = path, .body = "", .door = &w->door};
    other = (bt_exchange_t){
        .method = BT_HTTP_GET, .path = path, .body = "", .door = &w->door};
    bt_door_request(&w->door, &ex);
    bt_door_request(&w->door, &other);
    assert_int_equal(other.status, 404);
    other.n_ends = 0;
    other.out_bytes = 0;
    other.path = FILES;
    bt_door_request(&w->door, &other);
    has(&other, "\"data\":[]");
    bt_door_gone(&w->door, &ex); /* it is deleted all the same */
    drain_pool(w);
    assert_int_equal(files_on_disk(), 0);
    assert_int_equal(bt_store_use(w->front.store).bytes, 0);
    close_world(w);
}

static void client_that_leaves_breaks_nothing(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex = {.method = BT_HTTP_POST,
                        .path = FILES,
                        .body = UPLOAD,
                        .content_type = FORM,
                        .door = &w->door};

    (void)state;
    open_world(w);
    bt_door_request(&w->door, &ex);
    bt_door_gone(&w->door, &ex);
    drain_pool(w);
    assert_int_equal(ex.n_ends, 0);
    /* The file is whole: its client may find it in the list. */
    assert_int_equal(files_on_disk(), 1);
    call(w, &ex, BT_HTTP_GET, NULL, FILES, NULL);
    has(&ex, "\"filename\":\"in.jsonl\"");
    close_world(w);
}

static void server_that_stops_answers(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex = {.method = BT_HTTP_POST,
                        .path = FILES,
                        .body = UPLOAD,
                        .content_type = FORM,
                        .door = &w->door};

    (void)state;
    open_world(w);
    bt_pool_stop(w->front.pool);
    bt_door_request(&w->door, &ex);
    assert_int_equal(ex.n_ends, 1);
    assert_int_equal(ex.status, 503);
    has(&ex, "the server is stopping");
    assert_int_equal(files_on_disk(), 0);
    close_world(w);
}

static void file_that_is_damaged_is_not_sent(void **state)
{
    world_t *w = &world;
    char path[64], content[80], name[256];
    bt_exchange_t ex;

    (void)state;
    open_world(w);
    upload_path(w, NULL, path);
    snprintf(name, sizeof(name), "%s/%s", folder, path + 10);
    assert_int_equal(truncate(name, 150), 0);
    snprintf(content, sizeof(content), "%s/content", path);
    call(w, &ex, BT_HTTP_GET, NULL, content, NULL);
    assert_int_equal(ex.status, 503);
    has(&ex, "damaged");
    assert_int_equal(unlink(name), 0);
    call(w, &ex, BT_HTTP_GET, NULL, content, NULL);
    assert_int_equal(ex.status, 404);
    close_world(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(file_is_kept_read_and_deleted),
        BT_TEST(fields_have_effect_or_are_refused_by_name),
        BT_TEST(list_is_cut_into_pages),
        BT_TEST(list_parameters_are_refused_by_name),
        BT_TEST(tenant_never_sees_files_of_another),
        BT_TEST(tenant_leaves_files_to_others),
        BT_TEST(server_without_folder_names_the_option),
        BT_TEST(methods_are_those_of_the_path),
        BT_TEST(room_is_bounded_and_comes_back),
        BT_TEST(file_counts_until_it_is_gone),
        BT_TEST(file_that_is_being_deleted_is_not_found),
        BT_TEST(client_that_leaves_breaks_nothing),
        BT_TEST(server_that_stops_answers),
        BT_TEST(file_that_is_damaged_is_not_sent),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
