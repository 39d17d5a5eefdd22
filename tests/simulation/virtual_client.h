// VirtualClient: the far end of one generating call in a simulated world. It reads fast, slowly or
// not at all, may leave, and knows the right answer beforehand: each breach of the contract of
// streams is a test failure (a token that is wrong, missing or repeated, a second end, a write
// while another one is in flight, an end that its request cannot have).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/generate/generation_stream.h"
#include "server/generate/stream_outlet.h"
#include "tests/engine/schedule/simulated_engine.h"
#include "tests/simulation/agenda.h"

namespace quire {

struct ClientManners {
  GenerationStream::Shape shape = GenerationStream::Shape::kStream;
  int64_t read_ns = 10'000;                      // of a frame, and up to as much again
  int64_t reads = -1;                            // frames, before it stops reading; < 0: all
  int64_t leaves_ns = VirtualThreads::kNever;    // when it goes, without a word
  int64_t deadline_ns = VirtualThreads::kNever;  // of the call
  bool keeps_time = true;                        // goes at the deadline, before the server ends it
  int64_t max_reply_bytes = 1 << 20;
};

class VirtualClient final : public StreamOutlet {
 public:
  // `expected`: the whole answer of the request alone. `on_closed` is called once, as the last.
  VirtualClient(Agenda& agenda, Dice& dice, const ClientManners& manners, ExpectedOutcome expected,
                std::function<void(VirtualClient&)> on_closed);

  // Before the stream's request is submitted.
  void Begin(std::shared_ptr<GenerationStream> stream);

  // From then on the engine has no work for it.
  int64_t unwanted_ns() const { return std::min(failed_ns_, manners_.deadline_ns); }
  bool accepted() const { return accepted_; }
  bool closed() const { return closed_; }
  const std::optional<FinishEvent>& finish() const { return finish_; }  // of a regular end
  const absl::Status& status() const { return status_; }                // of any other end
  const std::vector<int32_t>& tokens() const { return tokens_; }
  const ExpectedOutcome& expected() const { return expected_; }

  void WriteAccepted(const AcceptedFrame& accepted) override;
  void WriteTokens(const OutputDelta& delta, const OutputOptions& output) override;
  void WriteEnd(const EndFrame& end) override;
  void Fail(const absl::Status& status) override;
  void Reset() override;
  absl::Status CheckSize(int64_t bytes) const override;

 private:
  void Write();
  void FinishWrite(bool ok);
  void Take(const OutputDelta& delta);
  void End();
  void Leave();
  void Close();
  bool stuck() const { return manners_.reads >= 0 && frames_ > manners_.reads; }

  Agenda& agenda_;
  Dice& dice_;
  const ClientManners manners_;
  const ExpectedOutcome expected_;
  const std::function<void(VirtualClient&)> on_closed_;
  std::shared_ptr<GenerationStream> stream_;  // until it is closed
  int64_t frames_ = 0;
  bool writing_ = false;
  bool accepted_ = false;
  bool ended_ = false;
  bool gone_ = false;
  bool closed_ = false;
  std::optional<FinishEvent> finish_;
  int64_t failed_ns_ = VirtualThreads::kNever;
  absl::Status status_;
  std::vector<int32_t> tokens_;
};

}  // namespace quire
