/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/priority.h"

#include <math.h>
#include <stddef.h>

#include "common/base/status.h"
#include "common/repository/repository.h"
#include "common/sched/sched_queue.h"

_Static_assert(BT_PRIORITY_LEVELS == BT_SCHED_TOP_LEVEL + 1,
               "each of Triton's priorities is a level");

bt_priority_scale_t bt_priority_scale(const bt_config_t *config)
{
    const bt_repository_t *repository = config->repository;

    if ((repository != NULL) &&
        (repository->models[BT_REPO_LLM].priority_levels > 0)) {
        const bt_repo_model_t *llm = &repository->models[BT_REPO_LLM];

        return (bt_priority_scale_t){llm->priority_levels,
                                     llm->default_priority_level, true};
    }
    return (bt_priority_scale_t){BT_PRIORITY_LEVELS, BT_PRIORITY_DEFAULT,
                                 false};
}

/* Returns the level of a Triton number; numbers beyond the scheduler's levels
 * share the last. */
static uint32_t level_of(int64_t number)
{
    if (number <= 1) {
        return BT_SCHED_TOP_LEVEL;
    }
    return (number > BT_SCHED_TOP_LEVEL)
               ? 0
               : BT_SCHED_TOP_LEVEL - (uint32_t)(number - 1);
}

uint32_t bt_priority_default(const bt_priority_scale_t *scale)
{
    return level_of(scale->by_default);
}

/* ---- one door each ---- */

static bool from_triton(const bt_priority_scale_t *scale, int64_t number,
                        uint32_t *level_p)
{
    const bool is_default =
        (number == 0) || (scale->from_repository && (number > scale->levels));

    *level_p = is_default ? bt_priority_default(scale) : level_of(number);
    return number >= 0;
}

static bool from_openai(const bt_priority_scale_t *scale, int64_t number,
                        uint32_t *level_p)
{
    const int64_t most = (int64_t)scale->levels - scale->by_default;
    const int64_t least = 1 - (int64_t)scale->by_default;
    const int64_t kept = (number < least)  ? least
                         : (number > most) ? most
                                           : number;

    *level_p = level_of(scale->by_default + kept);
    return true;
}

/* TensorRT-LLM: each half of 0 to 1 maps to the levels on one side of the
 * default. */
static uint32_t from_share(const bt_priority_scale_t *scale, double share)
{
    const double middle = bt_priority_default(scale);
    const double end =
        (share > 0.5) ? BT_SCHED_TOP_LEVEL : level_of(scale->levels);

    return (uint32_t)lround(middle + (end - middle) * fabs(share - 0.5) * 2.0);
}

typedef struct door {
    bool (*level)(const bt_priority_scale_t *scale, int64_t number,
                  uint32_t *level_p);
    const char *takes;
} door_t;

static const door_t triton = {
    from_triton, "an integer from 0 (the default), of which 1 is the first"};
static const door_t openai = {
    from_openai, "an integer, of which the lowest is the first (0: the "
                 "default)"};

bt_status_t bt_priority_level(const bt_priority_scale_t *scale,
                              const bt_api_request_t *request,
                              uint32_t *level_p, bt_api_error_t *error_p)
{
    const door_t *door =
        (request->dialect == BT_API_GENERATE) ? &triton : &openai;
    const bt_api_priority_t *given = &request->priority;
    uint32_t level = bt_priority_default(scale);
    bool taken = given->kind != BT_API_PRIORITY_OTHER;

    if (given->kind == BT_API_PRIORITY_INTEGER) {
        taken = door->level(scale, given->integer, &level);
    } else if (given->kind == BT_API_PRIORITY_REAL) {
        taken = (given->real >= 0.0) && (given->real <= 1.0);
        level = taken ? from_share(scale, given->real) : level;
    }
    if (!taken) {
        return bt_api_error_invalid(
            error_p, "priority",
            "priority must be %s, or a number with a fraction "
            "from 0.0 to 1.0, of which the highest is the first",
            door->takes);
    }
    BT_ASSERT(level <= BT_SCHED_TOP_LEVEL);
    *level_p = level;
    return BT_OK;
}
