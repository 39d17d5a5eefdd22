// The messages of gRPC 1.51 and OpenSSL 3.
#include "server/tls/handshakes.h"

namespace quire {
namespace {

using Failure = Handshakes::Failure;

struct Phrase {
  std::string_view text;
  Failure failure;
};

// The first phrase that a message holds decides.
constexpr Phrase kPhrases[] = {
    {"did not return a certificate", Failure::kNoCertificate},
    {"certificate verify failed", Failure::kUntrusted},
    {"wrong version number", Failure::kPlaintext},
    {"http request", Failure::kPlaintext},
    {"unsupported protocol", Failure::kVersion},
    {"version too low", Failure::kVersion},
    {"no shared cipher", Failure::kVersion},
    {"no suitable", Failure::kVersion},
    {" alert ", Failure::kRefused},
    {"timed out", Failure::kTimeout},
    {"Timed out", Failure::kTimeout},
    {"Deadline Exceeded", Failure::kTimeout},
    {"Socket closed", Failure::kClosed},
    {"EOF", Failure::kClosed},
    {"reset by peer", Failure::kClosed},
    {"Handshake read failed", Failure::kClosed},
    {"Handshake write failed", Failure::kClosed},
};

}  // namespace

Handshakes& Handshakes::OfProcess() {
  static Handshakes* const handshakes = new Handshakes;  // gRPC's threads outlive statics
  return *handshakes;
}

std::optional<Failure> Handshakes::FailureOf(std::string_view file, std::string_view message) {
  // Other lines tell of the same failure once more.
  if (!file.ends_with("chttp2_server.cc") || !message.starts_with("Handshaking failed")) {
    return std::nullopt;
  }
  for (const Phrase& phrase : kPhrases) {
    if (message.find(phrase.text) != std::string_view::npos) return phrase.failure;
  }
  return Failure::kOther;
}

const char* Handshakes::Name(Failure failure) {
  switch (failure) {
    case Failure::kNoCertificate: return "no_certificate";
    case Failure::kUntrusted: return "untrusted";
    case Failure::kPlaintext: return "plaintext";
    case Failure::kVersion: return "version";
    case Failure::kRefused: return "refused";
    case Failure::kTimeout: return "timeout";
    case Failure::kClosed: return "closed";
    case Failure::kOther: break;
  }
  return "other";
}

}  // namespace quire
