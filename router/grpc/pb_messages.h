/* SPDX-License-Identifier: Apache-2.0 */
/** @file pb_messages.h  What is made from proto/ when it is built. */
#ifndef BT_ROUTER_GRPC_PB_MESSAGES_H
#define BT_ROUTER_GRPC_PB_MESSAGES_H

#include "grpc_service.pb-c.h"
#include "health.pb-c.h"
#include "model_config.pb-c.h"
#include "reflection.pb-c.h"

#endif
