// `quire key` writes what the server's own reader of key files takes, and its keys open the door.
// Covers clients/cpp/key.cc, clients/cpp/flags/key_flags.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "clients/cpp/call/interrupt.h"
#include "clients/cpp/quire.h"
#include "server/identity/key_door.h"

namespace quire::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class KeyCliTest : public ::testing::Test {
 protected:
  ~KeyCliTest() override { std::filesystem::remove(path_); }

  int Run(std::vector<std::string> args) {
    args.insert(args.begin(), "key");
    std::istringstream in;
    std::ostringstream out, err;
    Terminal terminal{in, out, err};
    Interrupt interrupt;
    const int code = RunQuire(args, terminal, interrupt);
    out_ = out.str();
    err_ = err.str();
    return code;
  }
  std::string MakeKey(std::vector<std::string> more) {
    more.insert(more.begin(), {"new", "--file", path_});
    EXPECT_EQ(Run(more), 0) << err_;
    return out_.substr(0, out_.size() - 1);
  }
  Admission Knock(const std::string& key) {
    absl::StatusOr<KeyTable> table = ReadKeyTable(path_);
    EXPECT_TRUE(table.ok()) << table.status();
    const std::string header = "Bearer " + key;
    return KeyDoor(*std::move(table), {"m"})
        .Admit({.authorization = {header}}, "/quire.v1.Inference/Generate");
  }

  const std::string path_ = std::filesystem::temp_directory_path() /
                            ("quire_key_cli_" + std::to_string(getpid()) + ".json");
  std::string out_, err_;
};

TEST_F(KeyCliTest, ANewKeyOpensTheDoorOfItsTenant) {
  const std::string key = MakeKey({"--tenant", "acme", "--note", "first"});
  const std::string other = MakeKey({"--tenant", "beta", "--scopes", "metrics,admin"});
  EXPECT_EQ(Knock(key).caller->tenant_name, "acme");
  EXPECT_EQ(Knock(other).refused, Refused::kScope);
  EXPECT_NE(key, other);
  std::ifstream file(path_);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), Not(HasSubstr(key.substr(key.size() - kKeySecretDigits))));
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(KeyCliTest, ListsWithoutDigestsAndRevokes) {
  const std::string key = MakeKey({"--tenant", "acme", "--expires-after", "90d"});
  const std::string id = key.substr(3, kKeyIdDigits);
  EXPECT_EQ(Run({"list", "--file", path_}), 0);
  EXPECT_THAT(out_, HasSubstr("\"id\":\"" + id + "\""));
  EXPECT_THAT(out_, HasSubstr("\"expires\":\"20"));
  EXPECT_THAT(out_, Not(HasSubstr("sha256")));
  EXPECT_EQ(Run({"revoke", id, "--file", path_}), 0) << err_;
  EXPECT_EQ(Knock(key).refused, Refused::kUnknown);
  EXPECT_EQ(Run({"revoke", id, "--file", path_}), 1);
  EXPECT_THAT(err_, HasSubstr("has no key '" + id + "'"));
}

TEST_F(KeyCliTest, TheServersUserCanStillReadTheFile) {
  if (getuid() != 0) GTEST_SKIP() << "only root gives files away";
  constexpr uid_t kUser = 65534;
  MakeKey({"--tenant", "acme"});
  ASSERT_EQ(chown(path_.c_str(), kUser, kUser), 0);
  ASSERT_EQ(chmod(path_.c_str(), 0640), 0);
  const std::string key = MakeKey({"--tenant", "acme"});
  EXPECT_EQ(Run({"revoke", key.substr(3, kKeyIdDigits), "--file", path_}), 0) << err_;
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, kUser);
  EXPECT_EQ(info.st_gid, kUser);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST_F(KeyCliTest, CommandsAtATimeLoseNoKeyAndALinkStays) {
  const std::string link = path_ + ".link";
  MakeKey({"--tenant", "acme"});
  std::filesystem::create_symlink(path_, link);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&link] {
      std::istringstream in;
      std::ostringstream out, err;
      Terminal terminal{in, out, err};
      Interrupt interrupt;
      EXPECT_EQ(RunQuire({"key", "new", "--file", link, "--tenant", "acme"}, terminal, interrupt),
                0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  std::filesystem::remove(link);
  EXPECT_EQ(Run({"list", "--file", path_}), 0);
  EXPECT_EQ(std::ranges::count(out_, '\n'), 9);
}

TEST_F(KeyCliTest, ToleratesEntriesThatAreNone) {
  std::ofstream(path_) << R"({"tenants": {}, "keys": [1, {"id": 2}]})";
  EXPECT_EQ(Run({"list", "--file", path_}), 0);
  EXPECT_EQ(Run({"revoke", "0123456789abcdef", "--file", path_}), 1);
  EXPECT_EQ(Run({"new", "--tenant", "a", "--note", "\xff"}), 2);
  EXPECT_THAT(err_, HasSubstr("--note: must be UTF-8"));
}

TEST_F(KeyCliTest, NamesMistakes) {
  EXPECT_EQ(Run({"new"}), 2);
  EXPECT_THAT(err_, HasSubstr("key new needs --tenant NAME"));
  for (const std::string& name :
       std::vector<std::string>{"other", "Acme Inc", "a/b", "\xc3\xa9", std::string(65, 'a')}) {
    EXPECT_EQ(Run({"new", "--tenant", name}), 2);
    EXPECT_THAT(err_, HasSubstr("--tenant '" + name + "': 1 to 64 letters"));
  }
  EXPECT_EQ(Run({"new", "--tenant", "a", "--scopes", "root"}), 2);
  EXPECT_THAT(err_, HasSubstr("there is no 'root'"));
  EXPECT_EQ(Run({"list"}), 2);
  EXPECT_THAT(err_, HasSubstr("key list needs --file FILE"));
  EXPECT_EQ(Run({"list", "--file", "/no/such/file"}), 1);
  EXPECT_THAT(err_, HasSubstr("/no/such/file: No such file"));
  std::ofstream(path_) << "{";
  EXPECT_EQ(Run({"new", "--tenant", "a", "--file", path_}), 1);
  EXPECT_THAT(err_, HasSubstr("is no key file"));
  EXPECT_EQ(Run({"new", "--tenant", "a"}), 0);
  EXPECT_THAT(err_, HasSubstr("\"sha256\": \""));
}

}  // namespace
}  // namespace quire::cli
