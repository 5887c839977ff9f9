/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in shared memory, from the route that registers them to the bytes
 * that an answer leaves there; over HTTP. */
#include "tests/support/shm_object.h"
#include "tests/unit/router/request_fixture.h"

#include "common/base/process.h"
#include "common/base/status.h"

#define INFER(model) "/v2/models/" model "/infer"
#define MEMORY       "/v2/systemsharedmemory"
#define OBJECT_BYTES 4096

/* text_input [1,1] in region "in" at 8, text_output to region "out" at 16. */
#define IN(bytes)                                                      \
    "{\"name\":\"text_input\",\"datatype\":\"BYTES\",\"shape\":[1,1]," \
    "\"parameters\":{\"shared_memory_region\":\"in\","                 \
    "\"shared_memory_offset\":8,\"shared_memory_byte_size\":" bytes "}}"
#define OUT(bytes)                                                           \
    "{\"name\":\"text_output\",\"parameters\":{\"shared_memory_region\":"    \
    "\"out\",\"shared_memory_offset\":16,\"shared_memory_byte_size\":" bytes \
    "}}"
#define MAX_TOKENS(n)                                                  \
    "{\"name\":\"max_tokens\",\"datatype\":\"INT32\",\"shape\":[1,1]," \
    "\"data\":[" n "]}"
#define BODY(inputs, outputs) \
    "{\"inputs\":[" inputs "," MAX_TOKENS("3") "],\"outputs\":[" outputs "]}"

static shm_object_t object;

static const uint8_t hi[] = {2, 0, 0, 0, 'H', 'i'};

static void register_ok(world_t *w, const char *name, const char *rest)
{
    bt_exchange_t ex;
    char path[128];
    char body[256];

    snprintf(path, sizeof(path), MEMORY "/region/%s/register", name);
    snprintf(body, sizeof(body), "{\"key\":\"%s\",%s}", object.key, rest);
    post(w, &ex, path, body);
    if ((ex.status != 200) || (ex.out_bytes != 0)) {
        fail_msg("%s: %d %s", path, ex.status, ex.out);
    }
}

/* A server that takes them, and the regions: "in" 1000 bytes from 0 on, "out"
 * as many from 1000 on. */
static void start_shared(world_t *w)
{
    shared_memory = "on";
    start(w, true);
    shm_make(&object, "call", OBJECT_BYTES);
    shm_put(&object, 8, hi, sizeof(hi));
    register_ok(w, "in", "\"offset\":0,\"byte_size\":1000");
    register_ok(w, "out", "\"offset\":1000,\"byte_size\":1000");
}

static void stop_shared(world_t *w)
{
    stop(w);
    shm_remove(&object);
    shared_memory = "off";
}

static void post_and_wait(world_t *w, bt_exchange_t *ex, const char *path,
                          const char *body)
{
    post(w, ex, path, body);
    drain_pool(w);
}

static void regions_are_registered_listed_and_unregistered(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;
    char told[512];

    (void)state;
    start_shared(w);
    snprintf(told, sizeof(told),
             "[{\"name\":\"in\",\"key\":\"%s\",\"offset\":0,\"byte_size\":1000}"
             ",{\"name\":\"out\",\"key\":\"%s\",\"offset\":1000,"
             "\"byte_size\":1000}]",
             object.key, object.key);
    get(w, &ex, MEMORY "/status");
    assert_string_equal(ex.out, told);
    get(w, &ex, MEMORY "/region/out/status");
    snprintf(told, sizeof(told),
             "[{\"name\":\"out\",\"key\":\"%s\",\"offset\":1000,"
             "\"byte_size\":1000}]",
             object.key);
    assert_string_equal(ex.out, told);
    get(w, &ex, MEMORY "/region/x/status");
    assert_int_equal(ex.status, 404);
    get(w, &ex, "/v2");
    has(&ex, "\"generate\",\"system_shared_memory\"]");
    post(w, &ex, MEMORY "/region/x/unregister", "");
    assert_int_equal(ex.status, 200);
    post(w, &ex, MEMORY "/region/in/unregister", "{}");
    assert_int_equal(ex.status, 200);
    get(w, &ex, MEMORY "/region/in/status");
    assert_int_equal(ex.status, 404);
    register_ok(w, "in", "\"byte_size\":5");
    post(w, &ex, MEMORY "/unregister", "");
    get(w, &ex, MEMORY "/status");
    assert_string_equal(ex.out, "[]");
    stop_shared(w);
}

static void invalid_registration_is_refused_by_name(void **state)
{
    static const struct {
        const char *body, *part;
    } wrong[] = {
        {"{}", "\\\"key\\\""},
        {"", "\\\"key\\\""},
        {"{\"key\":5}", "\\\"key\\\""},
        {"{\"key\":\"/x\",\"byte_size\":\"5\"}", "byte_size"},
        {"{\"key\":\"/x\",\"byte_size\":-5}", "byte_size"},
        {"{\"key\":\"/x\",\"offset\":1.5,\"byte_size\":5}", "offset"},
        {"{\"key\":\"/x\",\"size\":5}", "size"},
        {"{\"key\":\"/etc/passwd\",\"byte_size\":5}", "its key is a name"},
        {"{\"key\":\"/x\",\"byte_size\":0}", "byte_size is 0"},
        {"[", "body"},
    };
    world_t *w = &world;

    (void)state;
    start_shared(w);
    for (size_t i = 0; i < BT_ARRAY_LEN(wrong); i++) {
        refused(w, MEMORY "/region/r/register", wrong[i].body, 400,
                wrong[i].part);
    }
    refused(w, MEMORY "/region/in/register", "{\"key\":\"/x\",\"byte_size\":5}",
            400, "is registered already");
    refused(w, "/v2/cudasharedmemory/region/r/register", "{}", 400,
            "r: CUDA shared memory is not served");
    stop_shared(w);
}

static void text_tensors_work_in_shared_memory(void **state)
{
    static const uint8_t expected[] = {5, 0, 0, 0, 'H', 'i', 'y', 'e', 's', 0};
    world_t *w = &world;
    bt_exchange_t ex;
    uint8_t there[sizeof(expected)];

    (void)state;
    start_shared(w);
    post_and_wait(w, &ex, INFER("ensemble"), BODY(IN("6"), OUT("900")));
    assert_int_equal(request(w, 0)->n_tokens, 2);
    assert_int_equal(request(w, 0)->max_new, 3);
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    drain_pool(w);
    assert_int_equal(ex.status, 200);
    assert_string_equal(
        ex.out,
        "{\"model_name\":\"ensemble\",\"model_version\":\"1\",\"outputs\":[{"
        "\"name\":\"text_output\",\"datatype\":\"BYTES\",\"shape\":[1],"
        "\"parameters\":{\"shared_memory_region\":\"out\","
        "\"shared_memory_offset\":16,\"shared_memory_byte_size\":9}}]}");
    shm_get(&object, 1000 + 16, there, sizeof(there));
    assert_memory_equal(there, expected, sizeof(expected));
    stop_shared(w);
}

/* Only the output's name and shape are in the answer, so no raw data follows
 * whatever is asked for the others. */
static void raw_and_shared_outputs_can_be_mixed(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;
    uint32_t there[4];

    (void)state;
    start_shared(w);
    post_and_wait(
        w, &ex, INFER("tensorrt_llm"),
        "{\"inputs\":[{\"name\":\"input_ids\",\"datatype\":\"INT32\","
        "\"shape\":[1,1],\"data\":[5]}],\"outputs\":[{\"name\":\"output_ids\","
        "\"parameters\":{\"shared_memory_region\":\"out\","
        "\"shared_memory_byte_size\":1000,\"binary_data\":true}},{\"name\":"
        "\"sequence_length\",\"parameters\":{\"binary_data\":true}}]}");
    answer(w, 0, "!#", BT_FINISH_LENGTH);
    drain_pool(w);
    assert_int_equal(ex.status, 200);
    has(&ex, "{\"name\":\"output_ids\",\"datatype\":\"INT32\",\"shape\":"
             "[1,1,3],\"parameters\":{\"shared_memory_region\":\"out\","
             "\"shared_memory_byte_size\":12}}");
    has(&ex, "\"shape\":[1,1],\"parameters\":{\"binary_data_size\":4}}]}");
    assert_memory_equal(ex.out + ex.out_bytes - 4, "\3\0\0\0", 4);
    shm_get(&object, 1000, there, sizeof(there));
    assert_int_equal(there[0], 5);
    assert_int_equal(there[1], 3);
    assert_int_equal(there[2], 5);
    assert_int_equal(there[3], 0);
    stop_shared(w);
}

static void pipeline_models_work_in_shared_memory(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;
    uint8_t there[8];

    (void)state;
    start_shared(w);
    shm_put(&object, 100, "\3\0\0\0\4\0\0\0", 8); /* ids of "!" and '"' */
    post_and_wait(
        w, &ex, INFER("postprocessing"),
        "{\"inputs\":[{\"name\":\"TOKENS_BATCH\",\"datatype\":\"INT32\","
        "\"shape\":[1,1,2],\"parameters\":{\"shared_memory_region\":\"in\","
        "\"shared_memory_offset\":100,\"shared_memory_byte_size\":8}},{"
        "\"name\":\"SEQUENCE_LENGTH\",\"datatype\":\"INT32\",\"shape\":[1,1],"
        "\"data\":[2]}],\"outputs\":[{\"name\":\"OUTPUT\",\"parameters\":{"
        "\"shared_memory_region\":\"out\",\"shared_memory_byte_size\":6}}]}");
    if (ex.status != 200) {
        fail_msg("%d %s", ex.status, ex.out);
    }
    has(&ex, "\"shared_memory_byte_size\":6}");
    shm_get(&object, 1000, there, 6);
    assert_memory_equal(there, "\2\0\0\0!\"", 6);
    post_and_wait(
        w, &ex, INFER("preprocessing"),
        "{\"inputs\":[{\"name\":\"QUERY\",\"datatype\":\"BYTES\",\"shape\":"
        "[1,1],\"parameters\":{\"shared_memory_region\":\"in\","
        "\"shared_memory_offset\":8,\"shared_memory_byte_size\":6}},{\"name\":"
        "\"REQUEST_OUTPUT_LEN\",\"datatype\":\"INT32\",\"shape\":[1,1],"
        "\"data\":[2]}],\"outputs\":[{\"name\":\"INPUT_ID\",\"parameters\":{"
        "\"shared_memory_region\":\"out\",\"shared_memory_byte_size\":8}}]}");
    if (ex.status != 200) {
        fail_msg("%d %s", ex.status, ex.out);
    }
    shm_get(&object, 1000, there, 8);
    assert_int_equal(there[0], id_of('H'));
    assert_int_equal(there[4], id_of('i'));
    /* One byte less than it needs. */
    post_and_wait(
        w, &ex, INFER("preprocessing"),
        "{\"inputs\":[{\"name\":\"QUERY\",\"datatype\":\"BYTES\",\"shape\":"
        "[1,1],\"data\":[\"Hi\"]},{\"name\":\"REQUEST_OUTPUT_LEN\","
        "\"datatype\":\"INT32\",\"shape\":[1,1],\"data\":[2]}],\"outputs\":[{"
        "\"name\":\"INPUT_ID\",\"parameters\":{\"shared_memory_region\":"
        "\"out\",\"shared_memory_byte_size\":7}}]}");
    assert_int_equal(ex.status, 400);
    has(&ex, "output 'INPUT_ID' has 8 bytes, more than the 7");
    stop_shared(w);
}

static void unknown_or_unreadable_region_is_refused(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start_shared(w);
    refused(w, INFER("ensemble"), BODY(IN("993"), OUT("900")), 400,
            "input 'text_input': 993 bytes from 8 on are not within the 1000");
    refused(w, INFER("ensemble"), BODY(IN("6"), OUT("985")), 400,
            "output 'text_output': 985 bytes from 16 on");
    post(w, &ex, MEMORY "/region/in/unregister", "");
    refused(w, INFER("ensemble"), BODY(IN("6"), OUT("900")), 400,
            "input 'text_input': unable to find shared memory region 'in'");
    register_ok(w, "in", "\"offset\":0,\"byte_size\":1000");
    post_and_wait(w, &ex, INFER("ensemble"), BODY(IN("7"), OUT("900")));
    assert_int_equal(ex.status, 400);
    has(&ex, "input 'text_input'");
    shm_resize(&object, 10);
    post_and_wait(w, &ex, INFER("ensemble"), BODY(IN("6"), OUT("900")));
    assert_int_equal(ex.status, 400);
    has(&ex, "shared memory region 'in' is shorter than when it was");
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    stop_shared(w);
}

static void output_larger_than_region_gives_error(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start_shared(w);
    post_and_wait(w, &ex, INFER("ensemble"), BODY(IN("6"), OUT("8")));
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    drain_pool(w);
    assert_int_equal(ex.status, 400);
    has(&ex, "output 'text_output' has 9 bytes, more than the 8");
    post_and_wait(w, &ex, INFER("ensemble"), BODY(IN("6"), OUT("900")));
    shm_resize(&object, 1020);
    answer(w, 1, "yes", BT_FINISH_LENGTH);
    drain_pool(w);
    assert_int_equal(ex.status, 400);
    has(&ex, "output 'text_output': shared memory region 'out' is shorter");
    assert_int_equal(shm_size(&object), 1020);
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    stop_shared(w);
}

static void unregistration_or_disconnect_during_request_is_safe(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;
    uint8_t there[9];
    const uint32_t fds = bt_count_open_fds();

    (void)state;
    start_shared(w);
    post_and_wait(w, &ex, INFER("ensemble"), BODY(IN("6"), OUT("900")));
    {
        bt_exchange_t other;

        post(w, &other, MEMORY "/unregister", "");
        assert_int_equal(other.status, 200);
    }
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    drain_pool(w);
    assert_int_equal(ex.status, 200);
    shm_get(&object, 1000 + 16, there, sizeof(there));
    assert_memory_equal(there, "\5\0\0\0Hiyes", 9);
    register_ok(w, "in", "\"byte_size\":1000");
    register_ok(w, "out", "\"byte_size\":1000");
    /* While it is read, while it runs, and while it is written. */
    post(w, &ex, INFER("ensemble"), BODY(IN("6"), OUT("900")));
    bt_door_gone(&w->door, &ex);
    drain_pool(w);
    post_and_wait(w, &ex, INFER("ensemble"), BODY(IN("6"), OUT("900")));
    bt_door_gone(&w->door, &ex);
    post_and_wait(w, &ex, INFER("ensemble"), BODY(IN("6"), OUT("900")));
    answer(w, 2, "yes", BT_FINISH_LENGTH);
    bt_door_gone(&w->door, &ex);
    drain_pool(w);
    /* The server stops while it is read. */
    post(w, &ex, INFER("ensemble"), BODY(IN("6"), OUT("900")));
    bt_pool_stop(w->front.pool);
    if (ex.n_ends == 0) { /* a thread was quick: it runs */
        bt_door_gone(&w->door, &ex);
    }
    stop_shared(w);
    assert_int_equal(bt_count_open_fds(), fds);
}

/* A single short input: nothing is done on the pool. */
static void failed_allocation_answers_error_without_leak(void **state)
{
    world_t *w = &world;
    bool ok = false;

    (void)state;
    for (int nth = 1; !ok; nth++) {
        bt_exchange_t ex;

        start_shared(w);
        bt_alloc_fail_at(nth);
        post(w, &ex, INFER("ensemble"),
             "{\"inputs\":[" IN("6") "," MAX_TOKENS("3") "]}");
        if (ex.n_ends == 0) {
            answer(w, 0, "yes", BT_FINISH_LENGTH);
        }
        bt_alloc_fail_at(0);
        assert_int_equal(ex.n_ends, 1);
        ok = ex.status == 200;
        assert_true(ok || (ex.status == 503));
        assert_in_range(nth, 1, 300);
        stop_shared(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(regions_are_registered_listed_and_unregistered),
        BT_TEST(invalid_registration_is_refused_by_name),
        BT_TEST(text_tensors_work_in_shared_memory),
        BT_TEST(raw_and_shared_outputs_can_be_mixed),
        BT_TEST(pipeline_models_work_in_shared_memory),
        BT_TEST(unknown_or_unreadable_region_is_refused),
        BT_TEST(output_larger_than_region_gives_error),
        BT_TEST(unregistration_or_disconnect_during_request_is_safe),
        BT_TEST(failed_allocation_answers_error_without_leak),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
