// Token events per second of each protocol that a running server speaks: 64 streams at a time,
// protocol after protocol, in alternation, against the same server in the same run. Prints one JSON
// object: for each protocol the median over the rounds, and its ratio to quire.v1's.
//
//   outlet_bench --server ADDRESS [--model NAME] [--tokens 512] [--rounds 5] [--server-pid PID]
//
// The client neither parses nor copies what it receives, so that it costs the same in all
// protocols; a stream counts when it ends with OK and its last message says that all tokens came.
// A token has a frame of its own unless reader or machine lag behind: tokens_per_frame tells. With
// the process id of a server on this machine there is also its processor time for a token, which a
// pace of the server's does not hide.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "field/kserve.pb.h"
#include "field/openengine.pb.h"
#include "field/vllm_engine.pb.h"
#include "field/vllm_inference.pb.h"
#include "flags/help.h"
#include "flags/parser.h"
#include "quire/v1/inference.pb.h"

namespace quire {
namespace {

constexpr int kStreams = 64;
constexpr int kConnections = 4;

struct Settings {
  std::string server = "127.0.0.1:8100";
  std::string model;  // for KServe, which wants a name
  int tokens = 512;
  int rounds = 5;
  int server_pid = 0;  // 0: on another machine
};

// One protocol: the request of stream `i` as bytes, and whether the last message is right.
struct Protocol {
  const char* name;
  const char* method;
  std::function<std::string(const Settings& settings, int i)> request;
  bool (*complete)(const std::string& last, uint32_t tokens);
};

template <typename Message>
Message Parsed(const std::string& bytes) {
  Message message;
  message.ParseFromString(bytes);
  return message;
}

std::string QuireRequest(const Settings& settings, int) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(5);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stop()->set_max_tokens(static_cast<uint32_t>(settings.tokens));
  request.mutable_stop()->set_ignore_eos(true);
  return request.SerializeAsString();
}

std::string VllmRequest(const Settings& settings, int) {
  vllm::GenerateRequest request;
  request.mutable_token_ids()->add_ids(5);
  request.set_temperature(0);
  request.mutable_stopping()->set_max_new_tokens(static_cast<uint32_t>(settings.tokens));
  request.mutable_stopping()->set_ignore_eos(true);
  request.mutable_response()->set_output_token_ids(true);
  return request.SerializeAsString();
}

std::string OpenEngineRequest(const Settings& settings, int i) {
  openengine::v1::GenerateRequest request;
  request.set_request_id("bench-" + std::to_string(i));
  request.mutable_token_ids()->add_ids(5);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stopping()->set_max_tokens(static_cast<uint32_t>(settings.tokens));
  request.mutable_stopping()->set_ignore_eos(true);
  return request.SerializeAsString();
}

std::string EngineRequest(const Settings& settings, int i) {
  vllm::grpc::engine::GenerateRequest request;
  request.set_request_id("bench-" + std::to_string(i));
  request.mutable_tokenized()->add_input_ids(5);
  request.mutable_sampling_params()->set_temperature(0);
  request.mutable_sampling_params()->set_max_tokens(static_cast<uint32_t>(settings.tokens));
  request.mutable_sampling_params()->set_ignore_eos(true);
  request.set_stream(true);
  return request.SerializeAsString();
}

std::string KserveRequest(const Settings& settings, int i) {
  inference::ModelInferRequest request;
  request.set_model_name(settings.model);
  request.set_id(std::to_string(i));
  const auto add = [&](const char* name, const char* datatype) {
    auto* tensor = request.add_inputs();
    tensor->set_name(name);
    tensor->set_datatype(datatype);
    tensor->add_shape(1);
    return tensor->mutable_contents();
  };
  add("text_input", "BYTES")->add_bytes_contents("a");
  add("max_tokens", "INT32")->add_int_contents(settings.tokens);
  add("temperature", "FP32")->add_fp32_contents(0);
  add("ignore_eos", "BOOL")->add_bool_contents(true);
  add("stream", "BOOL")->add_bool_contents(true);
  return request.SerializeAsString();
}

const std::vector<Protocol>& Protocols() {
  static const std::vector<Protocol> protocols = {
      {"quire.v1", "/quire.v1.Inference/Generate", QuireRequest,
       [](const std::string& last, uint32_t tokens) {
         const auto end = Parsed<v1::GenerateResponse>(last);
         return end.finished().usage().completion_tokens() == tokens;
       }},
      {"vllm", "/vllm.Inference/GenerateStream", VllmRequest,
       [](const std::string& last, uint32_t tokens) {
         const auto end = Parsed<vllm::GenerateResponse>(last);
         return end.outputs().finish_info().num_output_tokens() == tokens;
       }},
      {"openengine.v1", "/openengine.v1.Inference/Generate", OpenEngineRequest,
       [](const std::string& last, uint32_t tokens) {
         const auto end = Parsed<openengine::v1::GenerateResponse>(last);
         return end.has_finished() && end.usage().completion_tokens() == tokens;
       }},
      {"kserve", "/inference.GRPCInferenceService/ModelStreamInfer", KserveRequest,
       [](const std::string& last, uint32_t) {
         const auto end = Parsed<inference::ModelStreamInferResponse>(last);
         const auto& parameters = end.infer_response().parameters();
         return end.error_message().empty() && parameters.count("triton_final_response") != 0 &&
                parameters.at("triton_final_response").bool_param();
       }},
      {"vllm.grpc.engine", "/vllm.grpc.engine.VllmEngine/Generate", EngineRequest,
       [](const std::string& last, uint32_t tokens) {
         const auto end = Parsed<vllm::grpc::engine::GenerateResponse>(last);
         return end.complete().completion_tokens() == tokens;
       }},
  };
  return protocols;
}

// Counts streams down.
class Latch {
 public:
  explicit Latch(int count) : count_(count) {}
  void Down() {
    const std::lock_guard lock(mutex_);
    if (--count_ == 0) zero_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    zero_.wait(lock, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable zero_;
  int count_;
};

class Stream final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Stream(grpc::GenericStub* stub, const char* method, const std::string& request, Latch* done)
      : done_(done) {
    const grpc::Slice slice(request);
    request_ = grpc::ByteBuffer(&slice, 1);
    stub->PrepareBidiStreamingCall(&context_, method, grpc::StubOptions(), this);
    StartWriteLast(&request_, grpc::WriteOptions());
    StartRead(&frame_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    ++frames_;
    last_ns_ = SteadyNowNs();
    last_.Swap(&frame_);
    StartRead(&frame_);
  }
  void OnDone(const grpc::Status& status) override {
    status_ = status;
    done_->Down();
  }

  // Of the stream's last message.
  std::string Last() {
    grpc::Slice slice;
    if (!last_.Valid() || !last_.DumpToSingleSlice(&slice).ok()) return "";
    return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  const grpc::Status& status() const { return status_; }
  int64_t frames() const { return frames_; }
  int64_t last_ns() const { return last_ns_; }

 private:
  Latch* const done_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer frame_;
  grpc::ByteBuffer last_;
  grpc::Status status_;
  int64_t frames_ = 0;
  int64_t last_ns_ = 0;
};

struct Figure {
  double tokens_per_second = 0;
  double tokens_per_frame = 0;
  double cpu_us_per_token = 0;  // of the server; 0: not known
};

// Processor seconds of a process on this machine; 0 if there is none.
double CpuSeconds(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t name_end = text.rfind(')');
  if (pid == 0 || name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// nullopt: the server does not have the protocol. Exits on a stream that did not bring its tokens.
std::optional<Figure> RunOnce(const std::vector<std::unique_ptr<grpc::GenericStub>>& stubs,
                              const Protocol& protocol, const Settings& settings) {
  std::vector<std::string> requests;
  for (int i = 0; i < kStreams; ++i) requests.push_back(protocol.request(settings, i));
  Latch done(kStreams);
  const double cpu_before = CpuSeconds(settings.server_pid);
  const int64_t start_ns = SteadyNowNs();
  std::vector<std::unique_ptr<Stream>> streams;
  for (size_t i = 0; i < kStreams; ++i) {
    streams.push_back(std::make_unique<Stream>(stubs[i % stubs.size()].get(), protocol.method,
                                               requests[i], &done));
  }
  done.Wait();
  int64_t frames = 0;
  int64_t last_ns = start_ns;
  for (const auto& stream : streams) {
    if (stream->status().error_code() == grpc::StatusCode::UNIMPLEMENTED) return std::nullopt;
    const bool right = stream->status().ok() &&
                       protocol.complete(stream->Last(), static_cast<uint32_t>(settings.tokens));
    if (!right) {
      std::fprintf(stderr, "outlet_bench: a stream of %s is not whole: %s\n", protocol.name,
                   stream->status().error_message().c_str());
      std::exit(1);
    }
    frames += stream->frames();
    last_ns = std::max(last_ns, stream->last_ns());
  }
  const double tokens = static_cast<double>(kStreams) * settings.tokens;
  const double cpu = CpuSeconds(settings.server_pid) - cpu_before;
  return Figure{tokens / (1e-9 * static_cast<double>(last_ns - start_ns)),
                tokens / static_cast<double>(frames), 1e6 * cpu / tokens};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Run(const Settings& settings) {
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs;
  for (int i = 0; i < kConnections; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stubs.push_back(std::make_unique<grpc::GenericStub>(
        grpc::CreateCustomChannel(settings.server, grpc::InsecureChannelCredentials(), arguments)));
  }
  const size_t count = Protocols().size();
  std::vector<std::vector<double>> rates(count), ratios(count), shared(count), cpu(count);
  std::vector<bool> absent(count, false);
  for (int round = -1; round < settings.rounds; ++round) {  // the first one warms up
    double quire = 0;
    for (size_t p = 0; p < count; ++p) {
      if (absent[p]) continue;
      const std::optional<Figure> figure = RunOnce(stubs, Protocols()[p], settings);
      absent[p] = !figure.has_value();
      if (absent[p] || round < 0) continue;
      if (p == 0) quire = figure->tokens_per_second;
      rates[p].push_back(figure->tokens_per_second);
      ratios[p].push_back(figure->tokens_per_second / quire);
      shared[p].push_back(figure->tokens_per_frame);
      cpu[p].push_back(figure->cpu_us_per_token);
    }
  }
  std::printf(
      "{\"name\": \"outlets\", \"streams\": %d, \"connections\": %d, \"tokens\": %d, "
      "\"rounds\": %d, \"protocols\": {",
      kStreams, kConnections, settings.tokens, settings.rounds);
  const char* comma = "";
  for (size_t p = 0; p < count; ++p) {
    std::printf("%s\"%s\": ", comma, Protocols()[p].name);
    comma = ", ";
    if (absent[p]) {
      std::printf("null");
      continue;
    }
    std::printf(
        "{\"tokens_per_second\": %.0f, \"ratio\": %.3f, \"tokens_per_frame\": %.3f, "
        "\"server_cpu_us_per_token\": %.2f}",
        Median(rates[p]), Median(ratios[p]), Median(shared[p]), Median(cpu[p]));
  }
  std::printf("}}\n");
  return 0;
}

flags::Program OutletProgram(Settings* settings) {
  constexpr std::string_view kGroup = "Settings";
  return {.root = {.name = "outlet_bench",
                   .help = "Token events per second of each protocol.",
                   .flags = {{.name = "server",
                              .group = kGroup,
                              .help = "address of the server",
                              .target = &settings->server},
                             {.name = "model",
                              .group = kGroup,
                              .help = "the served model's name",
                              .target = &settings->model},
                             {.name = "tokens",
                              .group = kGroup,
                              .help = "output tokens of a stream",
                              .target = &settings->tokens,
                              .lowest = 1,
                              .highest = 1 << 20},
                             {.name = "server-pid",
                              .group = kGroup,
                              .help = "process id of the server, if it is on this machine",
                              .target = &settings->server_pid,
                              .lowest = 0,
                              .highest = 1 << 30},
                             {.name = "rounds",
                              .group = kGroup,
                              .help = "rounds over all protocols",
                              .target = &settings->rounds,
                              .lowest = 1,
                              .highest = 1000}}}};
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  quire::Settings settings;
  const quire::flags::Program program = quire::OutletProgram(&settings);
  quire::flags::CommandLine line =
      quire::flags::ReadArguments(program, std::vector<std::string>(argv + 1, argv + argc));
  if (const auto answer = quire::flags::Answer(program, line)) {
    std::fputs(answer->c_str(), stdout);
    return 0;
  }
  quire::flags::Apply(program, line.given, quire::flags::AsFlag, &line);
  for (const std::string& fault : line.faults) std::fprintf(stderr, "%s\n", fault.c_str());
  if (!line.faults.empty()) return 2;
  return quire::Run(settings);
}
