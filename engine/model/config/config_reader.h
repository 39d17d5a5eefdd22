// ConfigReader: typed reading of one JSON object of a checkpoint. Keeps every fault, with file and
// key, so that a caller reads all fields and checks the status once; and the keys that no call
// asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/fault_list.h"
#include "nlohmann/json.hpp"

namespace quire {

class ConfigReader {
 public:
  // `where` is the file, or "file: object". The object must outlive the reader.
  ConfigReader(const nlohmann::json& object, std::string where);

  // OK, or INVALID_ARGUMENT with all faults, one a line.
  absl::Status status() const { return faults_.status(); }
  // So that a caller sees whether a part of its reading went well.
  size_t num_faults() const { return faults_.size(); }
  const std::string& where() const { return where_; }
  // The keys of the object that no call has named, in the order of their names.
  std::vector<std::string> UnreadKeys() const;

  // Present, perhaps as null.
  bool Contains(const char* key) const;
  // Present and not null.
  bool Has(const char* key) const;
  // The value, or null when absent.
  const nlohmann::json& At(const char* key) const;

  // An integer in [min, max]; a missing key is a fault. Returns min after a fault.
  int64_t Int(const char* key, int64_t min, int64_t max);
  std::optional<int64_t> OptionalInt(const char* key, int64_t min, int64_t max);
  // A finite number in [min, max]; a missing key is a fault. Returns min after a fault.
  double Number(const char* key, double min, double max);
  std::optional<double> OptionalNumber(const char* key, double min, double max);
  bool Bool(const char* key, bool fallback);
  std::string String(const char* key, const std::string& fallback);
  // One integer or a list of them, each in [min, max]; empty when absent.
  std::vector<int64_t> IntList(const char* key, int64_t min, int64_t max);

  // A list of finite numbers in [min, max]; a missing key is a fault.
  std::vector<double> NumberList(const char* key, double min, double max);

  // Records that the value of `key` is not supported; `supported` names the values that are.
  void Refuse(const char* key, const std::string& supported);
  // Records any other fault.
  void Fail(const std::string& message);
  // Adopts the faults of a reader of an inner object.
  void Adopt(const absl::Status& status);

 private:
  const nlohmann::json& object_;
  const std::string where_;
  FaultList faults_;
  mutable std::set<std::string, std::less<>> asked_;
};

}  // namespace quire
