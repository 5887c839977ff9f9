/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of a request in shared memory. Expected bytes are written out. */
#include "tests/support/shm_object.h"

#include "common/base/alloc.h"
#include "common/base/process.h"
#include "router/triton/shm_tensors.h"

#define MOST      1000u /* of all requests */
#define OF_ONE    600u
#define N_INPUTS  2
#define N_OUTPUTS 2

/* INT32 [3]: 1, -2, 70000; BYTES [2]: "ab", "" */
static const uint8_t numbers[] = {1,    0,    0,    0,    0xFE, 0xFF,
                                  0xFF, 0xFF, 0x70, 0x11, 1,    0};
static const uint8_t texts[] = {2, 0, 0, 0, 'a', 'b', 0, 0, 0, 0};

typedef struct world {
    bt_regions_t *regions;
    shm_object_t object;
    bt_infer_input_t inputs[N_INPUTS];
    bt_infer_wanted_t wanted[N_OUTPUTS];
    bt_infer_request_t request;
    bt_shm_tensors_t *uses;
    bt_api_error_t error;
    uint32_t fds;
} world_t;

static world_t world;

static bt_infer_region_t at(uint64_t offset, uint64_t bytes)
{
    return (bt_infer_region_t){.name = "r", .offset = offset, .bytes = bytes};
}

static int start(void **state)
{
    world_t *w = &world;

    memset(w, 0, sizeof(*w));
    w->fds = bt_count_open_fds();
    shm_make(&w->object, "uses", 700);
    shm_put(&w->object, 100 + 20, numbers, sizeof(numbers));
    shm_put(&w->object, 100 + 40, texts, sizeof(texts));
    if ((bt_regions_create(MOST, &w->regions) != BT_OK) ||
        (bt_regions_register(w->regions, "r", w->object.key, 100, 600,
                             &w->error) != BT_OK)) {
        return -1;
    }
    w->inputs[0] = (bt_infer_input_t){.tensor = {.name = "ids",
                                                 .dtype = BT_DTYPE_INT32,
                                                 .n_dims = 1,
                                                 .dims = {3}},
                                      .region = at(20, sizeof(numbers))};
    w->inputs[1] = (bt_infer_input_t){.tensor = {.name = "words",
                                                 .dtype = BT_DTYPE_BYTES,
                                                 .n_dims = 1,
                                                 .dims = {2}},
                                      .region = at(40, sizeof(texts))};
    snprintf(w->wanted[0].name, sizeof(w->wanted[0].name), "out");
    w->wanted[0].region = at(300, 8);
    snprintf(w->wanted[1].name, sizeof(w->wanted[1].name), "plain");
    w->request.inputs = w->inputs;
    w->request.n_inputs = N_INPUTS;
    w->request.wanted = w->wanted;
    w->request.n_wanted = N_OUTPUTS;
    return bt_test_setup(state);
}

static int stop(void **state)
{
    world_t *w = &world;

    bt_shm_tensors_end(w->uses);
    for (size_t i = 0; i < N_INPUTS; i++) {
        bt_tensor_fini(&w->inputs[i].tensor);
    }
    /* All was given back. */
    assert_true(bt_regions_hold(w->regions, MOST));
    bt_regions_destroy(w->regions);
    shm_remove(&w->object);
    assert_int_equal(bt_count_open_fds(), w->fds);
    return bt_test_teardown(state);
}

#define USES_TEST(fn) cmocka_unit_test_setup_teardown(fn, start, stop)

static bt_status_t begin(world_t *w)
{
    return bt_shm_tensors_begin(w->regions, &w->request, OF_ONE, &w->uses,
                                &w->error);
}

static void is_refused(const world_t *w, bt_status_t status, int http_status,
                       const char *part)
{
    if ((status == BT_OK) || (w->error.http_status != http_status) ||
        (strstr(w->error.message, part) == NULL)) {
        fail_msg("%d, %d, not \"%s\": %s", (int)status, w->error.http_status,
                 part, w->error.message);
    }
}

static void make_output(bt_tensor_t *output, const char *name, uint32_t value)
{
    const uint64_t dims[] = {2};
    uint32_t *data;

    assert_int_equal(bt_tensor_make(name, BT_DTYPE_INT32, dims, 1, 0, output),
                     BT_OK);
    data = output->owned;
    data[0] = value;
    data[1] = value + 1;
}

static void inputs_are_read_and_checked(void **state)
{
    world_t *w = &world;
    int64_t number = 0;
    const char *text;
    size_t bytes, offset = 0;

    (void)state;
    assert_true(bt_shm_tensors_any(&w->request));
    assert_int_equal(begin(w), BT_OK);
    assert_int_equal(bt_shm_tensors_input_bytes(w->uses), 22);
    assert_true(bt_shm_tensors_writes(w->uses));
    assert_int_equal(bt_shm_tensors_read(w->uses, &w->request, &w->error),
                     BT_OK);
    assert_int_equal(bt_tensor_i64(&w->inputs[0].tensor, 1, &number), BT_OK);
    assert_int_equal(number, -2);
    assert_int_equal(bt_tensor_i64(&w->inputs[0].tensor, 2, &number), BT_OK);
    assert_int_equal(number, 70000);
    assert_true(
        bt_tensor_next_bytes(&w->inputs[1].tensor, &offset, &text, &bytes));
    assert_int_equal(bytes, 2);
    assert_memory_equal(text, "ab", 2);
    /* The input is a copy: later writes of the client change nothing. */
    shm_put(&w->object, 120, "zzzz", 4);
    assert_int_equal(bt_tensor_i64(&w->inputs[0].tensor, 0, &number), BT_OK);
    assert_int_equal(number, 1);
}

static void input_that_mismatches_shape_is_refused_by_name(void **state)
{
    world_t *w = &world;

    (void)state;
    w->inputs[0].region = at(20, 8);
    assert_int_equal(begin(w), BT_OK);
    is_refused(w, bt_shm_tensors_read(w->uses, &w->request, &w->error), 400,
               "input 'ids' has 8 bytes of data");
    bt_shm_tensors_end(w->uses);
    w->uses = NULL;
    bt_tensor_fini(&w->inputs[0].tensor);
    w->inputs[0].region = at(20, sizeof(numbers));
    shm_put(&w->object, 140, "\xFF\xFF\xFF\xFF", 4); /* a text's length */
    assert_int_equal(begin(w), BT_OK);
    is_refused(w, bt_shm_tensors_read(w->uses, &w->request, &w->error), 400,
               "input 'words'");
    bt_shm_tensors_end(w->uses);
    w->uses = NULL;
    w->inputs[0].region = at(20, 0);
    bt_tensor_fini(&w->inputs[0].tensor);
    assert_int_equal(begin(w), BT_OK);
    is_refused(w, bt_shm_tensors_read(w->uses, &w->request, &w->error), 400,
               "input 'ids' has 0 bytes");
}

static void unknown_region_error_names_tensor(void **state)
{
    world_t *w = &world;

    (void)state;
    is_refused(
        w, bt_shm_tensors_begin(NULL, &w->request, OF_ONE, &w->uses, &w->error),
        400, "ids: shared_memory_region");
    assert_non_null(strstr(w->error.message, "--shared-memory off"));
    assert_null(w->uses);
    snprintf(w->inputs[1].region.name, sizeof(w->inputs[1].region.name), "x");
    is_refused(w, begin(w), 400,
               "input 'words': unable to find shared memory region 'x'");
    w->inputs[1].region = at(591, sizeof(texts));
    is_refused(w, begin(w), 400,
               "input 'words': 10 bytes from 591 on are not within the 600");
    w->inputs[1].region = at(UINT64_MAX, sizeof(texts));
    is_refused(w, begin(w), 400, "input 'words': ");
    w->inputs[1].region = at(40, sizeof(texts));
    w->wanted[0].region = at(593, 8);
    is_refused(w, begin(w), 400, "output 'out': 8 bytes from 593 on");
    w->inputs[0].region.name[0] = '\0';
    w->inputs[1].region.name[0] = '\0';
    is_refused(
        w, bt_shm_tensors_begin(NULL, &w->request, OF_ONE, &w->uses, &w->error),
        400, "out: shared_memory_region");
    w->wanted[0].region.name[0] = '\0';
    assert_false(bt_shm_tensors_any(&w->request));
}

static void input_memory_is_limited_per_request_and_total(void **state)
{
    world_t *w = &world;

    (void)state;
    w->inputs[0].region = at(0, 595);
    is_refused(w, begin(w), 413, "605 bytes, over the limit of 600 (--max-");
    w->inputs[0].region = at(0, 590);
    assert_true(bt_regions_hold(w->regions, 401));
    is_refused(w, begin(w), 503, "no room for the inputs");
    bt_regions_give_back(w->regions, 1);
    assert_int_equal(begin(w), BT_OK);
    assert_false(bt_regions_hold(w->regions, 1));
    bt_shm_tensors_give_back(w->uses);
    assert_true(bt_regions_hold(w->regions, 600));
    bt_regions_give_back(w->regions, 1000);
}

static void only_outputs_with_region_are_written_to_it(void **state)
{
    world_t *w = &world;
    bt_tensor_t outputs[3];
    uint32_t there[2];

    (void)state;
    make_output(&outputs[0], "unnamed", 3);
    make_output(&outputs[1], "out", 7);
    make_output(&outputs[2], "plain", 9);
    assert_int_equal(begin(w), BT_OK);
    /* The response is made when the inputs are forgotten. */
    w->request.n_inputs = 0;
    assert_int_equal(
        bt_shm_tensors_write(w->uses, &w->request, outputs, 3, 8, &w->error),
        BT_OK);
    shm_get(&w->object, 400, there, sizeof(there));
    assert_int_equal(there[0], 7);
    assert_int_equal(there[1], 8);
    assert_null(outputs[1].data);
    assert_null(outputs[1].owned);
    assert_int_equal(outputs[1].bytes, 8);
    assert_non_null(outputs[0].data);
    assert_non_null(outputs[2].data);
    assert_non_null(bt_infer_output_region(&w->request, "out"));
    assert_null(bt_infer_output_region(&w->request, "plain"));
    assert_null(bt_infer_output_region(&w->request, "unnamed"));
    for (size_t i = 0; i < 3; i++) {
        bt_tensor_fini(&outputs[i]);
    }
}

static void output_too_large_for_region_is_named(void **state)
{
    world_t *w = &world;
    bt_tensor_t output;

    (void)state;
    make_output(&output, "out", 7);
    w->wanted[0].region = at(300, 7);
    assert_int_equal(begin(w), BT_OK);
    is_refused(w,
               bt_shm_tensors_write(w->uses, &w->request, &output, 1,
                                    UINT64_MAX, &w->error),
               400,
               "output 'out' has 8 bytes, more than the 7 that it was given in "
               "shared memory region 'r'");
    w->wanted[0].region = at(300, 9);
    is_refused(
        w, bt_shm_tensors_write(w->uses, &w->request, &output, 1, 7, &w->error),
        400, "output 'out': responses of a stream have at most 7 bytes");
    assert_non_null(output.data);
    bt_tensor_fini(&output);
}

static void shrunk_shm_object_gives_error_with_tensor_name(void **state)
{
    world_t *w = &world;
    bt_tensor_t output;

    (void)state;
    make_output(&output, "out", 7);
    assert_int_equal(begin(w), BT_OK);
    shm_resize(&w->object, 135);
    is_refused(w, bt_shm_tensors_read(w->uses, &w->request, &w->error), 400,
               "input 'words': shared memory region 'r' is shorter");
    is_refused(w,
               bt_shm_tensors_write(w->uses, &w->request, &output, 1,
                                    UINT64_MAX, &w->error),
               400, "output 'out': shared memory region 'r' is shorter");
    assert_int_equal(shm_size(&w->object), 135);
    bt_tensor_fini(&output);
}

static void failed_allocation_gives_error_and_leaks_nothing(void **state)
{
    world_t *w = &world;

    (void)state;
    bt_alloc_fail_at(1);
    is_refused(w, begin(w), 503, "out of memory");
    bt_alloc_fail_at(0);
    assert_null(w->uses);
    assert_int_equal(begin(w), BT_OK);
    for (int nth = 1; nth <= N_INPUTS; nth++) {
        bt_alloc_fail_at(nth);
        is_refused(w, bt_shm_tensors_read(w->uses, &w->request, &w->error), 503,
                   "out of memory");
        for (size_t i = 0; i < N_INPUTS; i++) {
            bt_tensor_fini(&w->inputs[i].tensor);
        }
    }
    bt_alloc_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        USES_TEST(inputs_are_read_and_checked),
        USES_TEST(input_that_mismatches_shape_is_refused_by_name),
        USES_TEST(unknown_region_error_names_tensor),
        USES_TEST(input_memory_is_limited_per_request_and_total),
        USES_TEST(only_outputs_with_region_are_written_to_it),
        USES_TEST(output_too_large_for_region_is_named),
        USES_TEST(shrunk_shm_object_gives_error_with_tensor_name),
        USES_TEST(failed_allocation_gives_error_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
