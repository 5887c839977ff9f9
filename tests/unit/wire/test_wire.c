/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/wire/wire.h"

#define LIMIT (32u << 20)

static bt_wire_decoder_t *dec;

static const uint32_t prompt[] = {1, 49151, 7, 0x01020304, UINT32_MAX};
static const uint8_t blob[] = {0, 255, 'k', 'v', 0, 9};
static const bt_bad_word_t bad_words[] = {
    {.n = 2, .ids = {11, 12}},
    {.n = BT_MAX_BAD_WORD_TOKENS, .ids = {1, 2, 3, [15] = 99}},
};
static const bt_token_t tokens[] = {
    {{UINT64_MAX, 2}, 0, 5, BT_FINISH_NONE},
    {{3, 0}, 700, 49151, BT_FINISH_LENGTH},
};

static bt_sampling_t sampling_full(void)
{
    const bt_sampling_t s = {.temperature = 0.7f,
                             .top_k = 40,
                             .top_p = 0.9f,
                             .repetition_penalty = 1.1f,
                             .presence_penalty = -0.5f,
                             .frequency_penalty = 0.25f,
                             .seed = 0xfedcba9876543210u,
                             .min_tokens = 3,
                             .n_end_ids = 2,
                             .end_ids = {2, 49152},
                             .n_bad_words = 2,
                             .bad_words = bad_words};

    return s;
}

static bt_msg_t sample_hello(void)
{
    bt_msg_t m = {.type = BT_MSG_HELLO};

    m.u.hello = (bt_msg_hello_t){.protocol = BT_WIRE_PROTOCOL,
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
                                 .kvt = blob,
                                 .kvt_bytes = sizeof(blob),
                                 .protocol_min = 1,
                                 .model_name = "smollm2-135m",
                                 .version_text = "0.1.0"};
    return m;
}

static bt_msg_t sample_request(void)
{
    bt_msg_t m = {.type = BT_MSG_REQUEST};

    m.u.request = (bt_msg_request_t){.key = {42, 1},
                                     .kind = BT_REQUEST_GENERATE,
                                     .peer = 99,
                                     .n_prompt = 4,
                                     .n_tokens = 5,
                                     .tokens = prompt,
                                     .max_new = 128,
                                     .deadline_ms = 60000,
                                     .priority = 2,
                                     .sampling = sampling_full()};
    return m;
}

static bt_msg_t sample_stats(void)
{
    bt_msg_t m = {.type = BT_MSG_STATS};

    m.u.stats = (bt_msg_stats_t){
        1,  2,  3,  4,  5,  6,  7,  8,  9,          10, 11, 12, 13, 14, 15, 16,
        17, 18, 19, 20, 21, 22, 23, 24, UINT64_MAX, 26, 27, 28, 29, 30, 31};
    return m;
}

/* One of each type, every field set. */
static size_t samples(bt_msg_t *out)
{
    size_t n = 0;

    out[n++] = sample_hello();
    out[n++] = sample_request();
    out[n++] =
        (bt_msg_t){.type = BT_MSG_GRANT,
                   .u.grant = {{1, 2}, 3, 64, blob, (uint32_t)sizeof(blob)}};
    out[n++] =
        (bt_msg_t){.type = BT_MSG_CANCEL, .u.cancel = {{1, 2}, BT_FINISH_STOP}};
    out[n++] = (bt_msg_t){.type = BT_MSG_TOKENS, .u.tokens = {2, tokens}};
    out[n++] = (bt_msg_t){.type = BT_MSG_PREFILLED,
                          .u.prefilled = {{1, 2}, 3, 4, 5, 6}};
    out[n++] = (bt_msg_t){.type = BT_MSG_JOINED,
                          .u.joined = {{1, 2}, 3, 4, 5, 6, 7, 8}};
    out[n++] = (bt_msg_t){
        .type = BT_MSG_FAILED,
        .u.failed = {{1, 2}, BT_ERR_INTERNAL, "prefill: out of blocks"}};
    out[n++] =
        (bt_msg_t){.type = BT_MSG_ENDED, .u.ended = {{1, 2}, 3, 4, 5, 6}};
    out[n++] = sample_stats();
    out[n++] =
        (bt_msg_t){.type = BT_MSG_PEER,
                   .u.peer = {5, "decode-1", blob, (uint32_t)sizeof(blob)}};
    out[n++] = (bt_msg_t){.type = BT_MSG_PEER_GONE, .u.peer_gone = {5}};
    out[n++] = (bt_msg_t){.type = BT_MSG_DRAIN};
    return n;
}

#define N_SAMPLES 13

static bt_strbuf_t encoded(const bt_msg_t *msg)
{
    bt_strbuf_t buf;

    bt_strbuf_init(&buf, LIMIT);
    bt_wire_encode(msg, &buf);
    assert_int_equal(bt_strbuf_status(&buf), BT_OK);
    return buf;
}

/* The input lies in memory of its exact size, so that a sanitizer sees a read
 * past its end. */
static bt_status_t decode(const void *data, size_t n, bt_msg_t *msg)
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

    assert_int_equal(x.n_bad_words, y.n_bad_words);
    for (uint32_t i = 0; i < x.n_bad_words; i++) {
        assert_memory_equal(&x.bad_words[i], &y.bad_words[i],
                            sizeof(x.bad_words[i]));
    }
    x.bad_words = NULL;
    y.bad_words = NULL;
    assert_memory_equal(&x, &y, sizeof(x));
}

/* Blobs and arrays by content, everything else bit by bit. */
static void assert_message_equal(const bt_msg_t *a, const bt_msg_t *b)
{
    bt_msg_t x = *a;
    bt_msg_t y = *b;

    assert_int_equal(x.type, y.type);
    switch (x.type) {
    case BT_MSG_HELLO:
        assert_memory_equal(x.u.hello.kvt, y.u.hello.kvt, sizeof(blob));
        x.u.hello.kvt = y.u.hello.kvt;
        break;
    case BT_MSG_REQUEST:
        assert_memory_equal(x.u.request.tokens, y.u.request.tokens,
                            sizeof(prompt));
        x.u.request.tokens = y.u.request.tokens;
        assert_sampling_equal(&x.u.request.sampling, &y.u.request.sampling);
        x.u.request.sampling = y.u.request.sampling;
        break;
    case BT_MSG_GRANT:
        assert_memory_equal(x.u.grant.blob, y.u.grant.blob, sizeof(blob));
        x.u.grant.blob = y.u.grant.blob;
        break;
    case BT_MSG_TOKENS:
        for (uint32_t i = 0; i < x.u.tokens.n; i++) {
            assert_memory_equal(&x.u.tokens.tokens[i], &y.u.tokens.tokens[i],
                                sizeof(bt_token_t));
        }
        x.u.tokens.tokens = y.u.tokens.tokens;
        break;
    case BT_MSG_PEER:
        assert_memory_equal(x.u.peer.kvt, y.u.peer.kvt, sizeof(blob));
        x.u.peer.kvt = y.u.peer.kvt;
        break;
    default:
        break;
    }
    assert_memory_equal(&x.u, &y.u, sizeof(x.u));
}

static void every_message_comes_back_as_it_was(void **state)
{
    bt_msg_t msgs[N_SAMPLES];

    (void)state;
    memset(msgs, 0, sizeof(msgs));
    assert_int_equal(samples(msgs), N_SAMPLES);
    for (size_t i = 0; i < N_SAMPLES; i++) {
        bt_strbuf_t buf = encoded(&msgs[i]);
        bt_msg_t got;

        memset(&got, 0xA5, sizeof(got));
        assert_int_equal(decode(buf.data, buf.len, &got), BT_OK);
        assert_message_equal(&got, &msgs[i]);
        bt_strbuf_fini(&buf);
    }
}

/* Worked by hand from the msgpack specification: array of 4, fixint 4 (CANCEL),
 * uint 64, fixint, fixint. */
static void a_cancel_is_these_bytes(void **state)
{
    static const uint8_t expected[] = {0x94, 4, 0xcf, 1, 2, 3, 4,
                                       5,    6, 7,    8, 3, 1};
    const bt_msg_t msg = {
        .type = BT_MSG_CANCEL,
        .u.cancel = {{0x0102030405060708u, 3}, BT_FINISH_STOP}};
    bt_strbuf_t buf = encoded(&msg);

    (void)state;
    assert_int_equal(buf.len, sizeof(expected));
    assert_memory_equal(buf.data, expected, sizeof(expected));
    bt_strbuf_fini(&buf);
}

static void every_truncation_of_every_message_is_refused(void **state)
{
    bt_msg_t msgs[N_SAMPLES];

    (void)state;
    (void)samples(msgs);
    for (size_t i = 0; i < N_SAMPLES; i++) {
        bt_strbuf_t buf = encoded(&msgs[i]);

        for (size_t n = 0; n < buf.len; n++) {
            bt_msg_t got;

            assert_int_equal(decode(buf.data, n, &got), BT_ERR_BAD_MESSAGE);
        }
        bt_strbuf_fini(&buf);
    }
}

/* Bytes of the object at p, for the formats that our messages consist of. */
static size_t object_bytes(const uint8_t *p)
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
        n += object_bytes(p + n);
    }
    return n;
}

/* Header and number of elements of the array at p. */
static size_t array_header(const uint8_t *p, size_t *n_p)
{
    if (p[0] == 0xdc) {
        *n_p = (size_t)p[1] << 8 | p[2];
        return 3;
    }
    assert_int_equal(p[0] & 0xf0, 0x90);
    *n_p = p[0] & 0x0fu;
    return 1;
}

static void put_array(bt_strbuf_t *out, size_t n)
{
    const uint8_t header[] = {0xdc, (uint8_t)(n >> 8), (uint8_t)n};

    bt_strbuf_append(out, header, sizeof(header));
}

/* Copy of the message in which element `at` is `other`. */
static bt_strbuf_t with_element(const bt_strbuf_t *in, size_t at,
                                const void *other, size_t other_bytes)
{
    const uint8_t *p = (const uint8_t *)in->data;
    bt_strbuf_t out;
    size_t n;

    bt_strbuf_init(&out, LIMIT);
    p += array_header(p, &n);
    put_array(&out, n);
    for (size_t i = 0; i < n; i++) {
        const size_t own = object_bytes(p);

        if (i == at) {
            bt_strbuf_append(&out, other, other_bytes);
        } else {
            bt_strbuf_append(&out, p, own);
        }
        p += own;
    }
    return out;
}

static void a_field_of_a_wrong_type_is_refused(void **state)
{
    /* nil, true, {}, [nil] of no message, ext, float 64 */
    static const struct {
        uint8_t bytes[9];
        size_t n;
    } others[] = {{{0xc0}, 1},        {{0xc3}, 1},       {{0x80}, 1},
                  {{0x91, 0xc0}, 2},  {{0xd4, 1, 0}, 3}, {{0xcb, 0x40}, 9},
                  {{0xc4, 1, 'x'}, 3}};
    bt_msg_t msgs[N_SAMPLES];

    (void)state;
    (void)samples(msgs);
    for (size_t i = 0; i < N_SAMPLES; i++) {
        bt_strbuf_t buf = encoded(&msgs[i]);
        size_t n_fields;

        (void)array_header((const uint8_t *)buf.data, &n_fields);
        for (size_t at = 0; at < n_fields; at++) {
            for (size_t k = 0; k < BT_ARRAY_LEN(others); k++) {
                bt_strbuf_t bad =
                    with_element(&buf, at, others[k].bytes, others[k].n);
                bt_msg_t got;
                const bt_status_t status = decode(bad.data, bad.len, &got);

                /* a one-byte blob is a blob */
                if ((status == BT_OK) && (others[k].bytes[0] == 0xc4)) {
                    assert_true(
                        (msgs[i].type == BT_MSG_HELLO && at == 16) ||
                        (msgs[i].type == BT_MSG_GRANT && at == n_fields - 1) ||
                        (msgs[i].type == BT_MSG_PEER && at == n_fields - 1));
                } else {
                    assert_int_equal(status, BT_ERR_BAD_MESSAGE);
                }
                bt_strbuf_fini(&bad);
            }
        }
        bt_strbuf_fini(&buf);
    }
}

static void fields_of_a_newer_peer_are_passed_over(void **state)
{
    /* One of every format of the specification. */
    static const uint8_t extra[] = {
        0xc0, 0xc2, 0xc3, 0xc4, 1,    0,    0xc5, 0,    1,    0,    0xc6, 0,
        0,    0,    1,    0,    0xc7, 1,    5,    0,    0xc8, 0,    1,    5,
        0,    0xc9, 0,    0,    0,    1,    5,    0,    0xca, 0,    0,    0,
        0,    0xcb, 0,    0,    0,    0,    0,    0,    0,    0,    0xcc, 1,
        0xcd, 0,    1,    0xce, 0,    0,    0,    1,    0xcf, 0,    0,    0,
        0,    0,    0,    0,    1,    0xd0, 1,    0xd1, 0,    1,    0xd2, 0,
        0,    0,    1,    0xd3, 0,    0,    0,    0,    0,    0,    0,    1,
        0xd4, 5,    0,    0xd5, 5,    0,    0,    0xd6, 5,    0,    0,    0,
        0,    0xd7, 5,    0,    0,    0,    0,    0,    0,    0,    0,    0xd8,
        5,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,
        0,    0,    0,    0,    0,    0xd9, 1,    'a',  0xda, 0,    1,    'a',
        0xdb, 0,    0,    0,    1,    'a',  0xdc, 0,    1,    0xc0, 0xdd, 0,
        0,    0,    1,    0xc0, 0xde, 0,    1,    1,    2,    0xdf, 0,    0,
        0,    1,    1,    2,    0xe0, 0x7f, 0x81, 1,    0x91, 0x90, 0xa1, 'b'};
    const size_t n_extra = 35;
    bt_msg_t msgs[N_SAMPLES];

    (void)state;
    memset(msgs, 0, sizeof(msgs));
    (void)samples(msgs);
    for (size_t i = 0; i < N_SAMPLES; i++) {
        bt_strbuf_t buf = encoded(&msgs[i]);
        bt_strbuf_t longer;
        bt_msg_t got;
        size_t n;
        const size_t header = array_header((const uint8_t *)buf.data, &n);

        memset(&got, 0, sizeof(got));
        bt_strbuf_init(&longer, LIMIT);
        put_array(&longer, n + n_extra);
        bt_strbuf_append(&longer, buf.data + header, buf.len - header);
        bt_strbuf_append(&longer, extra, sizeof(extra));
        assert_int_equal(decode(longer.data, longer.len, &got), BT_OK);
        assert_message_equal(&got, &msgs[i]);

        bt_strbuf_append(&longer, "", 1); /* outside of the array */
        assert_int_equal(decode(longer.data, longer.len, &got),
                         BT_ERR_BAD_MESSAGE);
        bt_strbuf_fini(&longer);
        bt_strbuf_fini(&buf);
    }
}

/* The message without its last elements: the first @a keep are left. */
static bt_strbuf_t cut_to(const bt_strbuf_t *in, size_t keep)
{
    const uint8_t *p = (const uint8_t *)in->data;
    bt_strbuf_t out;
    size_t bytes = 0;
    size_t n;
    const size_t header = array_header(p, &n);

    assert_true(keep <= n);
    bt_strbuf_init(&out, LIMIT);
    for (size_t k = 0; k < keep; k++) {
        bytes += object_bytes(p + header + bytes);
    }
    put_array(&out, keep);
    bt_strbuf_append(&out, p + header, bytes);
    return out;
}

/* Elements of each message of protocol 2 as it was when that landed, the type
 * among them: counted in tests/fuzz/make_wire_corpus.py, in its list WIRE. */
static const size_t n_first[] = {
    [BT_MSG_HELLO] = 17, [BT_MSG_REQUEST] = 11, [BT_MSG_GRANT] = 6,
    [BT_MSG_CANCEL] = 4, [BT_MSG_TOKENS] = 2,   [BT_MSG_PREFILLED] = 7,
    [BT_MSG_JOINED] = 9, [BT_MSG_FAILED] = 5,   [BT_MSG_ENDED] = 7,
    [BT_MSG_STATS] = 26, [BT_MSG_PEER] = 4,     [BT_MSG_PEER_GONE] = 2,
    [BT_MSG_DRAIN] = 1,
};

static void a_field_that_was_there_from_the_first_is_required(void **state)
{
    bt_msg_t msgs[N_SAMPLES];

    (void)state;
    (void)samples(msgs);
    for (size_t i = 0; i < N_SAMPLES; i++) {
        bt_strbuf_t buf = encoded(&msgs[i]);

        for (size_t keep = 0; keep <= n_first[msgs[i].type]; keep++) {
            bt_strbuf_t shorter = cut_to(&buf, keep);
            bt_msg_t got;

            assert_int_equal(
                decode(shorter.data, shorter.len, &got),
                (keep == n_first[msgs[i].type]) ? BT_OK : BT_ERR_BAD_MESSAGE);
            bt_strbuf_fini(&shorter);
        }
        bt_strbuf_fini(&buf);
    }
}

/* HELLO and STATS of the peers between the first and this one: each sends one
 * field more. */
static void a_later_field_that_was_not_sent_has_its_default(void **state)
{
    const bt_msg_t hello = sample_hello();
    const bt_msg_t stats = sample_stats();
    bt_strbuf_t buf = encoded(&hello);
    bt_msg_t got;

    (void)state;
    for (size_t keep = 17; keep <= 20; keep++) {
        bt_strbuf_t shorter = cut_to(&buf, keep);

        assert_int_equal(decode(shorter.data, shorter.len, &got), BT_OK);
        assert_int_equal(got.u.hello.protocol, BT_WIRE_PROTOCOL);
        assert_int_equal(got.u.hello.protocol_min,
                         (keep > 17) ? 1 : BT_WIRE_PROTOCOL);
        assert_string_equal(got.u.hello.model_name,
                            (keep > 18) ? "smollm2-135m" : "");
        assert_string_equal(got.u.hello.version_text,
                            (keep > 19) ? "0.1.0" : "");
        bt_strbuf_fini(&shorter);
    }
    bt_strbuf_fini(&buf);
    buf = encoded(&stats);
    for (size_t keep = 26; keep <= 32; keep++) {
        bt_strbuf_t shorter = cut_to(&buf, keep);
        const bt_msg_stats_t *s = &got.u.stats;

        assert_int_equal(decode(shorter.data, shorter.len, &got), BT_OK);
        assert_int_equal(s->kv_checksum_failures, UINT64_MAX);
        assert_int_equal(s->tokens_generated, (keep > 26) ? 26 : 0);
        assert_int_equal(s->prompt_tokens, (keep > 27) ? 27 : 0);
        assert_int_equal(s->tokens_reused, (keep > 28) ? 28 : 0);
        assert_int_equal(s->process_cpu_ms, (keep > 29) ? 29 : 0);
        assert_int_equal(s->resident_bytes, (keep > 30) ? 30 : 0);
        assert_int_equal(s->start_unix_s, (keep > 31) ? 31 : 0);
        bt_strbuf_fini(&shorter);
    }
    bt_strbuf_fini(&buf);
}

static void unknown_types_and_other_documents_are_refused(void **state)
{
    static const struct {
        uint8_t bytes[8];
        size_t n;
    } cases[] = {
        {{0x91, 0}, 2},    /* type 0 */
        {{0x91, 14}, 2},   /* one past DRAIN */
        {{0x91, 0xff}, 2}, /* type -1 */
        {{0x91, 0xcf, 0, 0, 0, 1, 0, 0}, 8},
        {{0x90}, 1},                         /* no type */
        {{0xc0}, 1},                         /* nil */
        {{0x81, 1, 2}, 3},                   /* a map */
        {{0xc1}, 1},                         /* never used */
        {{'{', '"', 'a', '"', ':', '1'}, 6}, /* JSON: fixint, then more */
        {{0x91, 0xc1}, 2},
    };
    bt_msg_t got;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(decode(cases[i].bytes, cases[i].n, &got),
                         BT_ERR_BAD_MESSAGE);
    }
    assert_int_equal(decode(NULL, 0, &got), BT_ERR_BAD_MESSAGE);
}

/* Sizes that are claimed, not sent: must be refused without memory. */
static void claimed_sizes_take_no_memory(void **state)
{
    static const uint8_t cases[][6] = {
        {0xdd, 0xff, 0xff, 0xff, 0xff, 10}, {0xdf, 0xff, 0xff, 0xff, 0xff, 10},
        {0xdb, 0xff, 0xff, 0xff, 0xff, 10}, {0xc6, 0xff, 0xff, 0xff, 0xff, 10},
        {0xc9, 0xff, 0xff, 0xff, 0xff, 10}, {0xdd, 0x80, 0, 0, 0, 10},
    };
    bt_msg_t got;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(decode(cases[i], sizeof(cases[i]), &got),
                         BT_ERR_BAD_MESSAGE);
    }
}

static void deep_nesting_and_a_flood_of_objects_are_refused(void **state)
{
    const size_t n = 1u << 20;
    uint8_t *bytes = bt_calloc(n, 1);
    bt_msg_t got;

    (void)state;
    assert_non_null(bytes);
    memset(bytes, 0x91, n); /* [[[[ … */
    bytes[n - 1] = 0xc0;
    assert_int_equal(decode(bytes, n, &got), BT_ERR_BAD_MESSAGE);

    memset(bytes, 0xc0, n); /* [DRAIN, nil, nil, … ] */
    bytes[0] = 0xdd;
    bytes[1] = 0;
    bytes[2] = (uint8_t)((n - 5) >> 16);
    bytes[3] = (uint8_t)((n - 5) >> 8);
    bytes[4] = (uint8_t)(n - 5);
    bytes[5] = BT_MSG_DRAIN;
    assert_int_equal(decode(bytes, n, &got), BT_ERR_BAD_MESSAGE);

    /* The same with 1000 of them is a newer peer. */
    bytes[1] = bytes[2] = 0;
    bytes[3] = 1000 >> 8;
    bytes[4] = 1000 & 255;
    assert_int_equal(decode(bytes, 1005, &got), BT_OK);
    bt_free(bytes);
}

static void values_out_of_bounds_are_refused(void **state)
{
    bt_msg_t msg = sample_hello();
    bt_strbuf_t buf = encoded(&msg);
    const uint8_t role3[] = {3};
    const uint8_t attempt[] = {0xcf, 0, 0, 0, 1, 0, 0, 0, 0};
    const uint8_t negative[] = {0xff};
    const uint8_t name[] = {0xa3, 'a', '\n', 'b'};
    const uint8_t nul[] = {0xa3, 'a', 0, 'b'};
    const uint8_t odd[] = {0xc4, 5, 1, 2, 3, 4, 5};
    uint8_t long_name[2 + BT_WIRE_MAX_NAME] = {0xd9, BT_WIRE_MAX_NAME};
    const struct {
        uint32_t type;
        size_t at;
        const uint8_t *bytes;
        size_t n;
    } cases[] = {
        {BT_MSG_HELLO, 2, role3, 1},      {BT_MSG_HELLO, 4, name, 4},
        {BT_MSG_HELLO, 4, nul, 4},        {BT_MSG_HELLO, 4, long_name, 66},
        {BT_MSG_REQUEST, 2, attempt, 9},  {BT_MSG_REQUEST, 3, role3, 1},
        {BT_MSG_REQUEST, 5, negative, 1}, {BT_MSG_REQUEST, 6, odd, 7},
        {BT_MSG_REQUEST, 6, odd + 1, 1},  {BT_MSG_CANCEL, 3, odd + 1, 1},
        {BT_MSG_FAILED, 3, attempt, 9},
    };

    (void)state;
    bt_strbuf_fini(&buf);
    memset(long_name + 2, 'n', BT_WIRE_MAX_NAME);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_msg_t msgs[N_SAMPLES];
        bt_strbuf_t bad;
        bt_msg_t got;

        (void)samples(msgs); /* they are in the order of their types */
        buf = encoded(&msgs[cases[i].type - 1]);
        bad = with_element(&buf, cases[i].at, cases[i].bytes, cases[i].n);
        assert_int_equal(decode(bad.data, bad.len, &got), BT_ERR_BAD_MESSAGE);
        bt_strbuf_fini(&bad);
        bt_strbuf_fini(&buf);
    }
}

static void a_text_cannot_forge_a_log_line(void **state)
{
    bt_msg_t msg = {.type = BT_MSG_FAILED,
                    .u.failed = {{1, 2}, BT_ERR_INTERNAL, "a\nb\x7f\tc"}};
    bt_strbuf_t buf = encoded(&msg);
    static const uint8_t raw[] = {0x95, 8, 1, 2, 0xff, 0xa3, 'x', '\n', 'y'};
    bt_msg_t got;

    (void)state;
    assert_int_equal(decode(buf.data, buf.len, &got), BT_OK);
    assert_string_equal(got.u.failed.text, "a b  c");
    assert_int_equal(decode(raw, sizeof(raw), &got), BT_OK);
    assert_string_equal(got.u.failed.text, "x y");
    assert_int_equal(got.u.failed.status, -1);
    bt_strbuf_fini(&buf);
}

/* What the decoder would refuse is not sent in the first place. */
static void the_encoder_refuses_what_no_peer_would_take(void **state)
{
    bt_msg_t cases[12];
    size_t n = 0;

    (void)state;
    cases[n] = sample_request();
    cases[n++].u.request.n_prompt = 6; /* more than there are tokens */
    cases[n] = sample_request();
    cases[n++].u.request.n_tokens = 0;
    cases[n] = sample_request();
    cases[n++].u.request.max_new = 0;
    cases[n] = sample_request();
    cases[n++].u.request.tokens = NULL;
    cases[n] = sample_request();
    cases[n++].u.request.n_tokens = BT_WIRE_MAX_TOKENS + 1;
    cases[n] = sample_request();
    cases[n++].u.request.sampling.temperature = NAN;
    cases[n] = sample_request();
    cases[n++].u.request.sampling.n_bad_words = BT_MAX_BAD_WORDS + 1;
    cases[n] = sample_hello();
    cases[n++].u.hello.kvt_bytes = BT_WIRE_MAX_BLOB + 1;
    cases[n] = sample_hello();
    memset(cases[n++].u.hello.name, 'x', BT_WIRE_MAX_NAME);
    cases[n] = sample_hello();
    cases[n++].u.hello.name[0] = '\n';
    cases[n++] = (bt_msg_t){.type = BT_MSG_TOKENS,
                            .u.tokens = {BT_WIRE_MAX_BATCH + 1, tokens}};
    cases[n] = (bt_msg_t){.type = BT_MSG_DRAIN};
    cases[n++].type = (bt_msg_type_t)14;
    assert_int_equal(n, BT_ARRAY_LEN(cases));
    for (size_t i = 0; i < n; i++) {
        bt_strbuf_t buf;

        bt_strbuf_init(&buf, LIMIT);
        bt_wire_encode(&cases[i], &buf);
        assert_int_equal(bt_strbuf_status(&buf), BT_ERR_INVALID_PARAM);
        bt_strbuf_fini(&buf);
    }
}

static void the_largest_messages_pass(void **state)
{
    uint32_t *ids = bt_calloc(BT_WIRE_MAX_TOKENS, sizeof(*ids));
    bt_token_t *many = bt_calloc(BT_WIRE_MAX_BATCH, sizeof(*many));
    bt_msg_t msg = sample_request();
    bt_msg_t got;
    bt_strbuf_t buf;

    (void)state;
    assert_non_null(ids);
    assert_non_null(many);
    for (uint32_t i = 0; i < BT_WIRE_MAX_TOKENS; i++) {
        ids[i] = i;
    }
    msg.u.request.tokens = ids;
    msg.u.request.n_tokens = BT_WIRE_MAX_TOKENS;
    buf = encoded(&msg);
    assert_int_equal(decode(buf.data, buf.len, &got), BT_OK);
    assert_memory_equal(got.u.request.tokens, ids,
                        BT_WIRE_MAX_TOKENS * sizeof(*ids));
    bt_strbuf_fini(&buf);

    for (uint32_t i = 0; i < BT_WIRE_MAX_BATCH; i++) {
        many[i].key.id = UINT64_MAX - i;
        many[i].id = i;
    }
    msg = (bt_msg_t){.type = BT_MSG_TOKENS,
                     .u.tokens = {BT_WIRE_MAX_BATCH, many}};
    buf = encoded(&msg);
    assert_int_equal(decode(buf.data, buf.len, &got), BT_OK);
    assert_int_equal(got.u.tokens.n, BT_WIRE_MAX_BATCH);
    assert_int_equal(got.u.tokens.tokens[BT_WIRE_MAX_BATCH - 1].id,
                     BT_WIRE_MAX_BATCH - 1);
    bt_strbuf_fini(&buf);
    bt_free(many);
    bt_free(ids);
}

/* Written by another encoder: tests/fuzz/make_wire_corpus.py. */
static void messages_of_another_encoder_are_understood(void **state)
{
    const char *folder = bt_test_path("fuzz/corpus/wire");
    DIR *dir = opendir(folder);
    struct dirent *entry;
    unsigned n_good = 0;

    (void)state;
    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        uint8_t data[1024];
        char path[4600];
        bt_msg_t got;
        FILE *file;
        size_t n;

        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        file = fopen(path, "rb");
        assert_non_null(file);
        n = fread(data, 1, sizeof(data), file);
        fclose(file);
        if (strcmp(entry->d_name, "unknown_type") == 0) {
            assert_int_equal(decode(data, n, &got), BT_ERR_BAD_MESSAGE);
            continue;
        }
        assert_int_equal(decode(data, n, &got), BT_OK);
        n_good++;
        if (strcmp(entry->d_name, "stats") == 0) { /* field i holds i */
            assert_int_equal(got.u.stats.active_requests, 0);
            assert_int_equal(got.u.stats.kv_checksum_failures, 24);
        }
    }
    closedir(dir);
    assert_int_equal(n_good, 15);
}

static void memory_that_is_short_is_said_and_survived(void **state)
{
    bt_wire_decoder_t *fresh = NULL;
    bt_msg_t msg = sample_request();
    bt_msg_t got = {.type = BT_MSG_DRAIN};
    bt_strbuf_t buf = encoded(&msg);

    (void)state;
    bt_alloc_fail_at(1);
    assert_int_equal(bt_wire_decoder_create(&fresh), BT_ERR_NO_MEMORY);
    assert_null(fresh);
    assert_int_equal(bt_wire_decoder_create(&fresh), BT_OK);
    for (int nth = 1; nth <= 2; nth++) { /* the ids, then the bad words */
        bt_alloc_fail_at(nth);
        assert_int_equal(bt_wire_decode(fresh, buf.data, buf.len, &got),
                         BT_ERR_NO_MEMORY);
        assert_int_equal(got.type, BT_MSG_DRAIN);
        bt_alloc_fail_at(0);
        bt_wire_decoder_destroy(fresh);
        assert_int_equal(bt_wire_decoder_create(&fresh), BT_OK);
    }
    assert_int_equal(bt_wire_decode(fresh, buf.data, buf.len, &got), BT_OK);
    assert_message_equal(&got, &msg);
    bt_wire_decoder_destroy(fresh);
    bt_wire_decoder_destroy(NULL);
    bt_strbuf_fini(&buf);
}

static void sampling_faults_are_named(void **state)
{
    struct {
        bt_sampling_t s;
        const char *word; /* in the answer */
    } cases[] = {
        {bt_sampling_default(), "temperature"},
        {bt_sampling_default(), "temperature"},
        {bt_sampling_default(), "temperature"},
        {bt_sampling_default(), "top_p"},
        {bt_sampling_default(), "top_p"},
        {bt_sampling_default(), "top_p"},
        {bt_sampling_default(), "repetition_penalty"},
        {bt_sampling_default(), "presence_penalty"},
        {bt_sampling_default(), "frequency_penalty"},
        {bt_sampling_default(), "end ids"},
        {bt_sampling_default(), "bad words"},
        {bt_sampling_default(), "bad words"},
        {bt_sampling_default(), "bad word"},
    };
    static const bt_bad_word_t empty = {.n = 0};
    const bt_sampling_t good = sampling_full();
    const char *why = "untouched";

    (void)state;
    assert_int_equal(bt_sampling_check(&good, &why), BT_OK);
    assert_string_equal(why, "untouched");
    cases[0].s.temperature = NAN;
    cases[1].s.temperature = -0.001f;
    cases[2].s.temperature = INFINITY;
    cases[3].s.top_p = 0.0f;
    cases[4].s.top_p = 1.0001f;
    cases[5].s.top_p = NAN;
    cases[6].s.repetition_penalty = 0.0f;
    cases[7].s.presence_penalty = NAN;
    cases[8].s.frequency_penalty = -INFINITY;
    cases[9].s.n_end_ids = BT_MAX_END_IDS + 1;
    cases[10].s.n_bad_words = BT_MAX_BAD_WORDS + 1;
    cases[11].s.n_bad_words = 1;
    cases[12].s.n_bad_words = 1;
    cases[12].s.bad_words = &empty;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(bt_sampling_check(&cases[i].s, &why),
                         BT_ERR_INVALID_PARAM);
        assert_non_null(strstr(why, cases[i].word));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_message_comes_back_as_it_was),
        BT_TEST(a_cancel_is_these_bytes),
        BT_TEST(every_truncation_of_every_message_is_refused),
        BT_TEST(a_field_of_a_wrong_type_is_refused),
        BT_TEST(fields_of_a_newer_peer_are_passed_over),
        BT_TEST(a_field_that_was_there_from_the_first_is_required),
        BT_TEST(a_later_field_that_was_not_sent_has_its_default),
        BT_TEST(unknown_types_and_other_documents_are_refused),
        BT_TEST(claimed_sizes_take_no_memory),
        BT_TEST(deep_nesting_and_a_flood_of_objects_are_refused),
        BT_TEST(values_out_of_bounds_are_refused),
        BT_TEST(a_text_cannot_forge_a_log_line),
        BT_TEST(the_encoder_refuses_what_no_peer_would_take),
        BT_TEST(the_largest_messages_pass),
        BT_TEST(messages_of_another_encoder_are_understood),
        BT_TEST(memory_that_is_short_is_said_and_survived),
        BT_TEST(sampling_faults_are_named),
    };
    int failed;

    if (bt_wire_decoder_create(&dec) != BT_OK) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_wire_decoder_destroy(dec);
    return failed;
}
