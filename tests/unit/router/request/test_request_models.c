/* SPDX-License-Identifier: Apache-2.0 */
/* Calls among several models, and what is written down of them. */
#include "tests/unit/router/request_fixture.h"

static void has_line(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", part, text);
    }
}

static void each_exchange_gets_request_id_and_access_log_line(void **state)
{
    char path[] = "/tmp/baton-test-access-XXXXXX", text[8192];
    const int fd = mkstemp(path);
    world_t *w = &world;
    bt_exchange_t ex, gone;
    ssize_t n;

    (void)state;
    assert_true(fd >= 0);
    access_path = path;
    start(w, true);
    memset(&ex, 0, sizeof(ex));
    ex.request_id = "mine-1";
    ex.method = BT_HTTP_POST;
    ex.path = GENERATE;
    ex.body = "{\"text_input\":\"Hi\",\"max_tokens\":3}";
    ex.door = &w->door;
    bt_door_request(&w->door, &ex);
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    has_line(ex.headers, "X-Request-Id: mine-1\n");
    get(w, &ex, "/v2/health/live");
    has_line(ex.headers, "X-Request-Id: "); /* one of ours */
    get(w, &ex, "/v1/models/nobody");
    post(w, &gone, COMPLETIONS, "{\"prompt\":\"abc\",\"stream\":true}");
    tokens(w, w->p, 1, 0, "a", BT_FINISH_NONE);
    bt_door_gone(&w->door, &gone);
    ended(w, 1);
    stop(w);
    access_path = "";

    n = read(fd, text, sizeof(text) - 1);
    assert_true(n > 0);
    text[n] = '\0';
    has_line(text, " id=mine-1 client=192.0.2.7 method=POST "
                   "route=/v2/models/{model}/generate "
                   "path=/v2/models/ensemble/generate status=200 model=tiny "
                   "prompt=2 output=3 ttft_ms=");
    has_line(
        text,
        " prefill=prefill-0 decode=decode-0 finish=length tenant=default answer=");
    has_line(text, " method=GET route=/v2/health/live path=/v2/health/live "
                   "status=200 model=- ");
    has_line(text, " route=/v1/models/{model} path=/v1/models/nobody "
                   "status=404 ");
    has_line(text, " route=/v1/completions path=/v1/completions status=499 "
                   "model=tiny prompt=3 output=1 ");
    has_line(text, " finish=canceled tenant=default answer=cmpl-");
    close(fd);
    unlink(path);
}

static bt_status_t add_model(world_t *w, const bt_served_options_t *options,
                             bt_served_t **served_p)
{
    bt_served_t *served = NULL;
    bt_status_t status = bt_served_read(options, &served);

    if (status == BT_OK) {
        status = bt_registry_add(&w->front.models, served, options->path);
    }
    if (status != BT_OK) {
        bt_served_free(served);
        return status;
    }
    *served_p = served;
    return BT_OK;
}

static void join_model(world_t *w, bt_served_t *served, const char *name,
                       bt_role_t role, bt_instance_t **worker_p)
{
    bt_served_t *const first = w->served;

    w->served = served;
    w->core = served->core;
    w_join(w, name, role, worker_p);
    w->served = first;
    w->core = first->core;
}

/* Two models, each with its own workers; the second file differs from the first
 * by its seed. */
static void requests_go_to_workers_of_their_model(void **state)
{
    const bt_served_options_t options = {
        .name = "other", .path = other_path, .chat_template = "chatml"};
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_served_t *other = NULL;
    bt_exchange_t ex, calls[4];

    (void)state;
    start(w, true);
    assert_int_equal(add_model(w, &options, &other), BT_OK);
    assert_ptr_equal(bt_registry_of_file(&w->front.models, other->identity),
                     other);
    get(w, &ex, "/v2/models/other/ready");
    assert_int_equal(ex.status, 503);
    get(w, &ex, "/v2/health/ready"); /* all models that are loaded */
    assert_int_equal(ex.status, 503);
    join_model(w, other, "other.prefill-0", BT_ROLE_PREFILL, &p);
    join_model(w, other, "other.decode-0", BT_ROLE_DECODE, &d);
    get(w, &ex, "/v2/health/ready");
    assert_int_equal(ex.status, 200);
    get(w, &ex, "/v1/models");
    has(&ex, "\"id\":\"tiny\"");
    has(&ex, "\"id\":\"other\"");
    w->n_sent = 0;

    post(w, &calls[0], COMPLETIONS, "{\"prompt\":\"Hi\",\"model\":\"other\"}");
    assert_int_equal(w->n_sent, 2);
    assert_ptr_equal(w->sent[0].to, p);
    assert_ptr_equal(w->sent[1].to, d);
    post(w, &calls[1], COMPLETIONS, "{\"prompt\":\"Hi\",\"model\":\"tiny\"}");
    post(w, &calls[2], GENERATE, "{\"text_input\":\"Hi\"}"); /* the default */
    post(w, &calls[3], COMPLETIONS, "{\"prompt\":\"Hi\"}");
    assert_int_equal(w->n_sent, 8);
    assert_ptr_equal(w->sent[3].to, w->d);
    assert_ptr_equal(w->sent[5].to, w->d);
    assert_ptr_equal(w->sent[7].to, w->d);
    bt_frontend_end_all(&w->front, "the test is over", bt_now_us());
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(calls[i].n_ends, 1);
    }
    stop(w);
}

static void unloaded_model_is_refused_while_others_serve(void **state)
{
    const bt_served_options_t options = {
        .name = "other", .path = other_path, .chat_template = "chatml"};
    world_t *w = &world;
    bt_served_t *other = NULL;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    assert_int_equal(add_model(w, &options, &other), BT_OK);
    other->unloaded = true;
    refused(w, COMPLETIONS, "{\"prompt\":\"Hi\",\"model\":\"other\"}", 503,
            "model 'other' is unloaded");
    get(w, &ex, "/v2/health/ready");
    assert_int_equal(ex.status, 200);
    get(w, &ex, "/v1/models");
    assert_null(strstr(ex.out, "other"));
    post(w, &ex, COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":3}");
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    assert_int_equal(ex.status, 200);
    stop(w);
}

static void duplicate_model_name_or_file_is_refused(void **state)
{
    const bt_served_options_t same_name = {
        .name = "tiny", .path = other_path, .chat_template = ""};
    const bt_served_options_t same_file = {
        .name = "again", .path = model_path, .chat_template = ""};
    const bt_served_options_t no_file = {
        .name = "none", .path = "/nowhere/at/all.gguf", .chat_template = ""};
    world_t *w = &world;
    bt_served_t *served = NULL;

    (void)state;
    start(w, false);
    bt_test_expect_log_lines(3);
    assert_int_equal(add_model(w, &same_name, &served), BT_ERR_EXISTS);
    assert_int_equal(add_model(w, &same_file, &served), BT_ERR_EXISTS);
    assert_int_not_equal(add_model(w, &no_file, &served), BT_OK);
    assert_null(served);
    assert_ptr_equal(bt_registry_find(&w->front.models, "tensorrt_llm_bls"),
                     w->served);
    assert_null(bt_registry_find(&w->front.models, "again"));
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(each_exchange_gets_request_id_and_access_log_line),
        BT_TEST(requests_go_to_workers_of_their_model),
        BT_TEST(unloaded_model_is_refused_while_others_serve),
        BT_TEST(duplicate_model_name_or_file_is_refused),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
