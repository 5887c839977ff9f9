/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a chat template | a zero byte | variables of a client as JSON, whose
 * member "messages" stands for theirs too. Where it is a list, it is also the
 * messages, and the tools that become text of them. What is rendered is UTF-8,
 * its quotes lie in it in order, twice gives the same, and nothing of a
 * client's own letters is outside of a quote. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/template/chat_priv.h"
#include "inference/template/template.h"

#define WHY_BYTES 600
#define OUT_BYTES ((size_t)1 << 20)

typedef struct outcome {
    bt_status_t status;
    bt_strbuf_t out;
    bt_quotes_t quotes;
} outcome_t;

static void render(const bt_template_t *tmpl, const char *json, size_t bytes,
                   outcome_t *o)
{
    static const char told[] = "[{\"role\":\"user\",\"content\":\"\x7F</s>\"}]";
    const bt_template_var_t vars[] = {
        {.kind = BT_VAR_TEXT, .name = "bos_token", .text = "<s>", .bytes = 3},
        {.kind = BT_VAR_TRUTH, .name = "add_generation_prompt", .truth = true},
        {.kind = BT_VAR_MEMBERS, .text = json, .bytes = bytes},
        {.kind = BT_VAR_MESSAGES,
         .name = "messages",
         .text = told,
         .bytes = sizeof(told) - 1},
    };
    char why[WHY_BYTES] = "";

    memset(&o->quotes, 0, sizeof(o->quotes));
    bt_strbuf_init(&o->out, OUT_BYTES);
    o->status = bt_template_render(tmpl, vars, BT_ARRAY_LEN(vars), 86400,
                                   &o->out, &o->quotes, why, sizeof(why));
    BT_ASSERT_ALWAYS((o->status == BT_OK) == (why[0] == '\0'));
    BT_ASSERT_ALWAYS((o->status == BT_OK) || (o->out.len == 0));
}

/* Templates that show system messages and those that want roles in turns
 * differ in what the tools become. */
static void render_tools(const bt_template_t *tmpl, const char *json,
                         size_t bytes, outcome_t *o)
{
    const bt_tmpl_forms_t forms = {.strings = {true, true, true, true},
                                   .system = (bytes & 1) != 0,
                                   .alternates = (bytes & 2) != 0};
    bt_strbuf_t unused;
    const bt_template_var_t var = {.kind = BT_VAR_MESSAGES,
                                   .name = "messages",
                                   .text = json,
                                   .bytes = bytes,
                                   .forms = &forms,
                                   .writes_tools = true,
                                   .tools = json,
                                   .tools_bytes = bytes,
                                   .unused = &unused,
                                   .path = "messages"};
    char why[WHY_BYTES] = "";

    memset(&o->quotes, 0, sizeof(o->quotes));
    bt_strbuf_init(&o->out, OUT_BYTES);
    bt_strbuf_init(&unused, OUT_BYTES);
    o->status = bt_template_render(tmpl, &var, 1, 86400, &o->out, &o->quotes,
                                   why, sizeof(why));
    BT_ASSERT_ALWAYS((o->status == BT_OK) == (why[0] == '\0'));
    BT_ASSERT_ALWAYS((o->status == BT_OK) || (o->out.len == 0));
    bt_strbuf_fini(&unused);
}

static void look(const outcome_t *o, bool has_seven_f)
{
    size_t end = 0;

    BT_ASSERT_ALWAYS((o->out.len == 0) ||
                     bt_utf8_valid((const uint8_t *)o->out.data, o->out.len));
    for (size_t i = 0; i < o->quotes.n; i++) {
        const bt_quote_t *quote = &o->quotes.list[i];

        BT_ASSERT_ALWAYS((i == 0) || (quote->begin > end));
        BT_ASSERT_ALWAYS((quote->begin < quote->end) &&
                         (quote->end <= o->out.len));
        for (size_t k = end; (k < quote->begin) && !has_seven_f; k++) {
            BT_ASSERT_ALWAYS(o->out.data[k] != '\x7F');
        }
        end = quote->end;
    }
    for (size_t k = end; (k < o->out.len) && !has_seven_f; k++) {
        BT_ASSERT_ALWAYS(o->out.data[k] != '\x7F');
    }
}

typedef void render_t(const bt_template_t *tmpl, const char *json, size_t bytes,
                      outcome_t *o);

static void render_twice(render_t *how, const bt_template_t *tmpl,
                         const char *json, size_t bytes, bool has_seven_f)
{
    outcome_t first;
    outcome_t second;

    how(tmpl, json, bytes, &first);
    how(tmpl, json, bytes, &second);
    look(&first, has_seven_f);
    BT_ASSERT_ALWAYS((first.status == second.status) &&
                     (first.out.len == second.out.len) &&
                     (first.quotes.n == second.quotes.n));
    BT_ASSERT_ALWAYS(
        (first.out.len == 0) ||
        (memcmp(first.out.data, second.out.data, first.out.len) == 0));
    bt_strbuf_fini(&first.out);
    bt_strbuf_fini(&second.out);
    bt_quotes_fini(&first.quotes);
    bt_quotes_fini(&second.quotes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = (size > 0) ? memchr(data, '\0', size) : NULL;
    const size_t bytes = (zero != NULL) ? (size_t)(zero - data) : size;
    const char *json = (zero != NULL) ? (const char *)zero + 1 : "{}";
    const size_t json_bytes = (zero != NULL) ? size - bytes - 1 : 2;
    /* An escape can spell it too: "\x7f", "\177". */
    const bool escapes = (memchr(data, '\x7F', bytes) != NULL) ||
                         (memchr(data, '\\', bytes) != NULL);
    bt_template_t *tmpl = NULL;
    char why[WHY_BYTES] = "";

    if (bt_template_parse((const char *)data, bytes, why, sizeof(why), &tmpl) !=
        BT_OK) {
        BT_ASSERT_ALWAYS((tmpl == NULL) && (why[0] != '\0'));
        return 0;
    }
    render_twice(render, tmpl, json, json_bytes, escapes);
    render_twice(render_tools, tmpl, json, json_bytes, escapes);
    bt_template_destroy(tmpl);
    return 0;
}
