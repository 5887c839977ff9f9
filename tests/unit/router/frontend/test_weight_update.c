/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of a served model are replaced, step by step. */
#include "common/base/status.h"
#include "tests/unit/router/request_fixture.h"

#define PATH "/update_weights_from_disk"
#define BODY "{\"model_path\":\"1.gguf\",\"weight_version\":\"step-1\"}"

static const bt_hash128_t model_1 = {11, 12};

static void start_with(world_t *w)
{
    start(w, true);
    w->config.allow_weight_updates = "/weights";
    w->p->hello.flags |= BT_HELLO_WEIGHTS;
    w->d->hello.flags |= BT_HELLO_WEIGHTS;
}

static void tick(world_t *w)
{
    bt_frontend_tick(&w->front, bt_now_us());
}

static void check_says(world_t *w, bt_instance_t *worker, bt_status_t status,
                       const char *text, bt_hash128_t model)
{
    bt_msg_t msg = {.type = BT_MSG_WEIGHTS_CHECKED};

    msg.u.weights_checked.update = worker->asked_update;
    msg.u.weights_checked.status = status;
    msg.u.weights_checked.model = model;
    snprintf(msg.u.weights_checked.text, sizeof(msg.u.weights_checked.text),
             "%s", text);
    assert_int_equal(bt_core_message(w->core, worker, &msg, bt_now_us()),
                     BT_OK);
}

/* A worker that has loaded them: it went, and comes as another instance. */
static void reload(world_t *w, bt_instance_t **worker_p)
{
    bt_msg_hello_t hello = (*worker_p)->hello;
    char why[BT_TABLE_WHY_BYTES];

    bt_core_worker_down(w->core, *worker_p, "it loads", bt_now_us());
    hello.base = hello.model;
    hello.model = model_1;
    hello.weights = *bt_core_weights(w->core);
    hello.instance += 100;
    hello.ranks = NULL;
    hello.n_ranks = 0;
    assert_int_equal(
        bt_core_worker_up(w->core, &hello, NULL, bt_now_us(), why, worker_p),
        BT_OK);
}

static void weights_are_replaced_when_requests_have_ended(void **state)
{
    static bt_exchange_t first, second, update, other, third;
    world_t *w = &world;

    (void)state;
    start_with(w);
    post(w, &first, COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":3}");
    post(w, &update, PATH, BODY);
    post(w, &other, PATH, BODY);
    assert_int_equal(other.status, 409);
    tick(w);
    assert_int_equal(count(w, BT_MSG_WEIGHTS), 2);
    check_says(w, w->p, BT_OK, "", model_1);
    tick(w);
    assert_false(bt_core_holds(w->core));
    check_says(w, w->d, BT_OK, "", model_1);
    tick(w);
    assert_true(bt_core_holds(w->core));
    post(w, &second, COMPLETIONS, "{\"prompt\":\"Ho\",\"max_tokens\":3}");
    tick(w);
    assert_int_equal(bt_core_weights(w->core)->update, 0);
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    has(&first, "\"weight_version\":\"default\"");

    tick(w); /* they are in force: the workers are ordered to load them */
    assert_string_equal(bt_core_weights(w->core)->version, "step-1");
    assert_int_equal(count(w, BT_MSG_WEIGHTS), 4);
    w->n_sent = 0;
    reload(w, &w->p);
    tick(w);
    assert_int_equal(update.n_ends, 0);
    reload(w, &w->d);
    tick(w);
    assert_int_equal(update.status, 200);
    has(&update, "\"success\":true");
    has(&update, "\"num_workers\":2");
    answer(w, 0, "now", BT_FINISH_LENGTH);
    has(&second, "\"weight_version\":\"step-1\"");
    get(w, &third, "/get_weight_version");
    assert_string_equal(third.out, "{\"weight_version\":\"step-1\"}");
    stop(w);
}

static void refusal_of_one_worker_changes_nothing(void **state)
{
    static bt_exchange_t update, left;
    world_t *w = &world;

    (void)state;
    start_with(w);
    bt_test_expect_log_lines(3);
    post(w, &update, PATH, BODY);
    tick(w);
    check_says(w, w->p, BT_OK, "", model_1);
    check_says(w, w->d, BT_ERR_MISMATCH, "another tokenizer", model_1);
    tick(w);
    assert_int_equal(update.status, 400);
    has(&update, "worker decode-0: 1.gguf: another tokenizer");
    assert_int_equal(bt_core_weights(w->core)->update, 0);

    post(w, &update, PATH, BODY);
    tick(w);
    check_says(w, w->p, BT_OK, "", model_1);
    check_says(w, w->d, BT_OK, "", (bt_hash128_t){.lo = 1});
    tick(w);
    assert_int_equal(update.status, 409);
    has(&update, "have different files");

    /* One that its client leaves goes on; one of a worker that cannot. */
    post(w, &left, PATH, BODY);
    bt_door_gone(&w->door, &left);
    w->d->hello.flags &= ~BT_HELLO_WEIGHTS;
    tick(w);
    assert_int_equal(left.n_ends, 0);
    assert_null(w->served->weight_update);
    stop(w);
}

static void worker_that_cannot_load_them_after_all_is_named(void **state)
{
    static bt_exchange_t update;
    world_t *w = &world;

    (void)state;
    start_with(w);
    post(w, &update, PATH, BODY);
    tick(w);
    check_says(w, w->p, BT_OK, "", model_1);
    check_says(w, w->d, BT_OK, "", model_1);
    tick(w);
    tick(w);
    assert_string_equal(bt_core_weights(w->core)->version, "step-1");
    bt_test_expect_log_lines(2);
    check_says(w, w->d, BT_ERR_NOT_FOUND, "No such file", model_1);
    tick(w);
    assert_int_equal(update.n_ends, 0); /* the other one is not back */
    reload(w, &w->p);
    tick(w);
    assert_int_equal(update.status, 503);
    has(&update, "weights step-1 are in force, and 1 of 2 workers have them: "
                 "worker decode-0: No such file");
    stop(w);
}

/* The worker goes, and comes back asleep with the order in force: it could not
 * be woken. */
static void cannot_wake(world_t *w, bt_instance_t **worker_p)
{
    bt_msg_hello_t hello = (*worker_p)->hello;
    char why[BT_TABLE_WHY_BYTES];

    bt_core_worker_down(w->core, *worker_p, "it cannot", bt_now_us());
    hello.flags |= BT_HELLO_SLEEPS | BT_HELLO_ASLEEP;
    hello.sleep_order = 2;
    hello.instance += 100;
    hello.ranks = NULL;
    hello.n_ranks = 0;
    assert_int_equal(
        bt_core_worker_up(w->core, &hello, NULL, bt_now_us(), why, worker_p),
        BT_OK);
}

static void worker_that_cannot_be_woken_is_missing(void **state)
{
    static bt_exchange_t update, none;
    world_t *w = &world;

    (void)state;
    start_with(w);
    bt_test_expect_log_lines(5); /* they are lost and cannot be woken; 503 */
    cannot_wake(w, &w->d);
    w->n_sent = 0;
    post(w, &update, PATH, BODY);
    tick(w);
    assert_int_equal(count(w, BT_MSG_WEIGHTS), 1);
    check_says(w, w->p, BT_OK, "", model_1);
    tick(w);
    tick(w);
    assert_string_equal(bt_core_weights(w->core)->version, "step-1");
    reload(w, &w->p);
    tick(w);
    assert_int_equal(update.status, 200);
    has(&update, "\"num_workers\":1,\"num_missing_workers\":1");

    cannot_wake(w, &w->p);
    post(w, &none, PATH, BODY);
    tick(w);
    assert_int_equal(none.status, 503);
    has(&none, "no worker is here that could check the weights");
    stop(w);
}

static void requests_are_ended_on_demand(void **state)
{
    static bt_exchange_t first, update;
    world_t *w = &world;

    (void)state;
    start_with(w);
    post(w, &first, COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":3}");
    post(w, &update, PATH,
         "{\"model_path\":\"1.gguf\",\"weight_version\":\"step-1\","
         "\"abort_all_requests\":true}");
    tick(w);
    check_says(w, w->p, BT_OK, "", model_1);
    check_says(w, w->d, BT_OK, "", model_1);
    tick(w);
    assert_int_equal(first.status, 503);
    tick(w);
    assert_string_equal(bt_core_weights(w->core)->version, "step-1");
    stop(w); /* in the middle */
}

static void requests_are_refused_without_the_option(void **state)
{
    world_t *w = &world;

    (void)state;
    start(w, true);
    refused(w, PATH, BODY, 403, "--allow-weight-updates");
    w->config.allow_weight_updates = "/weights";
    refused(w, PATH, "{\"weight_version\":\"x\"}", 400, "model_path");
    refused(w, PATH, "{\"model_path\":\"x\"}", 400, "weight_version");
    refused(w, PATH, "{\"model_path\":\"x\",\"weight_version\":\"\\n\"}", 400,
            "weight_version");
    refused(w, PATH,
            "{\"model_path\":\"x\",\"weight_version\":\"y\",\"model\":\"z\"}",
            404, "z");
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(weights_are_replaced_when_requests_have_ended),
        BT_TEST(refusal_of_one_worker_changes_nothing),
        BT_TEST(worker_that_cannot_load_them_after_all_is_named),
        BT_TEST(worker_that_cannot_be_woken_is_missing),
        BT_TEST(requests_are_ended_on_demand),
        BT_TEST(requests_are_refused_without_the_option),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
