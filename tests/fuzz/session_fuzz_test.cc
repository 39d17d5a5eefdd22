// Mutated files of sessions: exports, journals, and a directory of them.
#include <fcntl.h>

#include <string>
#include <vector>

#include "engine/base/log.h"
#include "gtest/gtest.h"
#include "tests/fuzz/mutator.h"
#include "tests/fuzz/targets/session_seeds.h"
#include "tests/fuzz/targets/session_targets.h"

namespace quire {
namespace {

const std::vector<std::string> kWords = {
    std::string(1, '\0'),   std::string(4, '\0'), std::string("\1\0\0\0", 4),   "\xFF",
    std::string(4, '\xFF'), "QUIRESES",           std::string("\0\0\0\x80", 4), "QUIREEND"};

TEST(SessionFuzzTest, ExportedSession) {
  Mutator files({SeedSessionFile(0), SeedSessionFile(5), SeedSessionFile(kSeedTokens)}, kWords, 31);
  for (int i = 0; i < 20000; ++i) FuzzSessionFile(files.Next());
}

TEST(SessionFuzzTest, Journal) {
  Mutator files({SeedJournal()}, kWords, 32);
  for (int i = 0; i < 30000; ++i) FuzzJournal(files.Next());
}

TEST(SessionFuzzTest, Directory) {
  // Thousands of damaged journals are told of.
  StartLog(LogFormat::kText, Severity::kError, open("/dev/null", O_WRONLY | O_CLOEXEC));
  Mutator files({SeedJournal(), SeedSessionFile(5)}, kWords, 33);
  for (int i = 0; i < 5000; ++i) FuzzSessionDirectory(files.Next());
}

}  // namespace
}  // namespace quire
