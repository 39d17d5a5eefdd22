// A file is a GenerateRequest as JSON: the messages, and the position that the next turn expects.
#include "clients/cpp/chat/transcript.h"

#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "clients/cpp/call/json_output.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;

// A name that is safe as a file's.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.') {
      escaped += c;
    } else {
      escaped += absl::StrFormat("%%%02X", static_cast<unsigned char>(c));
    }
  }
  return escaped;
}

bool WriteWhole(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0) return false;
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t bytes = write(file, text.data() + written, text.size() - written);
    if (bytes <= 0) break;
    written += static_cast<size_t>(bytes);
  }
  return close(file) == 0 && written == text.size();
}

void RemoveOldest(const std::string& folder, size_t kept) {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    files.emplace_back(entry.last_write_time(error), entry.path());
  }
  if (files.size() <= kept) return;
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i < files.size() - kept; ++i) fs::remove(files[i].second, error);
}

}  // namespace

Transcript::Transcript(const std::string& state_folder, const std::string& server,
                       const std::string& session) {
  if (state_folder.empty()) return;
  folder_ = state_folder + "/chats";
  path_ = folder_ + "/" + Escaped(session) + "@" + Escaped(server) + ".json";
}

std::optional<Transcript::Content> Transcript::Load() const {
  std::ifstream file(path_);
  if (path_.empty() || !file) return std::nullopt;
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  v1::GenerateRequest request;
  if (!google::protobuf::util::JsonStringToMessage(text, &request).ok()) return std::nullopt;
  return Content{request.chat(), request.expected_position()};
}

bool Transcript::Save(const Content& content) const {
  if (path_.empty()) return false;
  std::error_code error;
  fs::create_directories(folder_, error);
  fs::permissions(folder_, fs::perms::owner_all, error);
  v1::GenerateRequest request;
  *request.mutable_chat() = content.messages;
  request.set_expected_position(content.position);
  const std::string half = path_ + ".partial";
  if (!WriteWhole(half, ToJson(request) + "\n")) return false;
  fs::rename(half, path_, error);
  if (!error) RemoveOldest(folder_, kTranscripts);
  return !error;
}

}  // namespace quire::cli
