#include "orrery/formats/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "orrery/base/text.h"

namespace orrery::formats {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;
constexpr int kGzipOnly = 16 + MAX_WBITS;  // of inflateInit2: no zlib header

// zlib's state, released however the reading ends.
struct Inflater {
  z_stream stream{};
  bool open = false;
  ~Inflater() {
    if (open) inflateEnd(&stream);
  }
};

}  // namespace

Result<std::string> Gunzip(std::string_view bytes, std::int64_t limit_bytes,
                           const std::string& name) {
  Inflater inflater;
  z_stream& z = inflater.stream;
  if (inflateInit2(&z, kGzipOnly) != Z_OK) return ResourceError("zlib does not start");
  inflater.open = true;
  std::string out;
  const auto block = std::make_unique<Bytef[]>(kPiece);
  std::size_t taken = 0;
  bool ended = false;  // the last member
  while (taken < bytes.size() || !ended) {
    const std::size_t piece =
        std::min<std::size_t>(bytes.size() - taken, std::numeric_limits<uInt>::max());
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + taken));
    z.avail_in = static_cast<uInt>(piece);
    if (ended && inflateReset(&z) != Z_OK) return ResourceError("zlib does not start anew");
    z.next_out = block.get();
    z.avail_out = kPiece;
    const int state = inflate(&z, Z_NO_FLUSH);
    taken += piece - z.avail_in;
    out.append(reinterpret_cast<const char*>(block.get()), kPiece - z.avail_out);
    ended = state == Z_STREAM_END;
    if (!ended && state != Z_OK) {
      return InvalidInput(
          "{}: offset {}: {}", Printable(name), taken,
          state == Z_BUF_ERROR ? "the gzip stream is cut off" : "no sound gzip stream");
    }
    if (static_cast<std::int64_t>(out.size()) > limit_bytes) {
      return InvalidInput("{}: holds more than {} when inflated", Printable(name),
                          HumanBytes(limit_bytes));
    }
  }
  return out;
}

std::string GunzipStart(std::string_view start, std::size_t most) {
  Inflater inflater;
  z_stream& z = inflater.stream;
  if (inflateInit2(&z, kGzipOnly) != Z_OK) return {};
  inflater.open = true;
  std::string out(most, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(start.data()));
  z.avail_in = static_cast<uInt>(std::min(start.size(), kPiece));
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(std::min(most, kPiece));
  const uInt room = z.avail_out;
  inflate(&z, Z_SYNC_FLUSH);
  out.resize(room - z.avail_out);
  return out;
}

}  // namespace orrery::formats
