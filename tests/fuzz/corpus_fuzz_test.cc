// Each fuzz target on the inputs of its corpus: those that reach the most code, and those that once
// were findings, which "! " marks. A file of tests/fuzz/corpora has one input a line, in base64.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/strip.h"
#include "engine/base/log.h"
#include "tests/fuzz/targets/targets.h"

namespace quire {

void PrintTo(const FuzzTarget& target, std::ostream* out) { *out << target.name; }

namespace {

constexpr char kCorpora[] = QUIRE_SOURCE_DIR "/tests/fuzz/corpora/";

class CorpusFuzzTest : public ::testing::TestWithParam<FuzzTarget> {
 protected:
  static void SetUpTestSuite() {
    // Damaged files of sessions are told of.
    StartLog(LogFormat::kText, Severity::kError, open("/dev/null", O_WRONLY | O_CLOEXEC));
  }
  static void TearDownTestSuite() { StopLog(); }
};

TEST_P(CorpusFuzzTest, KeepsItsContractOnEachInput) {
  std::ifstream file(kCorpora + std::string(GetParam().name) + ".txt");
  ASSERT_TRUE(file.good()) << "no corpus of this target";
  int inputs = 0;
  for (std::string line; std::getline(file, line); ++inputs) {
    std::string input;
    ASSERT_TRUE(absl::Base64Unescape(absl::StripPrefix(line, "! "), &input)) << inputs + 1;
    GetParam().run(input);
  }
  EXPECT_GT(inputs, 0);
}

INSTANTIATE_TEST_SUITE_P(Targets, CorpusFuzzTest, ::testing::ValuesIn(FuzzTargets()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CorporaTest, EachIsOfATarget) {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(kCorpora)) {
    const std::string name = file.path().stem().string();
    EXPECT_NE(FindFuzzTarget(name), nullptr) << file.path();
    names.insert(name);
  }
  EXPECT_EQ(names.size(), FuzzTargets().size());
}

}  // namespace
}  // namespace quire
