// Files by temporary and rename; lines by one append that is taken back when it did not fit.
#include "clients/load/report/report_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "clients/load/report/reports.h"

namespace quire::load {
namespace {

absl::Status Failed(const std::string& path, const char* what, int error) {
  const absl::StatusCode code = error == ENOSPC || error == EDQUOT || error == EFBIG
                                    ? absl::StatusCode::kResourceExhausted
                                    : absl::StatusCode::kFailedPrecondition;
  return absl::Status(code, absl::StrCat("cannot ", what, " ", path, ": ", strerror(error)));
}

// 0, or the error number.
int WriteAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : ENOSPC;
    done += static_cast<size_t>(n);
  }
  return 0;
}

// Some file systems report a full disk only here.
int Finish(int fd, int error) {
  if (error == 0 && fsync(fd) != 0 && errno != EINVAL && errno != EROFS) error = errno;
  if (close(fd) != 0 && error == 0) error = errno;
  return error;
}

bool IsDevice(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

// Tries every report and remembers the first failure.
class Writer {
 public:
  void Replace(const std::string& path, const std::string& text) {
    Note(path, ReplaceFile(path, text));
  }
  void Append(const std::string& path, const std::string& line) {
    Note(path, AppendLine(path, line));
  }
  bool MakeDirectory(const std::string& path) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) Note(path, Failed(path, "make the directory", error.value()));
    return !error;
  }
  WrittenReports Done() {
    if (written_.status.ok()) return std::move(written_);
    std::string told(written_.status.message());
    if (!others_.empty()) absl::StrAppend(&told, " (nor ", absl::StrJoin(others_, ", "), ")");
    absl::StrAppend(&told,
                    written_.files.empty()
                        ? "; no report was written"
                        : absl::StrCat("; written: ", absl::StrJoin(written_.files, ", ")),
                    "; free space or name another --result-dir");
    written_.status = absl::Status(written_.status.code(), told);
    return std::move(written_);
  }

 private:
  void Note(const std::string& path, const absl::Status& status) {
    if (!status.ok()) {
      if (!written_.status.ok()) others_.push_back(path);
      if (written_.status.ok()) written_.status = status;
      return;
    }
    std::vector<std::string>& files = written_.files;
    if (std::find(files.begin(), files.end(), path) == files.end()) files.push_back(path);
  }

  std::vector<std::string> others_;  // paths that failed after the first
  WrittenReports written_;
};

std::string VllmFilename(const RunInfo& info) {
  std::string model = info.model.substr(info.model.find_last_of('/') + 1);
  for (char& c : model) {
    if (c == '\0' || static_cast<unsigned char>(c) < ' ') c = '_';
  }
  const std::string rate =
      std::isfinite(info.request_rate) ? absl::StrCat(info.request_rate) : "inf";
  const std::string cap =
      info.max_concurrency > 0 ? absl::StrCat("-concurrency", info.max_concurrency) : "";
  return absl::StrCat("quire-", rate, "qps", cap, "-", model, "-", info.date, ".json");
}

void WriteRun(const RunRecord& run, const Summary& summary, const std::string& directory,
              const std::string& vllm_filename, Writer* writer) {
  const std::filesystem::path folder(directory);
  const auto name = vllm_filename.empty() ? VllmFilename(run.info) : vllm_filename;
  writer->Replace(folder / name, VllmJson(run, summary));
  writer->Replace(folder / "vllm.txt", VllmText(run, summary));
  writer->Replace(folder / "mlperf_log_summary.txt", LoadgenSummary(run, summary));
  writer->Replace(folder / "mlperf_log_detail.txt", LoadgenDetail(run, summary));
  if (run.info.conversations) writer->Replace(folder / "turns.jsonl", TurnsJsonLines(run));
}

}  // namespace

absl::Status ReplaceFile(const std::string& path, const std::string& text) {
  const bool device = IsDevice(path);
  const std::string target = device ? path : absl::StrCat(path, ".partial-", getpid());
  const int flags = device ? O_WRONLY : O_WRONLY | O_CREAT | O_TRUNC;
  const int fd = open(target.c_str(), flags | O_CLOEXEC, 0644);
  if (fd < 0) return Failed(path, "write", errno);
  int error = Finish(fd, WriteAll(fd, text));
  if (!device && error == 0 && rename(target.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  if (!device) unlink(target.c_str());
  return Failed(path, "write", error);
}

absl::Status AppendLine(const std::string& path, const std::string& line) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return Failed(path, "append to", errno);
  struct stat before;
  const bool regular = fstat(fd, &before) == 0 && S_ISREG(before.st_mode);
  const bool ended = !line.empty() && line.back() == '\n';
  int error = WriteAll(fd, ended ? line : line + "\n");
  if (error != 0 && regular && ftruncate(fd, before.st_size) != 0) {
    // The half line stays; the first error is reported.
  }
  error = Finish(fd, error);
  return error == 0 ? absl::OkStatus() : Failed(path, "append to", error);
}

WrittenReports WriteReports(const std::vector<RunRecord>& runs,
                            const std::vector<Summary>& summaries, const std::string& directory,
                            const std::string& vllm_filename) {
  Writer writer;
  if (!writer.MakeDirectory(directory)) return writer.Done();
  const std::filesystem::path folder(directory);
  // First the records from which all other reports can be made.
  for (size_t i = 0; i < runs.size(); ++i) {
    writer.Append(folder / "perf.jsonl", PerfJsonLine(runs[i], summaries[i]));
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::string place =
        runs.size() == 1 ? directory : (folder / absl::StrCat("point-", i + 1)).string();
    if (writer.MakeDirectory(place)) {
      WriteRun(runs[i], summaries[i], place, vllm_filename, &writer);
    }
    writer.Append(folder / "sglang.jsonl", SglangJsonLine(runs[i], summaries[i]));
  }
  writer.Replace(folder / "report.html", HtmlPage(runs, summaries));
  return writer.Done();
}

}  // namespace quire::load
