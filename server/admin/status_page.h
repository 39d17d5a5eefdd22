// The page at / of the admin port, for people: server/admin/page/status.html, which the build
// embeds. It shows /status.json and /history.json, and asks for them again every second.
#pragma once

#include <string>
#include <string_view>

#include "server/admin/admin_http.h"

namespace quire {

// The file, as it was when the server was built.
std::string_view StatusHtml();

// The file with a security policy that lets its own style and script run, and nothing else.
AdminPage StatusPage();

// The policy for an HTML file: hashes of its inline <style> and <script>, and requests to its own
// server only.
std::string SecurityPolicyFor(std::string_view html);

}  // namespace quire
