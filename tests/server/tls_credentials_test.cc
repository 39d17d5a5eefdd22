// gRPC over a store's certificates: clients' certificates as identities, and a store that changes.
#include "server/tls/tls_credentials.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <ctime>
#include <mutex>

#include "server/identity/open_door.h"
#include "server/metrics/metrics.h"
#include "tests/server/made_certificate.h"

namespace quire {
namespace {

using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

using Names = std::vector<std::string>;

// Admits every call, and keeps the names in the certificate of the last.
class WatchedDoor final : public Door {
 public:
  Admission Admit(const CallFacts& facts, std::string_view) const override {
    const std::lock_guard lock(mutex_);
    seen_ = facts.certificate_names;
    return {LocalAdmin()};
  }
  Names seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  mutable std::mutex mutex_;
  mutable Names seen_;
};

// Answers every call with UNIMPLEMENTED.
class Answerer {
 public:
  explicit Answerer(CertificateStore* store) : gate_(&door_, &metrics_.auth()) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", TlsCredentials(store, &gate_), &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
  }

  // One call over a new connection; its status.
  grpc::StatusCode Call(const MadeCertificate& authority, const MadeCertificate* client) {
    grpc::SslCredentialsOptions options{.pem_root_certs = authority.pem};
    if (client != nullptr) {
      options.pem_cert_chain = client->pem;
      options.pem_private_key = client->key_pem;
    }
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    grpc::GenericStub stub(grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port_),
                                                     grpc::SslCredentials(options), arguments));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    grpc::CompletionQueue queue;
    grpc::ByteBuffer request, reply;
    grpc::Slice empty;
    request = grpc::ByteBuffer(&empty, 1);
    const auto call = stub.PrepareUnaryCall(&context, "/a/B", request, &queue);
    grpc::Status status;
    call->StartCall();
    call->Finish(&reply, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status.error_code();
  }

  Names seen() const { return door_.seen(); }

 private:
  struct Service : grpc::CallbackGenericService {
    grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
      struct Reply final : grpc::ServerGenericBidiReactor {
        Reply() { Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "")); }
        void OnDone() override { delete this; }
      };
      return new Reply;
    }
  };

  ServerMetrics metrics_{"test"};
  WatchedDoor door_;
  CallGate gate_;
  Service service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class TlsCredentialsTest : public testing::Test {
 protected:
  std::unique_ptr<CertificateStore> Store(const std::string& clients) {
    const TlsFiles files{
        .certificate = WriteTestFile("c.pem", server_.pem),
        .key = WriteTestFile("c.key", server_.key_pem),
        .client_ca = clients == "none" ? "" : WriteTestFile("a.pem", authority_.pem),
        .clients = clients};
    auto store = CertificateStore::Open(files, time(nullptr));
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }

  static constexpr grpc::StatusCode kAnswered = grpc::StatusCode::UNIMPLEMENTED;
  static constexpr grpc::StatusCode kRefused = grpc::StatusCode::UNAVAILABLE;
  const MadeCertificate authority_ = MakeCertificate({.name = "authority", .authority = true});
  const MadeCertificate other_ = MakeCertificate({.name = "other", .authority = true});
  const MadeCertificate server_ = MakeCertificate({.name = "server"}, &authority_);
  const MadeCertificate client_ = MakeCertificate(
      {.name = "client", .names = "URI:spiffe://example/a,DNS:a.example"}, &authority_);
  const MadeCertificate stranger_ = MakeCertificate({.name = "stranger"}, &other_);
};

TEST_F(TlsCredentialsTest, TheIdentityOfACallIsItsVerifiedCertificate) {
  const auto store = Store("auto");
  Answerer listener(store.get());
  ASSERT_EQ(listener.Call(authority_, &client_), kAnswered);
  EXPECT_THAT(listener.seen(), UnorderedElementsAre("spiffe://example/a", "uri:spiffe://example/a",
                                                    "dns:a.example", "cn:client"));
  EXPECT_EQ(listener.Call(authority_, nullptr), kRefused);
  EXPECT_EQ(listener.Call(authority_, &stranger_), kRefused);
}

TEST_F(TlsCredentialsTest, AnOptionalCertificateIsVerifiedOrAbsent) {
  const auto store = Store("optional");
  Answerer listener(store.get());
  EXPECT_EQ(listener.Call(authority_, nullptr), kAnswered);
  EXPECT_THAT(listener.seen(), IsEmpty());
  EXPECT_EQ(listener.Call(authority_, &client_), kAnswered);
  EXPECT_THAT(listener.seen(), Not(IsEmpty()));
  EXPECT_EQ(listener.Call(authority_, &stranger_), kRefused);
}

TEST_F(TlsCredentialsTest, WithoutClientAuthoritiesNoCertificateIsAnIdentity) {
  const auto store = Store("none");
  Answerer listener(store.get());
  EXPECT_EQ(listener.Call(authority_, &client_), kAnswered);
  EXPECT_THAT(listener.seen(), IsEmpty());
}

TEST_F(TlsCredentialsTest, NewConnectionsGetWhatTheStoreHasTaken) {
  const auto store = Store("auto");
  Answerer listener(store.get());
  EXPECT_EQ(listener.Call(authority_, &client_), kAnswered);
  const MadeCertificate moved = MakeCertificate({.name = "moved"}, &other_);
  WriteTestFile("c.pem", moved.pem);
  WriteTestFile("c.key", moved.key_pem);
  EXPECT_EQ(store->LookAgain(time(nullptr)).outcome, CertificateStore::Outcome::kTaken);
  EXPECT_EQ(listener.Call(authority_, &client_), kRefused);
  EXPECT_EQ(listener.Call(other_, &client_), kAnswered);
}

}  // namespace
}  // namespace quire
