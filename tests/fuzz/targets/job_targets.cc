// The bodies of the targets; CHECK is the oracle.
#include "tests/fuzz/targets/job_targets.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <string>
#include <tuple>
#include <vector>

#include "engine/base/json.h"
#include "kernels/check.h"
#include "server/call/status_codec.h"
#include "server/jobs/job_line.h"
#include "server/jobs/job_record.h"
#include "server/jobs/job_state.h"
#include "server/jobs/line_reader.h"
#include "server/session/little_endian.h"

namespace quire {
namespace {

constexpr size_t kMaxLineBytes = 20;

using Line = std::tuple<uint32_t, std::string, bool>;

std::vector<Line> LinesOf(std::string_view bytes, size_t piece) {
  LineSplitter splitter(kMaxLineBytes);
  std::vector<Line> lines;
  const auto add = [&lines](std::optional<InputLine> line) {
    if (line) lines.emplace_back(line->number, std::move(line->text), line->too_long);
  };
  for (size_t at = 0; at < bytes.size(); at += piece) {
    std::string_view rest = bytes.substr(at, piece);
    while (!rest.empty()) {
      const size_t before = rest.size();
      add(splitter.Take(&rest));
      CHECK(rest.size() < before);
    }
  }
  add(splitter.Finish());
  return lines;
}

}  // namespace

void FuzzJobLines(std::string_view bytes) {
  const std::vector<Line> lines = LinesOf(bytes, bytes.size() + 1);
  for (const size_t piece : {1, 7}) CHECK(LinesOf(bytes, piece) == lines);
  uint32_t last = 0;
  for (const auto& [number, text, too_long] : lines) {
    CHECK(number > last && text.find('\n') == std::string::npos);
    CHECK(too_long || text.size() <= kMaxLineBytes);
    last = number;
  }
}

void FuzzJobLine(std::string_view bytes) {
  RequestLine line;
  const absl::Status status = ReadJobLine({.number = 7, .text = std::string(bytes)}, &line);
  CHECK(status.ok() || (absl::IsInvalidArgument(status) && !FieldOf(status).empty()));
  const LineResult result = WriteLineResult(line, InvalidField("line", "x"), nullptr, 1 << 20);
  const auto failed = ParseJson(result.json, "result");
  CHECK(failed.ok() && (*failed)["custom_id"] == line.custom_id);
  CHECK(line.openai ? (*failed)["id"] == "batch_req_7" : (*failed)["line"] == 7);
}

void FuzzJobRecord(std::string_view bytes) {
  const auto record = ReadJobRecord(bytes, 40);
  if (!record.ok()) {
    CHECK(absl::IsOutOfRange(record.status()) || absl::IsDataLoss(record.status()));
    return;
  }
  const std::string again = EncodeJobRecord(*record, 40);
  CHECK(again == bytes.substr(0, again.size()));
}

void FuzzJobState(std::string_view given) {
  std::string bytes(given);
  for (const bool sealed : {false, true}) {
    if (sealed && bytes.size() >= 8) {
      bytes.resize(bytes.size() - 8);
      PutInt(static_cast<uint64_t>(XXH3_64bits(bytes.data(), bytes.size())), &bytes);
    }
    const auto state = ReadJobState(bytes);
    if (!state.ok()) {
      CHECK(absl::IsDataLoss(state.status()));
      continue;
    }
    const std::string written = EncodeJobState(*state);
    CHECK(EncodeJobState(*ReadJobState(written)) == written);
  }
}

}  // namespace quire
