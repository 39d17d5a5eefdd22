// The formats of weights that are refused with the command that converts them, and the names of
// directories as people know them.
#include "engine/model/checkpoint/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/engine/model/temp_dir.h"

namespace quire::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

std::string Message(const std::string& model) {
  const absl::Status status = CheckWeightsFormat(model);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status));
  return std::string(status.message());
}

TEST(ModelFilesTest, TorchAloneIsRefusedWithTheCommandThatConvertsIt) {
  const TempDir dir;
  EXPECT_EQ(Message(dir.path()), "");
  const std::string file = dir.Write("pytorch_model-00001-of-00002.bin", "x");
  for (const std::string& model : {dir.path(), dir.path() + "/"}) {
    EXPECT_THAT(Message(model),
                AllOf(HasSubstr("--model: " + file + " holds weights as a pickle of torch"),
                      HasSubstr("k = {}; t.AutoModelForCausalLM.from_pretrained"),
                      EndsWith(" '" + dir.path() + "' '" + dir.path() + "-safetensors'")));
  }
  dir.Write("model.safetensors", "x");
  EXPECT_EQ(Message(dir.path()), "");
}

TEST(ModelFilesTest, OtherFilesWithThatEndingAreNoWeights) {
  const TempDir dir;
  dir.Write("training_args.bin", "x");
  EXPECT_EQ(Message(dir.path()), "");
  EXPECT_EQ(Message(dir.path() + "/missing"), "");
}

TEST(ModelFilesTest, GgufIsRefusedAsAFileAndInADirectory) {
  const TempDir dir;
  const std::string file = dir.Write("it's-q4.gguf", "x");
  for (const std::string& model : {dir.path(), file}) {
    EXPECT_THAT(Message(model), AllOf(HasSubstr("--model: " + file + " holds weights as GGUF"),
                                      HasSubstr("k = {\"gguf_file\": f[0]};"),
                                      EndsWith(" '" + dir.path() + "' '" + dir.path() +
                                               "/it'\\''s-q4-safetensors' 'it'\\''s-q4.gguf'")));
  }
}

TEST(ModelFilesTest, SnapshotsHaveTheNameOfTheirRepository) {
  const TempDir dir;
  const std::string snapshots = dir.path() + "/models--meta-llama--Llama-3.1-8B/snapshots/";
  const std::string revision = snapshots + "0e9e39f249a16976918f6564b8830bc894c89659";
  std::filesystem::create_directories(revision);
  EXPECT_EQ(RepositoryName(revision), "meta-llama/Llama-3.1-8B");
  EXPECT_EQ(RepositoryName(revision + "/"), "meta-llama/Llama-3.1-8B");
  std::filesystem::create_directory_symlink(revision, dir.path() + "/latest");
  EXPECT_EQ(RepositoryName(dir.path() + "/latest"), "meta-llama/Llama-3.1-8B");
  EXPECT_EQ(RepositoryName(dir.path() + "/models--gpt2/snapshots/1"), "gpt2");
  EXPECT_EQ(RepositoryName(dir.path() + "/models--a--b--c/snapshots/1"), "a/b--c");
  // Neither half of the form alone makes a snapshot.
  EXPECT_EQ(RepositoryName(dir.path() + "/other/snapshots/1"), "1");
  EXPECT_EQ(RepositoryName(dir.path() + "/models--a--b"), "models--a--b");
  EXPECT_EQ(RepositoryName("/models/demo/"), "demo");
}

}  // namespace
}  // namespace quire::testing
