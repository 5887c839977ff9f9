/* SPDX-License-Identifier: Apache-2.0 */
/* What the command line forgives, and how it says what it does not. */
#include "common/base/status.h"
#include "tests/unit/common/config/config_fixture.h"

static void unknown_option_names_the_closest_one(void **state)
{
    (void)state;
    assert_refused(BT_PROG_SERVE, "--kv-memroy 1g",
                   "baton serve: unknown option --kv-memroy; did you mean "
                   "--kv-memory?\n");
    assert_refused(BT_PROG_SERVE, "--prefil-threads=1",
                   "baton serve: unknown option --prefil-threads; did you mean "
                   "--prefill-threads?\n");
    assert_refused(BT_PROG_SERVE, "--zzz",
                   "baton serve: unknown option --zzz; see baton serve "
                   "--help\n");
    assert_refused(BT_PROG_DECODE, "--http 127.0.0.1:1",
                   "baton-decode-worker: --http is an option of baton serve, "
                   "not of baton-decode-worker\n");
    assert_refused(BT_PROG_SERVE, "--",
                   "baton serve: unexpected argument '--'; options start with "
                   "--\n");
    assert_refused(BT_PROG_SERVE, "model.gguf",
                   "baton serve: unexpected argument 'model.gguf': there is no "
                   "such model file, and options start with --\n");
    assert_refused(BT_PROG_SERVE, "--local-prefill maybe",
                   "baton serve: unexpected argument 'maybe': there is no such "
                   "model file, and options start with --\n");
    assert_refused(BT_PROG_SERVE, "-p 1",
                   "baton serve: unexpected argument '-p'; options start with "
                   "--\n");
    assert_refused(BT_PROG_ROUTER, "/dev/null",
                   "baton-router: unexpected argument '/dev/null'; options "
                   "start with --\n");
    assert_refused(BT_PROG_SERVE, "--verzion",
                   "baton serve: unknown option --verzion; did you mean "
                   "--version?\n");
    assert_refused(BT_PROG_SERVE, "--confg x",
                   "baton serve: unknown option --confg; did you mean "
                   "--config?\n");
    assert_refused(BT_PROG_SERVE, "--no-instal",
                   "baton serve: unknown option --no-instal; did you mean "
                   "--no-install?\n");
    assert_refused(BT_PROG_DECODE, "--no-instal",
                   "baton-decode-worker: unknown option --no-instal; see "
                   "baton-decode-worker --help\n");
    assert_refused(BT_PROG_SERVE, "--http --grpc",
                   "baton serve: --http needs a value: --http ADDR:PORT\n");
    assert_refused(BT_PROG_SERVE, "--decode",
                   "baton serve: --decode needs a value: --decode N\n");
}

static void assert_targets(const bt_config_t *c, const char *model,
                           uint32_t ttft_ms, uint32_t itl_ms)
{
    uint32_t ttft = 1;
    uint32_t itl = 1;

    bt_config_model_targets(c, model, &ttft, &itl);
    assert_int_equal(ttft, ttft_ms);
    assert_int_equal(itl, itl_ms);
}

static void model_targets_override_the_general_ones(void **state)
{
    static const char *const bad[] = {
        "a",           "a=",
        "a=5",         "a=5/",
        "=5/6",        "a=5/6,",
        "a/5",         "a=-1/2",
        "a=5/6,b",     "a=5/6;b=",
        "a=5x/6",      "a=86400001/1",
        "a=1/3600001", "a=99999999999999999999/1"};
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    assert_int_equal(load(BT_PROG_ROUTER,
                          "--ttft-target-ms 900 --itl-target-ms 70 "
                          "--model-targets a=500/30,ab=0/3600000,c=86400000/0",
                          &c, &store),
                     BT_OK);
    assert_targets(c, "a", 500, 30);
    assert_targets(c, "ab", 0, 3600000);
    assert_targets(c, "c", 86400000, 0);
    assert_targets(c, "b", 900, 70);
    assert_targets(c, "", 900, 70);
    bt_config_destroy(store);
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        char line[128];
        char want[256];

        snprintf(line, sizeof(line), "--model-targets %s", bad[i]);
        snprintf(want, sizeof(want),
                 "baton-router: --model-targets: '%s' is not NAME=TTFT/ITL, in "
                 "ms, such as small=500/30,large=2000/60\n",
                 bad[i]);
        assert_refused(BT_PROG_ROUTER, line, want);
    }
}

static void sampling_defaults_are_json_of_known_fields_in_range(void **state)
{
    static const struct {
        const char *json;
        const char *why;
    } bad[] = {
        {"{\"temp\":1}", "temp is none of temperature, top_p, top_k, min_p and "
                         "repetition_penalty"},
        {"{\"top_p\":0}", "top_p is not a number from 1e-06 to 1"},
        {"{\"min_p\":\"0.5\"}", "min_p is not a number from 0 to 1"},
        {"{\"top_k\":-1}", "top_k is not a number from 0 to 1e+06"},
        {"{\"temperature\":1e999}",
         "temperature is not a number from 0 to 100"},
        {"[0.2]", "it is no JSON object"},
    };
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;
    bt_config_sampling_t sampling;
    char why[160];

    (void)state;
    assert_int_equal(load(BT_PROG_ROUTER,
                          "--override-generation-config "
                          "{\"temperature\":0.25,\"top_k\":40}",
                          &c, &store),
                     BT_OK);
    assert_int_equal(bt_config_sampling_read(c->override_generation_config,
                                             &sampling, why, sizeof(why)),
                     BT_OK);
    assert_true(sampling.has_temperature && sampling.has_top_k);
    assert_true((sampling.temperature == 0.25) && (sampling.top_k == 40.0));
    assert_false(sampling.has_top_p || sampling.has_min_p ||
                 sampling.has_repetition_penalty);
    bt_config_destroy(store);
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        char line[128];
        char want[256];

        snprintf(line, sizeof(line), "--override-generation-config %s",
                 bad[i].json);
        snprintf(want, sizeof(want),
                 "baton-router: --override-generation-config: '%s': %s\n",
                 bad[i].json, bad[i].why);
        assert_refused(BT_PROG_ROUTER, line, want);
    }
}

static void models_may_be_positional_arguments(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    assert_int_equal(
        load(BT_PROG_SERVE, "/dev/null --decode 2 b=/dev/zero", &c, &store),
        BT_OK);
    assert_int_equal(c->n_models, 2);
    assert_int_equal(c->decode, 2);
    assert_string_equal(c->model, "/dev/null");
    assert_string_equal(c->models[1].name, "b");
    assert_string_equal(c->models[1].path, "/dev/zero");
    bt_config_destroy(store);
}

static void port_alone_keeps_the_default_address(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;
    bt_strbuf_t args;
    char path[64];
    char line[128];

    (void)state;
    assert_int_equal(load(BT_PROG_SERVE, "--port 9000", &c, &store), BT_OK);
    assert_string_equal(c->http, "127.0.0.1:9000");
    /* Children hear of the address alone. */
    bt_strbuf_init(&args, 4096);
    assert_int_equal(bt_config_args_for(store, BT_PROG_ROUTER, &args), BT_OK);
    assert_int_equal(args.len, sizeof("--http=127.0.0.1:9000"));
    assert_string_equal(args.data, "--http=127.0.0.1:9000");
    bt_strbuf_fini(&args);
    bt_config_destroy(store);

    assert_int_equal(
        load(BT_PROG_ROUTER, "--http [::1]:8000 --port=0", &c, &store), BT_OK);
    assert_string_equal(c->http, "[::1]:0");
    bt_config_destroy(store);

    /* The stronger source has the port, the address is as it was. */
    write_file("http = 0.0.0.0:81\nport = 82\ninsecure = true\n", path,
               sizeof(path));
    snprintf(line, sizeof(line), "--config %s", path);
    assert_int_equal(load(BT_PROG_SERVE, line, &c, &store), BT_OK);
    assert_string_equal(c->http, "0.0.0.0:82");
    bt_config_destroy(store);
    snprintf(line, sizeof(line), "--config %s --http a:83", path);
    assert_int_equal(load(BT_PROG_SERVE, line, &c, &store), BT_OK);
    assert_string_equal(c->http, "a:83");
    bt_config_destroy(store);
    unlink(path);

    /* What a cluster says of a service called baton is not ours. */
    setenv("BATON_PORT", "tcp://10.0.0.1:8000", 1);
    assert_int_equal(load(BT_PROG_SERVE, "", &c, &store), BT_OK);
    assert_string_equal(c->http, "127.0.0.1:8000");
    assert_string_equal(complaint, "");
    bt_config_destroy(store);
    bt_config_unset_environment();

    assert_refused(BT_PROG_SERVE, "--port 65536",
                   "baton serve: --port: '65536' is not a whole number from 0 "
                   "to 65535\n");
    assert_refused(BT_PROG_DECODE, "--port 1",
                   "baton-decode-worker: --port is an option of baton serve, "
                   "not of baton-decode-worker\n");
}

static void size_may_have_a_space_before_its_unit(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;
    char path[64];
    char line[128];

    (void)state;
    write_file("kv-memory = 2 GB\n", path, sizeof(path));
    snprintf(line, sizeof(line), "--config %s", path);
    assert_int_equal(load(BT_PROG_SERVE, line, &c, &store), BT_OK);
    assert_int_equal(c->kv_memory_bytes, 2147483648);
    bt_config_destroy(store);
    unlink(path);
}

static void help_lists_common_and_help_all_advanced_options_too(void **state)
{
    static const struct {
        const char *line;
        unsigned program;
        bool in_help, in_help_all;
    } cases[] = {
        {"\n  --max-batch-size N\n", BT_PROG_SERVE, true, true},
        {"\n  --quarantine-ms MS\n", BT_PROG_SERVE, false, true},
        {"\n  --midstep-join NAME\n", BT_PROG_SERVE, false, false},
        {"\n  --borrowed-cores LIST\n", BT_PROG_DECODE, false, false},
        {"\n  --launcher PATH\n", BT_PROG_ROUTER, false, false},
        {"--help-all lists the others too", BT_PROG_SERVE, true, false},
    };
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(load(cases[i].program, "--help", &c, &store),
                         BT_ERR_CANCELED);
        assert_int_equal(strstr(printed, cases[i].line) != NULL,
                         cases[i].in_help);
        assert_int_equal(load(cases[i].program, "--help-all", &c, &store),
                         BT_ERR_CANCELED);
        assert_int_equal(strstr(printed, cases[i].line) != NULL,
                         cases[i].in_help_all);
    }
}

static void help_texts_are_one_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        const bt_option_t *const option = &bt_config_options[i];

        assert_in_range(strlen(option->help), 1, BT_OPTION_HELP_CHARS);
        assert_null(strchr(option->help, '\n'));
        assert_int_not_equal(option->help[strlen(option->help) - 1], '.');
    }
}

/* "Other options" is for what is between processes that are started by hand,
 * and for an option that nobody has given a heading. */
static void every_option_has_one_heading(void **state)
{
    static const char *const others[] = {
        "join",    "join-dir",         "listen",       "rank-host", "launcher",
        "run-dir", "cluster-key-file", "munge-socket", "name"};

    (void)state;
    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        const bt_option_t *const option = &bt_config_options[i];
        bool is_other = false;

        for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++) {
            is_other = is_other || (strcmp(option->name, others[k]) == 0);
        }
        if ((strcmp(bt_config_section(option), "Other options") == 0) !=
            is_other) {
            fail_msg("--%s is in a wrong section", option->name);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(unknown_option_names_the_closest_one),
        BT_TEST(model_targets_override_the_general_ones),
        BT_TEST(sampling_defaults_are_json_of_known_fields_in_range),
        BT_TEST(models_may_be_positional_arguments),
        BT_TEST(port_alone_keeps_the_default_address),
        BT_TEST(size_may_have_a_space_before_its_unit),
        BT_TEST(help_lists_common_and_help_all_advanced_options_too),
        BT_TEST(help_texts_are_one_line),
        BT_TEST(every_option_has_one_heading),
    };

    bt_config_unset_environment();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
