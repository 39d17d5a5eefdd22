// The bodies of the targets; CHECK is the oracle.
#include "tests/fuzz/targets/tokenizer_targets.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "kernels/check.h"
#include "server/text/template/chat_templates.h"
#include "server/text/unicode/unicode.h"
#include "server/tokenizers/tokenizer_directory.h"
#include "tests/engine/model/temp_dir.h"

namespace quire {
namespace {

using testing::TempDir;

// A file system may write a file to the disk that replaces another one in place: it is new.
void Put(const TempDir& dir, const std::string& name, std::string_view bytes) {
  std::filesystem::remove(dir.path() + "/" + name);
  dir.Write(name, std::string(bytes));
}

void CheckTokenizer(const TempDir& dir) {
  const auto tokenizer = LoadTokenizer(dir.path());
  if (!tokenizer.ok()) {
    CHECK(absl::IsInvalidArgument(tokenizer.status()));
    CHECK(std::string(tokenizer.status().message()).find(dir.path()) != std::string::npos);
    return;
  }
  for (const std::string& text : {std::string("The word, \n\tna\xC3\xAFve <s> 2026"),
                                  std::string(200, 'a'), std::string(100, ' ')}) {
    std::vector<int32_t> ids;
    std::vector<TokenOffset> offsets;
    if (!(*tokenizer)->Encode(text, true, true, &ids, &offsets).ok()) continue;
    CHECK_EQ(ids.size(), offsets.size());
    for (const int32_t id : ids) CHECK(id >= 0 && id < (*tokenizer)->size());
    (*tokenizer)->Decode(ids, false);
  }
}

// A model of some pieces and all bytes, in the wire format of SentencePiece.
std::string SmallModel() {
  std::string model;
  const auto piece = [&model](const std::string& text, char type, const std::string& score) {
    const std::string body = "\x0A" + std::string(1, static_cast<char>(text.size())) + text +
                             "\x15" + score + "\x18" + std::string(1, type);
    model += "\x0A" + std::string(1, static_cast<char>(body.size())) + body;
  };
  const std::string zero(4, '\0');
  piece("<unk>", 2, zero);
  piece("<s>", 3, zero);
  piece("</s>", 3, zero);
  for (const char* text : {"\xE2\x96\x81", "a", "b", "c", "ab",
                           "\xE2\x96\x81"
                           "a"}) {
    piece(text, 1, zero);
  }
  return model + std::string("\x12\x02\x18\x02", 4);  // trainer_spec: model_type BPE
}

}  // namespace

void FuzzSentencePiece(std::string_view bytes) {
  static const TempDir& dir = *new TempDir;
  Put(dir, "tokenizer.model", bytes);
  CheckTokenizer(dir);
}

void FuzzTekken(std::string_view bytes) {
  static const TempDir& dir = *new TempDir;
  Put(dir, "tekken.json", bytes);
  CheckTokenizer(dir);
}

void FuzzTokenizerConfig(std::string_view bytes) {
  static const TempDir& dir = *new TempDir;
  static const std::string model = dir.Write("tokenizer.model", SmallModel());
  Put(dir, "tokenizer_config.json", bytes);
  CheckTokenizer(dir);
  const ChatTemplates templates = ChatTemplates::Load(dir.path());
  for (const ChatTemplates::Origin& origin : templates.List()) {
    if (origin.name.empty()) continue;  // a request without a name takes the default one
    const auto chosen = templates.Choose(origin.name, false);
    CHECK_EQ(chosen.ok(), origin.reason.empty());
    if (!chosen.ok()) continue;
    ChatInput chat;
    chat.messages = {TextMessage("user", "1 < 2"), TextMessage("assistant", "")};
    const auto text = (*chosen)->Render(chat);
    if (text.ok()) CHECK_EQ(FindInvalidUtf8(*text), std::string::npos);
  }
}

}  // namespace quire
