// ReferenceScheduler: a second scheduler with the same policy, slow and obvious, which shares no
// code with the real one: a list of requests, counted again at every call; blocks as numbers only;
// cached prefixes as the tokens they spell. Run in lockstep with the real scheduler, it must make
// the same decisions.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <vector>

#include "tests/engine/schedule/simulated_engine.h"

namespace quire {

class ReferenceScheduler {
 public:
  struct End {
    RequestId id;
    FinishReason reason;
    int32_t cached_tokens;
    bool operator==(const End&) const = default;
  };

  ReferenceScheduler(const SchedulerConfig& config, const ShadowModel& model)
      : config_(config), model_(model) {}

  void SetTenants(const TenantTable& table);

  void Add(RequestId id, const RequestSpec& spec);
  std::vector<End> Cancel(RequestId id, FinishReason reason);
  // Call it in the order in which the real scheduler did: that order decides the evictions.
  std::vector<End> CancelAll(FinishReason reason, const std::vector<RequestId>& order);
  std::vector<End> ExpireDeadlines(int64_t now_ns);
  // The next step; empty if there is none.
  std::vector<Share> Schedule(int64_t now_ns);
  // One sample for each sampling share of the oldest step, in order.
  std::vector<End> Retire(const std::vector<SampledToken>& samples);
  std::vector<End> KillWorker();

  SchedulerLoad Load() const;
  // How often the rare rules applied.
  int32_t preempted() const { return preempted_; }
  int32_t num_blocked_queues() const { return num_blocked_queues_; }
  int32_t num_aged_prefills() const { return num_aged_prefills_; }
  int32_t num_spared() const { return num_spared_; }
  int64_t num_found_tokens() const { return num_found_tokens_; }
  int32_t num_evicted() const { return num_evicted_; }
  int64_t num_guessed() const { return num_guessed_; }
  int64_t num_right_guesses() const { return num_right_guesses_; }
  int32_t num_short_guesses() const { return num_short_guesses_; }
  int32_t num_duplicates() const { return num_duplicates_; }
  int32_t num_part_claims() const { return num_part_claims_; }
  int32_t num_held_back() const { return num_held_back_; }
  int32_t num_overtaken_prefills() const { return num_overtaken_prefills_; }
  // Tokens still to be computed if no request arrives: bounds the number of remaining steps.
  int64_t WorkLeft() const;

 private:
  enum Place { kWaiting, kRunning, kEnded };
  // A request that guesses: tokens[follows] comes next.
  struct Oracle {
    bool exists = false, read = false, chosen = false;
    int32_t follows = -1, length = 0;
    double right = 0;
    std::vector<int32_t> flying;
  };
  struct Entry {
    RequestId id;
    RequestSpec spec;
    int64_t number;
    int32_t end;
    Place place = kWaiting;
    std::vector<int32_t> tokens;
    int32_t planned = 0, computed = 0, sampling = 0, flights = 0;
    int32_t blocks = 0, own = 0, promised = 0;  // of its blocks, those that are in no cached prefix
    int32_t proved = 0;                         // tokens that a finite sample has shown to be sound
    int32_t held = 0;                           // cached prefixes, of 1, 2, .. blocks
    int32_t cached_tokens = -1;                 // found at the first admission
    int32_t preemptions = 0, deaths = 0, bypassed = 0, unserved = 0;
    bool has_run = false;
    Oracle oracle;
    int32_t known() const { return static_cast<int32_t>(tokens.size()); }
    int32_t Left() const { return known() + sampling - planned; }
  };
  struct Flight {
    Entry* entry;
    int32_t count;
    int32_t draws;
  };
  // The tenant, then the tokens of a prefix of whole blocks.
  using Prefix = std::vector<int64_t>;
  struct Cached {
    int32_t holders = 0;
    int64_t left_at = 0;  // when its last holder left
  };

  struct Tenant {
    int64_t served = 0;
    bool contended = false;
  };
  // A tenant's waiting entries while they are gone through.
  struct Line {
    std::vector<Entry*> entries;
    size_t next = 0;
    int32_t passed = 0;
  };
  using Lines = std::map<TenantId, Line>;
  struct Budget {
    int32_t whole = 0, left = 0, half = 0, unfinished = 0;
    std::map<TenantId, int32_t> shortest;
    bool shared = false;
    std::map<TenantId, bool> flood;
    int32_t flood_left = 0;
  };

  static bool Before(const Entry* a, const Entry* b);
  TenantLimits LimitsOf(TenantId tenant) const;
  int32_t Count(TenantId tenant, Place place) const;
  int64_t ShareOfTenant(TenantId tenant) const;
  int32_t Part(TenantId tenant, int32_t total) const;
  bool Several() const;
  bool MayRunMore(TenantId tenant) const;
  void LiftContenders();
  void Charge(const Entry& entry, int32_t tokens);
  Lines WaitingLines();
  Line* FirstLine(Lines& lines);
  void ClaimParts(bool& preempted);
  bool GivesUp(const Entry& victim, const Entry& claimant, bool rows,
               const std::map<TenantId, int32_t>& blocks) const;
  bool Sheltered(const Entry& victim, const Entry& grower) const;
  std::vector<Entry*> InOrder(Place place);
  Prefix PrefixOf(const Entry& entry, int32_t blocks) const;
  bool UsesCache(const Entry& entry) const;
  int32_t FindPrefix(const Entry& entry) const;
  int32_t Unheld() const;
  void Take(Entry& entry, int32_t blocks);
  void Evict();
  void Commit(Entry& entry, bool leaving);
  int32_t Free() const;
  int32_t Promised() const;
  int32_t Draining() const;
  int32_t Rows() const;
  bool Grow(Entry& entry, int32_t& claims, bool& preempted);
  void Preempt(Entry& entry);
  int32_t LookUp(const Entry& entry) const;
  double ExpectedYield(const Entry& entry, int32_t most) const;
  void AskOracles();
  int32_t ElectGuessers(double least, int32_t room);
  bool WaitsForGuesses(const Entry& entry) const;
  int32_t AddGuesses(Entry& entry);
  void TellOracle(Entry& entry);
  void TryToEmpty(Entry& entry);
  End Finish(Entry& entry, FinishReason reason);
  bool Stops(const Entry& entry, int32_t token, FinishReason& reason) const;
  void Prefill(std::vector<Entry*> prefills, bool preempted, int32_t budget);
  void FindShortest(const std::vector<Entry*>& prefills, bool preempted, Budget& budget);
  int32_t ShareOf(const Entry& entry, int32_t length, const Budget& budget) const;
  void Serve(Entry* entry, int32_t count, Budget& budget);
  bool TryToBegin(Entry& entry, const std::vector<Entry*>& passed, Budget& budget);
  void FindFloods(const std::vector<Entry*>& prefills, Budget& budget);
  int32_t MostOf(const Entry& entry, const Budget& budget) const;
  void Spend(const Entry& entry, int32_t count, Budget& budget);
  void SpendLeftover(size_t first, Budget& budget);

  const SchedulerConfig config_;
  const ShadowModel model_;
  std::list<Entry> entries_;
  std::deque<std::vector<Flight>> flights_;
  std::map<Prefix, Cached> cache_;
  std::vector<std::pair<Entry*, int32_t>> chosen_;
  int64_t next_number_ = 0;
  int32_t preempted_ = 0;
  int32_t num_blocked_queues_ = 0;
  int32_t num_aged_prefills_ = 0;
  int32_t num_spared_ = 0;
  int64_t num_found_tokens_ = 0;
  int32_t num_evicted_ = 0;
  int32_t num_duplicates_ = 0;
  int32_t num_part_claims_ = 0;
  int32_t num_overtaken_prefills_ = 0;
  TenantTable table_;
  std::map<TenantId, Tenant> tenants_;
  int64_t level_ = 0;
  int64_t now_ns_ = 0;
  int64_t shared_until_ns_ = 0;
  int32_t num_held_back_ = 0;
  int64_t clock_ = 0;
  int32_t num_oracles_ = 0;
  int32_t guesses_each_ = 0;
  bool guesses_fly_ = false;
  int64_t num_guessed_ = 0;
  int64_t num_right_guesses_ = 0;
  int32_t num_short_guesses_ = 0;
};

}  // namespace quire
