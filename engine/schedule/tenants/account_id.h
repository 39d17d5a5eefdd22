// AccountId: the slot of a tenant's account (tenant_accounts.h).
#pragma once

#include <cstdint>

namespace quire {

using AccountId = int32_t;

inline constexpr AccountId kNoAccount = -1;

}  // namespace quire
