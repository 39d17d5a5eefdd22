// Reads the command line, the environment and the config file into one Settings, and keeps where
// each value came from.
#include "server/config/config_flags.h"

#include <algorithm>
#include <map>
#include <optional>

#include "engine/base/json.h"
#include "server/config/config_table.h"

namespace quire {
namespace {

// A flat object of some thirty keys.
constexpr JsonLimits kFileLimits = {.max_depth = 2, .max_bytes = 1 << 20};

// One value as somebody gave it.
struct Given {
  std::string name;  // as spelled, without dashes or QUIRE_
  std::string
      where;  // for messages: "--max-num-seqs", "QUIRE_MAX_NUM_SEQS", "quire.json: max-num-seqs"
  std::string text;
};

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return tolower(c); });
  return text;
}

std::string VariableName(std::string_view field_name) {
  std::string name = "QUIRE_";
  for (const char c : field_name) {
    name += c == '-' ? '_' : static_cast<char>(toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

class SettingsParser {
 public:
  absl::StatusOr<ParsedSettings> Parse(const Invocation& invocation);

 private:
  void ReadArguments(const std::vector<std::string>& arguments);
  // Takes the argument at `index` and its value; the index of the next one.
  size_t ReadFlag(const std::vector<std::string>& arguments, size_t index);
  bool ReadAction(const std::string& name);  // --help, --version
  void ReadEnvironment(const Invocation& invocation);
  void ReadFile(const std::string& path);
  void Apply(const std::vector<Given>& given, SettingSource source);
  void CheckTogether();
  bool IsGiven(std::string_view name) const;
  void Fault(const std::string& sentence) { faults_ += (faults_.empty() ? "" : "\n") + sentence; }

  ParsedSettings parsed_;
  std::string faults_;
  std::string config_path_;
  std::vector<Given> flags_;
  std::vector<Given> variables_;
  std::vector<Given> keys_;
};

bool SettingsParser::ReadAction(const std::string& name) {
  if (name == "help" || name == "h") {
    parsed_.mode = StartMode::kHelp;
  } else if (name == "version" || name == "v") {
    if (parsed_.mode == StartMode::kServe) parsed_.mode = StartMode::kVersion;
  } else {
    return false;
  }
  return true;
}

size_t SettingsParser::ReadFlag(const std::vector<std::string>& arguments, size_t index) {
  const std::string& argument = arguments[index++];
  const size_t start = argument.find_first_not_of('-');
  const size_t equals = std::min(argument.find('='), argument.size());
  if (start == std::string::npos || start == 0 || start >= equals) {
    Fault("unexpected argument '" + argument + "': every setting is a flag, such as --model DIR");
    return index;
  }
  Given given{.name = argument.substr(start, equals - start), .where = {}, .text = {}};
  given.where = "--" + given.name;
  std::optional<std::string> value;
  if (equals < argument.size()) value = argument.substr(equals + 1);
  if (ReadAction(given.name)) return index;

  const Field* field = FindField(given.name).field;
  const Field* negated = nullptr;
  if (given.name.starts_with("no-")) negated = FindField(given.name.substr(3)).field;
  if (field != nullptr && field->is_switch) {
    given.text = value.value_or("true");
  } else if (negated != nullptr && negated->is_switch && !value) {
    given.name = std::string(negated->name);
    given.text = "false";
  } else if (value) {
    given.text = *value;
  } else if (index < arguments.size() && !arguments[index].starts_with("--")) {
    given.text = arguments[index++];
  } else if (field != nullptr || given.name == "config") {
    Fault(given.where + " needs a value");
    return index;
  }
  if (given.name == "config") {
    config_path_ = given.text;
  } else {
    flags_.push_back(std::move(given));
  }
  return index;
}

void SettingsParser::ReadArguments(const std::vector<std::string>& arguments) {
  for (size_t index = 0; index < arguments.size();) index = ReadFlag(arguments, index);
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Kubernetes puts QUIRE_PORT=tcp://10.0.0.1:50051 and its relatives into every pod next to a
// Service called "quire", and QUIRE_SERVER_PORT and so on for one called "quire-server". They
// cannot be meant as settings.
bool IsServiceLink(const std::string& name, const std::string& value) {
  if (name.ends_with("_SERVICE_HOST")) return true;
  if (name.find("_SERVICE_PORT") != std::string::npos) return true;
  if (name.ends_with("_PORT")) return value.starts_with("tcp://") || value.starts_with("udp://");
  const size_t port = name.find("_PORT_");
  return port != std::string::npos && port + 6 < name.size() && IsDigit(name[port + 6]);
}

void SettingsParser::ReadEnvironment(const Invocation& invocation) {
  size_t links = 0;
  for (const auto& [name, value] : invocation.environment) {
    if (IsServiceLink(name, value)) {
      ++links;
    } else if (name == "QUIRE_CONFIG") {
      if (config_path_.empty()) config_path_ = value;
    } else if (!value.empty()) {  // NAME= in a compose file means: not set
      variables_.push_back({Lower(name.substr(6)), name, value});
    }
  }
  if (links > 0) {
    parsed_.notices.push_back(std::to_string(links) +
                              " QUIRE_ variables are Kubernetes service links and were ignored");
  }
}

void SettingsParser::ReadFile(const std::string& path) {
  const absl::StatusOr<nlohmann::json> file = ReadJsonFile(path, kFileLimits);
  if (!file.ok()) {
    Fault("--config: " + std::string(file.status().message()));
    return;
  }
  if (!file->is_object()) {
    Fault("--config: " + path + " must be one JSON object of settings, such as {\"port\": 50051}");
    return;
  }
  for (const auto& [key, value] : file->items()) {
    const std::string where = path + ": " + key;
    if (value.is_string()) {
      keys_.push_back({key, where, value.get<std::string>()});
    } else if (value.is_number() || value.is_boolean()) {
      keys_.push_back({key, where, value.dump()});
    } else {
      Fault(where + " must be a string, a number, true or false");
    }
  }
}

void SettingsParser::Apply(const std::vector<Given>& given, SettingSource source) {
  std::map<const Field*, std::string> seen;
  for (const Given& entry : given) {
    const FieldName found = FindField(entry.name);
    if (found.field == nullptr) {
      const std::string nearest = NearestName(entry.name);
      std::string shown = nearest;
      if (source == SettingSource::kFlag) shown = "--" + nearest;
      if (source == SettingSource::kEnvironment) shown = VariableName(nearest);
      Fault(entry.where + " is no setting; the nearest is " + shown);
      continue;
    }
    const Field& field = *found.field;
    if (found.is_alias) {
      parsed_.notices.push_back(entry.where + " is accepted; here it is called " +
                                std::string(field.name));
    }
    if (const auto [first, inserted] = seen.emplace(&field, entry.where); !inserted) {
      Fault(entry.where + " and " + first->second + " are the same setting: give it once");
      continue;
    }
    const absl::Status status = SetField(field, entry.text, parsed_.settings);
    if (!status.ok()) {
      Fault(entry.where + " '" + entry.text + "': " + std::string(status.message()));
    }
    parsed_.sources[static_cast<size_t>(&field - Fields().data())] = source;
  }
}

bool SettingsParser::IsGiven(std::string_view name) const {
  const size_t index = static_cast<size_t>(FindField(std::string(name)).field - Fields().data());
  return parsed_.sources[index] != SettingSource::kDefault;
}

void SettingsParser::CheckTogether() {
  for (const char* other : {"host", "port"}) {
    if (!IsGiven("uds") || !IsGiven(other)) continue;
    Fault("--uds and --" + std::string(other) +
          " contradict each other: gRPC is served on a Unix socket or on a port; give one");
  }
  if (!faults_.empty()) return;  // bounds have been reported by name already
  for (const absl::Status& status :
       {parsed_.settings.engine.Validate(), parsed_.settings.server.Validate()}) {
    if (!status.ok()) Fault(std::string(status.message()));
  }
}

absl::StatusOr<ParsedSettings> SettingsParser::Parse(const Invocation& invocation) {
  parsed_.sources.assign(Fields().size(), SettingSource::kDefault);
  ReadArguments(invocation.arguments);
  if (parsed_.mode != StartMode::kServe) return std::move(parsed_);
  ReadEnvironment(invocation);
  if (!config_path_.empty()) ReadFile(config_path_);
  Apply(keys_, SettingSource::kFile);
  Apply(variables_, SettingSource::kEnvironment);
  Apply(flags_, SettingSource::kFlag);
  CheckTogether();
  if (!faults_.empty()) return absl::InvalidArgumentError(faults_);
  if (parsed_.settings.dry_run) parsed_.mode = StartMode::kDryRun;
  return std::move(parsed_);
}

}  // namespace

absl::StatusOr<ParsedSettings> ParseSettings(const Invocation& invocation) {
  return SettingsParser().Parse(invocation);
}

std::vector<EffectiveSetting> ListSettings(const ParsedSettings& parsed) {
  std::vector<EffectiveSetting> settings;
  for (size_t i = 0; i < Fields().size(); ++i) {
    const Field& field = Fields()[i];
    settings.push_back({field.name, FieldText(field, parsed.settings), parsed.sources[i]});
  }
  return settings;
}

const char* Name(SettingSource source) {
  switch (source) {
    case SettingSource::kDefault: return "default";
    case SettingSource::kFile: return "file";
    case SettingSource::kEnvironment: return "environment";
    case SettingSource::kFlag: return "flag";
  }
  return "?";
}

std::string HelpText() {
  std::string text =
      "Usage: quire-server [--flag value]...\n"
      "Serves a language model over gRPC. Without flags: the bundled demo model, on this machine "
      "only.\n";
  const Settings defaults;
  std::string_view group;
  for (const Field& field : Fields()) {
    if (field.group != group) text += "\n" + std::string(field.group) + ":\n";
    group = field.group;
    std::string flag =
        "  --" + std::string(field.is_switch ? "[no-]" : "") + std::string(field.name);
    flag.resize(std::max<size_t>(flag.size() + 2, 30), ' ');
    std::string facts = FieldText(field, defaults);
    if (facts.empty()) facts = "''";
    const std::string accepted = AcceptedValues(field);
    if (!field.is_switch && !accepted.empty()) facts += "; " + accepted;
    text += flag + std::string(field.help) + "\n" + std::string(30, ' ') + "[" + facts + "]\n";
  }
  text +=
      "\nAlso:\n"
      "  --config FILE               a JSON object with the same names\n"
      "  --version, --help\n"
      "\nEvery flag is also an environment variable (--max-num-seqs is QUIRE_MAX_NUM_SEQS) and a "
      "key of "
      "the\nconfig file. A flag beats the environment, which beats the file.\n"
      "Exit codes: 0 ended as asked, 1 ended by force, 2 bad configuration, 3 cannot listen, "
      "4 model cannot be\nloaded, 5 device.\n";
  return text;
}

}  // namespace quire
