// LengthTable: distributions of prompt and output lengths measured on public traces, as quantiles,
// and a table of our own that resembles chat logs.
//
// Between two quantiles the inverse distribution function is linear. Above p99 it stays at p99, and
// below the first known quantile it is linear from a least value chosen so that the mean comes as
// near to the trace's as it can. The means then are exact for the outputs of azure-code and
// mooncake-conversation and for both of arxiv-summarization, and up to 4.2 % high elsewhere, where
// a straight line lies above the measured distribution. docs/load.md has the table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "clients/load/workload/random.h"

namespace quire::load {

struct Lengths {
  int32_t input = 0;
  int32_t output = 0;
};

// "azure-conversation", ..., "sharegpt-like".
std::vector<std::string> LengthTableNames();
bool IsLengthTable(const std::string& name);

// Draws both lengths, each at least 1. The quantile tables have no correlation between the two;
// sharegpt-like has 0.3, between their logarithms. Requires IsLengthTable(name).
Lengths DrawFromTable(const std::string& name, Random& random);

// The length of the named table at probability p, 0 <= p < 1; for tests and documentation. False
// for sharegpt-like, which is no quantile table.
bool TableQuantiles(const std::string& name, double p, double* input, double* output);

}  // namespace quire::load
