// Frames of the stream to stdout as they come; the speed, when asked for, to stderr at the end.
#include "clients/cpp/call/answer.h"

#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "clients/cpp/call/json_output.h"
#include "clients/cpp/call/report.h"

namespace quire::cli {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string FinishName(const v1::Finished& finished) {
  std::string name = v1::FinishReason_Name(finished.reason());
  const std::string prefix = "FINISH_REASON_";
  return name.compare(0, prefix.size(), prefix) == 0 ? name.substr(prefix.size()) : name;
}

void PrintStats(const v1::Finished& finished, double first_token, double total, std::ostream& err) {
  const bool several = finished.has_request_usage();
  const v1::Usage& usage = several ? finished.request_usage() : finished.usage();
  err << absl::StrFormat("prompt tokens:       %d\n", usage.prompt_tokens());
  if (usage.cached_tokens() > 0) {
    err << absl::StrFormat("of them cached:      %d\n", usage.cached_tokens());
  }
  const uint32_t tokens = usage.completion_tokens();
  err << absl::StrFormat("completion tokens:   %d", tokens);
  err << (several ? " of all answers\n" : " (" + FinishName(finished) + ")\n");
  if (usage.reasoning_tokens() > 0) {
    err << absl::StrFormat("of them reasoning:   %d\n", usage.reasoning_tokens());
  }
  if (usage.guessed_tokens() > 0) {
    err << absl::StrFormat("guessed tokens:      %d, %d of them right\n", usage.guessed_tokens(),
                           usage.accepted_guesses());
  }
  if (tokens > 0) err << absl::StrFormat("time to first token: %.1f ms\n", 1e3 * first_token);
  // By the server's clock: tokens may arrive together, in one frame or in two that were waiting,
  // whatever time they took. The first token's time, prefill and queue, is its own number.
  const double decode = finished.timings().decode_seconds();
  if (tokens > 1 && decode > 0 && !several) {
    err << absl::StrFormat("tokens per second:   %.1f\n", (tokens - 1) / decode);
  }
  err << absl::StrFormat("total time:          %.3f s\n", total);
}

// Prints frames; adds no line ends to their text, but for those around reasoning and calls.
class FramePrinter {
 public:
  FramePrinter(const Invocation& line, std::ostream& out)
      : json_(line.json),
        ids_(line.generate.print_ids),
        reasoning_(line.generate.answer.show_reasoning),
        out_(out) {}

  void Print(const v1::GenerateResponse& frame) {
    if (json_) return PrintJson(frame, out_);
    if (frame.has_finished()) return Finish(frame.finished());
    if (!frame.has_tokens()) return;
    if (frame.tokens().has_index()) return Keep(frame.tokens(), &kept_[frame.tokens().index()]);
    if (ids_) return PrintIds(frame.tokens().token_ids());
    PrintAnswer(frame.tokens());
  }
  void Print(const v1::GenerateResult& result) {
    if (json_) return PrintJson(result, out_);
    if (result.finished().has_index()) {
      Keep(result, &kept_[0]);
      Finish(result.finished());
      for (const v1::FurtherAnswer& answer : result.further_answers()) {
        Keep(answer, &kept_[answer.finished().index()]);
        Finish(answer.finished());
      }
      return;
    }
    if (ids_) return PrintIds(result.token_ids());
    PrintAnswer(result);
  }
  // Ends the last line, so that the next output starts on a new one.
  void End() {
    if (open_line_) out_ << "\n" << std::flush;
  }

 private:
  // One of several answers, until it has ended and those before it are printed.
  struct Kept {
    v1::TokenDelta output;
    bool ended = false;
  };

  template <typename Output>
  static void Keep(const Output& output, Kept* kept) {
    v1::TokenDelta& so_far = kept->output;
    so_far.mutable_text()->append(output.text());
    so_far.mutable_reasoning()->append(output.reasoning());
    so_far.mutable_tool_calls()->MergeFrom(output.tool_calls());
    so_far.mutable_token_ids()->MergeFrom(output.token_ids());
  }
  void Finish(const v1::Finished& finished) {
    if (!finished.has_index()) return;
    kept_[finished.index()].ended = true;
    for (auto next = kept_.begin();
         next != kept_.end() && next->first == printed_ && next->second.ended;
         next = kept_.erase(next), ++printed_) {
      End();
      out_ << "--- " << printed_ << "\n";
      open_line_ = false;
      if (ids_) {
        PrintIds(next->second.output.token_ids());
      } else {
        PrintAnswer(next->second.output);
      }
    }
  }
  // A call is a line, NAME ARGUMENTS.
  template <typename Message>
  void PrintAnswer(const Message& message) {
    if (reasoning_ && !message.reasoning().empty()) {
      PrintText(message.reasoning());
      reasons_ = true;
    }
    const bool answers = !message.text().empty() || !message.tool_calls().empty();
    if (answers && std::exchange(reasons_, false)) PrintText(open_line_ ? "\n---\n" : "---\n");
    if (!message.text().empty() && std::exchange(calls_, false) && open_line_) PrintText("\n");
    PrintText(message.text());
    for (const v1::ToolCallDelta& call : message.tool_calls()) {
      if (call.has_name()) PrintText((open_line_ ? "\n" : "") + call.name() + " ");
      PrintText(call.arguments());
      calls_ = true;
    }
  }
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
  const bool reasoning_;
  std::ostream& out_;
  bool reasons_ = false;  // reasoning was printed, and nothing after it
  bool calls_ = false;    // likewise a call
  bool open_line_ = false;
  std::map<uint32_t, Kept> kept_;  // by index
  uint32_t printed_ = 0;           // answers
};

template <typename Message>
void Gather(const Message& message, Answer* answer) {
  answer->text += message.text();
  answer->reasoning += message.reasoning();
  for (const v1::ToolCallDelta& part : message.tool_calls()) {
    if (answer->calls.empty() || answer->calls.back().index() != part.index()) {
      answer->calls.push_back(part);
    } else {
      answer->calls.back().mutable_arguments()->append(part.arguments());
    }
  }
}

// Reads the frames of one answer, from one call or from several: a request with detach_seconds goes
// on when its connection is lost, and another call attaches to it.
class StreamReader {
 public:
  // All outlive it.
  StreamReader(FramePrinter& printer, Terminal& terminal, Answer* answer)
      : printer_(printer), terminal_(terminal), answer_(*answer) {}

  grpc::Status ReadAll(grpc::ClientContext* context,
                       grpc::ClientReader<v1::GenerateResponse>& frames) {
    v1::GenerateResponse frame;
    while (frames.Read(&frame)) {
      Take(frame);
      // The output is closed: stop the server's work for it.
      if (!terminal_.out) context->TryCancel();
    }
    return frames.Finish();
  }

  bool finished() const { return finished_; }
  // When the first frame with tokens came.
  std::optional<Clock::time_point> first() const { return first_; }
  // Of a request that may run although its call has ended; else empty.
  std::string Advice(const grpc::Status& status) const {
    const bool left = detachable() && status.error_details().empty() &&
                      (status.error_code() == grpc::StatusCode::CANCELLED || MayGoOn(status));
    if (!left) return "";
    return absl::StrFormat("quire: the request may go on: quire attach %s --after %d\n",
                           next_.request_id(), next_.after_tokens());
  }

  // A server that ends a call says why; without that, the connection is lost.
  bool MayGoOn(const grpc::Status& status) const {
    return detachable() && !finished_ && status.error_code() == grpc::StatusCode::UNAVAILABLE &&
           status.error_details().empty();
  }
  // Attaches, again and again, until the server would have forgotten the request. Returns the
  // status of the last call.
  grpc::Status GoOn(Connection& connection, grpc::Status status) {
    auto until = std::chrono::system_clock::now() + Duration();
    while (MayGoOn(status)) {
      const grpc::Status reached = connection.Run([&](grpc::ClientContext* context) {
        context->set_wait_for_ready(true);
        context->set_deadline(until);
        grpc::health::v1::HealthCheckResponse response;
        return connection.health().Check(context, {}, &response);
      });
      if (std::chrono::system_clock::now() >= until) return status;
      if (reached.error_code() == grpc::StatusCode::CANCELLED) return reached;
      const uint32_t before = next_.after_tokens();
      status = connection.Run([&](grpc::ClientContext* context) {
        return ReadAll(context, *connection.inference().Attach(context, next_));
      });
      if (next_.after_tokens() > before) until = std::chrono::system_clock::now() + Duration();
    }
    return status;
  }

 private:
  bool detachable() const { return detach_seconds_ > 0; }
  std::chrono::milliseconds Duration() const {
    return std::chrono::milliseconds(static_cast<int64_t>(detach_seconds_ * 1e3));
  }

  void Take(const v1::GenerateResponse& frame) {
    if (frame.has_accepted()) {
      const bool again = !next_.request_id().empty();
      next_.set_request_id(frame.request_id());
      detach_seconds_ = frame.accepted().detach_seconds();
      if (again) return;  // by a further call
    }
    if (frame.has_tokens()) {
      if (!first_) first_ = Clock::now();
      next_.set_after_tokens(frame.tokens().cumulative_tokens());
      Gather(frame.tokens(), &answer_);
    }
    if (frame.has_finished()) {
      finished_ = true;
      // One of several answers has the usage of all.
      if (!answer_.finished.has_request_usage()) answer_.finished = frame.finished();
    }
    printer_.Print(frame);
  }

  FramePrinter& printer_;
  Terminal& terminal_;
  Answer& answer_;
  v1::AttachRequest next_;  // for a further call
  double detach_seconds_ = 0;
  std::optional<Clock::time_point> first_;
  bool finished_ = false;
};

}  // namespace

int AnswerPrinter::Print(const v1::GenerateRequest& request, Answer* answer) {
  if (!line_.generate.stream) return PrintWhole(request, answer);
  return PrintStream(
      [&](grpc::ClientContext* context) {
        return connection_.inference().Generate(context, request);
      },
      answer);
}

int AnswerPrinter::PrintRest(const v1::AttachRequest& request, Answer* answer) {
  return PrintStream(
      [&](grpc::ClientContext* context) {
        return connection_.inference().Attach(context, request);
      },
      answer);
}

int AnswerPrinter::PrintStream(const Open& open, Answer* answer) {
  FramePrinter printer(line_, terminal_.out);
  const Clock::time_point start = Clock::now();
  StreamReader reader(printer, terminal_, answer);
  grpc::Status status = connection_.Run(
      [&](grpc::ClientContext* context) { return reader.ReadAll(context, *open(context)); });
  if (reader.MayGoOn(status)) {
    terminal_.err << "quire: the connection is lost; waiting for the server\n" << std::flush;
    status = reader.GoOn(connection_, status);
  }
  printer.End();
  if (!terminal_.out) return ReportLocal("cannot write the output", terminal_.err);
  if (!status.ok()) {
    terminal_.err << reader.Advice(status);
    return Report(status, terminal_.err);
  }
  if (!reader.finished()) {
    return ReportLocal("the stream ended without a Finished frame", terminal_.err);
  }
  if (line_.generate.stats) {
    const Clock::time_point end = Clock::now();
    PrintStats(answer->finished, Seconds(start, reader.first().value_or(end)), Seconds(start, end),
               terminal_.err);
  }
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
  Gather(result, answer);
  answer->finished = result.finished();
  if (line_.generate.stats) {
    const v1::Timings& timings = answer->finished.timings();
    PrintStats(answer->finished, timings.first_token_seconds(), timings.total_seconds(),
               terminal_.err);
  }
  return kExitOk;
}

}  // namespace quire::cli
