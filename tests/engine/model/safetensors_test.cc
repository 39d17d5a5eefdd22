// Checkpoint against good files and against one bad file for every rule of the format.
#include "engine/model/checkpoint/safetensors.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/engine/model/temp_dir.h"

namespace quire::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char kGoodHeader[] = R"({"__metadata__":{"format":"pt"},)"
                           R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                           R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},)"
                           R"("empty":{"dtype":"F16","shape":[0,7],"data_offsets":[24,24]},)"
                           R"("scalar":{"dtype":"I64","shape":[],"data_offsets":[32,40]}} )";

std::string GoodData() {
  std::string data;
  for (int i = 0; i < 40; ++i) data += static_cast<char>(i);
  return data;
}

// The message of opening a directory with this model.safetensors.
std::string OpenMessage(const std::string& bytes) {
  TempDir dir;
  dir.Write("model.safetensors", bytes);
  absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  EXPECT_FALSE(checkpoint.ok());
  const std::string message(checkpoint.status().message());
  EXPECT_THAT(message, HasSubstr(dir.path() + "/model.safetensors"));
  EXPECT_LT(message.size(), 400u);
  return message;
}

TEST(SafetensorsTest, ReadsTensorsOfEveryShape) {
  TempDir dir;
  dir.Write("model.safetensors", SafetensorsBytes(kGoodHeader, GoodData()));
  absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  ASSERT_EQ(checkpoint->tensors().size(), 4u);
  const StoredTensor& a = checkpoint->tensors().at("a");
  EXPECT_EQ(a.dtype, "F32");
  EXPECT_THAT(a.shape, ElementsAre(2, 3));
  EXPECT_EQ(a.bytes, 24u);
  EXPECT_EQ(checkpoint->path(a), dir.path() + "/model.safetensors");
  char bytes[3];
  ASSERT_TRUE(checkpoint->Read("b", 5, bytes).ok());
  EXPECT_THAT(bytes, ElementsAre(29, 30, 31));
  EXPECT_EQ(checkpoint->tensors().at("scalar").bytes, 8u);
}

TEST(SafetensorsTest, RefusesEveryTruncation) {
  const std::string good = SafetensorsBytes(kGoodHeader, GoodData());
  for (size_t size = 0; size < good.size(); ++size) {
    SCOPED_TRACE(size);
    OpenMessage(good.substr(0, size));
  }
}

TEST(SafetensorsTest, RefusesWrongLengths) {
  const std::string good = SafetensorsBytes(kGoodHeader, GoodData());
  const auto with_length = [&good](uint64_t length) {
    std::string bytes = good;
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i));
    return OpenMessage(bytes);
  };
  EXPECT_THAT(with_length(0), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(with_length(1), HasSubstr("header: byte"));
  EXPECT_THAT(with_length(sizeof(kGoodHeader)), HasSubstr("header: byte"));
  EXPECT_THAT(with_length(64 << 20), HasSubstr("header of 67108864 bytes in a file of"));
  EXPECT_THAT(with_length((64 << 20) + 1), HasSubstr("the limit is 67108864"));
  EXPECT_THAT(with_length(uint64_t{1} << 63), HasSubstr("the limit is"));
  EXPECT_THAT(with_length(~uint64_t{0}), HasSubstr("the limit is"));
}

// Far more tensors than a real file has, each with a long name.
TEST(SafetensorsTest, TakesAHundredThousandTensors) {
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i) {
    const std::string at = std::to_string(i);
    header += (i == 0 ? "\"model.layers.61.mlp.experts." : ",\"model.layers.61.mlp.experts.") + at +
              R"(.down_proj.weight":{"dtype":"U8","shape":[1,1],"data_offsets":[)" + at + "," +
              std::to_string(i + 1) + "]}";
  }
  TempDir dir;
  dir.Write("model.safetensors", SafetensorsBytes(header + "}", std::string(100'000, 'x')));
  absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->tensors().size(), 100'000u);
}

// A header of nothing but brackets takes twenty times its size as a tree, and is given up early.
TEST(SafetensorsTest, RefusesAHeaderThatIsAllStructure) {
  std::string header = R"({"a":[[])";
  for (int i = 0; i < 5'000'000; ++i) header += ",[]";
  const std::string message = OpenMessage(SafetensorsBytes(header + "]}", ""));
  EXPECT_THAT(message, HasSubstr("header: byte 12582"));  // of 15,000,000
  EXPECT_THAT(message, HasSubstr("more than 4194304 keys and values"));
}

TEST(SafetensorsTest, RefusesBytesAfterTheLastTensor) {
  EXPECT_THAT(OpenMessage(SafetensorsBytes(kGoodHeader, GoodData() + "x")),
              HasSubstr("1 bytes after the last tensor"));
}

struct BadHeader {
  const char* header;
  const char* message;
};

TEST(SafetensorsTest, RefusesBadHeadersByTensorAndRule) {
  const BadHeader cases[] = {
      {"[]", "does not begin with '{'"},
      {" {}", "does not begin with '{'"},
      {"{", "header: byte"},
      {R"({"a":)", "header: byte"},
      {R"({} {})", "header: byte"},
      {"{\"\xff\":{}}", "header: byte"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
       R"("a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
       "duplicate"},
      {R"({"a":{"dtype":"U8","shape":[[8]],"data_offsets":[0,8]}})", "nested"},
      {R"({"__metadata__":{"format":1},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
       "__metadata__"},
      {R"({"__metadata__":"pt","a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
       "__metadata__"},
      {R"({"a":[]})", "tensor \"a\": not an object of exactly"},
      {R"({"a":{"dtype":"U8","shape":[8]}})", "tensor \"a\": not an object of exactly"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"more":1}})",
       "tensor \"a\": not an object of exactly"},
      {R"({"a":{"dtype":"U8","shape":[8],"offsets":[0,8]}})", "not an object of exactly"},
      {R"({"a":{"dtype":"Q4_K","shape":[8],"data_offsets":[0,8]}})", "tensor \"a\": unknown dtype"},
      {R"({"a":{"dtype":8,"shape":[8],"data_offsets":[0,8]}})", "tensor \"a\": unknown dtype"},
      {R"({"a":{"dtype":"U8","shape":8,"data_offsets":[0,8]}})", "shape is not a list"},
      {R"({"a":{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}})", "shape is not a list"},
      {R"({"a":{"dtype":"U8","shape":[8.0],"data_offsets":[0,8]}})", "shape is not a list"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,8]}})",
       "shape is not a list"},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,8],"data_offsets":[0,8]}})",
       "more than 8 dimensions"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})",
       "shape overflows"},
      {R"({"a":{"dtype":"F64","shape":[2305843009213693953],"data_offsets":[0,8]}})",
       "shape overflows"},
      {R"({"a":{"dtype":"F4","shape":[15],"data_offsets":[0,8]}})", "whole bytes"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0]}})", "two sizes"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8,8]}})", "two sizes"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[-8,0]}})", "two sizes"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[8,0]}})", "begins at 8, ends at 0"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,7]}})", "need 8 bytes"},
      {R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})",
       "tensor \"a\": ends at byte 9 of 8"},
      {R"({"a":{"dtype":"U8","shape":[8],)"
       R"("data_offsets":[9223372036854775799,9223372036854775807]}})",
       "leaves a hole"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[5],"data_offsets":[3,8]}})",
       "tensor \"b\": overlaps"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
       R"("b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
       "tensor \"b\": overlaps"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
       R"("b":{"dtype":"U8","shape":[0],"data_offsets":[3,3]}})",
       "tensor \"b\": overlaps"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
       "tensor \"b\": leaves a hole from byte 3 to 4"},
      {R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[1,8]}})",
       "tensor \"a\": leaves a hole from byte 0 to 1"},
      {"{}", "8 bytes after the last tensor"},
  };
  for (const BadHeader& bad : cases) {
    SCOPED_TRACE(bad.header);
    EXPECT_THAT(OpenMessage(SafetensorsBytes(bad.header, "01234567")), HasSubstr(bad.message));
  }
}

TEST(SafetensorsTest, AFileOfAnotherNameHasToBeRenamed) {
  const auto message = [](std::initializer_list<const char*> files) {
    const TempDir dir;
    for (const char* file : files) dir.Write(file, "");
    const absl::Status status = Checkpoint::Open(dir.path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    return std::string(status.message());
  };
  EXPECT_THAT(message({}), HasSubstr("have to be converted"));
  EXPECT_THAT(message({"gptq_model-4bit.safetensors", "README.md"}),
              HasSubstr("; rename gptq_model-4bit.safetensors to model.safetensors"));
  EXPECT_THAT(message({"one.safetensors", "two.safetensors"}), HasSubstr("have to be converted"));
  for (const char* no_model : {"model-00001-of-00002.safetensors", "adapter_model.safetensors",
                               "consolidated.safetensors"}) {
    EXPECT_THAT(message({no_model}), HasSubstr("have to be converted"));
  }
}

TEST(SafetensorsTest, RefusesSpecialFilesWithoutBlocking) {
  {
    TempDir dir;
    ASSERT_EQ(mkfifo((dir.path() + "/model.safetensors").c_str(), 0600), 0);
    EXPECT_THAT(std::string(Checkpoint::Open(dir.path()).status().message()),
                HasSubstr("not a regular file"));
  }
  {
    TempDir dir;
    std::filesystem::create_directory(dir.path() + "/model.safetensors");
    EXPECT_THAT(std::string(Checkpoint::Open(dir.path()).status().message()),
                HasSubstr("not a regular file"));
  }
}

TEST(SafetensorsTest, NamesTheTensorWhenTheFileShrinksAfterItWasOpened) {
  TempDir dir;
  const std::string file =
      dir.Write("model.safetensors", SafetensorsBytes(kGoodHeader, GoodData()));
  absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok());
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 20);
  char bytes[24];
  EXPECT_TRUE(checkpoint->Read("a", 0, std::span(bytes).first(20)).ok());
  EXPECT_THAT(std::string(checkpoint->Read("a", 0, bytes).message()),
              AllOf(HasSubstr(file), HasSubstr("tensor \"a\""), HasSubstr("the file ends")));
}

// Two shards of one tensor each and their index.
class ShardTest : public ::testing::Test {
 protected:
  ShardTest() {
    dir_.Write("x.safetensors", Shard("a"));
    dir_.Write("y.safetensors", Shard("b"));
  }
  static std::string Shard(const std::string& name) {
    return SafetensorsBytes("{\"" + name + R"(":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                            name + name);
  }
  absl::StatusOr<Checkpoint> OpenWith(const std::string& index) {
    dir_.Write("model.safetensors.index.json", index);
    return Checkpoint::Open(dir_.path());
  }
  std::string Message(const std::string& index) {
    absl::StatusOr<Checkpoint> checkpoint = OpenWith(index);
    EXPECT_FALSE(checkpoint.ok());
    const std::string message(checkpoint.status().message());
    EXPECT_THAT(message, HasSubstr(dir_.path()));
    return message;
  }
  TempDir dir_;
};

TEST_F(ShardTest, ReadsEachTensorFromItsShard) {
  absl::StatusOr<Checkpoint> checkpoint =
      OpenWith(R"({"weight_map":{"a":"x.safetensors","b":"y.safetensors"}})");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  char bytes[2];
  ASSERT_TRUE(checkpoint->Read("b", 0, bytes).ok());
  EXPECT_THAT(bytes, ElementsAre('b', 'b'));
  EXPECT_EQ(checkpoint->path(checkpoint->tensors().at("b")), dir_.path() + "/y.safetensors");
}

TEST_F(ShardTest, RefusesBadIndexes) {
  EXPECT_THAT(Message("{}"), HasSubstr("weight_map"));
  EXPECT_THAT(Message(R"({"weight_map":[]})"), HasSubstr("weight_map"));
  EXPECT_THAT(Message(R"({"weight_map":{"a":1}})"), HasSubstr("tensor \"a\""));
  for (const char* name : {"../x.safetensors", "/etc/passwd", "sub/x.safetensors", "x.bin", "",
                           "..", ".safetensors"}) {
    EXPECT_THAT(Message(std::string(R"({"weight_map":{"a":")") + name + "\"}}"),
                AllOf(HasSubstr("tensor \"a\""), HasSubstr("plain name")));
  }
  EXPECT_THAT(Message(R"({"weight_map":{"a":"z.safetensors"}})"),
              AllOf(HasSubstr("z.safetensors"), HasSubstr("No such file")));
  EXPECT_THAT(Message(R"({"weight_map":{"a":"x.safetensors","b":"x.safetensors"}})"),
              AllOf(HasSubstr("tensor \"b\""), HasSubstr("is not in x.safetensors")));
  EXPECT_THAT(Message(R"({"weight_map":{"a":"y.safetensors","b":"x.safetensors"}})"),
              AllOf(HasSubstr("tensor \"a\""), HasSubstr("is not in y.safetensors")));
}

constexpr char kBothShards[] = R"({"weight_map":{"a":"x.safetensors","b":"y.safetensors"}})";

TEST_F(ShardTest, NamesEveryShardThatCannotBeRead) {
  std::filesystem::remove(dir_.path() + "/x.safetensors");
  dir_.Write("y.safetensors", "short");
  EXPECT_THAT(Message(kBothShards), AllOf(HasSubstr("/x.safetensors: No such file"),
                                          HasSubstr("/y.safetensors: 5 bytes: too short")));
  EXPECT_EQ(OpenWith(kBothShards).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ShardTest, NamesEveryTensorThatTheIndexHasElsewhere) {
  dir_.Write("x.safetensors", Shard("c"));
  dir_.Write("y.safetensors", Shard("d"));
  EXPECT_THAT(Message(kBothShards),
              AllOf(HasSubstr("\"a\": is not in x.safetensors\n"),
                    HasSubstr("\"b\": is not in y.safetensors\n"),
                    HasSubstr("\"c\": is not listed"), HasSubstr("\"d\": is not listed")));
}

TEST_F(ShardTest, RefusesTensorsThatAreUnlistedOrInTwoShards) {
  dir_.Write("y.safetensors", Shard("c"));
  EXPECT_THAT(Message(R"({"weight_map":{"a":"x.safetensors","b":"y.safetensors"}})"),
              AllOf(HasSubstr("tensor \"b\""), HasSubstr("is not in y.safetensors")));
  dir_.Write("y.safetensors",
             SafetensorsBytes(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                              R"("c":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                              "bc"));
  EXPECT_THAT(Message(R"({"weight_map":{"a":"x.safetensors","b":"y.safetensors"}})"),
              AllOf(HasSubstr("tensor \"c\""), HasSubstr("is not listed")));
  dir_.Write("y.safetensors", Shard("a"));
  EXPECT_THAT(Message(R"({"weight_map":{"a":"x.safetensors","b":"y.safetensors"}})"),
              AllOf(HasSubstr("tensor \"a\""), HasSubstr("is also in")));
}

}  // namespace
}  // namespace quire::testing
