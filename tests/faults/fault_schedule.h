// FaultSchedule: which system calls of a program under test fail, when, and how. A test writes the
// schedule into a file that both map, and may change it while the program runs (fault_shim.cc).
//
// The file: 8 bytes of version, which the test raises after each change; at kTextAt the rules, one
// a line, ended by a zero byte; at kCountsAt two numbers of 8 bytes for each rule, which the shim
// counts: calls that matched, and faults. A rule:
//
//   CALL[,CALL...] EFFECT [key=value ...]
//
// EFFECT: the name of an error number (EIO, ENOSPC, ...); "short": half of the bytes, at least one;
// "empty": a result of 0, as at the end of a file; "jump=SECONDS", of clock_gettime: the clock has
// moved since the rule is there (a steady clock never goes back).
// Keys: path=TEXT: in the file's name ("socket:", "/memfd:name" are names too); program=NAME;
// from=K: from the K-th matching call on, counted from 1; count=N: at most N faults; one_in=N and
// seed=S: at random; size=N: allocations of N bytes or more; clock=steady|wall.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace quire::faults {

inline constexpr char kFileVariable[] = "FAULT_SHIM_FILE";
inline constexpr size_t kFileBytes = 8192, kTextAt = 64, kCountsAt = 4096;

struct Rule {
  static constexpr int kShort = -1, kEmpty = -2, kJump = -3;  // effects beside error numbers

  std::string_view calls;
  int effect = 0;
  int64_t jump_ns = 0;
  std::string_view path, program, clock;  // empty: any
  uint64_t from = 1, count = ~uint64_t{0}, one_in = 1, seed = 0, size = 0;

  bool Names(std::string_view call) const;
};

class FaultSchedule {
 public:
  static constexpr size_t kMaxRules = 32;

  // Reads rules from `text`, which stays; allocates nothing. False: a line is no rule.
  bool Parse(std::string_view text);
  const Rule* begin() const { return rules_.data(); }
  const Rule* end() const { return rules_.data() + size_; }
  size_t size() const { return size_; }

  // Whether the n-th call that matches (from 1) meets the fault, `faults` of which there were.
  static bool Fails(const Rule& rule, uint64_t n, uint64_t faults);

 private:
  std::array<Rule, kMaxRules> rules_;
  size_t size_ = 0;
};

}  // namespace quire::faults
