/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.model: a SentencePiece model, a protocol buffer.
 *
 * Source: sentencepiece_model.proto of the sentencepiece project: ModelProto {
 * 1 pieces, 2 trainer_spec, 3 normalizer_spec }, SentencePiece { 1 piece,
 * 2 score, 3 type }; and the encoding of protocol buffers. */
#include <inttypes.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/hf/vocab.h"

#define FILE_NAME     "tokenizer.model"
#define MODEL_UNIGRAM 1u
#define MODEL_BPE     2u

/* Fields of the messages. */
enum { PIECES = 1, TRAINER = 2, NORMALIZER = 3, DENORMALIZER = 5 };
enum { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_TYPE = 3 };
enum { TRAINER_MODEL_TYPE = 3, TRAINER_SPACE_BEHIND = 24 };
enum {
    NORMALIZER_MAP = 2,
    NORMALIZER_DUMMY_PREFIX = 3,
    NORMALIZER_EXTRA_SPACES = 4,
    NORMALIZER_ESCAPE = 5,
};
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

typedef struct span {
    const uint8_t *at;
    const uint8_t *end;
} span_t;

typedef struct field {
    uint32_t number;
    uint32_t wire;
    uint64_t value; /* of varints and fixed ones */
    span_t bytes;
} field_t;

static bool take_varint(span_t *in, uint64_t *value_p)
{
    uint64_t value = 0;

    for (unsigned shift = 0; (shift < 64) && (in->at < in->end); shift += 7) {
        const uint8_t byte = *in->at++;

        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value_p = value;
            return true;
        }
    }
    return false;
}

static bool take_fixed(span_t *in, size_t n, uint64_t *value_p)
{
    *value_p = 0;
    if ((size_t)(in->end - in->at) < n) {
        return false;
    }
    memcpy(value_p, in->at, n);
    in->at += n;
    return true;
}

static bool take_field(span_t *in, field_t *field)
{
    uint64_t tag;
    uint64_t n;

    *field = (field_t){0};
    if (!take_varint(in, &tag) || (tag >> 3 == 0) || (tag >> 3 > UINT32_MAX)) {
        return false;
    }
    field->number = (uint32_t)(tag >> 3);
    field->wire = (uint32_t)(tag & 7);
    switch (field->wire) {
    case WIRE_VARINT:
        return take_varint(in, &field->value);
    case WIRE_64:
        return take_fixed(in, 8, &field->value);
    case WIRE_32:
        return take_fixed(in, 4, &field->value);
    case WIRE_BYTES:
        if (!take_varint(in, &n) || (n > (size_t)(in->end - in->at))) {
            return false;
        }
        field->bytes = (span_t){in->at, in->at + n};
        in->at += n;
        return true;
    default:
        return false;
    }
}

/* Takes the next field of a message. @return false: there are no more, or the
 * folder has failed */
static bool next_field(bt_hf_t *hf, span_t *in, field_t *field)
{
    if ((hf->status != BT_OK) || (in->at == in->end)) {
        return false;
    }
    if (!take_field(in, field)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   FILE_NAME " is no SentencePiece model, or is cut off");
    }
    return hf->status == BT_OK;
}

static void read_piece(bt_hf_t *hf, span_t in, uint32_t id,
                       bt_hf_piece_t *piece)
{
    field_t field;
    uint32_t bits;
    float score;

    *piece = (bt_hf_piece_t){.text = "", .type = BT_HF_TOKEN_NORMAL};
    while (next_field(hf, &in, &field)) {
        if ((field.number == PIECE_TEXT) && (field.wire == WIRE_BYTES)) {
            piece->text = (const char *)field.bytes.at;
            piece->len = (uint32_t)(field.bytes.end - field.bytes.at);
        } else if ((field.number == PIECE_SCORE) && (field.wire == WIRE_32)) {
            bits = (uint32_t)field.value;
            memcpy(&score, &bits, sizeof(score));
            piece->score = (double)score;
        } else if ((field.number == PIECE_TYPE) &&
                   (field.wire == WIRE_VARINT)) {
            piece->type =
                (field.value <= BT_HF_TOKEN_BYTE) ? (uint8_t)field.value : 0;
        }
    }
    if ((piece->type == 0) || (piece->len == 0) ||
        !bt_utf8_valid((const uint8_t *)piece->text, piece->len)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   FILE_NAME ": piece %u has no text or no known type", id);
    }
}

static void read_trainer(bt_hf_t *hf, span_t in, bt_hf_vocab_t *vocab)
{
    uint64_t type = MODEL_UNIGRAM; /* where it is not said */
    bool space_behind = false;
    field_t field;

    while (next_field(hf, &in, &field)) {
        if ((field.number == TRAINER_MODEL_TYPE) &&
            (field.wire == WIRE_VARINT)) {
            type = field.value;
        } else if (field.number == TRAINER_SPACE_BEHIND) {
            space_behind = field.value != 0;
        }
    }
    if (space_behind) {
        bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                   FILE_NAME ": spaces behind words "
                             "(treat_whitespace_as_suffix) are not "
                             "supported");
    }
    if ((type != MODEL_BPE) && (type != MODEL_UNIGRAM)) {
        bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                   FILE_NAME ": models of type %" PRIu64 " are not supported; "
                             "1, Unigram, and 2, BPE, are",
                   type);
    }
    vocab->words = (type == MODEL_BPE) ? BT_HF_SCORES : BT_HF_UNIGRAM;
}

static void copy_map(bt_hf_t *hf, span_t bytes, bt_hf_vocab_t *vocab)
{
    const size_t n = (size_t)(bytes.end - bytes.at);

    if (n == 0) {
        return;
    }
    bt_free(vocab->charsmap); /* of repeated fields the last counts */
    vocab->charsmap = bt_memdup(bytes.at, n);
    vocab->charsmap_bytes = n;
    if (vocab->charsmap == NULL) {
        bt_hf_fail(hf, BT_ERR_NO_MEMORY, "out of memory");
    }
}

static void read_normalizer(bt_hf_t *hf, span_t in, bt_hf_vocab_t *vocab)
{
    bool escape = true;
    field_t field;

    while (next_field(hf, &in, &field)) {
        switch (field.number) {
        case NORMALIZER_MAP:
            copy_map(hf, field.bytes, vocab);
            break;
        case NORMALIZER_DUMMY_PREFIX:
            vocab->add_space = field.value != 0;
            break;
        case NORMALIZER_EXTRA_SPACES:
            vocab->extra_spaces = field.value != 0;
            break;
        case NORMALIZER_ESCAPE:
            escape = field.value != 0;
            break;
        default:
            break;
        }
    }
    if (!escape) {
        bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                   FILE_NAME ": its normalizer keeps spaces as they "
                             "are, which is not supported");
    }
}

/* Checks the denormalizer, which would replace characters of the output. */
static void read_denormalizer(bt_hf_t *hf, span_t in)
{
    field_t field;

    while (next_field(hf, &in, &field)) {
        if ((field.number == NORMALIZER_MAP) &&
            (field.bytes.end > field.bytes.at)) {
            bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                       FILE_NAME ": a denormalizer is not supported");
        }
    }
}

static uint64_t count_pieces(bt_hf_t *hf, span_t in)
{
    uint64_t n = 0;
    field_t field;

    while (next_field(hf, &in, &field)) {
        n += (field.number == PIECES) && (field.wire == WIRE_BYTES);
    }
    return n;
}

/* Adds tokens that are only in tokenizer_config.json. */
static void add_token(bt_hf_t *hf, bt_hf_vocab_t *vocab,
                      const bt_json_node_t *key)
{
    static const struct {
        const char *name;
        uint8_t rule;
    } rules[] = {{"lstrip", BT_HF_LSTRIP},
                 {"rstrip", BT_HF_RSTRIP},
                 {"single_word", BT_HF_SINGLE_WORD}};
    const bt_json_doc_t *const doc = hf->tok_config.doc;
    const bt_json_node_t *const text = bt_json_get(doc, key + 1, "content");
    const bt_json_node_t *const special = bt_json_get(doc, key + 1, "special");
    const bt_json_node_t number = {
        .text = key->text, .len = key->len, .kind = BT_JSON_NUMBER};
    uint64_t id = 0;

    if (!bt_json_is_kind(text, BT_JSON_STRING) || (key->len == 0) ||
        (key->len > 8) || (strspn(key->text, "0123456789") < key->len) ||
        !bt_json_as_u64(&number, &id) || (id >= vocab->n)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   "tokenizer_config.json: added_tokens_decoder has %s, "
                   "which is not the id of one of %u tokens",
                   bt_printable(key->text, key->len).text, vocab->n);
        return;
    }
    vocab->pieces[id].rules = 0;
    for (size_t i = 0; i < BT_ARRAY_LEN(rules); i++) {
        const bt_json_node_t *const flag =
            bt_json_get(doc, key + 1, rules[i].name);

        if (bt_json_is_kind(flag, BT_JSON_TRUE)) {
            vocab->pieces[id].rules =
                (uint8_t)(vocab->pieces[id].rules | rules[i].rule);
        }
    }
    vocab->pieces[id].text = text->text;
    vocab->pieces[id].len = text->len;
    vocab->pieces[id].score = -1000.0;
    if (vocab->pieces[id].type != BT_HF_TOKEN_UNKNOWN) {
        vocab->pieces[id].type = bt_json_is_kind(special, BT_JSON_TRUE)
                                     ? BT_HF_TOKEN_CONTROL
                                     : BT_HF_TOKEN_USER_DEFINED;
    }
}

static void add_tokens(bt_hf_t *hf, bt_hf_vocab_t *vocab)
{
    const bt_json_node_t *const list = bt_json_get(
        hf->tok_config.doc, hf->tok_config.root, "added_tokens_decoder");
    const bt_json_node_t *key;

    if (!bt_json_is_kind(list, BT_JSON_OBJECT)) {
        return;
    }
    key = bt_json_first(list);
    for (uint32_t i = 0; i < list->n; i++) {
        add_token(hf, vocab, key);
        key = bt_json_next(hf->tok_config.doc, key + 1);
    }
}

/*
 * Reads one field of the model.
 * @param [in,out] id_p  id of the next piece
 */
static void read_part(bt_hf_t *hf, const field_t *field, uint32_t *id_p,
                      bt_hf_vocab_t *vocab)
{
    switch (field->number) {
    case PIECES:
        (*id_p)++;
        read_piece(hf, field->bytes, *id_p - 1, &vocab->pieces[*id_p - 1]);
        break;
    case TRAINER:
        read_trainer(hf, field->bytes, vocab);
        break;
    case NORMALIZER:
        read_normalizer(hf, field->bytes, vocab);
        break;
    case DENORMALIZER:
        read_denormalizer(hf, field->bytes);
        break;
    default:
        break;
    }
}

bt_status_t bt_hf_read_sentencepiece(bt_hf_t *hf, const uint8_t *bytes,
                                     size_t n, bt_hf_vocab_t *vocab)
{
    span_t in = {bytes, (bytes != NULL) ? bytes + n : bytes};
    const uint64_t n_pieces = count_pieces(hf, in);
    uint32_t id = 0;
    field_t field;

    if ((n_pieces == 0) || (hf->shape.n_vocab > 2 * n_pieces + 65536)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          FILE_NAME " has %" PRIu64 " pieces, config.json a "
                                    "vocab_size of %u",
                          n_pieces, hf->shape.n_vocab);
    }
    vocab->words = BT_HF_UNIGRAM; /* unless the model says otherwise */
    vocab->marks_spaces = true;
    vocab->add_space = true;
    vocab->extra_spaces = true;
    if ((hf->status != BT_OK) ||
        (bt_hf_vocab_init(hf, vocab,
                          (n_pieces > hf->shape.n_vocab)
                              ? n_pieces
                              : hf->shape.n_vocab) != BT_OK)) {
        return hf->status;
    }
    while (next_field(hf, &in, &field)) {
        if (field.wire == WIRE_BYTES) {
            read_part(hf, &field, &id, vocab);
        }
    }
    add_tokens(hf, vocab);
    for (uint32_t i = 0; (hf->status == BT_OK) && (i < vocab->n); i++) {
        if (vocab->pieces[i].text != NULL) {
            bt_hf_vocab_index(vocab, i);
        }
    }
    return hf->status;
}
