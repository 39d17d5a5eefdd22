// TurnFigures: TTFT by turn of conversations, and the place of the KV of their histories. Of
// requests that count and completed, as in summary.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "clients/load/figures/summary.h"
#include "clients/load/values/run_record.h"

namespace quire::load {

struct TurnFigures {
  std::vector<LatencyFigures> ttft;  // of first turns, of second ones, ...
  LatencyFigures ttft_later;         // of all but first turns
  // Tokens of prompts: found on the device, loaded from the host, known and computed again,
  // and new.
  int64_t device_tokens = 0, host_tokens = 0, recomputed_tokens = 0, new_tokens = 0;
  std::array<int32_t, ResidencyRecord::kOutcomes> outcomes{};  // requests, by the proto's number
  LatencyFigures restore;  // ms from the first copy to the last, of requests that had any

  int64_t known_tokens() const { return device_tokens + host_tokens + recomputed_tokens; }
};

TurnFigures SummarizeTurns(const RunRecord& run);

// "none", "device", ... by the proto's number.
const char* OutcomeName(size_t outcome);

// A text block like vLLM's, for the terminal; empty without conversations.
std::string TurnsText(const RunRecord& run);

}  // namespace quire::load
