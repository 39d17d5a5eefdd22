// The policy, rule by rule.
#include "tests/engine/schedule/reference_scheduler.h"

#include <algorithm>
#include <climits>
#include <cmath>
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
  // An entry that has run waits before those that arrived up to ten seconds earlier.
  const auto priority_and_place = [](const Entry* entry) {
    const int64_t place = entry->spec.arrival_ns - (entry->has_run ? 10'000'000'000 : 0);
    return std::pair(-int64_t{entry->spec.priority}, place);
  };
  if (place == kWaiting) std::ranges::stable_sort(found, {}, priority_and_place);
  return found;
}

ReferenceScheduler::Prefix ReferenceScheduler::PrefixOf(const Entry& entry, int32_t blocks) const {
  Prefix prefix = {static_cast<int64_t>(entry.spec.tenant)};
  const auto tokens = entry.tokens.begin();
  prefix.insert(prefix.end(), tokens, tokens + int64_t{blocks} * config_.block_size);
  return prefix;
}

bool ReferenceScheduler::UsesCache(const Entry& entry) const {
  return config_.prefix_cache && !entry.spec.bypass_cache;
}

// Blocks of the longest cached prefix that leaves a token to compute.
int32_t ReferenceScheduler::FindPrefix(const Entry& entry) const {
  int32_t blocks = UsesCache(entry) ? (entry.known() - 1) / config_.block_size : 0;
  while (blocks > 0 && !cache_.contains(PrefixOf(entry, blocks))) --blocks;
  return blocks;
}

int32_t ReferenceScheduler::Unheld() const {
  int32_t unheld = 0;
  for (const auto& [prefix, cached] : cache_) unheld += cached.holders == 0;
  return unheld;
}

// Evicts unheld prefixes when no block is free, the longest unused first.
void ReferenceScheduler::Evict() {
  auto victim = cache_.end();
  for (auto it = cache_.begin(); it != cache_.end(); ++it) {
    if (it->second.holders > 0) continue;
    if (victim == cache_.end() || it->second.left_at < victim->second.left_at) victim = it;
  }
  cache_.erase(victim);
  ++num_evicted_;
}

void ReferenceScheduler::Take(Entry& entry, int32_t blocks) {
  for (; blocks > 0; --blocks) {
    if (Free() == Unheld()) Evict();
    ++entry.blocks;
    ++entry.own;
  }
}

// Commits proved blocks to the cache. If another request holds an equal prefix, the rest waits
// until this request leaves.
void ReferenceScheduler::Commit(Entry& entry, bool leaving) {
  if (!UsesCache(entry)) return;
  for (; (entry.held + 1) * config_.block_size <= entry.proved; ++entry.held) {
    Cached& cached = cache_[PrefixOf(entry, entry.held + 1)];
    num_duplicates_ += cached.holders > 0;
    if (cached.holders > 0 && !leaving) return;
    entry.own -= cached.holders == 0;  // a held prefix keeps its own block
    ++cached.holders;
  }
}

// Free, or cached and unused.
int32_t ReferenceScheduler::Free() const {
  int32_t free = config_.num_blocks - 1;
  for (const Entry& entry : entries_) free -= entry.own;
  return free - static_cast<int32_t>(cache_.size()) + Unheld();
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
  entry.tokens = PromptOf(id, spec, model_.vocab_size);
  entry.end = std::min(spec.prompt_tokens + spec.max_tokens, config_.max_model_len);
  entries_.push_back(entry);
  tenants_[spec.tenant];
  LiftContenders();
}

ReferenceScheduler::End ReferenceScheduler::Finish(Entry& entry, FinishReason reason) {
  const End end{entry.id, reason, std::max(entry.cached_tokens, 0)};
  entry.place = kEnded;
  LiftContenders();
  entry.promised = 0;
  TryToEmpty(entry);
  return end;
}

void ReferenceScheduler::TryToEmpty(Entry& entry) {
  if (entry.place == kRunning || entry.flights > 0) return;
  Commit(entry, true);
  for (; entry.held > 0; --entry.held) {
    Cached& cached = cache_.at(PrefixOf(entry, entry.held));
    if (--cached.holders == 0) cached.left_at = ++clock_;
  }
  entry.blocks = entry.own = entry.planned = entry.computed = entry.proved = 0;
  entry.oracle = {};
}

std::vector<ReferenceScheduler::End> ReferenceScheduler::Cancel(RequestId id, FinishReason reason) {
  for (Entry& entry : entries_) {
    if (entry.id == id && entry.place != kEnded) return {Finish(entry, reason)};
  }
  return {};
}

std::vector<ReferenceScheduler::End> ReferenceScheduler::CancelAll(
    FinishReason reason, const std::vector<RequestId>& order) {
  std::vector<End> ends;
  for (const RequestId id : order) {
    for (const End& end : Cancel(id, reason)) ends.push_back(end);
  }
  for (Entry& entry : entries_) {
    if (entry.place != kEnded) ends.push_back(Finish(entry, reason));
  }
  return ends;
}

std::vector<ReferenceScheduler::End> ReferenceScheduler::ExpireDeadlines(int64_t now_ns) {
  std::vector<Entry*> expired;
  for (Entry& entry : entries_) {
    if (entry.place != kEnded && entry.spec.deadline_ns <= now_ns) expired.push_back(&entry);
  }
  std::ranges::stable_sort(expired, {}, [](const Entry* e) { return e->spec.deadline_ns; });
  std::vector<End> ends;
  for (Entry* entry : expired) ends.push_back(Finish(*entry, FinishReason::kDeadline));
  return ends;
}

void ReferenceScheduler::Preempt(Entry& entry) {
  entry.place = kWaiting;
  LiftContenders();
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
      Take(entry, 1);
      return true;
    }
    if (Draining() > claims) {
      ++claims;
      return false;
    }
    Entry* victim = nullptr;
    for (Entry* other : InOrder(kRunning)) {
      const bool spent = other->spec.priority == entry.spec.priority &&
                         (other->preemptions >= 2 || Sheltered(*other, entry));
      num_spared_ += Before(&entry, other) && spent;
      if (Before(&entry, other) && !spent) victim = other;
    }
    if (victim == nullptr) return false;
    Preempt(*victim);
    preempted = true;
  }
}

// Of the latest 16 places behind the last two tokens, the one behind most equal tokens, up to 32.
int32_t ReferenceScheduler::LookUp(const Entry& entry) const {
  const std::vector<int32_t>& t = entry.tokens;
  const int32_t n = entry.known();
  int32_t best = -1, best_equal = 1, seen = 0;
  for (int32_t p = n - 1; p >= 2 && seen < 16; --p) {
    int32_t equal = 0;
    while (equal < 32 && equal < p && t[p - 1 - equal] == t[n - 1 - equal]) ++equal;
    if (equal < 2) continue;
    ++seen;
    if (equal > best_equal) best = p;
    best_equal = std::max(best_equal, equal);
  }
  return best;
}

double ReferenceScheduler::ExpectedYield(const Entry& entry, int32_t most) const {
  most = std::min({most, entry.spec.max_guesses, config_.step_guesses});
  if (entry.oracle.follows < 0) return 1;
  double tokens = 0;
  for (int32_t i = 0; i <= most; ++i) tokens = 1 + entry.oracle.right * tokens;
  return tokens;
}

// Which requests guess in the next step; engine/schedule/guess_choice.h has the reasons.
void ReferenceScheduler::AskOracles() {
  guesses_each_ = 0;
  if (num_oracles_ == 0) return;
  num_oracles_ = 0;
  guesses_fly_ = false;
  int32_t rows = 0;
  for (Entry* entry : InOrder(kRunning)) {
    ++rows;
    Oracle& oracle = entry->oracle;
    if (!oracle.exists) continue;
    ++num_oracles_;
    guesses_fly_ = guesses_fly_ || !oracle.flying.empty();
    if (!oracle.read) oracle.follows = LookUp(*entry);
    oracle.read = true;
  }
  const int32_t room = std::min(config_.step_guesses + 1, config_.max_num_batched_tokens) - rows;
  if (ElectGuessers(1.5, room) < rows) ElectGuessers(2.5, room);
}

int32_t ReferenceScheduler::ElectGuessers(double least, int32_t room) {
  int32_t elected = 0;
  for (int32_t most = room, round = 0; round < 2; ++round) {
    elected = 0;
    for (Entry* entry : InOrder(kRunning)) {
      const int32_t end = entry->end - entry->known() - 1;
      entry->oracle.chosen = entry->oracle.exists && entry->Left() < 2 &&
                             ExpectedYield(*entry, std::min(most, end)) >= least;
      elected += entry->oracle.chosen;
    }
    if (elected == 0) return 0;
    if (round == 0) most = guesses_each_ = room / elected;
  }
  return elected;
}

bool ReferenceScheduler::WaitsForGuesses(const Entry& entry) const {
  const Oracle& oracle = entry.oracle;
  return oracle.chosen ? entry.sampling > 0 || guesses_fly_ : !oracle.flying.empty();
}

int32_t ReferenceScheduler::AddGuesses(Entry& entry) {
  Oracle& oracle = entry.oracle;
  if (!oracle.chosen || guesses_each_ == 0) return 0;
  int32_t count = std::min({guesses_each_, oracle.length, entry.end - entry.known() - 1});
  const auto room = [&] { return entry.blocks * config_.block_size - entry.planned - 1; };
  while (room() < count && (entry.promised > 0 || Free() > Promised())) {
    entry.promised -= entry.promised > 0;
    Take(entry, 1);
  }
  num_short_guesses_ += room() < count;
  count = std::min(count, room());
  std::vector<int32_t> text = entry.tokens;
  for (int32_t i = 0; i < count; ++i) text.push_back(text[oracle.follows + i]);
  oracle.flying.assign(text.end() - count, text.end());
  num_guessed_ += count;
  return count;
}

// A token of the entry has become known.
void ReferenceScheduler::TellOracle(Entry& entry) {
  Oracle& oracle = entry.oracle;
  if (!oracle.exists) {
    const bool may = entry.place == kRunning && num_oracles_ < config_.step_guesses;
    if (!may || entry.spec.max_guesses == 0) return;
    ++num_oracles_;
    oracle.exists = true;
    oracle.length = std::min({4, entry.spec.max_guesses, config_.step_guesses});
    return;
  }
  if (!oracle.read) return;
  const bool right = oracle.follows >= 0 && entry.tokens[oracle.follows] == entry.tokens.back();
  oracle.right += 0.125 * ((right ? 1.0 : 0.0) - oracle.right);
  oracle.follows = right ? oracle.follows + 1 : LookUp(entry);
}

std::vector<Share> ReferenceScheduler::Schedule(int64_t now_ns) {
  now_ns_ = now_ns;
  std::erase_if(entries_, [](const Entry& e) { return e.place == kEnded && e.flights == 0; });
  int32_t budget = config_.max_num_batched_tokens;
  int32_t claims = 0;
  bool preempted = false;
  std::vector<Entry*> prefills;
  chosen_.clear();
  int64_t least = LLONG_MAX;
  for (const auto& [tenant, state] : tenants_) {
    if (state.contended) least = std::min(least, state.served);
  }
  if (least != LLONG_MAX) level_ = std::max(level_, least);
  ClaimParts(preempted);
  AskOracles();
  for (Entry* entry : InOrder(kRunning)) {
    if (entry->place != kRunning || entry->known() + entry->sampling == entry->end) continue;
    if (WaitsForGuesses(*entry)) continue;
    if (entry->Left() > 1) {
      prefills.push_back(entry);
    } else if (budget > 0 && Grow(*entry, claims, preempted)) {
      chosen_.emplace_back(entry, 1);
      --budget;
      Charge(*entry, 1);
    }
  }
  for (auto& [entry, count] : chosen_) {
    const int32_t guesses = AddGuesses(*entry);
    count += guesses;
    budget -= guesses;
  }
  Prefill(prefills, preempted, budget);
  std::vector<Share> plan;
  std::vector<Flight> flight;
  for (auto& [entry, count] : chosen_) {
    if (count == 0) continue;
    const auto guesses = static_cast<int32_t>(entry->oracle.flying.size());
    const int32_t draws = count == entry->Left() + guesses ? 1 + guesses : 0;
    plan.push_back({entry->id, entry->planned, count, draws});
    flight.push_back({entry, count, draws});
    const int32_t need = BlocksFor(entry->planned + count, config_.block_size);
    entry->promised -= std::max(0, need - entry->blocks);
    Take(*entry, need - entry->blocks);
    entry->planned += count;
    entry->sampling += draws;
    ++entry->flights;
  }
  if (!flight.empty()) flights_.push_back(flight);
  return plan;
}

TenantLimits ReferenceScheduler::LimitsOf(TenantId tenant) const {
  for (const auto& [named, limits] : table_.tenants) {
    if (named == tenant) return limits;
  }
  return table_.defaults;
}

void ReferenceScheduler::SetTenants(const TenantTable& table) {
  table_ = table;
  LiftContenders();
}

int32_t ReferenceScheduler::Count(TenantId tenant, Place place) const {
  return static_cast<int32_t>(std::ranges::count_if(entries_, [&](const Entry& entry) {
    return entry.spec.tenant == tenant && entry.place == place;
  }));
}

int64_t ReferenceScheduler::ShareOfTenant(TenantId tenant) const {
  return std::llround(LimitsOf(tenant).weight * 1000);
}

// The weighted part of all tenants that wait or run.
int32_t ReferenceScheduler::Part(TenantId tenant, int32_t total) const {
  int64_t shares = 0;
  for (const auto& [other, state] : tenants_) {
    if (Count(other, kWaiting) + Count(other, kRunning) > 0) shares += ShareOfTenant(other);
  }
  return static_cast<int32_t>(std::max<int64_t>(1, total * ShareOfTenant(tenant) / shares));
}

bool ReferenceScheduler::Several() const {
  int32_t active = 0;
  for (const auto& [tenant, state] : tenants_) {
    active += Count(tenant, kWaiting) + Count(tenant, kRunning) > 0;
  }
  return active > 1;
}

bool ReferenceScheduler::MayRunMore(TenantId tenant) const {
  const int32_t most = LimitsOf(tenant).max_running_requests;
  return Count(tenant, kWaiting) > 0 && (most == 0 || Count(tenant, kRunning) < most);
}

// Call it whenever entries have changed places.
void ReferenceScheduler::LiftContenders() {
  for (auto& [tenant, state] : tenants_) {
    const bool contends = MayRunMore(tenant);
    if (contends && !state.contended) state.served = std::max(state.served, level_);
    state.contended = contends;
  }
}

void ReferenceScheduler::Charge(const Entry& entry, int32_t tokens) {
  tenants_[entry.spec.tenant].served += tokens * (65'536'000 / ShareOfTenant(entry.spec.tenant));
}

ReferenceScheduler::Lines ReferenceScheduler::WaitingLines() {
  Lines lines;
  for (Entry* entry : InOrder(kWaiting)) {
    if (MayRunMore(entry->spec.tenant)) lines[entry->spec.tenant].entries.push_back(entry);
  }
  return lines;
}

// The line whose next entry comes first; null: all are at their ends.
ReferenceScheduler::Line* ReferenceScheduler::FirstLine(Lines& lines) {
  Line* first = nullptr;
  const auto rank = [this](const Line& line) {
    const Entry& entry = *line.entries[line.next];
    const int64_t place = entry.spec.arrival_ns - (entry.has_run ? 10'000'000'000 : 0);
    return std::tuple(-int64_t{entry.spec.priority}, line.passed,
                      tenants_.at(entry.spec.tenant).served, Count(entry.spec.tenant, kRunning),
                      place, entry.number);
  };
  for (auto& [tenant, line] : lines) {
    if (line.next == line.entries.size() || !MayRunMore(tenant)) continue;
    if (first == nullptr || rank(line) < rank(*first)) first = &line;
  }
  return first;
}

bool ReferenceScheduler::GivesUp(const Entry& victim, const Entry& claimant, bool rows,
                                 const std::map<TenantId, int32_t>& blocks) const {
  const TenantId tenant = victim.spec.tenant;
  const bool served_less = tenants_.at(tenant).served < tenants_.at(claimant.spec.tenant).served;
  if (tenant == claimant.spec.tenant || served_less) return false;
  if (victim.spec.priority > claimant.spec.priority || Count(tenant, kRunning) == 1) return false;
  return rows ? Count(tenant, kRunning) > Part(tenant, config_.max_num_seqs)
              : blocks.at(tenant) > Part(tenant, config_.num_blocks - 1);
}

// Tenants below their part take rows and blocks from tenants above theirs.
void ReferenceScheduler::ClaimParts(bool& preempted) {
  if (!Several()) return;
  std::map<TenantId, int32_t> blocks, prefills;
  for (const auto& [tenant, state] : tenants_) blocks[tenant] = prefills[tenant] = 0;
  for (const Entry& entry : entries_) {
    if (entry.place != kRunning) continue;
    blocks[entry.spec.tenant] += entry.blocks + entry.promised;
    prefills[entry.spec.tenant] += entry.Left() > 1;
  }
  Lines lines = WaitingLines();
  int32_t rows_wanted = 0, blocks_wanted = 0;
  for (int32_t i = 0; i < 16; ++i) {
    Line* line = FirstLine(lines);
    if (line == nullptr) return;
    const Entry& entry = *line->entries[line->next++];
    const TenantId tenant = entry.spec.tenant;
    const int32_t passed = line->passed++;
    if (Count(tenant, kRunning) + passed >= Part(tenant, config_.max_num_seqs)) continue;
    if (prefills[tenant] + passed >= config_.max_partial_prefills) continue;
    const int32_t all = entry.end - 1;
    const int32_t some = std::min(all, entry.known() + config_.growth_horizon);
    const int32_t need = BlocksFor(entry.preemptions >= 2 ? all : some, config_.block_size);
    if (blocks[tenant] + need > Part(tenant, config_.num_blocks - 1)) continue;
    blocks[tenant] += need;
    ++rows_wanted;
    blocks_wanted += need;
    for (;;) {
      const std::vector<Entry*> in_rows = InOrder(kRunning);
      const int32_t num = static_cast<int32_t>(in_rows.size());
      const int32_t watermark = num == 0 ? 0 : std::max((config_.num_blocks - 1) / 100, num);
      const bool rows = config_.max_num_seqs - num < rows_wanted;
      if (!rows && Free() - Promised() + Draining() - watermark >= blocks_wanted) break;
      Entry* victim = nullptr;
      for (Entry* other : in_rows) {
        if (GivesUp(*other, entry, rows, blocks)) victim = other;
      }
      if (victim == nullptr) break;
      blocks[victim->spec.tenant] -= victim->blocks + victim->promised;
      Preempt(*victim);
      preempted = true;
      ++num_part_claims_;
    }
  }
}

bool ReferenceScheduler::Sheltered(const Entry& victim, const Entry& grower) const {
  const auto above = [&](TenantId tenant) {
    return Count(tenant, kRunning) > Part(tenant, config_.max_num_seqs);
  };
  return victim.spec.tenant != grower.spec.tenant && above(grower.spec.tenant) &&
         !above(victim.spec.tenant);
}

void ReferenceScheduler::FindShortest(const std::vector<Entry*>& prefills, bool preempted,
                                      Budget& budget) {
  for (const auto& [tenant, state] : tenants_) budget.shortest[tenant] = INT_MAX;
  for (const Entry* entry : prefills) {
    int32_t& shortest = budget.shortest[entry->spec.tenant];
    shortest = std::min(shortest, entry->Left());
  }
  if (preempted || Rows() == config_.max_num_seqs) return;
  Lines lines = WaitingLines();
  for (int32_t i = 0; i < 16; ++i) {
    Line* line = FirstLine(lines);
    if (line == nullptr) return;
    const Entry* entry = line->entries[line->next++];
    ++line->passed;
    int32_t& shortest = budget.shortest[entry->spec.tenant];
    shortest = std::min(shortest, entry->known());
  }
}

int32_t ReferenceScheduler::ShareOf(const Entry& entry, int32_t length,
                                    const Budget& budget) const {
  const bool very_long = length > budget.whole && budget.shortest.at(entry.spec.tenant) < length;
  return std::min({length, MostOf(entry, budget), very_long ? budget.half : budget.left});
}

void ReferenceScheduler::Serve(Entry* entry, int32_t count, Budget& budget) {
  chosen_.emplace_back(entry, count);
  budget.unfinished += count < entry->Left();
  if (entry->Left() > budget.whole) budget.half = std::max(0, budget.half - count);
  Spend(*entry, count, budget);
}

// A tenant with more to compute than a step's budget is a flood; beside another tenant, and ten
// seconds on, floods get a third of the budget and leave a row free.
void ReferenceScheduler::FindFloods(const std::vector<Entry*>& prefills, Budget& budget) {
  std::map<TenantId, int64_t> backlog;
  for (const Entry& entry : entries_) {
    if (entry.place == kWaiting) backlog[entry.spec.tenant] += entry.known();
  }
  for (const Entry* entry : prefills) backlog[entry->spec.tenant] += entry->Left();
  bool other = false;
  for (const auto& [tenant, state] : tenants_) {
    budget.flood[tenant] = backlog[tenant] > config_.max_num_batched_tokens;
    const bool active = Count(tenant, kRunning) > 0 || MayRunMore(tenant);
    other |= active && !budget.flood[tenant];
  }
  if (Several() && other) shared_until_ns_ = now_ns_ + 10'000'000'000;
  budget.shared = now_ns_ < shared_until_ns_;
  budget.flood_left = std::max(1, config_.max_num_batched_tokens / 3);
  if (!budget.shared) return;
  // In the step of another tenant's request, a quarter of that.
  Lines lines = WaitingLines();
  const Line* first = FirstLine(lines);
  const bool waits = first != nullptr && !budget.flood.at(first->entries.front()->spec.tenant);
  if (waits) budget.flood_left = std::max(1, budget.flood_left / 4);
}

int32_t ReferenceScheduler::MostOf(const Entry& entry, const Budget& budget) const {
  const bool held_back = budget.shared && budget.flood.at(entry.spec.tenant);
  return held_back ? std::min(budget.left, budget.flood_left) : budget.left;
}

void ReferenceScheduler::Spend(const Entry& entry, int32_t count, Budget& budget) {
  budget.left -= count;
  if (budget.shared && budget.flood.at(entry.spec.tenant)) budget.flood_left -= count;
  Charge(entry, count);
}

// Running prefills and admissions, between tenants by served tokens; then unused budget.
void ReferenceScheduler::Prefill(std::vector<Entry*> prefills, bool preempted, int32_t budget_in) {
  Budget budget{.whole = budget_in, .left = budget_in, .half = std::max(1, budget_in / 2)};
  FindShortest(prefills, preempted, budget);
  FindFloods(prefills, budget);
  std::sort(prefills.begin(), prefills.end(), [](Entry* a, Entry* b) {
    const bool a_old = a->unserved >= 4, b_old = b->unserved >= 4;
    if (a_old || b_old) return a_old != b_old ? a_old : Before(a, b);
    return a->Left() != b->Left() ? a->Left() < b->Left() : Before(a, b);
  });
  const size_t first = chosen_.size();
  const bool several = Several();
  const auto served = [&](const Entry* entry) { return tenants_.at(entry->spec.tenant).served; };
  Lines lines = preempted ? Lines() : WaitingLines();
  std::vector<Entry*> passed;
  size_t num_served = 0;
  for (int32_t looks = 0; num_served < prefills.size() || !lines.empty();) {
    Line* line = FirstLine(lines);
    Entry* waiting = line == nullptr ? nullptr : line->entries[line->next];
    auto best = prefills.begin() + num_served;
    for (auto it = best; several && it < prefills.end(); ++it) {
      if ((*it)->spec.tenant == (*best)->spec.tenant) continue;
      const int32_t ahead = (*it)->spec.priority - (*best)->spec.priority;
      if (ahead > 0 || (ahead == 0 && served(*it) < served(*best))) best = it;
    }
    if (best != prefills.end()) {
      Entry* entry = *best;
      const bool other = waiting != nullptr && waiting->spec.tenant != entry->spec.tenant;
      const int32_t ahead = other ? waiting->spec.priority - entry->spec.priority : -1;
      if (ahead < 0 || (ahead == 0 && served(entry) <= served(waiting))) {
        prefills.erase(best);
        prefills.insert(prefills.begin() + num_served++, entry);
        num_aged_prefills_ += entry->unserved >= 4;
        const size_t admitted = chosen_.size();
        Serve(entry, ShareOf(*entry, entry->Left(), budget), budget);
        // A plan has the running ones first.
        std::rotate(chosen_.begin() + first + num_served - 1, chosen_.begin() + admitted,
                    chosen_.end());
        continue;
      }
      ++num_overtaken_prefills_;
    }
    if (waiting == nullptr || looks++ == 16 || budget.left == 0 || Rows() == config_.max_num_seqs ||
        waiting->flights > 0) {
      lines.clear();
      continue;
    }
    ++line->next;
    const TenantId tenant = waiting->spec.tenant;
    const bool leaves_row = budget.shared && budget.flood.at(tenant) && config_.max_num_seqs >= 8 &&
                            Count(tenant, kRunning) > 0 && Rows() == config_.max_num_seqs - 1;
    if (MostOf(*waiting, budget) == 0 || leaves_row) {
      ++num_held_back_;
      ++line->passed;
      continue;
    }
    if (TryToBegin(*waiting, passed, budget)) continue;
    ++line->passed;
    passed.push_back(waiting);
    if (waiting->bypassed < (waiting->has_run ? 4 : 32)) continue;
    ++num_blocked_queues_;
    lines.clear();
  }
  SpendLeftover(first, budget);
}

bool ReferenceScheduler::TryToBegin(Entry& entry, const std::vector<Entry*>& passed,
                                    Budget& budget) {
  const int32_t running = static_cast<int32_t>(InOrder(kRunning).size());
  const int32_t total = config_.num_blocks - 1;
  const int32_t watermark = running == 0 ? 0 : std::max(total / 100, running);
  const bool patient = entry.bypassed >= (entry.has_run ? 4 : 32);
  const int32_t found = FindPrefix(entry);
  const int32_t left = entry.known() - found * config_.block_size;
  const int32_t count =
      patient ? std::min(left, MostOf(entry, budget)) : ShareOf(entry, left, budget);
  const int32_t all = entry.end - 1;
  const int32_t some = std::min(all, entry.known() + config_.growth_horizon);
  const int32_t total_need = BlocksFor(entry.preemptions >= 2 ? all : some, config_.block_size);
  const int32_t need = total_need - found;
  int32_t unheld = 0;  // found ones that count as free until this one holds them
  for (int32_t i = 1; i <= found; ++i) unheld += cache_.at(PrefixOf(entry, i)).holders == 0;
  const bool may_begin = count == left || budget.unfinished < config_.max_partial_prefills;
  if (count == 0 || !may_begin || Free() - Promised() - watermark < need + unheld) return false;
  entry.place = kRunning;
  LiftContenders();
  entry.has_run = true;
  entry.promised = need;
  for (int32_t i = 1; i <= found; ++i) ++cache_.at(PrefixOf(entry, i)).holders;
  entry.blocks = entry.held = found;
  entry.planned = entry.computed = entry.proved = found * config_.block_size;
  if (entry.cached_tokens < 0) entry.cached_tokens = entry.planned;
  num_found_tokens_ += entry.planned;
  entry.bypassed = entry.unserved = 0;
  for (Entry* other : passed) ++other->bypassed;
  Serve(&entry, count, budget);
  return true;
}

void ReferenceScheduler::SpendLeftover(size_t first, Budget& budget) {
  for (size_t i = first; i < chosen_.size(); ++i) {
    auto& [entry, count] = chosen_[i];
    const int32_t more = std::min(MostOf(*entry, budget), entry->Left() - count);
    count += more;
    Spend(*entry, more, budget);
    entry->unserved = count > 0 ? 0 : entry->unserved + 1;
  }
}

bool ReferenceScheduler::Stops(const Entry& entry, int32_t token, FinishReason& reason) const {
  const int32_t output = entry.known() - entry.spec.prompt_tokens;
  const auto& stops = entry.spec.stop_token_ids;
  const bool may_stop = output > entry.spec.min_tokens;
  if (may_stop && entry.spec.stops_at_eos && token == model_.eos_token) {
    reason = FinishReason::kEos;
  } else if (may_stop && std::count(stops.begin(), stops.end(), token) > 0) {
    reason = FinishReason::kStopToken;
  } else if (output == entry.spec.max_tokens) {
    reason = FinishReason::kMaxTokens;
  } else if (entry.known() == config_.max_model_len) {
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
    entry.sampling -= flight.draws;
    const int32_t guesses = std::max(0, flight.draws - 1);
    entry.computed += flight.count - guesses;
    entry.planned -= guesses;
    int32_t right = 0;
    for (int32_t i = 0; i < flight.draws; ++i) {
      const SampleResult& result = samples.at(next + i).result;
      if (entry.place == kEnded || i > right) break;
      if (i > 0) Charge(entry, 1);
      const bool is_right =
          i < guesses && !result.nonfinite && result.token == entry.oracle.flying[i];
      right += is_right;
      FinishReason reason = FinishReason::kNumeric;
      if (!result.nonfinite) {
        const bool more = entry.computed / config_.block_size > entry.proved / config_.block_size;
        entry.tokens.push_back(result.token);
        entry.proved = entry.computed;
        if (more) Commit(entry, false);
      }
      if (result.nonfinite || Stops(entry, result.token, reason)) {
        ends.push_back(Finish(entry, reason));
        break;
      }
      TellOracle(entry);
      entry.computed += is_right;
      entry.planned += is_right;
    }
    next += flight.draws;
    num_right_guesses_ += right;
    if (guesses > 0) {
      const int32_t most = std::min(entry.spec.max_guesses, config_.step_guesses);
      int32_t& length = entry.oracle.length;
      length = right < guesses ? right + 1 : std::min(most, std::max(length, 2 * guesses));
      entry.oracle.flying.clear();
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
        LiftContenders();
        entry.promised = 0;
      }
    }
    TryToEmpty(entry);
  }
  cache_.clear();
  return ends;
}

SchedulerLoad ReferenceScheduler::Load() const {
  SchedulerLoad load;
  load.total_blocks = config_.num_blocks - 1;
  load.free_blocks = Free();
  load.cached_blocks = Unheld();
  for (const Entry& entry : entries_) {
    load.running += entry.place == kRunning;
    load.waiting += entry.place == kWaiting;
    load.waiting_tokens += entry.place == kWaiting ? entry.known() : 0;
    load.tokens_in_flight += entry.place == kRunning ? entry.known() : 0;
  }
  return load;
}

int64_t ReferenceScheduler::WorkLeft() const {
  int64_t tokens = 0;
  for (const Entry& entry : entries_) tokens += entry.place == kEnded ? 0 : entry.end;
  return tokens;
}

}  // namespace quire
