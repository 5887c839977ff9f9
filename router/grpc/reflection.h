/* SPDX-License-Identifier: Apache-2.0 */
/** @file reflection.h
 *
 * What this server has, for tools that ask: the files of proto/ as their
 * compiler understood them. Looked up in the serialized FileDescriptorSet,
 * which is ours and well-formed, field by field.
 *
 * Threads: pure functions over constants.
 */
#ifndef BT_ROUTER_GRPC_REFLECTION_H
#define BT_ROUTER_GRPC_REFLECTION_H

#include <stdbool.h>
#include <stddef.h>

/** A FileDescriptorSet; made when it is built. */
extern const unsigned char bt_proto_set[];
extern const size_t bt_proto_set_bytes;

/** Bytes of a message, borrowed. */
typedef struct bt_proto_span {
    const unsigned char *data;
    size_t bytes;
} bt_proto_span_t;

/** The i-th file. @return false: there are not so many */
bool bt_proto_file(size_t i, bt_proto_span_t *file_p);
/** The file of this name. */
bool bt_proto_file_named(const char *name, bt_proto_span_t *file_p);
/** The file that defines a message, enumeration, service or method, by its full
 *  name ("inference.ModelInferRequest"). */
bool bt_proto_file_of(const char *symbol, bt_proto_span_t *file_p);
/** The i-th name among those that the file imports. */
bool bt_proto_import(bt_proto_span_t file, size_t i, bt_proto_span_t *name_p);

#endif
