// Shards by thread.
#include "clients/load/run/tally.h"

namespace quire::load {

Tally::Shard& Tally::Mine() {
  static std::atomic<size_t> threads{0};
  thread_local const size_t mine = threads.fetch_add(1);
  return shards_[mine % shards_.size()];
}

void Tally::Sent() { sent_.fetch_add(1, std::memory_order_relaxed); }

void Tally::FirstFrame(int32_t tokens, double ttft_seconds) {
  Shard& shard = Mine();
  std::lock_guard lock(shard.mutex);
  shard.tokens += tokens;
  shard.ttfts.push_back(ttft_seconds);
}

void Tally::NextFrame(int32_t tokens, double gap_seconds, bool measured) {
  Shard& shard = Mine();
  std::lock_guard lock(shard.mutex);
  shard.tokens += tokens;
  if (!measured) return;
  shard.gaps.Add(gap_seconds);
  if (tokens > 0) shard.gaps_per_token.Add(gap_seconds / tokens, tokens);
}

void Tally::Ended(Outcome outcome) {
  if (outcome == Outcome::kFailed) failed_.fetch_add(1, std::memory_order_relaxed);
  ended_.fetch_add(1, std::memory_order_relaxed);
}

Tally::Totals Tally::Read() const {
  Totals totals;
  // Ended first: a stream that ends in between must not count as ended but never sent.
  totals.ended = ended_.load();
  totals.failed = failed_.load();
  totals.sent = sent_.load();
  for (const Shard& shard : shards_) {
    std::lock_guard lock(shard.mutex);
    totals.tokens += shard.tokens;
  }
  return totals;
}

int64_t Tally::in_flight() const {
  const int64_t ended = ended_.load();
  return sent_.load() - ended;
}

std::vector<double> Tally::TakeTtfts() {
  std::vector<double> all;
  for (Shard& shard : shards_) {
    std::lock_guard lock(shard.mutex);
    all.insert(all.end(), shard.ttfts.begin(), shard.ttfts.end());
    shard.ttfts.clear();
  }
  return all;
}

void Tally::AddGapsTo(LatencyHistogram* gaps, LatencyHistogram* gaps_per_token) const {
  for (const Shard& shard : shards_) {
    std::lock_guard lock(shard.mutex);
    gaps->Merge(shard.gaps);
    gaps_per_token->Merge(shard.gaps_per_token);
  }
}

}  // namespace quire::load
