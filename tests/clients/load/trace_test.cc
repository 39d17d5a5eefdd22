// Trace files: both forms, and a sentence with file and line for each way to be wrong.
#include "clients/load/workload/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "clients/load/workload/prompt_file.h"

namespace quire::load {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string Written(const std::string& text) {
  const std::string path = testing::TempDir() + "/trace_test.txt";
  std::ofstream(path) << text;
  return path;
}

std::string Fault(const std::string& text) {
  const auto rows = ReadTrace(Written(text), 512);
  EXPECT_FALSE(rows.ok()) << text;
  return std::string(rows.status().message());
}

constexpr char kGood[] = R"({"timestamp": 5000, "input_length": 600, "output_length": 7})"
                         "\n";

TEST(TraceTest, JsonLinesWithMilliseconds) {
  const auto rows =
      ReadTrace(Written(absl::StrCat(kGood, R"({"timestamp": 5250.5, "input_length": 1024,)",
                                     R"( "output_length": 1, "hash_ids": [46, -3]})", "\r\n")),
                512);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].arrival_seconds, 0);
  EXPECT_EQ((*rows)[0].input_length, 600);
  EXPECT_EQ((*rows)[0].output_length, 7);
  EXPECT_TRUE((*rows)[0].hash_ids.empty());
  EXPECT_NEAR((*rows)[1].arrival_seconds, 0.2505, 1e-12);
  EXPECT_THAT((*rows)[1].hash_ids, ElementsAre(46, -3));
}

TEST(TraceTest, JsonLinesWithSeconds) {
  const auto rows =
      ReadTrace(Written(R"({"arrival_s": 1, "input_length": 1, "output_length": 2})"
                        "\n"
                        R"({"arrival_s": 1.75, "input_length": 3, "output_length": 4})"),
                512);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[1].arrival_seconds, 0.75);
}

// Across midnight, a month's and a leap year's end.
TEST(TraceTest, CsvWithTimestamps) {
  const auto rows = ReadTrace(Written("TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                                      "2024-02-28 23:59:59.5000000,374,44\r\n"
                                      "2024-03-01 00:00:00.7500000,396,109\r\n"),
                              512);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].input_length, 374);
  EXPECT_EQ((*rows)[1].output_length, 109);
  EXPECT_NEAR((*rows)[1].arrival_seconds, 86401.25, 1e-6);
}

TEST(TraceTest, FaultsNameFileAndLine) {
  EXPECT_THAT(Fault(absl::StrCat(kGood, "\n", kGood)),
              AllOf(HasSubstr("trace_test.txt, line 2"), HasSubstr("empty")));
  EXPECT_THAT(Fault(absl::StrCat(kGood, "{\"timestamp\": 6000, \"inp")),
              AllOf(HasSubstr("line 2"), HasSubstr("no JSON object")));
  EXPECT_THAT(Fault(R"({"timestamp": 1, "output_length": 7})"),
              AllOf(HasSubstr("line 1"), HasSubstr("input_length")));
  EXPECT_THAT(Fault(R"({"timestamp": 1, "input_length": 7})"), HasSubstr("output_length"));
  EXPECT_THAT(Fault(R"({"input_length": 7, "output_length": 7})"), HasSubstr("arrival_s"));
  EXPECT_THAT(Fault(R"({"timestamp": "now", "input_length": 7, "output_length": 7})"),
              HasSubstr("\"now\""));
  EXPECT_THAT(Fault(R"({"timestamp": 1, "input_length": -7, "output_length": 7})"),
              AllOf(HasSubstr("input_length"), HasSubstr("-7")));
  EXPECT_THAT(Fault(R"({"timestamp": 1, "input_length": 7, "output_length": 0})"),
              HasSubstr("output_length"));
  EXPECT_THAT(Fault(R"({"timestamp": 1, "input_length": 7.5, "output_length": 1})"),
              HasSubstr("7.5"));
  EXPECT_THAT(Fault(R"({"timestamp": 1, "input_length": 1e99, "output_length": 1})"),
              HasSubstr("input_length"));
  EXPECT_THAT(
      Fault(absl::StrCat(kGood, R"({"timestamp": 4999, "input_length": 7, "output_length": 1})")),
      AllOf(HasSubstr("line 2"), HasSubstr("earlier")));
  EXPECT_THAT(
      Fault(R"({"timestamp": 1, "input_length": 7, "output_length": 1, "hash_ids": [1,2]})"),
      AllOf(HasSubstr("2 hash_ids"), HasSubstr("--trace-block")));
  EXPECT_THAT(
      Fault(R"({"timestamp": 1, "input_length": 7, "output_length": 1, "hash_ids": ["a"]})"),
      HasSubstr("hash_ids"));
  EXPECT_THAT(Fault(""), HasSubstr("no rows"));
}

TEST(TraceTest, FaultsOfCsv) {
  const std::string header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  EXPECT_THAT(Fault(header), HasSubstr("no rows"));
  EXPECT_THAT(Fault(header + "2024-02-28 23:59:59,374"), HasSubstr("three columns"));
  EXPECT_THAT(Fault(header + "2024-02-28 23:59:59,374,5,6"), HasSubstr("three columns"));
  EXPECT_THAT(Fault(header + "yesterday,374,5"), HasSubstr("yesterday"));
  EXPECT_THAT(Fault(header + "2024-13-28 23:59:59,374,5"), HasSubstr("TIMESTAMP"));
  EXPECT_THAT(Fault(header + "2024-02-28 23:59:59,-374,5"),
              AllOf(HasSubstr("line 2"), HasSubstr("ContextTokens")));
  EXPECT_THAT(Fault(header + "2024-02-28 23:59:59,374,"), HasSubstr("GeneratedTokens"));
  EXPECT_THAT(Fault(header + "2024-02-28 23:59:59,3,4\n2024-02-28 23:59:58,3,4"),
              AllOf(HasSubstr("line 3"), HasSubstr("earlier")));
}

TEST(TraceTest, AMissingFileIsNamed) {
  const auto rows = ReadTrace("/nowhere/trace.jsonl", 512);
  EXPECT_THAT(std::string(rows.status().message()), HasSubstr("/nowhere/trace.jsonl"));
}

TEST(PromptFileTest, LinesAndObjects) {
  const auto prompts = ReadPromptFile(Written("plain words\n{\"prompt\": \"of\\nJSON\"}\n"));
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  EXPECT_THAT(*prompts, ElementsAre("plain words", "of\nJSON"));
}

TEST(PromptFileTest, FaultsNameFileAndLine) {
  EXPECT_THAT(std::string(ReadPromptFile(Written("a\n\nb")).status().message()),
              AllOf(HasSubstr("trace_test.txt, line 2"), HasSubstr("empty")));
  EXPECT_THAT(std::string(ReadPromptFile(Written("{\"text\": 1}")).status().message()),
              HasSubstr("\"prompt\""));
  EXPECT_THAT(std::string(ReadPromptFile(Written("")).status().message()), HasSubstr("no lines"));
  EXPECT_FALSE(ReadPromptFile("/nowhere/prompts").ok());
}

}  // namespace
}  // namespace quire::load
