// The first difference, from the step down to the graph.
#include "engine/worker/rank_mismatch.h"

#include <algorithm>
#include <cstddef>

namespace quire {
namespace {

std::string Difference(const StepResult& first, const std::string& rank, const StepResult& other) {
  const auto number = [](auto value) { return std::to_string(value); };
  if (first.step != other.step) {
    return "rank 0 ran step " + number(first.step) + " and " + rank + " step " + number(other.step);
  }
  for (size_t i = 0; i < std::min(first.samples.size(), other.samples.size()); ++i) {
    const SampledToken &mine = first.samples[i], &its = other.samples[i];
    if (mine.row != its.row) {
      return "sample " + number(i) + " is of row " + number(mine.row) + " on rank 0 and of row " +
             number(its.row) + " on " + rank;
    }
    if (mine.result.token != its.result.token) {
      return "row " + number(mine.row) + " drew token " + number(mine.result.token) +
             " on rank 0 and token " + number(its.result.token) + " on " + rank;
    }
  }
  if (first.samples.size() != other.samples.size()) {
    return "rank 0 sampled " + number(first.samples.size()) + " rows and " + rank + " " +
           number(other.samples.size());
  }
  return "rank 0 and " + rank +
         " sampled the same rows and tokens in different graphs (checksums " +
         number(first.checksum) + " and " + number(other.checksum) + ")";
}

}  // namespace

std::string DescribeMismatch(const StepResult& first, int32_t rank, const StepResult& other) {
  return "ranks disagree at step " + std::to_string(first.step) + ": " +
         Difference(first, "rank " + std::to_string(rank), other);
}

}  // namespace quire
