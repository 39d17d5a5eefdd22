// Fuzz targets for the proofs of callers: each takes any bytes and aborts if a reader breaks its
// contract.
#pragma once

#include <string_view>

namespace quire {

// A key file: each key and certificate that is accepted stands in the file, with its tenant.
void FuzzKeyTable(std::string_view bytes);
// The header `authorization` of a call: a door with one key opens for that alone.
void FuzzAuthorization(std::string_view bytes);

}  // namespace quire
