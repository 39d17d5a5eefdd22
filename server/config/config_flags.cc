// Reads the command line, the environment and the config file into one Settings, and keeps the
// source of each value.
#include "server/config/config_flags.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/json.h"
#include "flags/help.h"
#include "flags/parser.h"
#include "server/config/config_table.h"
#include "server/config/server_config.h"

namespace quire {
namespace {

using flags::Given;

// A flat object of some forty keys; a list of names is one level deeper.
constexpr JsonLimits kFileLimits = {.max_depth = 2, .max_bytes = 1 << 20};

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return tolower(c); });
  return text;
}

std::string VariableName(std::string_view setting) {
  std::string name = "QUIRE_";
  for (const char c : setting) {
    name += c == '-' ? '_' : static_cast<char>(toupper(static_cast<unsigned char>(c)));
  }
  return name;
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

// The text of a JSON value as a flag takes it; false for a value that no setting can have.
bool TextOf(const nlohmann::json& value, std::string* text) {
  if (value.is_string()) {
    *text = value.get<std::string>();
  } else if (value.is_number() || value.is_boolean()) {
    *text = value.dump();
  } else if (value.is_array() && !value.empty()) {
    for (const nlohmann::json& word : value) {
      if (!word.is_string()) return false;
      *text += (text->empty() ? "" : ",") + word.get<std::string>();
    }
  } else {
    return false;
  }
  return true;
}

// Variables that every program with OpenTelemetry reads, as ours; the first that is set counts.
constexpr std::pair<std::string_view, std::string_view> kStandardVariables[] = {
    {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "otlp_endpoint"},
    {"OTEL_EXPORTER_OTLP_ENDPOINT", "otlp_endpoint"},
    {"OTEL_SERVICE_NAME", "otlp_service_name"},
};

// Variables that the clients read; a shell that exports them may start a server too.
bool IsClientVariable(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "QUIRE_SERVER",     "QUIRE_TLS",          "QUIRE_CA_CERT", "QUIRE_CLIENT_CERT",
      "QUIRE_CLIENT_KEY", "QUIRE_SERVER_NAME",  "QUIRE_API_KEY", "QUIRE_API_KEY_FILE",
      "QUIRE_HEADERS",    "QUIRE_PROFILE_FILE", "QUIRE_PROFILE"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

class SettingsParser {
 public:
  absl::StatusOr<ParsedSettings> Parse(const Invocation& invocation);

 private:
  std::vector<Given> ReadEnvironment(const Invocation& invocation);
  void ReadStandardVariables(const Invocation& invocation, std::vector<Given>* variables);
  std::vector<Given> ReadFile();
  void Apply(const std::vector<Given>& given, flags::Spelling spelling, SettingSource source);
  void CheckPositional();
  void CheckTogether();
  void Fault(std::string sentence) { line_.faults.push_back(std::move(sentence)); }

  ParsedSettings parsed_;
  std::string config_path_;
  flags::Program program_ = ServerProgram(&parsed_.settings, &config_path_);
  flags::CommandLine line_;
};

// A cluster may set these for all its programs, so one that Quire cannot use is a notice and no
// fault.
void SettingsParser::ReadStandardVariables(const Invocation& invocation,
                                           std::vector<Given>* variables) {
  std::map<std::string_view, std::string> standard;
  for (const auto& [name, value] : invocation.environment) {
    if (name.starts_with("OTEL_") && !value.empty()) standard[name] = value;
  }
  if (Lower(standard["OTEL_SDK_DISABLED"]) == "true") return;
  if (standard["OTEL_TRACES_EXPORTER"] == "none") return;
  for (const auto& [name, setting] : kStandardVariables) {
    const auto given = standard.find(name);
    const auto same = [&setting = setting](const Given& other) { return other.name == setting; };
    if (given == standard.end() || std::any_of(variables->begin(), variables->end(), same))
      continue;
    if (setting == "otlp_endpoint") {
      const std::string& own = standard["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"];
      const std::string& protocol = own.empty() ? standard["OTEL_EXPORTER_OTLP_PROTOCOL"] : own;
      std::string fault = EndpointFault(given->second);
      if (!protocol.empty() && protocol != "grpc") fault = "Quire speaks gRPC, not " + protocol;
      if (!fault.empty()) {
        line_.notices.push_back(std::string(name) + " is ignored, so no traces are sent: " + fault);
        continue;
      }
    }
    variables->push_back({std::string(setting), std::string(name), given->second});
  }
}

std::vector<Given> SettingsParser::ReadEnvironment(const Invocation& invocation) {
  size_t links = 0;
  std::vector<Given> variables;
  for (const auto& [name, value] : invocation.environment) {
    if (!name.starts_with("QUIRE_")) continue;
    if (IsClientVariable(name)) continue;
    if (IsServiceLink(name, value)) {
      ++links;
    } else if (!value.empty()) {  // NAME= in a compose file means: not set
      variables.push_back({Lower(name.substr(6)), name, value});
    }
  }
  ReadStandardVariables(invocation, &variables);
  if (links > 0) {
    line_.notices.push_back(std::to_string(links) +
                            " QUIRE_ variables are Kubernetes service links and were ignored");
  }
  return variables;
}

std::vector<Given> SettingsParser::ReadFile() {
  std::vector<Given> keys;
  if (config_path_.empty()) return keys;
  const absl::StatusOr<nlohmann::json> file = ReadJsonFile(config_path_, kFileLimits);
  if (!file.ok()) {
    Fault("--config: " + std::string(file.status().message()));
    return keys;
  }
  if (!file->is_object()) {
    Fault("--config: " + config_path_ +
          " must be one JSON object of settings, such as {\"port\": 50051}");
    return keys;
  }
  for (const auto& [key, value] : file->items()) {
    const std::string where = config_path_ + ": " + key;
    std::string text;
    if (TextOf(value, &text)) {
      keys.push_back({key, where, text});
    } else {
      Fault(where + " must be a string, a number, true, false or a list of strings");
    }
  }
  return keys;
}

void SettingsParser::Apply(const std::vector<Given>& given, flags::Spelling spelling,
                           SettingSource source) {
  const std::set<std::string> set = flags::Apply(program_, given, spelling, &line_);
  for (size_t i = 0; i < parsed_.sources.size(); ++i) {
    if (set.contains(std::string(program_.root.flags[i].name))) parsed_.sources[i] = source;
  }
}

// An empty word is a shell variable that was not set, and "-" is no directory.
void SettingsParser::CheckPositional() {
  for (const Given& given : line_.given) {
    const bool positional = !given.where.starts_with("-");
    if (positional && (given.text.empty() || given.text == "-")) {
      Fault("unexpected argument '" + given.text + "': give the model's directory, or flags");
    }
  }
}

void SettingsParser::CheckTogether() {
  for (const char* other : {"host", "port"}) {
    if (!line_.Said("uds") || !line_.Said(other)) continue;
    Fault("--uds and --" + std::string(other) +
          " contradict each other: gRPC is served on a Unix socket or on a port; give one");
  }
  if (parsed_.settings.check && parsed_.settings.dry_run) {
    Fault("--check and --dry-run exclude each other: leave one out");
  }
  if (!line_.faults.empty()) return;  // bounds have been reported by name already
  for (const absl::Status& status :
       {parsed_.settings.engine.Validate(), parsed_.settings.server.Validate()}) {
    if (!status.ok()) Fault(std::string(status.message()));
  }
}

// Splits off --config or QUIRE_CONFIG, which names the file that is applied first.
std::vector<Given> TakeConfig(std::vector<Given>* given) {
  std::vector<Given> config;
  for (const Given& entry : *given) {
    if (entry.name == "config") config.push_back(entry);
  }
  std::erase_if(*given, [](const Given& entry) { return entry.name == "config"; });
  return config;
}

absl::StatusOr<ParsedSettings> SettingsParser::Parse(const Invocation& invocation) {
  parsed_.sources.assign(program_.root.flags.size() - 1, SettingSource::kDefault);  // no --config
  line_ = flags::ReadArguments(program_, invocation.arguments);
  if (std::optional<std::string> answer = flags::Answer(program_, line_)) {
    parsed_.answer = *std::move(answer);
    parsed_.mode = line_.action == flags::Action::kHelp      ? StartMode::kHelp
                   : line_.action == flags::Action::kVersion ? StartMode::kVersion
                   : line_.action == flags::Action::kManPage ? StartMode::kManPage
                                                             : StartMode::kCompletion;
    return std::move(parsed_);
  }
  CheckPositional();
  std::vector<Given> variables = ReadEnvironment(invocation);
  const std::vector<Given> by_variable = TakeConfig(&variables);
  const std::vector<Given> by_flag = TakeConfig(&line_.given);
  flags::Apply(program_, by_flag.empty() ? by_variable : by_flag, flags::AsFlag, &line_);
  Apply(ReadFile(), flags::AsKey, SettingSource::kFile);
  Apply(variables, VariableName, SettingSource::kEnvironment);
  Apply(line_.given, flags::AsFlag, SettingSource::kFlag);
  CheckTogether();
  parsed_.notices = std::move(line_.notices);
  std::string faults;
  for (const std::string& fault : line_.faults) faults += (faults.empty() ? "" : "\n") + fault;
  if (!faults.empty()) return absl::InvalidArgumentError(faults);
  if (parsed_.settings.dry_run) parsed_.mode = StartMode::kDryRun;
  if (parsed_.settings.check) parsed_.mode = StartMode::kCheck;
  return std::move(parsed_);
}

}  // namespace

absl::StatusOr<ParsedSettings> ParseSettings(const Invocation& invocation) {
  return SettingsParser().Parse(invocation);
}

std::vector<EffectiveSetting> ListSettings(const ParsedSettings& parsed) {
  std::vector<EffectiveSetting> settings;
  Settings copy = parsed.settings;
  const std::vector<flags::Flag> table = SettingsTable(&copy);
  for (size_t i = 0; i < table.size(); ++i) {
    settings.push_back({table[i].name, flags::ValueText(table[i]), parsed.sources[i]});
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

}  // namespace quire
