// The file is replaced as a whole, so that a server never reads half of it.
#include "clients/cpp/key.h"

#include <fcntl.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "absl/strings/ascii.h"
#include "clients/cpp/flags/exit_codes.h"
#include "nlohmann/json.hpp"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kIdBytes = 8;
constexpr size_t kSecretBytes = 32;

std::string Hex(const uint8_t* bytes, size_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

std::string Sha256(const std::string& text) {
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const uint8_t*>(text.data()), text.size(), digest.data());
  return Hex(digest.data(), digest.size());
}

std::string Utc(std::time_t time) {
  std::tm parts{};
  gmtime_r(&time, &parts);
  std::array<char, 32> text{};
  const size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return std::string(text.data(), size);
}

// Why something on this machine failed; empty: it did not.
using Fault = std::string;

Fault Read(const std::string& path, bool may_be_missing, Json* file) {
  *file = {{"tenants", Json::object()}, {"keys", Json::array()}};
  std::ifstream in(path, std::ios::binary);
  if (!in && errno == ENOENT && may_be_missing) return "";
  if (!in) return path + ": " + std::strerror(errno);
  std::ostringstream text;
  text << in.rdbuf();
  *file = Json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  const bool good = file->is_object() && file->contains("tenants") &&
                    file->at("tenants").is_object() &&
                    (!file->contains("keys") || file->at("keys").is_array());
  if (!good) return path + ": is no key file: it needs {\"tenants\": {...}, \"keys\": [...]}";
  if (!file->contains("keys")) (*file)["keys"] = Json::array();
  return "";
}

// Holds the folder of a file, so that of two commands each sees what the other wrote.
class FolderLock {
 public:
  explicit FolderLock(const std::string& file) {
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    fd_ = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd_ >= 0) flock(fd_, LOCK_EX);
  }
  ~FolderLock() {
    if (fd_ >= 0) close(fd_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_ = -1;
};

// Keeps the file's owner, group and mode, by which the server may read it, and a link to it; a new
// file is its owner's alone.
Fault Write(const std::string& named, const Json& file) {
  std::error_code unresolved;
  const auto target = std::filesystem::weakly_canonical(named, unresolved);
  const std::string path = unresolved ? named : target.string();
  struct stat info {};
  const bool exists = stat(path.c_str(), &info) == 0;
  const mode_t mode = exists ? info.st_mode & 0777 : 0600;
  const std::string draft = path + ".new";
  const int fd = open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd < 0) return draft + ": " + std::strerror(errno);
  const std::string text = file.dump(2) + "\n";
  const bool kept = !exists || fchown(fd, info.st_uid, info.st_gid) == 0;
  const bool written = kept &&
                       write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       fchmod(fd, mode) == 0 && fsync(fd) == 0;
  const int error = errno;
  close(fd);
  if (written && std::rename(draft.c_str(), path.c_str()) == 0) return "";
  const std::string why = std::strerror(written ? errno : error);
  unlink(draft.c_str());
  return path + (kept ? ": cannot be written: " : ": its owner and group cannot be kept: ") + why;
}

Json EntryOf(const KeyFlags& flags, const std::string& id, const std::string& key) {
  Json entry = {
      {"id", id}, {"sha256", Sha256(key)}, {"tenant", flags.tenant}, {"scopes", flags.scopes}};
  if (!flags.models.empty()) entry["models"] = flags.models;
  if (flags.expires_after_seconds.has_value()) {
    entry["expires"] =
        Utc(std::time(nullptr) + static_cast<std::time_t>(*flags.expires_after_seconds));
  }
  if (!flags.note.empty()) entry["note"] = flags.note;
  return entry;
}

bool IsUtf8(const std::string& text) {
  const std::string kept = Json(text).dump(-1, ' ', false, Json::error_handler_t::ignore);
  return Json::parse(kept) == text;
}

// As the server reads it.
bool IsTenantName(const std::string& name) {
  static constexpr std::string_view kOthers = "._-";
  return !name.empty() && name.size() <= 64 && name != "other" &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  kOthers.find(c) != std::string_view::npos;
         });
}

Fault UsageOf(const KeyFlags& flags) {
  static constexpr std::string_view kScopes[] = {"infer", "session", "admin", "metrics"};
  if (flags.tenant.empty()) return "key new needs --tenant NAME";
  if (!IsTenantName(flags.tenant)) {
    return "--tenant '" + flags.tenant +
           "': 1 to 64 letters, digits, '.', '_' and '-', and not 'other'";
  }
  if (!IsUtf8(flags.note)) return "--note: must be UTF-8";
  for (const std::string& scope : flags.scopes) {
    if (std::find(std::begin(kScopes), std::end(kScopes), scope) == std::end(kScopes)) {
      return "--scopes: there is no '" + scope + "'; there are infer, session, admin, metrics";
    }
  }
  return "";
}

Fault MakeKey(const KeyFlags& flags, Terminal& terminal) {
  std::array<uint8_t, kIdBytes + kSecretBytes> random;
  if (RAND_bytes(random.data(), random.size()) != 1) return "OpenSSL has no random bytes";
  const std::string id = Hex(random.data(), kIdBytes);
  const std::string key = "qk-" + id + "-" + Hex(random.data() + kIdBytes, kSecretBytes);
  const Json entry = EntryOf(flags, id, key);
  if (flags.file.empty()) {
    terminal.err << "add to \"keys\" of the server's key file:\n" << entry.dump(2) << "\n";
  } else {
    const FolderLock lock(flags.file);
    Json file;
    if (Fault fault = Read(flags.file, /*may_be_missing=*/true, &file); !fault.empty())
      return fault;
    if (!file["tenants"].contains(flags.tenant)) file["tenants"][flags.tenant] = Json::object();
    file["keys"].push_back(entry);
    if (Fault fault = Write(flags.file, file); !fault.empty()) return fault;
    terminal.err << "key " << id << " of tenant " << flags.tenant << " is in " << flags.file
                 << "; the key itself is shown only now:\n";
  }
  terminal.out << key << "\n";
  return "";
}

Fault ListKeys(const KeyFlags& flags, Terminal& terminal) {
  Json file;
  if (Fault fault = Read(flags.file, /*may_be_missing=*/false, &file); !fault.empty()) return fault;
  for (Json entry : file["keys"]) {
    if (entry.is_object()) entry.erase("sha256");
    terminal.out << entry.dump() << "\n";
  }
  return "";
}

Fault RevokeKey(const KeyFlags& flags, Terminal& terminal) {
  const FolderLock lock(flags.file);
  Json file;
  if (Fault fault = Read(flags.file, /*may_be_missing=*/false, &file); !fault.empty()) return fault;
  Json kept = Json::array();
  for (const Json& entry : file["keys"]) {
    const bool revoked = entry.is_object() && entry.contains("id") && entry["id"] == flags.id;
    if (!revoked) kept.push_back(entry);
  }
  if (kept.size() == file["keys"].size()) return flags.file + ": has no key '" + flags.id + "'";
  file["keys"] = kept;
  if (Fault fault = Write(flags.file, file); !fault.empty()) return fault;
  terminal.err << "key " << flags.id << " is taken out of " << flags.file
               << "; a server that uses the file refuses it within a second\n";
  return "";
}

}  // namespace

int RunKey(const KeyFlags& flags, Terminal& terminal) {
  Fault usage = flags.verb == "new" ? UsageOf(flags) : "";
  if (flags.verb != "new" && flags.file.empty()) usage = "key " + flags.verb + " needs --file FILE";
  if (!usage.empty()) {
    terminal.err << "quire: " << usage << "\n";
    return kExitUsage;
  }
  const Fault fault = flags.verb == "new"    ? MakeKey(flags, terminal)
                      : flags.verb == "list" ? ListKeys(flags, terminal)
                                             : RevokeKey(flags, terminal);
  if (fault.empty()) return kExitOk;
  terminal.err << "quire: " << fault << "\n";
  return kExitLocal;
}

}  // namespace quire::cli
