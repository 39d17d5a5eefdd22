// The server's certificates: what is refused and in which words, how changes of files are taken,
// and how gRPC's log is read.
// Covers server/tls/certificate_check.cc
// Covers server/tls/certificate_store.cc
// Covers server/tls/handshakes.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "server/tls/certificate_check.h"
#include "server/tls/certificate_store.h"
#include "server/tls/handshakes.h"
#include "tests/server/made_certificate.h"

namespace quire {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Outcome = CertificateStore::Outcome;

// An authority, a server's certificate of it, and files with both.
class TlsTest : public testing::Test {
 protected:
  CertificateTexts Good() { return {server_.pem, server_.key_pem, ""}; }

  // Why these texts are refused; empty: they are good.
  std::string FaultOf(const CertificateTexts& texts, time_t now = time(nullptr)) {
    TlsFiles files{.certificate = "cert.pem", .key = "key.pem"};
    if (!texts.client_ca.empty()) files.client_ca = "clients.pem";
    return std::string(CheckCertificates(files, texts, now).status().message());
  }

  void WriteServer(const MadeCertificate& made) {
    files_.certificate = WriteTestFile("cert.pem", made.pem);
    files_.key = WriteTestFile("key.pem", made.key_pem);
  }

  std::unique_ptr<CertificateStore> OpenStore() {
    WriteServer(server_);
    auto store = CertificateStore::Open(files_, time(nullptr));
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }

  const MadeCertificate authority_ = MakeCertificate({.name = "authority", .authority = true});
  const MadeCertificate server_ = MakeCertificate({.name = "server"}, &authority_);
  const MadeCertificate other_ = MakeCertificate({.name = "other"}, &authority_);
  TlsFiles files_;
};

TEST_F(TlsTest, GoodCertificatesPassWithTheirFacts) {
  CertificateTexts texts = Good();
  texts.certificate += authority_.pem;
  texts.client_ca = authority_.pem + MakeCertificate({.name = "second", .authority = true}).pem;
  const auto facts =
      CheckCertificates({.certificate = "c", .client_ca = "a"}, texts, time(nullptr));
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->subject, "CN=server");
  EXPECT_EQ(facts->names, "localhost, 127.0.0.1");
  EXPECT_EQ(facts->client_authorities, 2);
  EXPECT_NEAR(static_cast<double>(facts->not_after - time(nullptr)), 86400, 60);
}

TEST_F(TlsTest, TheFirstEndOfTheChainCounts) {
  const MadeCertificate brief =
      MakeCertificate({.name = "brief", .ends_in_seconds = 600, .authority = true});
  const MadeCertificate leaf = MakeCertificate({.name = "leaf"}, &brief);
  const auto facts = CheckCertificates({.certificate = "c"},
                                       {leaf.pem + brief.pem, leaf.key_pem, ""}, time(nullptr));
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_NEAR(static_cast<double>(facts->not_after - time(nullptr)), 600, 60);
}

TEST_F(TlsTest, EachFaultIsNamedWithItsFileAndTheWayOut) {
  const std::string half = server_.pem.substr(0, server_.pem.size() / 2);
  EXPECT_THAT(FaultOf({"", server_.key_pem, ""}),
              AllOf(HasSubstr("--ssl-certfile cert.pem"), HasSubstr("no certificate in PEM form")));
  EXPECT_THAT(FaultOf({half, server_.key_pem, ""}), HasSubstr("certificate 1 of 1 is cut off"));
  EXPECT_THAT(FaultOf({server_.pem + half, server_.key_pem, ""}),
              HasSubstr("certificate 2 of 2 is cut off"));
  EXPECT_THAT(FaultOf({server_.pem + std::string(1, '\0'), server_.key_pem, ""}),
              HasSubstr("not PEM text"));
  EXPECT_THAT(FaultOf({server_.pem, "nonsense", ""}),
              AllOf(HasSubstr("--ssl-keyfile key.pem"), HasSubstr("no private key in PEM form")));
  EXPECT_THAT(FaultOf({server_.pem, server_.key_pem.substr(0, 60), ""}),
              HasSubstr("the key is cut off or damaged"));
  EXPECT_THAT(FaultOf({server_.pem, other_.key_pem, ""}),
              HasSubstr("does not belong to the first certificate of cert.pem (CN=server)"));
  EXPECT_THAT(FaultOf({authority_.pem + server_.pem, server_.key_pem, ""}),
              HasSubstr("put the server's own certificate first"));
  EXPECT_THAT(FaultOf({server_.pem + other_.pem, server_.key_pem, ""}),
              AllOf(HasSubstr("certificate 2 (CN=other) did not issue certificate 1 (CN=server)"),
                    HasSubstr("each issuer behind what it issued")));
}

TEST_F(TlsTest, AnEncryptedKeyIsRefusedWithoutAskingForItsPassword) {
  const std::string key =
      "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAg=\n"
      "-----END ENCRYPTED PRIVATE KEY-----\n";
  EXPECT_THAT(FaultOf({server_.pem, key, ""}), HasSubstr("the key is encrypted"));
}

TEST_F(TlsTest, ValidityIsJudgedByTheGivenTime) {
  const time_t now = time(nullptr);
  EXPECT_EQ(FaultOf(Good(), now), "");
  EXPECT_THAT(FaultOf(Good(), now + 90'000), HasSubstr("certificate 1 expired at"));
  EXPECT_THAT(FaultOf(Good(), now - 7200), HasSubstr("certificate 1 is not valid before"));
}

TEST_F(TlsTest, ACertificateForClientsAndAWeakKeyAreRefused) {
  const MadeCertificate client = MakeCertificate({.name = "c", .usage = "clientAuth"}, &authority_);
  EXPECT_THAT(FaultOf({client.pem, client.key_pem, ""}), HasSubstr("does not allow a TLS server"));
  const MadeCertificate weak = MakeCertificate({.name = "w", .rsa_bits = 1024}, &authority_);
  EXPECT_THAT(FaultOf({weak.pem, weak.key_pem, ""}),
              HasSubstr("OpenSSL refuses it: ee key too small"));
}

TEST_F(TlsTest, ClientAuthoritiesAreChecked) {
  CertificateTexts texts = Good();
  texts.client_ca = server_.pem;
  EXPECT_THAT(FaultOf(texts), AllOf(HasSubstr("--ssl-ca-certs clients.pem"),
                                    HasSubstr("certificate 1 (CN=server) may not sign others")));
  texts.client_ca =
      MakeCertificate(
          {.name = "old", .begins_in_seconds = -7200, .ends_in_seconds = -3600, .authority = true})
          .pem;
  EXPECT_THAT(FaultOf(texts), HasSubstr("every authority in it has expired"));
  texts.client_ca += authority_.pem;
  EXPECT_EQ(FaultOf(texts), "");
  texts.client_ca = "nonsense";
  EXPECT_THAT(FaultOf(texts), HasSubstr("no certificate in PEM form"));
}

TEST_F(TlsTest, UnreadableFilesAreNamed) {
  const auto fault = [](const TlsFiles& files) {
    return std::string(CheckTlsFiles(files, time(nullptr)).message());
  };
  EXPECT_THAT(fault({.certificate = "/nowhere/c.pem"}),
              HasSubstr("--ssl-certfile /nowhere/c.pem: No such file or directory"));
  EXPECT_THAT(fault({.certificate = testing::TempDir()}), HasSubstr("not a file"));
  EXPECT_EQ(fault({}), "");
}

TEST_F(TlsTest, AKeyMayLieInTheFileOfItsCertificate) {
  files_.certificate = WriteTestFile("both.pem", server_.key_pem + server_.pem);
  EXPECT_TRUE(CheckTlsFiles(files_, time(nullptr)).ok());
  files_.certificate = WriteTestFile("alone.pem", server_.pem);
  EXPECT_THAT(std::string(CheckTlsFiles(files_, time(nullptr)).message()),
              HasSubstr("give the key by --ssl-keyfile FILE"));
}

TEST_F(TlsTest, AGoodChangeIsTakenAtTheFirstLook) {
  const auto store = OpenStore();
  EXPECT_EQ(store->TakeNew()->certificate, server_.pem);
  EXPECT_EQ(store->LookAgain(time(nullptr)).outcome, Outcome::kUnchanged);
  EXPECT_EQ(store->TakeNew(), std::nullopt);
  WriteServer(other_);
  EXPECT_EQ(store->LookAgain(time(nullptr)).outcome, Outcome::kTaken);
  EXPECT_EQ(store->facts().subject, "CN=other");
  EXPECT_EQ(store->TakeNew()->certificate, other_.pem);
  EXPECT_EQ(store->LookAgain(time(nullptr)).outcome, Outcome::kUnchanged);
}

TEST_F(TlsTest, ABadChangeIsRefusedOnceAtTheSecondLook) {
  const auto store = OpenStore();
  store->TakeNew();
  WriteTestFile("cert.pem", "nonsense");
  EXPECT_EQ(store->LookAgain(time(nullptr)).outcome, Outcome::kUnsettled);
  const CertificateStore::Look refused = store->LookAgain(time(nullptr));
  EXPECT_EQ(refused.outcome, Outcome::kRefused);
  EXPECT_THAT(refused.reason, HasSubstr("no certificate in PEM form"));
  EXPECT_EQ(store->LookAgain(time(nullptr)).outcome, Outcome::kUnchanged);
  EXPECT_EQ(store->facts().subject, "CN=server");
  EXPECT_EQ(store->TakeNew(), std::nullopt);
  // Another fault is said too.
  remove(files_.key.c_str());
  EXPECT_EQ(store->LookAgain(time(nullptr)).outcome, Outcome::kUnsettled);
  EXPECT_THAT(store->LookAgain(time(nullptr)).reason, HasSubstr("No such file"));
  WriteServer(other_);
  EXPECT_EQ(store->LookAgain(time(nullptr)).outcome, Outcome::kTaken);
  EXPECT_EQ(store->facts().subject, "CN=other");
}

TEST_F(TlsTest, FilesThatAreRestoredEndTheRefusal) {
  const auto store = OpenStore();
  store->TakeNew();
  WriteTestFile("cert.pem", "nonsense");
  store->LookAgain(time(nullptr));
  EXPECT_EQ(store->LookAgain(time(nullptr)).outcome, Outcome::kRefused);
  WriteServer(server_);
  EXPECT_EQ(store->LookAgain(time(nullptr)).outcome, Outcome::kTaken);
  EXPECT_EQ(store->TakeNew(), std::nullopt);
}

TEST_F(TlsTest, AHalfDoneReplacementIsNoFault) {
  const auto store = OpenStore();
  WriteTestFile("cert.pem", other_.pem);
  EXPECT_EQ(store->LookAgain(time(nullptr)).outcome, Outcome::kUnsettled);
  WriteTestFile("key.pem", other_.key_pem);
  EXPECT_EQ(store->LookAgain(time(nullptr)).outcome, Outcome::kTaken);
}

TEST(HandshakesTest, FailuresAreReadFromTheLog) {
  using Failure = Handshakes::Failure;
  const auto failure = [](const char* message) {
    return Handshakes::FailureOf("./src/chttp2_server.cc",
                                 std::string("Handshaking failed: UNKNOWN:") + message);
  };
  EXPECT_EQ(failure("Ssl handshake failed: SSL_ERROR_SSL: error:0A0000C7:SSL routines::peer did "
                    "not return a certificate"),
            Failure::kNoCertificate);
  EXPECT_EQ(failure("Ssl handshake failed: SSL_ERROR_SSL: error:0A000086:SSL routines::certificate "
                    "verify failed"),
            Failure::kUntrusted);
  EXPECT_EQ(failure("Ssl handshake failed: error:0A00010B:SSL routines::wrong version number"),
            Failure::kPlaintext);
  EXPECT_EQ(failure("Ssl handshake failed: error:0A000102:SSL routines::unsupported protocol"),
            Failure::kVersion);
  EXPECT_EQ(failure("Ssl handshake failed: error:0A000418:SSL routines::tlsv1 alert unknown ca"),
            Failure::kRefused);
  EXPECT_EQ(failure("Handshake read failed {children:[INTERNAL:Socket closed {fd:7}]}"),
            Failure::kClosed);
  EXPECT_EQ(failure("of a kind that no release has"), Failure::kOther);
  EXPECT_EQ(Handshakes::FailureOf("security_handshaker.cc", "Security handshake failed: x"),
            std::nullopt);
  EXPECT_EQ(Handshakes::FailureOf("chttp2_server.cc", "another line"), std::nullopt);
}

}  // namespace
}  // namespace quire
