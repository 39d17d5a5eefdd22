// OutputShards: bring each step's output from the scheduler thread to the streams. A stream belongs
// to one shard; a shard is one thread that detokenises and starts writes. A step costs the
// scheduler thread one lock and at most one wake per shard.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/base/wake_event.h"
#include "engine/values/output_sink.h"

namespace quire {

class ConnectionTable;
class GenerationStream;

class OutputShards {
 public:
  explicit OutputShards(int threads);
  // Lets bursts of writes to one connection be gathered. Before the first OnStep; outlives this.
  void SetConnections(ConnectionTable* connections) { connections_ = connections; }
  // Delivers the queued output, then joins. No OnStep may follow.
  ~OutputShards();

  // OutputSink's, on the scheduler thread. Never blocks: a shard that has more than
  // kMaxQueuedTokens or kMaxQueuedWords in its queue drops tokens, and their streams are shed
  // (starts and finishes are never dropped: live requests bound them).
  void OnTurnStarts(std::span<const TurnStart> starts);
  void OnReadings(std::span<const ReadingEvent> readings, std::span<const uint32_t> words);
  void OnStep(std::span<const TokenEvent> tokens, std::span<const FinishEvent> finishes);

  static constexpr size_t kMaxQueuedTokens = size_t{1} << 20;
  static constexpr size_t kMaxQueuedWords = size_t{64} << 20;  // of readings

 private:
  struct Token {
    GenerationStream* stream = nullptr;
    int32_t token = 0;
    float logprob = 0.0f;
    int64_t now_ns = 0;
  };
  struct Reading {
    GenerationStream* stream = nullptr;
    StepReading reading;  // begins in the batch's words
  };
  struct Batch {
    std::vector<TurnStart> starts;
    std::vector<Reading> readings;
    std::vector<uint32_t> words;
    std::vector<Token> tokens;
    std::vector<FinishEvent> finishes;

    bool empty() const {
      return starts.empty() && readings.empty() && tokens.empty() && finishes.empty();
    }
    void Clear();
  };
  struct Shard {
    Batch staged;  // scheduler thread only
    std::mutex mutex;
    Batch inbox;  // under mutex
    bool stopping = false;
    WakeEvent wake;
    // The shard's thread only, for the length of one batch.
    std::vector<GenerationStream*> touched;
    std::vector<uint16_t> streams_of_slot;  // [65536] touched streams of a connection
    std::vector<int> slots;                 // with touched streams
    int number = 0;
    std::thread thread;
  };

  void HandOver(Shard& shard);
  void Run(Shard& shard);
  void Deliver(Shard& shard, Batch& batch);
  void FlushTouched(Shard& shard);

  ConnectionTable* connections_ = nullptr;
  std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace quire
