// Tests of writing reports: whole files or none, a full disk, a place that cannot be written.
#include "clients/load/report/report_files.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/clients/load/made_runs.h"

namespace quire::load {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return (std::stringstream() << file.rdbuf()).str();
}

std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// While it lives no file of this process can grow beyond `bytes`, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);  // the write fails with EFBIG instead
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit before_;
  void (*old_handler_)(int);
};

class ReportFilesTest : public ::testing::Test {
 protected:
  ReportFilesTest()
      : folder_(fs::path(testing::TempDir()) / ("reports" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~ReportFilesTest() override { fs::remove_all(folder_); }

  WrittenReports Write(const std::vector<RunRecord>& runs, const fs::path& folder) {
    std::vector<Summary> summaries;
    for (const RunRecord& run : runs) summaries.push_back(Summarize(run));
    return WriteReports(runs, summaries, folder, "");
  }

  const fs::path folder_;
};

TEST_F(ReportFilesTest, OneRunsReportsLieInTheFolderWhichIsMade) {
  const fs::path folder = folder_ / "a" / "b";
  const WrittenReports written = Write({HandMadeRun()}, folder);
  EXPECT_TRUE(written.status.ok()) << written.status;
  EXPECT_THAT(NamesIn(folder), ElementsAre("mlperf_log_detail.txt", "mlperf_log_summary.txt",
                                           "perf.jsonl", "quire-10qps-tiny-20261120-181500.json",
                                           "report.html", "sglang.jsonl", "vllm.txt"));
  EXPECT_EQ(written.files.size(), 7u);
  for (const std::string& file : written.files) EXPECT_GT(fs::file_size(file), 0u) << file;
}

TEST_F(ReportFilesTest, ASweepHasAFolderForEachPointAndOnePage) {
  const WrittenReports written = Write({PlausibleRun(2, 5), PlausibleRun(4, 5)}, folder_);
  EXPECT_TRUE(written.status.ok()) << written.status;
  EXPECT_THAT(NamesIn(folder_),
              ElementsAre("perf.jsonl", "point-1", "point-2", "report.html", "sglang.jsonl"));
  EXPECT_EQ(NamesIn(folder_ / "point-2").size(), 4u);
  const std::string lines = Read(folder_ / "perf.jsonl");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
}

TEST_F(ReportFilesTest, ASecondRunAddsLinesAndReplacesTheRest) {
  Write({HandMadeRun()}, folder_);
  const auto size = fs::file_size(folder_ / "report.html");
  Write({HandMadeRun()}, folder_);
  const std::string lines = Read(folder_ / "sglang.jsonl");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
  EXPECT_EQ(fs::file_size(folder_ / "report.html"), size);
}

TEST_F(ReportFilesTest, AModelNamedLikeAPathStaysInTheFolder) {
  RunRecord run = HandMadeRun();
  run.info.model = "../../etc/pass\nwd";
  const WrittenReports written = Write({run}, folder_);
  EXPECT_TRUE(written.status.ok()) << written.status;
  EXPECT_TRUE(fs::exists(folder_ / "quire-10qps-pass_wd-20261120-181500.json"));
}

TEST_F(ReportFilesTest, AReplacedFileIsWholeOrUntouched) {
  const fs::path path = folder_ / "file";
  ASSERT_TRUE(ReplaceFile(path, "before").ok());
  {
    const FullDisk full(100);
    const absl::Status status = ReplaceFile(path, std::string(5000, 'x'));
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path), HasSubstr("File too large")));
  }
  EXPECT_EQ(Read(path), "before");
  EXPECT_THAT(NamesIn(folder_), ElementsAre("file"));  // nothing left beside it
  ASSERT_TRUE(ReplaceFile(path, "after").ok());
  EXPECT_EQ(Read(path), "after");
}

TEST_F(ReportFilesTest, ALineThatDoesNotFitIsTakenBack) {
  const fs::path path = folder_ / "lines";
  ASSERT_TRUE(AppendLine(path, "one").ok());
  {
    const FullDisk full(100);
    EXPECT_EQ(AppendLine(path, std::string(5000, 'x')).code(),
              absl::StatusCode::kResourceExhausted);
  }
  ASSERT_TRUE(AppendLine(path, "two\n").ok());
  EXPECT_EQ(Read(path), "one\ntwo\n");
}

TEST_F(ReportFilesTest, AFullDiskKeepsWhatFitsAndNamesIt) {
  const FullDisk full(6000);  // the page and the record are larger, the text block is not
  const WrittenReports written = Write({HandMadeRun()}, folder_);
  EXPECT_EQ(written.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(written.status.message()),
              AllOf(HasSubstr("mlperf_log_detail.txt: File too large (nor " +
                              (folder_ / "report.html").string()),
                    HasSubstr("written: "), HasSubstr("vllm.txt"), HasSubstr("--result-dir")));
  EXPECT_FALSE(fs::exists(folder_ / "report.html"));
  for (const std::string& file : written.files) {
    EXPECT_GT(fs::file_size(file), 0u) << file;
    EXPECT_EQ(Read(file).back(), '\n') << file;
  }
}

TEST_F(ReportFilesTest, ADeviceIsWrittenToAndNeverReplaced) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full to write to";
  const absl::Status status = ReplaceFile("/dev/full", "text");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("/dev/full"), HasSubstr("No space left on device")));
  EXPECT_FALSE(AppendLine("/dev/full", "text").ok());
  struct stat info;
  ASSERT_EQ(stat("/dev/full", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
}

TEST_F(ReportFilesTest, APlaceThatCannotBeAFolderIsNamed) {
  ASSERT_TRUE(ReplaceFile(folder_ / "file", "text").ok());
  const WrittenReports written = Write({HandMadeRun()}, folder_ / "file" / "sub");
  EXPECT_EQ(written.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(written.status.message()),
              AllOf(HasSubstr("file/sub"), HasSubstr("no report was written")));
  EXPECT_THAT(written.files, IsEmpty());
}

// Each report is tried, so one name that is taken by a folder costs that report alone.
TEST_F(ReportFilesTest, OneBadNameCostsOneReport) {
  fs::create_directories(folder_ / "vllm.txt");
  const WrittenReports written = Write({HandMadeRun()}, folder_);
  EXPECT_THAT(std::string(written.status.message()), HasSubstr("vllm.txt"));
  EXPECT_EQ(written.files.size(), 6u);
  EXPECT_TRUE(fs::exists(folder_ / "report.html"));
}

}  // namespace
}  // namespace quire::load
