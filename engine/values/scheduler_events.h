// SchedulerEvents: the changes that one scheduler call made, for its caller to deliver and count.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/values/output_sink.h"

namespace quire {

// Reused: the caller clears it.
struct SchedulerEvents {
  std::vector<TurnStart> starts;
  std::vector<ReadingEvent> readings;
  std::vector<uint32_t> reading_words;  // of `readings`
  std::vector<TokenEvent> tokens;
  std::vector<FinishEvent> finishes;
  int32_t preempted = 0;  // by Schedule: running sequences sent back to the queue
  int32_t admitted = 0;   // by Schedule: waiting sequences that began or resumed
  int32_t guessed = 0;    // by Retire: tokens that the step verified, and the right ones of them
  int32_t accepted = 0;

  // Keeps the memory of the lists.
  void Clear() {
    starts.clear();
    readings.clear();
    reading_words.clear();
    tokens.clear();
    finishes.clear();
    preempted = admitted = guessed = accepted = 0;
  }
};

}  // namespace quire
