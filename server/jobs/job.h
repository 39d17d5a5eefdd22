// Job: one job while the server runs. The jobs thread owns it (JobRunner).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/jobs/job_state.h"
#include "server/jobs/line_reader.h"
#include "server/lines/request_line.h"
#include "server/session/archive/disk.h"

namespace quire {

class ReplyRun;

// Hears of each new result of a job, and of its end. The jobs thread's.
class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  virtual void JobChanged() = 0;
};

struct Job {
  // A line that is with the engine.
  struct Running {
    InputLine text;  // to run it again
    RequestLine line;
    std::shared_ptr<ReplyRun> run;
  };

  uint64_t number = 0;  // of its files
  JobState state;
  std::vector<bool> done;  // by the number of the line
  uint64_t done_lines = 0;
  uint64_t failed_lines = 0;
  int64_t result_bytes = 0;
  std::unique_ptr<DiskFile> results;  // for appending; null: not opened yet
  std::optional<LineReader> reader;   // nullopt: not opened yet
  bool read_all = false;
  std::map<uint32_t, Running> running;  // by the number of the line
  std::deque<InputLine> again;          // lines that were refused for now
  int64_t not_before_ns = 0;            // no line starts earlier; steady clock
  int64_t pause_ns = 0;                 // the last wait after a refusal; 0: none
  uint64_t turn = 0;                    // when its last line started
  std::vector<JobWatcher*> watchers;

  bool ended() const { return state.phase != JobPhase::kRunning; }
  // Whether there is a line to start.
  bool wants() const { return !ended() && (!again.empty() || !read_all); }
  bool IsDone(uint32_t line) const { return line < done.size() && done[line]; }
};

}  // namespace quire
