// ArchiveMetrics and JobMetrics: the metrics of the session directory. Parts of ServerMetrics,
// whose registry they use. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace quire {

struct MetricRegistry;

class ArchiveMetrics {
 public:
  enum class File : uint8_t { kTokens, kKv };
  enum class Operation : uint8_t { kWrite, kRead, kRemove };
  // How the KV of an idle session went to the directory.
  enum class Save : uint8_t { kSaved, kOvertaken, kNoRoom, kFailed };
  // How it came back for a turn.
  enum class Recall : uint8_t { kRecalled, kDeclined, kLate, kDamaged, kFailed };
  enum class Adoption : uint8_t { kAdopted, kDamaged, kRefused };
  // Why a turn ended before its tokens were in the directory.
  enum class Unsaved : uint8_t { kLate, kFailed };

  // `registry` outlives this.
  explicit ArchiveMetrics(MetricRegistry& registry);
  ~ArchiveMetrics();

  void SetBytes(File file, int64_t bytes);
  void SetSessions(int64_t sessions);
  void Moved(Operation operation, int64_t bytes);  // kWrite or kRead
  int64_t Total(Operation operation) const;        // of Moved
  void Failed(Operation operation);
  void Ended(Save outcome);
  void Ended(Recall outcome);
  void Adopted(Adoption outcome, int64_t sessions);
  void TurnEnded(Unsaved why);
  void TornJournals(int64_t journals);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Of jobs, whose files are there too.
class JobMetrics {
 public:
  // How a line ended; kRetried: it was refused for now, or cut off, and runs again.
  enum class Item : uint8_t { kAnswered, kFailed, kRetried };
  static constexpr size_t kNumPhases = 4;  // of JobPhase, in its order

  // `registry` outlives this.
  explicit JobMetrics(MetricRegistry& registry);
  ~JobMetrics();

  void SetJobs(const std::array<int64_t, kNumPhases>& by_phase);
  void SetLines(int64_t with_engine);
  void SetBytes(int64_t bytes);
  void Ended(Item item);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
