/* SPDX-License-Identifier: Apache-2.0 */
/* One table of records and members drives the writer and the reader. */
#include "common/admin/admin.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json_doc.h"
#include "common/base/status.h"

#define WHY_BYTES 160 /* of the JSON reader; nobody reads it */

typedef enum member_kind {
    MEMBER_TEXT,   /* char[size]; "" is null */
    MEMBER_PROSE,  /* as a text; the reader cuts one that is too long */
    MEMBER_NUMBER, /* uint64_t */
    MEMBER_CHOICE, /* uint32_t, index into the words; NULL is null */
    MEMBER_BOOL,   /* bool */
} member_kind_t;

typedef struct member {
    const char *key;
    member_kind_t kind;
    size_t offset; /* into the record */
    size_t size;   /* bytes of a text, or number of words */
    const char *const *words;
} member_t;

typedef struct record {
    size_t bytes;
    const member_t *members;
    size_t n_members;
} record_t;

static const char *const programs[] = {"router", "prefill", "decode",
                                       "standby"};
static const char *const roles[] = {NULL, "prefill", "decode", "both"};
static const char *const states[] = {"stopped", "starting", "ready", "stopping",
                                     "waiting"};
static const char *const launcher_states[] = {"running", "stopping"};

#define TEXT(type, field)                           \
    {                                               \
#field, MEMBER_TEXT, offsetof(type, field), \
            sizeof(((type *)0)->field), NULL        \
    }
#define PROSE(type, field)                           \
    {                                                \
#field, MEMBER_PROSE, offsetof(type, field), \
            sizeof(((type *)0)->field), NULL         \
    }
#define NUMBER(type, field)                                   \
    {                                                         \
#field, MEMBER_NUMBER, offsetof(type, field), 0, NULL \
    }
#define CHOICE(type, key, field, words)                                       \
    {                                                                         \
        key, MEMBER_CHOICE, offsetof(type, field), BT_ARRAY_LEN(words), words \
    }

static const member_t launcher_members[] = {
    NUMBER(bt_admin_launcher_t, pid),
    TEXT(bt_admin_launcher_t, version),
    TEXT(bt_admin_launcher_t, run_dir),
    CHOICE(bt_admin_launcher_t, "state", stopping, launcher_states),
};

static const member_t model_members[] = {
    TEXT(bt_admin_model_t, name),
    {"loaded", MEMBER_BOOL, offsetof(bt_admin_model_t, loaded), 0, NULL},
    TEXT(bt_admin_model_t, path),
    NUMBER(bt_admin_model_t, prefill),
    NUMBER(bt_admin_model_t, decode),
    NUMBER(bt_admin_model_t, both),
};

static const member_t process_members[] = {
    TEXT(bt_admin_process_t, name),
    CHOICE(bt_admin_process_t, "program", program, programs),
    CHOICE(bt_admin_process_t, "role", role, roles),
    TEXT(bt_admin_process_t, model),
    CHOICE(bt_admin_process_t, "state", state, states),
    NUMBER(bt_admin_process_t, pid),
    NUMBER(bt_admin_process_t, restarts),
    NUMBER(bt_admin_process_t, since_ms),
    TEXT(bt_admin_process_t, http),
    TEXT(bt_admin_process_t, metrics),
    PROSE(bt_admin_process_t, why),
};

_Static_assert(offsetof(bt_admin_model_t, name) == 0, "merged by name");
_Static_assert(offsetof(bt_admin_process_t, name) == 0, "merged by name");

static const record_t launchers = {sizeof(bt_admin_launcher_t),
                                   launcher_members,
                                   BT_ARRAY_LEN(launcher_members)};
static const record_t models = {sizeof(bt_admin_model_t), model_members,
                                BT_ARRAY_LEN(model_members)};
static const record_t processes = {sizeof(bt_admin_process_t), process_members,
                                   BT_ARRAY_LEN(process_members)};

static const char *word_of(const char *const *words, size_t n, uint32_t i,
                           const char *none)
{
    if (i >= n) {
        return "unknown";
    }
    return (words[i] != NULL) ? words[i] : none;
}

const char *bt_admin_program_name(uint32_t program)
{
    return word_of(programs, BT_ARRAY_LEN(programs), program, "");
}

const char *bt_admin_role_name(uint32_t role)
{
    return word_of(roles, BT_ARRAY_LEN(roles), role, "none");
}

const char *bt_admin_process_state_name(uint32_t state)
{
    return word_of(states, BT_ARRAY_LEN(states), state, "");
}

/* ---- writer ---- */

static void write_members(const record_t *type, const void *record,
                          bt_json_t *json)
{
    for (size_t i = 0; i < type->n_members; i++) {
        const member_t *const member = &type->members[i];
        const char *const at = (const char *)record + member->offset;

        switch (member->kind) {
        case MEMBER_TEXT:
        case MEMBER_PROSE:
            bt_json_str(json, member->key, (at[0] != '\0') ? at : NULL);
            break;
        case MEMBER_NUMBER:
            bt_json_u64(json, member->key, *(const uint64_t *)(const void *)at);
            break;
        case MEMBER_CHOICE:
            bt_json_str(json, member->key,
                        word_of(member->words, member->size,
                                *(const uint32_t *)(const void *)at, NULL));
            break;
        case MEMBER_BOOL:
            bt_json_bool(json, member->key, *(const bool *)(const void *)at);
            break;
        }
    }
}

static void write_array(const char *key, const record_t *type,
                        const void *records, uint32_t n, bt_json_t *json)
{
    bt_json_array(json, key);
    for (uint32_t i = 0; i < n; i++) {
        bt_json_object(json, NULL);
        write_members(type, (const char *)records + i * type->bytes, json);
        bt_json_end_object(json);
    }
    bt_json_end_array(json);
}

void bt_admin_write_launcher(const bt_admin_launcher_t *launcher,
                             bt_json_t *json)
{
    bt_json_object(json, "launcher");
    write_members(&launchers, launcher, json);
    bt_json_end_object(json);
}

void bt_admin_write_processes(const bt_admin_process_t *list, uint32_t n,
                              bt_json_t *json)
{
    write_array("processes", &processes, list, n, json);
}

void bt_admin_write_model_members(const bt_admin_model_t *model,
                                  bt_json_t *json)
{
    write_members(&models, model, json);
}

void bt_admin_reply_write(const bt_admin_reply_t *reply, bt_strbuf_t *out)
{
    const bt_admin_document_t *const document = &reply->document;
    bt_json_t json;

    bt_json_init(&json, out);
    bt_json_object(&json, NULL);
    if (reply->result != BT_ADMIN_CHANGE) {
        bt_json_bool(&json, "ok", reply->result == BT_ADMIN_OK);
    }
    if (reply->result == BT_ADMIN_ERROR) {
        bt_json_str(&json, "error", reply->error);
    }
    if (document->now_unix_ms != 0) {
        bt_json_u64(&json, "now_unix_ms", document->now_unix_ms);
    }
    if (document->has_launcher) {
        bt_admin_write_launcher(&document->launcher, &json);
    }
    if (document->models != NULL) {
        write_array("models", &models, document->models, document->n_models,
                    &json);
    }
    if (document->processes != NULL) {
        bt_admin_write_processes(document->processes, document->n_processes,
                                 &json);
    }
    bt_json_end_object(&json);
    bt_strbuf_puts(out, "\n");
}

/* ---- reader ---- */

/* @param [in] may_cut  a text that is too long is cut between two characters:
 *                      U+FFFD for a byte that was none made it longer */
static bt_status_t read_text(const bt_json_node_t *value, bool may_cut,
                             char *out, size_t bytes)
{
    size_t n;

    if (!bt_json_is_kind(value, BT_JSON_STRING) ||
        (memchr(value->text, '\0', value->len) != NULL) ||
        ((value->len >= bytes) && !may_cut)) {
        return BT_ERR_BAD_MESSAGE;
    }
    n = value->len;
    if (n >= bytes) {
        n = bytes - 1;
        while ((n > 0) && (((unsigned char)value->text[n] & 0xC0u) == 0x80u)) {
            n--;
        }
    }
    memcpy(out, value->text, n);
    out[n] = '\0';
    return BT_OK;
}

/* @retval BT_ERR_UNSUPPORTED  An unknown word. */
static bt_status_t read_choice(const bt_json_node_t *value,
                               const member_t *member, uint32_t *out_p)
{
    if (!bt_json_is_kind(value, BT_JSON_STRING)) {
        return BT_ERR_BAD_MESSAGE;
    }
    for (uint32_t i = 0; i < member->size; i++) {
        if ((member->words[i] != NULL) && bt_json_is(value, member->words[i])) {
            *out_p = i;
            return BT_OK;
        }
    }
    return BT_ERR_UNSUPPORTED;
}

static bt_status_t read_member(const bt_json_node_t *value,
                               const member_t *member, void *record)
{
    char *const out = (char *)record + member->offset;

    switch (member->kind) {
    case MEMBER_TEXT:
    case MEMBER_PROSE:
        return read_text(value, member->kind == MEMBER_PROSE, out,
                         member->size);
    case MEMBER_NUMBER:
        return bt_json_as_u64(value, (uint64_t *)(void *)out)
                   ? BT_OK
                   : BT_ERR_BAD_MESSAGE;
    case MEMBER_CHOICE:
        return read_choice(value, member, (uint32_t *)(void *)out);
    case MEMBER_BOOL:
        if (!bt_json_is_bool(value)) {
            return BT_ERR_BAD_MESSAGE;
        }
        *(bool *)(void *)out = bt_json_is_kind(value, BT_JSON_TRUE);
        return BT_OK;
    }
    return BT_ERR_BAD_MESSAGE;
}

/* @param [out] record  zero before */
static bt_status_t read_record(const bt_json_doc_t *doc,
                               const bt_json_node_t *object,
                               const record_t *type, void *record)
{
    if (!bt_json_is_kind(object, BT_JSON_OBJECT)) {
        return BT_ERR_BAD_MESSAGE;
    }
    for (size_t i = 0; i < type->n_members; i++) {
        const bt_json_node_t *const value =
            bt_json_get(doc, object, type->members[i].key);
        bt_status_t status;

        if ((value == NULL) || bt_json_is_kind(value, BT_JSON_NULL)) {
            continue;
        }
        status = read_member(value, &type->members[i], record);
        if (status != BT_OK) {
            return status;
        }
    }
    return BT_OK;
}

/* Reads an array of records, if it is there. Entries with unknown words are
 * skipped. */
static bt_status_t read_array(const bt_json_doc_t *doc, const char *key,
                              const record_t *type, void **records_p,
                              uint32_t *n_p)
{
    const bt_json_node_t *const array =
        bt_json_get(doc, bt_json_doc_root(doc), key);
    const uint32_t most = bt_json_size(array, BT_JSON_ARRAY);
    const bt_json_node_t *node;
    char *records;
    uint32_t n = 0;

    if ((array == NULL) || bt_json_is_kind(array, BT_JSON_NULL)) {
        return BT_OK;
    }
    if (!bt_json_is_kind(array, BT_JSON_ARRAY)) {
        return BT_ERR_BAD_MESSAGE;
    }
    records = bt_calloc((size_t)most + 1, type->bytes);
    if (records == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    node = bt_json_first(array);
    for (uint32_t i = 0; i < most; i++, node = bt_json_next(doc, node)) {
        char *const record = records + n * type->bytes;
        const bt_status_t status = read_record(doc, node, type, record);

        if (status == BT_OK) {
            n++;
        } else if (status == BT_ERR_UNSUPPORTED) {
            memset(record, 0, type->bytes);
        } else {
            bt_free(records);
            return status;
        }
    }
    *records_p = records;
    *n_p = n;
    return BT_OK;
}

static bt_status_t read_document(const bt_json_doc_t *doc,
                                 bt_admin_document_t *document)
{
    const bt_json_node_t *const root = bt_json_doc_root(doc);
    const bt_json_node_t *const launcher = bt_json_get(doc, root, "launcher");
    void *list = NULL;
    bt_status_t status = BT_OK;

    (void)bt_json_as_u64(bt_json_get(doc, root, "now_unix_ms"),
                         &document->now_unix_ms);
    if ((launcher != NULL) && !bt_json_is_kind(launcher, BT_JSON_NULL)) {
        status = read_record(doc, launcher, &launchers, &document->launcher);
        document->has_launcher = (status == BT_OK);
        if (status == BT_ERR_UNSUPPORTED) {
            status = BT_OK;
        }
    }
    if (status == BT_OK) {
        status = read_array(doc, "models", &models, &list, &document->n_models);
        document->models = list;
    }
    if (status == BT_OK) {
        list = NULL;
        status = read_array(doc, "processes", &processes, &list,
                            &document->n_processes);
        document->processes = list;
    }
    return status;
}

static bt_status_t read_result(const bt_json_doc_t *doc,
                               bt_admin_reply_t *reply)
{
    const bt_json_node_t *const root = bt_json_doc_root(doc);
    const bt_json_node_t *const ok = bt_json_get(doc, root, "ok");

    if (!bt_json_is_kind(root, BT_JSON_OBJECT) ||
        ((ok != NULL) && !bt_json_is_bool(ok))) {
        return BT_ERR_BAD_MESSAGE;
    }
    reply->result = (ok == NULL)                        ? BT_ADMIN_CHANGE
                    : bt_json_is_kind(ok, BT_JSON_TRUE) ? BT_ADMIN_OK
                                                        : BT_ADMIN_ERROR;
    return (reply->result != BT_ADMIN_ERROR)
               ? BT_OK
               : read_text(bt_json_get(doc, root, "error"), true, reply->error,
                           sizeof(reply->error));
}

bt_status_t bt_admin_reply_read(const char *line, size_t n,
                                bt_admin_reply_t *reply_p)
{
    bt_admin_reply_t reply = {.result = BT_ADMIN_CHANGE};
    bt_json_doc_t *doc = NULL;
    char why[WHY_BYTES];
    bt_status_t status = bt_json_doc_parse(line, n, why, sizeof(why), &doc);

    if (status != BT_OK) {
        return (status == BT_ERR_NO_MEMORY) ? status : BT_ERR_BAD_MESSAGE;
    }
    status = read_result(doc, &reply);
    if (status == BT_OK) {
        status = read_document(doc, &reply.document);
    }
    bt_json_doc_free(doc);
    if (status != BT_OK) {
        bt_admin_document_fini(&reply.document);
        return status;
    }
    *reply_p = reply;
    return BT_OK;
}

/* ---- documents ---- */

void bt_admin_document_fini(bt_admin_document_t *document)
{
    bt_free(document->models);
    bt_free(document->processes);
    *document = (bt_admin_document_t){.now_unix_ms = 0};
}

/* Replaces or appends one record; the name is its first member. */
static bt_status_t merge_record(const record_t *type, void **records_p,
                                uint32_t *n_p, const char *record)
{
    char *records = *records_p;

    for (uint32_t i = 0; i < *n_p; i++) {
        if (strcmp(records + i * type->bytes, record) == 0) {
            memcpy(records + i * type->bytes, record, type->bytes);
            return BT_OK;
        }
    }
    records = bt_realloc_array(records, (size_t)*n_p + 1, type->bytes);
    if (records == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    memcpy(records + *n_p * type->bytes, record, type->bytes);
    *records_p = records;
    (*n_p)++;
    return BT_OK;
}

static bt_status_t merge_array(const record_t *type, void **records_p,
                               uint32_t *n_p, const void *change, uint32_t n)
{
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (i < n) && (status == BT_OK); i++) {
        status = merge_record(type, records_p, n_p,
                              (const char *)change + i * type->bytes);
    }
    return status;
}

bt_status_t bt_admin_document_merge(bt_admin_document_t *document,
                                    const bt_admin_document_t *change)
{
    void *list = document->models;
    bt_status_t status;

    if (change->now_unix_ms != 0) {
        document->now_unix_ms = change->now_unix_ms;
    }
    if (change->has_launcher) {
        document->has_launcher = true;
        document->launcher = change->launcher;
    }
    status = merge_array(&models, &list, &document->n_models, change->models,
                         change->n_models);
    document->models = list;
    if (status == BT_OK) {
        list = document->processes;
        status = merge_array(&processes, &list, &document->n_processes,
                             change->processes, change->n_processes);
        document->processes = list;
    }
    return status;
}
