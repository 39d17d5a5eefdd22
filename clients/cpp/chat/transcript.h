// Transcript: the messages of a chat in a named session, kept for a later `quire chat`. The server
// keeps tokens, but a chat is rendered from its messages, so the client has to have them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quire/v1/inference.pb.h"

namespace quire::cli {

// One file for each server and session, with mode 0600, in a folder with mode 0700. Of all files
// the kTranscripts newest are kept.
class Transcript {
 public:
  static constexpr size_t kTranscripts = 100;

  // `state_folder` empty: nothing is kept.
  Transcript(const std::string& state_folder, const std::string& server,
             const std::string& session);

  struct Content {
    v1::ChatMessages messages;
    uint32_t position = 0;  // of the session
  };
  // Nothing when there is none, or when the file is damaged.
  std::optional<Content> Load() const;
  // Replaces the file whole. False when it cannot be written.
  bool Save(const Content& content) const;

  const std::string& path() const { return path_; }

 private:
  std::string folder_, path_;
};

}  // namespace quire::cli
