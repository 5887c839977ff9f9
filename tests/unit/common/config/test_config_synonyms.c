/* SPDX-License-Identifier: Apache-2.0 */
/* Options of other servers, and variables that are no option's. */
#include "common/base/status.h"
#include "tests/unit/common/config/config_fixture.h"

static void options_of_other_servers_are_synonyms(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    assert_int_equal(load(BT_PROG_SERVE,
                          "-m /dev/null --host 127.0.0.2 --port 9000 "
                          "--max-model-len 4096 --max-num-seqs=7 "
                          "--served-model-name shop -tp 2 --ep-size 2",
                          &c, &store),
                     BT_OK);
    assert_string_equal(complaint, "");
    assert_string_equal(c->model, "/dev/null");
    assert_string_equal(c->http, "127.0.0.2:9000");
    assert_string_equal(c->served_model_name, "shop");
    assert_int_equal(c->max_seq_len, 4096);
    assert_int_equal(c->max_batch_size, 7);
    assert_int_equal(c->prefill_tp, 2);
    assert_int_equal(c->decode_tp, 2);
    assert_int_equal(c->prefill_ep, 2);
    assert_int_equal(c->decode_ep, 2);
    bt_config_destroy(store);

    assert_int_equal(load(BT_PROG_SERVE,
                          "-c 2048 -np 3 -ngl 0 --max_num_tokens 256 "
                          "--kv_cache_free_gpu_memory_fraction 0.35 "
                          "--no-enable-prefix-caching --kv-cache-dtype fp8",
                          &c, &store),
                     BT_OK);
    assert_string_equal(complaint, "");
    assert_int_equal(c->max_seq_len, 2048);
    assert_int_equal(c->max_batch_size, 3);
    assert_string_equal(c->backend, "cpu");
    assert_int_equal(c->chunk_tokens, 256);
    assert_int_equal(c->kv_free_percent, 35);
    assert_string_equal(c->prefix_cache, "off");
    assert_string_equal(c->kv_dtype, "fp8");
    bt_config_destroy(store);

    /* Each program has its own names for what it has. */
    assert_int_equal(load(BT_PROG_DECODE,
                          "--tensor-parallel-size 2 -ep 2 -t 3 --ctx-size 512",
                          &c, &store),
                     BT_OK);
    assert_int_equal(c->tp, 2);
    assert_int_equal(c->ep, 2);
    assert_int_equal(c->threads, 3);
    assert_int_equal(c->max_seq_len, 512);
    bt_config_destroy(store);
    assert_int_equal(
        load(BT_PROG_ROUTER, "--host=::1 --dtype auto --port 9", &c, &store),
        BT_OK);
    assert_string_equal(c->http, "[::1]:9");
    bt_config_destroy(store);
}

static void option_without_effect_is_noted(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    assert_int_equal(load(BT_PROG_SERVE,
                          "--trust-remote-code --n-gpu-layers 99", &c, &store),
                     BT_OK);
    assert_string_equal(
        complaint,
        "baton serve: note: --trust-remote-code has no effect: no code of "
        "models is run\n"
        "baton serve: note: --n-gpu-layers 99: a GPU computes all layers, "
        "where there is one (--backend auto), or none (--backend cpu)\n");
    bt_config_destroy(store);
}

static void unsupported_option_names_an_alternative(void **state)
{
    static const struct {
        unsigned program;
        const char *line, *why;
    } cases[] = {
        {BT_PROG_SERVE, "--gpu-memory-utilization 0.9",
         "baton serve: --gpu-memory-utilization is not served: --kv-memory "
         "SIZE is the memory for the KV cache of each worker, and "
         "--kv-free-percent N the share for it of what the model leaves\n"},
        {BT_PROG_SERVE, "--api-key sk-secret",
         "baton serve: --api-key is not served: --api-keys FILE has the hashes "
         "of keys, and baton key new TENANT makes one; others on this machine "
         "can read a key that is an argument\n"},
        {BT_PROG_SERVE, "--dtype bfloat16",
         "baton serve: --dtype bfloat16 is not served: weights are computed as "
         "the file has them; baton convert makes files of other types\n"},
        {BT_PROG_SERVE, "--threads 8",
         "baton serve: --threads is not served: --prefill-threads N and "
         "--decode-threads N are those of each worker\n"},
        {BT_PROG_SERVE, "-ngl many",
         "baton serve: -ngl: 'many' is no number of layers\n"},
        {BT_PROG_SERVE, "-c", "baton serve: -c needs a value\n"},
        {BT_PROG_SERVE, "-c x",
         "baton serve: -c: 'x' is not a whole number from 0 to 16777216 "
         "tokens\n"},
        {BT_PROG_SERVE, "--max-num-seqs 0",
         "baton serve: --max-num-seqs: '0' is not a whole number from 1 to "
         "4096 seats\n"},
        {BT_PROG_DECODE, "--host 127.0.0.1",
         "baton-decode-worker: --host is --http, which baton-decode-worker "
         "does not have\n"},
        {BT_PROG_SERVE, "--jinja=yes", "baton serve: --jinja takes no value\n"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_refused(cases[i].program, cases[i].line, cases[i].why);
        assert_null(strstr(complaint, "secret"));
    }
}

/* Set the variable, load, and forget it. */
static void load_with(const char *name, const char *value)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    setenv(name, value, 1);
    assert_int_equal(load(BT_PROG_SERVE, "", &c, &store), BT_OK);
    bt_config_destroy(store);
    unsetenv(name);
}

static void unknown_environment_variables_are_named(void **state)
{
    static const struct {
        const char *name, *value, *meant;
    } cases[] = {
        {"BATON_KV_MEMROY", "1g", "; did you mean BATON_KV_MEMORY?"},
        {"BATON_MAX_MODEL_LEN", "1", "; did you mean BATON_MAX_SEQ_LEN?"},
        {"BATON_API_KYE", "x", "; did you mean BATON_API_KEY?"},
        {"BATON_HTTP_PORT", "9000", "; did you mean BATON_HTTP?"},
        {"BATON_PORT", "9000", "; did you mean BATON_HTTP?"},
        {"BATON_NOTHING_LIKE_IT_AT_ALL", "x", ""},
    };
    static const char *const quiet[][2] = {
        {"BATON_PORT", "tcp://10.0.0.1:8000"},
        {"BATON_PORT_8000_TCP_ADDR", "10.0.0.1"},
        {"BATON_ROUTER_SERVICE_HOST", "10.0.0.1"},
        {"BATON_SERVICE_PORT_HTTP", "8000"},
        {"BATON_URL", "http://a:1/v1"},
        {"BATON_PLUGIN_DIR", "/x"},
        {"BATON_TEST_MODEL", "x"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char want[256];

        snprintf(want, sizeof(want),
                 "baton serve: note: %s is not an option and has no effect%s\n",
                 cases[i].name, cases[i].meant);
        load_with(cases[i].name, cases[i].value);
        assert_string_equal(complaint, want);
        /* The launcher has said it. */
        setenv("BATON_READY_FD", "3", 1);
        load_with(cases[i].name, cases[i].value);
        unsetenv("BATON_READY_FD");
        assert_string_equal(complaint, "");
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(quiet); i++) {
        load_with(quiet[i][0], quiet[i][1]);
        assert_string_equal(complaint, "");
    }
}

static void config_file_key_may_be_a_synonym(void **state)
{
    char path[64];
    char line[128];
    char want[256];

    (void)state;
    write_file("max-model-len = 5\n", path, sizeof(path));
    snprintf(line, sizeof(line), "--config=%s", path);
    snprintf(want, sizeof(want),
             "baton serve: %s:1: unknown key 'max-model-len'; did you mean "
             "max-seq-len\n",
             path);
    assert_refused(BT_PROG_SERVE, line, want);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(options_of_other_servers_are_synonyms),
        BT_TEST(option_without_effect_is_noted),
        BT_TEST(unsupported_option_names_an_alternative),
        BT_TEST(unknown_environment_variables_are_named),
        BT_TEST(config_file_key_may_be_a_synonym),
    };

    bt_config_unset_environment();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
