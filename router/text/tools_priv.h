/* SPDX-License-Identifier: Apache-2.0 */
/** @file tools_priv.h
 *
 * Shared by the files of this folder only.
 */
#ifndef BT_ROUTER_TEXT_TOOLS_PRIV_H
#define BT_ROUTER_TEXT_TOOLS_PRIV_H

#include "router/text/tools.h"

/** Syntax after a marker. */
typedef enum bt_tools_kind {
    BT_TOOLS_OBJECTS,  /**< {"name": "f", …} */
    BT_TOOLS_BRACKETS, /**< [{…}, {…}], or f[ARGS]{…} */
    BT_TOOLS_PYTHON,   /**< [f(a=1)] */
    BT_TOOLS_HARMONY,  /**< a message: harmony_parser.h reads it */
} bt_tools_kind_t;

struct bt_tool_format {
    const char *name;
    const char *mark; /**< starts a call */
    const char *end;  /**< optional end of a call, or "" */
    /** Ends arguments that are not JSON; NULL: nothing does. */
    const char *torn_end;
    const char *inner[2]; /**< further markers within a call, or NULL */
    /** Strings that identify a template of this format; any one suffices. */
    const char *in_template[2];
    const char *open[2]; /**< text before a name, and after it */
    /** Text behind the arguments of a call; before the name of a call that
     *  follows; behind the last call. NULL: answers are not written. */
    const char *call_end, *next_call, *list_end;
    bt_tools_kind_t kind;
    bool is_bare; /**< a text may also begin with a call of a known tool */
    uint32_t id_bytes;
};

typedef struct bt_tools_slice {
    const char *at;
    size_t n;
} bt_tools_slice_t;

/** Result of matching a text that may be incomplete. */
typedef enum bt_tools_match {
    BT_TOOLS_NO,
    BT_TOOLS_MAYBE, /**< the text is too short to decide */
    BT_TOOLS_YES,
} bt_tools_match_t;

static inline bool bt_tools_is_space(char c)
{
    return (c == ' ') || ((c >= '\t') && (c <= '\r'));
}

/* ---- tools.c ---- */

/** Adds a call.
 *  @return false: unknown tool, too many calls, or no memory, which is
 *          recorded in the status of @a content */
bool bt_tools_add(bt_tools_t *tools, bt_tools_slice_t name,
                  bt_tools_slice_t arguments, bt_strbuf_t *content);

/** Counts bytes of leading white space. */
size_t bt_tools_leading(const char *text, size_t n);
/** Returns the bytes without trailing white space. */
size_t bt_tools_trimmed(const char *text, size_t n);
/** Counts trailing bytes that may be the start of the marker. */
size_t bt_tools_tail_of(const char *mark, const char *text, size_t bytes);
/** Keeps the first n calls and frees the others. */
void bt_tools_forget(bt_tools_t *tools, uint32_t n);

/* ---- tools_json.c ---- */

/** Matches the start of most calls: {"name": "f", "arguments": {   or with
 *  "parameters".
 *  @param [out] name_p, args_p  name, and position of the arguments' brace */
bt_tools_match_t bt_tools_head(const char *text, size_t n,
                               bt_tools_slice_t *name_p, size_t *args_p);
/** Matches f[ARGS]{   perhaps with [CALL_ID]… before [ARGS].
 *  @param [out] name_p, args_p  name, and position of the arguments' brace */
bt_tools_match_t bt_tools_bare_head(const char *text, size_t n,
                                    bt_tools_slice_t *name_p, size_t *args_p);
/** Matches a call without arguments: f[ARGS]null, or an empty string there.
 *  @param [out] name_p, end_p  name, and position after the call */
bt_tools_match_t bt_tools_bare_nothing(const char *text, size_t n,
                                       bt_tools_slice_t *name_p, size_t *end_p);
/** Reads the name and the arguments of an object, in any order, also of a
 *  "function" within the object. Arguments that are a string of JSON are
 *  decoded into @a decoded.
 *  @param [in] text   JSON that has been scanned
 *  @param [in] is_cut  the text is incomplete: the arguments are the received
 *                      part
 *  @retval BT_TOOLS_MAYBE  the text ends before the name is known */
bt_tools_match_t bt_tools_of_object(const char *text, size_t n, bool is_cut,
                                    bt_tools_slice_t *name_p,
                                    bt_tools_slice_t *arguments_p,
                                    bt_strbuf_t *decoded);

/* ---- tools_python.c ---- */

/** Adds all calls of a list, or none.
 *  @param [in] is_cut  the text is incomplete: the last call's arguments are
 *                      the received part
 *  @retval BT_TOOLS_MAYBE  the text is incomplete; it may contain no call */
bt_tools_match_t bt_tools_of_python(bt_tools_t *tools, const char *text,
                                    size_t n, bool is_cut,
                                    bt_strbuf_t *content);

#endif
