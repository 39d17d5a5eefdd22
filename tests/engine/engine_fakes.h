// Fakes for the engine's tests: a worker that reports where it is, and a sink that records events.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <semaphore>
#include <vector>

#include "engine/base/clock.h"
#include "engine/values/output_sink.h"
#include "engine/worker/rank/step_runner.h"
#include "gtest/gtest.h"

namespace quire {

// Samples the position itself: a prompt of n tokens is continued by n, n + 1, n + 2, ... Waits for
// `gate` before each step when there is one.
class PositionRunner : public StepRunner {
 public:
  explicit PositionRunner(std::counting_semaphore<>* gate = nullptr, uint64_t checksum = 0)
      : gate_(gate), checksum_(checksum) {}
  void Run(const StepPlan& plan, StepResult& result) override {
    if (gate_ != nullptr) gate_->acquire();
    result.step = plan.step;
    result.checksum = checksum_;
    result.samples.clear();
    for (const RowWork& work : plan.work) {
      for (int32_t i = work.sample - 1; i >= 0; --i) {
        result.samples.push_back({work.row, {.token = work.start + work.count - i}});
      }
    }
  }

 private:
  std::counting_semaphore<>* gate_;
  uint64_t checksum_;
};

class RecordingSink : public OutputSink {
 public:
  struct Stream {
    std::vector<TurnStart> starts;
    std::vector<int32_t> tokens;
    std::vector<FinishEvent> ends;
  };
  void OnTurnStarts(std::span<const TurnStart> starts) override {
    std::lock_guard lock(mutex_);
    for (const TurnStart& start : starts) {
      Stream& stream = streams_[start.id];
      EXPECT_TRUE(stream.tokens.empty() && stream.starts.empty());
      stream.starts.push_back(start);
      ended_ += !start.status.ok();
    }
    changed_.notify_all();
  }
  void OnReadings(std::span<const ReadingEvent>, std::span<const uint32_t>) override {}
  void OnStep(std::span<const TokenEvent> tokens, std::span<const FinishEvent> finishes) override {
    std::lock_guard lock(mutex_);
    for (const TokenEvent& event : tokens) {
      Stream& stream = streams_[event.id];
      EXPECT_TRUE(stream.ends.empty()) << "a token after the end";
      EXPECT_EQ(event.index, static_cast<int32_t>(stream.tokens.size()));
      stream.tokens.push_back(event.token);
    }
    for (const FinishEvent& event : finishes) streams_[event.id].ends.push_back(event);
    ended_ += finishes.size();
    changed_.notify_all();
  }
  void AwaitEnds(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= count; });
  }
  void AwaitTokens(RequestId id, size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return streams_[id].tokens.size() >= count; });
  }
  Stream stream(RequestId id) {
    std::lock_guard lock(mutex_);
    return streams_[id];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Stream> streams_;
  size_t ended_ = 0;
};

inline std::unique_ptr<Request> MakeRequest(RequestId id, int prompt, int max_tokens) {
  auto request = std::make_unique<Request>();
  request->id = id;
  request->prompt.assign(prompt, 1);
  request->sampling.max_tokens = max_tokens;
  request->arrival_ns = SteadyNowNs();
  return request;
}

}  // namespace quire
