// The files of jobs: wherever the results are cut, each whole record before the cut counts and
// nothing else; damage of any byte is found; lines are the same in whatever pieces they come.
// Covers server/jobs/job_files.cc, server/jobs/job_record.cc, server/jobs/job_state.cc,
// server/jobs/line_reader.cc, server/jobs/job_room.h
#include "server/jobs/job_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/jobs/job_room.h"
#include "tests/server/memory_disk.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

// --- Records.

TEST(JobRecordTest, IsReadWhereItWasWritten) {
  const std::string bytes = EncodeJobRecord({.line = 7, .failed = true, .json = "{\"a\":1}"}, 300);
  const auto record = ReadJobRecord(bytes + "more", 300);
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->line, 7u);
  EXPECT_TRUE(record->failed);
  EXPECT_EQ(record->json, "{\"a\":1}");
  EXPECT_TRUE(absl::IsDataLoss(ReadJobRecord(bytes, 301).status())) << "of another place";
}

TEST(JobRecordTest, EveryCutIsACutAndEveryFlippedBitIsDamage) {
  const std::string bytes = EncodeJobRecord({.line = 7, .json = "{\"a\":1}"}, 0);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(absl::IsOutOfRange(ReadJobRecord(bytes.substr(0, size), 0).status())) << size;
  }
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    EXPECT_FALSE(ReadJobRecord(damaged, 0).ok()) << bit;
  }
}

// --- States.

JobState Sample() {
  JobState state{.id = "night"};
  state.caller.tenant = 9;
  state.caller.tenant_name = "acme";
  state.caller.key_id = "k1";
  state.caller.models = {"demo", "other"};
  state.caller.max_priority = 5;
  state.priority = -7;
  state.expires_after_seconds = 60;
  state.created_ns = 1'000;
  state.ended_ns = 2'000;
  state.phase = JobPhase::kFailed;
  state.failure = "full";
  state.lines = 3;
  state.input_bytes = 40;
  return state;
}

TEST(JobStateTest, ReadsWhatWasWritten) {
  const auto read = ReadJobState(EncodeJobState(Sample()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->id, "night");
  EXPECT_EQ(read->caller.tenant, 9u);
  EXPECT_EQ(read->caller.tenant_name, "acme");
  EXPECT_EQ(read->caller.key_id, "k1");
  EXPECT_THAT(read->caller.models, ElementsAre("demo", "other"));
  EXPECT_EQ(read->caller.max_priority, 5);
  EXPECT_TRUE(read->caller.scopes.Has(Scope::kInfer));
  EXPECT_FALSE(read->caller.scopes.Has(Scope::kSession));
  EXPECT_EQ(read->priority, -7);
  EXPECT_EQ(read->expires_ns(), 60'000'001'000);
  EXPECT_EQ(read->ended_ns, 2'000);
  EXPECT_EQ(read->phase, JobPhase::kFailed);
  EXPECT_EQ(read->failure, "full");
  EXPECT_EQ(read->lines, 3u);
  EXPECT_EQ(read->input_bytes, 40);
}

TEST(JobStateTest, NoDamageIsTakenForAState) {
  const std::string bytes = EncodeJobState(Sample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(ReadJobState(bytes.substr(0, size)).status())) << size;
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] + 1);
    EXPECT_TRUE(absl::IsDataLoss(ReadJobState(damaged).status())) << i;
  }
}

// --- Lines.

std::vector<std::string> Split(const std::string& text, size_t piece, size_t most = 100) {
  LineSplitter lines(most);
  std::vector<std::string> out;
  const auto take = [&out](const std::optional<InputLine>& line) {
    if (!line.has_value()) return;
    out.push_back(std::to_string(line->number) + line->text + (line->too_long ? "..." : ""));
  };
  for (size_t at = 0; at < text.size(); at += piece) {
    std::string_view bytes = std::string_view(text).substr(at, piece);
    while (!bytes.empty()) take(lines.Take(&bytes));
  }
  take(lines.Finish());
  return out;
}

TEST(LineSplitterTest, PiecesOfAnySizeGiveTheSameLines) {
  const std::string text = "one\n\n  \t\r\ntwo\r\n three\nfour";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_THAT(Split(text, piece), ElementsAre("1one", "4two\r", "5 three", "6four")) << piece;
  }
  EXPECT_THAT(Split("a\n", 1), ElementsAre("1a"));
  EXPECT_THAT(Split("", 1), ElementsAre());
}

TEST(LineSplitterTest, ALineThatIsTooLongIsCutAndTold) {
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{100}}) {
    EXPECT_THAT(Split("abcdef\nabcde\n", piece, 5), ElementsAre("1abcde...", "2abcde")) << piece;
  }
}

// --- The folder.

struct Folder {
  std::shared_ptr<MemoryFolder> folder = std::make_shared<MemoryFolder>();
  std::shared_ptr<DiskFaults> faults = std::make_shared<DiskFaults>();
  JobFiles files{std::make_shared<MemoryDisk>(folder, faults)};
};

// A job of four lines with results of the lines 3, 1 and 4.
std::vector<size_t> MakeJob(Folder& disk) {
  JobState state = Sample();
  state.phase = JobPhase::kRunning;
  std::string input = "{}\n{}\n{}\n{}\n";
  state.input_bytes = static_cast<int64_t>(input.size());
  EXPECT_TRUE(AppendAll(**disk.files.CreateInput(1), input).ok());
  EXPECT_TRUE(disk.files.WriteState(1, state).ok());
  const auto results = disk.files.OpenResults(1, /*fresh=*/true);
  std::vector<size_t> ends = {0};
  for (const uint32_t line : {3u, 1u, 4u}) {
    const std::string bytes = EncodeJobRecord(
        {.line = line, .failed = line == 1, .json = "{\"line\":" + std::to_string(line) + "}"},
        static_cast<int64_t>(ends.back()));
    EXPECT_TRUE(AppendAll(**results, bytes).ok());
    ends.push_back(ends.back() + bytes.size());
  }
  return ends;
}

constexpr char kResultsName[] = "0000000000000001.results";

TEST(JobFilesTest, ResultsThatAreCutAnywhereHaveTheirWholeRecords) {
  Folder whole;
  const std::vector<size_t> ends = MakeJob(whole);
  for (size_t size = 0; size <= ends.back(); ++size) {
    Folder disk;
    MakeJob(disk);
    disk.folder->files[kResultsName].resize(size);
    const auto read = disk.files.ReadFolder();
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(read->jobs.size(), 1u);
    const LeftJob& job = read->jobs[0];
    size_t records = 0;
    while (records + 1 < ends.size() && ends[records + 1] <= size) ++records;
    EXPECT_EQ(job.done_lines, records) << size;
    EXPECT_EQ(job.failed_lines, records >= 2 ? 1u : 0u);
    EXPECT_EQ(job.result_bytes, static_cast<int64_t>(ends[records]));
    EXPECT_EQ(job.torn, size != ends[records]);
    EXPECT_EQ(disk.folder->files[kResultsName].size(), ends[records]) << "the rest is cut off";
    EXPECT_EQ(read->next_number, 2u);
  }
}

TEST(JobFilesTest, ResultsBehindDamageAreCutOff) {
  Folder whole;
  const std::vector<size_t> ends = MakeJob(whole);
  for (size_t at = 0; at < ends.back(); ++at) {
    Folder disk;
    MakeJob(disk);
    std::string& bytes = disk.folder->files[kResultsName];
    bytes[at] = static_cast<char>(bytes[at] ^ 0x20);
    const auto read = disk.files.ReadFolder();
    ASSERT_TRUE(read.ok()) << read.status();
    size_t records = 0;
    while (ends[records + 1] <= at) ++records;
    EXPECT_EQ(read->jobs[0].done_lines, records) << at;
    EXPECT_TRUE(read->jobs[0].torn);
  }
}

TEST(JobFilesTest, WhatAServerLeftUnfinishedGoes) {
  Folder disk;
  MakeJob(disk);
  disk.folder->files["0000000000000002.lines"] = "{}";
  disk.folder->files["0000000000000003.job.new"] = "half";
  disk.folder->files["0000000000000004.job"] = "damaged";
  disk.folder->files["0000000000000004.lines"] = "{}";
  disk.folder->files["notes.txt"] = "of the operator";
  const auto read = disk.files.ReadFolder();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->jobs.size(), 1u);
  EXPECT_EQ(read->next_number, 5u);
  std::vector<std::string> names;
  for (const auto& [name, bytes] : disk.folder->files) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("0000000000000001.job", "0000000000000001.lines", kResultsName,
                                 "0000000000000004.broken", "0000000000000004.lines", "notes.txt"));
}

TEST(JobFilesTest, ADeathInAnyWriteLeavesTheOldStateOrTheNewOne) {
  for (int64_t operation = 0; operation < 4; ++operation) {
    for (const double share : {0.0, 0.5, 1.0}) {
      Folder disk;
      MakeJob(disk);
      disk.faults->DieAt(operation, share);
      JobState ended = Sample();
      ended.phase = JobPhase::kCompleted;
      disk.files.WriteState(1, ended).IgnoreError();
      JobFiles next(std::make_shared<MemoryDisk>(disk.folder, std::make_shared<DiskFaults>()));
      const auto read = next.ReadFolder();
      ASSERT_TRUE(read.ok()) << read.status();
      ASSERT_EQ(read->jobs.size(), 1u);
      const JobPhase phase = read->jobs[0].state.phase;
      EXPECT_TRUE(phase == JobPhase::kRunning || phase == JobPhase::kCompleted);
    }
  }
}

// --- Room.

TEST(JobRoomTest, LinesTakeWhatRequestsLeave) {
  const struct {
    JobRoom room;
    int32_t to_start;
  } kCases[] = {
      {{.rows = 64}, 16},                                           // at most so many at once
      {{.rows = 64, .running = 40, .lines = 40}, 16},               // 16 free, 8 of 64 are kept
      {{.rows = 64, .running = 50, .lines = 50}, 6},                // up to 56
      {{.rows = 64, .running = 60, .lines = 20}, 0},                // 40 requests
      {{.rows = 64, .running = 20, .lines = 0}, 16},                // 36 of 64 are free
      {{.rows = 64, .running = 10, .waiting = 1, .lines = 10}, 0},  // it does not fit: no more
      {{.rows = 64, .lines = 50}, 6},                               // on the way to the engine
      {{.rows = 2, .running = 0, .lines = 0}, 1},
      {{.rows = 2, .running = 1, .lines = 0}, 0},
      {{.rows = 1, .running = 0, .lines = 0}, 1},
      {{.rows = 1, .running = 1, .lines = 1}, 0},
  };
  for (const auto& [room, to_start] : kCases) {
    EXPECT_EQ(room.ToStart(), to_start)
        << room.rows << " " << room.running << " " << room.waiting << " " << room.lines;
  }
}

}  // namespace
}  // namespace quire
