// Double-buffered inboxes: vectors are swapped, never freed, so a steady step allocates nothing.
#include "server/generate/output_shards.h"

#include <limits>

#include "engine/base/clock.h"
#include "engine/base/timeline.h"
#include "server/call/connection_table.h"
#include "server/generate/generation_stream.h"

namespace quire {
namespace {

// From so many streams of one connection on, two system calls to cork it cost less than the
// segments they save.
constexpr uint16_t kCorkedStreams = 4;

GenerationStream* StreamOf(void* cookie) { return static_cast<GenerationStream*>(cookie); }

}  // namespace

OutputShards::OutputShards(int threads) {
  for (int i = 0; i < threads; ++i) {
    shards_.push_back(std::make_unique<Shard>());
    Shard* shard = shards_.back().get();
    shard->streams_of_slot.resize(ConnectionTable::kSlots, 0);
    shard->number = i;
    shard->thread = std::thread([this, shard] { Run(*shard); });
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

void OutputShards::Batch::Clear() {
  starts.clear();
  readings.clear();
  words.clear();
  tokens.clear();
  finishes.clear();
}

void OutputShards::OnTurnStarts(std::span<const TurnStart> starts) {
  for (const TurnStart& start : starts) {
    shards_[start.id % shards_.size()]->staged.starts.push_back(start);
  }
  for (const auto& shard : shards_) {
    if (!shard->staged.empty()) HandOver(*shard);
  }
}

void OutputShards::OnReadings(std::span<const ReadingEvent> readings,
                              std::span<const uint32_t> words) {
  for (const ReadingEvent& event : readings) {
    Batch& staged = shards_[event.id % shards_.size()]->staged;
    Reading& added = staged.readings.emplace_back(Reading{StreamOf(event.cookie), event.reading});
    added.reading.begin = static_cast<uint32_t>(staged.words.size());
    const auto part = words.subspan(event.reading.begin, event.reading.words);
    staged.words.insert(staged.words.end(), part.begin(), part.end());
  }
  for (const auto& shard : shards_) {
    if (!shard->staged.empty()) HandOver(*shard);
  }
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
    if (!shard->staged.empty()) HandOver(*shard);
  }
}

void OutputShards::HandOver(Shard& shard) {
  Batch& staged = shard.staged;
  {
    std::lock_guard lock(shard.mutex);
    Batch& inbox = shard.inbox;
    if (inbox.empty()) {
      std::swap(inbox, staged);
    } else {
      if (inbox.tokens.size() + staged.tokens.size() > kMaxQueuedTokens ||
          inbox.words.size() + staged.words.size() > kMaxQueuedWords) {
        for (const Token& token : staged.tokens) token.stream->MarkOverrun();
        for (const Reading& reading : staged.readings) reading.stream->MarkOverrun();
        staged.tokens.clear();
        staged.readings.clear();
        staged.words.clear();
      }
      for (Reading reading : staged.readings) {
        reading.reading.begin += static_cast<uint32_t>(inbox.words.size());
        inbox.readings.push_back(reading);
      }
      inbox.words.insert(inbox.words.end(), staged.words.begin(), staged.words.end());
      inbox.starts.insert(inbox.starts.end(), staged.starts.begin(), staged.starts.end());
      inbox.tokens.insert(inbox.tokens.end(), staged.tokens.begin(), staged.tokens.end());
      inbox.finishes.insert(inbox.finishes.end(), staged.finishes.begin(), staged.finishes.end());
    }
  }
  staged.Clear();
  shard.wake.Notify();
}

void OutputShards::Run(Shard& shard) {
  Batch batch;
  for (;;) {
    bool stopping = false;
    {
      std::lock_guard lock(shard.mutex);
      std::swap(batch, shard.inbox);
      stopping = shard.stopping;
    }
    if (!batch.empty()) {
      Deliver(shard, batch);
    } else if (stopping) {
      return;
    } else {
      shard.wake.Wait(std::numeric_limits<int64_t>::max());
    }
  }
}

void OutputShards::Deliver(Shard& shard, Batch& batch) {
  const TimelineSpan span({.track = Timeline::Track::kOutput,
                           .lane = shard.number,
                           .name = "deliver",
                           .args = {{{"tokens", static_cast<int64_t>(batch.tokens.size())},
                                     {"ends", static_cast<int64_t>(batch.finishes.size())}}}});
  const auto touch = [&shard](GenerationStream* stream) {
    if (stream->gathered) return;
    stream->gathered = true;
    shard.touched.push_back(stream);
  };
  for (const TurnStart& start : batch.starts) {
    StreamOf(start.cookie)->TakeStart(start);
    touch(StreamOf(start.cookie));
  }
  for (const auto& [stream, reading] : batch.readings) {
    stream->TakeReading(reading, std::span(batch.words).subspan(reading.begin, reading.words));
    touch(stream);
  }
  for (const Token& token : batch.tokens) {
    token.stream->TakeToken(token.token, token.logprob, token.now_ns);
    touch(token.stream);
  }
  const int64_t now_ns = batch.finishes.empty() ? 0 : SteadyNowNs();
  for (const FinishEvent& event : batch.finishes) {
    StreamOf(event.cookie)->TakeFinish(event, now_ns);
    touch(StreamOf(event.cookie));
  }
  FlushTouched(shard);
  // Last, because it may destroy a stream.
  for (const TurnStart& start : batch.starts) {
    if (!start.status.ok()) StreamOf(start.cookie)->Release();
  }
  for (const FinishEvent& event : batch.finishes) StreamOf(event.cookie)->Release();
  batch.Clear();
}

void OutputShards::FlushTouched(Shard& shard) {
  for (const GenerationStream* stream : shard.touched) {
    const auto slot = static_cast<size_t>(stream->slot());
    if (slot != 0 && ++shard.streams_of_slot[slot] == kCorkedStreams) {
      shard.slots.push_back(stream->slot());
      connections_->SetCork(stream->slot(), true);
    }
  }
  for (GenerationStream* stream : shard.touched) {
    stream->gathered = false;
    shard.streams_of_slot[static_cast<size_t>(stream->slot())] = 0;
    stream->Flush();
  }
  for (const int slot : shard.slots) connections_->SetCork(slot, false);
  shard.slots.clear();
  shard.touched.clear();
}

}  // namespace quire
