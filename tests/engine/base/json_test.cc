// ParseJson and ReadJsonFile: accepted values, refusals, and the text of each refusal.
#include "engine/base/json.h"

#include <unistd.h>

#include <fstream>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// The message with which `text` is refused.
std::string Refusal(std::string_view text, const JsonLimits& limits = {}) {
  auto parsed = ParseJson(text, "the field", limits);
  EXPECT_FALSE(parsed.ok()) << text;
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(parsed.status().message());
}

TEST(ParseJsonTest, BuildsTheWholeValue) {
  auto value = ParseJson(
      R"( {"a": [1, -2, 2.5, true, false, null, "x\u00e9\n"],
           "b": {"a": {}, "c": []}, "d": 18446744073709551615} )",
      "the field");
  ASSERT_TRUE(value.ok()) << value.status();
  const nlohmann::json expected = {
      {"a", {1, -2, 2.5, true, false, nullptr, "x\xC3\xA9\n"}},
      {"b", {{"a", nlohmann::json::object()}, {"c", nlohmann::json::array()}}},
      {"d", 18446744073709551615ull}};
  EXPECT_EQ(*value, expected);
}

TEST(ParseJsonTest, TakesScalarsAtTheTop) {
  EXPECT_EQ(ParseJson("7", "x").value(), 7);
  EXPECT_EQ(ParseJson("\"s\"", "x").value(), "s");
  EXPECT_TRUE(ParseJson("null", "x").value().is_null());
}

TEST(ParseJsonTest, RefusesDuplicateKeysOfOneObjectOnly) {
  EXPECT_EQ(Refusal(R"({"a":1,"a":2})"), "the field: byte 10: duplicate key");
  EXPECT_THAT(Refusal(R"({"x":[{"k":1,"k":1}]})"), HasSubstr("duplicate key"));
  // Two spellings of one key are one key.
  EXPECT_THAT(Refusal(R"({"a":1,"\u0061":2})"), HasSubstr("duplicate key"));
  EXPECT_TRUE(ParseJson(R"({"a":{"a":1},"b":{"a":1}})", "x").ok());
}

TEST(ParseJsonTest, BoundsTheDepth) {
  const JsonLimits limits{.max_depth = 3};
  EXPECT_TRUE(ParseJson("[[[1]]]", "x", limits).ok());
  EXPECT_EQ(Refusal("[[[[1]]]]", limits), "the field: byte 4: nested deeper than 3 levels");
  EXPECT_THAT(Refusal(R"({"a":[{"b":{}}]})", limits), HasSubstr("nested deeper"));
  EXPECT_THAT(Refusal(std::string(10'000'000, '[')), HasSubstr("nested deeper than 64"));
}

TEST(ParseJsonTest, BoundsTheSize) {
  EXPECT_EQ(Refusal("[1,2,3]", JsonLimits{.max_bytes = 6}),
            "the field: 7 bytes of JSON, the limit is 6");
}

TEST(ParseJsonTest, BoundsTheKeysAndValues) {
  const std::string text = R"({"a": [1, [], {}], "b": null})";  // 2 keys, 6 values
  EXPECT_TRUE(ParseJson(text, "x", {.max_values = 8}).ok());
  for (const size_t fewer : {7, 5, 1, 0}) {
    const absl::Status status = ParseJson(text, "x", {.max_values = fewer}).status();
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("more than " + std::to_string(fewer) + " keys and values"));
  }
}

TEST(ParseJsonTest, RefusesWhatIsNotJson) {
  for (std::string_view text :
       {"",        " ",         "{",     "[1,]",     "{\"a\":1,}",  "{} {}",    "[1] x",
        "// c\n1", "/* c */ 1", "NaN",   "Infinity", "01",          "+1",       "1.",
        ".5",      "'a'",       "{a:1}", "\"\\x\"",  "\"\\ud800\"", "\"a\nb\"", "tru",
        "]"}) {
    EXPECT_THAT(Refusal(text), StartsWith("the field: byte ")) << text;
  }
}

TEST(ParseJsonTest, RefusesInvalidUtf8) {
  for (std::string_view text :
       {"\"\xFF\"", "\"\xC0\x80\"", "\"\xED\xA0\x80\"", "\"\xF4\x90\x80\x80\"", "\"\xE2\x82\""}) {
    EXPECT_THAT(Refusal(text), HasSubstr("UTF-8"));
  }
}

TEST(ParseJsonTest, RefusesBytesThatTheLexerSkips) {
  EXPECT_EQ(Refusal(std::string_view("{}\0{", 4)), "the field: byte 2: zero byte");
  EXPECT_EQ(Refusal("\xEF\xBB\xBF{}"), "the field: byte 0: byte order mark");
}

TEST(ParseJsonTest, RefusesNumbersOutOfRange) {
  EXPECT_THAT(Refusal("[1e999]"), HasSubstr("number out of range"));
}

TEST(ParseJsonTest, MessagesHoldNoTextOfTheInput) {
  const std::string message = Refusal("{\"k\": \"private\xFF words\"}");
  EXPECT_THAT(message, StartsWith("the field: byte "));
  EXPECT_EQ(message.find("private"), std::string::npos) << message;
}

TEST(ParseJsonTest, AgreesWithTheLibraryOnMutatedText) {
  const std::string seed = R"({"a":[1,-2.5e3,"\u00e9\\",true],"b":{"c":null,"d":""},"e":[[],{}]})";
  const std::string_view alphabet = "{}[]\",:0123456789.eE+-\\u tfn\n\xC3\xA9";
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string text = seed;
    for (unsigned edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0: text[at] = alphabet[random() % alphabet.size()]; break;
        case 1: text.erase(at, 1 + random() % 3); break;
        default: text.insert(at, 1, alphabet[random() % alphabet.size()]);
      }
    }
    auto ours = ParseJson(text, "x");
    auto theirs = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (ours.ok()) {
      EXPECT_EQ(*ours, theirs) << text;
    } else if (!theirs.is_discarded()) {
      EXPECT_THAT(std::string(ours.status().message()), HasSubstr("duplicate key")) << text;
    }
  }
}

TEST(ReadJsonFileTest, NamesThePath) {
  const std::string dir = ::testing::TempDir();
  EXPECT_EQ(ReadJsonFile(dir + "/absent.json").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ReadJsonFile(dir + "/absent.json").status().message()),
              HasSubstr("absent.json"));
  EXPECT_EQ(ReadJsonFile(dir).status().code(), absl::StatusCode::kInvalidArgument);

  const std::string path = dir + "/json_test_" + std::to_string(getpid()) + ".json";
  std::ofstream(path) << R"({"a": 1})";
  EXPECT_EQ(ReadJsonFile(path).value()["a"], 1);
  EXPECT_THAT(std::string(ReadJsonFile(path, {.max_bytes = 3}).status().message()),
              HasSubstr(path));
  std::ofstream(path) << R"({"a": )";
  EXPECT_THAT(std::string(ReadJsonFile(path).status().message()), StartsWith(path + ": byte 6: "));
  std::ofstream(path) << "";
  EXPECT_FALSE(ReadJsonFile(path).ok());
  unlink(path.c_str());
}

}  // namespace
}  // namespace quire
