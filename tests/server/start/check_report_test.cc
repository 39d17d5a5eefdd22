// The page of --check: its form, its order of reasons and its exit code.
#include "server/start/check_report.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace quire::testing {
namespace {

TEST(CheckReportTest, WithoutProblemsItWouldStart) {
  CheckReport report;
  report.Refuse(StartStage::kPlan, ExitCode::kModel, absl::OkStatus());
  EXPECT_EQ(report.code(), ExitCode::kOk);
  EXPECT_EQ(CheckPage(report), "would start\n");
}

TEST(CheckReportTest, ShowsSectionsAndNotesBeforeTheVerdict) {
  CheckReport report;
  CheckSection section{.title = "Model"};
  section.Add("layers", "12");
  section.Add("a name of more than one column", "x");
  section.Add("two lines", "first\nsecond");
  report.sections.push_back(section);
  report.warnings.emplace_back("there is no chat template");
  EXPECT_EQ(CheckPage(report),
            "Model\n"
            "  layers              12\n"
            "  a name of more than one column x\n"
            "  two lines           first\n"
            "                      second\n"
            "\n"
            "note: there is no chat template\n"
            "\n"
            "would start\n");
}

TEST(CheckReportTest, JsonHasTheSamePage) {
  CheckReport report;
  EXPECT_EQ(nlohmann::json::parse(CheckJson(report)),
            nlohmann::json::parse(R"({"starts": true, "exit_code": 0, "sections": {}, "notes": [],
                                      "problems": []})"));
  CheckSection section{.title = "Chat template"};
  section.Add("two lines", "first\n\"second\"");
  section.Add("a", "\xff\x1b");
  report.sections.push_back(section);
  report.warnings.emplace_back("a note");
  report.Refuse(StartStage::kTensors, ExitCode::kModel, absl::InvalidArgumentError("b"));
  report.Refuse(StartStage::kCertificates, ExitCode::kBadConfig, absl::NotFoundError("a"));
  EXPECT_EQ(CheckJson(report),
            R"({
  "starts": false,
  "exit_code": 2,
  "sections": {
    "Chat template": {
      "two lines": "first\n\"second\"",
      "a": ")"
            "\xef\xbf\xbd"
            R"(\u001b"
    }
  },
  "notes": [
    "a note"
  ],
  "problems": [
    {
      "exit_code": 2,
      "reason": "a"
    },
    {
      "exit_code": 4,
      "reason": "b"
    }
  ]
}
)");
}

// A start ends at the first stage that refuses it, in whatever order a check found the reasons.
TEST(CheckReportTest, TheFirstStageGivesTheExitCode) {
  CheckReport report;
  report.Refuse(StartStage::kTensors, ExitCode::kModel, absl::InvalidArgumentError("d\ne"));
  report.Refuse(StartStage::kPlan, ExitCode::kDevice, absl::UnavailableError("b"));
  report.Refuse(StartStage::kPlan, ExitCode::kModel, absl::InvalidArgumentError("c"));
  EXPECT_EQ(report.code(), ExitCode::kDevice);
  EXPECT_EQ(CheckPage(report), "would not start (exit code 5):\n  b\n  c\n  d\n  e\n");
  report.Refuse(StartStage::kCertificates, ExitCode::kBadConfig, absl::NotFoundError("a"));
  EXPECT_EQ(report.code(), ExitCode::kBadConfig);
}

TEST(CheckReportTest, APageDoesNotSteerATerminal) {
  CheckReport report;
  report.Refuse(StartStage::kTensors, ExitCode::kModel,
                absl::InvalidArgumentError("tensor \"\x1b[2J\x7f\r\xc3\xa9\": is missing"));
  EXPECT_EQ(
      CheckPage(report),
      "would not start (exit code 4):\n  tensor \"\\x1b[2J\\x7f\\x0d\xc3\xa9\": is missing\n");
}

TEST(CheckReportTest, WritesNumbersForPeople) {
  EXPECT_EQ(CountText(0), "0");
  EXPECT_EQ(CountText(999), "999");
  EXPECT_EQ(CountText(1000), "1,000");
  EXPECT_EQ(CountText(-123456), "-123,456");
  EXPECT_EQ(CountText(1234567890), "1,234,567,890");
  EXPECT_EQ(BytesText(1023), "1023 bytes");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(int64_t{3} << 19), "1.5 MiB");
  EXPECT_EQ(BytesText(int64_t{141} << 30), "141.00 GiB");
}

TEST(CheckReportTest, QuotesTextsOnOneLine) {
  EXPECT_EQ(QuotedText("a\n\"b\"\x1b[1m", 100), "\"a\\n\\\"b\\\"\\u001b[1m\"");
  EXPECT_EQ(QuotedText("abcdef", 3), "\"abc\"...");
  EXPECT_EQ(QuotedText("\xc3\xa9", 1), "\"\xef\xbf\xbd\"...");
}

}  // namespace
}  // namespace quire::testing
