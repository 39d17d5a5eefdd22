// ChatCodec: what reaches the template, and the field of each refusal.
#include "server/call/chat_codec.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quire/v1/inference.pb.h"
#include "server/call/status_codec.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// Prints all that a template is given.
constexpr char kShowAll[] =
    "{{ messages|tojson }} {{ tools|tojson }} {{ documents|tojson }} {{ extra|default('-') }} "
    "{{ add_generation_prompt }}";

const ChatTemplates& Templates() {
  static const auto& templates = *new ChatTemplates(ChatTemplates::Of(kShowAll, {}).value());
  return templates;
}

v1::ChatMessages Chat() {
  v1::ChatMessages chat;
  chat.add_messages()->set_role("user");
  chat.mutable_messages(0)->set_content("Hi");
  return chat;
}

std::string Rendered(const v1::ChatMessages& chat, const ChatTemplates& templates = Templates()) {
  const auto decoded = DecodeChat(chat, templates);
  EXPECT_TRUE(decoded.ok()) << decoded.status();
  return decoded.ok() ? RenderChat(*decoded).value_or("") : "";
}

// "field: message" of a refusal.
std::string Refused(const v1::ChatMessages& chat, const ChatTemplates& templates = Templates()) {
  const absl::Status status = DecodeChat(chat, templates).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return FieldOf(status) + ": " + std::string(status.message());
}

TEST(ChatCodecTest, GivesTheTemplateAllThatWasSent) {
  v1::ChatMessages chat = Chat();
  EXPECT_EQ(Rendered(chat), R"([{"role": "user", "content": "Hi"}] null null - True)");
  v1::ChatMessage& call = *chat.add_messages();
  call.set_role("assistant");
  call.set_members(R"({"content": null, "tool_calls": [{"b": 1, "a": 1.0}]})");
  chat.add_tools(R"({"type": "function", "function": {"name": "f"}})");
  chat.add_documents(R"({"title": "t", "text": "x"})");
  chat.set_template_kwargs(R"({"extra": [1]})");
  chat.set_add_generation_prompt(false);
  EXPECT_EQ(Rendered(chat),
            R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null, )"
            R"("tool_calls": [{"b": 1, "a": 1.0}]}] )"
            R"([{"type": "function", "function": {"name": "f"}}] )"
            R"([{"title": "t", "text": "x"}] [1] False)");
}

TEST(ChatCodecTest, TellsTheTimeOfTheRequest) {
  const ChatTemplates clock = ChatTemplates::Of("{{ strftime_now('%Y') }}", {}).value();
  v1::ChatMessages chat = Chat();
  chat.mutable_template_time()->set_seconds(1'000'000'000);  // 9 September 2001
  EXPECT_EQ(Rendered(chat, clock), "2001");
  chat.mutable_template_time()->set_seconds(INT64_MAX);
  EXPECT_THAT(Refused(chat), HasSubstr("chat.template_time: "));
}

TEST(ChatCodecTest, ContinuesTheFinalMessage) {
  const ChatTemplates plain = ChatTemplates::Of("<{{ messages[-1].content }}>", {}).value();
  v1::ChatMessages chat = Chat();
  chat.set_continue_final_message(true);
  EXPECT_EQ(Rendered(chat, plain), "<Hi");
  chat.set_add_generation_prompt(true);
  EXPECT_THAT(Refused(chat), HasSubstr("chat.continue_final_message: "));
}

TEST(ChatCodecTest, NamesTheFieldOfARefusal) {
  const auto with = [](auto change) {
    v1::ChatMessages chat = Chat();
    change(&chat);
    return Refused(chat);
  };
  using Messages = v1::ChatMessages;
  EXPECT_THAT(with([](Messages* c) { c->clear_messages(); }), HasSubstr("chat.messages: "));
  EXPECT_THAT(with([](Messages* c) { c->mutable_messages(0)->clear_role(); }),
              HasSubstr("chat.messages[0].role: "));
  EXPECT_THAT(with([](Messages* c) { c->mutable_messages(0)->set_members("{\"role\": 1}"); }),
              HasSubstr("chat.messages[0].members: "));
  EXPECT_THAT(with([](Messages* c) { c->mutable_messages(0)->set_members(R"({"content": ""})"); }),
              HasSubstr("chat.messages[0].members: "));
  EXPECT_THAT(with([](Messages* c) { c->add_tools("{}"), c->add_tools("{\"a\": }"); }),
              HasSubstr("chat.tools[1]: "));
  EXPECT_THAT(with([](Messages* c) { c->add_tools("[]"); }), HasSubstr("must be a JSON object"));
  EXPECT_THAT(with([](Messages* c) { c->add_documents(std::string(40, '[')); }),
              HasSubstr("nested deeper than 32"));
  EXPECT_THAT(with([](Messages* c) { c->set_template_kwargs(R"({"tools": []})"); }),
              HasSubstr("chat.template_kwargs: "));
  EXPECT_THAT(with([](Messages* c) {
                for (int i = 0; i < 1025; ++i) c->add_tools("{}");
              }),
              HasSubstr("at most 1024"));
  EXPECT_THAT(with([](Messages* c) { c->set_template_name("rag"); }),
              HasSubstr("chat.template_name: "));
}

TEST(ChatCodecTest, RefusesManyTemplateKwargs) {
  std::string kwargs = "{\"k0\": 0";
  for (int i = 1; i < 257; ++i) kwargs += ", \"k" + std::to_string(i) + "\": 0";
  v1::ChatMessages chat = Chat();
  chat.set_template_kwargs(kwargs + "}");
  EXPECT_THAT(Refused(chat),
              HasSubstr("chat.template_kwargs: chat.template_kwargs: must have at most 256"));
}

// gRPC's threads check a chat; a job of the text pool reads its texts.
TEST(ChatCodecTest, ChecksAChatWithoutReadingItsTexts) {
  v1::ChatMessages chat = Chat();
  chat.add_tools("{");
  EXPECT_TRUE(CheckChat(chat, Templates()).ok());
  EXPECT_THAT(Refused(chat), HasSubstr("chat.tools[0]: "));
  chat.clear_messages();
  EXPECT_EQ(FieldOf(CheckChat(chat, Templates())), "chat.messages");
}

TEST(ChatCodecTest, SaysWhyATemplateIsRefused) {
  const absl::Status none = DecodeChat(Chat(), ChatTemplates()).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(none), "NO_CHAT_TEMPLATE");
  const ChatTemplates raises = ChatTemplates::Of("\n{{ raise_exception('no tools') }}", {}).value();
  const absl::Status raised = RenderChat(DecodeChat(Chat(), raises).value()).status();
  EXPECT_EQ(FieldOf(raised), "chat");
  EXPECT_THAT(std::string(raised.message()), HasSubstr("no tools"));
}

}  // namespace
}  // namespace quire
