/* SPDX-License-Identifier: Apache-2.0 */
/** @file tools_priv.h  Shared by the files tools*.c of this folder only. */
#ifndef BT_ROUTER_TEXT_TOOLS_PRIV_H
#define BT_ROUTER_TEXT_TOOLS_PRIV_H

#include "router/text/tools.h"

/** What a mark is followed by. */
typedef enum bt_tools_kind {
    BT_TOOLS_OBJECTS,  /**< {"name": "f", …} */
    BT_TOOLS_BRACKETS, /**< [{…}, {…}], or f[ARGS]{…} */
    BT_TOOLS_PYTHON,   /**< [f(a=1)] */
} bt_tools_kind_t;

struct bt_tool_format {
    const char *name;
    const char *mark; /**< a call stands behind it */
    const char *end;  /**< what may stand behind a call, or "" */
    /** Arguments that are no JSON end here; NULL: nowhere. */
    const char *torn_end;
    const char *inner[2]; /**< further marks, in a call, or NULL */
    /** What templates of this form have, any of them. */
    const char *in_template[2];
    const char *open[2]; /**< before a name, and behind it */
    bt_tools_kind_t kind;
    bool is_bare; /**< a text may also begin with a call of a known tool */
    uint32_t id_bytes;
};

typedef struct bt_tools_slice {
    const char *at;
    size_t n;
} bt_tools_slice_t;

/** Whether a text goes the way that is wanted, so far. */
typedef enum bt_tools_match {
    BT_TOOLS_NO,
    BT_TOOLS_MAYBE, /**< it ends before that is certain */
    BT_TOOLS_YES,
} bt_tools_match_t;

static inline bool bt_tools_is_space(char c)
{
    return (c == ' ') || ((c >= '\t') && (c <= '\r'));
}

/* ---- tools.c ---- */

/** @return false: no such tool, or too many calls, or no memory: then
 *  @a content has that */
bool bt_tools_add(bt_tools_t *tools, bt_tools_slice_t name,
                  bt_tools_slice_t arguments, bt_strbuf_t *content);

/** Only the first n calls are any. */
void bt_tools_forget(bt_tools_t *tools, uint32_t n);

/* ---- tools_json.c ---- */

/** {"name": "f", "arguments": {   or "parameters": how most calls begin.
 *  @param [out] name_p, args_p  the latter where the brace is */
bt_tools_match_t bt_tools_head(const char *text, size_t n,
                               bt_tools_slice_t *name_p, size_t *args_p);
/** f[ARGS]{   perhaps with [CALL_ID]… before [ARGS] */
bt_tools_match_t bt_tools_bare_head(const char *text, size_t n,
                                    bt_tools_slice_t *name_p, size_t *args_p);
/** f[ARGS]null, or a string of nothing there: a call without arguments.
 *  @param [out] name_p, end_p  the latter behind it */
bt_tools_match_t bt_tools_bare_nothing(const char *text, size_t n,
                                       bt_tools_slice_t *name_p, size_t *end_p);
/** The name and the arguments of an object, whatever its order; of a
 *  "function" in it, too. Arguments that are a text of JSON are written to
 *  @a room, and are there then.
 *  @param [in] text   JSON, which has been looked at
 *  @param [in] is_cut  it breaks off: the arguments are those that are there
 *  @retval BT_TOOLS_MAYBE  it breaks off before its name is known */
bt_tools_match_t bt_tools_of_object(const char *text, size_t n, bool is_cut,
                                    bt_tools_slice_t *name_p,
                                    bt_tools_slice_t *arguments_p,
                                    bt_strbuf_t *room);

/* ---- tools_python.c ---- */

/** All calls of a list, or none.
 *  @param [in] is_cut  it breaks off: of the last call the arguments are those
 *                      that are there
 *  @retval BT_TOOLS_MAYBE  it breaks off; there may be no call in it */
bt_tools_match_t bt_tools_of_python(bt_tools_t *tools, const char *text,
                                    size_t n, bool is_cut,
                                    bt_strbuf_t *content);

#endif
