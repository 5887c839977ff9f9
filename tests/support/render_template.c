/* SPDX-License-Identifier: Apache-2.0 */
/* Renders templates for tests/clients/test_templates.py. Standard input has any
 * number of jobs:
 *
 *     BYTES BYTES BYTES SECONDS\n   of the next three, and the clock
 *     template, variables (a JSON object), messages (JSON, or nothing)
 *
 * and each gets an answer:
 *
 *     ok BYTES N BEGIN END ...\n    and the text; N quotes in it
 *     parse BYTES\n  fail BYTES\n   and why
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/template/template.h"

#define MAX_BYTES ((size_t)16 << 20)
#define WHY_BYTES 600

static char *read_part(size_t bytes)
{
    char *part = (bytes <= MAX_BYTES) ? bt_calloc(bytes + 1, 1) : NULL;

    if ((part != NULL) && (fread(part, 1, bytes, stdin) != bytes)) {
        bt_free(part);
        return NULL;
    }
    return part;
}

static void answer(const char *word, const char *why)
{
    printf("%s %zu\n%s", word, strlen(why), why);
}

static void render(char *const parts[3], const size_t bytes[3], int64_t now_s)
{
    const bt_template_var_t vars[] = {
        {.kind = BT_VAR_MEMBERS, .text = parts[1], .bytes = bytes[1]},
        {.kind = BT_VAR_MESSAGES,
         .name = "messages",
         .text = parts[2],
         .bytes = bytes[2]},
    };
    bt_template_t *tmpl = NULL;
    bt_quotes_t quotes = {0};
    char why[WHY_BYTES] = "";
    bt_strbuf_t out;

    if (bt_template_parse(parts[0], bytes[0], why, sizeof(why), &tmpl) !=
        BT_OK) {
        answer("parse", why);
        return;
    }
    bt_strbuf_init(&out, MAX_BYTES);
    if (bt_template_render(tmpl, vars, (bytes[2] > 0) ? 2 : 1, now_s, &out,
                           &quotes, why, sizeof(why)) != BT_OK) {
        answer("fail", why);
    } else {
        printf("ok %zu %zu", out.len, quotes.n);
        for (size_t i = 0; i < quotes.n; i++) {
            printf(" %zu %zu", quotes.list[i].begin, quotes.list[i].end);
        }
        printf("\n");
        fwrite(out.data, 1, out.len, stdout);
    }
    bt_strbuf_fini(&out);
    bt_quotes_fini(&quotes);
    bt_template_destroy(tmpl);
}

int main(void)
{
    size_t bytes[3];
    int64_t now_s;

    while (scanf("%zu %zu %zu %" SCNd64, &bytes[0], &bytes[1], &bytes[2],
                 &now_s) == 4) {
        char *parts[3] = {NULL, NULL, NULL};
        bool read = getchar() == '\n';

        for (int i = 0; (i < 3) && read; i++) {
            parts[i] = read_part(bytes[i]);
            read = parts[i] != NULL;
        }
        if (read) {
            render(parts, bytes, now_s);
            fflush(stdout);
        }
        for (int i = 0; i < 3; i++) {
            bt_free(parts[i]);
        }
        if (!read) {
            return 1;
        }
    }
    return 0;
}
