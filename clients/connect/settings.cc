// Three sources in order of strength; each setting comes from the first that has it.
#include "clients/connect/settings.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "clients/connect/client_files.h"
#include "clients/connect/profile.h"
#include "clients/connect/source.h"
#include "flags/address.h"

namespace quire::connect {
namespace {

constexpr std::string_view kTexts[] = {"server",      "ca_cert", "client_cert", "client_key",
                                       "server_name", "api_key", "api_key_file"};
constexpr std::streamoff kMaxFileBytes = 4 << 20;
constexpr size_t kMaxKeyBytes = 4096;

using Sources = std::vector<Source>;

absl::Status Fault(const std::string& place, const std::string& reason) {
  return absl::InvalidArgumentError(absl::StrCat(place, ": ", reason));
}

bool IsPrintable(const std::string& text, char first) {
  return std::all_of(text.begin(), text.end(), [first](char c) { return c >= first && c <= '~'; });
}

// "name: value" into its parts; false if there is no colon behind a name.
bool SplitHeader(const std::string& line, std::pair<std::string, std::string>* header) {
  const size_t colon = line.find(':');
  if (colon == std::string::npos || colon == 0) return false;
  *header = {std::string(absl::StripAsciiWhitespace(line.substr(0, colon))),
             std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)))};
  return !header->first.empty();
}

absl::StatusOr<Source> FromFlags(const ConnectionFlags& flags) {
  Source source;
  source.label = [](std::string_view name) {
    std::string flag = absl::StrCat("--", std::string(name == "headers" ? "header" : name));
    std::replace(flag.begin(), flag.end(), '_', '-');
    return flag;
  };
  for (const auto& [name, value] :
       {std::pair("server", &flags.server), std::pair("ca_cert", &flags.ca_cert),
        std::pair("client_cert", &flags.client_cert), std::pair("client_key", &flags.client_key),
        std::pair("server_name", &flags.server_name),
        std::pair("api_key_file", &flags.api_key_file)}) {
    if (!value->has_value()) continue;
    if ((*value)->empty()) return Fault(source.label(name), "must not be empty");
    source.texts[name] = **value;
  }
  if (flags.said_tls) source.tls = flags.tls;
  for (const std::string& line : flags.headers) {
    std::pair<std::string, std::string> header;
    if (!SplitHeader(line, &header)) return Fault("--header", "must be \"name: value\"");
    if (absl::AsciiStrToLower(header.first) == "authorization") {
      return Fault("--header",
                   "authorization is a secret, and every user of this machine can read a process's "
                   "arguments: use --api-key-file, QUIRE_API_KEY or QUIRE_HEADERS");
    }
    source.headers.push_back(std::move(header));
  }
  return source;
}

absl::StatusOr<Source> FromEnvironment(const Environment& environment) {
  Source source;
  source.label = [](std::string_view name) {
    return absl::StrCat("QUIRE_", absl::AsciiStrToUpper(std::string(name)));
  };
  // An empty variable counts as unset, as compose files write it.
  const auto value = [&](std::string_view name) {
    const auto found = environment.find(source.label(name));
    return found == environment.end() ? std::string() : found->second;
  };
  for (const std::string_view name : kTexts) {
    if (std::string text = value(name); !text.empty()) source.texts[std::string(name)] = text;
  }
  if (const std::string word = absl::AsciiStrToLower(value("tls")); !word.empty()) {
    const std::set<std::string_view> yes{"1", "true", "yes", "on"}, no{"0", "false", "no", "off"};
    if (!yes.contains(word) && !no.contains(word)) {
      return Fault("QUIRE_TLS", absl::StrCat("must be true or false, not '", word, "'"));
    }
    source.tls = yes.contains(word);
  }
  std::string lines = value("headers");
  int number = 0;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string line(absl::StripAsciiWhitespace(lines.substr(0, end)));
    lines.erase(0, end + 1);
    ++number;
    if (line.empty()) continue;
    std::pair<std::string, std::string> header;
    if (!SplitHeader(line, &header)) {
      return Fault("QUIRE_HEADERS", absl::StrCat("line ", number, " must be \"name: value\""));
    }
    source.headers.push_back(std::move(header));
  }
  return source;
}

// The first source that has the setting; null: none.
const Source* FirstWith(const Sources& sources, std::string_view name) {
  for (const Source& source : sources) {
    if (source.texts.find(name) != source.texts.end()) return &source;
  }
  return nullptr;
}

std::string TextOf(const Source& source, std::string_view name) {
  return source.texts.find(name)->second;
}

// As the first source says that has an opinion; a certificate is one.
absl::StatusOr<bool> UsesTls(const Sources& sources) {
  for (const Source& source : sources) {
    const char* certificate = source.texts.contains("ca_cert")       ? "ca_cert"
                              : source.texts.contains("client_cert") ? "client_cert"
                                                                     : nullptr;
    if (source.tls == false && certificate != nullptr) {
      return Fault(source.label("tls"), absl::StrCat("is false, but ", source.label(certificate),
                                                     " is set: leave one out"));
    }
    if (source.tls) return *source.tls;
    if (certificate != nullptr) return true;
  }
  return false;
}

absl::StatusOr<std::string> ReadFile(const std::string& place, const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? std::streamoff{file.tellg()} : -1;
  if (size < 0 || size > kMaxFileBytes) {
    return Fault(place, absl::StrCat("cannot read ", path, ": ",
                                     size > kMaxFileBytes ? "larger than 4 MiB"
                                     : errno == 0         ? "not a file"
                                                          : std::strerror(errno)));
  }
  file.seekg(0);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::Status AddCertificates(const Sources& sources, Endpoint* endpoint) {
  for (const auto& [name, text] :
       {std::pair("ca_cert", &endpoint->ca_cert), std::pair("client_cert", &endpoint->client_cert),
        std::pair("client_key", &endpoint->client_key)}) {
    const Source* source = FirstWith(sources, name);
    if (source == nullptr) continue;
    const std::string path = TextOf(*source, name);
    absl::StatusOr<std::string> read = ReadFile(source->label(name), path);
    if (!read.ok()) return read.status();
    *text = *std::move(read);
    const absl::Status fault = CheckPem(*text, std::string_view(name) == "client_key");
    if (!fault.ok()) {
      return Fault(source->label(name), absl::StrCat(path, ": ", std::string(fault.message())));
    }
    if (std::string_view(name) == "ca_cert") endpoint->ca_file = path;
  }
  const Source* certificate = FirstWith(sources, "client_cert");
  const Source* key = FirstWith(sources, "client_key");
  if (certificate != nullptr && key == nullptr) {
    return Fault(certificate->label("client_cert"), "is set, but client_key is not: give its key");
  }
  if (key != nullptr && certificate == nullptr) {
    return Fault(key->label("client_key"), "is set, but client_cert is not: give its certificate");
  }
  if (key != nullptr && !IsKeyOf(endpoint->client_key, endpoint->client_cert)) {
    return Fault(key->label("client_key"),
                 absl::StrCat(TextOf(*key, "client_key"), " is not the key of ",
                              TextOf(*certificate, "client_cert")));
  }
  if (const Source* source = FirstWith(sources, "server_name")) {
    endpoint->server_name = TextOf(*source, "server_name");
  }
  return absl::OkStatus();
}

// Errors never show the key.
absl::Status AddKey(const Sources& sources, Endpoint* endpoint) {
  for (const Source& source : sources) {
    const bool key = source.texts.contains("api_key");
    const bool file = source.texts.contains("api_key_file");
    if (!key && !file) continue;
    if (key && file) {
      return Fault(source.label("api_key"),
                   absl::StrCat("is set, and ", source.label("api_key_file"), " too: keep one"));
    }
    std::string place = source.label(key ? "api_key" : "api_key_file");
    if (key) {
      endpoint->api_key = TextOf(source, "api_key");
    } else {
      const std::string path = TextOf(source, "api_key_file");
      absl::StatusOr<std::string> read = ReadFile(place, path);
      if (!read.ok()) return read.status();
      endpoint->api_key = std::string(absl::StripAsciiWhitespace(*read));
      place = absl::StrCat(place, " ", path);
    }
    const size_t size = endpoint->api_key.size();
    if (size == 0 || size > kMaxKeyBytes || !IsPrintable(endpoint->api_key, '!')) {
      return Fault(place, "a key is 1 to 4096 printable characters without spaces");
    }
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status CheckHeader(const std::string& place, const std::string& name,
                         const std::string& value) {
  const auto is_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
  };
  if (!std::all_of(name.begin(), name.end(), is_name)) {
    return Fault(place,
                 absl::StrCat("'", name, "' is no name of a header: letters, digits, - . _"));
  }
  if (name.starts_with("grpc-") || name.ends_with("-bin")) {
    return Fault(place, absl::StrCat("the header ", name, " belongs to gRPC: choose another name"));
  }
  if (!IsPrintable(value, ' ')) {
    return Fault(place, absl::StrCat("the header ", name, " must be printable ASCII"));
  }
  return absl::OkStatus();
}

// A stronger source replaces a weaker one's header of the same name.
absl::Status AddHeaders(const Sources& sources, Endpoint* endpoint) {
  std::map<std::string, std::string> headers;
  for (auto source = sources.rbegin(); source != sources.rend(); ++source) {
    std::set<std::string> seen;
    for (const auto& [given, value] : source->headers) {
      const std::string place = source->label("headers");
      const std::string name = absl::AsciiStrToLower(given);
      if (const absl::Status fault = CheckHeader(place, name, value); !fault.ok()) return fault;
      if (!seen.insert(name).second) {
        return Fault(place, absl::StrCat("the header ", name, " is given twice: give it once"));
      }
      headers[name] = value;
    }
  }
  if (headers.contains("authorization") && !endpoint->api_key.empty()) {
    return Fault("headers",
                 "there is a key and a header authorization, which carries keys: keep one");
  }
  endpoint->headers.assign(headers.begin(), headers.end());
  return absl::OkStatus();
}

absl::Status CheckSecret(const Endpoint& endpoint) {
  const auto is_secret = [](const auto& header) { return header.first == "authorization"; };
  const bool secret = !endpoint.api_key.empty() ||
                      std::any_of(endpoint.headers.begin(), endpoint.headers.end(), is_secret);
  if (!secret || endpoint.tls || StaysOnThisMachine(endpoint.server)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the key would go to ", endpoint.server,
                   " in plaintext, where others on the way can read it: give --tls or --ca-cert "
                   "FILE, or dial a proxy on this machine"));
}

// The last source, the profile, has a server, and a stronger source names another one. Unless the
// profile was asked for, its keys and certificates are not for that server.
bool IsOfAnotherServer(const Sources& sources) {
  const Source& profile = sources.back();
  const Source* named = FirstWith(sources, "server");
  return profile.texts.contains("server") && named != &profile &&
         flags::DialAddress(TextOf(*named, "server")) !=
             flags::DialAddress(TextOf(profile, "server"));
}

}  // namespace

Environment EnvironmentOf(char** variables) {
  Environment environment;
  for (; *variables != nullptr; ++variables) {
    const std::string_view text = *variables;
    const size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    if (equals == std::string_view::npos) continue;
    if (name.starts_with("QUIRE_") || name == "HOME" || name == "XDG_CONFIG_HOME") {
      environment.emplace(name, text.substr(equals + 1));
    }
  }
  return environment;
}

flags::Flag ServerRow(ConnectionFlags* flags, std::string_view group) {
  return {.name = "server",
          .group = group,
          .help = "address of its gRPC, HOST, HOST:PORT or unix:PATH; port 50051 if it has none",
          .target = &flags->server,
          .placeholder = "ADDRESS",
          .unset = "127.0.0.1:50051"};
}

std::vector<flags::Flag> ConnectionRows(ConnectionFlags* flags, std::string_view group) {
  const auto file = [group](std::string_view name, std::optional<std::string>* target,
                            std::string_view help, std::string_view unset) {
    return flags::Flag{.name = name,
                       .group = group,
                       .help = help,
                       .target = target,
                       .placeholder = "FILE",
                       .unset = unset};
  };
  return {
      {.name = "tls",
       .group = group,
       .help = "use TLS; --ca-cert and --client-cert do so too",
       .target = &flags->tls},
      file("ca-cert", &flags->ca_cert,
           "PEM file of the authorities that the server's certificate "
           "must come from",
           "the system's"),
      file("client-cert", &flags->client_cert, "PEM file of the certificate to show", "none"),
      file("client-key", &flags->client_key, "PEM file of its key", "none"),
      {.name = "server-name",
       .group = group,
       .help = "name expected in the server's certificate",
       .target = &flags->server_name,
       .placeholder = "NAME",
       .unset = "the host of --server"},
      file("api-key-file", &flags->api_key_file, "file of the key to send", "no key"),
      {.name = "header",
       .group = group,
       .help = "header of every call, as \"name: value\"; may be repeated",
       .target = &flags->headers,
       .placeholder = "HEADER",
       .unset = "none"},
      {.name = "profile",
       .group = group,
       .help = "profile of ~/.config/quire/profiles.json with these settings",
       .target = &flags->profile,
       .placeholder = "NAME",
       .unset = "default, if it is there"},
  };
}

absl::StatusOr<Endpoint> ResolveEndpoint(const ConnectionFlags& flags,
                                         const Environment& environment) {
  std::optional<std::string> profile = flags.profile;
  const auto chosen = environment.find("QUIRE_PROFILE");
  if (!profile && chosen != environment.end() && !chosen->second.empty()) profile = chosen->second;
  Sources sources;
  for (absl::StatusOr<Source> source :
       {FromFlags(flags), FromEnvironment(environment), ReadProfile(profile, environment)}) {
    if (!source.ok()) return source.status();
    sources.push_back(*std::move(source));
  }
  if (!profile && IsOfAnotherServer(sources)) sources.pop_back();
  Endpoint endpoint;
  if (const Source* source = FirstWith(sources, "server")) {
    endpoint.server = flags::DialAddress(TextOf(*source, "server"));
  }
  const absl::StatusOr<bool> tls = UsesTls(sources);
  if (!tls.ok()) return tls.status();
  endpoint.tls = *tls;
  absl::Status status = endpoint.tls ? AddCertificates(sources, &endpoint) : absl::OkStatus();
  const Source* named = FirstWith(sources, "server_name");
  if (!endpoint.tls && named != nullptr && !flags.said_tls) {
    return Fault(named->label("server_name"), "is set, but the connection uses no TLS: add --tls");
  }
  if (status.ok()) status = AddKey(sources, &endpoint);
  if (status.ok()) status = AddHeaders(sources, &endpoint);
  if (status.ok()) status = CheckSecret(endpoint);
  if (!status.ok()) return status;
  return endpoint;
}

}  // namespace quire::connect
