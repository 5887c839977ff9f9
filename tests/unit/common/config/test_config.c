/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/common/config/config_fixture.h"

/* The defaults that the manual promises, one per kind of value. */
static void defaults_are_those_of_the_manual(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    assert_int_equal(load(BT_PROG_SERVE, "", &c, &store), BT_OK);
    assert_string_equal(complaint, "");
    assert_string_equal(c->model, "");
    assert_int_equal(c->prefill, 1);
    assert_int_equal(c->decode, 1);
    assert_string_equal(c->http, "127.0.0.1:8000");
    assert_string_equal(c->grpc, "127.0.0.1:8001");
    assert_string_equal(c->metrics, "127.0.0.1:8002");
    assert_string_equal(c->log_level, "info");
    assert_string_equal(c->kv_net_devices, "lo");
    assert_int_equal(c->kv_memory_bytes, 0);
    assert_int_equal(c->max_body_bytes, 8388608);
    assert_int_equal(c->client_buffer_bytes, 1048576);
    assert_int_equal(c->heartbeat_ms, 250);
    assert_string_equal(c->local_prefill, "off");
    bt_config_destroy(store);
}

static void both_spellings_of_an_option_work(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    assert_int_equal(
        load(BT_PROG_DECODE,
             "--max-batch-size 16 --kv-memory=2GiB --local-prefill "
             "--model ./a=b.gguf --join=ipc:///r --max-batch-size=17",
             &c, &store),
        BT_OK);
    assert_int_equal(c->max_batch_size, 17); /* the last one counts */
    assert_int_equal(c->kv_memory_bytes, 2147483648);
    assert_string_equal(c->local_prefill, "on");
    assert_string_equal(c->model, "./a=b.gguf");
    assert_string_equal(c->join, "ipc:///r");
    bt_config_destroy(store);

    assert_int_equal(load(BT_PROG_DECODE, "--local-prefill=no", &c, &store),
                     BT_OK);
    assert_string_equal(c->local_prefill, "off");
    bt_config_destroy(store);
}

/* It was a flag once: alone it means on, and so do a flag's words. */
static void switch_needs_no_value_and_takes_only_its_own(void **state)
{
    static const struct {
        const char *line, *want;
    } cases[] = {
        {"--local-prefill", "on"},
        {"--local-prefill --max-batch-size 4", "on"},
        {"--local-prefill=yes", "on"},
        {"--local-prefill on", "on"},
        {"--local-prefill /dev/null", "on"}, /* that is the model */
        {"/dev/null --local-prefill", "on"},
        {"--local-prefill=auto", "auto"},
        {"--local-prefill auto /dev/null", "auto"},
        {"--local-prefill no", "off"},
        {"--local-prefill=0 --local-prefill=1", "on"},
        {"--local-prefill off", "off"},
    };
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(load(BT_PROG_SERVE, cases[i].line, &c, &store), BT_OK);
        assert_string_equal(c->local_prefill, cases[i].want);
        bt_config_destroy(store);
    }
    setenv("BATON_LOCAL_PREFILL", "yes", 1);
    assert_int_equal(load(BT_PROG_SERVE, "--prefill 0", &c, &store), BT_OK);
    assert_string_equal(c->local_prefill, "on");
    bt_config_destroy(store);
    setenv("BATON_LOCAL_PREFILL", "auto", 1);
    assert_int_equal(load(BT_PROG_DECODE, "", &c, &store), BT_OK);
    assert_string_equal(c->local_prefill, "auto");
    bt_config_destroy(store);
    unsetenv("BATON_LOCAL_PREFILL");
}

/* 512 * 2^20, 2 * 2^30, 3 * 2^10, 1 * 2^40 by hand. */
static void sizes_are_powers_of_1024(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"512m", 536870912},     {"2g", 2147483648},
        {"2GiB", 2147483648},    {"3K", 3072},
        {"1TiB", 1099511627776}, {"4096", 4096},
        {"4096b", 4096},         {"0", 0},
        {"5MIB", 5242880},       {"2GB", 2147483648},
        {"512MB", 536870912},    {"3kb", 3072},
        {"1Tb", 1099511627776},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const bt_config_t *c = NULL;
        bt_config_store_t *store = NULL;
        char line[64];

        snprintf(line, sizeof(line), "--kv-memory %s", cases[i].text);
        assert_int_equal(load(BT_PROG_SERVE, line, &c, &store), BT_OK);
        assert_int_equal(c->kv_memory_bytes, cases[i].bytes);
        bt_config_destroy(store);
    }
}

static void bad_value_error_names_the_allowed_values(void **state)
{
    static const char *const bad_sizes[] = {"2GBB",
                                            "2xb",
                                            "-1",
                                            "1.5g",
                                            "g",
                                            "0x10",

                                            "1e3",
                                            "65t",
                                            "+1",
                                            "99999999999999999999",
                                            "99999999999999t"};

    (void)state;
    assert_refused(
        BT_PROG_SERVE, "--max-batch-size 0",
        "baton serve: --max-batch-size: '0' is not a whole number from 1 "
        "to 4096 seats\n");
    assert_refused(BT_PROG_SERVE, "--decode=2x",
                   "baton serve: --decode: '2x' is not a whole number from 1 "
                   "to 256 workers\n");
    assert_refused(BT_PROG_SERVE, "--decode 4294967297",
                   "baton serve: --decode: '4294967297' is not a whole number "
                   "from 1 to 256 workers\n");
    assert_refused(BT_PROG_ROUTER, "--log-level loud",
                   "baton-router: --log-level: 'loud' is not one of: error, "
                   "warn, info, debug\n");
    assert_refused(BT_PROG_ROUTER, "--log-level inf",
                   "baton-router: --log-level: 'inf' is not one of: error, "
                   "warn, info, debug\n");
    assert_refused(BT_PROG_DECODE, "--local-prefill=maybe",
                   "baton-decode-worker: --local-prefill: 'maybe' is not one "
                   "of: auto, on, off\n");
    assert_refused(BT_PROG_ROUTER, "--http 8000",
                   "baton-router: --http: '8000' is not ADDR:PORT, such as "
                   "127.0.0.1:8000 or [::1]:8000\n");
    for (size_t i = 0; i < sizeof(bad_sizes) / sizeof(bad_sizes[0]); i++) {
        char line[64];
        const bt_config_t *c = NULL;
        bt_config_store_t *store = NULL;

        snprintf(line, sizeof(line), "--kv-memory=%s", bad_sizes[i]);
        assert_int_equal(load(BT_PROG_SERVE, line, &c, &store),
                         BT_ERR_INVALID_PARAM);
        assert_non_null(strstr(complaint, "--kv-memory"));
    }
}

static void options_that_contradict_each_other_are_refused(void **state)
{
    (void)state;
    assert_refused(BT_PROG_ROUTER, "--suspect-ms 200",
                   "baton-router: --heartbeat-ms 250, --suspect-ms 200 and "
                   "--dead-ms 2500 must rise in this order\n");
    assert_refused(BT_PROG_PREFILL, "--chunk-tokens 16 --tokens-per-block 32",
                   "baton-prefill-worker: --chunk-tokens 16 is less than one "
                   "block: --tokens-per-block 32\n");
    assert_refused(BT_PROG_DECODE, "--tokens-per-block 15",
                   "baton-decode-worker: --tokens-per-block 15 must be an even "
                   "number\n");
    assert_refused(
        BT_PROG_SERVE, "--prefill 0 --local-prefill auto",
        "baton serve: --prefill 0 leaves no worker to run prefill; add --local-prefill on or a prefill worker\n");
    assert_refused(
        BT_PROG_SERVE, "--prefill 0",
        "baton serve: --prefill 0 leaves no worker to run prefill; add --local-prefill on or a prefill worker\n");
    assert_refused(BT_PROG_SERVE, "--prefill-tp 6 --prefill-ep 4",
                   "baton serve: --prefill-ep 4: it is 1, 2, 4, 8 or 16, and "
                   "divides --prefill-tp, here 6\n");
    assert_refused(BT_PROG_SERVE, "--prefill-tp 2 --decode-ep 2",
                   "baton serve: --decode-ep 2: it is 1, 2, 4, 8 or 16, and "
                   "divides --decode-tp, here 1\n");
    assert_refused(BT_PROG_DECODE, "--tp 3 --ep 3",
                   "baton-decode-worker: --ep 3: it is 1, 2, 4, 8 or 16, and "
                   "divides --tp, here 3\n");
}

static void command_line_wins_over_environment_over_file(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;
    char path[64];
    char line[128];

    (void)state;
    write_file(
        "# a comment\n\n  max-batch-size = 3 # seats\nchunk-tokens=64\r\n"
        "\tprefill = 5\nmodel = /a#b.gguf\nlisten = tcp://x:1\n",
        path, sizeof(path));
    setenv("BATON_MAX_BATCH_SIZE", "4", 1);
    setenv("BATON_CHUNK_TOKENS", "128", 1);
    setenv("BATON_DECODE", "", 1);          /* as if unset */
    setenv("BATON_LISTEN", "tcp://y:1", 1); /* another program's */
    snprintf(line, sizeof(line), "--chunk-tokens 256 --config %s", path);
    assert_int_equal(load(BT_PROG_SERVE, line, &c, &store), BT_OK);
    assert_int_equal(c->chunk_tokens, 256);
    assert_int_equal(c->max_batch_size, 4);
    assert_int_equal(c->prefill, 5);
    assert_int_equal(c->decode, 1);
    assert_string_equal(c->model, "/a#b.gguf");
    assert_string_equal(c->listen, "");
    assert_string_equal(complaint, "");
    bt_config_destroy(store);

    setenv("BATON_CONFIG", path, 1);
    assert_int_equal(load(BT_PROG_SERVE, "", &c, &store), BT_OK);
    assert_int_equal(c->prefill, 5);
    bt_config_destroy(store);

    bt_config_unset_environment();
    assert_null(getenv("BATON_MAX_BATCH_SIZE"));
    assert_null(getenv("BATON_CONFIG"));
    assert_int_equal(load(BT_PROG_SERVE, "", &c, &store), BT_OK);
    assert_int_equal(c->prefill, 1);
    bt_config_destroy(store);
    unlink(path);
}

static void bad_environment_variable_is_named(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    setenv("BATON_KV_MEMORY", "lots", 1);
    assert_int_equal(load(BT_PROG_SERVE, "--kv-memory 1g", &c, &store),
                     BT_ERR_INVALID_PARAM);
    assert_non_null(strstr(complaint, "BATON_KV_MEMORY: 'lots'"));
    unsetenv("BATON_KV_MEMORY");

    setenv("BATON_KV_MEMROY", "1g", 1);
    setenv("BATON_TEST_MODEL", "x", 1);
    assert_int_equal(load(BT_PROG_SERVE, "", &c, &store), BT_OK);
    assert_string_equal(
        complaint,
        "baton serve: note: BATON_KV_MEMROY is not an option and has no effect; did you mean BATON_KV_MEMORY?\n");
    bt_config_destroy(store);
    unsetenv("BATON_KV_MEMROY");
    unsetenv("BATON_TEST_MODEL");
}

static void bad_config_file_is_named_with_its_line(void **state)
{
    static const struct {
        const char *content;
        const char *why;
    } cases[] = {
        {"max-batch-size = 4\nmax_batch_size = 5\n",
         ":2: unknown key 'max_batch_size'; did you mean max-batch-size\n"},
        {"\n\nhello\n", ":3: 'hello' is not `key = value`\n"},
        {"decode = 1\ndecode = 1",
         ":2: 'decode' was given already in line 1\n"},
        {"decode = many # of them",
         ":1: decode: 'many' is not a whole number from 1 to 256 workers\n"},
        {"zzzzzz = 1", ":1: unknown key 'zzzzzz'\n"},
        {" = 1", ":1: unknown key ''\n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char path[64];
        char line[128];
        char want[256];

        write_file(cases[i].content, path, sizeof(path));
        snprintf(line, sizeof(line), "--config=%s", path);
        snprintf(want, sizeof(want), "baton serve: %s%s", path, cases[i].why);
        assert_refused(BT_PROG_SERVE, line, want);
        unlink(path);
    }
    assert_refused(BT_PROG_SERVE, "--config /nowhere/at/all",
                   "baton serve: cannot open /nowhere/at/all: No such file or "
                   "directory\n");
    assert_refused(BT_PROG_SERVE, "--config /",
                   "baton serve: cannot read /: Is a directory\n");
}

static void help_lists_exactly_the_programs_options(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    assert_int_equal(load(BT_PROG_SERVE, "--help", &c, &store),
                     BT_ERR_CANCELED);
    assert_null(store);
    assert_string_equal(complaint, "");
    assert_non_null(strstr(printed, "\n  --kv-memory SIZE\n"));
    assert_non_null(strstr(printed, "\n  --config FILE\n"));
    assert_non_null(strstr(printed, "(default 127.0.0.1:8000)"));
    assert_null(strstr(printed, "--cluster-key-file"));
    assert_int_equal(load(BT_PROG_PREFILL, "-h", &c, &store), BT_ERR_CANCELED);
    assert_non_null(strstr(printed, "\n  --cluster-key-file FILE\n"));
    assert_null(strstr(printed, "--http"));
    assert_int_equal(load(BT_PROG_ROUTER, "--version", &c, &store),
                     BT_ERR_CANCELED);
    assert_int_equal(strncmp(printed, "baton-router ", 13), 0);
    assert_string_equal(bt_config_version(),
                        strtok_r(printed + 13, "\n", &(char *){NULL}));
}

static void help_lines_fit_a_terminal(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;
    char *next = printed;

    (void)state;
    assert_int_equal(load(BT_PROG_SERVE, "--help-all", &c, &store),
                     BT_ERR_CANCELED);
    while (next != NULL) {
        assert_true(strlen(strsep(&next, "\n")) < 80);
    }
}

/* Children get what differs from the default, whatever its source, and can
 * read it back to the same configuration. */
static void child_arguments_are_exactly_the_non_default_values(void **state)
{
    static const char want[] = "--local-prefill=on\0"
                               "--kv-memory=1536m\0"
                               "--max-batch-size=8\0"
                               "--log-level=debug\0";
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;
    bt_strbuf_t out;

    (void)state;
    setenv("BATON_LOG_LEVEL", "debug", 1);
    setenv("BATON_MODEL", "/m odel.gguf", 1);
    assert_int_equal(
        load(BT_PROG_SERVE,
             "--kv-memory 1536m --max-batch-size 8 --decode 3 --http "
             "127.0.0.1:0 --local-prefill --chunk-tokens 0",
             &c, &store),
        BT_OK);
    bt_strbuf_init(&out, OUTPUT_BYTES);
    assert_int_equal(bt_config_args_for(store, BT_PROG_DECODE, &out), BT_OK);
    assert_int_equal(out.len, sizeof(want) - 1);
    assert_memory_equal(out.data, want, out.len);
    bt_strbuf_reset(&out);
    assert_int_equal(bt_config_args_for(store, BT_PROG_ROUTER, &out), BT_OK);
    assert_string_equal(out.data, "--http=127.0.0.1:0");
    bt_strbuf_fini(&out);
    bt_config_destroy(store);
    bt_config_unset_environment();

    bt_strbuf_init(&out, 10);
    assert_int_equal(load(BT_PROG_SERVE, "--max-batch-size 8", &c, &store),
                     BT_OK);
    assert_int_equal(bt_config_args_for(store, BT_PROG_DECODE, &out),
                     BT_ERR_TOO_LARGE);
    bt_strbuf_fini(&out);
    bt_config_destroy(store);
}

static void addresses_are_split_at_the_last_colon(void **state)
{
    static const char *const bad[] = {
        "",       "8000",  ":8000",      "a:",       "a:b",  "a:65536",
        "a:-1",   "a:1 ",  "::1:8000",   "[::1]",    "[]:1", "[::1:1",
        "::1]:1", "a b:1", "http://a:1", "a:000001",
    };
    char host[64] = "untouched";
    uint16_t port = 7;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(
            bt_config_split_address(bad[i], host, sizeof(host), &port),
            BT_ERR_INVALID_PARAM);
        assert_string_equal(host, "untouched");
        assert_int_equal(port, 7);
    }
    assert_int_equal(bt_config_split_address("abc:1", host, 3, &port),
                     BT_ERR_INVALID_PARAM); /* no room for the zero */
    assert_int_equal(
        bt_config_split_address("127.0.0.1:8000", host, sizeof(host), &port),
        BT_OK);
    assert_string_equal(host, "127.0.0.1");
    assert_int_equal(port, 8000);
    assert_int_equal(
        bt_config_split_address("[fe80::1]:65535", host, sizeof(host), &port),
        BT_OK);
    assert_string_equal(host, "fe80::1");
    assert_int_equal(port, 65535);
    assert_int_equal(
        bt_config_split_address("localhost:0", host, sizeof(host), &port),
        BT_OK);
    assert_int_equal(port, 0);
}

/* --model: what it says, and how it reads after being printed for a child. */
static void model_name_is_the_text_before_the_equals_sign(void **state)
{
    static const struct {
        const char *text;
        const char *name;
        const char *path;
        const char *shown;
    } cases[] = {
        {"/x/SmolLM2-135M-Instruct.Q4_1.gguf", "",
         "/x/SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1"},
        {"/x/folder/", "", "/x/folder/", "folder"},
        {"a=A.gguf", "a", "A.gguf", "a"},
        {"a=b=c.gguf", "a", "b=c.gguf", "a"},
        {"./a=b.gguf", "", "./a=b.gguf", "a-b"},
        {"/d/a=b.GGUF", "", "/d/a=b.GGUF", "a-b"},
        {"a,b=c", "", "a,b=c", "a-b-c"},
        {"=c", "", "=c", "-c"},
        {"M.v1:x-{}'=/d/m.bin", "M.v1:x-{}'", "/d/m.bin", "M.v1:x-{}'"},
        {"/d/", "", "/d/", "d"},
        {".gguf", "", ".gguf", ".gguf"},
        {"m\xc3\xa9.gguf", "", "m\xc3\xa9.gguf", "m--"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const bt_config_t *c = NULL;
        bt_config_store_t *store = NULL;
        char shown[BT_CONFIG_MODEL_NAME_BYTES];
        char line[128];
        bt_strbuf_t printed_model;

        snprintf(line, sizeof(line), "--model %s", cases[i].text);
        assert_int_equal(load(BT_PROG_PREFILL, line, &c, &store), BT_OK);
        assert_int_equal(c->n_models, 1);
        assert_string_equal(c->models[0].name, cases[i].name);
        assert_string_equal(c->models[0].path, cases[i].path);
        assert_ptr_equal(c->model, c->models[0].path);
        bt_config_model_name(&c->models[0], "", shown);
        assert_string_equal(shown, cases[i].shown);

        bt_strbuf_init(&printed_model, 256);
        bt_config_print_model(c->models[0].name, c->models[0].path,
                              &printed_model);
        assert_string_equal(printed_model.data, cases[i].text);
        bt_strbuf_fini(&printed_model);
        bt_config_destroy(store);
    }
}

static void model_path_with_equals_sign_is_passed_on_as_a_path(void **state)
{
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 64);
    bt_config_print_model("", "b=c.gguf", &out);
    assert_string_equal(out.data, "./b=c.gguf");
    bt_strbuf_fini(&out);
}

static void model_name_of_a_long_file_name_is_cut(void **state)
{
    char path[128];
    char name[BT_CONFIG_MODEL_NAME_BYTES];
    const bt_config_model_t model = {.name = "", .path = path};

    (void)state;
    memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    bt_config_model_name(&model, "", name);
    assert_int_equal(strlen(name), 63);
    bt_config_model_name(&model, "short", name);
    assert_string_equal(name, "short");
}

static void model_list_comes_from_the_source_of_highest_precedence(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;
    char path[64];
    char line[128];

    (void)state;
    write_file("model = f=F.gguf\nprefill = 2\nmodel = G;1.gguf\n", path,
               sizeof(path));
    snprintf(line, sizeof(line), "--config %s", path);
    assert_int_equal(load(BT_PROG_ROUTER, line, &c, &store), BT_OK);
    assert_int_equal(c->n_models, 2);
    assert_string_equal(c->models[0].name, "f");
    assert_string_equal(c->models[1].path, "G;1.gguf");
    bt_config_destroy(store);

    setenv("BATON_MODEL", "a=A.gguf;B.gguf;", 1);
    assert_int_equal(load(BT_PROG_SERVE, line, &c, &store), BT_OK);
    assert_int_equal(c->n_models, 2);
    assert_string_equal(c->models[0].name, "a");
    assert_string_equal(c->model, "A.gguf");
    assert_string_equal(c->models[1].name, "");
    assert_string_equal(c->models[1].path, "B.gguf");
    bt_config_destroy(store);

    snprintf(line, sizeof(line), "--model C.gguf --config %s", path);
    assert_int_equal(load(BT_PROG_DECODE, line, &c, &store), BT_OK);
    assert_int_equal(c->n_models, 1);
    assert_string_equal(c->model, "C.gguf");
    bt_config_destroy(store);
    bt_config_unset_environment();
    unlink(path);
}

static void models_with_equal_names_are_refused(void **state)
{
    (void)state;
    assert_refused(BT_PROG_SERVE, "--model a=x.gguf --model a=y.gguf",
                   "baton serve: two models have the name a: x.gguf and "
                   "y.gguf; --model NAME=PATH gives them others\n");
    assert_refused(BT_PROG_ROUTER, "--model b=x.gguf --model /d/b.gguf",
                   "baton-router: two models have the name b: x.gguf and "
                   "/d/b.gguf; --model NAME=PATH gives them others\n");
    assert_refused(BT_PROG_ROUTER,
                   "--model x.gguf --model c=y.gguf --served-model-name c",
                   "baton-router: two models have the name c: x.gguf and "
                   "y.gguf; --model NAME=PATH gives them others\n");
    assert_refused(BT_PROG_SERVE,
                   "--model a=", "baton serve: --model: 'a=' names no file\n");
    assert_refused(
        BT_PROG_SERVE, "--model a=x.gguf --served-model-name b",
        "baton serve: --served-model-name b: --model names it a already\n");
    assert_refused(
        BT_PROG_SERVE, "--served-model-name a/b",
        "baton serve: --served-model-name: 'a/b' is no name: printable "
        "ASCII without space, / \" \\ , = and at most 63 bytes\n");
    assert_refused(BT_PROG_DECODE, "--model a.gguf --model b.gguf",
                   "baton-decode-worker: --model: 'b.gguf' is one model too "
                   "many: baton-decode-worker takes 1\n");
    setenv("BATON_MODEL", "0;1;2;3;4;5;6;7;8;9;a;b;c;d;e;f;g", 1);
    assert_refused(BT_PROG_ROUTER, "",
                   "baton-router: BATON_MODEL: 'g' is one model too many: "
                   "baton-router takes 16\n");
    bt_config_unset_environment();
}

static void ports_of_all_routers_must_be_in_range(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    assert_int_equal(
        load(BT_PROG_SERVE, "--routers 4 --http [::1]:65505", &c, &store),
        BT_OK);
    assert_int_equal(c->routers, 4);
    bt_config_destroy(store);
    assert_refused(BT_PROG_SERVE, "--routers 4 --grpc 127.0.0.1:65506",
                   "baton serve: --routers 4: the ports from --grpc "
                   "127.0.0.1:65506 on would pass 65535\n");
    assert_refused(BT_PROG_SERVE,
                   "--routers 2 --reuse-http-port --http 127.0.0.1:0",
                   "baton serve: --reuse-http-port needs a port in --http "
                   "127.0.0.1:0\n");
    assert_int_equal(load(BT_PROG_SERVE,
                          "--routers 16 --reuse-http-port --http [::1]:65535",
                          &c, &store),
                     BT_OK);
    bt_config_destroy(store);
    assert_refused(BT_PROG_SERVE, "--routers 17",
                   "baton serve: --routers: '17' is not a whole number from 1 "
                   "to 16 routers\n");
}

static void tls_cert_and_key_must_be_given_together(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    assert_int_equal(load(BT_PROG_SERVE,
                          "--tls-cert c.pem --tls-key k.pem --tls-client-ca "
                          "ca.pem",
                          &c, &store),
                     BT_OK);
    assert_string_equal(c->tls_cert, "c.pem");
    assert_string_equal(c->tls_key, "k.pem");
    assert_string_equal(c->tls_client_ca, "ca.pem");
    bt_config_destroy(store);
    assert_int_equal(load(BT_PROG_ROUTER, "", &c, &store), BT_OK);
    assert_string_equal(c->tls_cert, "");
    bt_config_destroy(store);
    assert_refused(BT_PROG_SERVE, "--tls-cert c.pem",
                   "baton serve: --tls-cert needs --tls-key, too\n");
    assert_refused(BT_PROG_ROUTER, "--tls-key k.pem",
                   "baton-router: --tls-key needs --tls-cert, too\n");
    assert_refused(BT_PROG_ROUTER, "--tls-client-ca ca.pem",
                   "baton-router: --tls-client-ca needs --tls-cert and "
                   "--tls-key\n");
}

/* store; copy of --config; copy of the model's path; the file's text; two
 * values of the file */
/* A folder with a file for tensorrt_llm alone. */
static void write_repository(char dir[], const char *text)
{
    char path[128];
    FILE *file;

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/tensorrt_llm", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/tensorrt_llm/config.pbtxt", dir);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void remove_repository(const char *dir)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/tensorrt_llm/config.pbtxt", dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/tensorrt_llm", dir);
    rmdir(path);
    rmdir(dir);
}

#define PARAMETER(key, value) \
    "parameters { key: \"" key "\" value { string_value: \"" value "\" } }\n"

static void model_repository_has_the_lowest_precedence(void **state)
{
    static const char text[] =
        "name: \"tensorrt_llm\"\n"
        "instance_group { count: 2 }\n"
        "dynamic_batching { max_queue_delay_microseconds: 300\n"
        "  default_queue_policy { max_queue_size: 12 } }\n" PARAMETER(
            "gpt_model_type", "V1") PARAMETER("gpt_model_path", "/m.gguf")
            PARAMETER("max_tokens_in_paged_kv_cache", "2560")
                PARAMETER("kv_cache_free_gpu_mem_fraction", "0.5")
                    PARAMETER("exclude_input_in_output", "true")
                        PARAMETER("enable_kv_cache_reuse", "false")
                            PARAMETER("max_num_sequences", "9");
    char dir[] = "/tmp/baton-test-config-XXXXXX";
    char line[256];
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;
    bt_strbuf_t args;

    (void)state;
    write_repository(dir, text);
    snprintf(line, sizeof(line),
             "--model-repository %s --max-concurrent-requests 500", dir);
    assert_int_equal(load(BT_PROG_SERVE, line, &c, &store), BT_OK);
    assert_string_equal(c->model, "/m.gguf");
    assert_int_equal(c->max_concurrent_requests, 500); /* the command line's */
    assert_int_equal(c->max_queue_delay_us, 300);
    assert_int_equal(c->decode, 2);
    assert_int_equal(c->kv_tokens, 2560);
    assert_int_equal(c->kv_free_percent, 50);
    assert_int_equal(c->max_batch_size, 9);
    assert_string_equal(c->batching_strategy, "V1");
    assert_true(c->exclude_input_in_output);
    assert_string_equal(c->prefix_cache, "off");
    assert_non_null(c->repository);
    /* Workers are told what it set for them. */
    bt_strbuf_init(&args, OUTPUT_BYTES);
    assert_int_equal(bt_config_args_for(store, BT_PROG_DECODE, &args), BT_OK);
    assert_non_null(memmem(args.data, args.len, "--kv-tokens=2560", 16));
    assert_non_null(memmem(args.data, args.len, "--prefix-cache=off", 18));
    assert_null(memmem(args.data, args.len, "--model-repository", 18));
    bt_strbuf_fini(&args);
    bt_config_destroy(store);
    snprintf(line, sizeof(line), "--model-repository %s --model /other.gguf",
             dir);
    assert_int_equal(load(BT_PROG_ROUTER, line, &c, &store), BT_OK);
    assert_int_equal(c->n_models, 1);
    assert_string_equal(c->model, "/other.gguf");
    assert_int_equal(c->max_concurrent_requests, 12);
    bt_config_destroy(store);
    remove_repository(dir);
}

static void bad_model_repository_is_named_by_file_line_and_field(void **state)
{
    char dir[] = "/tmp/baton-test-config-XXXXXX";
    char line[256];
    char want[512];

    (void)state;
    write_repository(
        dir, "name: \"tensorrt_llm\"\n" PARAMETER("sink_token_length", "4"));
    snprintf(line, sizeof(line), "--model-repository=%s", dir);
    snprintf(
        want, sizeof(want),
        "baton-router: --model-repository: %s/tensorrt_llm/config.pbtxt:2: "
        "parameters.sink_token_length: '4' is not served: the model file says "
        "it (0)\n",
        dir);
    assert_refused(BT_PROG_ROUTER, line, want);
    remove_repository(dir);
    assert_refused(BT_PROG_SERVE, "--model-repository s3://bucket/models",
                   "baton serve: --model-repository: s3://bucket/models: cloud "
                   "stores (s3, gs, as) are not read; copy the repository to a "
                   "folder\n");
}

static void gpu_metrics_option_is_accepted_without_a_gpu(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    if (access(BT_CONFIG_GPU_DRIVER, F_OK) == 0) {
        assert_refused(BT_PROG_SERVE, "--enable-gpu-metrics",
                       "baton serve: --enable-gpu-metrics: nv_gpu_* is not "
                       "measured by this version; "
                       "nv_trt_llm_runtime_memory_metrics has the memory that "
                       "workers take of a device\n");
        return;
    }
    assert_int_equal(
        load(BT_PROG_SERVE, "--model m --enable-gpu-metrics", &c, &store),
        BT_OK);
    assert_true(c->gpu_metrics);
    bt_config_destroy(store);
}

static void backend_auto_is_chosen_by_the_host(void **state)
{
    const bool has_driver = access(BT_CONFIG_GPU_DRIVER, F_OK) == 0;
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    assert_int_equal(
        load(BT_PROG_SERVE, "--model m --backend auto", &c, &store), BT_OK);
    assert_string_equal(c->backend, has_driver ? "cuda" : "cpu");
    bt_config_destroy(store);
    if (!has_driver) { /* and then devices are asked for in vain */
        assert_refused(BT_PROG_SERVE, "--backend auto --devices 0",
                       "baton serve: --devices: the back end cpu has none; "
                       "--backend cuda has\n");
    }
}

static void config_load_survives_every_failed_allocation(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;
    bt_status_t status;
    char path[64];
    char line[128];
    int nth = 0;

    (void)state;
    write_file("http = 127.0.0.1:1\nchat-template = chatml\n", path,
               sizeof(path));
    snprintf(line, sizeof(line), "--config %s --model m", path);
    do {
        bt_alloc_fail_at(++nth);
        status = load(BT_PROG_SERVE, line, &c, &store);
        if (status != BT_OK) {
            assert_int_equal(status, BT_ERR_NO_MEMORY);
            assert_null(store);
            assert_string_equal(complaint, "baton serve: out of memory\n");
        }
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    assert_int_equal(nth, 11); /* 4 of them: where each was said */
    bt_config_destroy(store);
    unlink(path);
}

static void port_range_has_a_first_and_a_last_port(void **state)
{
    static const char *const bad[] = {
        "20000", "20000-", "-20100", "0-9",      "20100-20000", "1-65536",
        "a-b",   "1-2-3",  " 1-2",   "123456-9", "1- 2"};
    uint16_t first = 7, last = 8;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(bt_config_split_ports(bad[i], &first, &last),
                         BT_ERR_INVALID_PARAM);
        assert_int_equal(first, 7);
        assert_int_equal(last, 8);
    }
    assert_int_equal(bt_config_split_ports("1-65535", &first, &last), BT_OK);
    assert_int_equal(first, 1);
    assert_int_equal(last, 65535);
    assert_int_equal(bt_config_split_ports("", &first, &last), BT_OK);
    assert_int_equal(first, 0);
    assert_int_equal(last, 0);
}

/* Each mistake of every kind is kept; what is wrong is as if it were not there,
 * and what is right counts. */
static void check_reports_all_errors(void **state)
{
    static const char *const wanted[] = {
        "--max-batch-size: '0' is not a whole number from 1 to 4096 seats",
        "unknown option --prefil; did you mean --prefill?",
        "BATON_DECODE: 'x' is not a whole number from 1 to 256 workers",
        "--tokens-per-block 7 must be an even number",
        "--chunk-tokens 3 is less than one block: --tokens-per-block 7",
        ("--kv-port-range 9-9: give two ports from 1 to 65535, the smaller one "
         "first, such as 20000-20100"),
    };
    char program[] = "serve";
    char *args[] = {program,
                    (char[]){"--max-batch-size=0"},
                    (char[]){"--prefil"},
                    (char[]){"9"},
                    (char[]){"--tokens-per-block"},
                    (char[]){"7"},
                    (char[]){"--chunk-tokens=3"},
                    (char[]){"--kv-port-range=9-9"},
                    (char[]){"--prefill=2"}};
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    setenv("BATON_DECODE", "x", 1);
    assert_int_equal(bt_config_load(BT_PROG_SERVE, true,
                                    (int)(sizeof(args) / sizeof(args[0])), args,
                                    &c, &store),
                     BT_OK);
    unsetenv("BATON_DECODE");
    for (uint32_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        assert_non_null(bt_config_finding(store, i));
        assert_true(bt_config_finding(store, i)->is_error);
        assert_string_equal(bt_config_finding(store, i)->text, wanted[i]);
    }
    assert_null(bt_config_finding(store, sizeof(wanted) / sizeof(wanted[0])));
    assert_int_equal(c->max_batch_size, 64);
    assert_int_equal(c->decode, 1);
    assert_int_equal(c->prefill, 2);
    bt_config_destroy(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(defaults_are_those_of_the_manual),
        BT_TEST(port_range_has_a_first_and_a_last_port),
        BT_TEST(check_reports_all_errors),
        BT_TEST(both_spellings_of_an_option_work),
        BT_TEST(switch_needs_no_value_and_takes_only_its_own),
        BT_TEST(sizes_are_powers_of_1024),
        BT_TEST(bad_value_error_names_the_allowed_values),
        BT_TEST(options_that_contradict_each_other_are_refused),
        BT_TEST(command_line_wins_over_environment_over_file),
        BT_TEST(bad_environment_variable_is_named),
        BT_TEST(bad_config_file_is_named_with_its_line),
        BT_TEST(help_lists_exactly_the_programs_options),
        BT_TEST(help_lines_fit_a_terminal),
        BT_TEST(child_arguments_are_exactly_the_non_default_values),
        BT_TEST(model_name_is_the_text_before_the_equals_sign),
        BT_TEST(model_path_with_equals_sign_is_passed_on_as_a_path),
        BT_TEST(model_name_of_a_long_file_name_is_cut),
        BT_TEST(model_list_comes_from_the_source_of_highest_precedence),
        BT_TEST(models_with_equal_names_are_refused),
        BT_TEST(ports_of_all_routers_must_be_in_range),
        BT_TEST(tls_cert_and_key_must_be_given_together),
        BT_TEST(addresses_are_split_at_the_last_colon),
        BT_TEST(model_repository_has_the_lowest_precedence),
        BT_TEST(bad_model_repository_is_named_by_file_line_and_field),
        BT_TEST(gpu_metrics_option_is_accepted_without_a_gpu),
        BT_TEST(backend_auto_is_chosen_by_the_host),
        BT_TEST(config_load_survives_every_failed_allocation),
    };

    bt_config_unset_environment();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
