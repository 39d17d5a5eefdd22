// The policy names the style and the script by their hashes, so that text from elsewhere cannot run
// even if the page had a fault.
#include "server/admin/status_page.h"

#include <openssl/sha.h>

#include "absl/strings/escaping.h"

namespace quire {
namespace {

// The text of the only element of this name, which has no attributes.
std::string_view Inside(std::string_view html, std::string_view element) {
  const std::string open = "<" + std::string(element) + ">";
  const size_t begin = html.find(open);
  const size_t end = html.find("</" + std::string(element) + ">", begin);
  if (begin == std::string_view::npos || end == std::string_view::npos) return {};
  return html.substr(begin + open.size(), end - begin - open.size());
}

std::string HashSource(std::string_view text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return "'sha256-" + absl::Base64Escape({reinterpret_cast<const char*>(digest), sizeof digest}) +
         "'";
}

}  // namespace

std::string SecurityPolicyFor(std::string_view html) {
  return "default-src 'none'; connect-src 'self'; img-src data:; style-src " +
         HashSource(Inside(html, "style")) + "; script-src " + HashSource(Inside(html, "script")) +
         "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
}

AdminPage StatusPage() {
  static const std::string* const policy = new std::string(SecurityPolicyFor(StatusHtml()));
  return {.content_type = "text/html; charset=utf-8",
          .security_policy = *policy,
          .body = std::string(StatusHtml())};
}

}  // namespace quire
