/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a link as other builds send them, kept in tests/golden: written by
 * Python, whose hashlib made keys, macs and tags. A change of any byte here is
 * a break of the wire (docs/WIRE.md). */
#include <stdio.h>
#include <string.h>

#include "common/base/status.h"
#include "common/link/link_handshake_frames.h"
#include "tests/support/testsupport.h"

#define LINKS     "golden/wire_v4/frames.txt"
#define MAX_BYTES 512

#define OF_ROUTER 0x1112131415161718u
#define OF_WORKER 0x2122232425262728u

typedef struct bytes {
    uint8_t data[MAX_BYTES];
    size_t n;
} bytes_t;

/* One link, from its frames. */
typedef struct world {
    link_keys_t keys;
    link_session_t session;
    bytes_t join, open;
} world_t;

static void cluster_key(uint8_t key[BT_KEY_BYTES])
{
    for (uint8_t i = 0; i < BT_KEY_BYTES; i++) {
        key[i] = i;
    }
}

static bytes_t read_frame(const char *file, const char *name)
{
    bytes_t b;

    b.n = bt_test_read_hex(file, name, b.data, sizeof(b.data));
    return b;
}

static void world_open(world_t *w)
{
    uint8_t key[BT_KEY_BYTES];

    cluster_key(key);
    bt_link_keys_make(key, sizeof(key), &w->keys);
    w->join = read_frame(LINKS, "join");
    w->open = read_frame(LINKS, "open");
    bt_link_session_make(&w->keys, w->join.data, w->join.n, w->open.data,
                         w->open.n, &w->session);
}

static void a_later_versions_first_frames_are_read(void **state)
{
    link_intro_t intro;
    world_t w;

    (void)state;
    world_open(&w);
    assert_int_equal(bt_link_join_check(&w.keys, w.join.data, w.join.n, &intro),
                     BT_OK);
    assert_int_equal(intro.range.oldest, 4);
    assert_int_equal(intro.range.newest, 5);
    assert_int_equal(intro.incarnation, OF_WORKER);
    for (size_t i = 0; i < LINK_NONCE_BYTES; i++) {
        assert_int_equal(intro.nonce[i], 0xb0);
    }
    assert_string_equal(intro.name, "decode-0");
    assert_int_equal(bt_link_open_check(&w.keys, w.join.data, w.join.n,
                                        w.open.data, w.open.n, &intro),
                     BT_OK);
    assert_int_equal(intro.range.newest, 6);
    assert_int_equal(intro.incarnation, OF_ROUTER);
    assert_string_equal(intro.name, "the router");
}

static void our_first_frames_are_these_bytes(void **state)
{
    link_intro_t intro = {
        .range = {4, 4}, .incarnation = OF_WORKER, .name = "decode-0"};
    const bytes_t join = read_frame(LINKS, "plain_join");
    const bytes_t open = read_frame(LINKS, "plain_open");
    uint8_t ours[LINK_MAX_INTRO];
    world_t w;

    (void)state;
    world_open(&w);
    memset(intro.nonce, 0xb0, sizeof(intro.nonce));
    assert_int_equal(bt_link_join_put(&w.keys, &intro, ours), join.n);
    assert_memory_equal(ours, join.data, join.n);
    memset(intro.nonce, 0xa0, sizeof(intro.nonce));
    intro.incarnation = OF_ROUTER;
    snprintf(intro.name, sizeof(intro.name), "the router");
    assert_int_equal(bt_link_open_put(&w.keys, join.data, join.n, &intro, ours),
                     open.n);
    assert_memory_equal(ours, open.data, open.n);
}

/* Every frame behind them: read, and made anew, it is the same bytes. */
static void tagged_frames_are_read_and_made_alike(void **state)
{
    static const struct {
        const char *name;
        link_kind_t kind;
        uint64_t sequence;
        bool to_worker;
        const char *body;
        size_t n;
    } cases[] = {
        {"accept", LINK_FRAME_ACCEPT, 1, false, "\5\0\0\0the worker", 14},
        {"ready", LINK_FRAME_READY, 1, true, "\5\0\0\0the router", 14},
        {"heartbeat", LINK_FRAME_DATA, 2, false, "", 0},
        {"messages", LINK_FRAME_DATA, 3, false, "\2\0\0\0hi\0\0\0\0\5\0", 12},
        {"rest", LINK_FRAME_DATA, 4, false, "\0\0hello", 7},
        {"later", (link_kind_t)200, 5, false, "of a later version", 18},
        {"bye", LINK_FRAME_BYE, 2, true, "model mismatch", 14},
    };
    world_t w;

    (void)state;
    world_open(&w);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const uint8_t *key =
            cases[i].to_worker ? w.session.to_worker : w.session.to_router;
        const bytes_t b = read_frame(LINKS, cases[i].name);
        uint8_t ours[MAX_BYTES];
        link_frame_t frame;

        assert_int_equal(bt_link_frame_open(key, b.data, b.n, &frame), BT_OK);
        assert_int_equal(frame.kind, cases[i].kind);
        assert_int_equal(frame.sequence, cases[i].sequence);
        assert_int_equal(frame.bytes, cases[i].n);
        assert_memory_equal(frame.body, cases[i].body, cases[i].n);
        memcpy(ours + LINK_HEADER_BYTES, cases[i].body, cases[i].n);
        bt_link_frame_seal(key, (uint8_t)cases[i].kind, cases[i].sequence, ours,
                           b.n);
        assert_memory_equal(ours, b.data, b.n);
        /* sent back to its sender, it is nobody's */
        assert_int_equal(bt_link_frame_open(cases[i].to_worker
                                                ? w.session.to_router
                                                : w.session.to_worker,
                                            b.data, b.n, &frame),
                         BT_ERR_UNAUTHORIZED);
    }
}

/* Three messages: "hi", an empty one, and "hello", which crosses two frames
 * with a heartbeat between them. */
static void messages_cross_frames(void **state)
{
    static const char *const names[] = {"messages", "heartbeat", "rest"};
    static const char *const expected[] = {"hi", "", "hello"};
    link_stream_t stream;
    size_t n_messages = 0;
    world_t w;

    (void)state;
    world_open(&w);
    bt_link_stream_init(&stream);
    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        const bytes_t b = read_frame(LINKS, names[i]);
        const void *data;
        link_frame_t frame;
        size_t at = 0;
        size_t n;

        assert_int_equal(
            bt_link_frame_open(w.session.to_router, b.data, b.n, &frame),
            BT_OK);
        for (;;) {
            assert_int_equal(bt_link_stream_next(&stream, frame.body,
                                                 frame.bytes, &at, &data, &n),
                             BT_OK);
            if (data == NULL) {
                break;
            }
            assert_true(n_messages < BT_ARRAY_LEN(expected));
            assert_int_equal(n, strlen(expected[n_messages]));
            assert_memory_equal(data, expected[n_messages], n);
            n_messages++;
        }
        assert_int_equal(n_messages, (i < 2) ? 2 : 3);
    }
    bt_link_stream_fini(&stream);
}

static bool is_accepted(const world_t *w, const char *name, const bytes_t *b)
{
    link_session_t session;
    link_intro_t intro;
    link_frame_t frame;

    if (strcmp(name, "join") == 0) {
        return bt_link_join_check(&w->keys, b->data, b->n, &intro) == BT_OK;
    }
    if (strcmp(name, "open") == 0) {
        return bt_link_open_check(&w->keys, w->join.data, w->join.n, b->data,
                                  b->n, &intro) == BT_OK;
    }
    session = w->session;
    return bt_link_frame_open((strcmp(name, "ready") == 0) ? session.to_worker
                                                           : session.to_router,
                              b->data, b->n, &frame) == BT_OK;
}

static void no_bit_of_the_handshake_can_be_another(void **state)
{
    static const char *const names[] = {"join", "open", "accept", "ready"};
    world_t w;

    (void)state;
    world_open(&w);
    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        bytes_t b = read_frame(LINKS, names[i]);

        assert_true(is_accepted(&w, names[i], &b));
        for (size_t bit = 0; bit < 8 * b.n; bit++) {
            b.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
            assert_false(is_accepted(&w, names[i], &b));
            b.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        }
        for (size_t n = b.n; n-- > 0;) { /* nor be missing */
            b.n = n;
            assert_false(is_accepted(&w, names[i], &b));
        }
    }
}

/* Whatever either of the two said makes another link, with other keys: so a
 * lowered range, too, in a JOIN that R had otherwise than W sent. */
static void the_links_key_is_made_of_both_first_frames(void **state)
{
    link_session_t other;
    world_t w;

    (void)state;
    world_open(&w);
    for (size_t bit = 0; bit < 8 * (w.join.n + w.open.n); bit++) {
        bytes_t *b = (bit < 8 * w.join.n) ? &w.join : &w.open;
        const size_t at = (b == &w.join) ? bit : bit - 8 * w.join.n;

        b->data[at / 8] ^= (uint8_t)(1u << (at % 8));
        bt_link_session_make(&w.keys, w.join.data, w.join.n, w.open.data,
                             w.open.n, &other);
        b->data[at / 8] ^= (uint8_t)(1u << (at % 8));
        assert_memory_not_equal(other.to_worker, w.session.to_worker,
                                BT_KEY_BYTES);
        assert_memory_not_equal(other.to_router, w.session.to_router,
                                BT_KEY_BYTES);
    }
}

/* A frame names its key: that in use, or for ten minutes the one before. */
static void the_key_before_is_known_for_ten_minutes(void **state)
{
    static const uint8_t a[32] = {1}, b[32] = {2};
    uint8_t frame[LINK_MAX_INTRO];
    link_intro_t intro = {.range = {4, 4}, .incarnation = 7, .name = "w"};
    link_intro_t got;
    link_keyring_t ring = {0};
    const uint8_t *id;
    size_t n;

    (void)state;
    bt_link_keys_make(a, sizeof(a), &ring.now);
    n = bt_link_join_put(&ring.now, &intro, frame);
    id = bt_link_intro_key_id(frame, n);
    assert_memory_equal(id, ring.now.id, LINK_KEY_ID_BYTES);
    assert_null(bt_link_intro_key_id(frame, 11));

    assert_false(
        bt_link_keyring_turn(&ring, a, sizeof(a), 1000)); /* the same */
    assert_ptr_equal(bt_link_keyring_find(&ring, id), &ring.now);
    assert_true(bt_link_keyring_turn(&ring, b, sizeof(b), 1000));
    assert_ptr_equal(bt_link_keyring_find(&ring, id), &ring.before);
    assert_int_equal(
        bt_link_join_check(bt_link_keyring_find(&ring, id), frame, n, &got),
        BT_OK);
    assert_ptr_equal(bt_link_keyring_find(&ring, ring.now.id), &ring.now);
    assert_ptr_equal(bt_link_keyring_find(&ring, NULL), &ring.now);

    bt_link_keyring_expire(&ring, 1000 + 599999);
    assert_ptr_equal(bt_link_keyring_find(&ring, id), &ring.before);
    bt_link_keyring_expire(&ring, 1000 + 600000);
    assert_int_equal(
        bt_link_join_check(bt_link_keyring_find(&ring, id), frame, n, &got),
        BT_ERR_UNAUTHORIZED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(a_later_versions_first_frames_are_read),
        BT_TEST(our_first_frames_are_these_bytes),
        BT_TEST(tagged_frames_are_read_and_made_alike),
        BT_TEST(messages_cross_frames),
        BT_TEST(no_bit_of_the_handshake_can_be_another),
        BT_TEST(the_links_key_is_made_of_both_first_frames),
        BT_TEST(the_key_before_is_known_for_ten_minutes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
