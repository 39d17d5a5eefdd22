// Verdict: states whether a run's figures may be believed. Every report takes it from here, so that
// all agree.
#pragma once

#include <string>
#include <vector>

#include "clients/load/figures/summary.h"
#include "clients/load/values/run_record.h"

namespace quire::load {

struct Verdict {
  bool valid = true;     // the figures measure the server, not the client or a fault
  bool partial = false;  // the run ended before its plan did
  // The reasons if not, a sentence each, worst first; and notes for the reader.
  std::vector<std::string> reasons, notes;

  bool good() const { return valid && !partial; }
  std::string Word() const;  // "valid", "INVALID", "PARTIAL", "INVALID and PARTIAL"
};

Verdict Judge(const RunRecord& run, const Summary& summary);

}  // namespace quire::load
