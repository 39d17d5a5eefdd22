// Request: an admitted, fully validated ask. Never changes after Engine::Submit.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "engine/values/sampling_params.h"

namespace quire {

// Unique within one server process, never reused, never 0.
using RequestId = uint64_t;

// Whose request it is: nothing cached is shared between tenants. Given by server/call/identity.h
// alone.
using TenantId = uint64_t;

inline constexpr int64_t kNoDeadline = std::numeric_limits<int64_t>::max();

struct Request {
  RequestId id = 0;
  // Returned untouched in every event of this request: the sink's own pointer to its stream. The
  // sink keeps it alive until it has received the request's FinishEvent.
  void* cookie = nullptr;
  std::vector<int32_t> prompt;  // at least one token, each in [0, vocab)
  SamplingParams sampling;
  TenantId tenant = 0;
  bool bypass_cache = false;          // neither uses nor leaves anything in the prefix cache
  uint64_t turn = 0;                  // of a session, from SessionStore::BeginTurn; 0: none
  int32_t priority = 0;               // higher runs first; ties by arrival
  int64_t arrival_ns = 0;             // steady clock, stamped when the RPC arrived
  int64_t deadline_ns = kNoDeadline;  // steady clock
};

// Why a request ended. kStopText comes from the text layer through Engine::Cancel.
enum class FinishReason : uint8_t {
  kNone,       // still running
  kEos,        // the model's end-of-sequence token
  kStopToken,  // one of stop_token_ids
  kStopText,   // one of the stop strings
  kMaxTokens,
  kContextLimit,  // the model's context or the KV pool is full
  kDeadline,
  kCancelled,    // by the client: RPC cancel or Abort
  kSlowReader,   // the client did not read for too long
  kDraining,     // the server is going away
  kNumeric,      // NaN or Inf in this request's logits
  kEngineFault,  // the worker died or hung and the request could not be requeued
};
const char* Name(FinishReason reason);  // "EOS", "STOP_TOKEN", ...

// Steady-clock instants of a request's life, 0 where it did not get that far.
struct RequestTimings {
  int64_t arrival_ns = 0;
  int64_t admitted_ns = 0;     // first scheduled
  int64_t first_token_ns = 0;  // first sampled token retired
  int64_t last_token_ns = 0;
  int64_t finished_ns = 0;
};

struct Usage {
  int32_t prompt_tokens = 0;
  int32_t completion_tokens = 0;  // tokens delivered, the stop token included
  int32_t cached_tokens = 0;      // prompt tokens whose KV was found, not computed
  int32_t preemptions = 0;
};

}  // namespace quire
