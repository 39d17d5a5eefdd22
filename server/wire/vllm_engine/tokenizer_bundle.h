// TokenizerBundle: the files of a model directory that a gateway needs to tokenise and to render
// chats, as one zip archive.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace quire {

struct TokenizerBundle {
  std::string zip;     // equal for equal files: entries are stored, dated 1980
  std::string sha256;  // of `zip`, lower-case hex
};

// Reads the files at once, some milliseconds for 10 MB. `chat_template` is the file that is put in
// as chat_template.jinja; empty: that of the directory. NOT_FOUND: the directory has none of the
// files; RESOURCE_EXHAUSTED: they are larger than 256 MiB.
absl::StatusOr<TokenizerBundle> BundleTokenizer(const std::string& directory,
                                                const std::string& chat_template = "");

// The bundle of one directory, made by its first reader and kept: gateways that come often cost
// nothing.
class SharedTokenizerBundle {
 public:
  explicit SharedTokenizerBundle(std::string directory, std::string chat_template = "")
      : directory_(std::move(directory)), chat_template_(std::move(chat_template)) {}
  // Any thread; waits while another one reads the files.
  absl::StatusOr<std::shared_ptr<const TokenizerBundle>> Get();

 private:
  const std::string directory_, chat_template_;
  std::mutex mutex_;
  std::shared_ptr<const TokenizerBundle> bundle_;  // under mutex_
};

}  // namespace quire
