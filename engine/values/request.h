// Request: one generation, validated, as the engine runs it. The engine completes the request of a
// session's turn when it opens the turn; nothing changes a request afterwards.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/values/sampling_params.h"
#include "engine/values/step_reading.h"

namespace quire {

class CompiledGuide;  // engine/grammar/token_guide.h

// Unique within one server process, never reused, never 0.
using RequestId = uint64_t;

// The caller's identity. No two tenants share anything cached. Only server/identity/caller.h makes
// one.
using TenantId = uint64_t;

// Unique within a tenant. The client chooses it, or the server makes one: [A-Za-z0-9._:-]{1,128}.
using SessionName = std::string;

inline constexpr int64_t kNoDeadline = std::numeric_limits<int64_t>::max();

// A request's turn of a session. The scheduler thread opens the turn when it accepts the request,
// and builds the prompt from the session's tokens and the request's.
struct TurnRequest {
  SessionName session;
  // Where the client believes the session to be, in tokens; nullopt: anywhere.
  std::optional<int64_t> expected_position;
  bool create_session = false;  // if the tenant has none of this name
  // The prompt is the whole conversation (a chat, rendered anew). Otherwise the prompt is appended
  // to the session's tokens.
  bool whole_conversation = false;
  // Added around a prompt that opens an empty session: the tokenizer's special tokens for a text.
  std::vector<int32_t> prefix, suffix;
};

// Where Request::sampling.max_tokens comes from.
enum class MaxTokensSource : uint8_t {
  kClient,   // the client asked for it: refused if the context has no room for it
  kDefault,  // a default: cut to the room that the context has
  kContext,  // a default that was cut: reaching it means that the context is full
};

// Priorities, of requests and of the KV that sessions retain, lie between -kMaxPriority and
// kMaxPriority.
inline constexpr int32_t kMaxPriority = 100;

struct Request {
  RequestId id = 0;
  // Returned untouched in every event of this request: the sink's own pointer to its stream. The
  // sink keeps the stream alive until it has received the request's last event.
  void* cookie = nullptr;
  std::vector<int32_t> prompt;  // at least one token unless it is a turn's, each in [0, vocab)
  SamplingParams sampling;
  ReadingParams reading;
  std::shared_ptr<const CompiledGuide> guide;  // the output follows it; null: free
  MaxTokensSource max_tokens_source = MaxTokensSource::kClient;
  std::optional<TurnRequest> session_turn;
  TenantId tenant = 0;
  bool bypass_cache = false;          // neither reads nor fills the prefix cache
  int32_t priority = 0;               // higher runs first; ties by arrival
  int32_t max_guesses = 0;            // tokens that a step may guess ahead; 0: none
  int64_t arrival_ns = 0;             // steady clock, stamped when the RPC arrived
  int64_t deadline_ns = kNoDeadline;  // steady clock
  // From the arrival to the first token, as Engine::Submit predicted; 0: nothing was predicted.
  int64_t predicted_ttft_ns = 0;
};

// Why a request ended. kStopText comes from the text layer through Engine::Cancel.
enum class FinishReason : uint8_t {
  kNone,       // still running
  kEos,        // the model's end-of-sequence token
  kStopToken,  // one of stop_token_ids
  kStopText,   // one of the stop strings
  kMaxTokens,
  kContextLimit,  // the model's context or the KV pool is full
  kLoop,          // the output repeats itself, and the request asked to end then
  kNoToken,       // its structure, allowed ids and bans together leave no token to draw
  kTruncated,     // at max_tokens or the context its structure, which was too long, is incomplete
  kDeadline,
  kCancelled,    // by the client: RPC cancel or Abort
  kSlowReader,   // the client did not read for too long
  kDraining,     // the server is going away
  kNumeric,      // NaN or Inf in this request's logits
  kEngineFault,  // the worker died or hung and the request could not be requeued
};
const char* Name(FinishReason reason);  // "EOS", "STOP_TOKEN", ...
// In the words of other servers' metrics and protocols: "stop", "length", "error" or "abort".
const char* FieldWord(FinishReason reason);
// The answer is complete: a turn that ends so is appended to its session.
bool IsRegularEnd(FinishReason reason);

// Steady-clock instants of a request's life, 0 where it did not get that far.
struct RequestTimings {
  int64_t arrival_ns = 0;
  int64_t opened_ns = 0;         // its turn of a session was opened
  int64_t restore_asked_ns = 0;  // its first restore began
  int64_t restored_ns = 0;       // and ended, with all KV, some or none
  int64_t admitted_ns = 0;       // first scheduled
  int64_t preempted_ns = 0;      // last sent back to the queue
  int64_t first_token_ns = 0;    // first sampled token retired
  int64_t last_token_ns = 0;
  int64_t finished_ns = 0;
  int64_t predicted_ttft_ns = 0;  // a duration, from the arrival; 0: nothing was predicted
};

struct Usage {
  int32_t prompt_tokens = 0;
  int32_t completion_tokens = 0;  // tokens delivered, the stop token included
  int32_t cached_tokens = 0;      // prompt tokens whose KV was found, not computed
  int32_t preemptions = 0;
  int32_t guessed_tokens = 0;    // that steps verified
  int32_t accepted_guesses = 0;  // of these, the ones that were right
};

}  // namespace quire
