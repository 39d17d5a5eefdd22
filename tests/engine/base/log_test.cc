// The log: both formats, filtering, hostile bytes, and a reader that stalls or goes away.
#include "engine/base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <limits>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"

namespace quire {
namespace {

// A pipe whose write end the log gets; the test reads it after StopLog.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(ends_), 0); }
  ~Pipe() {
    CloseReader();
    close(ends_[1]);
  }
  int writer() const { return ends_[1]; }
  void CloseReader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }
  // The bytes in the pipe now.
  std::string Take() {
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    std::string all;
    char chunk[65536];
    ssize_t got = 0;
    while ((got = read(ends_[0], chunk, sizeof chunk)) > 0) all.append(chunk, got);
    return all;
  }
  // Reads until `text` has been seen, from another thread's point of view a live reader.
  std::string ReadUntil(const std::string& text) {
    std::string all;
    char chunk[65536];
    while (all.find(text) == std::string::npos) {
      const ssize_t got = read(ends_[0], chunk, sizeof chunk);
      if (got <= 0) break;
      all.append(chunk, got);
    }
    return all;
  }

 private:
  int ends_[2] = {-1, -1};
};

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(LogTest, TextLinesCarryTimeSeverityEventAndFields) {
  Pipe pipe;
  StartLog(LogFormat::kText, Severity::kInfo, pipe.writer());
  Log(Severity::kInfo, "model loaded",
      {{"path", "/models/demo"}, {"seconds", 0.41}, {"ok", true}, {"blocks", 4096}});
  StopLog();
  const std::string line = pipe.Take();
  ASSERT_GT(line.size(), 25u);
  EXPECT_EQ(line[10], 'T');
  EXPECT_EQ(line.substr(23),
            "Z INFO model loaded path=/models/demo seconds=0.41 ok=true blocks=4096\n");
}

TEST(LogTest, JsonLinesParseAndKeepTypes) {
  Pipe pipe;
  StartLog(LogFormat::kJson, Severity::kDebug, pipe.writer());
  Log(Severity::kError, "bind failed",
      {{"address", "127.0.0.1:1"}, {"port", 1}, {"fatal", true}, {"ratio", 0.5}});
  StopLog();
  const nlohmann::json line = nlohmann::json::parse(pipe.Take());
  EXPECT_EQ(line["severity"], "ERROR");
  EXPECT_EQ(line["event"], "bind failed");
  EXPECT_EQ(line["address"], "127.0.0.1:1");
  EXPECT_EQ(line["port"], 1);
  EXPECT_EQ(line["fatal"], true);
  EXPECT_EQ(line["ratio"], 0.5);
}

TEST(LogTest, EventsBelowTheMinimumAreNotWritten) {
  Pipe pipe;
  StartLog(LogFormat::kText, Severity::kWarning, pipe.writer());
  Log(Severity::kInfo, "not this");
  Log(Severity::kWarning, "but this");
  StopLog();
  const std::string text = pipe.Take();
  EXPECT_EQ(text.find("not this"), std::string::npos);
  EXPECT_NE(text.find("but this"), std::string::npos);
}

TEST(LogTest, TheLastWarningsAndErrorsStayInMemoryNewestFirst) {
  Pipe pipe;
  StartLog(LogFormat::kJson, Severity::kWarning, pipe.writer());
  for (size_t i = 0; i < kMaxLoggedProblems + 5; ++i) {
    Log(Severity::kWarning, "disk is slow", {{"number", i}});
    Log(Severity::kInfo, "not this");
  }
  Log(Severity::kError, "disk is gone", {{"path", "/a b"}, {"seconds", 0.5}});
  StopLog();
  const std::vector<LoggedProblem> problems = LastProblems();
  ASSERT_EQ(problems.size(), kMaxLoggedProblems);
  EXPECT_EQ(problems[0].severity, Severity::kError);
  EXPECT_EQ(problems[0].text, "disk is gone path=\"/a b\" seconds=0.5");
  EXPECT_EQ(problems[0].time.size(), std::string("2026-11-20T17:01:53.798Z").size());
  EXPECT_EQ(problems[1].severity, Severity::kWarning);
  EXPECT_EQ(problems[1].text, "disk is slow number=54");
  EXPECT_EQ(problems.back().text, "disk is slow number=6");
}

// A name chosen by a client (a request id, a path) must not forge lines or drive a terminal.
TEST(LogTest, HostileTextStaysInsideItsField) {
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    Pipe pipe;
    StartLog(format, Severity::kInfo, pipe.writer());
    Log(Severity::kInfo, "request",
        {{"id", std::string("a\n2026 ERROR forged\x1b[31m \"q\" \xff\xfe x=y")}});
    Log(Severity::kInfo, "long", {{"id", std::string(100000, 'x')}, {"after", 1}});
    StopLog();
    const std::string text = pipe.Take();
    ASSERT_EQ(Lines(text).size(), 2u) << text;
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_EQ(text.find('\xff'), std::string::npos);
    EXPECT_LT(text.size(), 4000u);
    EXPECT_NE(text.find("after"), std::string::npos);
    if (format == LogFormat::kJson) {
      for (const std::string& line : Lines(text)) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
    }
  }
}

TEST(LogTest, NumbersWithoutAJsonFormBecomeNull) {
  Pipe pipe;
  StartLog(LogFormat::kJson, Severity::kInfo, pipe.writer());
  Log(Severity::kInfo, "ratio", {{"value", std::numeric_limits<double>::quiet_NaN()}});
  StopLog();
  EXPECT_TRUE(nlohmann::json::parse(pipe.Take())["value"].is_null());
}

// Ten thousand events into a pipe of 64 KiB without a reader: the callers return, the surplus
// is counted, and a reader that returns learns how much it missed.
TEST(LogTest, ABlockedPipeNeverBlocksTheCaller) {
  Pipe pipe;
  StartLog(LogFormat::kText, Severity::kInfo, pipe.writer());
  const uint64_t before = LogDroppedTotal();
  for (int i = 0; i < 10000; ++i) Log(Severity::kInfo, "event", {{"number", i}});
  EXPECT_GT(LogDroppedTotal(), before);
  // Once there is room again, the log first reports the gap.
  pipe.ReadUntil("log events were dropped count=");
  StopLog();
}

TEST(LogTest, StoppingWithABlockedPipeReturns) {
  Pipe pipe;
  StartLog(LogFormat::kText, Severity::kInfo, pipe.writer());
  for (int i = 0; i < 5000; ++i) Log(Severity::kInfo, "event", {{"number", i}});
  StopLog();
  pipe.Take();
}

TEST(LogTest, AClosedReaderAndAFullDiskAreCounted) {
  signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  pipe.CloseReader();
  uint64_t before = LogDroppedTotal();
  StartLog(LogFormat::kText, Severity::kInfo, pipe.writer());
  Log(Severity::kInfo, "not read");
  StopLog();
  EXPECT_EQ(LogDroppedTotal(), before + 1);

  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  before = LogDroppedTotal();
  StartLog(LogFormat::kText, Severity::kInfo, full);
  Log(Severity::kInfo, "no room for this");
  StopLog();
  EXPECT_EQ(LogDroppedTotal(), before + 1);
  close(full);
}

TEST(LogTest, EventsOutsideStartAndStopAreWrittenAtOnce) {
  Pipe pipe;
  StartLog(LogFormat::kText, Severity::kInfo, pipe.writer());
  StopLog();
  Log(Severity::kError, "late");
  EXPECT_NE(pipe.Take().find("ERROR late"), std::string::npos);
}

TEST(LogTest, ManyThreadsLoseNothingWhileTheReaderKeepsUp) {
  Pipe pipe;
  StartLog(LogFormat::kText, Severity::kInfo, pipe.writer());
  const uint64_t before = LogDroppedTotal();
  std::string text;
  std::thread reader([&] { text = pipe.ReadUntil("the end"); });
  std::vector<std::thread> writers;
  for (int t = 0; t < 4; ++t) {
    writers.emplace_back([] {
      for (int i = 0; i < 500; ++i) Log(Severity::kInfo, "event", {{"number", i}});
    });
  }
  for (std::thread& writer : writers) writer.join();
  Log(Severity::kInfo, "the end");
  StopLog();
  reader.join();
  EXPECT_EQ(LogDroppedTotal(), before);
  EXPECT_EQ(Lines(text).size(), 2001u);
}

}  // namespace
}  // namespace quire
