// StubServer: a gRPC server of quire.v1 that answers by a script: when each frame of each request
// goes out, how many tokens it carries and how the stream ends are given in advance, so that the
// right figures of a load test can be worked out by hand. It also stalls, dies, lies and speaks
// another service on demand.
#pragma once

#include <grpcpp/server.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quire/v1/control.grpc.pb.h"
#include "quire/v1/inference.grpc.pb.h"
#include "tests/clients/load/stub_sessions.h"

namespace quire::load {

// How a stream breaks the protocol.
enum class StubFault {
  kNone,
  kLostFrame,           // the middle frame is left out; cumulative_tokens counts it
  kRepeatedFrame,       // the middle frame comes twice
  kFrameAfterFinished,  // the last frame comes again after Finished
  kNoFinished,          // status OK without Finished
  kWrongPosition,       // Finished puts the session's end one token too far
};

// One request's answer. The stream is Accepted at once, a frame `first_seconds` after the request's
// arrival, one more after each gap, then Finished and the status.
struct StubReply {
  double queue_seconds = 0;  // said in Finished; part of first_seconds
  double first_seconds = 0.02;
  std::vector<double> gap_seconds;    // before each frame after the first
  std::vector<int32_t> frame_tokens;  // by frame; 1 where it is shorter
  // Not OK: the stream ends so after its frames, without Finished. With no_frames, at once.
  grpc::StatusCode code = grpc::StatusCode::OK;
  std::string message;
  bool no_frames = false;
  StubFault fault = StubFault::kNone;
  v1::Residency residency;  // said in Finished
};

// Every frame `gap_seconds` after the one before, one token each.
StubReply SteadyReply(double first_seconds, int32_t num_frames, double gap_seconds);

struct StubOptions {
  // By order of arrival. Called on gRPC's threads, one call at a time.
  std::function<StubReply(uint64_t index, const v1::GenerateRequest& request)> script;
  // While it stalls, the server's clock stands still: due frames, and new requests, wait for the
  // end of the stall and then goes on as scripted. Begin and end in seconds from the first
  // request's arrival, in order.
  std::vector<std::pair<double, double>> stalls;
  // Closes every connection and the port, so many seconds after the first request's arrival; 0:
  // never.
  double dies_after_seconds = 0;
  bool wrong_service = false;        // knows nothing of quire.v1
  StubSessions* sessions = nullptr;  // served, and outlives the server; null: none
  std::string model = "stub";
};

// When things truly happened here, in nanoseconds of the steady clock.
struct StubCall {
  int64_t arrived_ns = 0;
  std::vector<int64_t> frame_ns;  // frames with tokens, handed to gRPC
  bool cancelled = false;         // by the client, or by the server's death
};

class StubServer {
 public:
  // Serves on a free port of the loopback interface from here on.
  explicit StubServer(StubOptions options);
  // Ends running calls.
  ~StubServer();

  std::string address() const;
  // By order of arrival.
  std::vector<StubCall> calls() const;
  // The largest delay of a frame against the script: the part of a measurement's error that is not
  // the client's.
  double worst_lateness_seconds() const;
  // Most calls open at once.
  int peak_open_calls() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire::load
