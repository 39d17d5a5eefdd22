// GenerationStream: one live generating call, between the engine and its outlet. It controls the
// flow and knows no protocol.
//
// Three parties meet here. Output shards bring the start of a turn, tokens and the end (one shard
// thread per stream); the transport reports finished writes, cancellation and its own end; the
// stall watch and Control.Abort end the call from outside. Unsent output is one growing delta:
// while a write is in flight new tokens join it, so that a slow reader gets fewer, larger frames,
// until the bytes pass half of a bound, which pauses the request. If they grow by the other half
// all the same, the stream is shed. A late shard may bring any amount at once, which is no fault of
// the reader's: it pauses the request too.
//
// Owned by shared_ptr, because its users end in any order: the transport's call, the engine (from
// Submit to its last event, through `until_finish_`), and the thread that works on it right now.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "engine/values/output_sink.h"
#include "engine/values/request.h"
#include "server/call/output_keeper.h"
#include "server/generate/gathered_readings.h"
#include "server/generate/generate_resources.h"
#include "server/generate/stream_outlet.h"
#include "server/identity/caller.h"
#include "server/text/detokenizer.h"
#include "server/text/pattern/stop_mark.h"
#include "server/tracing/request_trace.h"

namespace quire {

class GenerationStream : public std::enable_shared_from_this<GenerationStream> {
 public:
  // Output is sent as it comes; or its acceptance is, and all output at the end; or all is one
  // message at the end.
  enum class Shape : uint8_t { kStream, kHeld, kUnary };

  struct Origin {
    CallerRef caller;
    int slot = 0;  // of the peer's connection (ConnectionTable::SlotOf)
    int64_t deadline_ns = kNoDeadline;
  };

  // `outlet` lives until it has called Closed; `resources` outlive the stream.
  GenerationStream(const GenerateResources* resources, StreamOutlet* outlet, Shape shape,
                   const Origin& origin, std::unique_ptr<RequestTrace> trace = nullptr);
  ~GenerationStream();

  RequestId id() const { return id_; }
  const std::string& request_id() const { return request_id_; }
  int slot() const { return origin_.slot; }
  const Caller& caller() const { return *origin_.caller; }
  TenantId tenant() const { return origin_.caller->tenant; }
  RequestTrace* trace() const { return trace_.get(); }  // null: not traced
  // Ends the text job of the request when the call ends before it.
  const StopMark& stop_mark() const { return stop_mark_; }

  // Before Claim: `keeper` gets the output, not the outlet, and gives up the id.
  void KeepIn(std::shared_ptr<OutputKeeper> keeper) { keeper_ = std::move(keeper); }

  // --- The transport and the text pool, in this order.
  // Claims the id that the client chose; empty: makes one. ALREADY_EXISTS when a live request has
  // it, CANCELLED when it was aborted before.
  absl::Status Claim(const std::string& request_id);
  // Instead: takes the id of `first`, as a further answer to its request.
  void Join(const GenerationStream& first);
  // Replaces the shape. `streams`: of this call, which share the bound of unsent output.
  void SendAs(Shape shape, int streams = 1) { shape_ = shape, streams_ = streams; }
  // Fills in the request's id, caller and arrival, and checks what the stream knows. Not OK: the
  // caller refuses the stream.
  absl::Status Prepare(Request& request, const OutputOptions& output);
  // The engine has taken the prepared request, a turn of a session included, or refused it, which
  // ends the call.
  void Submitted(const absl::Status& status, int64_t predicted_ttft_ns);
  // Ends a call that the engine has not accepted.
  void Refuse(const absl::Status& status);

  // --- The transport.
  void WriteDone(bool ok);
  // The peer is gone or its deadline has passed: nothing can be sent any more.
  void Cancelled();
  // The outlet is about to be destroyed.
  void Closed();

  // --- Any thread.
  // Ends the request with CANCELLED; OK: Control.Abort is the reason.
  void Abort(absl::Status why = absl::OkStatus());
  // Sheds the stream if its oldest unsent output is too old. Returns when to look again.
  int64_t CheckStall(int64_t now_ns);
  // The shard could not keep up and dropped a token of this stream.
  void MarkOverrun() { overrun_.store(true, std::memory_order_relaxed); }

  // --- Its output shard's thread.
  // The engine has taken the turn in, or refused it: then nothing follows but Flush and Release.
  void TakeStart(const TurnStart& start);
  // Readings come before the tokens of the same step.
  void TakeReading(const StepReading& reading, std::span<const uint32_t> words);
  void TakeToken(int32_t token, float logprob, int64_t now_ns);
  void TakeFinish(FinishEvent event, int64_t now_ns);
  // Moves the output gathered by the three calls above to the transport.
  void Flush();
  // After the Flush of the engine's last event: gives up the engine's reference.
  void Release() { until_finish_.reset(); }
  bool gathered = false;  // the shard's own mark: already on its list of streams to flush

 private:
  enum class Step : uint8_t { kNothing, kAccepted, kTokens, kEnd, kFail };

  void AddText(const std::string& text, bool last);
  void Archived();
  // Acts on the state until there is nothing left to do; calls the outlet unlocked.
  void Pump(std::unique_lock<std::mutex> lock);
  void Send(Step step, const OutputDelta& delta, const absl::Status& status);
  // All below: under mutex_.
  Step NextStep(OutputDelta* delta);
  void Accept(int32_t prompt_tokens, int32_t max_tokens, int64_t predicted_ttft_ns);
  void End(const absl::Status& status);
  void Shed();
  void CancelInEngine(FinishReason reason);

  const GenerateResources* const resources_;
  Shape shape_;      // constant from Submit on
  int streams_ = 1;  // likewise
  const Origin origin_;
  const int64_t arrival_ns_;
  const RequestId id_;
  const std::unique_ptr<RequestTrace> trace_;  // null: not traced
  StopMark stop_mark_;
  std::shared_ptr<OutputKeeper> keeper_;  // null: output goes to the outlet
  // Written by Claim and Submit, constant once the engine has the request.
  std::string request_id_;
  bool claimed_ = false;
  SamplingParams sampling_;
  OutputOptions output_;
  bool is_turn_ = false;
  SessionName session_;  // of a turn
  int64_t queue_position_ = 0;
  std::atomic<bool> overrun_{false};
  std::shared_ptr<GenerationStream> until_finish_;

  // Shard thread only.
  std::optional<Detokenizer> detokenizer_;
  std::optional<AnswerReader> reader_;  // of its text, if that is told apart
  GatheredReadings readings_;
  OutputDelta gathered_;
  std::optional<FinishEvent> gathered_finish_;
  bool text_done_ = false;  // a stop string has matched: later tokens overshoot
  int32_t delivered_ = 0;   // tokens
  double logprob_sum_ = 0;  // of these
  int64_t last_token_ns_ = 0;

  std::mutex mutex_;
  // Under mutex_.
  OutputDelta pending_;
  bool submitted_ = false;  // the engine has the request, or had it
  bool refused_ = false;    // the engine refused the turn: no event follows
  bool accepted_ = false;   // the three below are known
  int32_t prompt_tokens_ = 0;
  int32_t max_tokens_ = 0;
  int64_t predicted_ttft_ns_ = 0;
  bool accepted_sent_ = false;
  std::optional<FinishEvent> finish_;
  bool saving_ = false;  // the session directory does not have the turn yet: no end is sent
  absl::Status end_;     // not OK: end with this as soon as possible, dropping unsent output
  bool shed_ = false;    // the end may overtake a stuck write
  std::optional<int64_t> paused_;  // the engine holds the request since its unsent bytes were these
  bool writing_ = false;           // from the decision to write until WriteDone
  bool starting_ = false;          // a thread is inside a write call of the outlet
  int64_t in_flight_bytes_ = 0;
  bool ended_ = false;         // WriteEnd or Fail was decided
  int64_t busy_since_ns_ = 0;  // when the write in flight, or the end, was decided
  int64_t cancel_ns_ = 0;      // a cancel was passed to the engine

  // Separate from mutex_ so that Reset cannot meet a destroyed outlet, and may call back.
  std::mutex outlet_mutex_;
  StreamOutlet* outlet_;  // null once closed
  bool reset_ = false;    // Reset was called
};

}  // namespace quire
