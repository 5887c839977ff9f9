/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's paths that load and unload adapters: what they refuse. What they do is
 * in tests/integration/test_lora.py. */
#include "common/base/status.h"
#include "tests/unit/router/request_fixture.h"

#define LOAD   "/v1/load_lora_adapter"
#define UNLOAD "/v1/unload_lora_adapter"

static void adapters_are_loaded_only_where_the_option_allows_it(void **state)
{
    world_t *w = &world;

    (void)state;
    start(w, true);
    refused(w, LOAD, "{\"lora_name\":\"a\",\"lora_path\":\"b\"}", 403,
            "without --lora-dir");
    refused(w, UNLOAD, "{\"lora_name\":\"a\"}", 403, "without --lora-dir");
    stop(w);
}

static void wrong_command_is_refused_by_name(void **state)
{
    world_t *w = &world;

    (void)state;
    start(w, true);
    w->config.lora_dir = "/tmp";
    refused(w, LOAD, "{\"lora_name\":\"a\"}", 400,
            "Both 'lora_name' and 'lora_path' must be provided.");
    refused(w, LOAD, "{\"lora_name\":\"a\",\"lora_path\":7}", 400,
            "lora_path: a text");
    refused(w, LOAD, "{\"lora_name\":\"a\",\"lora_path\":\"b\",\"rank\":7}",
            400, "rank: an adapter has");
    refused(w, LOAD, "{\"lora_name\":\"a\",\"lora_path\":\"/\"}", 400,
            "it is not below --lora-dir /tmp");
    refused(w, LOAD, "{\"lora_name\":\"tiny\",\"lora_path\":\"x\"}", 400,
            "the name 'tiny' is that of a model");
    refused(w, LOAD,
            "{\"lora_name\":\"a\",\"lora_path\":\"b\",\"tenant\":\"\"}", 400,
            "this server has no tenant ''");
    refused(w, LOAD,
            "{\"lora_name\":\"a\",\"lora_path\":\"b\",\"tenant\":\"acme\"}",
            400, "this server has no tenant 'acme'");
    /* Of all, so that its path is looked at. */
    refused(w, LOAD,
            "{\"lora_name\":\"a\",\"lora_path\":\"/\",\"tenant\":null}", 400,
            "it is not below --lora-dir /tmp");
    refused(w, UNLOAD, "{}", 400, "'lora_name' needs to be provided");
    refused(w, UNLOAD, "{\"lora_name\":\"a\"}", 404,
            "The lora adapter 'a' cannot be found.");
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(adapters_are_loaded_only_where_the_option_allows_it),
        BT_TEST(wrong_command_is_refused_by_name),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
