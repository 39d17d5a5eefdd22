// Strict about fields: a mistyped one would silently leave a connection without TLS.
#include "clients/connect/profile.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "flags/nearest.h"

namespace quire::connect {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kPaths[] = {"ca_cert", "client_cert", "client_key", "api_key_file"};
constexpr std::string_view kFields[] = {"server",     "tls",         "ca_cert",      "client_cert",
                                        "client_key", "server_name", "api_key_file", "headers"};
constexpr std::streamoff kMaxFileBytes = 1 << 20;

std::string Of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

// The path of the file; empty: there is no home.
std::string ProfileFile(const Environment& environment) {
  if (std::string file = Of(environment, "QUIRE_PROFILE_FILE"); !file.empty()) return file;
  if (const std::string base = Of(environment, "XDG_CONFIG_HOME"); !base.empty()) {
    return absl::StrCat(base, "/quire/profiles.json");
  }
  const std::string home = Of(environment, "HOME");
  return home.empty() ? "" : absl::StrCat(home, "/.config/quire/profiles.json");
}

absl::Status Fault(const std::string& place, const std::string& reason) {
  return absl::InvalidArgumentError(absl::StrCat(place, ": ", reason));
}

// "; the nearest is 'server'", or all names.
template <typename Names>
std::string Suggestion(std::string_view name, const Names& names) {
  std::vector<flags::NameChoice> choices;
  std::string all;
  for (const auto& known : names) {
    choices.push_back({known, known});
    absl::StrAppend(&all, all.empty() ? "" : ", ", std::string(known));
  }
  const std::string nearest = flags::NearestName(name, choices);
  if (!nearest.empty()) return absl::StrCat("; the nearest is ", nearest);
  return all.empty() ? "; there are none" : absl::StrCat("; known are ", all);
}

// Parses without exceptions, and refuses a field that is there twice, of which the library would
// keep the last.
absl::StatusOr<Json> Parse(const std::string& file, const std::string& text) {
  std::string twice;
  std::vector<std::set<std::string>> open;
  const auto look = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end && !open.empty()) open.pop_back();
    if (event == Json::parse_event_t::key && !open.empty()) {
      const std::string key = parsed.get<std::string>();
      if (!open.back().insert(key).second) twice = key;
    }
    return true;
  };
  Json json = Json::parse(text, look, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Fault(file, "not JSON; check commas, quotes and braces");
  if (!twice.empty()) return Fault(file, absl::StrCat("the field ", twice, " is there twice"));
  return json;
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::error_code error;
  if (!file || !std::filesystem::is_regular_file(path, error)) {
    const int reason = errno;
    return Fault(path, absl::StrCat("cannot read the profiles: ",
                                    reason == 0 ? "not a file" : std::strerror(reason)));
  }
  if (file.tellg() > kMaxFileBytes) return Fault(path, "larger than 1 MiB: no file of profiles");
  file.seekg(0);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Fills `source` from one profile's object; `place` is "FILE: profiles.NAME".
absl::Status Fill(const Json& profile, const std::string& place, const std::string& folder,
                  Source* source) {
  if (!profile.is_object()) return Fault(place, "must be an object of settings");
  for (const auto& [field, value] : profile.items()) {
    const std::string where = absl::StrCat(place, ".", field);
    if (std::find(std::begin(kFields), std::end(kFields), field) == std::end(kFields)) {
      const std::string secret =
          field == "api_key" ? "; keep the key in a file of its own, and name it by api_key_file"
                             : Suggestion(field, kFields);
      return Fault(place, absl::StrCat("unknown field ", field, secret));
    }
    if (field == "tls") {
      if (!value.is_boolean()) return Fault(where, "must be true or false");
      source->tls = value.get<bool>();
    } else if (field == "headers") {
      if (!value.is_object()) return Fault(where, "must be an object of names and texts");
      for (const auto& [name, text] : value.items()) {
        if (!text.is_string()) return Fault(absl::StrCat(where, ".", name), "must be a text");
        source->headers.emplace_back(name, text.get<std::string>());
      }
    } else {
      if (!value.is_string() || value.get<std::string>().empty()) {
        return Fault(where, "must be a text that is not empty");
      }
      std::string text = value.get<std::string>();
      const bool path = std::find(std::begin(kPaths), std::end(kPaths), field) != std::end(kPaths);
      if (path && text.front() != '/') text = absl::StrCat(folder, "/", text);
      source->texts[field] = text;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Source> ReadProfile(const std::optional<std::string>& name,
                                   const Environment& environment) {
  Source source;
  source.label = [](std::string_view setting) { return std::string(setting); };
  const std::string file = ProfileFile(environment);
  const bool must_exist = name.has_value() || !Of(environment, "QUIRE_PROFILE_FILE").empty();
  if (file.empty() && name) {
    return Fault("--profile", "there is no HOME, so name the file by QUIRE_PROFILE_FILE");
  }
  std::error_code error;
  if (file.empty() || (!must_exist && !std::filesystem::exists(file, error))) return source;
  const absl::StatusOr<std::string> text = ReadText(file);
  if (!text.ok()) return text.status();
  const absl::StatusOr<Json> json = Parse(file, *text);
  if (!json.ok()) return json.status();
  if (!json->is_object()) return Fault(file, "must be an object with the field profiles");
  for (const auto& [field, value] : json->items()) {
    if (field == "profiles") continue;
    return Fault(file, absl::StrCat("unknown field ", field, "; the only one is profiles"));
  }
  const Json profiles = json->value("profiles", Json::object());
  if (!profiles.is_object()) return Fault(file, "profiles must be an object of profiles");
  const std::string chosen = name.value_or("default");
  if (!profiles.contains(chosen)) {
    if (!name) return source;
    std::vector<std::string> names;
    for (const auto& [known, value] : profiles.items()) names.push_back(known);
    return Fault(file, absl::StrCat("no profile ", chosen, Suggestion(chosen, names)));
  }
  const std::string place = absl::StrCat(file, ": profiles.", chosen);
  source.label = [place](std::string_view setting) {
    return absl::StrCat(place, ".", std::string(setting));
  };
  const size_t slash = file.rfind('/');
  const std::string folder(slash == std::string::npos ? "." : file.substr(0, slash));
  const absl::Status filled = Fill(profiles[chosen], place, folder, &source);
  if (!filled.ok()) return filled;
  return source;
}

}  // namespace quire::connect
