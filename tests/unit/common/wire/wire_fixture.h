/* SPDX-License-Identifier: Apache-2.0 */
/** @file wire_fixture.h
 *
 * Messages with every field set, and the bytes of msgpack taken apart and put
 * together without msgpack-c, for the tests of common/wire.
 */
#ifndef BT_TESTS_UNIT_WIRE_WIRE_FIXTURE_H
#define BT_TESTS_UNIT_WIRE_WIRE_FIXTURE_H

#include "common/wire/wire.h"
#include "tests/support/testsupport.h"

#define WIRE_LIMIT     (32u << 20)
#define WIRE_N_SAMPLES 26

extern const bt_token_t wire_tokens[2];

/** For cmocka_run_group_tests(): the decoder of wire_decode(). */
int wire_setup(void **state);
int wire_teardown(void **state);

bt_sampling_t wire_sampling(void);
bt_msg_t wire_hello(void);
bt_msg_t wire_request(void);
bt_msg_t wire_stats(void);
/** One of each type, in their order. @return how many */
size_t wire_samples(bt_msg_t out[WIRE_N_SAMPLES]);

bt_strbuf_t wire_encoded(const bt_msg_t *msg);
/** From memory of exactly @a n bytes that is gone after. */
bt_status_t wire_decode(const void *data, size_t n, bt_msg_t *msg);
/** Blobs and arrays by content, everything else bit by bit. Blobs and prompts
 *  are taken to be those of the samples. */
void wire_assert_equal(const bt_msg_t *a, const bt_msg_t *b);

/** Bytes of the object at p, for the formats that our messages consist of. */
size_t wire_object_bytes(const uint8_t *p);
/** @return bytes of the header of the array at p. @param [out] n_p elements */
size_t wire_array_header(const uint8_t *p, size_t *n_p);
void wire_put_array(bt_strbuf_t *out, size_t n);
/** Copy of the message in which element @a at is @a other. */
bt_strbuf_t wire_with_element(const bt_strbuf_t *in, size_t at,
                              const void *other, size_t other_bytes);
/** The message without its last elements: the first @a keep are left. */
bt_strbuf_t wire_cut_to(const bt_strbuf_t *in, size_t keep);

#endif
