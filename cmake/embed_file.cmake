# Writes a C++ source that holds a file's bytes as a string:
#   cmake -DINPUT=page.html -DOUTPUT=page.cc -DSYMBOL=kPageHtml -P embed_file.cmake
file(READ "${INPUT}" hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE "${OUTPUT}" "#include <string_view>

namespace mstar {

namespace {

constexpr unsigned char kBytes[] = {
${bytes}};

}  // namespace

extern const std::string_view ${SYMBOL};
const std::string_view ${SYMBOL}(reinterpret_cast<const char*>(kBytes), sizeof(kBytes));

}  // namespace mstar
")
