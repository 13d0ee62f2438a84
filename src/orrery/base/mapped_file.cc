#include "orrery/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "orrery/base/text.h"

namespace orrery {
namespace {

Status Failed(const char* what, const std::string& path) {
  return InvalidInput("cannot {} '{}': {}; name a readable file", what, Printable(path, 400),
                      std::strerror(errno));  // NOLINT(concurrency-mt-unsafe): on one thread
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  // A pipe would wait for its writer, only to be refused.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return Failed("open", path);
  struct stat status {};
  const bool known = fstat(descriptor, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    if (known) errno = EINVAL;
    Status failed = Failed("map", path);
    close(descriptor);
    return failed;
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = size == 0 ? nullptr : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  Status failed = data == MAP_FAILED ? Failed("map", path) : Status();  // NOLINT: a macro's cast
  close(descriptor);
  if (!failed.ok()) return failed;
  return MappedFile(data, size);
}

void MappedFile::Forget() const {
  if (size_ > 0) madvise(data_, size_, MADV_DONTNEED);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace orrery
