// FilterCall: a filter's value with its arguments in the order of its parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/text/jinja/values/access.h"
#include "server/text/jinja/values/budget.h"
#include "server/text/jinja/values/value.h"

namespace quire::jinja {

struct FilterCall {
  const Value& value;
  std::vector<const Value*> arguments;  // by parameter; nullptr where none was given
  const Arguments& given;               // of filters that take any number
  Budget* budget;

  bool Has(size_t i) const { return arguments[i] != nullptr && !arguments[i]->is_none(); }
  bool Flag(size_t i) const { return arguments[i] != nullptr && arguments[i]->IsTrue(); }
  // The text of an argument; the default where it is none or not given.
  std::string Text(size_t i, const std::string& otherwise) const;
  // INVALID_ARGUMENT if it is neither an integer nor none.
  absl::StatusOr<int64_t> Int(size_t i, int64_t otherwise) const;
};

using Filter = absl::StatusOr<Value> (*)(const FilterCall&);

// The filters of lists.
absl::StatusOr<Value> FilterBatch(const FilterCall& call);
absl::StatusOr<Value> FilterDictSort(const FilterCall& call);
absl::StatusOr<Value> FilterGroupBy(const FilterCall& call);
absl::StatusOr<Value> FilterJoin(const FilterCall& call);
absl::StatusOr<Value> FilterMap(const FilterCall& call);
absl::StatusOr<Value> FilterMax(const FilterCall& call);
absl::StatusOr<Value> FilterMin(const FilterCall& call);
absl::StatusOr<Value> FilterReject(const FilterCall& call);
absl::StatusOr<Value> FilterRejectAttr(const FilterCall& call);
absl::StatusOr<Value> FilterSelect(const FilterCall& call);
absl::StatusOr<Value> FilterSelectAttr(const FilterCall& call);
absl::StatusOr<Value> FilterSlice(const FilterCall& call);
absl::StatusOr<Value> FilterSort(const FilterCall& call);
absl::StatusOr<Value> FilterSum(const FilterCall& call);
absl::StatusOr<Value> FilterUnique(const FilterCall& call);

}  // namespace quire::jinja
