# cmake -DIN=FILE -DOUT=FILE.cc -DHEADER=PATH -DFUNCTION=NAME -P embed_text.cmake: writes a source
# whose quire::NAME() returns the text of a file.
file(READ "${IN}" text)
file(WRITE "${OUT}" "// The text of a file, made by cmake/embed_text.cmake.
#include \"${HEADER}\"

namespace quire {

std::string_view ${FUNCTION}() { return R\"quire_text(${text})quire_text\"; }

}  // namespace quire
")
