// The time to first token that a request can expect: from the times of steps, the tokens that are
// computed before its own under fair sharing, and the wait for a row where rows are short. No
// clock.
#pragma once

#include <cstdint>
#include <optional>

namespace quire {

// The state of the server as a request finds it.
struct TtftSituation {
  int64_t prompt_tokens = 0;  // of the request
  // Ahead of it, of its own tenant.
  int64_t own_tokens = 0;           // that wait, or are left of prompts that have begun
  int64_t own_waiting = 0;          // requests
  double own_begun_per_second = 0;  // requests that got a row of late; 0: none, or not known
  // Of other tenants, and the part of the tokens that its tenant gets while they wait.
  int64_t other_tokens = 0;
  double share = 1;
  // A step with the sequences that decode now, and each prompt token in it.
  double step_seconds = 0;  // both 0: not known
  double token_seconds = 0;
  int32_t step_tokens = 1;  // that a step can give to prompts
  int32_t free_rows = 0;
  bool waits_for_row = false;  // no row or block is free, and its tenant has its part of them
};

// Seconds; nullopt: not enough was measured.
std::optional<double> PredictTtft(const TtftSituation& situation);

}  // namespace quire
