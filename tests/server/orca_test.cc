// Load reports in trailers and out of band, decoded by hand from the standard's field numbers.
// Covers server/orca/load_report.cc, server/orca/orca_service.cc
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "server/orca/load_report.h"
#include "server/orca/orca_service.h"
#include "tests/server/h2_client.h"
#include "tests/server/test_server.h"
#include "xds/service/orca/v3/orca.grpc.pb.h"

namespace quire {
namespace {

// The doubles of an OrcaLoadReport, by path: "8/kv_cache_usage_perc" is an entry of the map in
// field 8. Knows the wire format, not the generated code.
class Decoded {
 public:
  explicit Decoded(const std::string& bytes) { Read(bytes, ""); }
  double operator[](const std::string& path) const {
    const auto found = values_.find(path);
    return found == values_.end() ? -1 : found->second;
  }
  bool whole() const { return whole_; }

 private:
  static uint64_t Varint(const std::string& bytes, size_t* at) {
    uint64_t value = 0;
    for (int shift = 0; *at < bytes.size(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes[(*at)++]);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) break;
    }
    return value;
  }
  static double Double(const std::string& bytes, size_t at) {
    double value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  }
  void Read(const std::string& bytes, const std::string& map) {
    std::string key;
    double value = 0;
    for (size_t at = 0; at < bytes.size();) {
      const uint64_t tag = Varint(bytes, &at);
      if (tag % 8 == 1) {
        value = Double(bytes, at);
        at += 8;
        if (map.empty()) values_[std::to_string(tag / 8)] = value;
      } else if (tag % 8 == 2) {
        const uint64_t size = Varint(bytes, &at);
        const std::string inner = bytes.substr(at, size);
        at += size;
        if (map.empty()) {
          Read(inner, std::to_string(tag / 8));
        } else {
          key = inner;
        }
      } else {
        whole_ = false;
        return;
      }
    }
    if (!map.empty()) values_[map + "/" + key] = value;
  }

  std::map<std::string, double> values_;
  bool whole_ = true;
};

// The library's clients keep this trailer for their balancers, so the test reads the connection:
// names of headers that are new to it go out as they are.
TEST(OrcaTest, TrailersCarryTheLoadWhereTheRequestAsks) {
  TestServer server;
  for (const bool asks : {false, true}) {
    H2Client client(server.front().port());
    std::vector<std::pair<std::string, std::string>> extra;
    if (asks) extra.emplace_back("endpoint-load-metrics-format", "BIN");
    const uint32_t call = client.AddHeaders("/quire.v1.Inference/GenerateUnary", extra);
    client.AddMessage(call, AskFor(2).SerializeAsString());
    ASSERT_TRUE(client.Send(/*drain=*/false));
    const std::string data = client.ReadUntil("grpc-status");
    ASSERT_NE(data.find("grpc-status"), std::string::npos);
    EXPECT_EQ(data.find("endpoint-load-metrics-bin") != std::string::npos, asks);
  }
}

TEST(OrcaTest, ReportHasTheStandardsFields) {
  EngineStats stats;
  stats.load.running = 3;
  stats.load.waiting = 7;
  stats.load.total_blocks = 200;
  stats.load.free_blocks = 150;
  const Decoded load(LoadReportOf(stats, 12, 0.5).SerializeAsString());
  EXPECT_TRUE(load.whole());
  EXPECT_EQ(load["2"], 0.25);  // mem_utilization
  EXPECT_EQ(load["9"], 0.25);  // application_utilization
  EXPECT_EQ(load["5/kv_cache"], 0.25);
  EXPECT_EQ(load["8/kv_cache_usage_perc"], 0.25);
  EXPECT_EQ(load["8/num_requests_running"], 3);
  EXPECT_EQ(load["8/num_requests_waiting"], 7);
  EXPECT_EQ(load["8/predicted_first_token_seconds"], 0.5);
}

TEST(OrcaTest, StreamReportsAtTheIntervalAndNotFaster) {
  TestServer server;
  const auto stub = xds::service::orca::v3::OpenRcaService::NewStub(server.channel());
  grpc::ClientContext context;
  xds::service::orca::v3::OrcaLoadReportRequest request;
  request.mutable_report_interval()->set_nanos(1000);  // is raised to the least interval
  const auto reader = stub->StreamCoreMetrics(&context, request);
  xds::data::orca::v3::OrcaLoadReport report;
  const int64_t begin_ns = SteadyNowNs();
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(reader->Read(&report));
    const Decoded load(report.SerializeAsString());
    EXPECT_EQ(load["8/kv_cache_usage_perc"], 0);
    EXPECT_EQ(load["8/num_requests_waiting"], 0);
  }
  // Three waits lie between four reports; timers never go off early.
  EXPECT_GE(static_cast<double>(SteadyNowNs() - begin_ns) * 1e-9, 2.5 * kMinReportSeconds);
  context.TryCancel();
  while (reader->Read(&report)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

// Streams that are open do not hold up the server's end, and more than the bound are refused.
TEST(OrcaTest, StreamsAreBoundedAndEndWithTheServer) {
  TestServer server;
  const auto stub = xds::service::orca::v3::OpenRcaService::NewStub(server.channel());
  struct Open {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<xds::data::orca::v3::OrcaLoadReport>> reader;
  };
  std::vector<Open> open(kMaxReportStreams);
  xds::service::orca::v3::OrcaLoadReportRequest request;
  request.mutable_report_interval()->set_seconds(3000);
  xds::data::orca::v3::OrcaLoadReport report;
  for (Open& one : open) {
    one.reader = stub->StreamCoreMetrics(&one.context, request);
    ASSERT_TRUE(one.reader->Read(&report));
  }
  grpc::ClientContext context;
  const auto reader = stub->StreamCoreMetrics(&context, request);
  EXPECT_FALSE(reader->Read(&report));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  for (Open& one : open) {
    one.context.TryCancel();
    one.reader->Finish();
  }
}

}  // namespace
}  // namespace quire
