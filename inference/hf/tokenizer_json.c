/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json of the tokenizers library: reads its model, and its other
 * components in order; and chooses the tokenizer file of a folder. Settings
 * that Baton's keys cannot express are refused. */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/hf/vocab.h"

#define FILE_NAME  "tokenizer.json"
#define WHY_BYTES  400
#define SPACE_MARK "\xE2\x96\x81" /* U+2581 */

const bt_json_node_t *bt_hf_member(const bt_hf_vocab_t *v,
                                   const bt_json_node_t *node, const char *key)
{
    return bt_hf_not_null(bt_json_get(v->doc, node, key));
}

bool bt_hf_is_true(const bt_hf_vocab_t *v, const bt_json_node_t *node,
                   const char *key)
{
    return bt_json_is_kind(bt_hf_member(v, node, key), BT_JSON_TRUE);
}

bt_status_t bt_hf_not_supported(bt_hf_t *hf, const char *what,
                                const bt_json_node_t *name)
{
    return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                      FILE_NAME ": the %s %s is not supported", what,
                      bt_json_is_kind(name, BT_JSON_STRING)
                          ? bt_printable(name->text, name->len).text
                          : "without a name");
}

bool bt_hf_put_text(bt_hf_texts_t *texts, const char *text, size_t len)
{
    if (texts->n == BT_HF_MAX_TEXTS) {
        return false;
    }
    texts->list[texts->n++] = (bt_gguf_str_t){text, len};
    return true;
}

bool bt_hf_put_word(bt_hf_texts_t *texts, const char *word)
{
    return bt_hf_put_text(texts, word, strlen(word));
}

struct steps {
    const char *list; /* member of a Sequence */
    const char *what;
    const bt_hf_step_kind_t *kinds;
};

/* Nesting of sequences is bounded by the JSON reader. */
static void read_steps(bt_hf_t *hf, bt_hf_vocab_t *v,
                       const bt_json_node_t *step, const struct steps *steps,
                       bool is_last)
{
    const bt_json_node_t *const type = bt_hf_member(v, step, "type");
    const bt_json_node_t *const list = bt_hf_member(v, step, steps->list);
    const bt_hf_step_kind_t *kind = steps->kinds;
    const bt_json_node_t *at;

    if (!bt_json_is(type, "Sequence")) {
        while ((kind->type != NULL) && !bt_json_is(type, kind->type)) {
            kind++;
        }
        v->is_last_step = is_last;
        if (kind->type != NULL) {
            kind->read(hf, v, step);
        } else {
            bt_hf_not_supported(hf, steps->what, type);
        }
        return;
    }
    if (!bt_json_is_kind(list, BT_JSON_ARRAY)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE, FILE_NAME ": a Sequence has no %s",
                   steps->list);
        return;
    }
    at = (list->n > 0) ? bt_json_first(list) : NULL;
    for (uint32_t i = 0; (hf->status == BT_OK) && (i < list->n); i++) {
        read_steps(hf, v, at, steps, is_last && (i + 1 == list->n));
        at = bt_json_next(v->doc, at);
    }
}

bt_status_t bt_hf_each_step(bt_hf_t *hf, bt_hf_vocab_t *v, const char *key,
                            const char *list, const char *what,
                            const bt_hf_step_kind_t *kinds)
{
    const struct steps steps = {list, what, kinds};
    const bt_json_node_t *const step = bt_hf_member(v, v->root, key);

    if (step != NULL) {
        read_steps(hf, v, step, &steps, true);
    }
    return hf->status;
}

/* ---- settings of the model ---- */

/* Old files leave the type out. */
static bool is_model(const bt_hf_vocab_t *v, const char *name,
                     uint8_t vocab_kind)
{
    const bt_json_node_t *const type = bt_hf_member(v, v->model, "type");
    const bt_json_node_t *const vocab = bt_hf_member(v, v->model, "vocab");
    const bool merges = bt_hf_member(v, v->model, "merges") != NULL;

    return (type != NULL) ? bt_json_is(type, name)
                          : ((vocab != NULL) && (vocab->kind == vocab_kind) &&
                             (merges == (vocab_kind == BT_JSON_OBJECT)));
}

/* Refuses features that no known file uses, and encoder models. */
static bt_status_t check_model(bt_hf_t *hf, const bt_hf_vocab_t *v)
{
    static const char *const affixes[] = {"continuing_subword_prefix",
                                          "end_of_word_suffix"};
    const bt_json_node_t *const dropout = bt_hf_member(v, v->model, "dropout");
    double chance = 0.0;

    if ((dropout != NULL) &&
        (!bt_json_as_double(dropout, &chance) || (chance != 0.0))) {
        return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                          FILE_NAME ": dropout is not supported");
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(affixes); i++) {
        const bt_json_node_t *const affix =
            bt_hf_member(v, v->model, affixes[i]);

        if ((affix != NULL) && !bt_json_is(affix, "")) {
            return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                              FILE_NAME ": %s is not supported", affixes[i]);
        }
    }
    return BT_OK;
}

static bt_status_t choose_words(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    if (is_model(v, "BPE", BT_JSON_OBJECT)) {
        v->words = bt_hf_has_bytes(v) ? BT_HF_BYTES : BT_HF_MERGES;
    } else if (is_model(v, "Unigram", BT_JSON_ARRAY)) {
        v->words = BT_HF_UNIGRAM;
        if (bt_hf_has_bytes(v)) {
            return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                              FILE_NAME ": Unigram with ByteLevel is not "
                                        "supported");
        }
    } else {
        return bt_hf_not_supported(hf, "model",
                                   bt_hf_member(v, v->model, "type"));
    }
    v->ignore_merges = bt_hf_is_true(v, v->model, "ignore_merges");
    v->fuses =
        (v->words == BT_HF_UNIGRAM) || bt_hf_is_true(v, v->model, "fuse_unk");
    return check_model(hf, v);
}

/* ---- tokens for unknown characters ---- */

static int hex_digit(char c)
{
    return ((c >= '0') && (c <= '9'))   ? c - '0'
           : ((c >= 'A') && (c <= 'F')) ? c - 'A' + 10
                                        : -1;
}

static void mark_bytes(bt_hf_vocab_t *v)
{
    for (uint32_t i = 0; i < v->n; i++) {
        const bt_hf_piece_t *const p = &v->pieces[i];

        if ((p->text != NULL) && (p->type == BT_HF_TOKEN_NORMAL) &&
            (p->len == 6) && (memcmp(p->text, "<0x", 3) == 0) &&
            (hex_digit(p->text[3]) >= 0) && (hex_digit(p->text[4]) >= 0) &&
            (p->text[5] == '>')) {
            v->pieces[i].type = BT_HF_TOKEN_BYTE;
        }
    }
}

/* Reads "unk_token" of BPE, "unk_id" of Unigram. */
static bt_status_t find_unknown(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    const bt_json_node_t *const text = bt_hf_member(v, v->model, "unk_token");
    const bt_json_node_t *const number = bt_hf_member(v, v->model, "unk_id");
    const bt_json_node_t *const said =
        (v->words == BT_HF_UNIGRAM) ? number : text;
    uint64_t id = BT_HF_NO_TOKEN;

    if (said == NULL) {
        return BT_OK;
    }
    if (v->words != BT_HF_UNIGRAM) {
        id = (text->kind == BT_JSON_STRING)
                 ? bt_hf_vocab_find(v, text->text, text->len)
                 : BT_HF_NO_TOKEN;
    } else if (!bt_json_as_u64(number, &id)) {
        id = BT_HF_NO_TOKEN;
    }
    if ((id >= v->n) || (v->pieces[id].text == NULL)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          FILE_NAME ": unk_token or unk_id is not one of the "
                                    "tokens");
    }
    v->unk = (uint32_t)id;
    return BT_OK;
}

/* Character of a byte in byte-level vocabularies: the Latin-1 character if
 * printable, the others from U+0100 on in their order. */
static size_t byte_text(unsigned byte, uint8_t out[4])
{
    const bool prints =
        ((byte >= 33) && (byte <= 126)) || ((byte >= 161) && (byte != 173));
    unsigned before = 0;

    for (unsigned b = 0; b < byte; b++) {
        before += !(((b >= 33) && (b <= 126)) || ((b >= 161) && (b != 173)));
    }
    return bt_utf8_encode(prints ? byte : 256 + before, out);
}

static bt_status_t check_bytes(bt_hf_t *hf, const bt_hf_vocab_t *v)
{
    for (unsigned byte = 0; (v->unk != BT_HF_NO_TOKEN) && (byte < 256);
         byte++) {
        uint8_t text[4];
        const size_t n = byte_text(byte, text);

        if (bt_hf_vocab_find(v, (const char *)text, n) == BT_HF_NO_TOKEN) {
            return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                              FILE_NAME ": ByteLevel with an unk_token and no "
                                        "token for byte %u is not supported",
                              byte);
        }
    }
    return BT_OK;
}

/* ---- BPE over characters ---- */

static bool text_is(const bt_hf_texts_t *texts, uint32_t i, const char *word)
{
    return (i < texts->n) && (texts->list[i].len == strlen(word)) &&
           (memcmp(texts->list[i].data, word, texts->list[i].len) == 0);
}

/* Detects Prepend and Replace, or Replace alone: SentencePiece's methods, for
 * which GGUF has keys. */
static bool is_sentencepiece(const bt_hf_vocab_t *v, bool *add_space_p)
{
    static const char *const steps[] = {"prepend", SPACE_MARK, "replace", " ",
                                        SPACE_MARK};
    const bt_hf_texts_t *const list = &v->normalizers;
    const uint32_t skip = (list->n == 3) ? 2 : 0;
    const char *const first = (skip == 0) ? "drop" : "keep";
    bool same = (v->unk != BT_HF_NO_TOKEN) && v->fuses && !v->ignore_merges &&
                (v->splits.n == 0) && (list->n + skip == 5) &&
                ((bt_hf_member(v, v->root, "decoder") == NULL) ||
                 (strcmp(v->first_space, first) == 0));

    for (uint32_t i = skip; same && (i < 5); i++) {
        same = text_is(list, i - skip, steps[i]);
    }
    *add_space_p = (skip == 0);
    return same;
}

static bt_status_t read_plain(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    bool add_space = false;
    bool same = false;
    bt_status_t status;

    if (!bt_hf_is_true(v, v->model, "byte_fallback") ||
        !is_sentencepiece(v, &add_space)) {
        return BT_OK;
    }
    status = bt_hf_score_merges(hf, v, &same);
    if ((status == BT_OK) && same) {
        v->words = BT_HF_SCORES;
        v->add_space = add_space;
    }
    return status;
}

/* ---- the whole file ---- */

static bt_status_t read_document(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    static bt_status_t (*const readers[])(bt_hf_t *, bt_hf_vocab_t *) = {
        choose_words,           bt_hf_read_vocab,        find_unknown,
        bt_hf_read_normalizers, bt_hf_read_pretokenizer, bt_hf_read_decoder,
        bt_hf_read_ends};
    bt_status_t status = BT_OK;

    if (!bt_json_is_kind(v->model, BT_JSON_OBJECT)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE, FILE_NAME " has no model");
    }
    v->as_library = true;
    for (size_t i = 0; (status == BT_OK) && (i < BT_ARRAY_LEN(readers)); i++) {
        status = readers[i](hf, v);
    }
    return status;
}

/* Completes each kind of vocabulary. */
static bt_status_t finish_words(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    bt_status_t status = BT_OK;

    if (v->words == BT_HF_BYTES) {
        status = check_bytes(hf, v);
    } else {
        if (v->unk != BT_HF_NO_TOKEN) {
            v->pieces[v->unk].type = BT_HF_TOKEN_UNKNOWN;
        }
        if (bt_hf_is_true(v, v->model, "byte_fallback")) {
            mark_bytes(v);
        }
    }
    if ((status == BT_OK) && (v->words == BT_HF_MERGES)) {
        status = read_plain(hf, v);
    }
    if ((status == BT_OK) &&
        ((v->words == BT_HF_BYTES) || (v->words == BT_HF_MERGES))) {
        status = bt_hf_put_merges(hf, v);
    }
    return (status == BT_OK) ? bt_hf_vocab_put(hf, v) : status;
}

static bt_status_t read_tokenizer_model(bt_hf_t *hf)
{
    bt_hf_vocab_t vocab = BT_HF_VOCAB_NONE;
    bt_folder_file_t file = {.fd = -1};
    char reason[WHY_BYTES] = "";
    bt_status_t status = bt_folder_map(&hf->folder, "tokenizer.model", reason,
                                       sizeof(reason), &file);

    if (status != BT_OK) {
        return bt_hf_fail(hf, status, "%s", reason);
    }
    status = bt_hf_read_sentencepiece(hf, file.base, file.bytes, &vocab);
    if (status == BT_OK) {
        status = bt_hf_vocab_put(hf, &vocab);
    }
    bt_hf_vocab_fini(&vocab);
    bt_folder_unmap(&file);
    return status;
}

bt_status_t bt_hf_read_tokenizer(bt_hf_t *hf)
{
    bt_folder_json_t json = {0};
    bt_hf_vocab_t vocab = BT_HF_VOCAB_NONE;
    char reason[WHY_BYTES] = "";
    bt_status_t status =
        bt_folder_read_json(&hf->folder, FILE_NAME, BT_HF_TOKENS_BYTES, reason,
                            sizeof(reason), &json);

    if (status != BT_OK) {
        return bt_hf_fail(hf, status, "%s", reason);
    }
    if (json.root == NULL) {
        return bt_folder_has(&hf->folder, "tokenizer.model")
                   ? read_tokenizer_model(hf)
                   : bt_hf_fail(hf, BT_ERR_BAD_FILE,
                                "the folder has no tokenizer: neither "
                                "tokenizer.json nor tokenizer.model");
    }
    vocab.doc = json.doc;
    vocab.root = json.root;
    vocab.model = bt_json_get(json.doc, json.root, "model");
    status = read_document(hf, &vocab);
    if (status == BT_OK) {
        status = finish_words(hf, &vocab);
    }
    bt_hf_vocab_fini(&vocab);
    bt_folder_json_fini(&json);
    return status;
}
