/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/status.h"

static const bt_tmpl_node_t *parse_body(bt_tmpl_parser_t *p,
                                        const char *const *ends);

/* ---- tokens ---- */

bt_tmpl_node_t *bt_tmpl_parse_wrong(bt_tmpl_parser_t *p, const char *fmt, ...)
{
    char why[BT_RUN_WHY_BYTES];
    va_list args;

    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    if (bt_tmpl_run_ok(p->run)) {
        p->run->line = p->at->line;
    }
    bt_tmpl_run_fail(p->run, BT_ERR_UNSUPPORTED, "%s", why);
    return &p->failed;
}

bt_tmpl_node_t *bt_tmpl_parse_unexpected(bt_tmpl_parser_t *p,
                                         const char *wanted)
{
    static const char *const kinds[] = {
        [BT_T_END] = "the end of the template",
        [BT_T_DATA] = "text",
        [BT_T_VAR_BEGIN] = "'{{'",
        [BT_T_VAR_END] = "'}}'",
        [BT_T_BLOCK_BEGIN] = "'{%'",
        [BT_T_BLOCK_END] = "'%}'",
        [BT_T_STRING] = "a string",
        [BT_T_INT] = "a number",
        [BT_T_FLOAT] = "a number",
    };
    const bt_tmpl_token_t *token = p->at;

    if (token->kind == BT_T_NAME) {
        const int n = (token->text->len < 60) ? (int)token->text->len : 60;

        return bt_tmpl_parse_wrong(p, "%s is expected, not '%.*s'", wanted, n,
                                   token->text->data);
    }
    if (token->kind == BT_T_OP) {
        return (token->op < 128)
                   ? bt_tmpl_parse_wrong(p, "%s is expected, not '%c'", wanted,
                                         token->op)
                   : bt_tmpl_parse_wrong(p, "%s is expected, not an operator",
                                         wanted);
    }
    return bt_tmpl_parse_wrong(p, "%s is expected, not %s", wanted,
                               kinds[token->kind]);
}

bt_tmpl_node_t *bt_tmpl_node_make(bt_tmpl_parser_t *p, bt_tmpl_node_kind_t kind,
                                  uint32_t line)
{
    bt_tmpl_node_t *node = bt_tmpl_run_take(p->run, 1, sizeof(*node));

    node = (node != NULL) ? node : &p->failed;
    node->kind = (uint8_t)kind;
    node->line = line;
    return node;
}

bool bt_tmpl_parse_sees_name(const bt_tmpl_parser_t *p, const char *name)
{
    return (p->at->kind == BT_T_NAME) && bt_tmpl_text_is(p->at->text, name);
}

bool bt_tmpl_parse_sees_op(const bt_tmpl_parser_t *p, uint8_t op)
{
    return (p->at->kind == BT_T_OP) && (p->at->op == op);
}

bool bt_tmpl_parse_skip_name(bt_tmpl_parser_t *p, const char *name)
{
    const bool sees = bt_tmpl_parse_sees_name(p, name);

    p->at += sees ? 1 : 0;
    return sees;
}

bool bt_tmpl_parse_skip_op(bt_tmpl_parser_t *p, uint8_t op)
{
    const bool sees = bt_tmpl_parse_sees_op(p, op);

    p->at += sees ? 1 : 0;
    return sees;
}

bool bt_tmpl_parse_expect_op(bt_tmpl_parser_t *p, uint8_t op)
{
    const char wanted[] = {'\'', (char)op, '\'', '\0'};

    if (!bt_tmpl_parse_skip_op(p, op)) {
        (void)bt_tmpl_parse_unexpected(p, wanted);
        return false;
    }
    return true;
}

const bt_tmpl_text_t *bt_tmpl_parse_expect_name(bt_tmpl_parser_t *p)
{
    const bt_tmpl_text_t *name = p->at->text;

    if (p->at->kind != BT_T_NAME) {
        (void)bt_tmpl_parse_unexpected(p, "a name");
        return &bt_tmpl_text_empty;
    }
    p->at++;
    return name;
}

uint32_t bt_tmpl_parse_name_id(bt_tmpl_parser_t *p, const bt_tmpl_text_t *name)
{
    const bt_tmpl_value_t key = bt_tmpl_v_text(name);
    const bt_tmpl_value_t *known = bt_tmpl_dict_find(p->names, key);
    const uint32_t id = p->names->n;

    if (known == NULL) {
        (void)bt_tmpl_dict_put(p->run, p->names, key, bt_tmpl_v_int(id));
    }
    p->uses |= bt_tmpl_text_is(name, "caller")    ? BT_MACRO_CALLER
               : bt_tmpl_text_is(name, "kwargs")  ? BT_MACRO_KWARGS
               : bt_tmpl_text_is(name, "varargs") ? BT_MACRO_VARARGS
                                                  : 0;
    return (known != NULL) ? (uint32_t)known->u.i : id;
}

static void end_tag(bt_tmpl_parser_t *p)
{
    if (p->at->kind == BT_T_BLOCK_END) {
        p->at++;
    } else {
        (void)bt_tmpl_parse_unexpected(p, "'%}'");
    }
}

/* "%}", a body, and one of the words that end it, which is read.
 * @return that word; "" after a failure */
static const bt_tmpl_text_t *parse_block(bt_tmpl_parser_t *p,
                                         const char *const *ends,
                                         const bt_tmpl_node_t **body_p)
{
    end_tag(p);
    *body_p = parse_body(p, ends);
    return bt_tmpl_run_ok(p->run) ? (p->at++)->text : &bt_tmpl_text_empty;
}

/* ---- statements ---- */

static bt_tmpl_node_t *parse_if(bt_tmpl_parser_t *p, uint32_t line)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const last_ends[] = {"endif", NULL};
    bt_tmpl_node_t *node = bt_tmpl_node_make(p, BT_N_IF, line);
    const bt_tmpl_node_t **last = &node->a;
    bool is_else = false;

    while (bt_tmpl_run_ok(p->run)) {
        bt_tmpl_node_t *branch = bt_tmpl_node_make(p, BT_N_BRANCH, p->at->line);
        const bt_tmpl_text_t *end;

        if (!is_else) {
            branch->a = bt_tmpl_parse_tuple(p, false, NULL, false);
        }
        *last = branch;
        last = &branch->next;
        end = parse_block(p, is_else ? last_ends : ends, &branch->b);
        if (bt_tmpl_text_is(end, "endif")) {
            break;
        }
        is_else = bt_tmpl_text_is(end, "else");
    }
    return node;
}

static bt_tmpl_node_t *parse_for(bt_tmpl_parser_t *p, uint32_t line)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    static const char *const last_ends[] = {"endfor", NULL};
    bt_tmpl_node_t *node = bt_tmpl_node_make(p, BT_N_FOR, line);
    const bt_tmpl_text_t *end;

    node->a = bt_tmpl_parse_target(p, "in", false);
    if (!bt_tmpl_parse_skip_name(p, "in")) {
        return bt_tmpl_parse_unexpected(p, "'in'");
    }
    node->b = bt_tmpl_parse_tuple(p, false, "recursive", false);
    if (bt_tmpl_parse_skip_name(p, "if")) {
        node->e = bt_tmpl_parse_expr(p);
    }
    node->op = bt_tmpl_parse_skip_name(p, "recursive") ? 1 : 0;
    p->loops++;
    end = parse_block(p, ends, &node->c);
    p->loops--;
    if (bt_tmpl_text_is(end, "else")) {
        (void)parse_block(p, last_ends, &node->d);
    }
    return node;
}

static bt_tmpl_node_t *parse_set(bt_tmpl_parser_t *p, uint32_t line)
{
    static const char *const ends[] = {"endset", NULL};
    bt_tmpl_node_t *target = bt_tmpl_parse_target(p, NULL, true);
    const bool is_block = !bt_tmpl_parse_skip_op(p, '=');
    bt_tmpl_node_t *node =
        bt_tmpl_node_make(p, is_block ? BT_N_SET_BLOCK : BT_N_SET, line);

    node->a = target;
    if (is_block) {
        node->b = bt_tmpl_parse_filters(p, NULL, false);
        (void)parse_block(p, ends, &node->c);
    } else {
        node->b = bt_tmpl_parse_tuple(p, true, NULL, false);
    }
    return node;
}

/* "(a, b=1)" of a macro or a call block. */
static void parse_signature(bt_tmpl_parser_t *p, bt_tmpl_node_t *macro)
{
    const bt_tmpl_node_t **last = &macro->a;
    bool defaults = false;

    (void)bt_tmpl_parse_expect_op(p, '(');
    while (bt_tmpl_run_ok(p->run) && !bt_tmpl_parse_skip_op(p, ')')) {
        bt_tmpl_node_t *param = bt_tmpl_node_make(p, BT_N_PARAM, p->at->line);

        if (macro->a != NULL) {
            (void)bt_tmpl_parse_expect_op(p, ',');
        }
        param->text = bt_tmpl_parse_expect_name(p);
        param->id = bt_tmpl_parse_name_id(p, param->text);
        if (bt_tmpl_parse_skip_op(p, '=')) {
            param->a = bt_tmpl_parse_expr(p);
            defaults = true;
        } else if (defaults) {
            (void)bt_tmpl_parse_wrong(p,
                                      "a parameter without a default follows "
                                      "one that has one");
        }
        *last = param;
        last = &param->next;
    }
}

/* Signature and body; what its body uses is the macro's own. */
static void parse_macro_rest(bt_tmpl_parser_t *p, bt_tmpl_node_t *macro,
                             bool signature, const bt_tmpl_node_t **call_p,
                             const char *end_name)
{
    const char *const ends[] = {end_name, NULL};
    const uint32_t loops = p->loops;
    const uint8_t uses = p->uses;

    p->uses = 0;
    p->loops = 0;
    if (signature) {
        parse_signature(p, macro);
    }
    if (call_p != NULL) {
        p->uses = uses;
        *call_p = bt_tmpl_parse_expr(p);
        if ((*call_p)->kind != BT_N_CALL) {
            (void)bt_tmpl_parse_wrong(p, "a call block needs a call");
        }
        p->uses = 0;
    }
    (void)parse_block(p, ends, &macro->c);
    macro->op = p->uses;
    p->uses = uses | ((call_p != NULL) ? macro->op : 0);
    p->loops = loops;
}

static bt_tmpl_node_t *parse_macro(bt_tmpl_parser_t *p, uint32_t line)
{
    bt_tmpl_node_t *node = bt_tmpl_node_make(p, BT_N_MACRO, line);

    node->text = bt_tmpl_parse_expect_name(p);
    node->id = bt_tmpl_parse_name_id(p, node->text);
    parse_macro_rest(p, node, true, NULL, "endmacro");
    return node;
}

static bt_tmpl_node_t *parse_call_block(bt_tmpl_parser_t *p, uint32_t line)
{
    static const bt_tmpl_text_t caller = {.data = "caller", .len = 6};
    bt_tmpl_node_t *node = bt_tmpl_node_make(p, BT_N_CALL_BLOCK, line);
    bt_tmpl_node_t *macro = bt_tmpl_node_make(p, BT_N_MACRO, line);

    macro->text = &caller;
    macro->id = BT_NAME_CALLER;
    node->b = macro;
    parse_macro_rest(p, macro, bt_tmpl_parse_sees_op(p, '('), &node->a,
                     "endcall");
    return node;
}

static bt_tmpl_node_t *parse_filter_block(bt_tmpl_parser_t *p, uint32_t line)
{
    static const char *const ends[] = {"endfilter", NULL};
    bt_tmpl_node_t *node = bt_tmpl_node_make(p, BT_N_FILTER_BLOCK, line);

    node->a = bt_tmpl_parse_filters(p, NULL, true);
    (void)parse_block(p, ends, &node->c);
    return node;
}

static bt_tmpl_node_t *parse_with(bt_tmpl_parser_t *p, uint32_t line)
{
    static const char *const ends[] = {"endwith", NULL};
    bt_tmpl_node_t *node = bt_tmpl_node_make(p, BT_N_WITH, line);
    const bt_tmpl_node_t **last = &node->a;

    while (bt_tmpl_run_ok(p->run) && (p->at->kind != BT_T_BLOCK_END)) {
        bt_tmpl_node_t *set = bt_tmpl_node_make(p, BT_N_SET, p->at->line);

        if (node->a != NULL) {
            (void)bt_tmpl_parse_expect_op(p, ',');
        }
        set->a = bt_tmpl_parse_target(p, NULL, false);
        (void)bt_tmpl_parse_expect_op(p, '=');
        set->b = bt_tmpl_parse_expr(p);
        *last = set;
        last = &set->next;
    }
    (void)parse_block(p, ends, &node->c);
    return node;
}

/* Text that transformers marks for training, in a scope of its own. */
static bt_tmpl_node_t *parse_generation(bt_tmpl_parser_t *p, uint32_t line)
{
    static const char *const ends[] = {"endgeneration", NULL};
    bt_tmpl_node_t *node = bt_tmpl_node_make(p, BT_N_SCOPE, line);

    (void)parse_block(p, ends, &node->c);
    return node;
}

static bt_tmpl_node_t *parse_jump(bt_tmpl_parser_t *p, uint32_t line)
{
    const bool breaks = bt_tmpl_text_is(p->at[-1].text, "break");

    if (p->loops == 0) {
        return bt_tmpl_parse_wrong(p, "break and continue need a loop around");
    }
    return bt_tmpl_node_make(p, breaks ? BT_N_BREAK : BT_N_CONTINUE, line);
}

static const struct {
    const char *name;
    bt_tmpl_node_t *(*parse)(bt_tmpl_parser_t *p, uint32_t line);
} statements[] = {
    {"if", parse_if},           {"for", parse_for},
    {"set", parse_set},         {"macro", parse_macro},
    {"call", parse_call_block}, {"filter", parse_filter_block},
    {"with", parse_with},       {"generation", parse_generation},
    {"break", parse_jump},      {"continue", parse_jump},
};

static bt_tmpl_node_t *parse_statement(bt_tmpl_parser_t *p)
{
    const uint32_t line = p->at->line;
    bt_tmpl_node_t *node;

    if (p->at->kind != BT_T_NAME) {
        return bt_tmpl_parse_unexpected(p, "a tag's name");
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(statements); i++) {
        if (bt_tmpl_parse_skip_name(p, statements[i].name)) {
            if (!bt_tmpl_run_enter(p->run)) {
                return &p->failed;
            }
            node = statements[i].parse(p, line);
            bt_tmpl_run_leave(p->run);
            end_tag(p);
            return node;
        }
    }
    return bt_tmpl_parse_wrong(p, "tag '%.*s' is not known, or closes none",
                               (p->at->text->len < 60) ? (int)p->at->text->len
                                                       : 60,
                               p->at->text->data);
}

static bool sees_one_of(const bt_tmpl_parser_t *p, const char *const *ends)
{
    for (; *ends != NULL; ends++) {
        if (bt_tmpl_parse_sees_name(p, *ends)) {
            return true;
        }
    }
    return false;
}

static bt_tmpl_node_t *parse_output(bt_tmpl_parser_t *p)
{
    bt_tmpl_node_t *node = bt_tmpl_node_make(p, BT_N_OUTPUT, p->at->line);

    p->at++;
    node->a = bt_tmpl_parse_tuple(p, true, NULL, false);
    if (p->at->kind != BT_T_VAR_END) {
        return bt_tmpl_parse_unexpected(p, "'}}'");
    }
    p->at++;
    return node;
}

/* Up to a tag of one of `ends`, or to the end of the template where there are
 * none; that tag's name is next then. */
static const bt_tmpl_node_t *parse_body(bt_tmpl_parser_t *p,
                                        const char *const *ends)
{
    const bt_tmpl_node_t *first = NULL;
    const bt_tmpl_node_t **last = &first;

    while (bt_tmpl_run_step(p->run, 1)) {
        bt_tmpl_node_t *node;

        if (p->at->kind == BT_T_END) {
            return (*ends == NULL)
                       ? first
                       : bt_tmpl_parse_wrong(p, "'%s' is missing", ends[0]);
        }
        if (p->at->kind == BT_T_DATA) {
            node = bt_tmpl_node_make(p, BT_N_TEXT, p->at->line);
            node->text = p->at->text;
            p->at++;
        } else if (p->at->kind == BT_T_VAR_BEGIN) {
            node = parse_output(p);
        } else { /* BT_T_BLOCK_BEGIN */
            p->at++;
            if (sees_one_of(p, ends)) {
                return first;
            }
            node = parse_statement(p);
        }
        *last = node;
        last = &node->next;
    }
    return first;
}

bool bt_tmpl_ast_parse(bt_tmpl_run_t *run, const char *source, size_t bytes,
                       bt_tmpl_ast_t *ast_p)
{
    static const bt_tmpl_text_t known[] = {
        [BT_NAME_LOOP] = {.data = "loop", .len = 4},
        [BT_NAME_CALLER] = {.data = "caller", .len = 6},
        [BT_NAME_KWARGS] = {.data = "kwargs", .len = 6},
        [BT_NAME_VARARGS] = {.data = "varargs", .len = 7},
    };
    static const char *const none[] = {NULL};
    bt_tmpl_parser_t p = {.run = run, .names = bt_tmpl_dict_make(run)};
    bt_tmpl_tokens_t tokens = {0};
    const bt_tmpl_node_t *body;

    run->line = 1;
    if (memchr(source, '\0', bytes) != NULL) {
        bt_tmpl_run_fail(run, BT_ERR_UNSUPPORTED, "a zero byte");
    } else if (!bt_utf8_valid((const uint8_t *)source, bytes)) {
        bt_tmpl_run_fail(run, BT_ERR_UNSUPPORTED, "it is not UTF-8");
    }
    for (size_t i = 0; (p.names != NULL) && (i < BT_ARRAY_LEN(known)); i++) {
        (void)bt_tmpl_parse_name_id(&p, &known[i]);
    }
    if (!bt_tmpl_run_ok(run) || !bt_tmpl_lex(run, source, bytes, &tokens)) {
        return false;
    }
    p.at = tokens.list;
    body = parse_body(&p, none);
    if (!bt_tmpl_run_ok(run)) {
        return false;
    }
    ast_p->body = body;
    ast_p->names = p.names;
    ast_p->n_names = p.names->n;
    return true;
}
