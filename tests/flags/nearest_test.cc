// NearestName: what counts as a slip of the keyboard, and what as another word.
#include "flags/nearest.h"

#include <gtest/gtest.h>

namespace quire::flags {
namespace {

std::string Nearest(std::string_view name) {
  return NearestName(name, {{"model", "model"},
                            {"port", "port"},
                            {"tp", "tensor-parallel-size"},
                            {"max-num-seqs", "max-num-seqs"},
                            {"context-length", "max-model-len"},
                            {"block-size", "block-size"}});
}

TEST(NearestTest, SlipsFindTheirName) {
  EXPECT_EQ(Nearest("modle"), "model");
  EXPECT_EQ(Nearest("prot"), "port");
  EXPECT_EQ(Nearest("max-num-seq"), "max-num-seqs");
  EXPECT_EQ(Nearest("maxnumseqs"), "max-num-seqs");
  EXPECT_EQ(Nearest("contextlength"), "max-model-len");
}

TEST(NearestTest, OtherWordsFindNothing) {
  for (const char* name : {"seed", "enforce-eager", "api-key", "part-two", "p", "tq", ""}) {
    EXPECT_EQ(Nearest(name), "") << name;
  }
}

}  // namespace
}  // namespace quire::flags
