// The archive's form; that other programs read it is shown by tests/e2e/gateway_test.py.
#include "server/wire/vllm_engine/tokenizer_bundle.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace quire {
namespace {

class TokenizerBundleTest : public ::testing::Test {
 protected:
  TokenizerBundleTest() : folder_(std::filesystem::path(::testing::TempDir()) / "bundle") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  void Put(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  const std::filesystem::path folder_;
};

TEST_F(TokenizerBundleTest, HasTheFilesOfATokenizerAndNoOthers) {
  Put("tokenizer.json", "abc");
  Put("model.safetensors", "weights");
  const auto bundle = BundleTokenizer(folder_);
  ASSERT_TRUE(bundle.ok());
  // One stored entry by hand: header with the CRC 0x352441C2 of "abc", name, bytes.
  const std::string local(
      "PK\3\4\x14\0\0\0\0\0\0\0\x21\0\xC2\x41\x24\x35\3\0\0\0\3\0\0\0\x0E\0\0\0", 30);
  EXPECT_EQ(bundle->zip.substr(0, 47), local + "tokenizer.jsonabc");
  EXPECT_EQ(bundle->zip.find("safetensors"), std::string::npos);
  EXPECT_EQ(bundle->sha256.size(), 64u);
}

TEST_F(TokenizerBundleTest, EqualFilesMakeEqualArchives) {
  Put("tokenizer.json", "abc");
  SharedTokenizerBundle shared(folder_);
  const auto first = shared.Get();
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*first, *shared.Get()) << "readers share one archive";
  EXPECT_EQ((*first)->sha256, BundleTokenizer(folder_)->sha256);
}

TEST_F(TokenizerBundleTest, AnotherChatTemplateReplacesThatOfTheDirectory) {
  Put("tokenizer.json", "abc");
  Put("mine.txt", "mine");
  const auto alone = BundleTokenizer(folder_, folder_ / "mine.txt");
  ASSERT_TRUE(alone.ok());
  EXPECT_NE(alone->zip.find("chat_template.jinjamine"), std::string::npos);
  Put("chat_template.jinja", "theirs");
  EXPECT_EQ(BundleTokenizer(folder_, folder_ / "mine.txt")->zip, alone->zip);
  EXPECT_NE(BundleTokenizer(folder_)->zip.find("chat_template.jinjatheirs"), std::string::npos);
}

TEST_F(TokenizerBundleTest, ADirectoryWithoutATokenizerIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(BundleTokenizer(folder_).status()));
}

}  // namespace
}  // namespace quire
