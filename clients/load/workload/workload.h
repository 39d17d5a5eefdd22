// Workload: the requests to send, each drawn from the seed alone.
//
// A request's draws depend on the seed and on its place (its number; in a conversation, the number
// of the first turn and the path from there). They never depend on the order in which requests are
// made, or on the server. Only the prompt of a later turn contains the server's earlier answers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/load/values/settings.h"
#include "clients/load/workload/lengths.h"
#include "clients/load/workload/trace.h"

namespace quire::load {

// The facts of the model that a workload needs.
struct ModelFacts {
  std::string name;
  uint32_t vocab_size = 0;
  int32_t max_model_len = 0;
  std::vector<uint32_t> eos_token_ids;  // never drawn for a prompt
};

struct PlannedRequest {
  int64_t due_ns = 0;  // from the start of the run; a closed loop's are 0
  uint64_t key = 0;    // its place, which decides its draws
  int64_t family = 0;  // its number, or that of its conversation's first turn
  int32_t conversation = -1;
  int32_t turn = 0;
  int32_t turns = 1;  // of its conversation
  int32_t priority = 0;
  bool warmup = false;
  bool slow_reader = false;
  int32_t max_tokens = 0;
  double deadline_seconds = 0;  // 0: none
  int32_t cancel_after = 0;     // tokens; 0: never
  uint64_t sampling_seed = 0;
  std::vector<uint32_t>
      token_ids;  // the prompt, unless `text` is set; in a session, its new tokens
  std::string text;
  std::string session;   // "": none
  int32_t position = 0;  // tokens that the session has before
  std::string fork_of;   // the session is to begin as this one's first `position` tokens
};

bool HasConversations(const WorkloadSettings& settings);

class Workload {
 public:
  // Reads the trace or the prompt file. An error names the settings that contradict each other, the
  // wrong file and line, or the request that does not fit the model.
  static absl::StatusOr<std::unique_ptr<Workload>> Create(const WorkloadSettings& settings,
                                                          const ArrivalSettings& arrival,
                                                          const ModelFacts& model);

  // Requests, or first turns of conversations; kEndless for a closed loop with a duration only.
  int64_t size() const { return size_; }
  static constexpr int64_t kEndless = int64_t{1} << 40;

  // The i-th, 0 <= i < size().
  PlannedRequest Request(int64_t i) const;
  // The time at which the i-th is due; draws nothing.
  int64_t DueNs(int64_t i) const;
  // The i-th of the warm-up: of the same lengths, without traits.
  PlannedRequest Warmup(int64_t i) const;

  // The turns that follow a turn that ended well at end_ns: none, the next one, or with a fork two.
  // `ended` holds its prompt; `received` is the answer's tokens. A conversation ends early when the
  // context is full. In a session the first of these turns continues the session of `ended`.
  std::vector<PlannedRequest> NextTurns(const PlannedRequest& ended,
                                        const std::vector<uint32_t>& received, int64_t end_ns);

  bool has_conversations() const { return conversations_; }

 private:
  Workload(const WorkloadSettings& settings, const ArrivalSettings& arrival,
           const ModelFacts& model);

  absl::Status Load();
  absl::Status CheckFits() const;
  void PlanArrivals();
  void PlanPrefixes();
  Lengths LengthsOf(uint64_t key) const;  // of the prompt without its prefix, and of the answer
  Lengths Clipped(Lengths lengths) const;
  PlannedRequest Draw(uint64_t key) const;
  void DrawTraits(PlannedRequest* request) const;
  void DrawPrompt(uint64_t key, int32_t length, PlannedRequest* request) const;
  void AppendTokens(Random& random, int64_t count, std::vector<uint32_t>* ids) const;
  int64_t PrefixOf(uint64_t key) const;
  std::string SessionOf(int32_t conversation) const;

  const WorkloadSettings settings_;
  const ArrivalSettings arrival_;
  const ModelFacts model_;
  const bool conversations_;
  int64_t size_ = 0;
  int32_t next_fork_ = 0;        // conversation number of the next fork
  std::vector<int64_t> due_ns_;  // empty for a closed loop
  std::vector<TraceRow> trace_;
  std::vector<std::string> prompts_;   // of the prompt file
  std::vector<int32_t> prefix_order_;  // the shared prefix of each request; empty when endless
};

}  // namespace quire::load
