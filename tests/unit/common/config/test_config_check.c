/* SPDX-License-Identifier: Apache-2.0 */
/* Who may reach the server, and who says who he is. */
#include "common/base/status.h"
#include "tests/unit/common/config/config_fixture.h"

static void public_address_needs_keys_or_an_explicit_option(void **state)
{
    static const char *const inside[] = {
        "--http 127.0.0.1:1", "--http 127.8.9.1:1",          "--http [::1]:1",
        "--grpc localhost:1", "--http [::ffff:127.0.0.1]:1",
    };
    static const char *const allowed[] = {
        "--http 0.0.0.0:1 --insecure",
        "--http 0.0.0.0:1 --api-keys k --metrics 10.0.0.1:2 --grpc [::]:3",
        "--http 0.0.0.0:1 --tls-cert c --tls-key k --tls-client-ca a",
    };
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(inside); i++) {
        assert_int_equal(load(BT_PROG_SERVE, inside[i], &c, &store), BT_OK);
        bt_config_destroy(store);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(allowed); i++) {
        assert_int_equal(load(BT_PROG_ROUTER, allowed[i], &c, &store), BT_OK);
        bt_config_destroy(store);
    }
    assert_refused(
        BT_PROG_SERVE, "--http 0.0.0.0:8000",
        "baton serve: --http 0.0.0.0:8000 is beyond loopback, where clients need no key: add --api-keys FILE (./baton key new TENANT makes a key), or --insecure to let every client that reaches it use it\n");
    assert_refused(
        BT_PROG_ROUTER, "--grpc gpu1:8001",
        "baton-router: --grpc gpu1:8001 is beyond loopback, where clients need no key: add --api-keys FILE (./baton key new TENANT makes a key), or --insecure to let every client that reaches it use it\n");
    /* That port asks for no certificate. */
    assert_refused(
        BT_PROG_ROUTER,
        "--metrics [::]:1 --tls-cert c --tls-key k --tls-client-ca a",
        "baton-router: --metrics [::]:1 is beyond loopback, where clients need no key: add --api-keys FILE (./baton key new TENANT makes a key), or --insecure to let every client that reaches it use it\n");
    /* Workers have none of these ports. */
    assert_int_equal(load(BT_PROG_DECODE, "", &c, &store), BT_OK);
    bt_config_destroy(store);
}

static void adapters_have_names_and_paths(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;
    bt_config_adapter_t adapter;
    const char *rest;

    (void)state;
    assert_int_equal(load(BT_PROG_DECODE,
                          "--lora a=/x --lora-modules b=/y=z;c=w", &c, &store),
                     BT_OK);
    assert_string_equal(c->lora, "a=/x;b=/y=z;c=w");
    assert_int_equal(c->max_lora_rank, 64);
    rest = c->lora;
    assert_int_equal(bt_config_adapter_next(&rest, &adapter), BT_OK);
    assert_string_equal(adapter.name, "a");
    assert_string_equal(adapter.path, "/x");
    assert_int_equal(bt_config_adapter_next(&rest, &adapter), BT_OK);
    assert_string_equal(adapter.path, "/y=z");
    assert_int_equal(bt_config_adapter_next(&rest, &adapter), BT_OK);
    assert_int_equal(bt_config_adapter_next(&rest, &adapter), BT_ERR_NOT_FOUND);
    bt_config_destroy(store);
    assert_int_equal(load(BT_PROG_DECODE,
                          "--lora= --lora a=/x --lora= --lora b=/y", &c,
                          &store),
                     BT_OK);
    assert_string_equal(c->lora, "a=/x;b=/y"); /* nothing is lost */
    bt_config_destroy(store);
    assert_refused(BT_PROG_ROUTER, "--lora a=/x; --lora b=/y",
                   "baton-router: --lora: 'a=/x;' is not NAME=PATH, a name as "
                   "a model has it and the path of a LoRA adapter\n");
    /* Forms of vLLM that are not taken (docs/LORA.md). */
    assert_refused(BT_PROG_ROUTER, "--lora-modules a=/x b=/y",
                   "baton-router: unexpected argument 'b=/y'; options start "
                   "with --\n");
    assert_refused(BT_PROG_ROUTER,
                   "--lora-modules {\"name\":\"a\",\"path\":\"/x\"}",
                   "baton-router: --lora-modules: '{\"name\":\"a\","
                   "\"path\":\"/x\"}' is not NAME=PATH, a name as a model "
                   "has it and the path of a LoRA adapter\n");
    assert_refused(BT_PROG_ROUTER, "--lora /x",
                   "baton-router: --lora: '/x' is not NAME=PATH, a name as a "
                   "model has it and the path of a LoRA adapter\n");
    assert_refused(BT_PROG_ROUTER, "--lora a=/x --lora a=/y",
                   "baton-router: --lora: two adapters have the name a\n");
    assert_refused(BT_PROG_ROUTER, "--model m=1 --model n=2 --lora a=/x",
                   "baton-router: --lora: adapters are those of one model; 2 "
                   "are given\n");
    assert_refused(BT_PROG_ROUTER, "--model m=1 --model n=2 --lora-dir /tmp",
                   "baton-router: --lora-dir: adapters are those of one "
                   "model; 2 are given\n");
}

/* The launcher passes the list on in one argument. */
static void list_of_adapters_fits_one_argument(void **state)
{
    static const size_t most = 120 * 1024 - 1;
    static char list[120 * 1024 + 1];
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    for (size_t at = 0; at < most; at += 64) {
        snprintf(list + at, sizeof(list) - at, "a%06zu=/%054u;", at, 0u);
    }
    list[most] = '\0'; /* in place of the last ; */
    setenv("BATON_LORA", list, 1);
    assert_int_equal(load(BT_PROG_DECODE, "", &c, &store), BT_OK);
    assert_int_equal(strlen(c->lora), most);
    bt_config_destroy(store);
    list[most] = '0';
    list[most + 1] = '\0';
    setenv("BATON_LORA", list, 1);
    assert_refused(
        BT_PROG_DECODE, "",
        "baton-decode-worker: BATON_LORA: the names and paths of all adapters "
        "take more than 120 KiB, the most that --lora takes; use shorter "
        "paths, or --lora-dir\n");
    unsetenv("BATON_LORA");
}

static void tenant_is_named_by_one_option_only(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    assert_int_equal(
        load(BT_PROG_ROUTER, "--tenant-header X-Baton-Tenant", &c, &store),
        BT_OK);
    assert_string_equal(c->tenant_header, "X-Baton-Tenant");
    bt_config_destroy(store);
    assert_refused(BT_PROG_ROUTER, "--tenant-header a:b",
                   "baton-router: --tenant-header: 'a:b' is no name of a "
                   "header, such as X-Baton-Tenant\n");
    assert_refused(BT_PROG_ROUTER, "--tenant-header X-A --api-keys f",
                   "baton-router: --tenant-header and --api-keys: with keys "
                   "the key says whose request it is\n");
    assert_refused(BT_PROG_SERVE, "--shared-memory on --api-keys f",
                   "baton serve: --shared-memory on and --api-keys: regions of "
                   "shared memory are not kept apart by tenant\n");
}

static void otlp_url_with_password_or_query_is_refused(void **state)
{
    static const char *const accepted[] = {
        "--otlp-traces-endpoint http://localhost:4318",
        "--otlp-traces-endpoint HTTPS://[fd00::7]/a@b",
    };
    static const struct {
        const char *options, *message;
    } refused[] = {
        {"--otlp-traces-endpoint localhost:4318",
         "the URL does not begin with http:// or "
         "https://"},
        {"--otlp-traces-endpoint grpc://localhost:4317",
         "the URL does not begin with http:// "
         "or https://"},
        {"--otlp-traces-endpoint http://me:secret@c.example",
         "the URL has a name or password, which everybody could see: use "
         "--otlp-headers-file"},
        {"--otlp-traces-endpoint http://c.example/?a=b",
         "the URL has a query or a fragment"},
        {"--otlp-traces-endpoint http://c.example#x",
         "the URL has a query or a fragment"},
        {"--otlp-traces-endpoint http://c.example/\xff",
         "the URL has a space, or a byte that is not ASCII"},
    };
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(accepted); i++) {
        assert_int_equal(load(BT_PROG_ROUTER, accepted[i], &c, &store), BT_OK);
        bt_config_destroy(store);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(refused); i++) {
        char message[256];

        snprintf(message, sizeof(message),
                 "baton-router: --otlp-traces-endpoint: %s\n",
                 refused[i].message);
        assert_refused(BT_PROG_ROUTER, refused[i].options, message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(public_address_needs_keys_or_an_explicit_option),
        BT_TEST(adapters_have_names_and_paths),
        BT_TEST(list_of_adapters_fits_one_argument),
        BT_TEST(tenant_is_named_by_one_option_only),
        BT_TEST(otlp_url_with_password_or_query_is_refused),
    };

    bt_config_unset_environment();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
