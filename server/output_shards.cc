// Double-buffered inboxes: vectors are swapped, never freed, so a steady step allocates nothing.
#include "server/output_shards.h"

#include <limits>

#include "engine/base/clock.h"
#include "server/generation_stream.h"

namespace quire {
namespace {

GenerationStream* StreamOf(void* cookie) { return static_cast<GenerationStream*>(cookie); }

}  // namespace

OutputShards::OutputShards(int threads) {
  for (int i = 0; i < threads; ++i) {
    shards_.push_back(std::make_unique<Shard>());
    Shard* shard = shards_.back().get();
    shard->thread = std::thread([shard] { Run(*shard); });
  }
}

OutputShards::~OutputShards() {
  for (const auto& shard : shards_) {
    {
      std::lock_guard lock(shard->mutex);
      shard->stopping = true;
    }
    shard->wake.Notify();
  }
  for (const auto& shard : shards_) shard->thread.join();
}

void OutputShards::OnStep(std::span<const TokenEvent> tokens,
                          std::span<const FinishEvent> finishes) {
  const int64_t now_ns = SteadyNowNs();
  const size_t count = shards_.size();
  for (const TokenEvent& event : tokens) {
    shards_[event.id % count]->staged.tokens.push_back(
        {StreamOf(event.cookie), event.token, event.logprob, now_ns});
  }
  for (const FinishEvent& event : finishes) {
    shards_[event.id % count]->staged.finishes.push_back(event);
  }
  for (const auto& shard : shards_) {
    if (!shard->staged.tokens.empty() || !shard->staged.finishes.empty()) HandOver(*shard);
  }
}

void OutputShards::HandOver(Shard& shard) {
  Batch& staged = shard.staged;
  {
    std::lock_guard lock(shard.mutex);
    Batch& inbox = shard.inbox;
    if (inbox.tokens.empty() && inbox.finishes.empty()) {
      std::swap(inbox, staged);
    } else {
      if (inbox.tokens.size() + staged.tokens.size() > kMaxQueuedTokens) {
        for (const Token& token : staged.tokens) token.stream->MarkOverrun();
        staged.tokens.clear();
      }
      inbox.tokens.insert(inbox.tokens.end(), staged.tokens.begin(), staged.tokens.end());
      inbox.finishes.insert(inbox.finishes.end(), staged.finishes.begin(), staged.finishes.end());
    }
  }
  staged.tokens.clear();
  staged.finishes.clear();
  shard.wake.Notify();
}

void OutputShards::Run(Shard& shard) {
  Batch batch;
  std::vector<GenerationStream*> touched;
  for (;;) {
    bool stopping = false;
    {
      std::lock_guard lock(shard.mutex);
      std::swap(batch, shard.inbox);
      stopping = shard.stopping;
    }
    if (!batch.tokens.empty() || !batch.finishes.empty()) {
      Deliver(batch, touched);
    } else if (stopping) {
      return;
    } else {
      shard.wake.Wait(std::numeric_limits<int64_t>::max());
    }
  }
}

void OutputShards::Deliver(Batch& batch, std::vector<GenerationStream*>& touched) {
  const auto touch = [&touched](GenerationStream* stream) {
    if (stream->gathered) return;
    stream->gathered = true;
    touched.push_back(stream);
  };
  for (const Token& token : batch.tokens) {
    token.stream->TakeToken(token.token, token.logprob, token.now_ns);
    touch(token.stream);
  }
  const int64_t now_ns = batch.finishes.empty() ? 0 : SteadyNowNs();
  for (const FinishEvent& event : batch.finishes) {
    StreamOf(event.cookie)->TakeFinish(event, now_ns);
    touch(StreamOf(event.cookie));
  }
  for (GenerationStream* stream : touched) {
    stream->gathered = false;
    stream->Flush();
  }
  // Only now: a stream may be destroyed by this.
  for (const FinishEvent& event : batch.finishes) StreamOf(event.cookie)->Release();
  batch.tokens.clear();
  batch.finishes.clear();
  touched.clear();
}

}  // namespace quire
