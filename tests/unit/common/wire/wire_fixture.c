/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/common/wire/wire_fixture.h"

#include <stdlib.h>
#include <string.h>

static bt_wire_decoder_t *dec;

int wire_setup(void **state)
{
    (void)state;
    return (bt_wire_decoder_create(&dec) == BT_OK) ? 0 : -1;
}

int wire_teardown(void **state)
{
    (void)state;
    bt_wire_decoder_destroy(dec);
    return 0;
}

static const uint8_t program[] = {'B', 'T', 'G'};
static const uint8_t table[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const uint32_t draft_ids[] = {8, 9};
static const uint32_t processor_ids[] = {5, 6, 7, 8, 9, 10};
static const uint32_t prompt[] = {1, 49151, 7, 0x01020304, UINT32_MAX};

static const uint8_t blob[] = {0, 255, 'k', 'v', 0, 9};

static const bt_wire_rank_t one_rank = {
    .block_bytes = 368640, .kvt = blob, .kvt_bytes = sizeof(blob)};

static const bt_wire_region_t one_window = {.blob = blob,
                                            .blob_bytes = sizeof(blob)};

static const bt_bad_word_t bad_words[] = {
    {.n = 2, .ids = {11, 12}},
    {.n = BT_MAX_BAD_WORD_TOKENS, .ids = {1, 2, 3, [15] = 99}},
};

static const bt_logit_bias_t logit_biases[] = {{7, -100.0f}, {49151, 0.5f}};

const bt_token_t wire_tokens[2] = {
    {{UINT64_MAX, 2}, 0, 5, BT_FINISH_NONE},
    {{3, 0}, 700, 49151, BT_FINISH_LENGTH},
};

/* -0.7 has no short form: every bit counts. */
static const bt_token_score_t scores[1] = {
    {.token = 1,
     .score = {.logprob = -0.7,
               .n_top = 2,
               .top_ids = {49151, 7},
               .top_logprobs = {-0.125, -1e-300}}}};

#define PROCESSORS                                                           \
    {                                                                        \
        .no_repeat_ngram_size = 3, .n_penalized_prompt = 9,                  \
        .top_p_decay = 0.9375f, .top_p_min = 0.25f, .top_p_reset_id = 7,     \
        .top_n_sigma = 1.5f, .typical_p = 0.75f, .xtc_probability = 0.5f,    \
        .xtc_threshold = 0.125f, .dry_multiplier = 0.75f, .dry_base = 1.75f, \
        .dry_allowed_length = 2, .dry_last_n = 4096, .thinking_budget = 100, \
        .is_thinking = 1, .n_allowed_ids = 2, .n_dry_breakers = 1,           \
        .n_think_open = 1, .n_think_close = 2, .n_ids = 6,                   \
        .ids = processor_ids,                                                \
    }

#define SAMPLING                                                       \
    {                                                                  \
        .temperature = 0.7f, .top_k = 40, .top_p = 0.9f,               \
        .repetition_penalty = 1.1f, .presence_penalty = -0.5f,         \
        .frequency_penalty = 0.25f, .seed = 0xfedcba9876543210u,       \
        .min_tokens = 3, .n_end_ids = 2, .end_ids = {2, 49152},        \
        .n_bad_words = 2, .bad_words = bad_words, .n_logit_biases = 2, \
        .logit_biases = logit_biases, .min_p = 0.0625f,                \
        .processors = PROCESSORS                                       \
    }

bt_sampling_t wire_sampling(void)
{
    static const bt_sampling_t s = SAMPLING;

    return s;
}

bt_msg_t wire_hello(void)
{
    /* Static, so that the padding is zero: messages are compared whole. */
    static const bt_msg_t m = {.type = BT_MSG_HELLO,
                               .u.hello = {.protocol = BT_WIRE_PROTOCOL,
                                           .role = BT_ROLE_DECODE,
                                           .instance = 77,
                                           .name = "decode-0",
                                           .model = {1, UINT64_MAX},
                                           .profile = "cpu-avx2/tp1/f16",
                                           .kv_type = 1,
                                           .tokens_per_block = 32,
                                           .layout = {3, 4},
                                           .context_tokens = 8192,
                                           .max_batch = 16,
                                           .n_blocks = 1024,
                                           .flags = BT_HELLO_LOCAL_PREFILL,
                                           .ranks = &one_rank,
                                           .n_ranks = 1,
                                           .protocol_min = 1,
                                           .model_name = "smollm2-135m",
                                           .version_text = "0.1.0",
                                           .tp = 1,
                                           .pp = 1,
                                           .span_blocks = 2,
                                           .window_blocks = 5,
                                           .window_spans = 69,
                                           .weights = {7, "step-7", "/w/7"},
                                           .base = {8, UINT64_MAX},
                                           .sleep_order = 10}};

    return m;
}

bt_msg_t wire_request(void)
{
    static const bt_msg_t m = {
        .type = BT_MSG_REQUEST,
        .u.request = {.key = {42, 1},
                      .kind = BT_REQUEST_GENERATE,
                      .peer = 99,
                      .n_prompt = 4,
                      .n_tokens = 5,
                      .tokens = prompt,
                      .max_new = 128,
                      .deadline_ms = 60000,
                      .priority = 2,
                      .sampling = SAMPLING,
                      .space = {5, UINT64_MAX},
                      .fanout = 41,
                      .fanout_size = 4096,
                      .wants = {5, 20},
                      .first_ms = 1500,
                      .itl_ms = 40,
                      .draft_ids = draft_ids,
                      .n_draft_ids = 2,
                      .max_drafts = 6,
                      .beams = {8, 3, -0.5f, 2},
                      .grammar = program,
                      .grammar_bytes = 3,
                      .complete_within = 77,
                      .table = {table, 12, BT_TABLE_F16, 3},
                      .adapter = {6, UINT64_MAX}}};

    return m;
}

bt_msg_t wire_stats(void)
{
    static const bt_msg_t m = {
        .type = BT_MSG_STATS,
        .u.stats = {
            1,
            2,
            3,
            4,
            5,
            6,
            7,
            8,
            9,
            10,
            11,
            12,
            13,
            14,
            15,
            16,
            17,
            18,
            19,
            20,
            21,
            22,
            23,
            24,
            UINT64_MAX,
            26,
            27,
            28,
            29,
            30,
            31,
            32,
            33,
            34,
            3,
            36,
            37,
            {38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49},
            50,
            51,
            52,
            53,
            54,
            55,
            56,
            57,
            58,
            59,
            BT_ADMIN_STATE_OFF,
            61,
            62,
            63,
            64,
            {65, 66, 85, 87, 93},
            {67, 68, 86, 88, 94},
            {69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84},
            95,
            96,
            97,
            98}};

    return m;
}

size_t wire_samples(bt_msg_t out[WIRE_N_SAMPLES])
{
    size_t n = 0;

    out[n++] = wire_hello();
    out[n++] = wire_request();
    out[n++] = (bt_msg_t){.type = BT_MSG_GRANT,
                          .u.grant = {{1, 2}, 3, 64, &one_window, 1}};
    out[n++] =
        (bt_msg_t){.type = BT_MSG_CANCEL, .u.cancel = {{1, 2}, BT_FINISH_STOP}};
    out[n++] = (bt_msg_t){
        .type = BT_MSG_TOKENS,
        .u.tokens = {
            .n = 2, .tokens = wire_tokens, .n_scores = 1, .scores = scores}};
    out[n++] = (bt_msg_t){.type = BT_MSG_PREFILLED,
                          .u.prefilled = {{1, 2}, 3, 4, 5, 6}};
    out[n++] = (bt_msg_t){.type = BT_MSG_JOINED,
                          .u.joined = {{1, 2}, 3, 4, 5, 6, 7, 8}};
    out[n++] = (bt_msg_t){
        .type = BT_MSG_FAILED,
        .u.failed = {{1, 2}, BT_ERR_INTERNAL, "prefill: out of blocks"}};
    out[n++] = (bt_msg_t){.type = BT_MSG_ENDED,
                          .u.ended = {{1, 2}, 3, 4, 5, 6, 7, 8, 9, 10}};
    out[n++] = wire_stats();
    out[n++] = (bt_msg_t){
        .type = BT_MSG_PEER,
        .u.peer = {5, "decode-1", &one_rank, 1, 1, 1, {7, UINT64_MAX}, 1}};
    out[n++] = (bt_msg_t){.type = BT_MSG_PEER_GONE, .u.peer_gone = {5}};
    out[n++] = (bt_msg_t){.type = BT_MSG_DRAIN};
    out[n++] = (bt_msg_t){.type = BT_MSG_ROLE,
                          .u.role = {BT_ROLES_BOTH, BT_ADMIN_STATE_OFF}};
    out[n++] = (bt_msg_t){
        .type = BT_MSG_ROWS,
        .u.rows = {{1, 2}, BT_ROWS_LOGITS, 3, 4, 5, blob, sizeof(blob)}};
    out[n++] = (bt_msg_t){.type = BT_MSG_KV_LINK,
                          .u.kv_link = {5, BT_KV_LINK_FAILED,
                                        "10.0.0.2:4711 on eth0", "no answer"}};
    out[n++] = (bt_msg_t){
        .type = BT_MSG_BEAM,
        .u.beam = {
            {1, 2}, 3, 4, BT_FINISH_STOP, draft_ids, 2, blob, sizeof(blob)}};
    out[n++] = (bt_msg_t){.type = BT_MSG_WEIGHTS,
                          .u.weights = {{7, "step-7", "/w/7"}, 1}};
    out[n++] = (bt_msg_t){
        .type = BT_MSG_WEIGHTS_CHECKED,
        .u.weights_checked = {7, BT_ERR_MISMATCH, {1, 2}, "another one"}};
    out[n++] = (bt_msg_t){.type = BT_MSG_SLEEP, .u.sleep = {UINT64_MAX, 1}};
    out[n++] =
        (bt_msg_t){.type = BT_MSG_CACHE_RESET, .u.cache_reset = {UINT64_MAX}};
    out[n++] = (bt_msg_t){.type = BT_MSG_CACHE_IS_EMPTY,
                          .u.cache_is_empty = {UINT64_MAX, 2}};
    out[n++] = (bt_msg_t){
        .type = BT_MSG_ADAPTER,
        .u.adapter = {{1, UINT64_MAX}, 1, "sql", "/l/sql", UINT64_MAX}};
    out[n++] =
        (bt_msg_t){.type = BT_MSG_ADAPTER_READY,
                   .u.adapter_ready = {{1, 2}, BT_ERR_MISMATCH, "another one"}};
    out[n++] = (bt_msg_t){.type = BT_MSG_ADAPTER_WANT,
                          .u.adapter_want = {{1, UINT64_MAX}, UINT64_MAX}};
    out[n++] = (bt_msg_t){
        .type = BT_MSG_ADAPTER_PART,
        .u.adapter_part = {{1, 2}, UINT64_MAX, (const uint8_t *)"abc", 3}};
    return n;
}

bt_strbuf_t wire_encoded(const bt_msg_t *msg)
{
    bt_strbuf_t buf;

    bt_strbuf_init(&buf, WIRE_LIMIT);
    bt_wire_encode(msg, &buf);
    assert_int_equal(bt_strbuf_status(&buf), BT_OK);
    return buf;
}

/* The input lies in memory of its exact size, so that a sanitizer sees a read
 * past its end. */
bt_status_t wire_decode(const void *data, size_t n, bt_msg_t *msg)
{
    char *copy = malloc((n == 0) ? 1 : n);
    bt_status_t status;

    assert_non_null(copy);
    if (n > 0) {
        memcpy(copy, data, n);
    }
    status = bt_wire_decode(dec, copy, n, msg);
    free(copy); /* what was decoded may not point into the input */
    return status;
}

static void assert_sampling_equal(const bt_sampling_t *a,
                                  const bt_sampling_t *b)
{
    bt_sampling_t x = *a;
    bt_sampling_t y = *b;

    if (x.processors.n_ids > 0) {
        assert_int_equal(x.processors.n_ids, y.processors.n_ids);
        assert_memory_equal(x.processors.ids, y.processors.ids,
                            x.processors.n_ids * sizeof(uint32_t));
    }
    x.processors.ids = y.processors.ids;
    assert_int_equal(x.n_bad_words, y.n_bad_words);
    for (uint32_t i = 0; i < x.n_bad_words; i++) {
        assert_memory_equal(&x.bad_words[i], &y.bad_words[i],
                            sizeof(x.bad_words[i]));
    }
    assert_int_equal(x.n_logit_biases, y.n_logit_biases);
    assert_memory_equal(x.logit_biases, y.logit_biases,
                        x.n_logit_biases * sizeof(x.logit_biases[0]));
    x.bad_words = NULL;
    y.bad_words = NULL;
    x.logit_biases = NULL;
    y.logit_biases = NULL;
    assert_memory_equal(&x, &y, sizeof(x));
}

static void assert_ranks_equal(const bt_wire_rank_t *a, const bt_wire_rank_t *b,
                               uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(a[i].block_bytes, b[i].block_bytes);
        assert_int_equal(a[i].kvt_bytes, b[i].kvt_bytes);
        assert_memory_equal(a[i].kvt, b[i].kvt, a[i].kvt_bytes);
    }
}

static void assert_windows_equal(const bt_wire_region_t *a,
                                 const bt_wire_region_t *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(a[i].to, b[i].to);
        assert_int_equal(a[i].from, b[i].from);
        assert_int_equal(a[i].blob_bytes, b[i].blob_bytes);
        assert_memory_equal(a[i].blob, b[i].blob, a[i].blob_bytes);
    }
}

void wire_assert_equal(const bt_msg_t *a, const bt_msg_t *b)
{
    bt_msg_t x = *a;
    bt_msg_t y = *b;

    assert_int_equal(x.type, y.type);
    switch (x.type) {
    case BT_MSG_HELLO:
        assert_int_equal(x.u.hello.n_ranks, y.u.hello.n_ranks);
        assert_ranks_equal(x.u.hello.ranks, y.u.hello.ranks, x.u.hello.n_ranks);
        x.u.hello.ranks = y.u.hello.ranks;
        break;
    case BT_MSG_REQUEST:
        assert_memory_equal(x.u.request.tokens, y.u.request.tokens,
                            sizeof(prompt));
        x.u.request.tokens = y.u.request.tokens;
        assert_int_equal(x.u.request.n_draft_ids, y.u.request.n_draft_ids);
        if (x.u.request.n_draft_ids > 0) {
            assert_memory_equal(x.u.request.draft_ids, y.u.request.draft_ids,
                                sizeof(draft_ids));
        }
        x.u.request.draft_ids = y.u.request.draft_ids;
        assert_int_equal(x.u.request.grammar_bytes, y.u.request.grammar_bytes);
        if (x.u.request.grammar_bytes > 0) {
            assert_memory_equal(x.u.request.grammar, y.u.request.grammar,
                                x.u.request.grammar_bytes);
        }
        x.u.request.grammar = y.u.request.grammar;
        assert_int_equal(x.u.request.table.bytes, y.u.request.table.bytes);
        if (x.u.request.table.bytes > 0) {
            assert_memory_equal(x.u.request.table.data, y.u.request.table.data,
                                x.u.request.table.bytes);
        }
        x.u.request.table.data = y.u.request.table.data;
        assert_sampling_equal(&x.u.request.sampling, &y.u.request.sampling);
        x.u.request.sampling = y.u.request.sampling;
        break;
    case BT_MSG_GRANT:
        assert_int_equal(x.u.grant.n_regions, y.u.grant.n_regions);
        assert_windows_equal(x.u.grant.regions, y.u.grant.regions,
                             x.u.grant.n_regions);
        x.u.grant.regions = y.u.grant.regions;
        break;
    case BT_MSG_TOKENS:
        for (uint32_t i = 0; i < x.u.tokens.n; i++) {
            assert_memory_equal(&x.u.tokens.tokens[i], &y.u.tokens.tokens[i],
                                sizeof(bt_token_t));
        }
        x.u.tokens.tokens = y.u.tokens.tokens;
        assert_int_equal(x.u.tokens.n_scores, y.u.tokens.n_scores);
        for (uint32_t i = 0; i < x.u.tokens.n_scores; i++) {
            assert_memory_equal(&x.u.tokens.scores[i], &y.u.tokens.scores[i],
                                sizeof(bt_token_score_t));
        }
        x.u.tokens.scores = y.u.tokens.scores;
        break;
    case BT_MSG_ROWS:
        assert_int_equal(x.u.rows.data_bytes, y.u.rows.data_bytes);
        assert_memory_equal(x.u.rows.data, y.u.rows.data, x.u.rows.data_bytes);
        x.u.rows.data = y.u.rows.data;
        break;
    case BT_MSG_ADAPTER_PART:
        assert_int_equal(x.u.adapter_part.data_bytes,
                         y.u.adapter_part.data_bytes);
        assert_memory_equal(x.u.adapter_part.data, y.u.adapter_part.data,
                            x.u.adapter_part.data_bytes);
        x.u.adapter_part.data = y.u.adapter_part.data;
        break;
    case BT_MSG_BEAM:
        assert_int_equal(x.u.beam.n_ids, y.u.beam.n_ids);
        assert_memory_equal(x.u.beam.ids, y.u.beam.ids, sizeof(draft_ids));
        assert_int_equal(x.u.beam.logprobs_bytes, y.u.beam.logprobs_bytes);
        assert_memory_equal(x.u.beam.logprobs, y.u.beam.logprobs,
                            x.u.beam.logprobs_bytes);
        x.u.beam.ids = y.u.beam.ids;
        x.u.beam.logprobs = y.u.beam.logprobs;
        break;
    case BT_MSG_PEER:
        assert_int_equal(x.u.peer.n_ranks, y.u.peer.n_ranks);
        assert_ranks_equal(x.u.peer.ranks, y.u.peer.ranks, x.u.peer.n_ranks);
        x.u.peer.ranks = y.u.peer.ranks;
        break;
    default:
        break;
    }
    assert_memory_equal(&x.u, &y.u, sizeof(x.u));
}

size_t wire_object_bytes(const uint8_t *p)
{
    size_t n = 1;
    size_t items = 0;

    if ((p[0] <= 0x7f) || (p[0] >= 0xe0)) {
        return 1;
    }
    if ((p[0] & 0xf0) == 0x90) {
        items = p[0] & 0x0fu;
    } else if ((p[0] & 0xe0) == 0xa0) {
        return 1u + (p[0] & 0x1fu);
    } else {
        switch (p[0]) {
        case 0xc4:
        case 0xd9:
            return 2u + p[1];
        case 0xca:
        case 0xce:
        case 0xd2:
            return 5;
        case 0xcc:
        case 0xd0:
            return 2;
        case 0xcd:
        case 0xd1:
            return 3;
        case 0xcf:
        case 0xd3:
            return 9;
        case 0xdc:
            n = 3;
            items = (size_t)p[1] << 8 | p[2];
            break;
        default:
            fail_msg("format %02x in a sample", p[0]);
        }
    }
    for (size_t i = 0; i < items; i++) {
        n += wire_object_bytes(p + n);
    }
    return n;
}

size_t wire_array_header(const uint8_t *p, size_t *n_p)
{
    if (p[0] == 0xdc) {
        *n_p = (size_t)p[1] << 8 | p[2];
        return 3;
    }
    assert_int_equal(p[0] & 0xf0, 0x90);
    *n_p = p[0] & 0x0fu;
    return 1;
}

void wire_put_array(bt_strbuf_t *out, size_t n)
{
    const uint8_t header[] = {0xdc, (uint8_t)(n >> 8), (uint8_t)n};

    bt_strbuf_append(out, header, sizeof(header));
}

bt_strbuf_t wire_with_element(const bt_strbuf_t *in, size_t at,
                              const void *other, size_t other_bytes)
{
    const uint8_t *p = (const uint8_t *)in->data;
    bt_strbuf_t out;
    size_t n;

    bt_strbuf_init(&out, WIRE_LIMIT);
    p += wire_array_header(p, &n);
    wire_put_array(&out, n);
    for (size_t i = 0; i < n; i++) {
        const size_t own = wire_object_bytes(p);

        if (i == at) {
            bt_strbuf_append(&out, other, other_bytes);
        } else {
            bt_strbuf_append(&out, p, own);
        }
        p += own;
    }
    return out;
}

bt_strbuf_t wire_cut_to(const bt_strbuf_t *in, size_t keep)
{
    const uint8_t *p = (const uint8_t *)in->data;
    bt_strbuf_t out;
    size_t bytes = 0;
    size_t n;
    const size_t header = wire_array_header(p, &n);

    assert_true(keep <= n);
    bt_strbuf_init(&out, WIRE_LIMIT);
    for (size_t k = 0; k < keep; k++) {
        bytes += wire_object_bytes(p + header + bytes);
    }
    wire_put_array(&out, keep);
    bt_strbuf_append(&out, p + header, bytes);
    return out;
}
