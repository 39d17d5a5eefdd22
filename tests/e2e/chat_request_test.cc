// ReadChat: flags and files of JSON become the chat of a request; what is wrong is named.
#include "clients/cpp/call/chat_request.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "clients/cpp/flags/chat_flags.h"
#include "clients/cpp/flags/invocation.h"

namespace quire::cli {
namespace {

using ::testing::HasSubstr;

class ChatRequestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/chat_request_test_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Written(const std::string& text) {
    const std::string path = folder_ + "/" + std::to_string(++files_) + ".json";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  static absl::StatusOr<v1::ChatMessages> Chat(std::vector<std::string> args) {
    args.insert(args.begin(), "tokenize");
    const ParsedLine parsed = ParseInvocation(args);
    if (!parsed.invocation) return absl::UnknownError(parsed.err);
    EXPECT_TRUE(IsChat(parsed.invocation->tokenize.prompt));
    return ReadChat(parsed.invocation->tokenize.prompt);
  }
  static void ExpectChat(const std::vector<std::string>& args, const std::string& json) {
    const absl::StatusOr<v1::ChatMessages> chat = Chat(args);
    ASSERT_TRUE(chat.ok()) << chat.status();
    v1::ChatMessages want;
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(json, &want).ok()) << json;
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(*chat, want))
        << "got  " << chat->ShortDebugString() << "\nwant " << want.ShortDebugString();
  }
  static std::string Fault(const std::vector<std::string>& args) {
    return std::string(Chat(args).status().message());
  }

  std::string folder_;
  int files_ = 0;
};

TEST_F(ChatRequestTest, EveryFlagReachesItsField) {
  const std::string tools = Written(R"([{"type": "function", "b": 1, "a": [1.5, null, "é"]}, {}])");
  const std::string documents = Written(R"([{"title": "T", "text": "x"}])");
  ExpectChat({"hi", "--tools", tools, "--documents", documents, "--template-kwargs",
              R"({"enable_thinking": false})", "--template-name", "rag", "--template-time",
              "2024-07-06T17:04:09.5+02:00", "--continue-final-message"},
             R"({"tools": ["{\"type\":\"function\",\"b\":1,\"a\":[1.5,null,\"é\"]}", "{}"],
                 "documents": ["{\"title\":\"T\",\"text\":\"x\"}"],
                 "templateKwargs": "{\"enable_thinking\": false}", "templateName": "rag",
                 "templateTime": "2024-07-06T15:04:09.500Z", "continueFinalMessage": true})");
  ExpectChat({"hi", "--no-generation-prompt"}, R"({"addGenerationPrompt": false})");
  ExpectChat({"hi", "--tool-choice", "required"}, R"({"toolChoice": {"mode": "MODE_REQUIRED"}})");
  ExpectChat({"hi", "--tool-choice", "now"},
             R"({"toolChoice": {"mode": "MODE_FUNCTION", "function": "now"}})");
}

TEST_F(ChatRequestTest, MessagesKeepTheirMembersInOrder) {
  const std::string messages = Written(R"([
      {"role": "user", "content": "Weather?"},
      {"role": "assistant", "content": null, "tool_calls": [{"z": 1, "a": {"city": "Rome"}}]},
      {"name": "now", "content": "noon", "tool_call_id": "1", "role": "tool"},
      {"role": "user", "content": [{"type": "text", "text": "x"}]}, {"role": "x"}])");
  ExpectChat({"--messages", messages, "--system", "Be brief."}, R"({"messages": [
      {"role": "system", "content": "Be brief."},
      {"role": "user", "content": "Weather?"},
      {"role": "assistant",
       "members": "{\"content\":null,\"tool_calls\":[{\"z\":1,\"a\":{\"city\":\"Rome\"}}]}"},
      {"role": "tool", "content": "noon", "members": "{\"name\":\"now\",\"tool_call_id\":\"1\"}"},
      {"role": "user", "members": "{\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}"},
      {"role": "x"}]})");
}

TEST_F(ChatRequestTest, TextIsOptionalAfterMessages) {
  PromptFlags flags;
  EXPECT_TRUE(TakesText(flags));  // of stdin
  flags.template_flags.messages = "m.json";
  EXPECT_FALSE(TakesText(flags));
  flags.text = "And then?";
  EXPECT_TRUE(TakesText(flags));
}

TEST_F(ChatRequestTest, NamesFlagFileAndEntry) {
  const std::string none = folder_ + "/none";
  EXPECT_EQ(Fault({"--tools", none}), "--tools " + none + ": cannot be read");
  EXPECT_THAT(Fault({"--tools", folder_}), HasSubstr("cannot be read"));
  const std::string broken = Written("[{]");
  EXPECT_EQ(Fault({"--documents", broken}),
            "--documents " + broken + ": not JSON; check commas, quotes and braces");
  const std::string object = Written("{}");
  EXPECT_EQ(Fault({"--tools", object}),
            "--tools " + object + ": must be a JSON list, [{...}, ...]");
  const std::string mixed = Written("[{}, 5]");
  EXPECT_EQ(Fault({"--tools", mixed}), "--tools " + mixed + ": entry 1: is no object");
  EXPECT_THAT(Fault({"--messages", Written(R"([{"role": "user"}, {"content": "x"}])")}),
              HasSubstr(": message 1: has no role"));
  EXPECT_THAT(Fault({"--messages", Written(std::string(100'000, '['))}),
              HasSubstr("nested deeper than 64"));
  EXPECT_THAT(Fault({"--template-time", "noon"}), HasSubstr("--template-time noon: write it as"));
}

}  // namespace
}  // namespace quire::cli
