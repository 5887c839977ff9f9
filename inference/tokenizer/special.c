/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/tokenizer/special.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text.h"
#include "inference/tokenizer/unicode.h"

#define FIRST_CAP 64u
#define NO_NODE   UINT32_MAX

static uint32_t child_of(const bt_special_t *special, uint32_t node,
                         uint8_t byte)
{
    const bt_pair_slot_t *slot = bt_pair_table_get(&special->edges, node, byte);

    return (slot->rank == BT_NO_RANK) ? NO_NODE : slot->merged;
}

static bt_status_t new_node(bt_special_t *special, uint32_t *node_p)
{
    bt_special_node_t *nodes = bt_array_reserve(
        special->nodes, &special->cap, special->n_nodes + 1, sizeof(*nodes));

    if (nodes == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    special->nodes = nodes;
    nodes[special->n_nodes] = (bt_special_node_t){.id = UINT32_MAX};
    *node_p = special->n_nodes++;
    return BT_OK;
}

bt_status_t bt_special_init(bt_special_t *special)
{
    uint32_t root;
    bt_status_t status;

    memset(special, 0, sizeof(*special));
    status = bt_pair_table_init(&special->edges, FIRST_CAP);
    if (status != BT_OK) {
        return status;
    }
    status = new_node(special, &root);
    if (status != BT_OK) {
        bt_pair_table_fini(&special->edges);
    }
    return status;
}

void bt_special_fini(bt_special_t *special)
{
    bt_free(special->nodes);
    bt_pair_table_fini(&special->edges);
    memset(special, 0, sizeof(*special));
}

static void add_start(bt_special_starts_t *starts, uint8_t byte)
{
    starts->n += !starts->has[byte];
    starts->has[byte] = true;
    starts->last = byte;
}

bt_status_t bt_special_add(bt_special_t *special, const uint8_t *text,
                           size_t bytes, uint32_t id, bool is_control,
                           unsigned rules)
{
    uint32_t node = 0;

    if (bytes == 0) {
        return BT_OK;
    }
    for (size_t i = 0; i < bytes; i++) {
        uint32_t child = child_of(special, node, text[i]);

        if (child == NO_NODE) {
            bt_status_t status = new_node(special, &child);

            if (status == BT_OK) {
                status =
                    bt_pair_table_put(&special->edges, node, text[i], 0, child);
            }
            if (status != BT_OK) {
                return status;
            }
        }
        node = child;
    }
    if (special->nodes[node].id == UINT32_MAX) {
        special->nodes[node].id = id;
        special->nodes[node].is_control = is_control;
        special->nodes[node].rules = (uint8_t)rules;
        add_start(&special->control, text[0]);
        if (!is_control) {
            add_start(&special->text, text[0]);
        }
    }
    return BT_OK;
}

/* Returns the next position from at where some token could begin. Mostly all
 * begin with one byte, and the search is that of the C library. */
static size_t next_start(const bt_special_starts_t *starts, const uint8_t *text,
                         size_t at, size_t bytes)
{
    const uint8_t *found;

    if (starts->n > 1) {
        while ((at < bytes) && !starts->has[text[at]]) {
            at++;
        }
        return at;
    }
    if ((starts->n == 0) || (at >= bytes)) {
        return bytes;
    }
    found = memchr(text + at, starts->last, bytes - at);
    return (found == NULL) ? bytes : (size_t)(found - text);
}

/* True when a byte of a token's text from at to end is quoted. Must be called
 * with ascending at. */
static bool is_quoted(bt_special_scan_t *scan, size_t at, size_t end)
{
    while ((scan->n_quotes > 0) && (scan->quotes->end <= at)) {
        scan->quotes++;
        scan->n_quotes--;
    }
    return (scan->n_quotes > 0) && (scan->quotes->begin < end);
}

/* User-defined tokens that template markup is made of in some files. */
static bool is_markup(const uint8_t *text, size_t bytes)
{
    return (bytes >= 4) && (text[0] == '<') && (text[1] == '|') &&
           (text[bytes - 2] == '|') && (text[bytes - 1] == '>');
}

/* Finds the longest token at at, of those that may match there. @return its
 * node, or NO_NODE */
static uint32_t longest_at(const bt_special_t *special, bt_special_scan_t *scan,
                           size_t at, size_t *end_p)
{
    uint32_t found = NO_NODE;
    uint32_t node = 0;

    for (size_t i = at; i < scan->bytes; i++) {
        const bt_special_node_t *info;

        node = child_of(special, node, scan->text[i]);
        if (node == NO_NODE) {
            break;
        }
        info = &special->nodes[node];
        if ((info->id != UINT32_MAX) &&
            (scan->with_control || !info->is_control) &&
            !((info->is_control || is_markup(scan->text + at, i + 1 - at)) &&
              is_quoted(scan, at, i + 1))) {
            found = node;
            *end_p = i + 1;
        }
    }
    return found;
}

/* ---- rules ---- */

static bool is_word(const uint8_t *p)
{
    uint32_t cp;

    bt_utf8_decode(p, &cp);
    return (bt_unicode_props(cp) & BT_UNICODE_IS_BESIDE) != 0;
}

static bool is_space(const uint8_t *p)
{
    uint32_t cp;

    bt_utf8_decode(p, &cp);
    return bt_unicode_class(cp) == BT_UNICODE_SPACE;
}

/* Returns the start of the character that ends at p; there must be one. */
static const uint8_t *char_before(const uint8_t *p)
{
    do {
        p--;
    } while ((*p & 0xC0) == 0x80);
    return p;
}

/* @param [in] start, end  of all that can be read */
static bool stands_alone(const uint8_t *start, const uint8_t *end,
                         const uint8_t *from, const uint8_t *to)
{
    return ((from == start) || !is_word(char_before(from))) &&
           ((to == end) || !is_word(to));
}

/* Extends over the white space around a position, all of it: so no run is read
 * twice. */
static void find_space(bt_special_scan_t *scan, size_t at)
{
    size_t from = at;
    size_t to = at;
    uint32_t cp;

    if ((scan->space <= at) && (at <= scan->space_end)) {
        return;
    }
    while ((from > 0) && is_space(char_before(scan->text + from))) {
        from = (size_t)(char_before(scan->text + from) - scan->text);
    }
    while ((to < scan->bytes) && is_space(scan->text + to)) {
        to += bt_utf8_decode(scan->text + to, &cp);
    }
    scan->space = from;
    scan->space_end = to;
    scan->n_steps += to - from;
}

static void add_spaces(bt_special_scan_t *scan, unsigned rules,
                       bt_special_match_t *match)
{
    if ((rules & BT_SPECIAL_LSTRIP) != 0) {
        find_space(scan, match->begin);
        match->begin = (scan->space > scan->taken) ? scan->space : scan->taken;
    }
    if ((rules & BT_SPECIAL_RSTRIP) != 0) {
        find_space(scan, match->end);
        match->end = scan->space_end;
    }
}

void bt_special_start(bt_special_scan_t *scan, const uint8_t *text,
                      size_t bytes, bool with_control,
                      const bt_quotes_t *quotes)
{
    *scan = (bt_special_scan_t){.text = text,
                                .bytes = bytes,
                                .with_control = with_control,
                                .space = SIZE_MAX};
    if (quotes != NULL) {
        scan->quotes = quotes->list;
        scan->n_quotes = quotes->n;
    }
}

bool bt_special_next(const bt_special_t *special, bt_special_scan_t *scan,
                     bt_special_match_t *match_p)
{
    const bt_special_starts_t *starts =
        scan->with_control ? &special->control : &special->text;
    const uint8_t *const text = scan->text;
    const size_t bytes = scan->bytes;
    size_t at = next_start(starts, text, scan->at, bytes);

    while (at < bytes) {
        size_t end = at + 1;
        const uint32_t node = longest_at(special, scan, at, &end);
        const unsigned rules =
            (node == NO_NODE) ? 0 : special->nodes[node].rules;

        if ((node != NO_NODE) &&
            (((rules & BT_SPECIAL_SINGLE_WORD) == 0) ||
             stands_alone(text, text + bytes, text + at, text + end))) {
            bt_special_match_t match = {at, end, special->nodes[node].id};

            scan->at = end;
            add_spaces(scan, rules, &match);
            scan->taken = match.end;
            *match_p = match;
            return true;
        }
        at = next_start(starts, text, end, bytes);
    }
    scan->at = bytes;
    return false;
}
