// Stream: one Generate call, from its planned request to its finished record.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "clients/load/run/tally.h"
#include "clients/load/values/run_record.h"
#include "clients/load/values/settings.h"
#include "clients/load/workload/workload.h"
#include "quire/v1/inference.grpc.pb.h"

namespace quire::load {

class Stream;

// Receives every stream's end, on one of gRPC's threads; must not block. The stream holds its
// connection. The run must not end before it is destroyed: gRPC ends its threads when the last
// connection goes, and crashes if one of them lets it go.
class StreamEnds {
 public:
  virtual ~StreamEnds() = default;
  virtual void OnEnd(std::shared_ptr<Stream> stream) = 0;
};

// State that all streams of a run share; outlives them.
struct RunState {
  int64_t base_ns = 0;    // steady clock at the start of the run
  bool detailed = false;  // keep gaps and texts
  bool token_ids = true;  // asked for
  double slow_delay_seconds = 0;
  const connect::Endpoint* endpoint = nullptr;  // key and headers of each call; null: none
  Tally* tally = nullptr;
  StreamEnds* ends = nullptr;
  std::atomic<bool> ending{false};  // the run cancels the streams in flight
  // Streams in a row that ended without a frame or status of the server.
  std::atomic<int32_t> silent_in_a_row{0};
};

// The RPC's message for a plan.
v1::GenerateRequest ToMessage(const PlannedRequest& plan, const WorkloadSettings& settings,
                              const std::string& model);

// Times are taken when a read completes, before the frame is examined. A stream checks the
// protocol: cumulative_tokens without gap or repetition, one Finished, no frame after it.
class Stream final : public grpc::ClientReadReactor<v1::GenerateResponse>,
                     public std::enable_shared_from_this<Stream> {
 public:
  // `record` and `run` outlive it. `keep_tokens`: tokens() has the ids of the
  // answer at the end.
  Stream(PlannedRequest plan, v1::GenerateRequest message, RequestRecord* record, RunState* run,
         bool keep_tokens);

  // Sends the request; once. From then on the stream keeps itself alive until OnEnd has returned.
  void Start(v1::Inference::Stub* stub);
  // Any thread; OnEnd follows soon.
  void Cancel() { context_.TryCancel(); }

  const PlannedRequest& plan() const { return plan_; }
  RequestRecord& record() { return *record_; }
  const std::vector<uint32_t>& tokens() const { return tokens_; }
  int32_t channel = 0;  // the owner's

 private:
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  void TakeTokens(const v1::TokenDelta& delta, int64_t now_ns);
  void TakeFinished(const v1::Finished& finished);
  void Break(const char* what);  // the protocol was broken
  void ReadNext();
  void Judge(const grpc::Status& status);
  int64_t Now() const;

  PlannedRequest plan_;       // its prompt only if keep_tokens
  const int32_t prompt_end_;  // of the session, if there is one
  RequestRecord* const record_;
  RunState* const run_;
  const bool keep_tokens_;
  std::unique_ptr<v1::GenerateRequest> message_;  // gone once sent
  grpc::ClientContext context_;
  v1::GenerateResponse frame_;
  std::vector<uint32_t> tokens_;
  std::unique_ptr<grpc::Alarm> alarm_;  // of a slow reader
  std::shared_ptr<Stream> self_;        // from Start to the end
  bool heard_ = false;                  // a frame came
  bool finished_ = false;               // Finished came
  bool cancelled_ = false;              // by the plan
};

}  // namespace quire::load
