// StepProfiler: shows where the time of a step goes on one rank's device. It gives the device time
// of each part of a step, measured while the queue goes on, and names work for profilers from
// outside (Nsight).
//
// The thread of the rank calls it; Take may be called by the thread that waits for marks.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace quire {

// The purpose of an operation.
enum class StepPart : uint32_t {
  kIdle,         // the device has nothing to do: the host is late
  kProducts,     // matrix products
  kAttention,    // with its plan
  kNorms,        // with the residual sum
  kElementwise,  // tables, embeddings, rotation and KV writes, activation, gathered rows
  kSampling,
  kCollectives,  // exchange between ranks, with the norm behind a sum
  kCopies,       // blocks copied on the device for forked sessions
};
inline constexpr int kNumStepParts = 8;
// "products": for labels and JSON keys.
const char* Name(StepPart part);

// Time in one part, until another part begins.
struct PartTime {
  StepPart part = StepPart::kIdle;
  uint32_t ns = 0;
  bool operator==(const PartTime&) const = default;
};

class StepProfiler {
 public:
  // The most changes of parts that a step is measured by; its last part takes all time after them.
  static constexpr int kMaxParts = 2048;

  virtual ~StepProfiler() = default;

  // Measures the operations enqueued from here to EndStep. False, and nothing is measured, while
  // the times of an earlier step wait for Take. The operations must not be captured.
  bool BeginStep();
  // The next operations belong to `part`. Called by the operations of the backend themselves.
  void Enter(StepPart part) {
    if (measuring_ && part != part_) Change(part);
  }
  // Ends the measurement; ends the step even when nothing is measured, so that the time until the
  // next step counts as idle. Right before the step's mark.
  void EndStep();
  // The measured step's parts in the order of their execution, consecutive. The first is the idle
  // time since the step before. Requires that a mark after its EndStep has been waited for.
  void Take(std::vector<PartTime>& parts);

  // Names the work enqueued between the two calls in profiles: "layer 3". Ranges nest. Without a
  // profiler a call is one comparison; a replayed step makes none.
  virtual void BeginRange(const char* name, int64_t number) = 0;
  virtual void EndRange() = 0;
  // Starts or ends the recording of a profiler that waits for the program to say so
  // (nsys --capture-range=cudaProfilerApi).
  virtual void Record(bool on) = 0;

 protected:
  // Notes the time at which the device reaches this point of the queue.
  virtual void Stamp(int index) = 0;
  // The same, for the end of a step; the one before the measured step is kept.
  virtual void StampEnd(bool keep_last) = 0;
  // Device time between two stamps; -1 stands for the kept end of the step before.
  virtual int64_t NsBetween(int from, int to) = 0;

 private:
  void Change(StepPart part);

  bool measuring_ = false;
  StepPart part_ = StepPart::kIdle;
  std::vector<StepPart> parts_;           // parts_[i] runs from stamp i to stamp i + 1
  std::atomic<bool> awaits_take_{false};  // parts_ and the stamps belong to Take
};

// A range of a profile that ends with this object. The profiler must outlive it.
class NamedRange {
 public:
  NamedRange(StepProfiler& profiler, const char* name, int64_t number) : profiler_(profiler) {
    profiler_.BeginRange(name, number);
  }
  ~NamedRange() { profiler_.EndRange(); }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

 private:
  StepProfiler& profiler_;
};

}  // namespace quire
