/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters are models of their own to clients, and digests to workers. */
#include "common/base/status.h"
#include "router/frontend/served_adapters.h"
#include "tests/support/hf_folder.h"
#include "tests/unit/router/request_fixture.h"

static char dirs[2][128];

/* Rank 1 of one matrix, whose numbers are @a number. */
static void write_adapter(const char *dir, float number)
{
    float numbers[64];
    bt_st_file_t file;

    for (uint32_t i = 0; i < 64; i++) {
        numbers[i] = number;
    }
    bt_hf_folder_text(dir, "adapter_config.json",
                      "{\"peft_type\":\"LORA\",\"lora_alpha\":1}");
    bt_st_file_init(&file);
    bt_st_file_add(
        &file, "base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight",
        "F32", "1,64", numbers, sizeof(numbers));
    bt_st_file_add(
        &file, "base_model.model.model.layers.0.self_attn.o_proj.lora_B.weight",
        "F32", "64,1", numbers, sizeof(numbers));
    bt_st_file_write(&file, dir, "adapter_model.safetensors");
}

static void start_with(world_t *w, char *option, size_t bytes)
{
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(dirs[i], sizeof(dirs[i]), "%s", bt_hf_folder_make());
        write_adapter(dirs[i], (float)i + 1.0f);
    }
    snprintf(option, bytes, "sql=%s;chat=%s", dirs[0], dirs[1]);
    lora_option = option;
    start(w, true);
}

static void stop_with(world_t *w)
{
    stop(w);
    lora_option = "";
    bt_hf_folder_remove(dirs[0]);
    bt_hf_folder_remove(dirs[1]);
}

static void model_name_of_an_adapter_sends_its_digest(void **state)
{
    static bt_exchange_t base, sql, chat;
    world_t *w = &world;
    char option[320];
    const sent_t *sent[3];

    (void)state;
    start_with(w, option, sizeof(option));
    post(w, &base, COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":3}");
    post(w, &sql, COMPLETIONS,
         "{\"model\":\"sql\",\"prompt\":\"Hi\",\"max_tokens\":3}");
    post(w, &chat, COMPLETIONS,
         "{\"model\":\"chat\",\"prompt\":\"Hi\",\"max_tokens\":3}");
    for (uint32_t i = 0; i < 3; i++) {
        sent[i] = request(w, i);
    }
    assert_int_equal(sent[0]->adapter.lo | sent[0]->adapter.hi, 0);
    assert_int_equal(sent[0]->space.lo | sent[0]->space.hi, 0);
    assert_true(
        bt_hash128_equal(sent[1]->adapter, w->served->adapters[0].digest));
    assert_true(
        bt_hash128_equal(sent[2]->adapter, w->served->adapters[1].digest));
    assert_false(bt_hash128_equal(sent[1]->adapter, sent[2]->adapter));
    assert_false(bt_hash128_equal(sent[1]->space, sent[0]->space));
    assert_false(bt_hash128_equal(sent[1]->space, sent[2]->space));
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    answer(w, 1, "yes", BT_FINISH_LENGTH);
    answer(w, 2, "yes", BT_FINISH_LENGTH);
    has(&sql, "\"model\":\"sql\"");
    stop_with(w);
}

static void unknown_adapter_is_an_unknown_model(void **state)
{
    static bt_exchange_t other;
    world_t *w = &world;
    char option[320];
    bt_served_entry_t entry = {.served = NULL};

    (void)state;
    start_with(w, option, sizeof(option));
    post(w, &other, COMPLETIONS,
         "{\"model\":\"other\",\"prompt\":\"Hi\",\"max_tokens\":3}");
    assert_int_equal(other.status, 404);
    has(&other, "model 'other' is not served here; this is 'tiny, sql, chat'");
    assert_false(bt_served_find(&w->front.models, "other", NULL, true, &entry));
    assert_null(entry.served);
    assert_true(bt_served_find(&w->front.models, NULL, NULL, false, &entry));
    assert_true(entry.served == w->served && entry.adapter == NULL);
    assert_true(bt_served_find(&w->front.models, "tiny", NULL, false, &entry));
    assert_null(entry.adapter);
    assert_true(bt_served_find(&w->front.models, "chat", NULL, false, &entry));
    assert_ptr_equal(entry.served, w->served);
    assert_ptr_equal(entry.adapter, &w->served->adapters[1]);
    assert_false(
        bt_served_find(&w->front.models, "chat:latest", NULL, false, &entry));
    assert_true(
        bt_served_find(&w->front.models, "sql:latest", NULL, true, &entry));
    assert_ptr_equal(entry.adapter, &w->served->adapters[0]);
    assert_false(
        bt_served_find(&w->front.models, ":latest", NULL, true, &entry));
    stop_with(w);
}

static void adapter_is_a_model_of_ollama_and_of_the_index(void **state)
{
    static bt_exchange_t ex;
    world_t *w = &world;
    char option[320];

    (void)state;
    start_with(w, option, sizeof(option));
    post(w, &ex, "/api/chat",
         "{\"model\":\"sql:latest\",\"stream\":false,\"messages\":[{\"role\":"
         "\"user\",\"content\":\"Hi\"}]}");
    assert_true(bt_hash128_equal(request(w, 0)->adapter,
                                 w->served->adapters[0].digest));
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    get(w, &ex, "/api/tags");
    has(&ex, "{\"name\":\"chat\",\"model\":\"chat\"");
    has(&ex, "\"parent_model\":\"tiny\"");
    get(w, &ex, "/api/ps");
    has(&ex, "{\"name\":\"sql\",\"model\":\"sql\"");
    post(w, &ex, "/api/show", "{\"model\":\"chat:latest\"}");
    assert_int_equal(ex.status, 200);
    has(&ex, "\"parent_model\":\"tiny\"");
    post(w, &ex, "/v2/repository/index", "{}");
    has(&ex, "{\"name\":\"sql\",\"version\":\"1\",\"state\":\"READY\"");
    /* A tenant's own is no model of others. */
    snprintf(w->served->adapters[1].tenant,
             sizeof(w->served->adapters[1].tenant), "acme");
    get(w, &ex, "/api/tags");
    has(&ex, "\"name\":\"sql\"");
    assert_null(strstr(ex.out, "\"name\":\"chat\""));
    post(w, &ex, "/v2/repository/index", "{}");
    assert_null(strstr(ex.out, "\"name\":\"chat\""));
    refused(w, "/api/show", "{\"model\":\"chat\"}", 404,
            "model 'chat' is not served here");
    stop_with(w);
}

static void list_of_models_has_all_adapters(void **state)
{
    static bt_exchange_t ex;
    world_t *w = &world;
    bt_served_adapter_t adapter = {.created = 1};
    uint32_t n = 0;

    (void)state;
    start(w, true);
    for (uint32_t i = 0; i < 256; i++) {
        snprintf(adapter.name, sizeof(adapter.name), "a%u", i);
        assert_int_equal(bt_served_adapter_add(w->served, &adapter, "/a"),
                         BT_OK);
    }
    get(w, &ex, "/v1/models");
    for (const char *at = ex.out; (at = strstr(at, "\"parent\":")) != NULL;
         at++) {
        n++;
    }
    assert_int_equal(n, 257);
    has(&ex, "\"id\":\"a255\"");
    stop(w);
}

static void expect_refused(world_t *w, const char *name, const char *path,
                           bt_status_t status)
{
    bt_config_t config = w->config;
    char option[320];

    snprintf(option, sizeof(option), "%s=%s", name, path);
    config.lora = option;
    assert_int_equal(bt_served_adapters_open(&w->front.models, &config),
                     status);
    bt_served_adapters_free(w->served);
    w->served->adapters = NULL;
    w->served->n_adapters = 0;
}

static void adapter_that_cannot_be_offered_is_refused(void **state)
{
    world_t *w = &world;
    const char *const dir = bt_hf_folder_make();

    (void)state;
    start(w, true);
    write_adapter(dir, 1.0f);
    bt_test_expect_log_lines(3);
    expect_refused(w, "tiny", dir, BT_ERR_EXISTS);
    expect_refused(w, "ensemble", dir, BT_ERR_EXISTS);
    expect_refused(w, "sql", "/nowhere", BT_ERR_NOT_FOUND);
    stop(w);
    bt_hf_folder_remove(dir);
}

static void model_named_like_an_adapter_is_refused(void **state)
{
    const bt_served_options_t options = {
        .name = "sql", .path = other_path, .chat_template = ""};
    bt_served_t *served = NULL;
    world_t *w = &world;
    char option[320];

    (void)state;
    start_with(w, option, sizeof(option));
    assert_int_equal(bt_served_read(&options, &served), BT_OK);
    bt_test_expect_log_lines(1);
    assert_int_equal(bt_registry_add(&w->front.models, served, other_path),
                     BT_ERR_EXISTS);
    bt_served_free(served);
    stop_with(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(model_name_of_an_adapter_sends_its_digest),
        BT_TEST(unknown_adapter_is_an_unknown_model),
        BT_TEST(adapter_is_a_model_of_ollama_and_of_the_index),
        BT_TEST(list_of_models_has_all_adapters),
        BT_TEST(adapter_that_cannot_be_offered_is_refused),
        BT_TEST(model_named_like_an_adapter_is_refused),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
