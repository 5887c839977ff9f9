/* SPDX-License-Identifier: Apache-2.0 */
/* One table of records and fields drives the encoder and the decoder. */
#include <inttypes.h>
#include <string.h>

#include "common/admin/admin_priv.h"
#include "common/base/assert.h"

typedef enum field_kind {
    FIELD_TEXT,   /* char[size] */
    FIELD_NUMBER, /* uint64_t */
    FIELD_CHOICE, /* uint32_t, index into the words */
} field_kind_t;

typedef struct field {
    const char *key;
    field_kind_t kind;
    size_t offset; /* into the record */
    size_t size;
    const char *const *words; /* FIELD_CHOICE, NULL after the last */
} field_t;

typedef struct record {
    const char *word;
    bt_admin_event_kind_t kind;
    const field_t *fields;
    size_t n_fields;
} record_t;

static const char *const programs[] = {"router", "prefill", "decode", "standby",
                                       NULL};
static const char *const roles[] = {"none", "prefill", "decode", "both", NULL};
static const char *const states[] = {"stopped",  "starting", "ready",
                                     "stopping", "waiting",  NULL};
static const char *const lives[] = {"running", "stopping", NULL};
static const char *const loads[] = {"loaded", "unloaded", NULL};

#define TEXT(type, field)                                                      \
    {                                                                          \
#field, FIELD_TEXT, offsetof(type, field), sizeof(((type *)0)->field), \
            NULL                                                               \
    }
#define NUMBER(type, field)                                                 \
    {                                                                       \
#field, FIELD_NUMBER, offsetof(type, field), sizeof(uint64_t), NULL \
    }
#define CHOICE(type, key, field, words)                                   \
    {                                                                     \
        key, FIELD_CHOICE, offsetof(type, field), sizeof(uint32_t), words \
    }

static const field_t launcher_fields[] = {
    NUMBER(bt_admin_launcher_t, pid),
    TEXT(bt_admin_launcher_t, version),
    TEXT(bt_admin_launcher_t, run_dir),
    CHOICE(bt_admin_launcher_t, "state", stopping, lives),
};

static const field_t model_fields[] = {
    TEXT(bt_admin_model_t, name),
    TEXT(bt_admin_model_t, path),
    NUMBER(bt_admin_model_t, prefill),
    NUMBER(bt_admin_model_t, decode),
    NUMBER(bt_admin_model_t, both),
    CHOICE(bt_admin_model_t, "state", unloaded, loads),
};

static const field_t process_fields[] = {
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
    TEXT(bt_admin_process_t, why),
};

static const record_t records[] = {
    {"ok", BT_ADMIN_EVENT_OK, NULL, 0},
    {"launcher", BT_ADMIN_EVENT_LAUNCHER, launcher_fields,
     BT_ARRAY_LEN(launcher_fields)},
    {"model", BT_ADMIN_EVENT_MODEL, model_fields, BT_ARRAY_LEN(model_fields)},
    {"process", BT_ADMIN_EVENT_PROCESS, process_fields,
     BT_ARRAY_LEN(process_fields)},
};

/* Its line has free text, so it is not in the table. */
static const char error_word[] = "error ";

static const char *word_of(const char *const *words, size_t n, uint32_t i)
{
    return (i < n - 1) ? words[i] : "unknown";
}

const char *bt_admin_program_name(uint32_t program)
{
    return word_of(programs, BT_ARRAY_LEN(programs), program);
}

const char *bt_admin_role_name(uint32_t role)
{
    return word_of(roles, BT_ARRAY_LEN(roles), role);
}

const char *bt_admin_process_state_name(uint32_t state)
{
    return word_of(states, BT_ARRAY_LEN(states), state);
}

static bt_status_t read_field(const field_t *field, const char *value,
                              char *record)
{
    char *const out = record + field->offset;

    switch (field->kind) {
    case FIELD_TEXT:
        return bt_admin_copy(value, out, field->size) ? BT_OK
                                                      : BT_ERR_BAD_MESSAGE;
    case FIELD_NUMBER:
        return bt_admin_number(value, (uint64_t *)(void *)out);
    case FIELD_CHOICE:
        for (uint32_t i = 0; field->words[i] != NULL; i++) {
            if (strcmp(field->words[i], value) == 0) {
                *(uint32_t *)(void *)out = i;
                return BT_OK;
            }
        }
        return BT_ERR_UNSUPPORTED; /* of a later version */
    }
    return BT_ERR_BAD_MESSAGE;
}

static bt_status_t read_fields(const record_t *type,
                               const bt_admin_words_t *words, char *record)
{
    for (uint32_t i = 1; i < words->n_words; i++) {
        const char *const word = words->words[i];
        const size_t n_key = strcspn(word, "=");

        for (size_t f = 0; (f < type->n_fields) && (word[n_key] == '='); f++) {
            const field_t *const field = &type->fields[f];

            if ((strlen(field->key) == n_key) &&
                (memcmp(field->key, word, n_key) == 0)) {
                const bt_status_t status =
                    read_field(field, word + n_key + 1, record);

                if (status != BT_OK) {
                    return status;
                }
            }
        }
    }
    return BT_OK;
}

bt_status_t bt_admin_event_read(const char *line, size_t n,
                                bt_admin_event_t *event_p)
{
    const size_t n_error = sizeof(error_word) - 1;
    bt_admin_words_t words;
    bt_admin_event_t event;
    bt_status_t status;

    memset(&event, 0, sizeof(event));
    if ((n >= n_error) && (memcmp(line, error_word, n_error) == 0)) {
        event.kind = BT_ADMIN_EVENT_ERROR;
        status = bt_admin_decode(line + n_error, n - n_error, event.u.error,
                                 sizeof(event.u.error));
        if (status == BT_OK) {
            *event_p = event;
        }
        return status;
    }
    status = bt_admin_split(line, n, &words);
    if (status != BT_OK) {
        return status;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(records); i++) {
        if (strcmp(records[i].word, words.words[0]) == 0) {
            event.kind = records[i].kind;
            status = read_fields(&records[i], &words, (char *)&event.u);
            if (status == BT_OK) {
                *event_p = event;
            }
            return status;
        }
    }
    return BT_ERR_UNSUPPORTED;
}

static void write_field(const field_t *field, const char *record,
                        bt_strbuf_t *out)
{
    const char *const at = record + field->offset;

    switch (field->kind) {
    case FIELD_TEXT:
        if (at[0] != '\0') {
            bt_strbuf_printf(out, " %s=", field->key);
            bt_admin_encode(at, false, out);
        }
        break;
    case FIELD_NUMBER:
        bt_strbuf_printf(out, " %s=%" PRIu64, field->key,
                         *(const uint64_t *)(const void *)at);
        break;
    case FIELD_CHOICE:
        bt_strbuf_printf(out, " %s=%s", field->key,
                         field->words[*(const uint32_t *)(const void *)at]);
        break;
    }
}

void bt_admin_event_write(const bt_admin_event_t *event, bt_strbuf_t *out)
{
    if (event->kind == BT_ADMIN_EVENT_ERROR) {
        bt_strbuf_puts(out, error_word);
        bt_admin_encode(event->u.error, true, out);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(records); i++) {
        if (records[i].kind != event->kind) {
            continue;
        }
        bt_strbuf_puts(out, records[i].word);
        for (size_t f = 0; f < records[i].n_fields; f++) {
            write_field(&records[i].fields[f], (const char *)&event->u, out);
        }
    }
    bt_strbuf_append(out, "\n", 1);
}
