// The way out of a file that cannot be read.
#include "engine/base/file_error.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cerrno>

namespace quire {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Words(int error) { return std::string(FileError("/m/config.json", error).message()); }

TEST(FileErrorTest, MissingPathsAreNotFound) {
  EXPECT_EQ(FileError("/m/config.json", ENOENT).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(FileError("/m/config.json", ENOTDIR).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Words(ENOENT), HasSubstr("/m/config.json: No such file"));
  EXPECT_THAT(Words(ENOENT), Not(HasSubstr("chmod")));
}

TEST(FileErrorTest, MissingPermissionNamesTheUserAndTheWayOut) {
  EXPECT_EQ(FileError("/m/config.json", EACCES).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Words(EACCES), HasSubstr("/m/config.json: Permission denied; let user " +
                                       std::to_string(geteuid()) + ","));
  EXPECT_THAT(Words(EACCES), HasSubstr("chmod"));
  EXPECT_THAT(Words(EIO), HasSubstr("/m/config.json: "));
}

}  // namespace
}  // namespace quire
