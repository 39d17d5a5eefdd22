// The server sends the file in pieces, and the breakdown last.
#include "clients/cpp/trace.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "clients/cpp/call/json_output.h"
#include "clients/cpp/call/report.h"
#include "clients/cpp/call/whole_file.h"

namespace quire::cli {
namespace {

// Copies the file to `out`; `bytes` counts them.
grpc::Status Receive(const TraceFlags& flags, Connection& connection, std::ostream& out,
                     uint64_t* bytes, v1::StepBreakdown* breakdown) {
  v1::TraceRequest request;
  if (flags.seconds) request.set_seconds(*flags.seconds);
  if (flags.profile_steps) request.set_profile_steps(*flags.profile_steps);
  if (flags.uncaptured) request.set_uncaptured(true);
  return connection.Run([&](grpc::ClientContext* context) {
    const auto reader = connection.control().Trace(context, request);
    v1::TraceChunk chunk;
    while (reader->Read(&chunk)) {
      out.write(chunk.json().data(), static_cast<std::streamsize>(chunk.json().size()));
      *bytes += chunk.json().size();
      if (!out) context->TryCancel();
      if (chunk.has_breakdown()) *breakdown = chunk.breakdown();
    }
    return reader->Finish();
  });
}

void PrintRank(const v1::StepBreakdown::Rank& rank, std::ostream& out) {
  if (rank.parts().empty()) {
    out << absl::StrFormat("rank %-5d no step was timed: only steps behind another one are\n",
                           rank.rank());
    return;
  }
  double total = 0;
  for (const v1::StepBreakdown::Part& part : rank.parts()) total += part.seconds();
  out << absl::StrFormat("rank %-5d %.3f ms a step, the mean of %d that were timed\n", rank.rank(),
                         1e3 * total, rank.timed_steps());
  for (const v1::StepBreakdown::Part& part : rank.parts()) {
    if (part.seconds() == 0) continue;
    out << absl::StrFormat("           %-12s %9.3f ms %5.1f %%\n", part.name(),
                           1e3 * part.seconds(), 100 * part.seconds() / total);
  }
}

void Print(const v1::StepBreakdown& breakdown, std::ostream& out) {
  const double seconds = std::max(breakdown.seconds(), 1e-9);
  out << absl::StrFormat("recorded   %.1f s, %d steps, %.0f generated and %.0f prompt tokens/s\n",
                         breakdown.seconds(), breakdown.steps(),
                         static_cast<double>(breakdown.generated_tokens()) / seconds,
                         static_cast<double>(breakdown.prompt_tokens()) / seconds);
  for (const v1::StepBreakdown::Rank& rank : breakdown.ranks()) PrintRank(rank, out);
  if (breakdown.ranks().empty()) out << "no step was timed: only steps behind another one are\n";
  if (breakdown.dropped_events() > 0) {
    out << absl::StrFormat("dropped    %d events: record for a shorter time\n",
                           breakdown.dropped_events());
  }
}

}  // namespace

int RunTrace(const Invocation& line, Connection& connection, Terminal& terminal) {
  const std::string& path = line.trace.out;
  v1::StepBreakdown breakdown;
  uint64_t bytes = 0;
  if (path == "-") {
    const grpc::Status status = Receive(line.trace, connection, terminal.out, &bytes, &breakdown);
    if (!terminal.out) return ReportLocal("cannot write the output", terminal.err);
    return Report(status, terminal.err);
  }
  WholeFile file(path);
  if (!file.out()) return ReportLocal(CannotWrite(path), terminal.err);
  const grpc::Status status = Receive(line.trace, connection, file.out(), &bytes, &breakdown);
  if (!file.out()) return ReportLocal(CannotWrite(path), terminal.err);
  if (!status.ok()) return Report(status, terminal.err);
  if (!file.Keep()) return ReportLocal(CannotWrite(path), terminal.err);
  if (line.json) {
    PrintJson(breakdown, terminal.out);
    return kExitOk;
  }
  Print(breakdown, terminal.out);
  terminal.out << "wrote      " << bytes << " bytes to " << path
               << "; open it at ui.perfetto.dev\n";
  return kExitOk;
}

}  // namespace quire::cli
