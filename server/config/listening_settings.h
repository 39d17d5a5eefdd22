// The settings of the server's door: where it listens, with which certificates, and for whom. A
// part of the table of config_table.h.
#pragma once

#include <vector>

#include "flags/flag.h"
#include "server/config/server_config.h"

namespace quire {

// Appends the rows; `server` outlives them.
void AddListening(ServerConfig* server, std::vector<flags::Flag>* rows);

}  // namespace quire
