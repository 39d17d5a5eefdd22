// Frames of the stream to stdout as they come; the speed, when asked for, to stderr at the end.
#include "clients/cpp/answer.h"

#include <chrono>
#include <optional>

#include "absl/strings/str_format.h"
#include "clients/cpp/json_output.h"
#include "clients/cpp/report.h"

namespace quire::cli {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// What was measured of one completion, as its reader saw it.
struct Speed {
  Clock::time_point start = Clock::now();
  std::optional<Clock::time_point> first;  // frame with tokens
  Clock::time_point last;
  uint32_t first_tokens = 0;  // tokens in that first frame
  uint32_t tokens = 0;

  void Count(const v1::TokenDelta& delta) {
    last = Clock::now();
    tokens = delta.cumulative_tokens();
    if (first) return;
    first = last;
    first_tokens = tokens;
  }
};

std::string FinishName(const v1::Finished& finished) {
  std::string name = v1::FinishReason_Name(finished.reason());
  const std::string prefix = "FINISH_REASON_";
  return name.compare(0, prefix.size(), prefix) == 0 ? name.substr(prefix.size()) : name;
}

void PrintTokens(const v1::Finished& finished, std::ostream& err) {
  const v1::Usage& usage = finished.usage();
  err << absl::StrFormat("prompt tokens:       %d\n", usage.prompt_tokens());
  if (usage.cached_tokens() > 0) {
    err << absl::StrFormat("of them cached:      %d\n", usage.cached_tokens());
  }
  err << absl::StrFormat("completion tokens:   %d (%s)\n", usage.completion_tokens(),
                         FinishName(finished));
}

// tokens/s counts the tokens after the first frame over the time they took to arrive: the time to
// the first token, which is prefill and queue, is its own number.
void PrintSpeed(const Speed& speed, const v1::Finished& finished, std::ostream& err) {
  const double decode = speed.first ? Seconds(*speed.first, speed.last) : 0;
  const uint32_t counted = speed.tokens - speed.first_tokens;
  PrintTokens(finished, err);
  if (speed.first) {
    err << absl::StrFormat("time to first token: %.1f ms\n",
                           1e3 * Seconds(speed.start, *speed.first));
  }
  if (decode > 0 && counted > 0) {
    err << absl::StrFormat("tokens per second:   %.1f\n", counted / decode);
  }
  err << absl::StrFormat("total time:          %.3f s\n", Seconds(speed.start, Clock::now()));
}

// The server's own clock, for an answer that came in one piece.
void PrintTimings(const v1::Finished& finished, std::ostream& err) {
  const v1::Timings& timings = finished.timings();
  const uint32_t tokens = finished.usage().completion_tokens();
  PrintTokens(finished, err);
  err << absl::StrFormat("time to first token: %.1f ms\n", 1e3 * timings.first_token_seconds());
  if (tokens > 1 && timings.decode_seconds() > 0) {
    err << absl::StrFormat("tokens per second:   %.1f\n", (tokens - 1) / timings.decode_seconds());
  }
  err << absl::StrFormat("total time:          %.3f s\n", timings.total_seconds());
}

// Prints what a frame says; text without line ends of our own.
class FramePrinter {
 public:
  FramePrinter(const Invocation& line, std::ostream& out)
      : json_(line.json), ids_(line.generate.print_ids), out_(out) {}

  void Print(const v1::GenerateResponse& frame) {
    if (json_) return PrintJson(frame, out_);
    if (!frame.has_tokens()) return;
    if (ids_) return PrintIds(frame.tokens().token_ids());
    PrintText(frame.tokens().text());
  }
  void Print(const v1::GenerateResult& result) {
    if (json_) return PrintJson(result, out_);
    if (ids_) return PrintIds(result.token_ids());
    PrintText(result.text());
  }
  // Ends the last line, so that what follows on the screen starts on its own.
  void End() {
    if (open_line_) out_ << "\n" << std::flush;
  }

 private:
  void PrintText(const std::string& text) {
    if (text.empty()) return;
    out_ << text << std::flush;
    open_line_ = text.back() != '\n';
  }
  template <typename Ids>
  void PrintIds(const Ids& ids) {
    for (const uint32_t id : ids) {
      out_ << (open_line_ ? " " : "") << id;
      open_line_ = true;
    }
    out_.flush();
  }

  const bool json_;
  const bool ids_;
  std::ostream& out_;
  bool open_line_ = false;
};

}  // namespace

int AnswerPrinter::Print(const v1::GenerateRequest& request, Answer* answer) {
  return line_.generate.no_stream ? PrintWhole(request, answer) : PrintStream(request, answer);
}

int AnswerPrinter::PrintStream(const v1::GenerateRequest& request, Answer* answer) {
  FramePrinter printer(line_, terminal_.out);
  Speed speed;
  bool finished = false;
  const grpc::Status status = connection_.Run([&](grpc::ClientContext* context) {
    auto reader = connection_.inference().Generate(context, request);
    v1::GenerateResponse frame;
    while (reader->Read(&frame)) {
      if (frame.has_tokens()) {
        speed.Count(frame.tokens());
        answer->text += frame.tokens().text();
      }
      if (frame.has_finished()) {
        finished = true;
        answer->finished = frame.finished();
      }
      printer.Print(frame);
      // Nobody can read on: do not let the server work on.
      if (!terminal_.out) context->TryCancel();
    }
    return reader->Finish();
  });
  printer.End();
  if (!terminal_.out) return ReportLocal("cannot write the output", terminal_.err);
  if (!status.ok()) return Report(status, terminal_.err);
  if (!finished) return ReportLocal("the stream ended without a Finished frame", terminal_.err);
  if (line_.generate.stats) PrintSpeed(speed, answer->finished, terminal_.err);
  return kExitOk;
}

int AnswerPrinter::PrintWhole(const v1::GenerateRequest& request, Answer* answer) {
  v1::GenerateResult result;
  const grpc::Status status = connection_.Run([&](grpc::ClientContext* context) {
    return connection_.inference().GenerateUnary(context, request, &result);
  });
  if (!status.ok()) return Report(status, terminal_.err);
  FramePrinter printer(line_, terminal_.out);
  printer.Print(result);
  printer.End();
  answer->text = result.text();
  answer->finished = result.finished();
  if (line_.generate.stats) PrintTimings(answer->finished, terminal_.err);
  return kExitOk;
}

}  // namespace quire::cli
