// Tokenizer: refused parts of tokenizer.json and their names, added tokens, offsets, and threads.
// Covers server/text/unicode/byte_alphabet.cc, server/text/tokenizer_data.cc,
// server/text/file/json_node.cc, server/text/post_processor.cc, server/text/model/model_spec.cc,
// server/text/normalize/normalizer.cc, server/text/pieces/pre_tokenizer.cc
#include "server/text/tokenizer.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/text/added_tokens.h"
#include "server/text/tokenizer_file.h"

namespace quire {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string PathOf(const std::string& name) {
  return QUIRE_SOURCE_DIR "/tests/testdata/tokenizers/" + name + ".json";
}

std::unique_ptr<const Tokenizer> Load(const std::string& name) {
  auto tokenizer = Tokenizer::Load(PathOf(name));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return std::move(tokenizer).value();
}
const Tokenizer& Gpt2() {
  static const auto tokenizer = Load("gpt2");
  return *tokenizer;
}
const Tokenizer& Qwen2() {
  static const auto tokenizer = Load("qwen2");
  return *tokenizer;
}

std::vector<int32_t> Encode(const Tokenizer& tokenizer, const std::string& text,
                            bool add_special = false, bool parse_special = false) {
  std::vector<int32_t> ids;
  const absl::Status status = tokenizer.Encode(text, add_special, parse_special, &ids);
  EXPECT_TRUE(status.ok()) << status;
  return ids;
}

// Loads the GPT-2 shaped file with changes, each a JSON pointer and its new value.
class EditedFile {
 public:
  explicit EditedFile(const std::string& base = "gpt2")
      : root_(ReadJsonFile(PathOf(base)).value()) {}
  EditedFile& Set(const char* pointer, json value) {
    root_[json::json_pointer(pointer)] = std::move(value);
    return *this;
  }
  EditedFile& Erase(const char* object, const char* key) {
    root_[json::json_pointer(object)].erase(key);
    return *this;
  }
  absl::StatusOr<std::unique_ptr<const Tokenizer>> Load() const {
    const std::string path =
        ::testing::TempDir() + "/tokenizer_test_" + std::to_string(getpid()) + ".json";
    std::ofstream(path) << root_.dump();
    auto tokenizer = Tokenizer::Load(path);
    std::remove(path.c_str());
    if (!tokenizer.ok()) {
      EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(tokenizer.status().message()), StartsWith(path + ": "));
    }
    return tokenizer;
  }
  // The message without the path of the file.
  std::string Refusal() const {
    const auto tokenizer = Load();
    if (tokenizer.ok()) return "loaded";
    const std::string message(tokenizer.status().message());
    return message.substr(message.find(".json: ") + 7);
  }

 private:
  json root_;
};

TEST(TokenizerFileTest, RefusesUnimplementedParts) {
  const auto with = [](const char* pointer, json value) {
    return EditedFile().Set(pointer, std::move(value)).Refusal();
  };
  for (const char* type : {"WordPiece", "WordLevel"}) {
    EXPECT_EQ(with("/model/type", type),
              "model.type: \"" + std::string(type) + "\" is not supported");
  }
  EXPECT_EQ(with("/model/dropout", 0.1), "model.dropout: 0.1 is not supported");
  EXPECT_EQ(with("/model/end_of_word_suffix", "</w>"),
            "model.end_of_word_suffix: \"</w>\" is not supported");
  EXPECT_EQ(with("/model/continuing_subword_prefix", "##"),
            "model.continuing_subword_prefix: \"##\" is not supported");
  EXPECT_EQ(with("/model/novelty", 1), "model: key 'novelty' is not supported");
  EXPECT_EQ(with("/extra", 1), "key 'extra' is not supported");
  EXPECT_EQ(with("/normalizer", {{"type", "BertNormalizer"}}),
            "normalizer.type: \"BertNormalizer\" is not supported");
  EXPECT_EQ(with("/normalizer",
                 {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Nmt"}}}}}),
            "normalizer.normalizers[1].type: \"Nmt\" is not supported");
  EXPECT_EQ(with("/pre_tokenizer", {{"type", "BertPreTokenizer"}}),
            "pre_tokenizer.type: \"BertPreTokenizer\" is not supported");
  EXPECT_EQ(with("/decoder", {{"type", "WordPiece"}}),
            "decoder.type: \"WordPiece\" is not supported");
  EXPECT_EQ(with("/decoder", nullptr), "'decoder' is missing or null");
  EXPECT_EQ(with("/post_processor", {{"type", "Whatever"}}),
            "post_processor.type: \"Whatever\" is not supported");
  EXPECT_EQ(with("/added_tokens/0/color", 1), "added_tokens[0]: key 'color' is not supported");
}

TEST(TokenizerFileTest, IgnoresTruncationAndPadding) {
  EXPECT_EQ(EditedFile()
                .Set("/truncation", {{"max_length", 512}, {"strategy", "LongestFirst"}})
                .Set("/padding", {{"pad_id", 0}})
                .Refusal(),
            "loaded");
}

TEST(TokenizerFileTest, RefusesUnimplementedSplits) {
  const auto with = [](json split) {
    const json byte_level = {{"type", "ByteLevel"},
                             {"add_prefix_space", false},
                             {"trim_offsets", false},
                             {"use_regex", false}};
    return EditedFile()
        .Set("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}})
        .Refusal();
  };
  const auto split = [](const char* pattern, const char* behavior, bool invert) -> json {
    return {{"type", "Split"},
            {"pattern", {{"Regex", pattern}}},
            {"behavior", behavior},
            {"invert", invert}};
  };
  EXPECT_EQ(with(split("\\p{L}+", "Isolated", false)), "loaded");
  EXPECT_EQ(with(split("\\p{L}+", "MergedWithNext", true)), "loaded");
  EXPECT_THAT(with(split("\\p{L}+", "Merged", false)), HasSubstr("behavior: \"Merged\" is not"));
  EXPECT_THAT(with(split("\\h+", "Isolated", false)), HasSubstr("\\h at byte 0"));
  json literal = split("x", "Isolated", false);
  literal["pattern"] = {{"String", ""}};
  EXPECT_THAT(with(literal), HasSubstr("pattern.String: is empty"));
  literal["pattern"] = {{"Glob", "x"}};
  EXPECT_EQ(with(literal), "pre_tokenizer.pretokenizers[0].pattern: key 'Glob' is not supported");
}

// Steps whose order would need text that is not there yet.
TEST(TokenizerFileTest, RefusesDecodersWithoutAStream) {
  const auto with = [](json steps) {
    return EditedFile()
        .Set("/decoder", {{"type", "Sequence"}, {"decoders", std::move(steps)}})
        .Refusal();
  };
  const json fuse = {{"type", "Fuse"}}, bytes = {{"type", "ByteFallback"}};
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", "x"}}}, {"content", "y"}};
  const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  const json strip_end = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 1}};
  EXPECT_EQ(with({replace, bytes, fuse, strip}), "loaded");
  EXPECT_THAT(with({fuse, replace}), HasSubstr("decoders[1]: after a step that joins tokens"));
  EXPECT_THAT(with({bytes, strip, fuse}), HasSubstr("between ByteFallback and Fuse"));
  EXPECT_THAT(with({fuse, strip_end}), HasSubstr("decoders[1].stop: at the end of the text"));
  EXPECT_EQ(with({strip_end, fuse}), "loaded");
}

TEST(TokenizerFileTest, RefusesInconsistentTables) {
  EXPECT_EQ(EditedFile().Set("/model/vocab/zzzzz", 5).Refusal(), "id 5 is given to two tokens");
  EXPECT_THAT(EditedFile().Set("/model/vocab/zzzzz", -1).Refusal(), HasSubstr("is not in [0"));
  EXPECT_THAT(EditedFile().Set("/model/vocab/zzzzz", 1 << 30).Refusal(),
              HasSubstr("vocab[\"zzzzz\"]"));
  EXPECT_THAT(EditedFile().Set("/model/vocab/zzzzz", "5").Refusal(), HasSubstr("is not an id"));
  EXPECT_THAT(EditedFile().Set("/model/merges/7", "qqqq zzzz").Refusal(),
              StartsWith("model.merges[7]"));
  EXPECT_THAT(EditedFile().Set("/model/merges/7", "a b c").Refusal(),
              StartsWith("model.merges[7]"));
  EXPECT_THAT(EditedFile().Set("/model/merges/7", {"a"}).Refusal(), StartsWith("model.merges[7]"));
  const auto without_a = [] {
    return EditedFile().Set("/model/merges", json::array()).Erase("/model/vocab", "a");
  };
  EXPECT_EQ(without_a().Refusal(), "loaded");
  EXPECT_THAT(without_a().Set("/model/byte_fallback", true).Refusal(),
              HasSubstr("unless each byte has a token"));
  EXPECT_EQ(without_a().Set("/model/unk_token", "a").Refusal(),
            "model.unk_token: is not in the vocabulary");
  EXPECT_THAT(EditedFile().Set("/added_tokens/0/id", 1).Refusal(), HasSubstr("two tokens"));
  EXPECT_THAT(EditedFile().Set("/added_tokens/0/content", "").Refusal(), HasSubstr("is empty"));
  EXPECT_THAT(EditedFile("llama3")
                  .Set("/post_processor/processors/1/special_tokens", json::object())
                  .Refusal(),
              HasSubstr("special_tokens has no ids"));
  EXPECT_THAT(EditedFile("llama3")
                  .Set("/post_processor/processors/1/special_tokens/<|begin_of_text|>/ids/0", 99999)
                  .Refusal(),
              HasSubstr("no token has id 99999"));
}

TEST(TokenizerFileTest, NamesAMissingFile) {
  const auto tokenizer = Tokenizer::Load("/nowhere/tokenizer.json");
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kNotFound);
}

TEST(TokenizerTest, NamesTheFirstInvalidByte) {
  std::vector<int32_t> ids = {7};
  std::vector<TokenOffset> offsets(1);
  for (const auto& [text, at] : std::vector<std::pair<std::string, int>>{{"ab\xFF", 2},
                                                                         {"\xC0\x80", 0},
                                                                         {"abcdefgh\xE2\x82", 8},
                                                                         {"\xED\xA0\x80", 0},
                                                                         {"a\xF4\x90\x80\x80", 1},
                                                                         {"\xC3\xA9\x80", 2}}) {
    const absl::Status status = Gpt2().Encode(text, false, false, &ids, &offsets);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "text is not valid UTF-8 at byte " + std::to_string(at));
    EXPECT_EQ(ids.size(), 1u);
    EXPECT_EQ(offsets.size(), 1u);
  }
}

TEST(TokenizerTest, ParsesSpecialTokensOnRequest) {
  const int32_t start = Qwen2().IdOf("<|im_start|>").value();
  const std::string text = "a<|im_start|>b";
  EXPECT_THAT(Encode(Qwen2(), text, false, true), ::testing::Contains(start));
  const std::vector<int32_t> plain = Encode(Qwen2(), text, false, false);
  EXPECT_THAT(plain, ::testing::Not(::testing::Contains(start)));
  EXPECT_EQ(Qwen2().Decode(plain, true), text);
  // Added tokens that are not special belong to the text.
  EXPECT_THAT(Encode(Qwen2(), "x<think>y", false, false),
              ::testing::Contains(Qwen2().IdOf("<think>").value()));
}

TEST(TokenizerTest, AddsSpecialTokensOnRequest) {
  const auto loaded = Load("llama3");
  const Tokenizer& llama = *loaded;
  const int32_t bos = llama.IdOf("<|begin_of_text|>").value();
  std::vector<int32_t> with = Encode(llama, "hi", true), without = Encode(llama, "hi", false);
  ASSERT_EQ(with.front(), bos);
  with.erase(with.begin());
  EXPECT_EQ(with, without);
  EXPECT_EQ(Encode(llama, "", true), std::vector<int32_t>{bos});
  EXPECT_TRUE(llama.IsSpecial(bos));
  EXPECT_EQ(llama.TokenBytes(bos), "");
  EXPECT_EQ(llama.TokenBytes(bos, /*skip_special=*/false), "<|begin_of_text|>");
}

TEST(TokenizerTest, AppendsToExistingIds) {
  std::vector<int32_t> ids = Encode(Gpt2(), "one");
  std::vector<TokenOffset> offsets(ids.size());
  const size_t before = ids.size();
  ASSERT_TRUE(Gpt2().Encode(" two x", false, false, &ids, &offsets).ok());
  EXPECT_EQ(offsets.size(), ids.size());
  EXPECT_EQ(offsets[before].begin, 0);  // the first space stays because of add_prefix_space
  EXPECT_EQ(offsets.back().begin, 5);   // the others are trimmed
  EXPECT_EQ(offsets.back().end, 6);
  EXPECT_EQ(Gpt2().Decode(ids, true), "one two x");
}

TEST(TokenizerTest, UnknownIdsAreEmpty) {
  for (const int32_t id : {-1, Gpt2().size(), INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(Gpt2().TokenBytes(id), "");
    EXPECT_FALSE(Gpt2().IsSpecial(id));
  }
  EXPECT_EQ(Gpt2().Decode({-1, 1 << 30}, false), "");
  EXPECT_EQ(Gpt2().IdOf("no such token"), std::nullopt);
}

TEST(TokenizerTest, DecodesTheTextByteForByte) {
  for (const std::string& text : {std::string("\0\x01\x7F", 3), std::string("\r\n \t\xC2\xA0"),
                                  std::string(5000, 'q'), std::string("a\xCC\x81")}) {
    EXPECT_EQ(Gpt2().Decode(Encode(Gpt2(), text), false), text);
  }
  // NFC joins the letter and its accent.
  EXPECT_EQ(Qwen2().Decode(Encode(Qwen2(), "a\xCC\x81"), false), "\xC3\xA1");
}

TEST(TokenizerTest, ManyThreadsGetTheSameIds) {
  const std::string text =
      "The quick brown fox, 12345 times; na\xC3\xAFve <|im_start|> \xE4\xB8\x96!\n";
  const std::vector<int32_t> expected = Encode(Qwen2(), text, true, true);
  std::vector<std::thread> threads;
  std::vector<int> equal(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) equal[t] += Encode(Qwen2(), text, true, true) == expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(equal, ::testing::Each(200));
}

AddedToken Added(int32_t id, bool special = true, bool lstrip = false, bool rstrip = false) {
  return {.id = id, .lstrip = lstrip, .rstrip = rstrip, .special = special};
}

std::string Shown(const AddedTokenMatcher& matcher, const std::string& text, bool parse_special) {
  std::string out;
  for (const auto& part : matcher.Split(text, parse_special)) {
    out += (part.id < 0 ? "" : std::to_string(part.id)) + "[" +
           text.substr(part.begin, part.end - part.begin) + "]";
  }
  return out;
}

TEST(AddedTokenMatcherTest, FindsTheLongestOfTheLeftmost) {
  AddedTokenMatcher matcher;
  matcher.Add(Added(1), "<a");
  matcher.Add(Added(2), "<a>");
  matcher.Add(Added(3), "a>b");
  EXPECT_EQ(Shown(matcher, "x<a>b<a", true), "[x]2[<a>][b]1[<a]");
  EXPECT_EQ(Shown(matcher, "a>b<a><", true), "3[a>b]2[<a>][<]");
  EXPECT_EQ(Shown(matcher, "", true), "");
  EXPECT_EQ(Shown(matcher, "none", true), "[none]");
}

TEST(AddedTokenMatcherTest, LeavesSpecialTokensInText) {
  AddedTokenMatcher matcher;
  matcher.Add(Added(1), "<s>");
  matcher.Add(Added(2, /*special=*/false), "<t>");
  EXPECT_EQ(Shown(matcher, "<s><t>", false), "[<s>]2[<t>]");
  EXPECT_EQ(Shown(matcher, "<s><t>", true), "1[<s>]2[<t>]");
}

TEST(AddedTokenMatcherTest, TakesWhiteSpaceAroundOnce) {
  AddedTokenMatcher matcher;
  matcher.Add(Added(1, true, /*lstrip=*/true), "<l>");
  matcher.Add(Added(2, true, false, /*rstrip=*/true), "<r>");
  EXPECT_EQ(Shown(matcher, "a \xC2\xA0<l> b", true), "[a]1[ \xC2\xA0<l>][ b]");
  EXPECT_EQ(Shown(matcher, "a <r>\n b", true), "[a ]2[<r>\n ][b]");
  EXPECT_EQ(Shown(matcher, "<r>  <l>", true), "2[<r>  ]1[<l>]");
}

}  // namespace
}  // namespace quire
