// The limits of a process: control groups as kernels and container runtimes lay them out, and an
// allocation beyond the memory of all backends together.
#include "kernels/cpu/host_limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <utility>

#include "tests/kernels/cases.h"

namespace quire {
namespace {

using cpu::CgroupLimits;

constexpr double kNoQuota = std::numeric_limits<double>::infinity();
constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

// A root directory with these files.
class Host {
 public:
  using File = std::pair<std::string, std::string>;  // path, text

  explicit Host(std::initializer_list<File> files) {
    root_ = (std::filesystem::temp_directory_path() / "quire_host_limits_XXXXXX").string();
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    for (const auto& [name, text] : files) {
      const std::filesystem::path path = root_ + name;
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path) << text;
    }
  }
  ~Host() { std::filesystem::remove_all(root_); }

  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  CgroupLimits Limits() const { return cpu::ReadCgroupLimits(root_); }

 private:
  std::string root_;
};

TEST(HostLimitsTest, MissingFilesDoNotLimit) {
  EXPECT_EQ(Host({}).Limits(), CgroupLimits{});
  EXPECT_EQ(CgroupLimits{}.cpus, kNoQuota);
  EXPECT_EQ(CgroupLimits{}.memory, kNoLimit);
  for (const char* groups : {"", "\n", ":", "::", "0:", "0::", "nonsense", "1:cpu:", "1:,,:/a"}) {
    EXPECT_EQ(Host({Host::File("/proc/self/cgroup", groups)}).Limits(), CgroupLimits{}) << groups;
  }
}

TEST(HostLimitsTest, Version2) {
  const Host host({{"/proc/self/cgroup", "0::/pod/container\n"},
                   {"/sys/fs/cgroup/pod/container/cpu.max", "150000 100000\n"},
                   {"/sys/fs/cgroup/pod/container/memory.max", "1073741824\n"}});
  EXPECT_EQ(host.Limits(), (CgroupLimits{1.5, size_t{1} << 30}));
}

TEST(HostLimitsTest, Version2OfAContainerThatSeesItsGroupAsTheRoot) {
  for (const char* path : {"0::/\n", "0::/docker/0123\n", "0::/../other\n"}) {
    const Host host({{"/proc/self/cgroup", path},
                     {"/sys/fs/cgroup/cpu.max", "200000 100000\n"},
                     {"/sys/fs/cgroup/memory.max", "max\n"}});
    EXPECT_EQ(host.Limits(), (CgroupLimits{2, kNoLimit})) << path;
  }
}

TEST(HostLimitsTest, UsesTheTightestAncestor) {
  const Host host({{"/proc/self/cgroup", "0::/a/b/c\n"},
                   {"/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n"},
                   {"/sys/fs/cgroup/a/b/c/memory.max", "4000\n"},
                   {"/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"},
                   {"/sys/fs/cgroup/a/b/memory.max", "max\n"},
                   {"/sys/fs/cgroup/a/cpu.max", "800000 100000\n"},
                   {"/sys/fs/cgroup/a/memory.max", "3000\n"},
                   {"/sys/fs/cgroup/other/memory.max", "10\n"}});
  EXPECT_EQ(host.Limits(), (CgroupLimits{4, 3000}));
}

TEST(HostLimitsTest, Version1) {
  for (const char* mount : {"cpu", "cpu,cpuacct"}) {
    const std::string cpu = std::string("/sys/fs/cgroup/") + mount + "/docker/0123/";
    const Host host(
        {{"/proc/self/cgroup", "7:memory:/docker/0123\n4:cpu,cpuacct:/docker/0123\n0::/x\n"},
         {cpu + "cpu.cfs_quota_us", "250000\n"},
         {cpu + "cpu.cfs_period_us", "50000\n"},
         {"/sys/fs/cgroup/memory/docker/0123/memory.limit_in_bytes", "536870912\n"},
         {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}});
    EXPECT_EQ(host.Limits(), (CgroupLimits{5, size_t{512} << 20})) << mount;
  }
}

TEST(HostLimitsTest, Version1WithoutLimits) {
  const Host host({{"/proc/self/cgroup", "2:memory:/\n1:cpu:/\n"},
                   {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                   {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
                   {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}});
  EXPECT_EQ(host.Limits(), CgroupLimits{});
}

TEST(HostLimitsTest, MalformedFilesDoNotLimit) {
  for (const char* text :
       {"", "\n", "abc", "-5 100000", "0 0", "100000", "100000 0", "1e", "max"}) {
    const Host host({{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/cpu.max", text}});
    EXPECT_EQ(host.Limits(), CgroupLimits{}) << text;
  }
}

// tests/server/server_process_test.py has a process that may not start them.
TEST(HostLimitsTest, StartsAllThreadsWithoutALimit) {
  EXPECT_EQ(cpu::StartableThreads(0), 0);
  EXPECT_EQ(cpu::StartableThreads(20), 20);
}

TEST(HostLimitsTest, BackendsShareTheMemoryLimit) {
  const size_t most = cpu::UsableMemory() / 5 * 3;
  const auto one = MakeBackend({cpu::BestIsa(), 1}), other = MakeBackend({cpu::BestIsa(), 1});
  Buffer first = one->Allocate(most);
  ASSERT_FALSE(first.empty());
  EXPECT_TRUE(other->Allocate(most).empty());
  EXPECT_TRUE(one->Allocate(most).empty());
  EXPECT_FALSE(other->Allocate(1000).empty());
  EXPECT_TRUE(one->Allocate(std::numeric_limits<size_t>::max() - 100).empty());
  first = Buffer();
  EXPECT_FALSE(other->Allocate(most).empty());
}

}  // namespace
}  // namespace quire
