// LoadTokenizer: directories with only a tokenizer.model or a tekken.json give the ids of
// `sentencepiece` and `tiktoken`, and damaged files of every kind are refused by name.
// Covers server/tokenizers/sentencepiece_file.cc, server/tokenizers/tekken_file.cc,
// server/tokenizers/text_frame.cc
#include "server/tokenizers/tokenizer_directory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/text/detokenizer.h"
#include "server/text/unicode/unicode.h"
#include "tests/server/text/expected_hashes.h"
#include "tests/server/text/string_recipe.h"

namespace quire {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kData[] = QUIRE_SOURCE_DIR "/tests/testdata/";

std::unique_ptr<const Tokenizer> Load(const std::string& directory) {
  auto tokenizer = LoadTokenizer(directory);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A directory of one test, removed at its end.
class Directory {
 public:
  Directory() : path_(::testing::TempDir() + "/tokenizers_" + std::to_string(getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
  }

 private:
  const std::string path_;
};

class ConvertedTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ConvertedTest, GivesTheIdsOfTheOriginal) {
  const std::string directory = kData + std::string("converted/") + GetParam();
  const auto tokenizer = Load(directory);
  ASSERT_NE(tokenizer, nullptr);
  const std::vector<uint32_t> expected = ReadExpected(directory + "/expected");
  ASSERT_EQ(expected.size(), kStrings / kBlock);
  const StringRecipe recipe = StringRecipe::Read("families/recipe.json");
  RecipeRandom random(2026);
  int wrong = 0;
  for (int block = 0; block < kStrings / kBlock && wrong < 3; ++block) {
    ExpectedHash hash;
    std::string shown;
    for (int i = 0; i < kBlock; ++i) {
      std::string text = recipe.Make(&random);
      std::ranges::replace(text, '\0', '0');
      std::vector<int32_t> ids;
      ASSERT_TRUE(tokenizer->Encode(text, false, false, &ids).ok());
      shown += "\n  \"" + Escaped(text) + "\":";
      for (const int32_t id : ids) {
        hash.Add(static_cast<uint32_t>(id));
        shown += " " + std::to_string(id);
      }
    }
    if (hash.value() == expected[static_cast<size_t>(block)]) continue;
    ++wrong;
    ADD_FAILURE() << "block " << block << ", ids of one of these differ:" << shown;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, ConvertedTest,
                         ::testing::Values("llama", "unigram", "tekken", "symbols", "prefixed",
                                           "unused"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TokenizerDirectoryTest, TakesTokenizerJsonFirst) {
  const Directory directory;
  directory.Write("tokenizer.model", "damaged");
  directory.Write("tokenizer.json", ReadAll(kData + std::string("families/llama2.json")));
  EXPECT_NE(Load(directory.path()), nullptr);
}

TEST(TokenizerDirectoryTest, SaysWhatADirectoryLacks) {
  const Directory directory;
  const auto tokenizer = LoadTokenizer(directory.path());
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(tokenizer.status().message()),
              HasSubstr("no tokenizer.json, tokenizer.model or tekken.json"));
}

// A file of a hundred bytes that asks for four million tokens took 13 seconds and gigabytes.
TEST(TokenizerDirectoryTest, RefusesMoreSpecialTokensThanAnyTekkenHas) {
  const Directory directory;
  directory.Write("tekken.json", R"({"config": {"pattern": "a", "default_vocab_size": 4194304,
                                     "default_num_special_tokens": 4194304}, "vocab": []})");
  EXPECT_THAT(std::string(LoadTokenizer(directory.path()).status().message()),
              HasSubstr("default_num_special_tokens"));
}

TEST(TokenizerDirectoryTest, FramesTextAsTheConfigurationSays) {
  const Directory directory;
  directory.Write("tokenizer.model",
                  ReadAll(kData + std::string("converted/llama/tokenizer.model")));
  const auto ids = [&](const std::string& config) {
    directory.Write("tokenizer_config.json", config);
    std::vector<int32_t> out;
    const auto tokenizer = Load(directory.path());
    if (tokenizer == nullptr) return out;
    EXPECT_TRUE(tokenizer->Encode("<extra>the</s>the", true, true, &out).ok());
    return out;
  };
  const std::vector<int32_t> plain = ids("{}");
  ASSERT_GT(plain.size(), 3u);
  EXPECT_EQ(plain.front(), 1);
  std::vector<int32_t> ended = plain;
  ended.push_back(2);
  EXPECT_EQ(ids(R"({"add_eos_token": true})"), ended);
  EXPECT_EQ(ids(R"({"add_bos_token": false})"),
            std::vector<int32_t>(plain.begin() + 1, plain.end()));
  // Of the two words only the one at the begin of the text gets a space.
  EXPECT_NE(ids(R"({"legacy": false})"), plain);
  EXPECT_THAT(ids(R"({"added_tokens_decoder": {"1100": {"content": "<extra>", "special": true}}})"),
              ::testing::Contains(1100));
}

// The ids around a text that transformers 4 gave (make_frames.py): those of tokenizer_config.json
// for some of its classes, those of tokenizer.json for the others.
TEST(TokenizerDirectoryTest, FramesTextLikeTheClassOfTheTokenizer) {
  const json cases = ReadJsonFile(kData + std::string("frames.json")).value();
  ASSERT_GT(cases.size(), 60u);
  for (const json& one : cases) {
    SCOPED_TRACE(one.dump());
    const Directory directory;
    json file =
        ReadJsonFile(kData + ("families/" + one["tokenizer"].get<std::string>()) + ".json").value();
    if (one.contains("post_processor")) file["post_processor"] = one["post_processor"];
    directory.Write("tokenizer.json", file.dump());
    directory.Write("tokenizer_config.json", one["config"].dump());
    if (one.contains("special_tokens_map")) {
      directory.Write("special_tokens_map.json", one["special_tokens_map"].dump());
    }
    const auto tokenizer = Load(directory.path());
    ASSERT_NE(tokenizer, nullptr);
    std::vector<int32_t> plain, framed;
    ASSERT_TRUE(tokenizer->Encode("the word", false, false, &plain).ok());
    ASSERT_TRUE(tokenizer->Encode("the word", true, false, &framed).ok());
    std::vector<int32_t> expected = one["before"].get<std::vector<int32_t>>();
    expected.insert(expected.end(), plain.begin(), plain.end());
    for (const json& id : one["behind"]) expected.push_back(id.get<int32_t>());
    EXPECT_EQ(framed, expected);
  }
}

TEST(TokenizerDirectoryTest, RefusesAFrameOfTokensThatTheFileLacks) {
  const Directory directory;
  directory.Write("tokenizer.json", ReadAll(kData + std::string("families/llama2.json")));
  const auto fault = [&](const std::string& members) {
    directory.Write("tokenizer_config.json",
                    R"({"tokenizer_class": "LlamaTokenizerFast", )" + members + "}");
    const absl::Status status = LoadTokenizer(directory.path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                StartsWith(directory.path() + "/tokenizer_config.json"));
    return std::string(status.message());
  };
  EXPECT_THAT(fault(R"("add_bos_token": true, "bos_token": "<bos>")"),
              HasSubstr("bos_token: tokenizer.json has no token \"<bos>\""));
  EXPECT_THAT(fault(R"("add_bos_token": true, "bos_token": null)"),
              HasSubstr("bos_token: is not a token"));
  EXPECT_THAT(fault(R"("add_eos_token": true, "eos_token": {"content": 5})"),
              HasSubstr("eos_token: 'content' is missing or not a string"));
  EXPECT_THAT(fault(R"("add_bos_token": "yes")"), HasSubstr("add_bos_token: is not true or false"));
}

// Older directories list added tokens in a file of its own; tokenizer_config.json goes before it.
TEST(TokenizerDirectoryTest, ReadsAddedTokensOfOlderDirectories) {
  const Directory directory;
  directory.Write("tokenizer.model",
                  ReadAll(kData + std::string("converted/llama/tokenizer.model")));
  directory.Write("added_tokens.json", R"({"<pad>": 1100, "<call>": 1101, "<|im_end|>": 1102})");
  directory.Write(
      "special_tokens_map.json",
      R"({"pad_token": {"content": "<pad>"}, "additional_special_tokens": ["<call>"]})");
  const auto tokenizer = Load(directory.path());
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_TRUE(tokenizer->IsSpecial(1100));
  EXPECT_TRUE(tokenizer->IsSpecial(1101));
  EXPECT_FALSE(tokenizer->IsSpecial(1102));
  std::vector<int32_t> ids;
  ASSERT_TRUE(tokenizer->Encode("the<|im_end|><pad>", false, false, &ids).ok());
  EXPECT_THAT(ids, ::testing::Contains(1102));
  EXPECT_THAT(ids, ::testing::Not(::testing::Contains(1100)));

  directory.Write("tokenizer_config.json", R"({"added_tokens_decoder": {}})");
  const auto listed = Load(directory.path());
  ASSERT_NE(listed, nullptr);
  EXPECT_EQ(listed->size(), 1100);

  directory.Write("tokenizer_config.json", "{}");
  directory.Write("added_tokens.json", R"({"<pad>": "1100"})");
  EXPECT_THAT(std::string(LoadTokenizer(directory.path()).status().message()),
              HasSubstr("added_tokens.json: is not texts of tokens and their ids"));
}

TEST(TokenizerDirectoryTest, DecodesWhatItEncodes) {
  for (const char* name : {"llama", "unigram", "tekken", "symbols", "prefixed"}) {
    const auto tokenizer = Load(kData + std::string("converted/") + name);
    ASSERT_NE(tokenizer, nullptr);
    std::vector<int32_t> ids;
    ASSERT_TRUE(tokenizer->Encode("the word of  people", true, false, &ids).ok());
    EXPECT_EQ(tokenizer->Decode(ids, true), "the word of  people") << name;
  }
}

// Changes one value of a document, at any depth.
void Mutate(std::mt19937* random, json* root) {
  json* at = root;
  while (at->is_structured() && !at->empty() && (*random)() % 6 != 0) {
    auto child = at->begin();
    std::advance(child, (*random)() % at->size());
    at = &*child;
  }
  const std::vector<json> values = {nullptr,
                                    true,
                                    -1,
                                    1 << 30,
                                    0.5,
                                    "",
                                    "x",
                                    "\xE2\x96\x81",
                                    json::array(),
                                    json::object(),
                                    json::array({1, "a"}),
                                    1e300};
  switch ((*random)() % 4) {
    case 0:
      if (at->is_structured() && !at->empty()) {
        auto child = at->begin();
        std::advance(child, (*random)() % at->size());
        at->erase(child);
        return;
      }
      [[fallthrough]];
    case 1:
      if (at->is_object()) {
        (*at)["surplus"] = values[(*random)() % values.size()];
        return;
      }
      [[fallthrough]];
    default: *at = values[(*random)() % values.size()];
  }
}

// Changes, removes or inserts bytes.
void Mutate(std::mt19937* random, std::string* bytes) {
  for (unsigned n = 1 + (*random)() % 4; n > 0 && !bytes->empty(); --n) {
    const size_t at = (*random)() % bytes->size();
    switch ((*random)() % 4) {
      case 0: bytes->erase(at, 1 + (*random)() % 40); break;
      case 1: bytes->insert(at, 1 + (*random)() % 8, static_cast<char>((*random)())); break;
      case 2: bytes->resize(at); break;
      default: (*bytes)[at] = static_cast<char>((*random)());
    }
  }
}

// Loads the damaged file of `directory`: it is refused by name, or whole enough to be used. Returns
// whether it was refused.
bool RefusesOrWorks(const Directory& directory, const std::string& name) {
  const auto tokenizer = LoadTokenizer(directory.path());
  if (!tokenizer.ok()) {
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(tokenizer.status().message()),
                StartsWith(directory.path() + "/" + name));
    return true;
  }
  for (const std::string text :
       {"The word  <s> of 42 people!\n", "\xE4\xB8\x96\xF0\x9F\x98\x80", "a\xCC\x81 [END] the"}) {
    std::vector<int32_t> ids;
    std::vector<TokenOffset> offsets;
    if (!(*tokenizer)->Encode(text, true, true, &ids, &offsets).ok()) continue;
    for (const TokenOffset& offset : offsets) {
      EXPECT_TRUE(0 <= offset.begin && offset.begin <= offset.end);
      EXPECT_LE(static_cast<size_t>(offset.end), text.size());
    }
    EXPECT_EQ(FindInvalidUtf8((*tokenizer)->Decode(ids, false)), std::string::npos);
    Detokenizer stream(tokenizer->get(), {});
    std::string streamed;
    for (const int32_t id : ids) stream.Push(id, &streamed);
    stream.Flush(&streamed);
  }
  return false;
}

TEST(TokenizerDirectoryTest, RefusesDamagedJsonByName) {
  std::mt19937 random(5);
  int refused = 0, total = 0;
  for (const char* file :
       {"families/llama2", "families/gemma", "families/mistral", "families/phi3",
        "families/deepseek", "families/falcon3", "families/roberta", "families/unknown",
        "families/t5", "families/xlnet", "tokenizers/llama3"}) {
    const json whole = ReadJsonFile(kData + std::string(file) + ".json").value();
    for (int i = 0; i < 60; ++i) {
      SCOPED_TRACE(std::string(file) + " " + std::to_string(i));
      // Mostly the small members, in which each value counts.
      json damaged = whole, parts = whole;
      const bool in_parts = i % 4 != 0;
      if (in_parts) parts.erase("model");
      json* const target = in_parts ? &parts : &damaged;
      for (unsigned n = 1 + random() % 2; n > 0; --n) Mutate(&random, target);
      if (in_parts && parts.is_object()) parts["model"] = whole["model"];
      const Directory directory;
      directory.Write("tokenizer.json", target->dump());
      refused += RefusesOrWorks(directory, "tokenizer.json");
      ++total;
    }
  }
  EXPECT_GT(refused, total / 3);
  EXPECT_LT(refused, total);
}

TEST(TokenizerDirectoryTest, RefusesDamagedBytesByName) {
  std::mt19937 random(6);
  int refused = 0;
  const std::pair<const char*, const char*> files[] = {
      {"converted/llama/", "tokenizer.model"},
      {"converted/unigram/", "tokenizer.model"},
      {"converted/tekken/", "tekken.json"},
  };
  for (const auto& [folder, name] : files) {
    const std::string whole = ReadAll(kData + std::string(folder) + name);
    ASSERT_FALSE(whole.empty());
    for (int i = 0; i < 200; ++i) {
      SCOPED_TRACE(std::string(folder) + " " + std::to_string(i));
      std::string damaged = whole;
      Mutate(&random, &damaged);
      const Directory directory;
      directory.Write(name, damaged);
      refused += RefusesOrWorks(directory, name);
    }
  }
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace quire
