// Keys, scopes and tenants over real gRPC, and the view that one tenant has of another.
// Covers server/identity/open_door.cc, server/identity/call_facts.cc, server/identity/caller.cc,
// server/identity/key_door.cc, server/identity/method_scopes.cc, server/identity/door_keeper.cc,
// server/metrics/auth_metrics.cc, server/identity/key_watch.cc, server/watch/watch_thread.cc
#include "server/identity/door.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "engine/base/clock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "server/identity/call_gate.h"
#include "server/identity/door_keeper.h"
#include "server/identity/method_scopes.h"
#include "server/identity/open_door.h"
#include "tests/server/h2_client.h"
#include "tests/server/log_capture.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Code = grpc::StatusCode;

std::string KeyOf(char digit) {
  return "qk-" + std::string(kKeyIdDigits, digit) + "-" + std::string(kKeySecretDigits, digit);
}

std::string Entry(char digit, const std::string& tenant, const std::string& scopes,
                  const std::string& more = "") {
  const KeyDigest digest = DigestOf(KeyOf(digit));
  const std::string hex =
      absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()});
  return "{\"id\": \"" + std::string(kKeyIdDigits, digit) + "\", \"sha256\": \"" + hex +
         "\", \"tenant\": \"" + tenant + "\", \"scopes\": [" + scopes + "]" + more + "}";
}

// Key a is acme's, b is beta's, c may only read metrics, d is an administrator's, e has expired, f
// is for another model, 1 may not use sessions.
std::string KeyFile() {
  const std::string user = R"("infer", "session")";
  return R"({"tenants": {"acme": {}, "beta": {}, "ops": {}}, "keys": [)" +
         Entry('a', "acme", user) + "," + Entry('b', "beta", user) + "," +
         Entry('c', "ops", R"("metrics")") + "," + Entry('d', "ops", R"("admin")") + "," +
         Entry('e', "acme", user, R"(, "expires": "2026-01-01")") + "," +
         Entry('f', "acme", user, R"(, "models": ["another"])") + "," +
         Entry('1', "acme", R"("infer")") + "]}";
}

// The methods of other projects' protocols, also those that our .proto files leave out.
std::set<std::string> OriginalMethods() {
  std::set<std::string> methods;
  for (const char* name : {"vllm", "openengine", "kserve"}) {
    std::ifstream file(std::string(QUIRE_SOURCE_DIR) + "/tests/testdata/field/" + name + ".txt");
    std::string kind, method;
    for (std::string rest; file >> kind >> method && std::getline(file, rest);) {
      if (kind == "method") methods.insert("/" + method);
    }
  }
  return methods;
}

void Authorize(grpc::ClientContext& context, const std::string& key) {
  context.AddMetadata("authorization", "Bearer " + key);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
}

class DoorTest : public ::testing::Test {
 protected:
  DoorTest() : door_(*ParseKeyTable(KeyFile(), "keys.json"), {"test-model"}), server_(Options()) {}

  TestServerOptions Options() {
    TestServerOptions options;
    options.front.door = &door_;
    return options;
  }

  StreamedOutput Generate(const std::string& key, v1::GenerateRequest request = AskFor(3)) {
    grpc::ClientContext context;
    if (!key.empty()) Authorize(context, key);
    return Stream(server_.inference(), request, &context);
  }
  Code CodeOf(const std::string& key) { return Generate(key).status.error_code(); }

  grpc::Status Abort(const std::string& key, const std::string& id, uint32_t* aborted) {
    grpc::ClientContext context;
    Authorize(context, key);
    v1::AbortRequest request;
    if (id.empty()) {
      request.set_all(true);
    } else {
      request.add_request_ids(id);
    }
    v1::AbortResponse response;
    const grpc::Status status = server_.control().Abort(&context, request, &response);
    *aborted = response.aborted();
    return status;
  }

  // All methods of all services, by reflection.
  std::vector<std::string> Methods() {
    using grpc::reflection::v1::ServerReflection;
    const auto stub = ServerReflection::NewStub(server_.channel());
    grpc::ClientContext context;
    Authorize(context, KeyOf('d'));
    const auto stream = stub->ServerReflectionInfo(&context);
    grpc::reflection::v1::ServerReflectionRequest request;
    request.set_list_services("*");
    grpc::reflection::v1::ServerReflectionResponse response;
    EXPECT_TRUE(stream->Write(request) && stream->Read(&response));
    stream->WritesDone();
    std::vector<std::string> methods;
    for (const auto& service : response.list_services_response().service()) {
      const auto* found =
          google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(service.name());
      if (found == nullptr) continue;
      for (int i = 0; i < found->method_count(); ++i) {
        methods.push_back("/" + service.name() + "/" + found->method(i)->name());
      }
    }
    return methods;
  }

  // Calls a method with bytes that are no message, as one that has one answer.
  grpc::Status CallOnce(const std::string& method, const std::string& key) {
    grpc::GenericStub stub(server_.channel());
    grpc::ClientContext context;
    Authorize(context, key);
    const grpc::Slice malformed("\xFF");
    const grpc::ByteBuffer request(&malformed, 1);
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
    call->StartCall();
    grpc::ByteBuffer response;
    grpc::Status status;
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status;
  }

  // Calls a method with no message, as one that streams both ways.
  grpc::Status Call(const std::string& method, const std::string& key) {
    grpc::GenericStub stub(server_.channel());
    grpc::ClientContext context;
    if (!key.empty()) Authorize(context, key);
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareCall(&context, method, &queue);
    void* tag = nullptr;
    bool ok = false;
    call->StartCall(nullptr);
    queue.Next(&tag, &ok);
    grpc::Status status;
    call->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
    return status;
  }

  KeyDoor door_;
  TestServer server_;
};

TEST_F(DoorTest, LetsKeysInByTheirScopes) {
  EXPECT_EQ(CodeOf(KeyOf('a')), Code::OK);
  EXPECT_EQ(CodeOf(KeyOf('b')), Code::OK);
  EXPECT_EQ(CodeOf(KeyOf('c')), Code::PERMISSION_DENIED);
  EXPECT_EQ(CodeOf(KeyOf('d')), Code::PERMISSION_DENIED);
  EXPECT_EQ(Call("/quire.v1.Control/GetLoad", KeyOf('a')).error_code(), Code::PERMISSION_DENIED);
  EXPECT_EQ(Call("/quire.v1.Control/Drain", KeyOf('c')).error_code(), Code::PERMISSION_DENIED);
  // A session turn wants the scope too, though its method does not.
  v1::GenerateRequest turn = AskFor(1);
  turn.set_session_id("s");
  turn.set_create_session(true);
  EXPECT_EQ(Generate(KeyOf('1'), turn).status.error_code(), Code::PERMISSION_DENIED);
  EXPECT_EQ(Generate(KeyOf('1')).status.error_code(), Code::OK);
}

TEST_F(DoorTest, RefusesBadCredentialsWithoutSayingWhichPartIsWrong) {
  std::string wrong = KeyOf('a');
  wrong.back() = 'b';
  const grpc::Status secret = Generate(wrong).status;
  const grpc::Status id = Generate(KeyOf('9')).status;
  EXPECT_EQ(secret.error_code(), Code::UNAUTHENTICATED);
  EXPECT_EQ(secret.error_message(), id.error_message());
  EXPECT_EQ(id.error_code(), Code::UNAUTHENTICATED);
  EXPECT_THAT(Generate("").status.error_message(), HasSubstr("authorization: Bearer qk-"));
  EXPECT_THAT(Generate(KeyOf('e')).status.error_message(), HasSubstr("has expired"));
  EXPECT_EQ(CodeOf(KeyOf('f')), Code::PERMISSION_DENIED);
  EXPECT_EQ(CodeOf(KeyOf('a').substr(0, 50)), Code::UNAUTHENTICATED);
  EXPECT_EQ(CodeOf(std::string(20'000, 'a')), Code::UNAUTHENTICATED);
  grpc::ClientContext twice;
  Authorize(twice, KeyOf('a'));
  twice.AddMetadata("authorization", "Bearer " + KeyOf('a'));
  EXPECT_THAT(Stream(server_.inference(), AskFor(1), &twice).status.error_message(),
              HasSubstr("more than once"));
  const std::string metrics = server_.Metrics();
  EXPECT_THAT(metrics, HasSubstr("quire_auth_failures_total{model_name=\"test-model\",reason="
                                 "\"unknown\"} 2"));
  for (const char* reason : {"missing", "malformed", "repeated", "expired", "model"}) {
    EXPECT_THAT(metrics, HasSubstr(std::string("reason=\"") + reason + "\"} ")) << reason;
  }
}

TEST_F(DoorTest, NoMethodIsOpenButHealth) {
  const std::vector<std::string> methods = Methods();
  EXPECT_GT(methods.size(), 25u);
  for (const std::string& method : methods) {
    if (RuleOf(method).open) {
      EXPECT_THAT(method, HasSubstr("/grpc.health.v1.Health/"));
      continue;
    }
    EXPECT_EQ(Call(method, "").error_code(), Code::UNAUTHENTICATED) << method;
    EXPECT_TRUE(RuleOf(method).known) << method;
  }
  EXPECT_EQ(Call("/quire.v1.Inference/Nothing", "").error_code(), Code::UNAUTHENTICATED);
  EXPECT_EQ(Call("/quire.v1.Inference/Nothing", KeyOf('a')).error_code(), Code::UNIMPLEMENTED);
  const auto health = grpc::health::v1::Health::NewStub(server_.channel());
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckResponse response;
  EXPECT_TRUE(health->Check(&context, {}, &response).ok());
}

// A client that sends headers and no message is refused all the same.
TEST_F(DoorTest, RefusesBeforeTheMessageComes) {
  H2Client client(server_.front().port());
  client.AddHeaders("/quire.v1.Inference/Generate");
  ASSERT_TRUE(client.Send(true));
  EXPECT_TRUE(TestServer::Eventually([&] { return server_.metrics().auth().refused() > 0; }));
  EXPECT_EQ(server_.front().open_streams(), 0);
}

TEST_F(DoorTest, LetsNobodyInByChance) {
  std::mt19937_64 random(7);
  const std::string good = KeyOf('a');
  static constexpr char kHex[] = "0123456789abcdef";
  int admitted = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string header = "Bearer " + good;
    switch (i % 4) {
      case 0:  // another secret of a key that exists
        for (size_t at = header.size() - kKeySecretDigits; at < header.size(); ++at) {
          header[at] = kHex[random() % 16];
        }
        break;
      case 1: header[random() % header.size()] ^= static_cast<char>(1 << (random() % 7)); break;
      case 2: header.resize(random() % header.size()); break;
      default: header.insert(random() % header.size(), 1, static_cast<char>(random() % 128));
    }
    // A flipped bit may change the case of the scheme's name alone, which has none.
    if (header.ends_with(" " + good)) continue;
    const CallFacts facts{.authorization = {header}};
    admitted += door_.Admit(facts, "/quire.v1.Inference/Generate").ok();
  }
  EXPECT_EQ(admitted, 0);
  const std::string header = "bearer " + good;
  EXPECT_TRUE(door_.Admit({.authorization = {header}}, "/quire.v1.Inference/Generate").ok());
}

TEST_F(DoorTest, ATenantSeesNothingOfAnother) {
  // The same request id in both tenants at once.
  server_.gate().Allow(0);
  v1::GenerateRequest request = AskFor(5);
  request.set_request_id("r");
  StreamedOutput of_a, of_b;
  std::thread a([&] { of_a = Generate(KeyOf('a'), request); });
  std::thread b([&] { of_b = Generate(KeyOf('b'), request); });
  EXPECT_TRUE(TestServer::Eventually([&] { return server_.front().open_streams() == 2; }));
  uint32_t aborted = 0;
  EXPECT_TRUE(TestServer::Eventually([&] {
    EXPECT_TRUE(Abort(KeyOf('b'), "r", &aborted).ok());
    return aborted == 1;
  }));
  server_.gate().Allow(-1);
  b.join();
  EXPECT_EQ(of_b.status.error_code(), Code::CANCELLED);
  a.join();
  EXPECT_EQ(of_a.status.error_code(), Code::OK);
  EXPECT_TRUE(Abort(KeyOf('b'), "", &aborted).ok());
  EXPECT_EQ(aborted, 0u);

  // Sessions: another tenant's looks as one that does not exist.
  v1::GenerateRequest turn = AskFor(3);
  turn.set_session_id("s");
  turn.set_create_session(true);
  EXPECT_TRUE(Generate(KeyOf('a'), turn).status.ok());
  turn.set_create_session(false);
  const grpc::Status theirs = Generate(KeyOf('b'), turn).status;
  turn.set_session_id("t");
  const grpc::Status nobodys = Generate(KeyOf('b'), turn).status;
  EXPECT_EQ(theirs.error_code(), Code::NOT_FOUND);
  EXPECT_EQ(nobodys.error_code(), Code::NOT_FOUND);
  EXPECT_EQ(Reason(theirs), Reason(nobodys));
}

// Counted work, so that no clock can tell either: the second tenant computes its whole prompt.
TEST_F(DoorTest, FoundPrefixesOfAnotherTenantCannotBeMeasured) {
  v1::GenerateRequest request = AskFor(1);
  request.set_text(std::string(200, 'x'));
  const auto work = [&](char key) {
    const uint64_t before = server_.engine().Stats().prompt_tokens;
    const StreamedOutput output = Generate(KeyOf(key), request);
    EXPECT_TRUE(output.status.ok());
    EXPECT_TRUE(TestServer::Eventually([&] { return server_.engine().Idle(); }));
    return std::pair(server_.engine().Stats().prompt_tokens - before,
                     output.finished.usage().cached_tokens());
  };
  const auto first = work('a');
  const auto again = work('a');
  const auto others = work('b');
  EXPECT_EQ(first.second, 0u);
  EXPECT_GT(again.second, 0u);
  EXPECT_LT(again.first, first.first);
  EXPECT_EQ(others, first);
}

TEST_F(DoorTest, AnAdministratorEndsRequestsOfAllTenants) {
  server_.gate().Allow(0);
  v1::GenerateRequest request = AskFor(5);
  request.set_request_id("r");
  StreamedOutput output;
  std::thread a([&] { output = Generate(KeyOf('a'), request); });
  uint32_t aborted = 0;
  EXPECT_TRUE(TestServer::Eventually([&] {
    EXPECT_TRUE(Abort(KeyOf('d'), "r", &aborted).ok());
    return aborted == 1;
  }));
  server_.gate().Allow(-1);
  a.join();
  EXPECT_EQ(output.status.error_code(), Code::CANCELLED);
}

// Reflection, the lists of the originals and one rule give the methods, so a new one is in the test
// without a line here.
TEST_F(DoorTest, EachAdministrativeCallOfAnyProtocolIsLoggedWithItsCaller) {
  const LogCapture log;
  std::vector<std::string> expected;
  std::set<std::string> methods = OriginalMethods();
  for (const std::string& method : Methods()) methods.insert(method);
  for (const std::string& method : methods) {
    if (!RuleOf(method).administers()) continue;
    EXPECT_EQ(CallOnce(method, KeyOf('a')).error_code(), Code::PERMISSION_DENIED) << method;
    EXPECT_NE(CallOnce(method, KeyOf('d')).error_code(), Code::PERMISSION_DENIED) << method;
    expected.push_back("method=" + method.substr(1) + " tenant=ops key=dddddddddddddddd");
  }
  EXPECT_GT(expected.size(), 30u);
  std::vector<std::string> lines;
  EXPECT_TRUE(TestServer::Eventually([&] {
    lines = log.Lines("INFO administration");
    return lines.size() >= expected.size();
  }));
  ASSERT_EQ(lines.size(), expected.size());
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_THAT(lines[i], HasSubstr(expected[i]));
}

TEST_F(DoorTest, TakesANewTableWithoutARestart) {
  EXPECT_EQ(CodeOf(KeyOf('a')), Code::OK);
  door_.Replace(*ParseKeyTable(
      R"({"tenants": {"acme": {}}, "keys": [)" + Entry('2', "acme", R"("infer")") + "]}", "k"));
  EXPECT_EQ(CodeOf(KeyOf('a')), Code::UNAUTHENTICATED);
  EXPECT_EQ(CodeOf(KeyOf('2')), Code::OK);
}

TEST(CertificateTest, NamesATenantAndMustAgreeWithTheKey) {
  const std::string file =
      R"({"tenants": {"acme": {}, "beta": {}}, "keys": [)" + Entry('b', "beta", R"("infer")") +
      R"(], "certificates": [{"name": "dns:gw", "tenant": "acme", "scopes": ["infer"]},
                            {"name": "cn:gw", "tenant": "beta", "scopes": ["infer"]}]})";
  const KeyDoor door(*ParseKeyTable(file, "k"), {"m"});
  const auto admit = [&](CallFacts facts) {
    return door.Admit(facts, "/quire.v1.Inference/Generate");
  };
  EXPECT_EQ(admit({.certificate_names = {"dns:gw"}}).caller->tenant_name, "acme");
  EXPECT_EQ(admit({.certificate_names = {"dns:other"}}).refused, Refused::kMissing);
  EXPECT_EQ(admit({.certificate_names = {"dns:gw", "cn:gw"}}).refused, Refused::kConflict);
  const std::string header = "Bearer " + KeyOf('b');
  EXPECT_EQ(admit({{header}, {"dns:gw"}}).refused, Refused::kConflict);
  EXPECT_EQ(admit({{header}, {"cn:gw"}}).caller->key_id, "bbbbbbbbbbbbbbbb");
}

TEST(OpenDoorTest, AdministersOnlyWhereItMay) {
  const OpenDoor local(/*admin=*/true);
  const OpenDoor remote(/*admin=*/false);
  EXPECT_TRUE(local.Admit({}, "/quire.v1.Control/Drain").ok());
  EXPECT_EQ(remote.Admit({}, "/quire.v1.Control/Drain").refused, Refused::kAdminSocket);
  EXPECT_TRUE(remote.Admit({}, "/quire.v1.Inference/Generate").ok());
  EXPECT_TRUE(remote.Admit({}, "/quire.v1.Control/Abort").ok());
}

// The file is looked at once a second; what it says is applied, and nonsense is not.
TEST(DoorKeeperTest, NoticesAChangeBeforeTheWatchBegan) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("quire_early_door_" + std::to_string(getpid()) + ".json");
  std::ofstream(path) << KeyFile();
  ServerMetrics metrics("m");
  const auto keeper = DoorKeeper::Open({.api_keys = path, .served = {"m"}}, &metrics.auth());
  ASSERT_TRUE(keeper.ok()) << keeper.status();
  const auto admitted = [&] {
    const std::string header = "Bearer " + KeyOf('a');
    return (*keeper)
        ->door()
        .Admit({.authorization = {header}}, "/quire.v1.Inference/Generate")
        .ok();
  };
  EXPECT_TRUE(admitted());
  std::ofstream(path) << R"({"tenants": {"acme": {}}, "keys": []})";
  (*keeper)->Watch([](const TenantTable&) {});
  EXPECT_TRUE(TestServer::Eventually([&] { return !admitted(); }));
  (*keeper)->StopWatch();
  std::filesystem::remove(path);
}

TEST(DoorKeeperTest, FollowsItsFile) {
  const auto path =
      std::filesystem::temp_directory_path() / ("quire_door_" + std::to_string(getpid()) + ".json");
  const auto write = [&](const std::string& text) {
    std::ofstream(path.string() + ".new") << text;
    std::filesystem::rename(path.string() + ".new", path);
  };
  write(KeyFile());
  ServerMetrics metrics("m");
  const auto keeper = DoorKeeper::Open({.api_keys = path, .served = {"m"}}, &metrics.auth());
  ASSERT_TRUE(keeper.ok()) << keeper.status();
  std::atomic<size_t> tenants{0};
  (*keeper)->Watch([&](const TenantTable& table) { tenants = table.tenants.size(); });
  EXPECT_EQ(tenants, 3u);
  EXPECT_EQ((*keeper)->NamesOf({{.tenant = TenantIdOf("beta")}, {.tenant = 5}}),
            (std::vector<std::string>{"beta", ""}));
  const auto admits = [&](char digit) {
    const std::string header = "Bearer " + KeyOf(digit);
    return (*keeper)
        ->door()
        .Admit({.authorization = {header}}, "/quire.v1.Inference/Generate")
        .ok();
  };
  EXPECT_TRUE(admits('a'));
  write("{\"tenants\": ");
  EXPECT_TRUE(TestServer::Eventually([&] {
    return metrics.Serialize({}).find("quire_key_file_refused{model_name=\"m\"} 1") !=
           std::string::npos;
  }));
  EXPECT_TRUE(admits('a'));
  write(R"({"tenants": {"acme": {}}, "keys": [)" + Entry('2', "acme", R"("infer")") + "]}");
  EXPECT_TRUE(TestServer::Eventually([&] { return tenants == 1u && admits('2'); }));
  EXPECT_FALSE(admits('a'));
  EXPECT_THAT(metrics.Serialize({}), HasSubstr("quire_key_file_refused{model_name=\"m\"} 0"));
  (*keeper)->StopWatch();
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace quire
