// JoinSockets: CPU ranks on several hosts, which exchange bytes over TCP. It proves the path over
// hosts without a GPU; ranks on GPUs use NCCL there.
#pragma once

#include <memory>
#include <string>

#include "kernels/cpu/rank_group.h"

namespace quire::cpu {

// The place of a rank that is a process of its own, on any host: each rank listens at a free port
// of `place.host` and is connected to every other rank. The bytes are neither encrypted nor signed.
// Null when the connections cannot be made; `why` then names the rank and the reason. A connection
// that ends later ends this rank (RankExchange::Lost), so the exchange outlives the group.
std::unique_ptr<RankGroup> JoinSockets(const RankPlace& place, std::string* why);

}  // namespace quire::cpu
