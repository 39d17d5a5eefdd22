// `quire info` for people is a page of labelled lines; for programs it is one JSON object of the
// four answers, or of two for a key without the scope metrics.
#include "clients/cpp/control.h"

#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "clients/cpp/call/json_output.h"
#include "clients/cpp/call/report.h"

namespace quire::cli {
namespace {

struct Answers {
  v1::ServerInfo server;
  v1::ModelInfo model;
  bool has_load = true;  // false: the caller's key may not see load and memory
  v1::Load load;
  v1::MemoryPlan memory;
};

grpc::Status Ask(const Invocation& line, Connection& connection, Answers* answers) {
  v1::Control::Stub& control = connection.control();
  grpc::Status status = connection.Run([&](grpc::ClientContext* context) {
    return control.GetServerInfo(context, {}, &answers->server);
  });
  if (!status.ok()) return status;
  v1::GetModelInfoRequest model;
  if (line.model) model.set_model(*line.model);
  status = connection.Run([&](grpc::ClientContext* context) {
    return control.GetModelInfo(context, model, &answers->model);
  });
  if (!status.ok()) return status;
  status = connection.Run(
      [&](grpc::ClientContext* context) { return control.GetLoad(context, {}, &answers->load); });
  if (status.error_code() == grpc::StatusCode::PERMISSION_DENIED) {
    answers->has_load = false;
    return grpc::Status::OK;
  }
  if (!status.ok()) return status;
  return connection.Run([&](grpc::ClientContext* context) {
    return control.GetMemoryPlan(context, {}, &answers->memory);
  });
}

// "STATE_READY" as "ready".
std::string StateName(v1::ServerInfo::State state) {
  std::string name = v1::ServerInfo::State_Name(state);
  const std::string prefix = "STATE_";
  if (name.compare(0, prefix.size(), prefix) == 0) name = name.substr(prefix.size());
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::string Bytes(uint64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

void Print(const v1::ServerInfo& server, std::ostream& out) {
  const std::string commit = server.has_commit() ? " (commit " + server.commit() + ")" : "";
  out << absl::StrFormat("server   quire %s%s, %s, up %.0f s, instance %s\n", server.version(),
                         commit, StateName(server.state()), server.uptime_seconds(),
                         server.instance_id());
  out << absl::StrFormat("device   %s, tensor parallel size %d\n", server.device(),
                         server.tensor_parallel_size());
  out << absl::StrFormat("limits   %d running, %d queued requests, %s a request\n",
                         server.max_running_requests(), server.max_queued_requests(),
                         Bytes(server.max_request_bytes()));
}

void Print(const v1::ModelInfo& model, std::ostream& out) {
  const bool narrow = !model.quantization().empty() && model.quantization() != "none";
  out << absl::StrFormat("model    %s (%s), %d parameters, %s, KV cache %s\n", model.model(),
                         model.architecture(), model.num_parameters(), model.dtype(),
                         model.kv_cache_dtype());
  if (narrow) out << absl::StrFormat("matrices %s\n", model.quantization());
  out << absl::StrFormat("shape    %d layers, hidden size %d, vocabulary %d, context %d tokens\n",
                         model.num_layers(), model.hidden_size(), model.vocab_size(),
                         model.max_model_len());
  out << absl::StrFormat("ends at  token ids %s; chat template: %s\n",
                         absl::StrJoin(model.eos_token_ids(), ", "),
                         model.has_chat_template() ? "yes" : "no");
}

void Print(const v1::Load& load, std::ostream& out) {
  out << absl::StrFormat("load     %d running, %d waiting requests (%d tokens), %d open streams\n",
                         load.running_requests(), load.waiting_requests(), load.waiting_tokens(),
                         load.open_streams());
  out << absl::StrFormat("kv       %d of %d blocks free (%.1f%% used), %d preemptions\n",
                         load.free_blocks(), load.total_blocks(), 100 * load.kv_usage(),
                         load.preemptions());
  out << absl::StrFormat(
      "cache    %d of the free blocks hold KV; %d of %d blocks of host memory do\n",
      load.cached_blocks(), load.host_pages_used(), load.host_pages());
  out << absl::StrFormat("sessions %d with %d tokens\n", load.sessions(), load.session_tokens());
  out << absl::StrFormat("so far   %d steps, %d prompt and %d generated tokens\n", load.steps(),
                         load.prompt_tokens(), load.generated_tokens());
}

void Print(const v1::MemoryPlan& memory, std::ostream& out) {
  const std::string where =
      memory.ranks() > 1 ? absl::StrFormat(" on each of %d ranks", memory.ranks()) : "";
  out << absl::StrFormat("memory   %s%s, KV cache of %d tokens\n", Bytes(memory.total_bytes()),
                         where, memory.kv_tokens());
  for (const v1::MemoryPlan::Part& part : memory.parts()) {
    out << absl::StrFormat("         %-12s %s\n", part.name(), Bytes(part.bytes()));
  }
  if (memory.host_bytes() > 0) {
    out << absl::StrFormat("host     %s, KV of %d tokens that left the device\n",
                           Bytes(memory.host_bytes()), memory.host_kv_tokens());
  }
}

int RunUndrain(const Invocation& line, Connection& connection, Terminal& terminal) {
  v1::UndrainResponse response;
  const grpc::Status status = connection.Run([&](grpc::ClientContext* context) {
    return connection.control().Undrain(context, {}, &response);
  });
  if (!status.ok()) return Report(status, terminal.err);
  if (line.json) {
    PrintJson(response, terminal.out);
  } else {
    terminal.out << (response.was_draining() ? "accepting requests again\n" : "was not draining\n");
  }
  return kExitOk;
}

}  // namespace

int RunInfo(const Invocation& line, Connection& connection, Terminal& terminal) {
  Answers answers;
  const grpc::Status status = Ask(line, connection, &answers);
  if (!status.ok()) return Report(status, terminal.err);
  if (line.json) {
    terminal.out << "{\"server\":" << ToJson(answers.server)
                 << ",\"model\":" << ToJson(answers.model);
    if (answers.has_load) {
      terminal.out << ",\"load\":" << ToJson(answers.load)
                   << ",\"memory_plan\":" << ToJson(answers.memory);
    }
    terminal.out << "}\n";
    return kExitOk;
  }
  Print(answers.server, terminal.out);
  Print(answers.model, terminal.out);
  if (!answers.has_load) {
    terminal.out << "load     shown to keys with the scope metrics\n";
    return kExitOk;
  }
  Print(answers.load, terminal.out);
  Print(answers.memory, terminal.out);
  return kExitOk;
}

int RunHealth(const Invocation& line, Connection& connection, Terminal& terminal) {
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status = connection.Run([&](grpc::ClientContext* context) {
    return connection.health().Check(context, {}, &response);
  });
  if (!status.ok()) return Report(status, terminal.err);
  if (line.json) {
    PrintJson(response, terminal.out);
  } else {
    terminal.out << grpc::health::v1::HealthCheckResponse::ServingStatus_Name(response.status())
                 << "\n";
  }
  const bool serving = response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  return serving ? kExitOk : kExitLocal;
}

int RunAbort(const Invocation& line, Connection& connection, Terminal& terminal) {
  v1::AbortRequest request;
  for (const std::string& id : line.abort.request_ids) request.add_request_ids(id);
  if (line.abort.all) request.set_all(true);
  v1::AbortResponse response;
  const grpc::Status status = connection.Run([&](grpc::ClientContext* context) {
    return connection.control().Abort(context, request, &response);
  });
  if (!status.ok()) return Report(status, terminal.err);
  if (line.json) {
    PrintJson(response, terminal.out);
  } else {
    terminal.out << "aborted " << response.aborted();
    if (response.remembered() > 0) terminal.out << ", remembered " << response.remembered();
    terminal.out << "\n";
  }
  return kExitOk;
}

int RunDrain(const Invocation& line, Connection& connection, Terminal& terminal) {
  if (line.undo) return RunUndrain(line, connection, terminal);
  v1::DrainRequest request;
  if (line.exit_when_idle) request.set_exit_when_idle(true);
  v1::DrainResponse response;
  const grpc::Status status = connection.Run([&](grpc::ClientContext* context) {
    return connection.control().Drain(context, request, &response);
  });
  if (!status.ok()) return Report(status, terminal.err);
  if (line.json) {
    PrintJson(response, terminal.out);
  } else {
    terminal.out << "draining: " << response.running_requests() << " running, "
                 << response.waiting_requests() << " waiting\n";
  }
  return kExitOk;
}

int RunFlush(const Invocation& line, Connection& connection, Terminal& terminal) {
  v1::FlushCacheRequest request;
  if (line.flush.sessions) request.set_sessions(true);
  if (line.flush.tenant) request.set_tenant(*line.flush.tenant);
  v1::FlushCacheResponse response;
  const grpc::Status status = connection.Run([&](grpc::ClientContext* context) {
    return connection.control().FlushCache(context, request, &response);
  });
  if (!status.ok()) return Report(status, terminal.err);
  if (line.json) {
    PrintJson(response, terminal.out);
  } else {
    terminal.out << absl::StrFormat(
        "freed    %d blocks, %d pages of host memory\n"
        "kept     %d blocks, %d pages: in use, or of sessions\n",
        response.blocks(), response.pages(), response.kept_blocks(), response.kept_pages());
  }
  return kExitOk;
}

}  // namespace quire::cli
