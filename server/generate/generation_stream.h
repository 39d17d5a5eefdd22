// GenerationStream: one live Generate or GenerateUnary call between the engine and the transport.
//
// Three parties meet here. Output shards bring tokens and the end (one shard thread per stream);
// the transport reports finished writes, cancellation and its own end (gRPC threads); the stall
// watch and Control.Abort end it from outside. What waits to be sent is one growing delta: while a
// write is in flight new tokens join it, so a slow reader gets fewer, larger frames, until the
// bytes pass a bound and the stream is shed.
//
// Owned by shared_ptr, because its three users end in any order: the transport's call, the engine
// (from Submit to the FinishEvent, through `until_finish_`), and whoever works on it right now.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/values/output_sink.h"
#include "engine/values/session.h"
#include "server/call/stream_host.h"
#include "server/generate/request_codec.h"
#include "server/text/detokenizer.h"

namespace quire {

class SessionStore;

namespace v1 {
class Accepted;
}

// The transport's end of a call. One write is in flight at most; nothing follows WriteLast or
// Finish. Never called with a lock held.
class StreamOutlet {
 public:
  virtual ~StreamOutlet() = default;
  // Copies the frame and starts sending it; GenerationStream::WriteDone follows.
  virtual void Write(std::string_view frame) = 0;
  // The frame and the OK status.
  virtual void WriteLast(std::string_view frame) = 0;
  // Only the status; also while a write is stuck in flight.
  virtual void Finish(const absl::Status& status) = 0;
  // Tears the call down without waiting for the peer.
  virtual void Reset() = 0;
};

class GenerationStream : public std::enable_shared_from_this<GenerationStream> {
 public:
  enum class Shape : uint8_t { kStream, kUnary };

  struct Caller {
    TenantId tenant = 0;
    int port = 0;  // of the peer's connection (ConnectionTable::PortOf)
    int64_t deadline_ns = kNoDeadline;
  };

  // `outlet` lives until it has called Closed; `host` outlives the stream.
  GenerationStream(StreamHost* host, StreamOutlet* outlet, Shape shape, const Caller& caller);
  ~GenerationStream();

  RequestId id() const { return id_; }
  const std::string& request_id() const { return request_id_; }
  int port() const { return caller_.port; }

  // --- The transport and the text pool, in this order.
  // Takes a decoded request and claims its request id; ALREADY_EXISTS when a live request has it.
  absl::Status Take(GenerationAsk ask);
  // Completes the prompt, opens the turn if it is one of a session, and hands the request to the
  // engine; on failure ends the call itself.
  void Submit();
  // Ends a call that the engine has not accepted.
  void Refuse(const absl::Status& status);

  // --- The transport.
  void WriteDone(bool ok);
  // The peer is gone or its deadline has passed: nothing can be sent any more.
  void Cancelled();
  // The outlet is about to be destroyed.
  void Closed();
  // gRPC code of the end; valid once ended.
  int final_code() const { return final_code_.load(std::memory_order_relaxed); }

  // --- Any thread.
  // Ends the request with CANCELLED.
  void Abort();
  // Sheds the stream if its oldest unsent output is too old. Returns when to look again.
  int64_t CheckStall(int64_t now_ns);
  // The shard could not keep up and dropped a token of this stream.
  void MarkOverrun() { overrun_.store(true, std::memory_order_relaxed); }

  // --- Its output shard's thread.
  void TakeToken(int32_t token, float logprob, int64_t now_ns);
  void TakeFinish(FinishEvent event, int64_t now_ns);
  // Moves what the two above have gathered to the transport.
  void Flush();
  // After the FinishEvent's Flush: gives up the engine's reference.
  void Release() { until_finish_.reset(); }
  bool gathered = false;  // the shard's own mark: already on its list of streams to flush

 private:
  // Output not yet in a frame.
  struct Delta {
    std::vector<uint32_t> token_ids;
    std::vector<float> logprobs;
    std::string text;
    uint32_t tokens = 0;

    int64_t bytes() const;
    void Append(Delta& from);  // and clears it
    void Clear();
  };
  enum class Step : uint8_t { kNothing, kWrite, kWriteLast, kFinish };

  bool IsStopId(int32_t token) const;
  std::unique_ptr<Request> MakeRequest();
  void BeginTurn();
  // On the scheduler thread.
  absl::StatusOr<TurnStart> OpenTurn(SessionStore& sessions, int64_t now_ns);
  void SubmitPrompt(std::vector<int32_t> session_tokens);
  // Gives back a turn that the engine will never hear of.
  void AbandonTurn();
  // The session keeps what the client was given, whatever came behind a stop string.
  void TrimTurn(FinishEvent& event);
  // Does what the state calls for, until there is nothing to do; the transport is called unlocked.
  void Pump(std::unique_lock<std::mutex> lock);
  // All below: under mutex_.
  Step NextStep(std::string* frame);
  void EncodeTokens(std::string* frame);
  void EncodeEnd(std::string* frame);
  void End(const absl::Status& status);
  void Shed();
  void CancelInEngine(FinishReason reason);

  StreamHost* const host_;
  const Shape shape_;
  const Caller caller_;
  const int64_t arrival_ns_;
  const RequestId id_;
  // Written by Take and Submit, constant once the engine has the request.
  std::string request_id_;
  bool claimed_ = false;
  GenerationAsk ask_;
  uint64_t turn_ = 0;             // of the session; 0: none is open
  bool created_session_ = false;  // by this turn
  std::atomic<bool> overrun_{false};
  std::atomic<int> final_code_{0};
  std::shared_ptr<GenerationStream> until_finish_;

  // Shard thread only.
  std::optional<Detokenizer> detokenizer_;
  Delta gathered_;
  std::optional<FinishEvent> gathered_finish_;
  bool text_done_ = false;  // a stop string has matched: later tokens overshoot
  int32_t delivered_ = 0;   // tokens
  int64_t last_token_ns_ = 0;

  std::mutex mutex_;
  // Under mutex_.
  Delta pending_;
  uint32_t cumulative_ = 0;                         // tokens in frames so far
  std::unique_ptr<v1::Accepted> accepted_message_;  // until it is sent
  bool accepted_ = false;                           // the engine has the request, or had it
  std::optional<FinishEvent> finish_;
  absl::Status end_;       // not OK: end with this as soon as possible, dropping what is pending
  bool shed_ = false;      // the end may overtake a stuck write
  bool paused_ = false;    // unsent output passed half its bound: the engine holds the request
  bool writing_ = false;   // from the decision to write until WriteDone
  bool starting_ = false;  // a thread is inside StreamOutlet::Write
  int64_t in_flight_bytes_ = 0;
  bool ended_ = false;         // WriteLast or Finish was decided
  int64_t busy_since_ns_ = 0;  // when the write in flight, or the end, was decided
  int64_t cancel_ns_ = 0;      // a cancel was passed to the engine

  // Separate from mutex_ so that Reset cannot meet a destroyed outlet, and may call back.
  std::mutex outlet_mutex_;
  StreamOutlet* outlet_;  // null once closed
  bool reset_ = false;    // Reset was called
};

}  // namespace quire
