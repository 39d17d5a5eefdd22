// The bodies of the fuzz targets; CHECK is the oracle.
#include "tests/fuzz/targets/parser_targets.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "kernels/check.h"
#include "server/text/detokenizer.h"
#include "server/text/pattern/regex_pattern.h"
#include "server/text/pieces/pattern_splitter.h"
#include "server/text/pieces/scanner.h"
#include "server/text/template/chat_template.h"
#include "server/text/template/json_value.h"
#include "server/text/tokenizer.h"
#include "server/text/unicode/unicode.h"
#include "tests/engine/model/temp_dir.h"

namespace quire {
namespace {

constexpr size_t kMaxOutputBytes = 4 << 20;

const Tokenizer& TestTokenizer(const char* name) {
  auto tokenizer =
      Tokenizer::Load(QUIRE_SOURCE_DIR "/tests/testdata/tokenizers/" + std::string(name) + ".json");
  CHECK(tokenizer.ok());
  return *std::move(tokenizer).value().release();
}

// Offsets ascend, lie in the text and start at code points.
void CheckOffsets(const std::vector<TokenOffset>& offsets, std::string_view text) {
  for (const TokenOffset& offset : offsets) {
    CHECK(offset.begin >= 0 && offset.begin <= offset.end);
    CHECK_LE(static_cast<size_t>(offset.end), text.size());
    CHECK_EQ(CodePointBegin(text, static_cast<size_t>(offset.begin)),
             static_cast<size_t>(offset.begin));
  }
}

void CheckEncode(const Tokenizer& tokenizer, std::string_view text, bool exact) {
  std::vector<int32_t> ids, plain;
  std::vector<TokenOffset> offsets;
  const absl::Status status = tokenizer.Encode(text, true, true, &ids, &offsets);
  CHECK_EQ(status.ok(), FindInvalidUtf8(text) == std::string_view::npos);
  if (!status.ok()) return;
  CHECK_EQ(ids.size(), offsets.size());
  CheckOffsets(offsets, text);
  for (const int32_t id : ids) CHECK(id >= 0 && id < tokenizer.size());
  CHECK(tokenizer.Encode(text, false, false, &plain).ok());
  if (exact) CHECK(tokenizer.Decode(plain, false) == text);

  std::string streamed;
  Detokenizer detokenizer(&tokenizer, {.skip_special = false, .continues = false});
  for (const int32_t id : plain) detokenizer.Push(id, &streamed);
  detokenizer.Flush(&streamed);
  // A stream replaces fewer bytes of a run that is invalid in part.
  const std::string decoded = tokenizer.Decode(plain, false);
  CHECK(streamed == decoded || decoded.find(kReplacementCharacter) != std::string::npos);
}

struct SplitterPair {
  std::unique_ptr<const PieceSplitter> scanner, regex;
};

}  // namespace

void FuzzJson(std::string_view bytes) {
  constexpr int kDepth = 16;
  const auto ours = ParseJson(bytes, "input", {.max_depth = kDepth});
  if (!ours.ok()) return;
  const auto theirs = nlohmann::json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  CHECK(*ours == theirs);
  // The printed value reads back as the same; every key exists once.
  CHECK(*ParseJson(ours->dump(), "printed") == *ours);
}

void FuzzTokenizerFile(std::string_view bytes) {
  static const testing::TempDir& dir = *new testing::TempDir;
  const std::string path = dir.Write("tokenizer.json", std::string(bytes));
  const auto tokenizer = Tokenizer::Load(path);
  std::filesystem::remove(path);
  if (!tokenizer.ok()) return;
  CheckEncode(**tokenizer, "Hello, world! It's 2026.\n\n\tna\xC3\xAFve <|endoftext|>", false);
  CheckEncode(**tokenizer, std::string(300, 'a'), false);
}

void FuzzEncode(std::string_view bytes) {
  static const Tokenizer& gpt2 = TestTokenizer("gpt2");
  static const Tokenizer& llama3 = TestTokenizer("llama3");
  static const Tokenizer& qwen2 = TestTokenizer("qwen2");
  static const Tokenizer& prefixed = TestTokenizer("prefixed");
  CheckEncode(gpt2, bytes, true);
  CheckEncode(llama3, bytes, true);
  CheckEncode(qwen2, bytes, false);
  CheckEncode(prefixed, bytes, false);
  static const Tokenizer& llama2 = TestTokenizer("../families/llama2");
  static const Tokenizer& gemma = TestTokenizer("../families/gemma");
  static const Tokenizer& t5 = TestTokenizer("../families/t5");
  static const Tokenizer& falcon3 = TestTokenizer("../families/falcon3");
  for (const Tokenizer* tokenizer : {&llama2, &gemma, &t5, &falcon3}) {
    CheckEncode(*tokenizer, bytes, false);
  }
  if (FindInvalidUtf8(bytes) != std::string_view::npos) return;
  static const std::vector<SplitterPair>& pairs = *new std::vector<SplitterPair>([] {
    std::vector<SplitterPair> out;
    for (const char* pattern : {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern}) {
      out.push_back({MakeScanner(pattern), MakePatternSplitter(MakeRegexPattern(pattern).value(),
                                                               SplitBehavior::kIsolated)});
    }
    return out;
  }());
  for (const SplitterPair& pair : pairs) {
    const std::vector<Span> whole = {{0, static_cast<uint32_t>(bytes.size())}};
    std::vector<Span> scanned, matched;
    CHECK(pair.scanner->Split(bytes, whole, &scanned).ok());
    CHECK(pair.regex->Split(bytes, whole, &matched).ok());
    CHECK(scanned == matched);
  }
}

void FuzzChatTemplate(std::string_view bytes) {
  const auto parsed =
      ChatTemplate::Parse(std::string(bytes), {{"bos_token", jinja::Value::Of("<s>")}});
  if (!parsed.ok()) return;
  for (const bool add_generation_prompt : {false, true}) {
    ChatInput chat;
    chat.messages = {TextMessage("system", "Be \xC3\xA9xact."), TextMessage("user", "1 < 2"),
                     TextMessage("assistant", "")};
    chat.add_generation_prompt = add_generation_prompt;
    const auto text = (*parsed)->Render(chat);
    if (!text.ok()) continue;
    CHECK_LE(text->size(), kMaxOutputBytes);
    CHECK_EQ(FindInvalidUtf8(*text), std::string::npos);
  }
}

void FuzzChatInput(std::string_view bytes) {
  static const std::vector<std::unique_ptr<const ChatTemplate>>& templates = *new auto([] {
    std::vector<std::unique_ptr<const ChatTemplate>> out;
    for (const char* name : {"llama31", "qwen3", "mistral", "command_r", "deepseek", "gemma"}) {
      std::ifstream file(QUIRE_SOURCE_DIR "/tests/testdata/chat_templates/families/" +
                         std::string(name) + ".jinja");
      const std::string source{std::istreambuf_iterator<char>(file), {}};
      out.push_back(ChatTemplate::Parse(source, {{"bos_token", jinja::Value::Of("<s>")}}).value());
    }
    return out;
  }());
  const auto value = ReadJsonValue(bytes, "messages", {16});
  if (!value.ok() || !value->is_sequence()) return;
  for (const auto& one : templates) {
    ChatInput chat;
    chat.messages = value->list();
    const auto text = one->Render(chat);
    if (!text.ok()) {
      CHECK(text.status().code() == absl::StatusCode::kInvalidArgument);
      continue;
    }
    CHECK_LE(text->size(), kMaxOutputBytes);
    CHECK_EQ(FindInvalidUtf8(*text), std::string::npos);
  }
}

}  // namespace quire
