// The policy, from the book.
#include "tests/engine/schedule/reference_scheduler.h"

#include <algorithm>
#include <climits>
#include <tuple>

namespace quire {
namespace {

int32_t BlocksFor(int32_t tokens, int32_t block_size) {
  return tokens / block_size + (tokens % block_size != 0);
}

}  // namespace

bool ReferenceScheduler::Before(const Entry* a, const Entry* b) {
  return std::tuple(-int64_t{a->spec.priority}, a->spec.arrival_ns, a->number) <
         std::tuple(-int64_t{b->spec.priority}, b->spec.arrival_ns, b->number);
}

std::vector<ReferenceScheduler::Entry*> ReferenceScheduler::InOrder(Place place) {
  std::vector<Entry*> found;
  for (Entry& entry : entries_) {
    if (entry.place == place) found.push_back(&entry);
  }
  std::sort(found.begin(), found.end(), Before);
  return found;
}

int32_t ReferenceScheduler::Free() const {
  int32_t free = config_.num_blocks - 1;
  for (const Entry& entry : entries_) free -= entry.blocks;
  return free;
}

int32_t ReferenceScheduler::Promised() const {
  int32_t promised = 0;
  for (const Entry& entry : entries_) promised += entry.promised;
  return promised;
}

int32_t ReferenceScheduler::Draining() const {
  int32_t draining = 0;
  for (const Entry& entry : entries_) draining += entry.place == kRunning ? 0 : entry.blocks;
  return draining;
}

int32_t ReferenceScheduler::Rows() const {
  int32_t rows = 0;
  for (const Entry& entry : entries_) rows += entry.place == kRunning || entry.flights > 0;
  return rows;
}

void ReferenceScheduler::Add(RequestId id, const RequestSpec& spec) {
  Entry entry{.id = id, .spec = spec, .number = next_number_++};
  entry.known = spec.prompt_tokens;
  entry.end = std::min(spec.prompt_tokens + spec.max_tokens, config_.max_model_len);
  entries_.push_back(entry);
}

ReferenceScheduler::End ReferenceScheduler::Finish(Entry& entry, FinishReason reason) {
  const End end{entry.id, reason};
  entry.place = kEnded;
  entry.promised = 0;
  TryToEmpty(entry);
  return end;
}

void ReferenceScheduler::TryToEmpty(Entry& entry) {
  if (entry.place == kRunning || entry.flights > 0) return;
  entry.blocks = entry.planned = 0;
}

std::vector<ReferenceScheduler::End> ReferenceScheduler::Cancel(RequestId id, FinishReason reason) {
  for (Entry& entry : entries_) {
    if (entry.id == id && entry.place != kEnded) return {Finish(entry, reason)};
  }
  return {};
}

std::vector<ReferenceScheduler::End> ReferenceScheduler::CancelAll(FinishReason reason) {
  std::vector<End> ends;
  for (Entry& entry : entries_) {
    if (entry.place != kEnded) ends.push_back(Finish(entry, reason));
  }
  return ends;
}

std::vector<ReferenceScheduler::End> ReferenceScheduler::ExpireDeadlines(int64_t now_ns) {
  std::vector<End> ends;
  for (Entry& entry : entries_) {
    if (entry.place == kEnded || entry.spec.deadline_ns > now_ns) continue;
    ends.push_back(Finish(entry, FinishReason::kDeadline));
  }
  return ends;
}

void ReferenceScheduler::Preempt(Entry& entry) {
  entry.place = kWaiting;
  entry.promised = 0;
  ++entry.preemptions;
  ++preempted_;
  TryToEmpty(entry);
}

bool ReferenceScheduler::Grow(Entry& entry, int32_t& claims, bool& preempted) {
  if (entry.planned < entry.blocks * config_.block_size) return true;
  for (;;) {
    if (entry.promised > 0 || Free() > Promised()) {
      entry.promised -= entry.promised > 0;
      ++entry.blocks;
      return true;
    }
    if (Draining() > claims) {
      ++claims;
      return false;
    }
    Entry* victim = nullptr;
    for (Entry* other : InOrder(kRunning)) {
      const bool spent = other->preemptions >= 2 && other->spec.priority == entry.spec.priority;
      num_spared_ += Before(&entry, other) && spent;
      if (Before(&entry, other) && !spent) victim = other;
    }
    if (victim == nullptr) return false;
    Preempt(*victim);
    preempted = true;
  }
}

std::vector<Share> ReferenceScheduler::Schedule() {
  std::erase_if(entries_, [](const Entry& e) { return e.place == kEnded && e.flights == 0; });
  int32_t budget = config_.max_num_batched_tokens;
  int32_t claims = 0;
  bool preempted = false;
  std::vector<Entry*> prefills;
  chosen_.clear();
  for (Entry* entry : InOrder(kRunning)) {
    if (entry->place != kRunning || entry->known + entry->sampling == entry->end) continue;
    if (entry->Left() > 1) {
      prefills.push_back(entry);
    } else if (budget > 0 && Grow(*entry, claims, preempted)) {
      chosen_.emplace_back(entry, 1);
      --budget;
    }
  }
  Prefill(prefills, preempted, budget);
  std::vector<Share> plan;
  std::vector<Flight> flight;
  for (auto& [entry, count] : chosen_) {
    if (count == 0) continue;
    const bool sample = count == entry->Left();
    plan.push_back({entry->id, entry->planned, count, sample});
    flight.push_back({entry, sample});
    const int32_t need = BlocksFor(entry->planned + count, config_.block_size);
    entry->promised -= std::max(0, need - entry->blocks);
    entry->blocks = std::max(entry->blocks, need);
    entry->planned += count;
    entry->sampling += sample;
    ++entry->flights;
  }
  if (!flight.empty()) flights_.push_back(flight);
  return plan;
}

// Running prefills, then admissions, then what is left over.
void ReferenceScheduler::Prefill(std::vector<Entry*> prefills, bool preempted, int32_t budget) {
  const int32_t whole = budget;
  int32_t half = std::max(1, whole / 2);
  int32_t shortest = INT_MAX;
  std::vector<Entry*> waiting = InOrder(kWaiting);
  if (waiting.size() > 16) waiting.resize(16);
  if (preempted || Rows() == config_.max_num_seqs) waiting.clear();
  for (const Entry* entry : waiting) shortest = std::min(shortest, entry->known);
  for (const Entry* entry : prefills) shortest = std::min(shortest, entry->Left());
  std::sort(prefills.begin(), prefills.end(), [](Entry* a, Entry* b) {
    const bool a_old = a->unserved >= 4, b_old = b->unserved >= 4;
    if (a_old || b_old) return a_old != b_old ? a_old : Before(a, b);
    return a->Left() != b->Left() ? a->Left() < b->Left() : Before(a, b);
  });
  const size_t first = chosen_.size();
  int32_t unfinished = 0;
  const auto serve = [&](Entry* entry, int32_t count) {
    chosen_.emplace_back(entry, count);
    budget -= count;
    unfinished += count < entry->Left();
    if (entry->Left() > whole) half = std::max(0, half - count);
  };
  const auto share_of = [&](int32_t length) {
    const bool very_long = length > whole && shortest < length;
    return std::min({length, budget, very_long ? half : budget});
  };
  for (Entry* entry : prefills) {
    num_aged_prefills_ += entry->unserved >= 4;
    serve(entry, share_of(entry->Left()));
  }
  std::vector<Entry*> passed;
  for (Entry* entry : waiting) {
    if (budget == 0 || Rows() == config_.max_num_seqs || entry->flights > 0) break;
    const int32_t running = static_cast<int32_t>(InOrder(kRunning).size());
    const int32_t total = config_.num_blocks - 1;
    const int32_t watermark = running == 0 ? 0 : std::max(total / 100, running);
    const bool patient = entry->bypassed >= 32;
    const int32_t count = patient ? std::min(entry->known, budget) : share_of(entry->known);
    const int32_t all = entry->end - 1;
    const int32_t some = std::min(all, entry->known + config_.growth_horizon);
    const int32_t need = BlocksFor(entry->preemptions >= 2 ? all : some, config_.block_size);
    const bool may_begin = count == entry->known || unfinished < config_.max_partial_prefills;
    if (count > 0 && may_begin && Free() - Promised() - watermark >= need) {
      entry->place = kRunning;
      entry->promised = need;
      entry->bypassed = entry->unserved = 0;
      for (Entry* other : passed) ++other->bypassed;
      serve(entry, count);
    } else if (patient) {
      ++num_blocked_queues_;
      break;
    } else {
      passed.push_back(entry);
    }
  }
  for (size_t i = first; i < chosen_.size(); ++i) {
    auto& [entry, count] = chosen_[i];
    const int32_t more = std::min(budget, entry->Left() - count);
    count += more;
    budget -= more;
    entry->unserved = count > 0 ? 0 : entry->unserved + 1;
  }
}

bool ReferenceScheduler::Stops(const Entry& entry, int32_t token, FinishReason& reason) const {
  const int32_t output = entry.known - entry.spec.prompt_tokens;
  const auto& stops = entry.spec.stop_token_ids;
  const bool may_stop = output > entry.spec.min_tokens;
  if (may_stop && entry.spec.stops_at_eos && token == eos_token_) {
    reason = FinishReason::kEos;
  } else if (may_stop && std::count(stops.begin(), stops.end(), token) > 0) {
    reason = FinishReason::kStopToken;
  } else if (output == entry.spec.max_tokens) {
    reason = FinishReason::kMaxTokens;
  } else if (entry.known == config_.max_model_len) {
    reason = FinishReason::kContextLimit;
  } else {
    return false;
  }
  return true;
}

std::vector<ReferenceScheduler::End> ReferenceScheduler::Retire(
    const std::vector<SampledToken>& samples) {
  std::vector<End> ends;
  size_t next = 0;
  for (const Flight& flight : flights_.front()) {
    Entry& entry = *flight.entry;
    --entry.flights;
    entry.sampling -= flight.sample;
    FinishReason reason = FinishReason::kNumeric;
    if (flight.sample) {
      const SampleResult& result = samples.at(next++).result;
      if (entry.place != kEnded) {
        entry.known += !result.nonfinite;
        if (result.nonfinite || Stops(entry, result.token, reason)) {
          ends.push_back(Finish(entry, reason));
        }
      }
    }
    TryToEmpty(entry);
  }
  flights_.pop_front();
  return ends;
}

std::vector<ReferenceScheduler::End> ReferenceScheduler::KillWorker() {
  flights_.clear();
  std::vector<End> ends;
  for (Entry& entry : entries_) {
    const bool on_worker = entry.place == kRunning || entry.flights > 0;
    entry.flights = entry.sampling = 0;
    if (on_worker && entry.place != kEnded) {
      if (++entry.deaths > 2) {
        ends.push_back(Finish(entry, FinishReason::kEngineFault));
      } else {
        entry.place = kWaiting;
        entry.promised = 0;
      }
    }
    TryToEmpty(entry);
  }
  return ends;
}

SchedulerLoad ReferenceScheduler::Load() const {
  SchedulerLoad load;
  load.total_blocks = config_.num_blocks - 1;
  load.free_blocks = Free();
  for (const Entry& entry : entries_) {
    load.running += entry.place == kRunning;
    load.waiting += entry.place == kWaiting;
    load.waiting_tokens += entry.place == kWaiting ? entry.known : 0;
    load.tokens_in_flight += entry.place == kRunning ? entry.known : 0;
  }
  return load;
}

int64_t ReferenceScheduler::WorkLeft() const {
  int64_t tokens = 0;
  for (const Entry& entry : entries_) tokens += entry.place == kEnded ? 0 : entry.end;
  return tokens;
}

}  // namespace quire
