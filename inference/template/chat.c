/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/chat_priv.h"

#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "inference/template/print.h"
#include "inference/tokenizer/unicode.h"

/* Memory and step limits of a family's messages. */
#define MIN_BYTES      ((size_t)1 << 20)
#define BYTES_PER_BYTE 64u
#define STEPS_PER_BYTE 16u

typedef struct message {
    const bt_tmpl_text_t *role, *content;
} message_t;

/* State of one bt_chat_render(). */
typedef struct bt_chat_call {
    const bt_chat_template_t *tmpl;
    const bt_chat_request_t *request;
    message_t *messages; /* in the run's memory */
    size_t n;
    bool has_calls;
    bt_strbuf_t *out;
    bt_quotes_t *quotes; /* NULL: not collected */
    const char *why;
    bt_status_t status;
} render_t;

typedef bt_status_t render_fn_t(render_t *r);

static bool role_is(const message_t *message, const char *role)
{
    return bt_tmpl_text_is(message->role, role);
}

static void put(render_t *r, const char *text)
{
    bt_strbuf_puts(r->out, text);
}

/* Appends text that the author of a message wrote. */
static void put_words(render_t *r, const char *text, size_t n)
{
    const size_t begin = r->out->len;

    bt_strbuf_append(r->out, text, n);
    if ((r->quotes != NULL) && (r->status == BT_OK)) {
        r->status = bt_quotes_add(r->quotes, begin, r->out->len);
    }
}

static void put_content(render_t *r, const bt_tmpl_text_t *text)
{
    put_words(r, text->data, text->len);
}

/* True for characters that Python's str.strip() removes: white space and the
 * four information separators. */
static bool strips(uint32_t cp)
{
    return (bt_unicode_class(cp) == BT_UNICODE_SPACE) ||
           ((cp >= 0x1C) && (cp <= 0x1F));
}

static bool space_at(const char *text, size_t n, size_t *len_p)
{
    const uint8_t *p = (const uint8_t *)text;
    const int len = bt_utf8_scan(p, n);
    uint32_t cp;

    if (len <= 0) {
        return false;
    }
    bt_utf8_decode(p, &cp);
    *len_p = (size_t)len;
    return strips(cp);
}

static const char *skip_spaces(const char *text, size_t n)
{
    size_t at = 0;
    size_t len;

    while ((at < n) && space_at(text + at, n - at, &len)) {
        at += len;
    }
    return text + at;
}

/* Returns the length without trailing white space. */
static size_t trimmed_len(const bt_tmpl_text_t *whole)
{
    const char *text = whole->data;
    size_t n = whole->len;

    while (n > 0) {
        size_t start = n - 1;
        size_t len;

        while ((start > 0) && (n - start < 4) &&
               (((uint8_t)text[start] & 0xC0) == 0x80)) {
            start--;
        }
        if (!space_at(text + start, n - start, &len) || (len != n - start)) {
            break;
        }
        n = start;
    }
    return n;
}

static void put_trimmed(render_t *r, const bt_tmpl_text_t *text)
{
    const size_t n = trimmed_len(text);
    const char *start = skip_spaces(text->data, n);

    put_words(r, start, n - (size_t)(start - text->data));
}

static bt_status_t fail(render_t *r, bt_status_t status, const char *why)
{
    r->why = why;
    return status;
}

/* Checks roles: only system, user and assistant, and system only as the first
 * message. */
static bt_status_t check_roles(render_t *r, bool system)
{
    for (size_t i = 0; i < r->n; i++) {
        const message_t *m = &r->messages[i];

        if (role_is(m, "system") && !system) {
            return fail(r, BT_ERR_UNSUPPORTED,
                        "this model's chat template has no system role");
        }
        if (role_is(m, "system") && (i > 0)) {
            return fail(r, BT_ERR_INVALID_PARAM,
                        "a system message can only be the first");
        }
        if (!role_is(m, "system") && !role_is(m, "user") &&
            !role_is(m, "assistant")) {
            return fail(r, BT_ERR_UNSUPPORTED,
                        "this model's chat template knows only the roles "
                        "system, user and assistant");
        }
    }
    return BT_OK;
}

/* Checks roles, and that user and assistant alternate from first on. */
static bt_status_t check_turns(render_t *r, bool system)
{
    const bt_status_t status = check_roles(r, system);
    const size_t first = role_is(&r->messages[0], "system") ? 1 : 0;

    if (status != BT_OK) {
        return status;
    }
    if (first == r->n) {
        return fail(r, BT_ERR_INVALID_PARAM, "there is no user message");
    }
    for (size_t i = first; i < r->n; i++) {
        if (role_is(&r->messages[i], "user") != ((i - first) % 2 == 0)) {
            return fail(r, BT_ERR_INVALID_PARAM,
                        "roles must alternate user, assistant, user ...");
        }
    }
    return BT_OK;
}

/* extra: the system message where the conversation has none, or NULL. */
static bt_status_t render_chatml(render_t *r)
{
    if ((r->tmpl->extra != NULL) && !role_is(&r->messages[0], "system")) {
        put(r, "<|im_start|>system\n");
        put(r, r->tmpl->extra);
        put(r, "<|im_end|>\n");
    }
    for (size_t i = 0; i < r->n; i++) {
        put(r, "<|im_start|>");
        put_content(r, r->messages[i].role);
        put(r, "\n");
        put_content(r, r->messages[i].content);
        put(r, "<|im_end|>\n");
    }
    put(r, "<|im_start|>assistant\n");
    return BT_OK;
}

/* The first user message with the system text before it, stripped as one:
 * when the user text is blank, the line ends before it go as well. */
static void put_llama2_system(render_t *r, const bt_tmpl_text_t *system,
                              const bt_tmpl_text_t *user)
{
    const size_t n = trimmed_len(user);

    put(r, "<<SYS>>\n");
    put_content(r, system);
    put(r, "\n<</SYS>>");
    if (n > 0) {
        put(r, "\n\n");
        put_words(r, user->data, n);
    }
}

static bt_status_t render_llama2(render_t *r)
{
    const bt_status_t status = check_turns(r, true);
    const size_t first = role_is(&r->messages[0], "system") ? 1 : 0;

    if (status != BT_OK) {
        return status;
    }
    for (size_t i = first; i < r->n; i++) {
        const bt_tmpl_text_t *content = r->messages[i].content;

        if (role_is(&r->messages[i], "assistant")) {
            put(r, " ");
            put_trimmed(r, content);
            put(r, " </s>");
            continue;
        }
        put(r, "<s>[INST] ");
        if ((i == 1) && (first == 1)) {
            put_llama2_system(r, r->messages[0].content, content);
        } else {
            put_trimmed(r, content);
        }
        put(r, " [/INST]");
    }
    return BT_OK;
}

static void put_llama3_header(render_t *r, const bt_tmpl_text_t *role)
{
    put(r, "<|start_header_id|>");
    put_content(r, role);
    put(r, "<|end_header_id|>\n\n");
}

/* extra: what every system message begins with; there always is one then. */
static bt_status_t render_llama3(render_t *r)
{
    static const bt_tmpl_text_t system = {.data = "system", .len = 6};
    static const bt_tmpl_text_t assistant = {.data = "assistant", .len = 9};
    size_t first = 0;

    put(r, "<|begin_of_text|>");
    if (r->tmpl->extra != NULL) {
        put_llama3_header(r, &system);
        put(r, r->tmpl->extra);
        if (role_is(&r->messages[0], "system")) {
            put_trimmed(r, r->messages[0].content);
            first = 1;
        }
        put(r, "<|eot_id|>");
    }
    for (size_t i = first; i < r->n; i++) {
        put_llama3_header(r, r->messages[i].role);
        put_trimmed(r, r->messages[i].content);
        put(r, "<|eot_id|>");
    }
    put_llama3_header(r, &assistant);
    return BT_OK;
}

/* extra: what follows the system message, which opens the first user message;
 * or NULL where there is no place for one. */
static bt_status_t render_gemma(render_t *r)
{
    const bt_status_t status = check_turns(r, r->tmpl->extra != NULL);
    const size_t first = role_is(&r->messages[0], "system") ? 1 : 0;

    if (status != BT_OK) {
        return status;
    }
    put(r, "<bos>");
    for (size_t i = first; i < r->n; i++) {
        put(r, "<start_of_turn>");
        put(r, role_is(&r->messages[i], "user") ? "user" : "model");
        put(r, "\n");
        if ((i == 1) && (first == 1)) {
            put_content(r, r->messages[0].content);
            put(r, r->tmpl->extra);
        }
        put_trimmed(r, r->messages[i].content);
        put(r, "<end_of_turn>\n");
    }
    put(r, "<start_of_turn>model\n");
    return BT_OK;
}

/* extra: what follows the end of an answer. */
static bt_status_t render_mistral(render_t *r)
{
    const bt_status_t status = check_turns(r, false);

    if (status != BT_OK) {
        return status;
    }
    put(r, "<s>");
    for (size_t i = 0; i < r->n; i++) {
        const bool user = role_is(&r->messages[i], "user");

        put(r, user ? "[INST] " : "");
        put_content(r, r->messages[i].content);
        put(r, user ? " [/INST]" : "</s>");
        put(r, user ? "" : r->tmpl->extra);
    }
    return BT_OK;
}

/* Later variant of the format, which supports a system message. */
static bt_status_t render_mistral_v1(render_t *r)
{
    const bt_status_t status = check_turns(r, true);
    const size_t first = role_is(&r->messages[0], "system") ? 1 : 0;

    if (status != BT_OK) {
        return status;
    }
    put(r, "<s>");
    for (size_t i = first; i < r->n; i++) {
        const bool user = role_is(&r->messages[i], "user");

        put(r, user ? " [INST] " : " ");
        if ((i == 1) && (first == 1)) {
            put_content(r, r->messages[0].content);
            put(r, "\n\n");
        }
        put_content(r, r->messages[i].content);
        put(r, user ? " [/INST]" : "</s>");
    }
    return BT_OK;
}

/* <|role|>, a line with the content, extra; for Zephyr and Phi-3. */
static bt_status_t render_tagged(render_t *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const message_t *m = &r->messages[i];

        if (!role_is(m, "system") && !role_is(m, "user") &&
            !role_is(m, "assistant")) {
            return fail(r, BT_ERR_UNSUPPORTED,
                        "this model's chat template knows only the roles "
                        "system, user and assistant");
        }
    }
    for (size_t i = 0; i < r->n; i++) {
        put(r, "<|");
        bt_strbuf_append(r->out, r->messages[i].role->data, /* name of the
                                                               role */
                         r->messages[i].role->len);
        put(r, "|>\n");
        put_content(r, r->messages[i].content);
        put(r, r->tmpl->extra);
    }
    put(r, "<|assistant|>\n");
    return BT_OK;
}

/* Text that opens the answer, by family. */
static const char *opening_of(const bt_chat_template_t *tmpl)
{
    static const struct {
        render_fn_t *render;
        const char *opening;
    } openings[] = {
        {render_chatml, "<|im_start|>assistant\n"},
        {render_llama3, "<|start_header_id|>assistant<|end_header_id|>\n\n"},
        {render_gemma, "<start_of_turn>model\n"},
        {render_tagged, "<|assistant|>\n"},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(openings); i++) {
        if (openings[i].render == tmpl->render) {
            return openings[i].opening;
        }
    }
    return "";
}

size_t bt_chat_opening_bytes(const bt_chat_template_t *tmpl, const char *text,
                             size_t bytes)
{
    const char *opening = opening_of(tmpl);
    const size_t n = strlen(opening);

    return ((n <= bytes) && (memcmp(text + bytes - n, opening, n) == 0)) ? n
                                                                         : 0;
}

#define NAMES                                                             \
    "chatml, smollm, qwen1.5, qwen2, qwen2.5, llama2, llama3, llama3.1, " \
    "gemma, gemma3, mistral, mistral-v0.1, mistral-v1, zephyr, phi"

enum {
    CHATML,
    SMOLLM,
    QWEN1_5,
    QWEN2,
    QWEN2_5,
    LLAMA2,
    LLAMA3,
    LLAMA3_1,
    GEMMA,
    GEMMA3,
    MISTRAL,
    MISTRAL_V0_1,
    MISTRAL_V1,
    ZEPHYR,
    PHI,
};

static const bt_chat_template_t templates[] = {
    [CHATML] = {.name = "chatml", .render = render_chatml, .extra = NULL},
    [SMOLLM] = {.name = "smollm",
                .render = render_chatml,
                .extra =
                    "You are a helpful AI assistant named SmolLM, trained by "
                    "Hugging Face"},
    [QWEN1_5] = {.name = "qwen1.5",
                 .render = render_chatml,
                 .extra = "You are a helpful assistant"},
    [QWEN2] = {.name = "qwen2",
               .render = render_chatml,
               .extra = "You are a helpful assistant."},
    [QWEN2_5] =
        {.name = "qwen2.5",
         .render = render_chatml,
         .extra = "You are Qwen, created by Alibaba Cloud. You are a helpful "
                  "assistant."},
    [LLAMA2] = {.name = "llama2", .render = render_llama2, .extra = NULL},
    [LLAMA3] = {.name = "llama3", .render = render_llama3, .extra = NULL},
    [LLAMA3_1] = {.name = "llama3.1",
                  .render = render_llama3,
                  .extra = "Cutting Knowledge Date: December 2023\n"
                           "Today Date: 26 Jul 2024\n\n"},
    [GEMMA] = {.name = "gemma", .render = render_gemma, .extra = NULL},
    [GEMMA3] = {.name = "gemma3", .render = render_gemma, .extra = "\n\n"},
    [MISTRAL] = {.name = "mistral", .render = render_mistral, .extra = ""},
    [MISTRAL_V0_1] = {.name = "mistral-v0.1",
                      .render = render_mistral,
                      .extra = " "},
    [MISTRAL_V1] = {.name = "mistral-v1",
                    .render = render_mistral_v1,
                    .extra = NULL},
    [ZEPHYR] = {.name = "zephyr", .render = render_tagged, .extra = "</s>\n"},
    [PHI] = {.name = "phi", .render = render_tagged, .extra = "<|end|>\n"},
};

const bt_chat_template_t *bt_chat_template_by_name(const char *name)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(templates); i++) {
        if (strcmp(templates[i].name, name) == 0) {
            return &templates[i];
        }
    }
    return NULL;
}

const char *bt_chat_template_name(const bt_chat_template_t *tmpl)
{
    return tmpl->name;
}

const char *bt_chat_template_names(void)
{
    return NAMES;
}

/* ---- rendering ---- */

/* Refuses inputs that only a model's own template supports. */
static bt_status_t check_family(render_t *r)
{
    if ((r->request->tools_json != NULL) || r->has_calls) {
        return fail(r, BT_ERR_UNSUPPORTED,
                    "tools need the model's own chat template; the server was "
                    "started with --chat-template and the name of a family");
    }
    if ((r->request->documents_json != NULL) ||
        (r->request->kwargs_json != NULL)) {
        return fail(r, BT_ERR_UNSUPPORTED,
                    "documents and chat_template_kwargs need the model's own "
                    "chat template; the server was started with "
                    "--chat-template and the name of a family");
    }
    return BT_OK;
}

static bt_status_t render_family(render_t *r)
{
    const size_t len_before = r->out->len;
    bt_status_t status = check_family(r);

    if (status == BT_OK) {
        status = r->tmpl->render(r);
    }
    if (status == BT_OK) {
        status = r->status;
        r->why = bt_status_str(status);
    }
    if (status == BT_OK) {
        status = bt_strbuf_status(r->out);
        r->why = bt_status_str(status);
    }
    if ((status == BT_OK) && r->request->no_generation_prompt) {
        r->out->len -=
            bt_chat_opening_bytes(r->tmpl, r->out->data, r->out->len);
        r->out->data[r->out->len] = '\0';
    }
    if (status != BT_OK) {
        r->out->len = len_before;
        if (r->out->data != NULL) {
            r->out->data[len_before] = '\0';
        }
    }
    return status;
}

/* Returns a member of a message as a text; NULL: it is none. */
static const bt_tmpl_text_t *text_of(bt_tmpl_value_t message, const char *name)
{
    const bt_tmpl_value_t *value =
        (message.kind == BT_V_DICT)
            ? bt_tmpl_dict_find_name(message.u.dict, name)
            : NULL;

    return ((value != NULL) && (value->kind == BT_V_TEXT)) ? value->u.text
                                                           : NULL;
}

static bt_status_t take_messages(render_t *r, bt_tmpl_run_t *run,
                                 bt_tmpl_value_t list)
{
    const bt_tmpl_seq_t *seq = (list.kind == BT_V_SEQ) ? list.u.seq : NULL;

    if ((seq == NULL) || (seq->n == 0)) {
        return fail(r, BT_ERR_INVALID_PARAM, "there are no messages");
    }
    r->messages = bt_tmpl_run_take(run, seq->n, sizeof(*r->messages));
    if (r->messages == NULL) {
        return fail(r, run->status, run->why);
    }
    for (r->n = 0; r->n < seq->n; r->n++) {
        message_t *m = &r->messages[r->n];

        m->role = text_of(seq->items[r->n], "role");
        m->content = text_of(seq->items[r->n], "content");
        if ((m->role == NULL) || (m->content == NULL)) {
            return fail(r, BT_ERR_INVALID_PARAM,
                        "a message needs a role and content");
        }
        r->has_calls =
            r->has_calls || (bt_tmpl_dict_find_name(seq->items[r->n].u.dict,
                                                    "tool_calls") != NULL);
    }
    return BT_OK;
}

/* Reads the messages as values, in a run of their own. */
static bt_status_t read_family(render_t *r, bt_tmpl_run_t *run)
{
    const char *json = r->request->messages_json;
    bt_tmpl_value_t list = bt_tmpl_v_none();
    bt_status_t status;

    if (!bt_tmpl_json_read(run, json, strlen(json), &list) ||
        !bt_tmpl_messages_adapt(run, list, &bt_tmpl_forms_strings,
                                r->request->unused)) {
        return fail(r, run->status, run->why);
    }
    status = take_messages(r, run, list);
    if (status == BT_OK) {
        status = render_family(r);
    }
    if ((status == BT_OK) && (r->request->unused != NULL)) {
        bt_tmpl_unused(list, "messages", r->request->unused);
    }
    return status;
}

bt_status_t bt_chat_render(const bt_chat_template_t *tmpl,
                           const bt_chat_request_t *request, bt_strbuf_t *out,
                           bt_quotes_t *quotes, char *why, size_t why_bytes)
{
    render_t r = {
        .tmpl = tmpl, .request = request, .out = out, .quotes = quotes};
    const size_t bytes = strlen(request->messages_json);
    bt_tmpl_run_t run;
    bt_status_t status;

    if (tmpl->jinja != NULL) {
        return bt_chat_render_own(tmpl, request, out, quotes, why, why_bytes);
    }
    if (bytes > BT_TEMPLATE_MAX_VALUES) {
        snprintf(why, why_bytes, "the messages have more than %zu bytes",
                 BT_TEMPLATE_MAX_VALUES);
        return BT_ERR_TOO_LARGE;
    }
    bt_tmpl_run_init(&run, MIN_BYTES + bytes * BYTES_PER_BYTE,
                     MIN_BYTES + bytes * STEPS_PER_BYTE);
    status = read_family(&r, &run);
    if (status != BT_OK) {
        snprintf(why, why_bytes, "%s", r.why);
    }
    bt_tmpl_run_fini(&run);
    return status;
}
