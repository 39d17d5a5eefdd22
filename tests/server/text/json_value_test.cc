// ReadJsonValue: kinds of values, the order of members, and the limits of requests.
#include "server/text/template/json_value.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/text/jinja/values/format.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

std::string Fault(const std::string& text) {
  const auto value = ReadJsonValue(text, "chat.tools[1]");
  EXPECT_FALSE(value.ok()) << text.substr(0, 80);
  EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(value.status().message());
}

TEST(JsonValueTest, KeepsTheOrderOfMembers) {
  const auto value =
      ReadJsonValue(R"({"b": [1, 2.0, -3, "x\u00e9"], "a": {"z": null, "y": true}})", "x");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(jinja::ToString(ReadJsonValue("100000000000000000000.0", "x").value()), "1e+20");
  EXPECT_EQ(jinja::ToString(*value), "{'b': [1, 2.0, -3, 'x\u00e9'], 'a': {'z': None, 'y': True}}");
}

TEST(JsonValueTest, NamesTheFieldAndThePlace) {
  EXPECT_THAT(Fault("{\"a\": }"), HasSubstr("chat.tools[1]: byte 7"));
  EXPECT_THAT(Fault(R"({"a": 1, "a": 2})"), HasSubstr("duplicate key"));
  EXPECT_THAT(Fault("18446744073709551615"), HasSubstr("64 bits"));
  EXPECT_THAT(Fault("100000000000000000000"), HasSubstr("64 bits"));
  EXPECT_THAT(Fault("[-9223372036854775809]"), HasSubstr("64 bits"));
  EXPECT_THAT(Fault("\"\xC3\""), HasSubstr("UTF-8"));
  EXPECT_THAT(Fault(std::string(33, '[') + std::string(33, ']')), HasSubstr("deeper than 32"));
  std::string many = "[0";
  for (int i = 0; i < 70'000; ++i) many += ",0";
  EXPECT_THAT(Fault(many + "]"), HasSubstr("more than 65536"));
}

TEST(JsonValueTest, ReadsWideObjectsInLinearTime) {
  std::string wide = "{";
  for (int i = 0; i < 30'000; ++i) wide += "\"k" + std::to_string(i) + "\": 0,";
  EXPECT_TRUE(ReadJsonValue(wide + "\"end\": 1}", "x").ok());
}

}  // namespace
}  // namespace quire
