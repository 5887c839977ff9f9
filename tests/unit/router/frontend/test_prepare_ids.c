/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of a prompt that are rows of its table, by bt_prepare(). */
#include "router/frontend/prepare.h"

#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/frontend/frontend.h"
#include "tests/support/tiny_model.h"

#define WIDTH 2u
#define ROWS  3u

typedef struct rig {
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;
    bt_config_t config;
    bt_frontend_t front;
    bt_served_t served;
    uint32_t n_vocab;
    bt_api_request_t request;
    bt_prepared_t prepared;
    bt_api_error_t error;
} rig_t;

/* A request for one token, with these ids and a table of three rows. */
static void rig_init(rig_t *rig, const uint32_t *ids, size_t n, bool has_table)
{
    static const float data[ROWS * WIDTH] = {1, 2, 3, 4, 5, 6};
    const bt_table_rows_t rows = {(const uint8_t *)data, sizeof(data),
                                  BT_TABLE_F32, ROWS};
    const bt_tiny_model_t model = bt_tiny_model_default();
    char path[] = "/tmp/baton-test-XXXXXX";
    char why[256];
    const int fd = mkstemp(path);

    memset(rig, 0, sizeof(*rig));
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(bt_tiny_model_write(&model, path), BT_OK);
    assert_int_equal(bt_gguf_open(path, why, sizeof(why), &rig->gguf), BT_OK);
    (void)unlink(path);
    assert_int_equal(bt_tokenizer_load(rig->gguf, why, sizeof(why), &rig->tok),
                     BT_OK);
    rig->config.out_of_vocabulary_ids = "error";
    rig->front.config = &rig->config;
    memcpy(rig->served.name, "tiny", 5);
    rig->served.front = &rig->front;
    rig->served.tok = rig->tok;
    rig->served.width = WIDTH;
    rig->served.context_tokens = 64;
    rig->n_vocab = bt_tokenizer_n_vocab(rig->tok);
    bt_api_request_init(BT_API_GENERATE, &rig->request);
    rig->request.n = 1;
    rig->request.has_max_tokens = true;
    rig->request.max_tokens = 1;
    rig->request.prompts = bt_calloc(1, sizeof(*rig->request.prompts));
    assert_non_null(rig->request.prompts);
    rig->request.n_prompts = 1;
    rig->request.prompts[0].ids = bt_memdup(ids, n * sizeof(*ids));
    rig->request.prompts[0].n_ids = n;
    for (size_t i = 0; i < n; i++) { /* from 1000 on: behind the vocabulary */
        if (ids[i] >= 1000) {
            rig->request.prompts[0].ids[i] = rig->n_vocab + ids[i] - 1000;
        }
    }
    if (has_table) {
        assert_int_equal(
            bt_prompt_table_create(&rows, &rig->request.table.rows), BT_OK);
    }
}

static bt_status_t prepare(rig_t *rig)
{
    return bt_prepare(&rig->served, 64, &rig->request, &rig->prepared,
                      &rig->error);
}

static void rig_fini(rig_t *rig)
{
    bt_prepared_fini(&rig->prepared);
    bt_api_request_fini(&rig->request);
    bt_tokenizer_destroy(rig->tok);
    bt_gguf_close(rig->gguf);
}

static void ids_behind_the_vocabulary_are_rows(void **state)
{
    static const uint32_t ids[] = {5, 1000, 1002, 1002, 7};
    static const uint32_t want[] = {5, BT_TABLE_TOKEN, BT_TABLE_TOKEN + 2,
                                    BT_TABLE_TOKEN + 2, 7};
    const bt_prompt_t *prompt;
    rig_t rig;

    (void)state;
    rig_init(&rig, ids, 5, true);
    assert_int_equal(prepare(&rig), BT_OK);
    prompt = rig.prepared.prompts[0].prompt;
    assert_int_equal(prompt->n, 5);
    assert_memory_equal(prompt->tokens, want, sizeof(want));
    assert_ptr_equal(prompt->table, rig.request.table.rows);
    rig_fini(&rig);
}

static void table_without_ids_of_it_is_left_out(void **state)
{
    static const uint32_t ids[] = {5, 6};
    rig_t rig;

    (void)state;
    rig_init(&rig, ids, 2, true);
    assert_int_equal(prepare(&rig), BT_OK);
    assert_null(rig.prepared.prompts[0].prompt->table);
    rig_fini(&rig);
}

static void id_behind_the_table_is_refused(void **state)
{
    static const uint32_t ids[] = {5, 1003};
    char want[256];
    rig_t rig;

    (void)state;
    rig_init(&rig, ids, 2, true);
    assert_int_equal(prepare(&rig), BT_ERR_INVALID_PARAM);
    (void)snprintf(want, sizeof(want),
                   "has token id %u; this model has ids 0 to %u, and "
                   "prompt_embedding_table those up to %u",
                   rig.n_vocab + 3, rig.n_vocab - 1, rig.n_vocab + 2);
    assert_non_null(strstr(rig.error.message, want));
    rig_fini(&rig);
}

static void rows_of_another_width_are_refused(void **state)
{
    static const uint32_t ids[] = {5, 1000};
    rig_t rig;

    (void)state;
    rig_init(&rig, ids, 2, true);
    rig.served.width = 64;
    assert_int_equal(prepare(&rig), BT_ERR_INVALID_PARAM);
    assert_string_equal(rig.error.message,
                        "prompt_embedding_table has rows of 2 elements; "
                        "embeddings of model tiny have 64");
    rig_fini(&rig);
}

static void id_behind_the_vocabulary_needs_a_table(void **state)
{
    static const uint32_t ids[] = {5, 1000};
    rig_t rig;

    (void)state;
    rig_init(&rig, ids, 2, false);
    assert_int_equal(prepare(&rig), BT_ERR_INVALID_PARAM);
    assert_null(strstr(rig.error.message, "prompt_embedding_table"));
    rig_fini(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(ids_behind_the_vocabulary_are_rows),
        BT_TEST(table_without_ids_of_it_is_left_out),
        BT_TEST(id_behind_the_table_is_refused),
        BT_TEST(rows_of_another_width_are_refused),
        BT_TEST(id_behind_the_vocabulary_needs_a_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
