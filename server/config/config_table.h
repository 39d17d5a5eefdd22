// The table of settings: every row is a flag, a QUIRE_ variable, a key of the config file, a line
// of
// --help and a line of docs/configuration.md. To add a setting: a member in EngineConfig or
// ServerConfig, a row in config_table.cc (an engine setting has its bounds in engine_config.cc),
// and the line in the document that the test asks for.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "server/config/server_config.h"

namespace quire {

using FieldRef = std::variant<std::string*, int32_t*, int64_t*, double*, bool*>;

enum class FieldUnit : uint8_t { kNone, kBytes, kGibibytes, kSeconds };

struct Field {
  std::string_view name;  // "max-num-seqs"
  std::string_view group;
  std::string_view help;
  std::function<FieldRef(Settings&)> ref;
  FieldUnit unit = FieldUnit::kNone;
  double lowest = 0;  // numbers: both ends are accepted
  double highest = 0;
  std::string_view choices;  // words: "text|json"; empty: any text
  bool is_switch = false;    // --name and --no-name
};

std::span<const Field> Fields();

// A name as somebody wrote it: canonical, or what another server calls the same thing. Underscores
// stand for dashes.
struct FieldName {
  const Field* field = nullptr;  // null: no such setting
  bool is_alias = false;
};
FieldName FindField(const std::string& name);
// The known name (alias or not) with the fewest edits from `name`.
std::string NearestName(const std::string& name);

// Takes "4096", "64MiB", "1.5s", "true", ... INVALID_ARGUMENT says what would be accepted, without
// the field's name, which the caller knows as the user spelled it.
absl::Status SetField(const Field& field, const std::string& text, Settings& settings);
std::string FieldText(const Field& field, const Settings& settings);
// "1 to 4096", "0 to 600 s", "one of text, json", "true or false"; empty for free text.
std::string AcceptedValues(const Field& field);

}  // namespace quire
