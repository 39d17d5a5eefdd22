// Results are the server's lines, printed as they come.
#include "clients/cpp/job/job.h"

#include <memory>
#include <string>

#include "clients/cpp/call/input_file.h"
#include "clients/cpp/call/json_output.h"
#include "clients/cpp/call/report.h"

namespace quire::cli {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

const char* StateName(v1::Job::State state) {
  switch (state) {
    case v1::Job::STATE_RUNNING: return "running";
    case v1::Job::STATE_COMPLETED: return "completed";
    case v1::Job::STATE_CANCELLED: return "cancelled";
    case v1::Job::STATE_FAILED: return "failed";
    default: return "unknown";
  }
}

void PrintJob(const v1::Job& job, bool json, std::ostream& out) {
  if (json) return PrintJson(job, out);
  out << job.job_id() << "  " << StateName(job.state()) << "  " << job.done_lines() << " of "
      << job.lines() << " lines, " << job.failed_lines() << " failed";
  if (job.has_failure()) out << "; " << job.failure();
  out << "\n";
}

// Calls `method` and prints the job it answers with.
template <typename Call>
int Ask(const Invocation& line, Connection& connection, Terminal& terminal, Call call) {
  v1::Job job;
  const grpc::Status status =
      connection.Run([&](grpc::ClientContext* context) { return call(context, &job); });
  if (!status.ok()) return Report(status, terminal.err);
  PrintJob(job, line.json, terminal.out);
  return kExitOk;
}

int Results(const std::string& name, uint64_t offset, bool no_wait, Connection& connection,
            Terminal& terminal) {
  v1::JobResultsRequest request;
  request.set_job_id(name);
  request.set_offset(offset);
  request.set_no_wait(no_wait);
  const grpc::Status status = connection.Run([&](grpc::ClientContext* context) {
    const auto reader = connection.jobs().Results(context, request);
    for (v1::JobResults results; reader->Read(&results);) {
      for (const std::string& line : results.lines()) terminal.out << line << "\n";
      terminal.out.flush();
      offset = results.next_offset();
      if (!terminal.out) context->TryCancel();
    }
    return reader->Finish();
  });
  if (!status.ok() && offset > 0) {
    terminal.err << "quire: the rest: quire job results " << name << " --offset " << offset << "\n";
  }
  return Report(status, terminal.err);
}

// Sends `in` until its end, or until the server refuses more.
void Send(std::istream& in, v1::CreateJobRequest* request,
          grpc::ClientWriter<v1::CreateJobRequest>* writer) {
  std::string& data = *request->mutable_data();
  for (bool first = true;; first = false) {
    data.resize(kChunkBytes);
    in.read(data.data(), kChunkBytes);
    data.resize(static_cast<size_t>(in.gcount()));
    if (data.empty() && !first) break;
    if (!writer->Write(*request)) break;
    request->clear_options();
  }
  writer->WritesDone();
}

int Create(const Invocation& line, Connection& connection, Terminal& terminal) {
  InputFile file;
  std::istream* const in = file.Open(line.job.file, terminal);
  if (in == nullptr) return kExitLocal;
  v1::CreateJobRequest request;
  v1::JobOptions& options = *request.mutable_options();
  if (line.job.name) options.set_job_id(*line.job.name);
  if (line.job.priority) options.set_priority(*line.job.priority);
  if (line.job.expires_after_seconds) {
    options.set_expires_after_seconds(*line.job.expires_after_seconds);
  }
  v1::Job job;
  const grpc::Status status = connection.Run([&](grpc::ClientContext* context) {
    const auto writer = connection.jobs().Create(context, &job);
    Send(*in, &request, writer.get());
    return writer->Finish();
  });
  if (!status.ok()) return Report(status, terminal.err);
  PrintJob(job, line.json, line.job.wait ? terminal.err : terminal.out);
  if (!line.job.wait) return kExitOk;
  return Results(job.job_id(), 0, /*no_wait=*/false, connection, terminal);
}

int List(const Invocation& line, Connection& connection, Terminal& terminal) {
  v1::ListJobsResponse response;
  const grpc::Status status = connection.Run(
      [&](grpc::ClientContext* context) { return connection.jobs().List(context, {}, &response); });
  if (!status.ok()) return Report(status, terminal.err);
  for (const v1::Job& job : response.jobs()) PrintJob(job, line.json, terminal.out);
  return kExitOk;
}

int Delete(const Invocation& line, Connection& connection, Terminal& terminal) {
  v1::DeleteJobRequest request;
  v1::DeleteJobResponse response;
  request.set_job_id(*line.job.name);
  const grpc::Status status = connection.Run([&](grpc::ClientContext* context) {
    return connection.jobs().Delete(context, request, &response);
  });
  return Report(status, terminal.err);
}

}  // namespace

int RunJob(const Invocation& line, Connection& connection, Terminal& terminal) {
  const std::string& verb = line.job.verb;
  if (verb == "create") return Create(line, connection, terminal);
  if (verb == "list") return List(line, connection, terminal);
  if (verb == "delete") return Delete(line, connection, terminal);
  const std::string& name = *line.job.name;
  if (verb == "results") {
    return Results(name, line.job.offset, line.job.no_wait, connection, terminal);
  }
  if (verb == "cancel") {
    return Ask(line, connection, terminal, [&](grpc::ClientContext* context, v1::Job* job) {
      v1::CancelJobRequest request;
      request.set_job_id(name);
      return connection.jobs().Cancel(context, request, job);
    });
  }
  return Ask(line, connection, terminal, [&](grpc::ClientContext* context, v1::Job* job) {
    v1::GetJobRequest request;
    request.set_job_id(name);
    return connection.jobs().Get(context, request, job);
  });
}

}  // namespace quire::cli
