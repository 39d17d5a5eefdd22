// Results are read record by record: only one is in memory at a time.
#include "server/jobs/job_files.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <span>

#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "server/session/little_endian.h"

namespace quire {
namespace {

constexpr char kInput[] = ".lines", kState[] = ".job", kNewState[] = ".job.new",
               kResults[] = ".results", kBroken[] = ".broken";
// Lines that a file of results may name: beyond the limit of a job.
constexpr uint32_t kMaxLine = 1 << 24;

std::string FileName(uint64_t number, const char* kind) { return Hex(number) + kind; }

// The number of a file of this kind; 0: it is none.
uint64_t NumberOf(const std::string& name, const std::string& kind) {
  if (name.size() != 16 + kind.size() || name.substr(16) != kind) return 0;
  const uint64_t number = strtoull(name.substr(0, 16).c_str(), nullptr, 16);
  return FileName(number, kind.c_str()) == name ? number : 0;
}

}  // namespace

absl::StatusOr<JobRecord> ReadRecordAt(DiskFile& file, int64_t offset, int64_t size) {
  if (offset > size || size - offset < static_cast<int64_t>(kRecordHeadBytes)) {
    return absl::OutOfRangeError("cut");
  }
  std::string bytes(kRecordHeadBytes, '\0');
  RETURN_IF_ERROR(file.Read(offset, std::as_writable_bytes(std::span(bytes))));
  ASSIGN_OR_RETURN(const size_t json, JsonBytesOf(bytes));
  bytes.resize(kRecordHeadBytes + json);
  if (size - offset < static_cast<int64_t>(bytes.size())) return absl::OutOfRangeError("cut");
  RETURN_IF_ERROR(file.Read(offset, std::as_writable_bytes(std::span(bytes))));
  return ReadJobRecord(bytes, offset);
}

absl::StatusOr<JobFolder> JobFiles::ReadFolder() {
  ASSIGN_OR_RETURN(const std::vector<Disk::Entry> entries, disk_->List());
  JobFolder folder;
  std::set<uint64_t> numbers, states;
  for (const Disk::Entry& entry : entries) {
    for (const char* kind : {kInput, kState, kNewState, kResults, kBroken}) {
      const uint64_t number = NumberOf(entry.name, kind);
      if (number == 0) continue;
      folder.next_number = std::max(folder.next_number, number + 1);
      if (kind == kState) states.insert(number);
      if (kind != kBroken) numbers.insert(number);
    }
  }
  for (const uint64_t number : numbers) {
    disk_->Remove(FileName(number, kNewState)).IgnoreError();
    if (!states.contains(number)) Remove(number).IgnoreError();  // its upload never ended
  }
  for (const uint64_t number : states) {
    const absl::StatusOr<std::string> bytes = ReadAll(*disk_, FileName(number, kState));
    absl::StatusOr<JobState> state =
        bytes.ok() ? ReadJobState(*bytes) : absl::StatusOr<JobState>(bytes.status());
    if (!state.ok()) {
      Log(Severity::kError, "a job's state cannot be read: the job is put aside",
          {{"file", FileName(number, kState)}, {"fault", std::string(state.status().message())}});
      disk_->Rename(FileName(number, kState), FileName(number, kBroken)).IgnoreError();
      continue;
    }
    LeftJob job{.number = number, .state = *std::move(state)};
    RETURN_IF_ERROR(ReadDone(&job));
    folder.jobs.push_back(std::move(job));
  }
  return folder;
}

// Lines behind a fault run again, so what is behind it is cut off, whatever it is.
absl::Status JobFiles::ReadDone(LeftJob* job) {
  absl::StatusOr<std::unique_ptr<DiskFile>> file = ReadResults(job->number);
  if (absl::IsNotFound(file.status())) return absl::OkStatus();
  RETURN_IF_ERROR(file.status());
  ASSIGN_OR_RETURN(const int64_t size, (*file)->Size());
  while (job->result_bytes < size) {
    const absl::StatusOr<JobRecord> record = ReadRecordAt(**file, job->result_bytes, size);
    const bool good = record.ok() && record->line > 0 && record->line < kMaxLine;
    if (!good) {
      job->torn = true;
      break;
    }
    if (job->done.size() <= record->line) job->done.resize(record->line + size_t{1});
    if (!job->done[record->line]) {
      job->done[record->line] = true;
      ++job->done_lines;
      job->failed_lines += record->failed;
    }
    job->result_bytes += static_cast<int64_t>(kRecordHeadBytes + record->json.size());
  }
  if (!job->torn) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<DiskFile> results,
                   disk_->Open(FileName(job->number, kResults), Disk::Mode::kAppend));
  return results->Truncate(job->result_bytes);
}

absl::StatusOr<std::unique_ptr<DiskFile>> JobFiles::CreateInput(uint64_t number) {
  return disk_->Open(FileName(number, kInput), Disk::Mode::kCreate);
}

absl::Status JobFiles::WriteState(uint64_t number, const JobState& state) {
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<DiskFile> file,
                     disk_->Open(FileName(number, kNewState), Disk::Mode::kCreate));
    RETURN_IF_ERROR(AppendAll(*file, EncodeJobState(state)));
  }
  return disk_->Rename(FileName(number, kNewState), FileName(number, kState));
}

absl::StatusOr<LineReader> JobFiles::OpenInput(uint64_t number, const JobState& state) {
  ASSIGN_OR_RETURN(std::unique_ptr<DiskFile> file,
                   disk_->Open(FileName(number, kInput), Disk::Mode::kRead));
  return LineReader(std::move(file), state.input_bytes, kMaxLineBytes);
}

absl::StatusOr<std::unique_ptr<DiskFile>> JobFiles::OpenResults(uint64_t number, bool fresh) {
  return disk_->Open(FileName(number, kResults), fresh ? Disk::Mode::kCreate : Disk::Mode::kAppend);
}

absl::StatusOr<std::unique_ptr<DiskFile>> JobFiles::ReadResults(uint64_t number) {
  return disk_->Open(FileName(number, kResults), Disk::Mode::kRead);
}

// The state goes first: without it the rest is removed at the next start.
absl::Status JobFiles::Remove(uint64_t number) {
  absl::Status all;
  for (const char* kind : {kState, kNewState, kInput, kResults}) {
    all.Update(disk_->Remove(FileName(number, kind)));
  }
  return all;
}

}  // namespace quire
